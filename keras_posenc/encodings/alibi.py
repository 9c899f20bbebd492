import math

from keras import ops

from keras_posenc.encodings.registry import register
from keras_posenc.encodings.relative import RelativeBias


@register("alibi")
class Alibi(RelativeBias):
    """ALiBi: attention with linear biases, no parameters.

    `A_ij = q_i k_j^T / sqrt(d_h) - m_h |i - j|`, with a fixed slope `m_h` per head. Under a causal mask this is the
    paper's; without one, distances count the same in both directions.

    The slopes of `n` heads are `2^(-8/n), 2^(-16/n), ...` if `n` is a power of two. Otherwise those of the power below
    come first, then every second of the power above.

    Reference: Press et al., 2022 (arXiv:2108.12409).
    """

    def line(self, offsets, total_length):
        slopes = ops.convert_to_tensor(alibi_slopes(self.heads), self.position_dtype)
        return -ops.expand_dims(slopes, -1) * ops.cast(ops.abs(offsets), self.position_dtype)


def alibi_slopes(num_heads):
    """The list of slopes, largest first within each series."""

    def geometric(count):
        return [2.0 ** (-8.0 * (h + 1) / count) for h in range(count)]

    below = 2 ** int(math.log2(num_heads))
    return geometric(below) + geometric(2 * below)[::2][: num_heads - below]
