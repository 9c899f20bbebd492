"""Maps with known patterns, and the classifier trained on them."""

import json

import numpy as np
import pytest

from keras_posenc.analysis import pattern_maps as pm
from keras_posenc.analysis import patterns
from keras_posenc.analysis.plots import patterns as plots


def test_columns_diagonals_blocks_and_noise_have_their_shares(rng):
    """The three shares of pure patterns are 1, of the others near 0; those of noise are near 0."""
    n, split = 40, 19
    columns = np.tile(rng.random(n), (n, 1))
    diagonal = np.eye(n)
    second = np.arange(n) > split
    block = (second[:, None] == second[None, :]).astype(float)
    noise = rng.random((n, n))
    for each, expected in (
        (columns, (1, 0, None)),
        (diagonal, (0, 1, 0)),
        (block, (None, None, 1)),
        (noise, (0, 0, 0)),
    ):
        for share, value in zip(pm.shares(each, split), expected):
            assert value is None or share == pytest.approx(value, abs=0.06)


@pytest.mark.parametrize("part", ["vertical", "diagonal", "block", "content"])
def test_parts_are_rows_of_probabilities(rng, part):
    extra = {"vertical": (15,), "diagonal": (), "block": (15,), "content": (15, 2.0)}[part]
    for _ in range(10):
        found = getattr(pm, part)(rng, 30, *extra)
        assert found.shape == (30, 30) and found.min() >= 0
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-9)


@pytest.fixture(scope="module")
def made():
    return pm.make_maps(150, seed=5, lengths=(16, 48))


def test_raw_maps_are_on_the_simplex_and_effective_ones_are_not(made):
    for each, effective in zip(made.maps, made.effective):
        if not effective:
            assert each.min() >= 0
            np.testing.assert_allclose(each.sum(axis=1), 1.0, atol=1e-5)
    signed = [each.min() < 0 for each, effective in zip(made.maps, made.effective) if effective]
    assert np.mean(signed) > 0.9
    assert np.bincount(made.labels).tolist() == [30] * 5


def test_maps_have_the_property_of_their_pattern(made):
    """Of raw maps: columns hold mass in vertical ones, the neighbourhood of the diagonal in diagonal ones."""
    top, near = {}, {}
    for each, label, effective in zip(made.maps, made.labels, made.effective):
        if not effective:
            n = len(each)
            # Over what chance gives: the 4 largest columns of n, and offsets up to 3.
            distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
            top.setdefault(label, []).append(np.sort(each.mean(axis=0))[-4:].sum() / (4 / n))
            near.setdefault(label, []).append((each * (distance <= 3)).sum() / n / (distance <= 3).mean())
    top, near = ({label: np.median(values) for label, values in x.items()} for x in (top, near))
    others = (pm.DIAGONAL, pm.BLOCK, pm.HETEROGENEOUS)
    assert min(top[pm.VERTICAL], top[pm.BOTH]) > 1.2 * max(top[label] for label in others)
    others = (pm.VERTICAL, pm.BLOCK, pm.HETEROGENEOUS)
    assert min(near[pm.DIAGONAL], near[pm.BOTH]) > 1.2 * max(near[label] for label in others)


def test_block_maps_stay_within_sentences(rng):
    for _ in range(5):
        found = pm.block(rng, 30, 11)
        inside = found[:12, :12].sum() + found[12:, 12:].sum()
        assert inside / found.sum() > 0.7


def test_the_seed_decides_and_every_map_has_its_own(made):
    again = pm.make_maps(150, seed=5, lengths=(16, 48))
    for one, two in zip(made.maps, again.maps):
        np.testing.assert_array_equal(one, two)
    more = pm.make_maps(10, seed=5, lengths=(16, 48))  # the first ten of any number
    np.testing.assert_array_equal(more.maps[9], made.maps[9])
    assert not any(np.array_equal(one, two) for one, two in zip(pm.make_maps(5, seed=6).maps, made.maps))


def test_short_maps_are_refused(rng):
    with pytest.raises(ValueError, match="at least 8"):
        pm.make_map(0, rng, 4)


def test_resizing_is_the_mean_over_cells_without_padding(rng):
    maps = rng.random((2, 3, 12, 12)).astype("float32")
    mask = np.ones((2, 12), "int32")
    mask[1, 8:] = 0
    found = np.asarray(patterns.resize_maps(maps, mask, size=4))
    np.testing.assert_allclose(found[0], maps[0].reshape(3, 4, 3, 4, 3).mean(axis=(2, 4)), atol=1e-6)
    np.testing.assert_allclose(found[1], maps[1, :, :8, :8].reshape(3, 4, 2, 4, 2).mean(axis=(2, 4)), atol=1e-6)
    # More cells than tokens: each token has two.
    np.testing.assert_allclose(
        np.asarray(patterns.resize_maps(maps, size=24)), maps.repeat(2, axis=2).repeat(2, axis=3), atol=1e-6
    )
    # A length that is no multiple keeps the total.
    np.testing.assert_allclose(
        np.asarray(patterns.resize_maps(maps, size=5)).mean(axis=(2, 3)), maps.mean(axis=(2, 3)), atol=1e-6
    )


