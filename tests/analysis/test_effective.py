"""Effective attention is the orthogonal projection of the papers, however it is run."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_posenc.analysis import effective
from keras_posenc.analysis.effective import effective_attention, null_attention, null_dimension
from keras_posenc.analysis.plots import effective as plots

tensorflow_only = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="compiles with TensorFlow")


def numpy(x):
    return ops.convert_to_numpy(x)


def softmax(rng, *shape):
    weights = np.exp(2 * rng.normal(size=shape))
    return (weights / weights.sum(-1, keepdims=True)).astype("float32")


def by_svd(attention, values):
    """The definition: attention minus its projection on the left singular vectors without singular value."""
    values = values.astype("float64")
    left, sizes, _ = np.linalg.svd(values, full_matrices=True)
    rank = int((sizes > sizes.max() * max(*values.shape, 128) * np.finfo("float32").eps).sum())
    null = left[:, rank:]
    return attention - attention @ null @ null.T, len(values) - rank


def with_condition(rng, length, size, condition):
    left, _, right = np.linalg.svd(rng.normal(size=(length, size)), full_matrices=False)
    return (left * np.geomspace(1, 1 / condition, size)) @ right


def sensitivity(values):
    """How far a rounding of the values to float32 may move the projection: epsilon times the condition number."""
    sizes = np.linalg.svd(values.astype("float64"), compute_uv=False)
    sizes = sizes[sizes > sizes[0] * 128 * np.finfo("float32").eps]
    return np.finfo("float32").eps * sizes[0] / sizes[-1] if sizes.size else 0.0


def low_rank(rng, length, size, rank):
    return rng.normal(size=(length, rank)) @ rng.normal(size=(rank, size))


CASES = {
    "full rank": lambda rng: rng.normal(size=(40, 16)),
    "rank 40 of 128 x 64": lambda rng: low_rank(rng, 128, 64, 40),
    "rank 40, large": lambda rng: 1e2 * low_rank(rng, 128, 64, 40),
    "rank 40, small": lambda rng: 1e-3 * low_rank(rng, 128, 64, 40),
    "repeated tokens": lambda rng: np.repeat(rng.normal(size=(10, 16)), 4, axis=0),
    "condition 1e3": lambda rng: with_condition(rng, 40, 16, 1e3),
    "condition 1e4": lambda rng: with_condition(rng, 40, 16, 1e4),
    "short but dependent": lambda rng: low_rank(rng, 12, 16, 5),
    "zero": lambda rng: np.zeros((20, 16)),
}


@pytest.mark.parametrize("route", ["native", "xla"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_projection_by_singular_vectors(case, route, rng, monkeypatch):
    """Also by the factorisation that is meant for XLA."""
    monkeypatch.setattr(effective, "inside_xla", lambda: route == "xla")
    values = CASES[case](rng).astype("float32")
    attention = softmax(rng, 7, len(values))
    expected, dimension = by_svd(attention, values)
    found = numpy(effective_attention(attention[None], values[None]))[0]
    np.testing.assert_allclose(found, expected, atol=5e-6 + sensitivity(values))
    np.testing.assert_allclose(found @ values, attention @ values, atol=2e-6 * np.abs(values).max())
    assert found.dtype == np.float32
    assert numpy(null_dimension(values[None])).tolist() == [dimension]


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_the_scale_of_the_values_does_not_matter(size, rng):
    values = low_rank(rng, 128, 64, 40).astype("float32")
    attention = softmax(rng, 7, 128)
    found, scaled = (numpy(effective_attention(attention[None], [each])) for each in (values, values * size))
    np.testing.assert_allclose(scaled, found, atol=1e-5)


def test_float64_is_computed_in_float64(rng):
    values, attention = rng.normal(size=(40, 16)), softmax(rng, 7, 40).astype("float64")
    found = numpy(effective_attention(attention[None], values[None]))[0]
    np.testing.assert_allclose(found, by_svd(attention, values)[0], atol=1e-9)
    assert found.dtype == np.float64


def test_singular_values_count_by_their_share(rng):
    """`s^2 / (s^2 + l^2)`: seen on one right singular vector each, around a tolerance that hides rounding."""
    sizes = np.array([1, 0.5, 3e-2, 1e-2, 1e-2 / 3, 1e-3, 1e-4])
    left = np.linalg.qr(rng.normal(size=(40, len(sizes))))[0]
    values = (left * sizes).astype("float32")  # T^T T is diagonal: the largest is known exactly
    found = numpy(effective_attention(left.T[None].astype("float32"), values[None], tolerance=1e-2))[0]
    expected = sizes**2 / (sizes**2 + (1e-2 / 3) ** 2 / (1 + 1e-2 / 3))
    np.testing.assert_allclose(np.diag(found @ left), expected, atol=1e-4)


@pytest.mark.parametrize("condition", [1e5, 1e6])
def test_between_the_cutoffs_the_output_is_still_the_same(condition, rng):
    """Singular values near the tolerance count in part; what they carry is as small as they are."""
    values = with_condition(rng, 40, 16, condition).astype("float32")
    attention = softmax(rng, 40, 40)
    found = numpy(effective_attention(attention[None], values[None]))[0]
    np.testing.assert_allclose(found @ values, attention @ values, atol=1e-5)


def test_equations_of_the_decomposition(rng):
    attention, values = softmax(rng, 2, 3, 40, 40), rng.normal(size=(2, 3, 40, 16)).astype("float32")
    found, null = numpy(effective_attention(attention, values)), numpy(null_attention(attention, values))
    np.testing.assert_allclose(found @ values, attention @ values, atol=1e-5)
    np.testing.assert_allclose(null @ values, 0, atol=1e-5)
    np.testing.assert_allclose(found + null, attention, atol=1e-7)
    np.testing.assert_allclose(found @ null.swapaxes(-1, -2), 0, atol=1e-6)
    np.testing.assert_allclose(effective_attention(found, values), found, atol=1e-6)
    assert np.abs(null).max() > 0.1
    assert numpy(null_dimension(values)).tolist() == [[24] * 3] * 2


@pytest.mark.parametrize("length", [1, 9, 16])
def test_up_to_the_head_size_it_is_the_raw_attention_exactly(length, rng):
    attention, values = softmax(rng, 2, 3, length, length), rng.normal(size=(2, 3, length, 16)).astype("float32")
    np.testing.assert_array_equal(effective_attention(attention, values), attention)
    np.testing.assert_array_equal(null_attention(attention, values), np.zeros_like(attention))
    assert not numpy(null_dimension(values)).any()


def padded_batch(rng, lengths=(40, 21, 16, 5), length=40, size=16, heads=3):
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype("int32")
    attention = softmax(rng, len(lengths), heads, length, length) * mask[:, None, None]
    attention = (attention / attention.sum(-1, keepdims=True)).astype("float32")
    return attention, rng.normal(size=(len(lengths), heads, length, size)).astype("float32"), mask


@pytest.mark.parametrize("constrained", [False, True])
def test_padding_changes_nothing(constrained, rng):
    """Some sentences are longer than a head is wide, some as long, some shorter; pads hold what they like."""
    attention, values, mask = padded_batch(rng)
    values = np.where(mask[:, None, :, None], values, np.inf).astype("float32")
    found = numpy(effective_attention(attention, values, mask, constrained=constrained))
    dimension = numpy(null_dimension(values, mask, constrained=constrained))
    for index, n in enumerate(mask.sum(1)):
        alone = attention[index, :, :, :n][None], values[index, :, :n][None]
        np.testing.assert_allclose(
            found[index, :, :, :n], effective_attention(*alone, constrained=constrained)[0], atol=1e-6
        )
        assert not found[index, :, :, n:].any()
        assert dimension[index].tolist() == [max(n - 16 - constrained, 0)] * 3
    np.testing.assert_array_equal(found[2:], attention[2:])


def test_the_constrained_variant_keeps_the_sums_of_rows(rng):
    attention, values = softmax(rng, 2, 3, 40, 40), 1e-2 * rng.normal(size=(2, 3, 40, 16)).astype("float32")
    free, bound = (numpy(effective_attention(attention, values, constrained=c)) for c in (False, True))
    np.testing.assert_allclose(bound.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(bound @ values, attention @ values, atol=1e-6)
    assert np.abs(free.sum(-1) - 1).max() > 0.1
    assert (np.linalg.norm(free, axis=-1) <= np.linalg.norm(bound, axis=-1) + 1e-6).all()


def test_stacked_layers_are_layers_one_by_one(rng):
    attention, values, mask = padded_batch(rng)
    stacked = effective_attention(np.stack([attention, attention[::-1] * 0.5], 1), np.stack([values, values], 1), mask)
    np.testing.assert_allclose(stacked[:, 0], effective_attention(attention, values, mask), atol=1e-6)


@tensorflow_only
def test_gradients_are_those_of_finite_differences(rng):
    import tensorflow as tf

    attention, values, mask = padded_batch(rng, (10, 6, 3), 10, 4, 1)
    values[0, 0, :, 3] = values[0, 0, :, 2]  # rank 3 of 4
    attention, values = attention.astype("float64"), values.astype("float64")
    upstream = rng.normal(size=attention.shape)

    def loss(a, v):
        return tf.reduce_sum(effective_attention(a, v, mask) * upstream)

    inputs = [tf.constant(attention), tf.constant(values)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = loss(*inputs)
    gradients = tape.gradient(value, inputs)
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[1][2], 0)  # no null space: the values have no part in it
    move_a = rng.normal(size=attention.shape)
    move_v = rng.normal(size=values.shape)
    move_v[0, 0, :, 3] = move_v[0, 0, :, 2]  # the rank stays: elsewhere a projection is not differentiable
    step = 1e-6
    for (a, v), expected in (
        ((move_a, 0), np.sum(gradients[0] * move_a)),
        ((0, move_v), np.sum(gradients[1] * move_v)),
    ):
        up, down = (loss(attention + s * a, values + s * v) for s in (step, -step))
        assert float(up - down) / (2 * step) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@tensorflow_only
@pytest.mark.parametrize("jit_compile", [False, True])
def test_compilation_by_xla_is_noticed(jit_compile):
    import tensorflow as tf

    seen = []

    @tf.function(autograph=False)
    def inner(x):
        seen.append(effective.inside_xla())
        return x

    @tf.function(jit_compile=jit_compile, autograph=False)
    def outer(x):
        seen.append(effective.inside_xla())
        return inner(x)

    outer(tf.constant(1.0))
    assert seen == [jit_compile, jit_compile] and not effective.inside_xla()


@tensorflow_only
@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_equals_eager(jit_compile, rng):
    import tensorflow as tf

    attention, values, mask = padded_batch(rng)
    compiled = tf.function(effective_attention, jit_compile=jit_compile, autograph=False)
    expected = effective_attention(attention, values, mask)
    found = compiled(tf.constant(attention), tf.constant(values), tf.constant(mask))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(found[2:], attention[2:])


@tensorflow_only
def test_a_saved_model_takes_any_batch_and_length(tmp_path, rng):
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    specs = [((None, 3, None, None), "float32"), ((None, 3, None, 16), "float32"), ((None, None), "int32")]
    signature = [tf.TensorSpec(shape, dtype) for shape, dtype in specs]
    archive.add_endpoint("effective", lambda a, v, m: effective_attention(a, v, m), input_signature=signature)
    archive.write_out(str(tmp_path / "model"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for lengths in ((40, 21), (12,)):
        given = padded_batch(rng, lengths, max(lengths))
        np.testing.assert_allclose(loaded.effective(*map(tf.constant, given)), effective_attention(*given), atol=1e-6)


@pytest.mark.parametrize(
    "shapes, message",
    [
        (((2, 5, 5), (2, 3, 5, 4)), "same number of axes"),
        (((2, 3, 5, 5), (2, 3, 6, 4)), "over 5 keys and `values` are of 6"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        effective_attention(*(np.ones(shape, "float32") for shape in shapes))


def test_a_mask_of_the_wrong_rank_is_refused():
    with pytest.raises(ValueError, match="`padding_mask` must have shape"):
        effective_attention(np.ones((2, 5, 5)), np.ones((2, 5, 4)), np.ones((2, 1, 5)))


@pytest.mark.parametrize("shape", [(2, 4), (3, 5), (1, 5)])
def test_a_mask_of_other_tokens_is_refused(shape, rng):
    attention, values = rng.random((2, 3, 5, 5), "float32"), rng.random((2, 3, 5, 4), "float32")
    with pytest.raises(ValueError, match=r"\(2, 5\) for these values"):
        effective_attention(attention, values, np.ones(shape))


def test_maps_are_drawn_without_padding_and_centred_at_zero(rng):
    raw, signed = softmax(rng, 2, 3, 6, 6), rng.normal(size=(2, 3, 6, 6))
    figure = plots.plot_maps(list("abcd"), raw[0, 0], signed[0, 0], -signed[0, 0])
    images = [axes.images[0] for axes in figure.axes[:3]]
    np.testing.assert_allclose(images[1].get_array(), signed[0, 0, :4, :4])
    assert images[0].get_clim()[0] == 0 and all(sum(image.get_clim()) == 0 for image in images[1:])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == list("abcd")
    grid = plots.plot_heads(signed, count=4)
    np.testing.assert_allclose(grid.axes[5].images[0].get_array(), signed[1, 2, :4, :4])
    with pytest.raises(ValueError, match="There are 7 tokens"):
        plots.plot_maps(list("abcdefg"), raw[0, 0], raw[0, 0], raw[0, 0])
