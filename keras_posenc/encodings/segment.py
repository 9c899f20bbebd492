import keras
from keras import ops

from keras_posenc.encodings.registry import PACKAGE
from keras_posenc.utils import checks


def as_pair(segment_ids, cached=False):
    """Segment ids of queries and of keys, the second `None` if they are the same. With a cache they never are."""
    if isinstance(segment_ids, (tuple, list)):
        return tuple(segment_ids)
    if cached:
        raise ValueError(
            "With a cache, keys are those of the cache: pass `segment_ids` as a pair, those of the new tokens "
            "(batch, new tokens) and those of all positions (batch, cache length)."
        )
    return segment_ids, None


@keras.saving.register_keras_serializable(package=PACKAGE)
class SegmentBias(keras.layers.Layer):
    """DIET's segment attention: a learned scalar per head and pair of segments.

    `E_S(S(i), S(j)) = S_{ij}` for a query in segment `S(i)` and a key in segment `S(j)`. It goes with any position
    encoding, and like a position bias it is not scaled.

    Args:
        num_heads: number of attention heads.
        num_segments: number of segments, e.g. 2.
        share_heads: use the same table for all heads.

    Call arguments:
        segment_ids: int `(batch, queries)`.
        key_segment_ids: int `(batch, keys)`, those of the queries by default.

    Returns: `(batch, heads, queries, keys)`.

    Reference: Chen et al., 2021 (DIET), equation 2.
    """

    def __init__(self, num_heads, num_segments=2, share_heads=False, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = checks.positive_int("SegmentBias", "num_heads", num_heads)
        self.num_segments = checks.positive_int("SegmentBias", "num_segments", num_segments)
        self.share_heads = bool(share_heads)

    def build(self, segment_ids_shape=None, key_segment_ids_shape=None):
        shape = (1 if self.share_heads else self.num_heads, self.num_segments, self.num_segments)
        init = keras.initializers.TruncatedNormal(stddev=0.02)
        self.table = self.add_weight(name="segments", shape=shape, initializer=init, autocast=False)
        self.built = True

    def call(self, segment_ids, key_segment_ids=None):
        dtype = "float64" if self.compute_dtype == "float64" else "float32"
        queries = ops.one_hot(self._check(segment_ids), self.num_segments, dtype=dtype)
        keys = queries
        if key_segment_ids is not None:
            keys = ops.one_hot(self._check(key_segment_ids), self.num_segments, dtype=dtype)
        from_segment = ops.einsum("bqs,hst->bhqt", queries, ops.cast(self.table, dtype))
        return ops.einsum("bhqt,bkt->bhqk", from_segment, keys)

    def _check(self, segment_ids):
        if "int" not in keras.backend.standardize_dtype(segment_ids.dtype):
            raise ValueError(f"Segment ids must be integers. Received: dtype={segment_ids.dtype}")
        return checks.below(
            segment_ids,
            self.num_segments,
            lambda bad: (
                f"Segment id {bad} is out of range for num_segments={self.num_segments} (ids start at 0). "
                "Correct the ids or construct the layer with more segments."
            ),
        )

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_segments": self.num_segments,
            "share_heads": self.share_heads,
        }
