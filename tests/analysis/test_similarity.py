"""Correlation and similarity of attention maps."""

import json

import numpy as np
import pytest

from keras_posenc.analysis import similarity
from keras_posenc.analysis.plots import similarity as plots


def maps(rng, size=4, layers=2, heads=3, n=7):
    return rng.dirichlet(np.ones(n), size=(size, layers, heads, n)).astype("float32")


def padded(rng, size=4, n=7):
    lengths = rng.integers(3, n + 1, size)
    return lengths, (np.arange(n) < lengths[:, None]).astype("int32")


def test_correlation_and_cosine_equal_numpy_on_what_is_no_padding(rng):
    a, b = maps(rng), rng.normal(size=(4, 2, 3, 7, 7)).astype("float32")
    lengths, mask = padded(rng)
    correlation, cosine = (np.asarray(f(a, b, mask)) for f in (similarity.pearson, similarity.cosine))
    for row, layer, head in np.ndindex(correlation.shape):
        n = lengths[row]
        x, y = (m[row, layer, head, :n, :n].astype("float64").ravel() for m in (a, b))
        assert correlation[row, layer, head] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-5)
        assert cosine[row, layer, head] == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), abs=1e-5)


def test_equal_maps_correlate_by_one_whatever_the_padding_holds(rng):
    a, (_, mask) = maps(rng), padded(rng)
    real = (mask[:, :, None] * mask[:, None, :])[:, None, None]
    b = np.where(real, a, 9.0)
    np.testing.assert_allclose(similarity.pearson(a, b, mask), 1.0, atol=1e-6)
    np.testing.assert_allclose(similarity.cosine(a, b, mask), 1.0, atol=1e-6)
    np.testing.assert_allclose(similarity.pearson(a, 3 * a + 1), 1.0, atol=1e-5)


def test_a_constant_map_has_no_correlation(rng):
    assert np.isnan(np.asarray(similarity.pearson(np.full((1, 7, 7), 1 / 7), rng.random((1, 7, 7))))).all()


def test_tiny_maps_keep_their_direction(rng):
    a = rng.normal(size=(1, 5, 5))
    np.testing.assert_allclose(similarity.cosine(a, 1e-15 * a), 1.0, atol=1e-5)


def test_correlation_falls_beyond_the_head_size(rng):
    """Brunner, section 3.5: projecting on the space of d_v values changes nothing up to length d_v, more beyond."""
    head_size, found = 8, similarity.CorrelationByLength()
    for n in (5, 8, 16, 32):
        attention = rng.dirichlet(np.full(n, 0.3), size=(6, 1, 2, n))
        values = rng.normal(size=(6, 1, 2, n, head_size))
        found.add(attention, attention @ values @ np.linalg.pinv(values))
    means = {n: r.mean() for n, r in found.result().by_length().items()}
    assert means[5] == pytest.approx(1.0, abs=1e-5) and means[8] == pytest.approx(1.0, abs=1e-5)
    assert 0.95 > means[16] > means[32]


def test_correlations_are_joined_kept_and_given_as_rows(rng):
    a, b, (lengths, mask) = maps(rng), maps(rng), padded(rng)
    b[1, 0, 0] = 1 / 7  # NaN, which JSON has not
    whole, one, two = (similarity.CorrelationByLength() for _ in range(3))
    whole.add(a, b, mask)
    one.add(a[:1], b[:1], mask[:1])
    two.add(a[1:], b[1:], mask[1:])
    text = json.dumps(two.to_dict(), allow_nan=False)
    merged = one.merge(similarity.CorrelationByLength.from_dict(json.loads(text))).result()
    np.testing.assert_array_equal(merged.lengths, lengths)
    np.testing.assert_allclose(merged.correlation, whole.result().correlation, atol=1e-6)
    assert np.isnan(merged.correlation[1, 0, 0])
    row = merged.rows()[-1]
    same = merged.correlation[merged.lengths == lengths.max(), 1]
    assert (row["length"], row["layer"]) == (lengths.max(), 2)
    assert row["mean"] == pytest.approx(np.nanmean(same)) and row["smallest"] == pytest.approx(np.nanmin(same))


def test_similarity_of_models_is_the_mean_over_sentences(rng):
    a, b, (_, mask) = maps(rng), maps(rng), padded(rng)
    e, f = rng.normal(size=(2, *a.shape))
    parts = [similarity.SimilarityOfModels() for _ in range(2)]
    for part, rows in zip(parts, (slice(0, 1), slice(1, 4))):
        part.add(a[rows], b[rows], mask[rows], e[rows], f[rows])
    kept = similarity.SimilarityOfModels.from_dict(json.loads(json.dumps(parts[1].to_dict())))
    result = parts[0].merge(kept).result()
    for kind, pair in (("raw", (a, b)), ("effective", (e, f))):
        each = np.asarray(similarity.cosine(*pair, mask))
        np.testing.assert_allclose(result.similarity[kind], each.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(result.spread[kind], each.std(axis=0), atol=1e-5)
    assert result.sentences == 4 and len(result.rows()) == 2 * 2 * 3


def test_a_model_is_like_itself(rng):
    a = maps(rng)
    sums = similarity.SimilarityOfModels(effective=False)
    sums.add(a, a)
    np.testing.assert_allclose(sums.result().similarity["raw"], 1.0, atol=1e-6)
    assert list(sums.result().similarity) == ["raw"]


def test_what_does_not_fit_is_an_error(rng):
    a = maps(rng)
    with pytest.raises(ValueError, match="effective_before"):
        similarity.SimilarityOfModels().add(a, a)
    with pytest.raises(ValueError, match="one shape"):
        similarity.cosine(a, a[..., :-1])
    with pytest.raises(ValueError, match="cannot be merged"):
        similarity.SimilarityOfModels().merge(similarity.SimilarityOfModels(effective=False))
    sums = similarity.SimilarityOfModels(effective=False)
    sums.add(a, a)
    with pytest.raises(ValueError, match="same layers and heads"):
        sums.add(a[:, :1], a[:, :1])


def test_pictures_show_what_was_measured(rng):
    a, b = maps(rng), maps(rng)
    sums, points = similarity.SimilarityOfModels(effective=False), similarity.CorrelationByLength()
    sums.add(a, b)
    for n in (5, 6, 7):
        points.add(a[..., :n, :n], b[..., :n, :n])
    image = plots.plot_similarity(sums.result()).axes[0].images[0].get_array()
    np.testing.assert_allclose(image, sums.result().similarity["raw"])
    axes = plots.plot_correlation(points.result(), head_size=5).axes[0]
    assert [line.get_label() for line in axes.lines] == ["layer 1", "layer 2", "head size 5"]
    # No mean is over lengths on both sides of the head size.
    assert axes.lines[0].get_xdata()[0] == 5
