from keras import initializers, ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks, toeplitz


@register("shaw")
class Shaw(PositionEncoding):
    """Shaw's relative position representations: a learned vector per clipped distance, for keys and for values.

    `e_ij = q_i (k_j + a^K_{clip(j - i)})^T / sqrt(d_h)`, `z_i = sum_j alpha_ij (v_j + a^V_{clip(j - i)})`, with
    `clip(x) = max(-m, min(m, x))` and `2m + 1` vectors in each table.

    Queries meet one vector per offset, not one per pair: the product is `(q, q + k)`, and reshaping turns rows of
    offsets into rows of keys (`utils/toeplitz.py`); values take the same way back. Nothing of size `(n, n, d)` exists.

    Args:
        max_distance: `m`, 16.
        use_values: whether values have a table too. Shaw found keys to be enough.
        share_heads: one pair of tables for all heads, as in the paper and by default.

    Reference: Shaw et al., 2018 (arXiv:1803.02155), equations 3 to 5.
    """

    doors = ("scores", "values")
    relative = True
    needs = ("num_heads", "key_dim")

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        max_distance=16,
        use_values=True,
        share_heads=True,
        initializer="bert",
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, share_heads=share_heads, **kwargs)
        self.max_distance = checks.positive_int("Shaw", "max_distance", max_distance)
        self.use_values = bool(use_values)
        self.initializer = get_initializer(initializer)

    def build(self, input_shape=None):
        length = 2 * self.max_distance + 1
        self.key_table = self.add_position_weight("keys", (self.heads, length, self.key_dim), self.initializer)
        if self.use_values:
            width = self.value_dim or self.key_dim
            self.value_table = self.add_position_weight("values", (self.heads, length, width), self.initializer)
        self.built = True

    def tables(self, query_length, key_length, start_index=0, total_length=None):
        reach = self.max_distance
        offsets = toeplitz.offsets(query_length, key_length, start_index)
        tables = {
            "keys": self.read(self.key_table),
            "columns": ops.clip(offsets, -reach, reach) + reach,
        }
        if self.use_values:
            tables["values"] = self.read(self.value_table)
        return tables

    def scores(self, query, key, tables):
        query_length, key_length = ops.shape(query)[2], ops.shape(key)[2]
        vectors = ops.take(ops.cast(tables["keys"], query.dtype), tables["columns"], axis=1)
        by_offset = ops.matmul(query, ops.transpose(vectors, (0, 2, 1)))
        return super().scores(query, key, tables) + toeplitz.skew(by_offset, query_length, key_length)

    def values(self, attention, tables):
        if not self.use_values:
            return None
        query_length, key_length = ops.shape(attention)[2:]
        by_offset = toeplitz.unskew(attention, query_length, key_length)
        vectors = ops.take(ops.cast(tables["values"], attention.dtype), tables["columns"], axis=1)
        return ops.matmul(by_offset, vectors)

    def get_config(self):
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "use_values": self.use_values,
            "initializer": initializers.serialize(self.initializer),
        }
