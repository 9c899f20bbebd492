from keras import initializers, ops

from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.encodings.relative import RelativeBias
from keras_posenc.utils import rows


@register("diet_rel")
class DietRel(RelativeBias):
    """DIET-REL: one learned scalar per head and distance.

    `A_ij = (X_i W_Q)(X_j W_K)^T / sqrt(d_h) + R_{i-j}`, with `2n - 1` scalars for each head. The recommended use is
    without sharing.

    Args:
        max_length: `n`.
        initializer: of `R`.

    Reference: Chen et al., 2021 (DIET), equation 3.
    """

    needs = ("num_heads", "max_length")
    extrapolations = rows.EXTRAPOLATIONS

    def __init__(self, num_heads=None, key_dim=None, max_length=None, initializer="bert", **kwargs):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.initializer = get_initializer(initializer)

    def build(self, input_shape=None):
        shape = (self.heads, 2 * self.max_length - 1)
        self.table = self.add_position_weight("distances", shape, self.initializer)
        self.built = True

    def line(self, offsets, total_length):
        # Column c of the table is the distance i - j = c - (n - 1), so offsets j - i read it backwards.
        table, last = self.read(self.table), self.max_length - 1
        if self.extrapolate == "interpolate":
            squeezed = ops.cast(offsets, "float32") * rows.shrink(total_length, self.max_length)
            return rows.blended_rows(table, ops.clip(last - squeezed, 0, 2 * last), 1)
        return rows.rows(table, ops.clip(last - offsets, 0, 2 * last), 1)

    def get_config(self):
        return {**super().get_config(), "initializer": initializers.serialize(self.initializer)}
