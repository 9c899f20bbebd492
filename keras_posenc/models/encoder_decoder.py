"""The encoder-decoder Transformer, for translation and other sequence to sequence tasks."""

import keras
from keras import ops

from keras_posenc.encodings.registry import PACKAGE, options, parse, split
from keras_posenc.layers.decoder import TransformerDecoder, cross_names
from keras_posenc.layers.encoder import TransformerEncoder
from keras_posenc.layers.stack import check_options
from keras_posenc.models.base import PositionalModel, read_inputs
from keras_posenc.utils import checks


@keras.saving.register_keras_serializable(package=PACKAGE)
class EncoderDecoder(PositionalModel):
    """The Transformer of Vaswani et al., with any position encoding in each of its three attentions.

    One embedding table serves source, target and output: tokens enter as `sqrt(d) E_t`, and the logits are `x E^T`.
    All weights exist from construction on.

    Args:
        vocab_size: number of tokens, of source and target together.
        num_layers: of encoder and decoder; a pair if they differ.
        num_heads, hidden_dim, intermediate_dim: sizes.
        max_length: number of positions of source and target.
        position: encodings of the encoder, and of the decoder's self-attention, as in `TransformerEncoder`.
        position_options: dict of options of all encodings of the model.
        sharing: `"none"`, `"head"` or `"layer"`. Encoder and decoder never share with one another.
        decoder_position: encodings of the decoder's self-attention, if they are not those of the encoder.
        cross_position: encodings of cross-attention, `"none"` by default, as in `TransformerDecoder`; DIET's
            translation models are `"same"`.
        extrapolate, norm_first, dropout, attention_dropout, activation, epsilon: as in `TransformerEncoder`.
        pad_id: token that fills up sources; hidden by the default padding mask.

    Call arguments:
        inputs: a dict of int `(batch, length)`: `token_ids`, the source; `padding_mask`, 1 for its tokens, by default
            those other than `pad_id`; `target_ids`, the decoder's input: the target moved right by one, with a token
            to begin with; and, optionally, `target_padding_mask`.
        return_intermediates: whether to return what happened inside.

    Returns: a dict, `logits`: float32 `(batch, target length, vocab_size)`. With `return_intermediates` also
    `encoder` and `decoder`, the dicts described in `TransformerEncoder` and `TransformerDecoder`.

    Example:

    >>> model = EncoderDecoder(vocab_size=32, num_layers=2, num_heads=4, hidden_dim=64, intermediate_dim=128,
    ...                        max_length=16, position="diet_rel", cross_position="same")
    >>> ids = np.ones((2, 5), "int32")
    >>> model({"token_ids": ids, "target_ids": ids[:, :3]})["logits"].shape
    TensorShape([2, 3, 32])

    Reference: Vaswani et al., 2017 (arXiv:1706.03762); pre-norm: Xiong et al., 2020 (arXiv:2002.04745); relative
    positions in all attention layers: Chen et al., 2021 (DIET), section 4.
    """

    def __init__(
        self,
        vocab_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_length,
        position="sinusoidal",
        position_options=None,
        sharing="none",
        decoder_position=None,
        cross_position="none",
        extrapolate=None,
        norm_first=False,
        dropout=0.0,
        attention_dropout=None,
        activation="relu",
        epsilon=1e-6,
        pad_id=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = checks.positive_int("EncoderDecoder", "vocab_size", vocab_size)
        self.hidden_dim = checks.positive_int("EncoderDecoder", "hidden_dim", hidden_dim)
        self.max_length = checks.positive_int("EncoderDecoder", "max_length", max_length)
        pair = num_layers if isinstance(num_layers, (tuple, list)) else (num_layers, num_layers)
        if len(pair) != 2:
            raise ValueError(f"`num_layers` is one number or (encoder, decoder). Received: num_layers={num_layers!r}")
        self.num_layers = tuple(checks.positive_int("EncoderDecoder", "num_layers", number) for number in pair)
        self.num_heads, self.intermediate_dim = num_heads, intermediate_dim
        self.position_spec, self.cross_spec = position, cross_position
        self.decoder_spec = position if decoder_position is None else decoder_position
        self.position_options, self.sharing, self.extrapolate = dict(position_options or {}), sharing, extrapolate
        self.norm_first, self.epsilon = bool(norm_first), epsilon
        self.dropout, self.attention_dropout = dropout, attention_dropout
        self.activation = keras.activations.get(activation)
        self.pad_id = pad_id

        in_encoder, in_decoder = parse(position), sum(split(self.decoder_spec), [])
        in_decoder += cross_names(self.decoder_spec, cross_position)
        check_options(self.position_options, in_encoder + in_decoder)
        common = dict(
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            intermediate_dim=intermediate_dim,
            sharing=sharing,
            max_length=max_length,
            extrapolate=extrapolate,
            activation=activation,
            dropout=dropout,
            attention_dropout=attention_dropout,
            norm_first=norm_first,
            epsilon=epsilon,
            dtype=self.dtype_policy,
        )
        self.embedding = keras.layers.Embedding(
            vocab_size,
            hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.encoder = TransformerEncoder(
            self.num_layers[0],
            position=position,
            position_options=self._options_of(in_encoder),
            embedding_norm=False,
            name="encoder",
            **common,
        )
        self.decoder = TransformerDecoder(
            self.num_layers[1],
            position=self.decoder_spec,
            cross_position=cross_position,
            position_options=self._options_of(in_decoder),
            name="decoder",
            **common,
        )
        self.build()

    def _options_of(self, names):
        taken = {o for name in names for o in options(name)}
        return {o: v for o, v in self.position_options.items() if o in taken}

    def build(self, input_shape=None):
        """Every shape follows from the constructor, so that of the inputs is not asked for."""
        if self.built:
            return
        hidden = (None, None, self.hidden_dim)
        self.embedding.build((None, None))
        self.encoder.build(hidden)
        self.decoder.build(hidden, hidden)
        self.built = True

    def call(self, inputs, return_intermediates=False, training=None):
        inputs = read_inputs("EncoderDecoder", inputs, more=("target_ids", "target_padding_mask"))
        if inputs["target_ids"] is None:
            raise ValueError("EncoderDecoder needs 'target_ids', what the decoder is given, among its inputs.")
        if inputs["segment_ids"] is not None:
            raise ValueError("EncoderDecoder knows no segments. Received: 'segment_ids' among its inputs.")
        mask = self.source_mask(inputs["token_ids"], inputs["padding_mask"])
        memory = self.encode(inputs["token_ids"], mask, return_intermediates, training)
        outputs = {}
        if return_intermediates:
            memory, outputs["encoder"] = memory
        decoded = self.decoder(
            self._embed(inputs["target_ids"]),
            memory,
            padding_mask=inputs["target_padding_mask"],
            memory_mask=mask,
            return_intermediates=return_intermediates,
            training=training,
        )
        if return_intermediates:
            decoded, outputs["decoder"] = decoded
        return {"logits": self._logits(decoded), **outputs}

    def source_mask(self, token_ids, padding_mask=None):
        """The given mask as booleans, or that of the tokens other than `pad_id`."""
        return ops.not_equal(token_ids, self.pad_id) if padding_mask is None else ops.cast(padding_mask, "bool")

    def encode(self, token_ids, padding_mask=None, return_intermediates=False, training=None):
        """The memory of a source, `(batch, length, hidden_dim)`; with intermediates, a pair of it and their dict."""
        return self.encoder(
            self._embed(token_ids),
            padding_mask=self.source_mask(token_ids, padding_mask),
            return_intermediates=return_intermediates,
            training=training,
        )

    def make_cache(self, memory, length):
        """A cache for decoding `length` positions with `decode_step`."""
        return self.decoder.make_cache(memory, length)

    def decode_step(self, target_ids, cache, start_index, padding_mask):
        """Decodes the next tokens with a cache.

        Args:
            target_ids: int `(batch, n)`, usually of one token.
            cache: from `make_cache`, or from the step before.
            start_index: absolute position of the first of them.
            padding_mask: of the source, `None` if it has no padding.

        Returns: the logits, float32 `(batch, n, vocab_size)`, and the updated cache.
        """
        x, cache = self.decoder(
            self._embed(target_ids), memory_mask=padding_mask, cache=cache, start_index=start_index, training=False
        )
        return self._logits(x), cache

    def _embed(self, token_ids):
        x = self.embedding(token_ids)
        return x * ops.cast(self.hidden_dim**0.5, x.dtype)

    def _logits(self, x):
        table = ops.cast(self.embedding.embeddings, x.dtype)
        return ops.cast(ops.matmul(x, ops.transpose(table)), "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "num_layers": list(self.num_layers),
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "max_length": self.max_length,
            "position": self.position_spec,
            "position_options": self.position_options,
            "sharing": self.sharing,
            "decoder_position": self.decoder_spec,
            "cross_position": self.cross_spec,
            "extrapolate": self.extrapolate,
            "norm_first": self.norm_first,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": keras.activations.serialize(self.activation),
            "epsilon": self.epsilon,
            "pad_id": self.pad_id,
        }
