"""The pictures show what the papers' equations say."""

import random

import numpy as np
import pytest

from keras_posenc import encodings, plotting
from keras_posenc.encodings.alibi import alibi_slopes

LENGTH, HEADS = 12, 4


def picture(name, seed=0):
    return plotting.position_picture(plotting.make_encoding(name, LENGTH, HEADS, seed), LENGTH, seed)


def distances():
    return np.arange(LENGTH)[:, None] - np.arange(LENGTH)[None]


def test_without_positions_nothing_is_added():
    np.testing.assert_array_equal(picture("none"), np.zeros((HEADS, LENGTH, LENGTH)))


def test_alibi_is_minus_slope_times_distance():
    slopes = np.array(alibi_slopes(HEADS))[:, None, None]
    np.testing.assert_array_equal(picture("alibi"), (-slopes * np.abs(distances())).astype("float32"))


@pytest.mark.parametrize("name", [n for n in encodings.names() if encodings.get_class(n).relative])
def test_relative_encodings_are_constant_along_diagonals(name):
    found = picture(name)
    assert found.shape == (HEADS, LENGTH, LENGTH)
    np.testing.assert_allclose(found[:, 1:, 1:], found[:, :-1, :-1], atol=2e-5)
    assert np.ptp(found) > 1e-3


def test_rotary_turns_pairs_by_the_distance():
    """`q R_{j-i} k^T - q k^T` with a matrix of rotations, for the same content."""
    size = plotting.HEAD_SIZE
    query, key = np.random.default_rng(0).standard_normal((2, 1, HEADS, 1, size))[:, 0, :, 0]
    angles = 10000.0 ** (-2 * np.arange(size // 2) / size)
    expected = np.zeros((HEADS, LENGTH, LENGTH))
    for i in range(LENGTH):
        for j in range(LENGTH):
            cos, sin = np.cos((j - i) * angles), np.sin((j - i) * angles)
            turned = np.concatenate(
                [
                    key[:, : size // 2] * cos - key[:, size // 2 :] * sin,
                    key[:, size // 2 :] * cos + key[:, : size // 2] * sin,
                ],
                axis=1,
            )
            expected[:, i, j] = np.sum(query * (turned - key), axis=1) / np.sqrt(size)
    np.testing.assert_allclose(picture("rotary"), expected, atol=1e-5)


def test_sinusoids_have_the_gram_matrix_of_cosines():
    """`PE_i PE_j^T = sum_t cos((i - j) w_t)`, since sin sin + cos cos is the cosine of the difference."""
    width = HEADS * plotting.HEAD_SIZE
    frequencies = 10000.0 ** (-2 * np.arange(width // 2) / width)
    expected = np.cos(distances()[..., None] * frequencies).sum(-1)
    np.testing.assert_allclose(picture("sinusoidal")[0], expected, rtol=1e-4)


def test_compressed_keys_have_columns_of_their_own():
    encoding = encodings.create("diet_abs_lin", {"num_keys": 5}, num_heads=HEADS, key_dim=8, max_length=LENGTH)
    encoding.build()
    tables = [np.asarray(w) for w in encoding.weights]
    found = plotting.position_picture(encoding, LENGTH)
    assert found.shape == (HEADS, LENGTH, 5)
    np.testing.assert_allclose(found, np.einsum("hqr,hkr->hqk", *tables), atol=1e-6)


def test_the_seed_decides_and_the_callers_random_numbers_do_not_change():
    before = random.getstate()
    np.testing.assert_array_equal(picture("diet_rel", seed=3), picture("diet_rel", seed=3))
    assert np.abs(picture("diet_rel", seed=3) - picture("diet_rel", seed=4)).max() > 0
    assert random.getstate() == before


def test_one_page_has_every_registered_encoding(tmp_path, capsys):
    target = tmp_path / "new" / "page.png"
    plotting.main(["--output", str(target), "--length", "6", "--heads", "2"])
    assert capsys.readouterr().out.strip() == str(target)
    assert target.read_bytes().startswith(b"\x89PNG")
    figure = plotting.plot_encodings(length=6, num_heads=2)
    titles = {block.get_suptitle().split()[0] for block in figure.subfigs if block.get_suptitle()}
    assert titles == set(encodings.names())


def test_unknown_names_are_refused_before_drawing(tmp_path, capsys):
    with pytest.raises(SystemExit):
        plotting.main(["--output", str(tmp_path / "page.png"), "--names", "alibi,rotatory"])
    assert "'rotatory'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_small_picture_has_every_encoding_once(tmp_path):
    """`shaw` enters by two doors of one group."""
    figure = plotting.plot_doors(length=6)
    assert sorted(axes.get_xlabel() for axes in figure.axes) == sorted(encodings.names())
    plotting.main(["--doors", "--output", str(tmp_path / "doors.png"), "--length", "6"])
    assert (tmp_path / "doors.png").stat().st_size > 1000


def test_the_small_picture_refuses_what_it_would_ignore(tmp_path, capsys):
    with pytest.raises(SystemExit):
        plotting.main(["--doors", "--output", str(tmp_path / "doors.png"), "--names", "alibi"])
    assert "--names" in capsys.readouterr().err
