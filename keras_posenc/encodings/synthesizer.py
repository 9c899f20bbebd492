from keras import initializers, ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks, rows


@register("synthesizer")
class Synthesizer(PositionEncoding):
    """Synthesizer: attention scores without a product of queries and keys.

    `kind="random"`: `A = R`, a trained `n x n` matrix per head. `kind="factorized"`: `A = R_1 R_2^T` with `n x rank`
    factors. `kind="dense"`: `A_i = relu(q_i) W`, every token predicts its row of `n` scores; the query projection is
    the first layer of the paper's two.
    With `mixed`, `A = (1 - g) q k^T / sqrt(d_h) + g A_synthetic`, with one learned gate `g = sigmoid(alpha)` per head.

    Args:
        max_length: `n`.
        kind: `"random"`, `"factorized"` or `"dense"`.
        mixed: mix with the content scores. If not, keys (and, unless dense, queries) are not even projected.
        rank: of the factors, 8.
        bidirectional: whether a row spans keys after the query. Set it to `False` for cached decoding under a causal
            mask.

    Reference: Tay et al., 2021 (arXiv:2005.00743).
    """

    doors = ("scores",)
    needs = ("num_heads", "key_dim", "max_length")

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        kind="random",
        mixed=False,
        rank=8,
        bidirectional=True,
        initializer="bert",
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.kind = checks.one_of("Synthesizer", "kind", kind, ("random", "factorized", "dense"))
        self.mixed = bool(mixed)
        self.rank = checks.positive_int("Synthesizer", "rank", rank)
        self.bidirectional = bool(bidirectional)
        self.initializer = get_initializer(initializer)

    @property
    def needs_query(self):
        return self.mixed or self.kind == "dense"

    @property
    def needs_key(self):
        return self.mixed

    @property
    def foldable(self):
        return self.kind != "dense"

    @property
    def no_cache(self):
        if self.bidirectional:
            return "its rows span keys after the query; construct it with bidirectional=False"
        return None

    def build(self, input_shape=None):
        weight, n, init = self.add_position_weight, self.max_length, self.initializer
        if self.kind == "random":
            self.random = weight("random", (self.heads, n, n), init)
        elif self.kind == "factorized":
            self.query_factor = weight("query_factor", (self.heads, n, self.rank), init)
            self.key_factor = weight("key_factor", (self.heads, n, self.rank), init)
        else:
            self.kernel = weight("kernel", (self.heads, self.key_dim, n), init)
        if self.mixed:
            self.gate = weight("gate", (self.heads, 1, 1), "zeros")
        self.built = True

    def tables(self, query_length, key_length, start_index=0, total_length=None):
        if self.kind == "dense":
            tables = {"kernel": rows.window(self.read(self.kernel), 0, key_length, axis=2)}
        else:
            if self.kind == "random":
                matrix = rows.windows(self.read(self.random), {1: (start_index, query_length), 2: (0, key_length)})
            else:
                query_rows = rows.window(self.read(self.query_factor), start_index, query_length, axis=1)
                key_rows = rows.window(self.read(self.key_factor), 0, key_length, axis=1)
                matrix = ops.einsum("hqr,hkr->hqk", query_rows, key_rows)
            tables = {"matrix": ops.expand_dims(matrix, 0)}
        if self.mixed:
            tables["gate"] = ops.sigmoid(self.read(self.gate))
        return tables

    def foldable_tables(self, length):
        return self.tables(length, length)

    def window(self, folded, query_length, key_length, start_index):
        matrix = rows.windows(folded["matrix"], {2: (start_index, query_length), 3: (0, key_length)})
        return {**folded, "matrix": matrix}

    def scores(self, query, key, tables):
        if self.kind == "dense":
            # The query arrives scaled; relu commutes with a positive scale.
            synthetic = ops.matmul(ops.relu(query) / self.scale, ops.cast(tables["kernel"], query.dtype))
        else:
            synthetic = tables["matrix"]
        if not self.mixed:
            return synthetic
        gate = ops.cast(tables["gate"], query.dtype)
        return (1 - gate) * super().scores(query, key, tables) + gate * ops.cast(synthetic, query.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "kind": self.kind,
            "mixed": self.mixed,
            "rank": self.rank,
            "bidirectional": self.bidirectional,
            "initializer": initializers.serialize(self.initializer),
        }
