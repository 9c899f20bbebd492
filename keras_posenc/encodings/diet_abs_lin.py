from keras import initializers, ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks, rows


@register("diet_abs_lin")
class DietAbsLin(PositionEncoding):
    """DIET-ABS-LIN: absolute positional attention to the compressed keys of a Linformer.

    `A_ij = (X_i W_Q)((E X)_j W_K)^T / sqrt(d_h) + (P_Q P_K^T)_ij`, with `P_Q (n x d_p)` for the `n` queries and
    `P_K (k x d_p)` for the `k` compressed keys of each head: `n x k` scores, linear in the length. To be used in
    `LinformerAttention`, whose number of compressed keys is `num_keys`.

    Args:
        max_length: `n`.
        num_keys: `k`.
        rank: `d_p`, the head size by default.

    Reference: Chen et al., 2021 (DIET), equation 4.
    """

    doors = ("bias",)
    needs = ("num_heads", "max_length")
    no_cache = "compressed keys mix all positions of the sequence"
    compresses_keys = True

    def __init__(
        self, num_heads=None, key_dim=None, max_length=None, num_keys=32, rank=None, initializer="bert", **kwargs
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        if rank is None and self.key_dim is None:
            raise ValueError("DietAbsLin needs `rank`, or `key_dim`, which is the default rank.")
        self.num_keys = checks.positive_int("DietAbsLin", "num_keys", num_keys)
        self.rank = checks.positive_int("DietAbsLin", "rank", self.key_dim if rank is None else rank)
        self.initializer = get_initializer(initializer)

    def build(self, input_shape=None):
        self.query_table = self.add_position_weight(
            "query_positions", (self.heads, self.max_length, self.rank), self.initializer
        )
        self.key_table = self.add_position_weight(
            "key_positions", (self.heads, self.num_keys, self.rank), self.initializer
        )
        self.built = True

    def at(self, query_length, key_length=None, start_index=0, total_length=None):
        """Only queries have positions: `key_length`, the number of compressed keys, is no length to be checked."""
        return super().at(query_length, None, start_index, total_length)

    def bias(self, query_length, key_length=None, start_index=0, total_length=None):
        """`(1, heads, q, num_keys)`: the compressed keys are always all there."""
        query_rows = rows.window(self.read(self.query_table), start_index, query_length, axis=1)
        return ops.expand_dims(ops.einsum("hqr,hkr->hqk", query_rows, self.read(self.key_table)), 0)

    def window(self, folded, query_length, key_length, start_index):
        return {"bias": rows.window(folded["bias"], start_index, query_length, axis=2)}

    def compute_output_shape(self, input_shape):
        return (1, self.heads, input_shape[1], self.num_keys)

    def get_config(self):
        return {
            **super().get_config(),
            "num_keys": self.num_keys,
            "rank": self.rank,
            "initializer": initializers.serialize(self.initializer),
        }
