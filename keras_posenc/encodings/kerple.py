import numpy as np
from keras import initializers, ops

from keras_posenc.encodings.registry import register
from keras_posenc.encodings.relative import RelativeBias
from keras_posenc.utils import checks


@register("kerple")
class Kerple(RelativeBias):
    """KERPLE: kernelised relative positions with two positive parameters per head.

    `A_ij = q_i k_j^T / sqrt(d_h) + f(|i - j|)`, where `f` is
    `-r_1 log(1 + r_2 |i - j|)` (`kind="log"`) or `-r_1 |i - j|^r_2`, `0 < r_2 <= 2` (`kind="power"`).
    Parameters count as 0.01 below it. The gradient passes that limit (and that of `r_2`) unchanged, so that a parameter
    beyond it can come back.

    Args:
        kind: `"log"` (default, the better one in the paper) or `"power"`.

    Reference: Chi et al., 2022 (arXiv:2205.09921). The paper is causal; without a causal mask distances count the same
    in both directions.
    """

    smallest = 1e-2

    def __init__(self, num_heads=None, key_dim=None, max_length=None, kind="log", **kwargs):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.kind = checks.one_of("Kerple", "kind", kind, ("log", "power"))

    def build(self, input_shape=None):
        second = 2.0 if self.kind == "power" else 1.0
        uniform = initializers.RandomUniform
        self.r1 = self.add_position_weight("r1", (self.heads, 1), uniform(0.0, 1.0))
        self.r2 = self.add_position_weight("r2", (self.heads, 1), uniform(0.0, second))
        self.built = True

    def line(self, offsets, total_length):
        r1, r2 = self._limited(self.r1), self._limited(self.r2, 2.0 if self.kind == "power" else np.inf)
        distance = ops.cast(ops.abs(offsets), self.position_dtype)
        if self.kind == "log":
            return -r1 * ops.log1p(r2 * distance)
        # 0^r is 0 with gradient 0; computing it as exp(r log 0) would give NaN gradients.
        power = ops.power(ops.maximum(distance, 1.0), r2)
        return -r1 * ops.where(distance > 0, power, ops.zeros_like(power))

    def _limited(self, weight, largest=np.inf):
        weight = self.read(weight)
        return weight + ops.stop_gradient(ops.clip(weight, self.smallest, largest) - weight)

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}
