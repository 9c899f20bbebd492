from keras import initializers, ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.encodings.sinusoidal import sinusoids
from keras_posenc.utils import checks, rows, toeplitz


@register("transformer_xl")
class TransformerXL(PositionEncoding):
    """Transformer-XL and XLNet: relative sinusoids, with global biases of content and of position.

    `A_ij = ((q_i + u) k_j^T + (q_i + v)(R_{i-j} W_R)^T) / sqrt(d_h)`, with sinusoids `R`, a projection `W_R` and
    vectors `u, v` per head. `R W_R` depends on no token and is kept when folded.

    Args:
        position_dim: width of `R`, `num_heads * key_dim` by default.

    Reference: Dai et al., 2019 (arXiv:1901.02860), section 3.3; Yang et al., 2019 (arXiv:1906.08237).
    """

    doors = ("scores",)
    relative = True
    foldable = True
    needs = ("num_heads", "key_dim")

    def __init__(self, num_heads=None, key_dim=None, max_length=None, position_dim=None, initializer="bert", **kwargs):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        width = self.num_heads * self.key_dim if position_dim is None else position_dim
        self.position_dim = checks.positive_int("TransformerXL", "position_dim", width)
        self.initializer = get_initializer(initializer)

    def build(self, input_shape=None):
        weight, init = self.add_position_weight, self.initializer
        self.kernel = weight("kernel", (self.position_dim, self.heads, self.key_dim), init)
        self.content_bias = weight("content_bias", (self.heads, self.key_dim), init)
        self.position_bias = weight("position_bias", (self.heads, self.key_dim), init)
        self.built = True

    def tables(self, query_length, key_length, start_index=0, total_length=None):
        distances = -toeplitz.offsets(query_length, key_length, start_index)
        waves = sinusoids(ops.cast(distances, self.position_dtype), self.position_dim)
        return self._with_biases(ops.einsum("op,phd->hod", waves, self.read(self.kernel)))

    def _with_biases(self, relative_keys):
        u, v = (ops.expand_dims(self.read(w) * self.scale, 1) for w in (self.content_bias, self.position_bias))
        return {"relative_keys": relative_keys, "content_bias": u, "position_bias": v}

    def foldable_tables(self, length):
        return self.tables(length, length)

    def window(self, folded, query_length, key_length, start_index):
        begin = self.folded_length - query_length - start_index
        keys = rows.window(folded["relative_keys"], begin, query_length + key_length, axis=1)
        return {**folded, "relative_keys": keys}

    def scores(self, query, key, tables):
        query_length, key_length = ops.shape(query)[2], ops.shape(key)[2]
        tables = {name: ops.cast(table, query.dtype) for name, table in tables.items()}
        content = super().scores(query + tables["content_bias"], key, tables)
        relative_keys = ops.transpose(tables["relative_keys"], (0, 2, 1))
        by_offset = ops.matmul(query + tables["position_bias"], relative_keys)
        return content + toeplitz.skew(by_offset, query_length, key_length)

    def get_config(self):
        return {
            **super().get_config(),
            "position_dim": self.position_dim,
            "initializer": initializers.serialize(self.initializer),
        }
