"""FLOATER's path against SciPy's integrators."""

import numpy as np
import pytest
from subject import randomize

from keras_posenc.encodings import Floater

integrate = pytest.importorskip("scipy.integrate", reason="scipy is not installed")

WIDTH, LENGTH = 5, 12


def floater(dtype="float64", **options):
    encoding = Floater(hidden_dim=6, dtype=dtype, **options)
    encoding.build((None, None, WIDTH))
    randomize(encoding)
    return encoding


def solution(encoding):
    """`p` at every position, by an adaptive method of order 8 with tight tolerances, from the encoding's weights."""
    initial, kernel_1, bias_1, kernel_2, bias_2 = (np.asarray(w, "float64") for w in encoding.weights)

    def dynamics(time, state):
        return np.tanh(np.append(state, time) @ kernel_1 + bias_1) @ kernel_2 + bias_2

    times = encoding.step * np.arange(LENGTH)
    solved = integrate.solve_ivp(
        dynamics, (0.0, times[-1]), initial, method="DOP853", t_eval=times, rtol=1e-12, atol=1e-12
    )
    return solved.y.T


def error(encoding):
    return np.abs(np.asarray(encoding.embed(LENGTH)) - solution(encoding)).max()


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-7)])
@pytest.mark.parametrize("step", [0.01, 0.05])
def test_path(step, dtype, tolerance):
    assert error(floater(dtype, step=step)) < tolerance


def test_runge_kutta_is_of_fourth_order():
    """Halving the step divides the error by 2^4, which a wrong stage, weight or stage time would not."""
    errors = [error(floater(step=0.5, substeps=substeps)) for substeps in (1, 2, 4)]
    orders = np.log2(errors[:-1]) - np.log2(errors[1:])
    np.testing.assert_allclose(orders, 4, atol=0.3)


def test_the_path_sees_the_time():
    encoding = floater(step=0.5, substeps=8)
    expected = solution(encoding)
    kernel = np.array(encoding.kernel_1)
    kernel[-1] = 0
    encoding.kernel_1.assign(kernel)
    assert np.abs(np.asarray(encoding.embed(LENGTH)) - expected).max() > 1e-2


def test_a_window_lies_on_the_path():
    encoding = floater(step=0.05)
    window = encoding.embed(4, start_index=LENGTH - 4)
    np.testing.assert_allclose(window, solution(encoding)[-4:], rtol=0, atol=1e-7)
