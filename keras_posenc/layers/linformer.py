"""Attention to a fixed number of compressed keys."""

import keras
from keras import ops

from keras_posenc.encodings.diet_abs_lin import DietAbsLin
from keras_posenc.encodings.registry import PACKAGE, known_options
from keras_posenc.layers import masking
from keras_posenc.layers.attention import PositionalAttention
from keras_posenc.utils import checks, rows


@keras.saving.register_keras_serializable(package=PACKAGE)
class LinformerAttention(PositionalAttention):
    """Linformer: keys and values are compressed from `n` positions to `k`, so attention is linear in the length.

    `softmax(Q ((E X) W_K)^T / sqrt(d_h)) (F X) W_V`, with `E, F (k x n)`. Inputs shorter than `n` use the first
    columns. Padding is taken out of `X` before `E` and `F` mix positions, so a pad reaches nothing. A causal mask,
    a mask per pair and a cache have no meaning here, since each compressed key holds all positions; they are errors.

    Args:
        max_length: `n`, the longest input.
        num_keys: `k`, 32.
        share_projections: `E` and `F` are one matrix (the paper's key-value sharing).
        position: `None`, or a `DietAbsLin` (what `DietAbsLinformerAttention` uses); `"diet_abs_lin"` is one with
            `num_keys`.

    Call arguments are those of `PositionalAttention` but for `position_bias`, `start_index`, `total_length` and
    `update_cache`; `attention_mask` is a padding mask `(batch, keys)`.

    Reference: Wang et al., 2020 (arXiv:2006.04768).
    """

    compresses_keys = True

    def __init__(
        self, num_heads, key_dim, max_length, value_dim=None, *, num_keys=32, share_projections=False, **kwargs
    ):
        if kwargs.get("num_segments") is not None:
            raise ValueError(
                "Compressed keys belong to no segment: `num_segments` is not available in Linformer attention. Add "
                f"segment embeddings to the input. Received: num_segments={kwargs['num_segments']}"
            )
        kwargs["position_options"] = known_options(
            kwargs.get("position"), kwargs.get("position_options"), num_keys=num_keys
        )
        super().__init__(num_heads, key_dim, value_dim, max_length=max_length, **kwargs)
        self.max_length = checks.positive_int(type(self).__name__, "max_length", max_length)
        self.num_keys = checks.positive_int(type(self).__name__, "num_keys", num_keys)
        self.share_projections = bool(share_projections)
        encoding = self.position
        if encoding.doors and not isinstance(encoding, DietAbsLin):
            raise ValueError(
                f"{type(encoding).__name__} needs the positions of single keys, which compressed keys do not have. Use "
                "position=None with an encoding at the input, or DietAbsLinformerAttention."
            )
        if isinstance(encoding, DietAbsLin) and encoding.num_keys != self.num_keys:
            raise ValueError(f"num_keys={self.num_keys} differs from that of the encoding, {encoding.num_keys}.")

    def build(self, query_shape, value_shape=None, key_shape=None):
        shape = (self.num_keys, self.max_length)
        self.key_projection = self.add_weight(name="key_projection", shape=shape, initializer="glorot_uniform")
        if not self.share_projections:
            self.value_projection = self.add_weight(name="value_projection", shape=shape, initializer="glorot_uniform")
        super().build(query_shape, value_shape, key_shape)

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        segment_ids=None,
        positions=None,
        cache=None,
        return_values=False,
    ):
        if use_causal_mask or cache is not None:
            raise ValueError(
                f"{type(self).__name__} has no {'cache' if cache is not None else 'causal mask'}: each compressed key "
                "holds all positions, later ones too. Use full attention for decoding."
            )
        if value is None:
            query_mask = masking.implicit(query) if query_mask is None else query_mask
            value = query
            value_mask = query_mask if value_mask is None else value_mask
        shared_input = key is None
        key = value if key is None else key
        length = checks.at_most(
            ops.shape(value)[1],
            self.max_length,
            lambda got: (
                f"{type(self).__name__} '{self.name}' has max_length={self.max_length}, but {got} keys were given. "
                "Shorten the input or construct it with a larger `max_length`."
            ),
        )
        masks = [masking.check_mask(mask) for mask in (value_mask, key_mask, attention_mask) if mask is not None]
        sizes = (ops.shape(value)[0], length, type(self).__name__)
        real = masking.combine(*(masking.of_keys(mask, *sizes) for mask in masks))

        compressed_key = self._compress(self.key_projection, key, length, real)
        if self.share_projections and shared_input:
            compressed_value = compressed_key
        else:
            projection = self.key_projection if self.share_projections else self.value_projection
            compressed_value = self._compress(projection, value, length, real)
        anything = None
        if real is not None:
            anything = ops.any(real, axis=-1, keepdims=True)
            anything = ops.broadcast_to(anything, (ops.shape(real)[0], self.num_keys))
        return super().call(
            query,
            compressed_value,
            compressed_key,
            query_mask=query_mask,
            attention_mask=anything,
            return_attention_scores=return_attention_scores,
            training=training,
            segment_ids=segment_ids,
            positions=positions,
            return_values=return_values,
        )

    def _compress(self, projection, x, length, real):
        x = ops.cast(x, self.compute_dtype)
        if real is not None:
            x = x * ops.cast(ops.expand_dims(real, -1), x.dtype)
        columns = rows.window(ops.cast(projection, self.compute_dtype), 0, length, axis=1)
        return ops.einsum("kn,bnd->bkd", columns, x)

    def get_config(self):
        return {
            **super().get_config(),
            "num_keys": self.num_keys,
            "share_projections": self.share_projections,
        }
