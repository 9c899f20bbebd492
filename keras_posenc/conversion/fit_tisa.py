"""TISA kernels fitted to positional scores, for all heads at once.

`f(k) = sum_s a_s exp(-|b_s| (k - c_s)^2)` is linear in the amplitudes, so for given `b, c` they are solved for
(variable projection), and only `b, c` are searched, by damped Gauss-Newton steps (Levenberg-Marquardt), each head with
a damping of its own. Kernels come one at a time: the one of a grid of widths and centres that explains most of what is
left, beside those that are there and fitted already. As that ends in a local optimum, further starts draw from the grid
with a probability proportional to what a kernel explains, and each head keeps its best.
"""

import numpy as np

from keras_posenc.conversion import toeplitz

RIDGE = 1e-6  # relative; keeps amplitudes finite where two kernels become one


def kernels_line(amplitudes, sharpness, centers, length):
    """`f` of shape `(heads, 2n - 1)` from parameters `(heads, S)`."""
    return np.einsum("hs,hsk->hk", amplitudes, _kernels(sharpness, centers, length))


def fit(matrix, kernels, steps=15, starts=4, seed=0, on_step=None):
    """Kernels nearest to `matrix` up to row constants.

    Args:
        matrix: `(heads, n, n)` scores.
        kernels: `S`, at least 1.
        steps: tried after each kernel that is added. One that does not help a head is not taken by it.
        starts: number of starts.
        seed: of the draws.
        on_step: called as `on_step(step, explained)` after each of the `kernels * steps` steps, with the share of the
            squared score that is explained.

    Returns: `(amplitudes, sharpness, centers)`, each `(heads, S)`.
    """
    heads, n = matrix.shape[0], matrix.shape[-1]
    centered = toeplitz.center_rows(matrix)
    energy = np.square(centered).sum(axis=(-2, -1))
    # Heads differ by orders of magnitude: each is fitted at size one.
    size = np.where(energy > 0, np.sqrt(energy), 1.0)[:, None]
    target = np.tile(toeplitz.diagonal_sums(centered) / size, (starts, 1))
    rng = np.random.default_rng(seed)
    grid = _grid(n)
    state = tuple(np.zeros((starts * heads, 0)) for _ in range(3))
    for count in range(kernels):
        state, gain = _add(state, target, grid, heads, rng)
        damping = np.full(len(target), 1e-2)
        for step in range(1, steps + 1):
            state, gain, damping = _improve(state, gain, damping, target)
            if on_step is not None:
                explained = (gain.reshape(starts, heads).max(axis=0) * energy).sum() / max(energy.sum(), 1e-30)
                on_step(count * steps + step, float(explained))
    best = gain.reshape(starts, heads).argmax(axis=0)
    a, b, c = (part.reshape(starts, heads, kernels)[best, np.arange(heads)] for part in state)
    return a * size, b, c


def _kernels(sharpness, centers, n):
    return np.exp(-np.abs(sharpness)[..., None] * np.square(toeplitz.offsets(n) - centers[..., None]))


def _sharpness_limits(n):
    """Widths from half a position to twice the length."""
    return 1 / (2 * (2.0 * n) ** 2), 2.0


def _grid(n):
    """Sharpness and centres to choose from, their kernels, and the squared size of these as centred matrices."""
    low, high = _sharpness_limits(n)
    widths = np.geomspace(1 / np.sqrt(2 * high), 1 / np.sqrt(2 * low), 14)
    reach = np.unique(np.round(np.geomspace(1, max(n // 2, 1), 20)))
    centers = np.concatenate([-reach[::-1], [0], reach])
    b, c = (x.ravel() for x in np.meshgrid(1 / (2 * widths**2), centers, indexing="ij"))
    lines = _kernels(b, c, n)
    return b, c, lines, (lines * toeplitz.apply_gram(lines)).sum(axis=-1)


def _add(state, target, grid, heads, rng):
    """One more kernel for every start of every head: the best for the first start, drawn for the others."""
    a, b, c = state
    grid_b, grid_c, lines, norms = grid
    rest = target - toeplitz.apply_gram(kernels_line(a, b, c, (target.shape[-1] + 1) // 2))
    worth = np.log(np.square(rest @ lines.T) / norms + 1e-30)
    worth[heads:] += rng.gumbel(size=worth[heads:].shape)  # the largest is then a draw from exp(worth)
    chosen = worth.argmax(axis=-1)
    b, c = (np.concatenate([old, new[chosen, None]], axis=1) for old, new in ((b, grid_b), (c, grid_c)))
    a, gain = _amplitudes(b, c, target)
    return (a, b, c), gain


def _amplitudes(b, c, target):
    """The best amplitudes `(heads, S)`, and how much of the squared score they explain."""
    e = _kernels(b, c, (target.shape[-1] + 1) // 2)
    gram = e @ toeplitz.apply_gram(e).swapaxes(-1, -2)
    product = np.einsum("hsk,hk->hs", e, target)
    ridge = RIDGE * np.trace(gram, axis1=-2, axis2=-1)[:, None, None] / gram.shape[-1] + 1e-30
    a = np.linalg.solve(gram + ridge * np.eye(gram.shape[-1]), product[..., None])[..., 0]
    return a, (2 * a * product).sum(-1) - np.einsum("hs,hst,ht->h", a, gram, a)


def _improve(state, gain, damping, target):
    """A Gauss-Newton step of `log b` and `c`, for those heads that it helps."""
    a, b, c = state
    n = (target.shape[-1] + 1) // 2
    move_b, move_c = _step(a, b, c, target, damping)
    new_b = np.clip(b * np.exp(np.clip(move_b, -1, 1)), *_sharpness_limits(n))
    new_c = np.clip(c + np.clip(move_c, -3, 3) / np.sqrt(2 * b), -n, n)
    new_a, new_gain = _amplitudes(new_b, new_c, target)
    better = new_gain > gain
    state = tuple(np.where(better[:, None], new, old) for new, old in ((new_a, a), (new_b, b), (new_c, c)))
    damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e6)
    return state, np.where(better, new_gain, gain), damping


def _step(a, b, c, target, damping):
    """Changes of `log b` and of `c`, in widths of the kernel, from the damped normal equations of all parameters."""
    n = (target.shape[-1] + 1) // 2
    e = _kernels(b, c, n)
    away = toeplitz.offsets(n) - c[..., None]
    scaled, sharp = a[..., None] * e, b[..., None]
    slopes = np.concatenate([e, -scaled * sharp * away**2, scaled * np.sqrt(2 * sharp) * away], axis=1)
    rest = target - toeplitz.apply_gram(np.einsum("hs,hsk->hk", a, e))
    normal = slopes @ toeplitz.apply_gram(slopes).swapaxes(-1, -2)
    diagonal = np.einsum("hss->hs", normal)
    damped = damping[:, None] * diagonal + 1e-12 * diagonal.max(axis=-1, keepdims=True) + 1e-30
    move = np.linalg.solve(normal + damped[..., None] * np.eye(slopes.shape[1]), slopes @ rest[..., None])[..., 0]
    return np.split(move, 3, axis=-1)[1:]
