from keras import initializers, ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.learned import get_initializer
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks, rows, scan


@register("floater")
class Floater(PositionEncoding):
    """FLOATER: positions as the path of a learned dynamical system.

    `p(t) = p(0) + integral_0^t h(s, p(s)) ds`, and position `i` gets `p(i * step)`. The dynamics are a two-layer
    network that sees the time, `h(t, p) = W_2 tanh(W_1 [p; t] + b_1) + b_2`, and the integral is taken by the
    classical fourth-order Runge-Kutta method, `substeps` of them from one position to the next. The number of
    parameters does not depend on the length, so any length can be encoded. The path is sequential: training pays for
    that, a folded model does not.

    Args:
        hidden_dim: width of the hidden layer, that of `p` by default.
        step: time between neighbouring positions.
        substeps: Runge-Kutta steps per position.
        initializer: of `p(0)` and `W_2`.

    Reference: Liu et al., 2020 (arXiv:2003.09229). The variant at the input; the paper's network for `h` is not
    fixed, and this one is the smallest that sees the time.
    """

    doors = ("embed",)

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        hidden_dim=None,
        step=0.01,
        substeps=1,
        initializer="bert",
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.hidden_dim = None if hidden_dim is None else checks.positive_int("Floater", "hidden_dim", hidden_dim)
        self.step = checks.positive("Floater", "step", step)
        self.substeps = checks.positive_int("Floater", "substeps", substeps)
        self.initializer = get_initializer(initializer)

    def build(self, input_shape):
        width = input_shape[-1]
        hidden = self.hidden_dim or width
        self.initial = self.add_position_weight("initial", (width,), self.initializer)
        self.kernel_1 = self.add_position_weight("kernel_1", (width + 1, hidden), "glorot_uniform")
        self.bias_1 = self.add_position_weight("bias_1", (hidden,), "zeros")
        # Small, so that the path does not leave the size of token embeddings far behind before it is trained.
        self.kernel_2 = self.add_position_weight("kernel_2", (hidden, width), self.initializer)
        self.bias_2 = self.add_position_weight("bias_2", (width,), "zeros")
        self.built = True

    def embed(self, length, start_index=0, total_length=None):
        end = start_index + length if total_length is None else total_length
        return rows.window(self.path(end), start_index, length, axis=0)

    def path(self, length):
        """`p` at the positions `0 .. length - 1`, `(length, width)`."""
        kernel_1, bias_1 = self.read(self.kernel_1), self.read(self.bias_1)
        kernel_2, bias_2 = self.read(self.kernel_2), self.read(self.bias_2)

        def dynamics(time, state):
            hidden = ops.matmul(state, kernel_1[:-1]) + time * kernel_1[-1] + bias_1
            return ops.matmul(ops.tanh(hidden), kernel_2) + bias_2

        h = self.step / self.substeps

        def advance(state, position):
            following = state
            for substep in range(self.substeps):
                time = position * self.step + substep * h
                k1 = dynamics(time, following)
                k2 = dynamics(time + h / 2, following + h / 2 * k1)
                k3 = dynamics(time + h / 2, following + h / 2 * k2)
                k4 = dynamics(time + h, following + h * k3)
                following = following + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return following

        initial = ops.expand_dims(self.read(self.initial), 0)
        positions = ops.cast(ops.arange(length, dtype="int32"), self.position_dtype)
        return ops.squeeze(scan.states(advance, initial, positions), 1)

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "step": self.step,
            "substeps": self.substeps,
            "initializer": initializers.serialize(self.initializer),
        }
