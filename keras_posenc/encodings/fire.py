from keras import ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks


@register("fire")
class Fire(PositionEncoding):
    """FIRE: a learned function of the distance relative to the query's position.

    `A_ij = q_i k_j^T / sqrt(d_h) + f(psi(|i - j|) / psi(max(L, i)))`, `psi(x) = log(c x + 1)`, with a network
    `f(x) = W_2 relu(W_1 x + b_1)` shared by the heads up to its last layer, and learned `c` and `L`. Because
    the input of `f` stays between 0 and 1 under a causal mask, it can be used beyond the trained length.

    Args:
        hidden_dim: width of the hidden layer, 32.
        initial_c: `c` at the start, 0.1.
        initial_threshold: `L` at the start, 512.

    Reference: Li et al., 2024 (arXiv:2310.04418), equation 5. The paper is causal; without a causal mask distances
    count the same in both directions. A bias of the last layer would be the same for all keys, which the softmax does
    not see; it is left out.
    """

    doors = ("bias",)
    needs = ("num_heads",)

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        hidden_dim=32,
        initial_c=0.1,
        initial_threshold=512.0,
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.hidden_dim = checks.positive_int("Fire", "hidden_dim", hidden_dim)
        self.initial_c = checks.positive("Fire", "initial_c", initial_c)
        self.initial_threshold = checks.positive("Fire", "initial_threshold", initial_threshold)

    def build(self, input_shape=None):
        weight = self.add_position_weight
        self.c = weight("c", (), lambda shape, dtype=None: ops.full(shape, self.initial_c, dtype))
        # L is learned as a multiple of its initial value, so that one step of an optimizer moves it visibly.
        self.threshold = weight("threshold", (), "ones")
        self.kernel_1 = weight("kernel_1", (1, self.hidden_dim), "glorot_uniform")
        self.bias_1 = weight("bias_1", (self.hidden_dim,), "zeros")
        self.kernel_2 = weight("kernel_2", (self.hidden_dim, self.heads), "glorot_uniform")
        self.built = True

    def bias(self, query_length, key_length, start_index=0, total_length=None):
        queries = start_index + ops.arange(query_length, dtype="int32")
        distance = ops.abs(ops.expand_dims(queries, -1) - ops.arange(key_length, dtype="int32"))
        threshold = ops.abs(self.read(self.threshold) * self.initial_threshold)
        reach = ops.maximum(threshold, ops.cast(queries, self.position_dtype))
        ratio = self._psi(ops.cast(distance, self.position_dtype)) / ops.expand_dims(self._psi(reach), -1)
        hidden = ops.relu(ops.expand_dims(ratio, -1) * self.read(self.kernel_1)[0] + self.read(self.bias_1))
        return ops.expand_dims(ops.einsum("qkf,fh->hqk", hidden, self.read(self.kernel_2)), 0)

    def _psi(self, x):
        return ops.log1p(ops.abs(self.read(self.c)) * x)

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "initial_c": self.initial_c,
            "initial_threshold": self.initial_threshold,
        }
