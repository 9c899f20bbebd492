from keras import initializers, ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks, rows


@register("diet_abs")
class DietAbs(PositionEncoding):
    """DIET-ABS: decoupled absolute positional attention of any rank.

    `A_ij = (X_i W_Q)(X_j W_K)^T / sqrt(d_h) + (P_Q P_K^T)_ij`, with `P_Q, P_K (n x d_p)` for each head. The position
    term is not scaled. It depends on no token, so it is computed once and kept at inference.

    Args:
        max_length: `n`.
        rank: `d_p`. The head size by default; the paper recommends 128, shared over layers.
        initializer: of `P_Q` and `P_K`.

    Reference: Chen et al., 2021 (DIET), equation 1. The paper writes `sqrt(d)`; like its baseline this divides by
    `sqrt(d_h)`, the head size.
    """

    doors = ("bias",)
    needs = ("num_heads", "max_length")
    extrapolations = rows.EXTRAPOLATIONS

    def __init__(self, num_heads=None, key_dim=None, max_length=None, rank=None, initializer="bert", **kwargs):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        if rank is None and self.key_dim is None:
            raise ValueError("DietAbs needs `rank`, or `key_dim`, which is the default rank.")
        self.rank = checks.positive_int("DietAbs", "rank", self.key_dim if rank is None else rank)
        self.initializer = get_initializer(initializer)

    def build(self, input_shape=None):
        shape = (self.heads, self.max_length, self.rank)
        self.query_table = self.add_position_weight("query_positions", shape, self.initializer)
        self.key_table = self.add_position_weight("key_positions", shape, self.initializer)
        self.built = True

    def bias(self, query_length, key_length, start_index=0, total_length=None):
        total = rows.longest(query_length, key_length, start_index, total_length)
        query_rows = rows.absolute_rows(
            self.read(self.query_table), query_length, start_index, total, 1, self.extrapolate
        )
        key_rows = rows.absolute_rows(self.read(self.key_table), key_length, 0, total, 1, self.extrapolate)
        return ops.expand_dims(ops.einsum("hqr,hkr->hqk", query_rows, key_rows), 0)

    def get_config(self):
        return {**super().get_config(), "rank": self.rank, "initializer": initializers.serialize(self.initializer)}
