from keras import initializers, ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks, rows


@register("tupe")
class Tupe(PositionEncoding):
    """TUPE-A: absolute positions with projections of their own, and an untied [CLS].

    `A_ij = (x_i W_Q)(x_j W_K)^T / sqrt(2 d_h) + reset(v)_ij`, `v_ij = (p_i U_Q)(p_j U_K)^T / sqrt(2 d_h)`.
    `reset` gives [CLS], which stands at index 0 but nowhere in the sentence, scores of its own: row 0 is `theta_1`
    (from [CLS], including to itself) and the rest of column 0 is `theta_2` (to [CLS]), where
    `theta_t = (p_t U_Q)(p_t U_K)^T / sqrt(2 d_h)` for two more rows of the table.

    Args:
        max_length: `n`.
        position_dim: width of `p`, `num_heads * key_dim` by default.
        untie_cls: whether index 0 is [CLS] and is treated so.
        initializer: of `U_Q` and `U_K`.

    The paper computes this once for all layers: share it over layers in the encoder.

    Reference: Ke et al., 2021 (arXiv:2006.15595). The two vectors for [CLS] are rows of their own, as in the text; the
    authors' code uses the first position for one of them, and normalises `p`, which is here initialised to that size.
    """

    doors = ("bias",)
    needs = ("num_heads", "key_dim", "max_length")
    extrapolations = rows.EXTRAPOLATIONS

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        position_dim=None,
        untie_cls=True,
        initializer="bert",
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        name = type(self).__name__
        self.position_dim = checks.positive_int(
            name, "position_dim", self.num_heads * self.key_dim if position_dim is None else position_dim
        )
        self.untie_cls = bool(untie_cls)
        self.initializer = get_initializer(initializer)

    @property
    def scale(self):
        return (2 * self.key_dim) ** -0.5

    def build(self, input_shape=None):
        # Of unit size, as normalised embeddings are: the score is a product of four factors and must not vanish.
        unit = initializers.RandomNormal(stddev=1.0)
        self.table = self.add_position_weight("positions", (self.max_length, self.position_dim), unit)
        if self.untie_cls:
            self.cls_table = self.add_position_weight("cls_positions", (2, self.position_dim), unit)
        shape = (self.position_dim, self.heads, self.key_dim)
        self.query_kernel = self.add_position_weight("query_kernel", shape, self.initializer)
        self.key_kernel = self.add_position_weight("key_kernel", shape, self.initializer)
        self.built = True

    def bias(self, query_length, key_length, start_index=0, total_length=None):
        total = rows.longest(query_length, key_length, start_index, total_length)
        table = self.read(self.table)
        query_rows = rows.absolute_rows(table, query_length, start_index, total, 0, self.extrapolate)
        key_rows = rows.absolute_rows(table, key_length, 0, total, 0, self.extrapolate)
        scores = ops.einsum("hqd,hkd->hqk", self._queries(query_rows), self._keys(key_rows))
        relative = self.relative_scores(query_length, key_length, start_index)
        scores = scores if relative is None else scores + relative
        if self.untie_cls:
            cls_rows = self.read(self.cls_table)
            from_cls, to_cls = ops.unstack(ops.sum(self._queries(cls_rows) * self._keys(cls_rows), axis=-1), axis=1)
            scores = untie(scores, from_cls, to_cls, start_index)
        return ops.expand_dims(scores, 0)

    def relative_scores(self, query_length, key_length, start_index):
        """`(heads, q, k)` to add before [CLS] is untied; TUPE-R has some."""
        return None

    def _queries(self, positions):
        return self.scale * ops.einsum("qp,phd->hqd", positions, self.read(self.query_kernel))

    def _keys(self, positions):
        return ops.einsum("kp,phd->hkd", positions, self.read(self.key_kernel))

    def get_config(self):
        return {
            **super().get_config(),
            "position_dim": self.position_dim,
            "untie_cls": self.untie_cls,
            "initializer": initializers.serialize(self.initializer),
        }


def untie(scores, from_cls, to_cls, start_index):
    """`(heads, q, k)` scores with column 0 replaced by `to_cls (heads,)`, then row 0 by `from_cls (heads,)`."""
    _, query_length, key_length = ops.shape(scores)
    first_key = ops.arange(key_length, dtype="int32") == 0
    first_query = ops.expand_dims(start_index + ops.arange(query_length, dtype="int32") == 0, -1)
    scores = ops.where(first_key, ops.reshape(to_cls, (-1, 1, 1)), scores)
    return ops.where(first_query, ops.reshape(from_cls, (-1, 1, 1)), scores)
