from keras import initializers, ops

from keras_posenc.encodings.registry import register
from keras_posenc.encodings.relative import RelativeBias
from keras_posenc.utils import checks


@register("tisa")
class Tisa(RelativeBias):
    """TISA: translation-invariant self-attention by a few radial kernels per head.

    `A_ij = q_i k_j^T / sqrt(d_k) + f(j - i)`, `f(k) = sum_s a_s exp(-|b_s| (k - c_s)^2)`: three parameters per
    kernel, defined for all lengths. Alone it is the paper's case b); beside position embeddings
    (`position="learned+tisa"`) its case a).

    Args:
        kernels: `S`, the number of kernels per head. With 0 the score is zero.

    Reference: Wennberg & Henter, 2021 (arXiv:2106.01950), equations 4 and 5. Initialised as the authors' code does:
    offsets normal with deviation 5, amplitudes and sharpnesses around 0.1. That code evaluates `f` at `i - j - 1`;
    this follows the equation.
    """

    def __init__(self, num_heads=None, key_dim=None, max_length=None, kernels=5, **kwargs):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        if kernels != 0:
            checks.positive_int("Tisa", "kernels", kernels)
        self.kernels = int(kernels)

    def build(self, input_shape=None):
        shape = (self.kernels, self.heads)
        near = initializers.RandomNormal(mean=0.1, stddev=0.01)
        self.amplitudes = self.add_position_weight("amplitudes", shape, near)
        self.sharpness = self.add_position_weight("sharpness", shape, near)
        self.centers = self.add_position_weight("centers", shape, initializers.RandomNormal(stddev=5.0))
        self.built = True

    def line(self, offsets, total_length):
        a, b, c = (ops.expand_dims(self.read(w), -1) for w in (self.amplitudes, self.sharpness, self.centers))
        distance = ops.cast(offsets, self.position_dtype) - c
        return ops.sum(a * ops.exp(-ops.abs(b) * ops.square(distance)), axis=0)

    def get_config(self):
        return {**super().get_config(), "kernels": self.kernels}
