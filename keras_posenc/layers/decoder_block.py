"""A decoder block: causal self-attention, cross-attention to a memory, feed-forward."""

import keras
from keras import ops

from keras_posenc.encodings.registry import PACKAGE, known_options
from keras_posenc.layers.attention import PositionalAttention
from keras_posenc.layers.residual import ResidualBlock
from keras_posenc.layers.stack import check_memory, check_start


@keras.saving.register_keras_serializable(package=PACKAGE)
class TransformerDecoderBlock(ResidualBlock):
    """Causal self-attention, cross-attention and a feed-forward network, each with residual and normalisation.

    Args:
        num_heads, intermediate_dim, hidden_dim, activation, dropout, attention_dropout, norm_first, epsilon,
            max_length, share_heads, kernel_initializer: as in `TransformerBlock`.
        position, cross_position: encodings of self- and of cross-attention, as `position` of `PositionalAttention`.
            A named `position` with an option `bidirectional` is made with `bidirectional=False`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        memory: `(batch, memory length, width)`, what cross-attention looks at; not with a cache, which was made of it.
        padding_mask, memory_mask: boolean or 0/1, `(batch, length)`, with a cache `(batch, cache length)`, and
            `(batch, memory length)`.
        positions, cross_positions: shared encodings, for a block without its own.
        start_index: absolute position of the first input, with a cache.
        cache: `(self cache, cross cache)`; the updated self cache is returned as the last output.
        return_intermediates: also return a dict of `attention`, `values`, `cross_attention`, `cross_values`.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        hidden_dim,
        activation="relu",
        dropout=0.0,
        attention_dropout=None,
        norm_first=False,
        epsilon=1e-6,
        position=None,
        cross_position=None,
        max_length=None,
        share_heads=None,
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
        self.max_length, self.share_heads = max_length, share_heads
        causal = known_options(position, bidirectional=False)
        self.self_attention = self._attention("self_attention", position, causal)
        self.cross_attention = self._attention("cross_attention", cross_position)
        self._make_feed_forward()
        norms = ("self_attention_norm", "cross_attention_norm", "output_norm")
        self.self_norm, self.cross_norm, self.output_norm = map(self._norm, norms)

    def _attention(self, name, position, options=None):
        return PositionalAttention(
            self.num_heads,
            self.hidden_dim // self.num_heads,
            dropout=self.attention_dropout,
            position=position,
            position_options=options,
            max_length=self.max_length,
            share_heads=self.share_heads,
            kernel_initializer=self._initializer(name),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, inputs_shape, memory_shape):
        self.self_attention.build(inputs_shape)
        self.cross_attention.build(inputs_shape, memory_shape)
        self.self_norm.build(inputs_shape)
        self.cross_norm.build(inputs_shape)
        self._build_feed_forward(inputs_shape)
        self.built = True

    def call(
        self,
        inputs,
        memory=None,
        padding_mask=None,
        memory_mask=None,
        positions=None,
        cross_positions=None,
        start_index=0,
        cache=None,
        return_intermediates=False,
        training=None,
    ):
        check_memory(memory, cache)
        check_start(start_index, cache)
        inputs, memory = self._cast(inputs), self._cast(memory)
        given = dict(
            training=training,
            start_index=start_index,
            return_attention_scores=return_intermediates,
            return_values=return_intermediates,
        )
        self_cache, cross_cache = (None, None) if cache is None else cache
        found, new_cache = {}, []

        def attend(x, attention, norm, prefix, **more):
            attended = attention(norm(x) if self.norm_first else x, **given, **more)
            attended, *extras = attended if isinstance(attended, tuple) else (attended,)
            if return_intermediates:
                found[prefix + "attention"], found[prefix + "values"], *extras = extras
            new_cache.extend(extras)
            return self._add(x, attended, norm, training)

        x = attend(
            inputs,
            self.self_attention,
            self.self_norm,
            "",
            attention_mask=padding_mask,
            use_causal_mask=True,
            positions=positions,
            cache=self_cache,
        )
        target = dict(value=memory)
        if cache is not None:
            target = dict(cache=cross_cache, update_cache=False, total_length=ops.shape(self_cache["value"])[2])
        x = attend(
            x,
            self.cross_attention,
            self.cross_norm,
            "cross_",
            attention_mask=memory_mask,
            positions=cross_positions,
            **target,
        )
        x = self._feed_forward(x, training)
        results = [x] + ([found] if return_intermediates else []) + new_cache[:1]
        return results[0] if len(results) == 1 else tuple(results)

    def get_config(self):
        return {
            **super().get_config(),
            "position": keras.saving.serialize_keras_object(self.self_attention.position),
            "cross_position": keras.saving.serialize_keras_object(self.cross_attention.position),
            "max_length": self.max_length,
            "share_heads": self.share_heads,
        }
