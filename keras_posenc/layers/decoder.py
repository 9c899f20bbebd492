"""A stack of decoder blocks, and who owns their positions."""

import keras
from keras import ops

from keras_posenc.encodings.registry import PACKAGE, split
from keras_posenc.layers.decoder_block import TransformerDecoderBlock
from keras_posenc.layers.stack import (
    SHARING,
    check_extrapolate,
    check_memory,
    check_options,
    check_start,
    make_encoding,
    project_for,
)
from keras_posenc.utils import checks, initializers
from keras_posenc.utils.outputs import TracedOutputs


@keras.saving.register_keras_serializable(package=PACKAGE)
class TransformerDecoder(TracedOutputs, keras.layers.Layer):
    """Decoder blocks with one way of knowing positions in self-attention, and one in cross-attention.

    Sharing works as in `TransformerEncoder`: with `"layer"` the decoder owns one encoding for the self-attention of
    all blocks and another for their cross-attention, asks each once per call and hands the answer down.

    Positions in cross-attention are contested: the distance between a source and a target position means something
    only where both run in step, so T5 uses none there, while DIET applies its encodings to all attention layers of a
    translation model. `cross_position` is `"none"` unless said otherwise.

    Args:
        num_layers, num_heads, hidden_dim, intermediate_dim: sizes.
        position: name of an encoding or several joined by `+`, as in `TransformerEncoder`. An encoding with an option
            `bidirectional` is made with `bidirectional=False`, unless `position_options` says otherwise.
        cross_position: `"none"`; `"same"`, those of `position` that act inside attention; or names.
        position_options: dict of options of all these encodings.
        sharing, max_length, extrapolate, norm_first, dropout, attention_dropout, activation, epsilon,
            kernel_initializer: as in `TransformerEncoder`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)` target embeddings.
        memory: `(batch, memory length, width)`, the output of an encoder; not needed with a cache.
        padding_mask, memory_mask: boolean or 0/1, `(batch, length)`, with a cache `(batch, cache length)`, and
            `(batch, memory length)`. Padding at the end of a target needs no mask: the tokens before it do not see it.
        start_index: absolute position of the first input, with a cache.
        cache: from `make_cache`; the updated one is returned as the last output.
        return_intermediates: also return a dict of lists, an entry per block: `hidden_states` (with the input of the
            first block before them), `attention`, `values`, `cross_attention`, `cross_values`.

    Reference: Vaswani et al., 2017 (arXiv:1706.03762), section 3.1.
    """

    def __init__(
        self,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        position="sinusoidal",
        cross_position="none",
        position_options=None,
        sharing="none",
        max_length=None,
        extrapolate=None,
        activation="relu",
        dropout=0.0,
        attention_dropout=None,
        norm_first=False,
        epsilon=1e-6,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_layers = checks.positive_int("TransformerDecoder", "num_layers", num_layers)
        self.sharing = checks.one_of("TransformerDecoder", "sharing", sharing, SHARING)
        self.position_spec, self.cross_spec = position, cross_position
        self.position_options = dict(position_options or {})
        self.num_heads, self.hidden_dim = checks.heads("TransformerDecoder", num_heads, hidden_dim)
        self.intermediate_dim = intermediate_dim
        self.max_length, self.extrapolate = max_length, extrapolate
        self.activation = keras.activations.get(activation)
        self.dropout, self.attention_dropout = dropout, attention_dropout
        self.norm_first, self.epsilon = bool(norm_first), epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

        at_input, in_self = split(position)
        in_cross = cross_names(position, cross_position)
        check_extrapolate(self, at_input + in_self + in_cross)
        check_options(self.position_options, at_input + in_self + in_cross)
        self.input_positions = [self._make([name]) for name in at_input]
        shared = sharing == "layer"
        self.blocks = [
            TransformerDecoderBlock(
                num_heads,
                intermediate_dim,
                hidden_dim,
                activation=activation,
                dropout=dropout,
                attention_dropout=attention_dropout,
                norm_first=norm_first,
                epsilon=epsilon,
                position=None if shared else self._make(in_self, causal=True),
                cross_position=None if shared else self._make(in_cross),
                max_length=max_length,
                share_heads=True if sharing == "head" else None,
                kernel_initializer=initializers.copy_for(f"block_{index}", self.kernel_initializer),
                dtype=self.dtype_policy,
                name=f"block_{index}",
            )
            for index in range(num_layers)
        ]
        self.position = self._make(in_self, causal=True) if shared else None
        self.cross_position = self._make(in_cross) if shared else None
        for block in self.blocks:
            for attention, encoding in (
                (block.self_attention, self.position),
                (block.cross_attention, self.cross_position),
            ):
                if encoding is not None:
                    project_for(attention, encoding)
        self.final_norm = None
        if norm_first:
            self.final_norm = keras.layers.LayerNormalization(
                epsilon=epsilon, dtype=self.dtype_policy, name="final_norm"
            )
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy) if dropout else None

    def _make(self, names, causal=False):
        encoding = make_encoding(self, names, **({"bidirectional": False} if causal else {}))
        if encoding is not None and encoding.no_cache and (causal or getattr(encoding, "compresses_keys", False)):
            raise ValueError(
                f"A decoder generates token by token from cached keys, which {'+'.join(names)!r} cannot: "
                f"{encoding.no_cache}. Received: position={self.position_spec!r}, "
                f"cross_position={self.cross_spec!r}, position_options={self.position_options}"
            )
        return encoding

    def build(self, inputs_shape, memory_shape):
        if inputs_shape[-1] != self.hidden_dim:
            raise ValueError(
                f"TransformerDecoder has hidden_dim={self.hidden_dim}. Received: inputs of shape {tuple(inputs_shape)}"
            )
        for encoding in (*self.input_positions, self.position, self.cross_position):
            if encoding is not None:
                encoding.build(inputs_shape)
        for encoding in (*self.input_positions, self.position):
            if encoding is not None and inputs_shape[1] is not None:
                encoding.check_length(inputs_shape[1])
        if self.final_norm is not None:
            self.final_norm.build(inputs_shape)
        for block in self.blocks:
            block.build(inputs_shape, memory_shape)
        self.built = True

    def call(
        self,
        inputs,
        memory=None,
        padding_mask=None,
        memory_mask=None,
        start_index=0,
        cache=None,
        return_intermediates=False,
        training=None,
    ):
        check_memory(memory, cache)
        check_start(start_index, cache)
        length = ops.shape(inputs)[1]
        if cache is None:
            total, memory_length = length, ops.shape(memory)[1]
        else:
            total, memory_length = (ops.shape(cache[part][0]["value"])[2] for part in ("self", "cross"))
        x = inputs
        for encoding in self.input_positions:
            x = encoding(x, start_index=start_index, total_length=total, training=training)
        if self.dropout_layer is not None:
            x = self.dropout_layer(x, training=training)

        given = dict(
            memory=memory,
            padding_mask=padding_mask,
            memory_mask=memory_mask,
            positions=_at(self.position, length, total, start_index, training),
            cross_positions=_at(self.cross_position, length, memory_length, start_index, training, total),
            start_index=start_index,
            return_intermediates=return_intermediates,
            training=training,
        )
        found = {"hidden_states": [x], "attention": [], "values": [], "cross_attention": [], "cross_values": []}
        caches = []
        for index, block in enumerate(self.blocks):
            if cache is not None:
                given["cache"] = (cache["self"][index], cache["cross"][index])
            result = block(x, **given)
            x, *extras = result if isinstance(result, tuple) else (result,)
            if return_intermediates:
                found["hidden_states"].append(x)
                for name, value in extras[0].items():
                    found[name].append(value)
            caches.extend(extras[-1:])
        if self.final_norm is not None:
            x = self.final_norm(x)
        results = [x] + ([found] if return_intermediates else [])
        if cache is not None:
            results.append({"self": caches, "cross": cache["cross"]})
        return results[0] if len(results) == 1 else tuple(results)

    def make_cache(self, memory, length):
        """What `call` needs to decode `length` positions step by step.

        Returns: a dict, `"self"`: an empty cache for each block, `"cross"`: each block's keys and values of `memory`,
        projected once.
        """
        checks.built(self, "making a cache")
        batch_size, memory_length = ops.shape(memory)[:2]
        shared = None if self.cross_position is None else self.cross_position.at(1, memory_length)
        return {
            "self": [block.self_attention.make_cache(batch_size, length) for block in self.blocks],
            "cross": [block.cross_attention.make_cache(memory=memory, positions=shared) for block in self.blocks],
        }

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        return tuple(inputs_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "position": self.position_spec,
            "cross_position": self.cross_spec,
            "position_options": self.position_options,
            "sharing": self.sharing,
            "max_length": self.max_length,
            "extrapolate": self.extrapolate,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "norm_first": self.norm_first,
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def cross_names(position, cross_position):
    """The encodings of cross-attention as a list of names."""
    if cross_position == "same":
        return split(position)[1]
    at_input, names = split(cross_position)
    if at_input:
        raise ValueError(
            f"{', '.join(map(repr, at_input))} is added to the inputs, so cross-attention cannot have it. Use "
            f"'none', 'same' or an encoding that acts inside attention. Received: cross_position={cross_position!r}"
        )
    return names


def _at(encoding, query_length, key_length, start_index, training, total_length=None):
    """A shared encoding at these lengths; `None` if each block has its own."""
    if encoding is None:
        return None
    encoding.check_training(training)
    return encoding.at(query_length, key_length, start_index, total_length)
