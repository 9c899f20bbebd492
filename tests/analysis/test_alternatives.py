"""Attention weights are not identifiable: others on the simplex give the same output."""

import numpy as np
import pytest
from keras import ops

from keras_posenc.analysis.alternatives import alternative_attention


def example(rng, length=40, size=16):
    weights = np.exp(rng.normal(size=(2, 3, length, length)))
    values = rng.normal(size=(2, 3, length, size)).astype("float32")
    return (weights / weights.sum(-1, keepdims=True)).astype("float32"), values


@pytest.mark.parametrize("amount", [0.5, 1.0])
def test_same_output_other_weights(amount, rng):
    attention, values = example(rng)
    found = ops.convert_to_numpy(alternative_attention(attention, values, seed=1, amount=amount))
    np.testing.assert_allclose(found @ values, attention @ values, atol=1e-5)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)
    assert (found >= 0).all()
    assert (np.abs(found - attention).max(-1) > 1e-4).all()  # every row moves
    # At the boundary the smallest weight of a row is 0; half way there it is positive.
    np.testing.assert_allclose(found.min(-1) > 1e-7, amount < 1)


def test_the_seed_decides(rng):
    attention, values = example(rng)
    one, again, other = (ops.convert_to_numpy(alternative_attention(attention, values, seed=s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-3


def test_padding_gets_no_weight(rng):
    attention, values = example(rng)
    mask = np.arange(40) < np.array([[40], [30]])
    attention = attention * mask[:, None, None]
    attention /= attention.sum(-1, keepdims=True)
    found = ops.convert_to_numpy(alternative_attention(attention, values, 1, mask))
    assert not found[1, ..., 30:].any()
    assert (np.abs(found - attention).max(-1) > 1e-4).all()
    np.testing.assert_allclose(found @ values, attention @ values, atol=1e-5)


def test_without_freedom_attention_is_returned_as_it_is(rng):
    """17 tokens and heads of 16: [T, 1] has full rank. One more token, and there is another attention."""
    for length, moves in ((17, False), (18, True)):
        attention, values = example(rng, length)
        assert (ops.convert_to_numpy(alternative_attention(attention, values, 1)) != attention).any() == moves


def test_a_row_on_the_boundary_stays_in_the_simplex(rng):
    attention, values = example(rng)
    attention[..., 0, :] = np.eye(40, dtype="float32")[0]
    found = ops.convert_to_numpy(alternative_attention(attention, values, 1))
    np.testing.assert_array_equal(found[..., 0, :], attention[..., 0, :])
    assert (np.abs(found - attention).max(-1)[..., 1:] > 1e-4).all()


@pytest.mark.parametrize("amount", [0, 1.5])
def test_how_far_is_a_share_of_the_way(amount, rng):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        alternative_attention(*example(rng), seed=1, amount=amount)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_maps_of_low_precision_stay_in_it(dtype, rng):
    attention, values = (ops.cast(x, dtype) for x in example(rng))
    found = alternative_attention(attention, values, seed=1)
    assert found.dtype == attention.dtype
    found, attention, values = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (found, attention, values))
    assert (np.abs(found - attention).max(-1) > 1e-4).all()
    np.testing.assert_allclose(found @ values, attention @ values, atol=0.02)
