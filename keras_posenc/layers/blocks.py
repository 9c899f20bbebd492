"""A transformer block around the attention layer."""

import keras

from keras_posenc.encodings.registry import PACKAGE, known_options
from keras_posenc.layers.attention import PositionalAttention
from keras_posenc.layers.linformer import LinformerAttention
from keras_posenc.layers.residual import ResidualBlock
from keras_posenc.layers.stack import check_start


@keras.saving.register_keras_serializable(package=PACKAGE)
class TransformerBlock(ResidualBlock):
    """Self-attention and a feed-forward network, each with a residual connection and layer normalisation.

    Args:
        num_heads: number of attention heads, which must divide `hidden_dim`.
        intermediate_dim: width of the feed-forward network.
        hidden_dim: width of the input and the output.
        activation: of the feed-forward network.
        dropout: after attention and after the feed-forward network.
        attention_dropout: of the attention weights, `dropout` by default.
        norm_first: normalise before each part (pre-norm) instead of after the residual (post-norm, as in BERT).
        epsilon: of the layer normalisations.
        causal: whether positions may only attend backwards.
        position, position_options, max_length, share_heads, num_segments: as in `PositionalAttention`. In a causal
            block a named encoding with an option `bidirectional` is made with `bidirectional=False`, unless
            `position_options` says otherwise.
        num_keys: if given, Linformer attention with so many compressed keys.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        padding_mask: boolean or 0/1 `(batch, length)`, or any `attention_mask` of `PositionalAttention`.
        segment_ids, positions, position_bias: as in `PositionalAttention`.
        start_index, cache: as in `PositionalAttention`, for a causal block; the first goes with the second.
        return_intermediates: also return a dict of the `attention` weights and the per-head `values` they weigh.

    Returns: the output; then the dict, if it was asked for; then the cache, if one was given.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        hidden_dim,
        activation="gelu",
        dropout=0.0,
        attention_dropout=None,
        norm_first=False,
        epsilon=1e-12,
        causal=False,
        position=None,
        position_options=None,
        max_length=None,
        share_heads=None,
        num_segments=None,
        num_keys=None,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(
            num_heads,
            intermediate_dim,
            hidden_dim,
            activation,
            dropout,
            attention_dropout,
            norm_first,
            epsilon,
            kernel_initializer,
            **kwargs,
        )
        self.causal = bool(causal)
        self.num_keys = num_keys
        if causal:
            position_options = known_options(position, position_options, bidirectional=False)
        common = dict(
            dropout=self.attention_dropout,
            position=position,
            position_options=position_options,
            share_heads=share_heads,
            num_segments=num_segments,
            kernel_initializer=self._initializer("attention"),
            dtype=self.dtype_policy,
            name="attention",
        )
        head_dim = hidden_dim // num_heads
        if num_keys is None:
            self.attention = PositionalAttention(num_heads, head_dim, max_length=max_length, **common)
        else:
            self.attention = LinformerAttention(num_heads, head_dim, max_length, num_keys=num_keys, **common)
        self.attention_norm = self._norm("attention_norm")
        self._make_feed_forward()
        self.output_norm = self._norm("output_norm")

    def build(self, inputs_shape):
        self.attention.build(inputs_shape)
        self.attention_norm.build(inputs_shape)
        self._build_feed_forward(inputs_shape)
        self.built = True

    def call(
        self,
        inputs,
        padding_mask=None,
        segment_ids=None,
        positions=None,
        position_bias=None,
        start_index=0,
        cache=None,
        return_intermediates=False,
        training=None,
    ):
        check_start(start_index, cache)
        inputs = self._cast(inputs)
        if cache is not None and not self.causal:
            raise ValueError(f"'{self.name}' looks ahead, so its keys cannot be cached. Construct it with causal=True.")
        given = dict(
            attention_mask=padding_mask,
            positions=positions,
            training=training,
            use_causal_mask=self.causal,
            return_attention_scores=return_intermediates,
            return_values=return_intermediates,
        )
        if segment_ids is not None:
            given["segment_ids"] = segment_ids
        if position_bias is not None:
            given["position_bias"] = position_bias
        if cache is not None:
            given.update(cache=cache, start_index=start_index)
        x = self.attention_norm(inputs) if self.norm_first else inputs
        attended = self.attention(x, **given)
        attended, *extras = attended if isinstance(attended, tuple) else (attended,)
        if return_intermediates:
            weights, values, *extras = extras
            extras = [{"attention": weights, "values": values}, *extras]
        x = self._feed_forward(self._add(inputs, attended, self.attention_norm, training), training)
        return (x, *extras) if extras else x

    def get_config(self):
        attention = self.attention
        return {
            **super().get_config(),
            "causal": self.causal,
            "position": keras.saving.serialize_keras_object(attention.position),
            "max_length": attention.max_length,
            "share_heads": attention.share_heads,
            "num_segments": attention.num_segments,
            "num_keys": self.num_keys,
        }
