import numpy as np
from keras import ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks


@register("rotary")
class Rotary(PositionEncoding):
    """RoPE: queries and keys are rotated by their position, so their product depends on the distance.

    Pairs of coordinates are turned by `pos * theta_t`, `theta_t = base^(-2t / d_h)`; then
    `(R_i q)(R_j k)^T = q R_{j-i} k^T`. No parameters.

    Args:
        layout: which coordinates make a pair: `"half"`, `(t, t + d_h/2)` (Llama, keras-hub), or `"interleaved"`,
            `(2t, 2t + 1)` (the paper). They differ by a permutation of the columns of `W_Q` and `W_K`.
        base: 10000.
        scaling: for inputs longer than trained: `None`, `"linear"` (positions divided by `factor`), `"ntk"` (the base
            multiplied by `factor^(d/(d-2))`), or `"dynamic"` (as `"ntk"`, by how much the keys outnumber `max_length`).
        factor: of the scaling; for `"dynamic"` 1 by default.

    Reference: Su et al., 2021 (arXiv:2104.09864), section 3.2; linear scaling: Chen et al., 2023 (arXiv:2306.15595).
    """

    doors = ("transform",)
    relative = True
    needs = ("key_dim",)

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        layout="half",
        base=10000.0,
        scaling=None,
        factor=None,
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        if self.key_dim % 2:
            raise ValueError(
                f"Rotary turns pairs of coordinates, so `key_dim` must be even. Received: key_dim={key_dim}"
            )
        self.layout = checks.one_of("Rotary", "layout", layout, ("half", "interleaved"))
        self.base = checks.positive("Rotary", "base", base)
        self.scaling = checks.one_of("Rotary", "scaling", scaling, (None, "linear", "ntk", "dynamic"))
        if factor is not None and factor < 1:
            raise ValueError(f"Rotary: `factor` must be at least 1. Received: factor={factor!r}")
        self.factor = 1.0 if factor is None else float(factor)
        if (scaling is None and self.factor > 1) or (scaling in ("linear", "ntk") and factor is None):
            raise ValueError(f"Rotary: `factor` is of a `scaling`. Received: scaling={scaling!r}, factor={factor!r}")
        if scaling == "dynamic" and self.max_length is None:
            raise ValueError("Rotary with scaling='dynamic' needs `max_length`, the length the model was trained at.")

    def tables(self, query_length, key_length, start_index=0, total_length=None):
        dtype = self.position_dtype
        base = ops.cast(self.base, dtype)
        power = self.key_dim / max(self.key_dim - 2, 1)
        if self.scaling == "ntk":
            base = base * self.factor**power
        elif self.scaling == "dynamic":
            excess = ops.maximum(ops.cast(key_length, dtype) / self.max_length, 1.0)
            base = base * (self.factor * excess - (self.factor - 1)) ** power
        exponents = ops.convert_to_tensor(-2.0 * np.arange(self.key_dim // 2) / self.key_dim, dtype)
        frequencies = base**exponents
        stretch = self.factor if self.scaling == "linear" else 1.0

        def waves(positions):
            angles = ops.expand_dims(ops.cast(positions, dtype) / stretch, -1) * frequencies
            return ops.stack([ops.cos(angles), ops.sin(angles)])

        return {
            "query": waves(start_index + ops.arange(query_length, dtype="int32")),
            "key": waves(ops.arange(key_length, dtype="int32")),
        }

    def transform(self, query, key, value, tables, cached=False):
        rotated_query = self._rotate(query, tables["query"])
        if key is not None:
            key = self._rotate(key, tables["query" if cached else "key"])
        return rotated_query, key, value

    def _rotate(self, x, waves):
        if x is None:
            return None
        cos, sin = ops.cast(waves[0], x.dtype), ops.cast(waves[1], x.dtype)
        if self.layout == "half":
            a, b = ops.split(x, 2, axis=-1)
            return ops.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
        pairs = ops.reshape(x, ops.shape(x)[:-1] + (self.key_dim // 2, 2))
        a, b = pairs[..., 0], pairs[..., 1]
        return ops.reshape(ops.stack([a * cos - b * sin, b * cos + a * sin], axis=-1), ops.shape(x))

    def get_config(self):
        return {
            **super().get_config(),
            "layout": self.layout,
            "base": self.base,
            "scaling": self.scaling,
            "factor": self.factor,
        }
