"""A stack of transformer blocks, and who owns its positions."""

import keras

from keras_posenc.encodings.base import Positions
from keras_posenc.encodings.registry import PACKAGE, get_class, split
from keras_posenc.encodings.segment import SegmentBias, as_pair
from keras_posenc.layers.blocks import TransformerBlock
from keras_posenc.layers.stack import (
    SHARING,
    check_extrapolate,
    check_options,
    check_start,
    make_encoding,
    project_for,
)
from keras_posenc.utils import checks, initializers
from keras_posenc.utils.outputs import TracedOutputs


@keras.saving.register_keras_serializable(package=PACKAGE)
class TransformerEncoder(TracedOutputs, keras.layers.Layer):
    """Blocks with one way of knowing positions.

    Sharing is composition. With `"none"` every block owns an encoding with parameters for every head; with `"head"`
    every block owns one whose parameters serve all heads; with `"layer"` the encoder owns one, asks it once per call,
    and hands the answer to every block. Segment biases go the same way.

    Tying the layers (ALBERT) is apart from sharing positions: one block is applied `num_layers` times, and unless
    positions are shared too, the encoder owns an encoding for each application and hands the block that of its turn.

    Args:
        num_layers, num_heads, hidden_dim, intermediate_dim: sizes.
        position: name of an encoding or several joined by `+`, e.g. `"diet_abs"`, `"learned+tisa"`, `"none"`. Those
            that enter at the input are added to the inputs here; the others go into the blocks.
        position_options: dict of their options, e.g. `{"rank": 128}`. With `causal`, an encoding with an option
            `bidirectional` is made with `bidirectional=False`, unless this says otherwise.
        sharing: `"none"`, `"head"` or `"layer"`.
        max_length: number of positions, for encodings that need to know.
        extrapolate: `"error"`, `"clip"` or `"interpolate"`, for positions beyond `max_length`.
        num_segments: if given, DIET's per-head segment bias, shared as the positions are; calls need `segment_ids`.
        num_keys: if given, Linformer attention with so many compressed keys.
        embedding_dim: width of the inputs, if it is not `hidden_dim` (ALBERT): positions at the input and the first
            normalisation have this width, and a projection to `hidden_dim` follows.
        tie_layers: apply the parameters of one block `num_layers` times (ALBERT).
        embedding_norm: normalise the sum of inputs and position embeddings first, as BERT does.
        dropout, attention_dropout, activation, norm_first, epsilon, causal, kernel_initializer: as in
            `TransformerBlock`. With `norm_first` a last layer normalisation follows the blocks.

    Call arguments:
        inputs: `(batch, length, embedding_dim or hidden_dim)` token embeddings.
        padding_mask: boolean or 0/1 `(batch, length)`, with a cache `(batch, cache length)`.
        segment_ids: int `(batch, length)`, if the encoder has segments; with a cache a pair, see `PositionalAttention`.
        start_index: absolute position of the first input, with a cache.
        cache: list of one cache per layer, from `make_cache`, for a causal encoder; the updated list is returned as the
            last output.
        return_intermediates: also return a dict of lists, an entry per layer: `hidden_states` (with the input of the
            first block before them), `attention`, `values`.

    Reference: Vaswani et al., 2017; the sharing modes are those of DIET, section 4.4.
    """

    def __init__(
        self,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        position="learned",
        position_options=None,
        sharing="none",
        max_length=None,
        extrapolate=None,
        num_segments=None,
        num_keys=None,
        embedding_dim=None,
        tie_layers=False,
        embedding_norm=True,
        activation="gelu",
        dropout=0.0,
        attention_dropout=None,
        norm_first=False,
        epsilon=1e-12,
        causal=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_layers = checks.positive_int("TransformerEncoder", "num_layers", num_layers)
        self.sharing = checks.one_of("TransformerEncoder", "sharing", sharing, SHARING)
        self.position_spec = position
        self.position_options = dict(position_options or {})
        self.num_heads, self.hidden_dim = checks.heads("TransformerEncoder", num_heads, hidden_dim)
        self.intermediate_dim = intermediate_dim
        self.max_length, self.extrapolate = max_length, extrapolate
        self.num_segments, self.num_keys = num_segments, num_keys
        if embedding_dim is not None:
            checks.positive_int("TransformerEncoder", "embedding_dim", embedding_dim)
        self.embedding_dim = embedding_dim
        self.tie_layers = bool(tie_layers)
        self.embedding_norm = bool(embedding_norm)
        self.activation = keras.activations.get(activation)
        self.dropout, self.attention_dropout = dropout, attention_dropout
        self.norm_first, self.epsilon, self.causal = bool(norm_first), epsilon, bool(causal)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

        at_input, in_attention = split(position)
        check_extrapolate(self, at_input + in_attention)
        check_options(self.position_options, at_input + in_attention)
        self._check_compressed(in_attention)
        self.input_positions = [self._make([name]) for name in at_input]
        # What a block does not own itself: one encoding for all layers, or one for each turn of a tied block.
        handed = 1 if sharing == "layer" else num_layers if tie_layers else 0
        self.positions = [self._make(in_attention) for _ in range(handed)] if in_attention else []
        self.segment_biases = []
        if num_segments is not None:
            self.segment_biases = [
                SegmentBias(num_heads, num_segments, sharing == "head", dtype=self.dtype_policy, name="segment_bias")
                for _ in range(handed)
            ]
        self.blocks = [
            TransformerBlock(
                num_heads,
                intermediate_dim,
                hidden_dim,
                activation=activation,
                dropout=dropout,
                attention_dropout=attention_dropout,
                norm_first=norm_first,
                epsilon=epsilon,
                causal=causal,
                position=None if handed else self._make(in_attention),
                max_length=max_length,
                share_heads=True if sharing == "head" else None,
                num_segments=None if handed else num_segments,
                num_keys=num_keys,
                kernel_initializer=initializers.copy_for(f"block_{index}", self.kernel_initializer),
                dtype=self.dtype_policy,
                name=f"block_{index}",
            )
            for index in range(1 if tie_layers else num_layers)
        ]
        if self.positions:
            for block in self.blocks:
                project_for(block.attention, self.positions[0])
        self.input_norm = self._norm("embedding_norm") if embedding_norm else None
        self.input_projection = None
        if embedding_dim is not None:
            self.input_projection = keras.layers.Dense(
                hidden_dim,
                kernel_initializer=initializers.copy_for("embedding_projection", self.kernel_initializer),
                dtype=self.dtype_policy,
                name="embedding_projection",
            )
        self.final_norm = self._norm("final_norm") if norm_first else None
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy) if dropout else None

    @property
    def position(self):
        """The encoding that all layers share, or `None`."""
        return self.positions[0] if self.sharing == "layer" and self.positions else None

    @property
    def segment_bias(self):
        """The segment bias that all layers share, or `None`."""
        return self.segment_biases[0] if self.sharing == "layer" and self.segment_biases else None

    def _make(self, names):
        own = {} if self.num_keys is None else {"num_keys": self.num_keys}
        if self.causal:
            own["bidirectional"] = False
        return make_encoding(self, names, **own)

    def _check_compressed(self, names):
        compressing = [name for name in names if getattr(get_class(name), "compresses_keys", False)]
        if self.num_keys is None and compressing:
            raise ValueError(
                f"position={self.position_spec!r} scores the compressed keys of a Linformer. Pass `num_keys`, the "
                "number of compressed keys."
            )
        if self.num_keys is not None and len(compressing) < len(names):
            raise ValueError(
                f"With num_keys={self.num_keys} attention is to compressed keys, which have no positions of their own. "
                f"Use an encoding at the input or 'diet_abs_lin'. Received: position={self.position_spec!r}"
            )
        if self.num_keys is not None and self.num_segments is not None:
            raise ValueError(
                "Compressed keys belong to no segment: add segment embeddings to the input instead. Received: "
                f"num_keys={self.num_keys}, num_segments={self.num_segments}"
            )

    def _norm(self, name):
        return keras.layers.LayerNormalization(epsilon=self.epsilon, dtype=self.dtype_policy, name=name)

    def build(self, inputs_shape):
        width = self.embedding_dim or self.hidden_dim
        if inputs_shape[-1] != width:
            raise ValueError(
                f"TransformerEncoder has {'embedding_dim' if self.embedding_dim else 'hidden_dim'}={width}. "
                f"Received: inputs of shape {tuple(inputs_shape)}"
            )
        hidden_shape = tuple(inputs_shape[:-1]) + (self.hidden_dim,)
        for encoding in self.input_positions:
            encoding.build(inputs_shape)
        for layer in self.positions + self.segment_biases:
            layer.build()
        if inputs_shape[1] is not None:
            for encoding in self.input_positions + self.positions:
                encoding.check_length(inputs_shape[1])
        for layer in (self.input_norm, self.input_projection):
            if layer is not None:
                layer.build(inputs_shape)
        for block in self.blocks:
            block.build(hidden_shape)
        if self.final_norm is not None:
            self.final_norm.build(hidden_shape)
        self.built = True

    def call(
        self,
        inputs,
        padding_mask=None,
        segment_ids=None,
        start_index=0,
        cache=None,
        return_intermediates=False,
        training=None,
    ):
        check_start(start_index, cache)
        x = inputs
        total = self._total_length(x, start_index, cache)
        for encoding in self.input_positions:
            x = encoding(x, start_index=start_index, total_length=total, training=training)
        if self.input_norm is not None:
            x = self.input_norm(x)
        if self.dropout_layer is not None:
            x = self.dropout_layer(x, training=training)
        if self.input_projection is not None:
            x = self.input_projection(x)
        return self.run_blocks(x, padding_mask, segment_ids, start_index, cache, return_intermediates, training)

    def run_blocks(
        self,
        x,
        padding_mask=None,
        segment_ids=None,
        start_index=0,
        cache=None,
        return_intermediates=False,
        training=None,
    ):
        """A call from the input of the first block on, which is `hidden_states[0]` of a whole call.

        Args:
            x: `(batch, length, hidden_dim)`, embedded and normalised. What is derived by it is derived by the
                embeddings as the layers see them.
            padding_mask, segment_ids, start_index, cache, return_intermediates: as in a call.

        Returns: what a call returns.
        """
        length, total = keras.ops.shape(x)[1], self._total_length(x, start_index, cache)
        given = {"padding_mask": padding_mask, "training": training}
        if (self.num_segments is None) != (segment_ids is None):
            remedy = "construct it with `num_segments`" if self.num_segments is None else "pass `segment_ids`"
            raise ValueError(
                f"'{self.name}' has num_segments={self.num_segments} and was given "
                f"{'no' if segment_ids is None else 'some'} `segment_ids`: {remedy}."
            )
        if segment_ids is not None:
            as_pair(segment_ids, cached=cache is not None)
            if not self.segment_biases:
                given["segment_ids"] = segment_ids
        handed = self.handed_positions(length, total, start_index, segment_ids, training)

        found = {"hidden_states": [x], "attention": [], "values": []}
        caches = []
        for index, block in enumerate(self.block_of_each_layer()):
            if handed:
                given["positions"] = handed[0 if self.sharing == "layer" else index]
            if cache is not None:
                given.update(cache=cache[index], start_index=start_index)
            result = block(x, return_intermediates=return_intermediates, **given)
            x, *extras = result if isinstance(result, tuple) else (result,)
            if return_intermediates:
                found["hidden_states"].append(x)
                found["attention"].append(extras[0]["attention"])
                found["values"].append(extras[0]["values"])
            if cache is not None:
                caches.append(extras[-1])
        if self.final_norm is not None:
            x = self.final_norm(x)
        results = [x] + ([found] if return_intermediates else []) + ([caches] if cache is not None else [])
        return results[0] if len(results) == 1 else tuple(results)

    def _total_length(self, x, start_index, cache):
        return start_index + keras.ops.shape(x)[1] if cache is None else keras.ops.shape(cache[0]["value"])[2]

    def block_of_each_layer(self):
        """The block of each layer."""
        return list(self.blocks) * self.num_layers if self.tie_layers else self.blocks

    def handed_positions(self, length, total, start_index, segment_ids, training):
        """The positions that blocks are given: one for all, or one per layer; none if each block has its own."""
        for encoding in self.positions:
            encoding.check_training(training)
        handed = [encoding.at(length, total, start_index) for encoding in self.positions]
        if self.segment_biases and not handed:
            handed = [Positions(self.blocks[0].attention.position, {}) for _ in self.segment_biases]
        for positions, segment_bias in zip(handed, self.segment_biases):
            positions.segment_bias = segment_bias(*as_pair(segment_ids))
        return handed

    def make_cache(self, batch_size, length):
        """Empty caches for `length` positions, one per layer, for causal decoding."""
        return [block.attention.make_cache(batch_size, length) for block in self.block_of_each_layer()]

    def fold_positions(self, length):
        """Computes what does not depend on tokens once, for all positions below `length`."""
        from keras_posenc.folding import fold_positions

        fold_positions(self, length)

    def unfold_positions(self):
        """Undoes `fold_positions`."""
        from keras_posenc.folding import unfold_positions

        unfold_positions(self)

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:-1], self.hidden_dim)

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "position": self.position_spec,
            "position_options": self.position_options,
            "sharing": self.sharing,
            "max_length": self.max_length,
            "extrapolate": self.extrapolate,
            "num_segments": self.num_segments,
            "num_keys": self.num_keys,
            "embedding_dim": self.embedding_dim,
            "tie_layers": self.tie_layers,
            "embedding_norm": self.embedding_norm,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "norm_first": self.norm_first,
            "epsilon": self.epsilon,
            "causal": self.causal,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
