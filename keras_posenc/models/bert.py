"""BERT and its relatives, with any position encoding."""

import keras
from keras import ops

from keras_posenc.encodings.registry import PACKAGE
from keras_posenc.layers.encoder import TransformerEncoder
from keras_posenc.models import activations
from keras_posenc.models.base import PositionalModel, initializer, read_inputs
from keras_posenc.utils import checks

SEGMENTS = ("input", "per_head", "none")


@keras.saving.register_keras_serializable(package=PACKAGE)
class Bert(PositionalModel):
    """A bidirectional transformer encoder over token ids.

    The same class is ALBERT (`embedding_dim`, `tie_layers`) and Linformer (`num_keys`; with
    `position="diet_abs_lin"` the paper's DIET-ABS-LIN).

    Args:
        vocab_size: number of token ids.
        num_layers, num_heads, hidden_dim, intermediate_dim: sizes.
        max_length: number of positions of encodings that have a table of them; the others take any length.
        position: a registered encoding, or several joined by `+`.
        position_options: dict of their options, e.g. `{"rank": 128}`.
        sharing: `"none"`, `"head"` or `"layer"`, of the positions inside attention.
        segments: where segments enter: `"input"` (embeddings, as in BERT), `"per_head"` (DIET's bias, shared as the
            positions are) or `"none"` (segment ids are not used).
        num_segments: number of segment ids.
        embedding_dim: width of the embeddings if they are factorized (ALBERT).
        tie_layers: one block's parameters serve all layers (ALBERT). Positions inside attention are still one encoding
            per layer unless `sharing="layer"`.
        num_keys: number of compressed keys (Linformer).
        activation: of the feed-forward networks: a Keras activation, or `"gelu_tanh"`.
        dropout: of embeddings and block outputs.
        attention_dropout: of attention weights, `dropout` by default.
        epsilon: of the layer normalisations.
        pooler: whether there is a tanh layer over the first token, BERT's sentence vector.
        extrapolate: `"error"`, `"clip"` or `"interpolate"`, for positions beyond `max_length`.
        initializer_range: deviation of fresh weights. BERT's 0.02 goes with its width of 768; narrow models start with
            smaller scores for it.

    Call arguments:
        inputs: dict of int32 `(batch, length)`: `token_ids`; `segment_ids`, all 0 if left out; `padding_mask`, 1 for
            tokens and 0 for padding, no padding if left out.
        return_intermediates: also return lists with an entry per layer.

    Returns: a dict:
        `sequence_output`: `(batch, length, hidden_dim)`.
        `pooled_output`: `(batch, hidden_dim)`, if there is a pooler.
        `hidden_states`: the input of the first layer and the output of each, if asked for.
        `attention`: `(batch, heads, length, length)` per layer, if asked for.
        `values`: `(batch, heads, length, head size)` per layer, if asked for.

    Example:

    >>> model = keras_posenc.models.Bert(100, 2, 2, 16, 32, max_length=8, position="diet_rel", segments="per_head")
    >>> model({"token_ids": np.array([[2, 5, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 16])

    Reference: Devlin et al., 2018 (arXiv:1810.04805); Lan et al., 2019 (ALBERT, arXiv:1909.11942).
    """

    def __init__(
        self,
        vocab_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_length=512,
        position="learned",
        position_options=None,
        sharing="none",
        segments="input",
        num_segments=2,
        embedding_dim=None,
        tie_layers=False,
        num_keys=None,
        activation="gelu",
        dropout=0.1,
        attention_dropout=None,
        epsilon=1e-12,
        pooler=True,
        extrapolate=None,
        initializer_range=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.initializer_range = initializer_range
        self.vocab_size = checks.positive_int("Bert", "vocab_size", vocab_size)
        self.num_segments = checks.positive_int("Bert", "num_segments", num_segments)
        self.segments = checks.one_of("Bert", "segments", segments, SEGMENTS)
        self.encoder = TransformerEncoder(
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            position=position,
            position_options=position_options,
            sharing=sharing,
            max_length=max_length,
            extrapolate=extrapolate,
            num_segments=num_segments if segments == "per_head" else None,
            num_keys=num_keys,
            embedding_dim=embedding_dim,
            tie_layers=tie_layers,
            activation=activations.get(activation),
            dropout=dropout,
            attention_dropout=attention_dropout,
            epsilon=epsilon,
            kernel_initializer=initializer(initializer_range),
            dtype=self.dtype_policy,
            name="encoder",
        )
        self.token_embedding = self._embedding(vocab_size, "token_embedding")
        self.segment_embedding = self._embedding(num_segments, "segment_embedding") if segments == "input" else None
        self.pooler = None
        if pooler:
            self.pooler = keras.layers.Dense(
                hidden_dim,
                activation="tanh",
                kernel_initializer=initializer(initializer_range),
                dtype=self.dtype_policy,
                name="pooler",
            )

    def _embedding(self, size, name):
        return keras.layers.Embedding(
            size,
            self.embedding_width,
            embeddings_initializer=initializer(self.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    @property
    def embedding_width(self):
        """Width of the token embeddings."""
        return self.encoder.embedding_dim or self.encoder.hidden_dim

    @property
    def hidden_dim(self):
        return self.encoder.hidden_dim

    def build(self, input_shape=None):
        """All sizes are known from the constructor, so that no shape is needed."""
        if self.built:
            return
        ids = (None, None)
        self.token_embedding.build(ids)
        if self.segment_embedding is not None:
            self.segment_embedding.build(ids)
        self.encoder.build(ids + (self.embedding_width,))
        if self.pooler is not None:
            self.pooler.build((None, self.hidden_dim))
        self.built = True

    def call(self, inputs, return_intermediates=False, training=None):
        inputs = read_inputs(type(self).__name__, inputs)
        token_ids, segment_ids = inputs["token_ids"], inputs["segment_ids"]
        x = self.token_embedding(token_ids)
        given = dict(padding_mask=inputs["padding_mask"], training=training, return_intermediates=return_intermediates)
        if self.segments != "none":
            segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
            if self.segments == "input":
                x = x + self.segment_embedding(segment_ids)
            else:
                given["segment_ids"] = segment_ids
        x = self.encoder(x, **given)
        x, found = x if return_intermediates else (x, {})
        outputs = {"sequence_output": x}
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(x[:, 0])
        return {**outputs, **found}

    def get_config(self):
        encoder = self.encoder
        names = "num_layers num_heads hidden_dim intermediate_dim max_length position_options sharing embedding_dim"
        names += " tie_layers num_keys dropout attention_dropout epsilon extrapolate"
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            **{name: getattr(encoder, name) for name in names.split()},
            "position": encoder.position_spec,
            "segments": self.segments,
            "num_segments": self.num_segments,
            "activation": keras.activations.serialize(encoder.activation),
            "pooler": self.pooler is not None,
            "initializer_range": self.initializer_range,
        }
