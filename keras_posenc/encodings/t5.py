import math

import numpy as np
from keras import initializers, ops

from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.encodings.relative import RelativeBias
from keras_posenc.utils import checks


@register("t5")
class T5Bias(RelativeBias):
    """T5's relative bias: one learned scalar per head and logarithmic bucket of distances.

    `A_ij = q_i k_j^T / sqrt(d_h) + b_{bucket(j - i)}`. Small distances have a bucket each, larger ones share buckets
    of logarithmically growing width, and all from `max_distance` on share the last.

    Args:
        num_buckets: number of buckets, 32.
        max_distance: distance at which the last bucket begins at the latest, 128.
        bidirectional: half of the buckets for keys after the query. If not, those keys all fall in bucket 0, for use
            under a causal mask.

    Reference: Raffel et al., 2020 (arXiv:1910.10683), section 2.1. T5 leaves out the `1 / sqrt(d_h)` and folds it into
    its initialisation; here the scores are scaled as everywhere, and the bias is not.
    """

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        num_buckets=32,
        max_distance=128,
        bidirectional=True,
        initializer="bert",
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.num_buckets = checks.positive_int("T5Bias", "num_buckets", num_buckets)
        self.max_distance = checks.positive_int("T5Bias", "max_distance", max_distance)
        self.bidirectional = bool(bidirectional)
        self.initializer = get_initializer(initializer)
        self._buckets = bucket_table(self.num_buckets, self.max_distance, self.bidirectional)

    def build(self, input_shape=None):
        self.table = self.add_position_weight("buckets", (self.heads, self.num_buckets), self.initializer)
        self.built = True

    def line(self, offsets, total_length):
        return bucket_scores(self.read(self.table), offsets, self._buckets)

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "initializer": initializers.serialize(self.initializer),
        }


def bucket_table(num_buckets, max_distance, bidirectional):
    """The bucket of every offset `-max_distance .. max_distance`, as an integer array; beyond, the ends repeat."""
    per_side = num_buckets // 2 if bidirectional else num_buckets
    exact = per_side // 2
    if exact < 1 or max_distance <= exact:
        raise ValueError(
            f"{num_buckets} buckets leave {exact} for exact distances, and `max_distance` must be larger than that "
            f"(with at least one exact distance). Received: num_buckets={num_buckets}, max_distance={max_distance}"
        )

    def bucket(distance):
        if distance < exact:
            return distance
        share = math.log(distance / exact) / math.log(max_distance / exact)
        return min(exact + int(share * (per_side - exact)), per_side - 1)

    def of(offset):
        if bidirectional:
            return bucket(abs(offset)) + (per_side if offset > 0 else 0)
        return bucket(max(-offset, 0))

    return np.array([of(offset) for offset in range(-max_distance, max_distance + 1)], dtype="int32")


def bucket_scores(table, offsets, buckets):
    """`(heads, offsets)` scores from a `(heads, buckets)` table."""
    reach = len(buckets) // 2
    index = ops.take(ops.convert_to_tensor(buckets), ops.clip(offsets, -reach, reach) + reach, axis=0)
    return ops.take(table, index, axis=1)
