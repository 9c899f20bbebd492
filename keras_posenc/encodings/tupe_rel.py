from keras_posenc.encodings.registry import register
from keras_posenc.encodings.t5 import bucket_scores, bucket_table
from keras_posenc.encodings.tupe import Tupe
from keras_posenc.utils import checks, toeplitz


@register("tupe_rel")
class TupeRel(Tupe):
    """TUPE-R: TUPE's absolute term plus a relative bias over T5's buckets, with an untied [CLS].

    `A_ij = (x_i W_Q)(x_j W_K)^T / sqrt(2 d_h) + reset((p_i U_Q)(p_j U_K)^T / sqrt(2 d_h) + b_{bucket(j - i)})`.

    Args:
        max_length, position_dim, untie_cls: of the absolute part, as in `Tupe`.
        num_buckets, max_distance, bidirectional: of the relative part, as in `T5Bias`.

    Reference: Ke et al., 2021 (arXiv:2006.15595), equation 10. `reset` is applied to the sum as in the paper; the
    authors' code resets both terms and adds them, which describes the same set of functions.
    """

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        position_dim=None,
        untie_cls=True,
        num_buckets=32,
        max_distance=128,
        bidirectional=True,
        initializer="bert",
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, position_dim, untie_cls, initializer, **kwargs)
        self.num_buckets = checks.positive_int("TupeRel", "num_buckets", num_buckets)
        self.max_distance = checks.positive_int("TupeRel", "max_distance", max_distance)
        self.bidirectional = bool(bidirectional)
        self._buckets = bucket_table(self.num_buckets, self.max_distance, self.bidirectional)

    def build(self, input_shape=None):
        self.buckets = self.add_position_weight("buckets", (self.heads, self.num_buckets), self.initializer)
        super().build(input_shape)

    def relative_scores(self, query_length, key_length, start_index):
        offsets = toeplitz.offsets(query_length, key_length, start_index)
        line = bucket_scores(self.read(self.buckets), offsets, self._buckets)
        return toeplitz.toeplitz(line, query_length, key_length)

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
        }