def test_padding_on_the_left_is_as_padding_on_the_right(rng):
    short = rng.random((1, 6, 6)).astype("float32")
    left, right = np.zeros((2, 1, 9, 9), "float32")
    left[:, 3:, 3:], right[:, :6, :6] = short, short
    features = [
        np.asarray(patterns.features(maps, mask))
        for maps, mask in ((left, [[0] * 3 + [1] * 6]), (right, [[1] * 6 + [0] * 3]), (short, None))
    ]
    np.testing.assert_allclose(features[0], features[2], atol=1e-5)
    np.testing.assert_allclose(features[1], features[2], atol=1e-5)


def test_counts_become_percentages_by_task_and_layer(rng):
    raw, effective = rng.integers(0, 5, (2, 6, 2, 4))
    whole, one, two = (patterns.PatternCounts() for _ in range(3))
    whole.add(raw, effective, "MRPC")
    one.add(raw[:2], effective[:2], "MRPC")
    two.add(raw[2:], effective[2:], "MRPC")
    two.add(raw, raw, "SST-2")
    result = one.merge(patterns.PatternCounts.from_dict(json.loads(json.dumps(two.to_dict())))).result()
    np.testing.assert_array_equal(result.counts["MRPC"], whole.result().counts["MRPC"])
    expected = [100 * np.mean(effective == label) for label in range(5)]
    np.testing.assert_allclose(result.percentages("MRPC")[1], expected)
    row = next(r for r in result.rows() if (r["task"], r["attention"], r["layer"]) == ("MRPC", "raw", 2))
    assert row["block"] == pytest.approx(100 * np.mean(raw[:, 1] == pm.BLOCK))
    bars = plots.plot_patterns(result).axes[0].containers
    assert [bar.get_width() for bar in bars[pm.BLOCK]][1] == pytest.approx(expected[pm.BLOCK])
    assert len(plots.plot_patterns_by_layer(result, "MRPC").axes[0].get_yticks()) == 4


@pytest.mark.integration
def test_a_short_training_tells_the_patterns_apart(tmp_path):
    classifier = patterns.PatternClassifier.train(700, epochs=12, seed=1)
    assert classifier.report.accuracy["all"] > 0.9
    other = pm.make_maps(50, seed=99, lengths=(30, 60))
    padded, mask = np.zeros((50, 60, 60), "float32"), np.zeros((50, 60), "int32")
    for row, each in enumerate(other.maps):
        padded[row, : len(each), : len(each)], mask[row, : len(each)] = each, 1
    found = classifier.classify(padded, mask)
    assert np.mean(found == other.labels) > 0.85
    heads = classifier.classify(padded.reshape(25, 2, 60, 60)[:, :1], mask[::2])
    np.testing.assert_array_equal(heads[:, 0], found[::2])
    classifier.save(tmp_path / "patterns.keras")
    loaded = patterns.PatternClassifier.load(tmp_path / "patterns.keras")
    np.testing.assert_allclose(loaded.probabilities(padded, mask), classifier.probabilities(padded, mask), atol=1e-6)
    assert loaded.report.accuracy == classifier.report.accuracy
    assert sum(r["as_block"] for r in loaded.report.rows() if r["pattern"] == "block") > 10
    shown = plots.plot_confusion(loaded.report).axes
    assert len(shown) == 2 and shown[0].get_title().startswith("raw: ")
    assert len(plots.plot_pattern_gallery(other.maps, other.labels, columns=3).axes) == 15


@pytest.mark.integration
def test_labels_of_the_user_are_learned_and_the_seed_decides():
    """Horizontal lines, which no map made by code has, called blocks by the user."""
    rng = np.random.default_rng(0)
    maps = rng.random((60, 20, 20)) * 0.1
    maps[np.arange(60), rng.integers(0, 20, 60)] += 5.0
    labelled = (maps, ["block"] * 60)
    one, two = (patterns.PatternClassifier.train(100, labelled, epochs=4, seed=3) for _ in range(2))
    assert one.report.confusion["labelled"].sum() == 12
    assert one.report.accuracy["labelled"] == 1.0
    np.testing.assert_allclose(one.probabilities(maps[:4]), two.probabilities(maps[:4]), atol=1e-4)


def test_held_out_maps_of_the_user_are_spread():
    """Labels may come text by text: the first of them are not like the others."""
    np.testing.assert_array_equal(patterns._held_out(20, 0.2, "labelled"), [2, 7, 12, 17])
    counts = [len(patterns._held_out(number, 0.2, "labelled")) for number in range(9)]
    assert counts == [0, 0, 1, 1, 1, 1, 1, 1, 2]
    assert len(patterns._held_out(5, 0.0, "labelled")) == 0 and len(patterns._held_out(2, 0.9, "labelled")) == 1


def test_labelled_maps_are_checked():
    good = np.eye(9)[None]
    with pytest.raises(ValueError, match="Received: 'stripes'"):
        patterns.PatternClassifier.train(10, (good, ["stripes"]), epochs=1)
    with pytest.raises(ValueError, match="needs a label"):
        patterns.PatternClassifier.train(10, (good, []), epochs=1)
    with pytest.raises(ValueError, match=r"map 0 of shape \(9, 8\)"):
        patterns.PatternClassifier.train(10, (good[..., :-1], [0]), epochs=1)
