import numpy as np
import pytest

from keras_posenc.conversion import fit_tisa, random_toeplitz_r2, toeplitz, toeplitz_r2

N = 12


def toeplitz_matrix(line):
    n = (line.shape[-1] + 1) // 2
    return np.array([[line[..., j - i + n - 1] for j in range(n)] for i in range(n)])


def test_from_line_is_the_matrix_of_offsets(rng):
    line = rng.normal(size=2 * N - 1)
    np.testing.assert_array_equal(toeplitz.from_line(line), toeplitz_matrix(line))


def test_diagonal_sums(rng):
    matrix = rng.normal(size=(3, N, N))
    expected = [[np.trace(m, offset=k) for k in toeplitz.offsets(N)] for m in matrix]
    np.testing.assert_allclose(toeplitz.diagonal_sums(matrix), expected, atol=1e-12)


def test_a_toeplitz_matrix_is_explained(rng):
    matrix = toeplitz_matrix(rng.normal(size=2 * N - 1))
    assert toeplitz_r2(matrix) == pytest.approx(1)
    assert toeplitz_r2(matrix, off_diagonal=True) == pytest.approx(1)


def test_r2_is_that_of_the_definition(rng):
    """Equations 6 to 8 of TISA, with the least squares solved as such."""
    matrix = rng.normal(size=(N, N))
    basis = np.stack([np.eye(N, k=k).ravel() for k in range(1 - N, N)], axis=1)
    _, rest, _, _ = np.linalg.lstsq(basis, matrix.ravel(), rcond=None)
    total = np.square(matrix - matrix.mean()).sum()
    assert toeplitz_r2(matrix) == pytest.approx(1 - rest[0] / total)


def test_random_embeddings_have_a_strong_diagonal():
    """`E|g|^2 = w` on the diagonal of a random Gram matrix and 0 off it: R^2 is near `w / (w + 1 + n)`."""
    assert random_toeplitz_r2(512, 384) == pytest.approx(384 / (384 + 512), abs=0.01)
    assert random_toeplitz_r2(128, 384) == pytest.approx(384 / (384 + 128), abs=0.01)
    # 2n - 2 free diagonals for n^2 - n numbers, half of which are the others' mirror images.
    assert random_toeplitz_r2(512, 384, off_diagonal=True) == pytest.approx(2 / 512, abs=0.001)
    assert random_toeplitz_r2(128, 384, off_diagonal=True) == pytest.approx(2 / 128, abs=0.004)


def test_gram_is_the_quadratic_form_of_centred_toeplitz_matrices(rng):
    first, second = rng.normal(size=(2, 2 * N - 1))
    product = np.sum(toeplitz.center_rows(toeplitz_matrix(first)) * toeplitz.center_rows(toeplitz_matrix(second)))
    assert first @ toeplitz.apply_gram(second) == pytest.approx(product)


def test_best_line_solves_the_least_squares_up_to_row_constants(rng):
    matrix = rng.normal(size=(2, N, N))
    diagonals = np.stack([np.eye(N, k=k).ravel() for k in range(1 - N, N)], axis=1)
    constants = np.stack([np.repeat(np.eye(N)[i], N) for i in range(N)], axis=1)
    basis = np.concatenate([diagonals, constants], axis=1)
    solution = np.linalg.lstsq(basis, matrix.reshape(2, -1).T, rcond=None)[0]
    rest = np.square(basis @ solution - matrix.reshape(2, -1).T).sum(axis=0)
    expected = 1 - rest / np.square(toeplitz.center_rows(matrix)).sum(axis=(1, 2))
    found = toeplitz.explained(matrix, toeplitz.from_line(toeplitz.best_line(matrix)))
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_row_constants_do_not_count(rng):
    matrix = rng.normal(size=(1, N, N))
    assert toeplitz.explained(matrix, matrix + rng.normal(size=(1, N, 1)))[0] == pytest.approx(1)


@pytest.mark.parametrize("shape", [(4, 5), (4,), (1, 1)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="square matrix"):
        toeplitz_r2(np.zeros(shape))


def test_kernels_are_recovered(rng):
    """Scores that are sums of two kernels, of different sizes, are found again."""
    n, heads = 40, 6
    a = rng.normal(size=(heads, 2)) * 10.0 ** rng.integers(-2, 3, (heads, 1))
    b, c = rng.uniform(0.01, 0.5, (heads, 2)), rng.normal(size=(heads, 2)) * 5
    matrix = toeplitz.from_line(fit_tisa.kernels_line(a, b, c, n))
    found = toeplitz.from_line(fit_tisa.kernels_line(*fit_tisa.fit(matrix, 2), n))
    assert toeplitz.explained(matrix, found).min() > 0.99


def test_more_kernels_explain_more(rng):
    """On a line without any structure, each kernel still helps."""
    matrix = toeplitz.from_line(rng.normal(size=(3, 39)))
    r2 = [
        toeplitz.explained(matrix, toeplitz.from_line(fit_tisa.kernels_line(*fit_tisa.fit(matrix, s), 20)))
        for s in (1, 3, 5)
    ]
    assert (r2[0] > 0).all() and (r2[1] > r2[0]).all() and (r2[2] > r2[1]).all()


def test_nothing_is_fitted_to_nothing():
    a, b, c = fit_tisa.fit(np.zeros((2, 10, 10)), 3)
    np.testing.assert_array_equal(a, 0)
    assert np.isfinite(b).all() and np.isfinite(c).all()
