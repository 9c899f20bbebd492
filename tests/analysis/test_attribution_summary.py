"""Summaries of contributions against loops over tokens, and in pieces against all at once."""

import json

import numpy as np
import pytest

from keras_posenc.analysis import attribution_summary as summary
from keras_posenc.analysis.attribution import Attribution

LAYERS = (1, 2, 3)
LENGTHS = (30, 17, 24, 5)


@pytest.fixture
def attribution(rng):
    mask = np.arange(30) < np.array(LENGTHS)[:, None]
    pairs = (mask[:, None, :, None] & mask[:, None, None, :]) * rng.gamma(0.7, size=(4, 3, 30, 30))
    # Own tokens are raised, so that they are the main contributor for some tokens and not for others.
    pairs = pairs + 3 * np.eye(30) * mask[:, None, :, None] * rng.uniform(size=(4, 3, 30, 1))
    return Attribution(pairs / np.maximum(pairs.sum(axis=-1, keepdims=True), 1e-9), None, np.array(LAYERS), mask)


@pytest.fixture
def types(rng):
    return rng.integers(-1, 3, size=(4, 30))


def part(attribution, rows):
    return Attribution(attribution.contributions[rows], None, attribution.layers, attribution.padding_mask[rows])


def tokens(attribution):
    for row, length in enumerate(LENGTHS):
        for layer in range(3):
            for target in range(length):
                yield row, layer, target, attribution.contributions[row, layer, target, :length]


def test_own_contribution_by_loop(attribution):
    found = summary.OwnContribution(LAYERS).add(attribution)
    own, beaten = [[] for _ in LAYERS], [[] for _ in LAYERS]
    for _, layer, target, sources in tokens(attribution):
        own[layer].append(sources[target])
        beaten[layer].append(any(sources[k] > sources[target] for k in range(len(sources)) if k != target))
    np.testing.assert_allclose(found.mean[0], np.mean(own, axis=1))
    np.testing.assert_allclose(found.not_main_share[0], np.mean(beaten, axis=1))
    assert 0.05 < found.not_main_share.min() and found.not_main_share.max() < 0.95
    for q, column in ((0.25, "lower_quartile"), (0.5, "median"), (0.75, "upper_quartile")):
        # The bins are fine: the value differs from NumPy's by a gap between neighbouring tokens at most.
        expected = [np.quantile(values, q, method=method) for values in own for method in ("lower", "higher")]
        rows = [row[column] for row in found.rows()]
        assert all(low - 1e-3 <= value <= high + 1e-3 for value, low, high in zip(rows, expected[::2], expected[1::2]))


def test_own_contribution_by_type(attribution, types):
    found = summary.OwnContribution(LAYERS, ("noun", "verb", "other")).add(attribution, types)
    for kind in range(3):
        own = [s[target] for row, layer, target, s in tokens(attribution) if layer == 1 and types[row, target] == kind]
        assert found.count[kind] == len(own)
        np.testing.assert_allclose(found.mean[kind, 1], np.mean(own))


def test_neighbour_groups_by_loop(attribution):
    found = summary.NeighbourContribution(LAYERS).add(attribution)
    bounds = {"1st": (1, 1), "2nd": (2, 2), "3rd": (3, 3), "4th-5th": (4, 5), "6th-10th": (6, 10), "rest": (11, 99)}
    for g, (low, high) in enumerate(bounds.values()):
        means, sums = [[] for _ in LAYERS], [0.0] * 3
        for _, layer, target, sources in tokens(attribution):
            near = [c for k, c in enumerate(sources) if low <= abs(k - target) <= high]
            means[layer] += [np.mean(near)] if near else []
            sums[layer] += sum(near)
        expected = np.array([np.mean(values) for values in means])
        np.testing.assert_allclose(found.mean[:, g], expected)
        np.testing.assert_allclose(found.relative[:, g], expected / expected.sum())
        np.testing.assert_allclose(found.summed[:, g], sums)
    np.testing.assert_allclose(found.share.sum(axis=1), 1)


def test_contribution_by_offset(attribution):
    found = summary.NeighbourContribution(LAYERS).add(attribution)
    expected = sum(s[target - 2] for _, layer, target, s in tokens(attribution) if layer == 0 and target >= 2)
    np.testing.assert_allclose(found.by_offset[0, found.reach - 2], expected)
    np.testing.assert_allclose(found.offset_share.sum(axis=1), 1)
    assert (found.offset_share[:, found.reach] == 0).all()


def test_context_by_type_by_loop(attribution, types):
    found = summary.ContextByType(LAYERS, ("a", "b", "c")).add(attribution, types)
    for to in range(3):
        for source in range(3):
            got, pairs = [], 0
            for row, layer, target, s in tokens(attribution):
                if layer == 2 and types[row, target] == to:
                    others = [c for k, c in enumerate(s) if types[row, k] == source and k != target]
                    got.append(sum(others))
                    pairs += len(others)
            np.testing.assert_allclose(found.context[2, to, source], np.mean(got))
            np.testing.assert_allclose(found.per_source[2, to, source], np.sum(got) / pairs)


def test_context_of_the_first_token_around_an_anchor(attribution):
    anchors = np.array([12, 8, 3, 2])
    found = summary.ContextAround(LAYERS, range(-4, 5)).add(attribution, anchors)
    for index, offset in enumerate(range(-4, 5)):
        got = [
            attribution.contributions[row, :, 0, anchor + offset]
            for row, anchor in enumerate(anchors)
            if 0 < anchor + offset < LENGTHS[row]
        ]
        assert found.count[index] == len(got)
        np.testing.assert_allclose(found.mean[:, index], np.mean(got, axis=0))


def test_special_types():
    types, names = summary.special_types([[101, 7, 102]], {"[CLS]": 101, "[SEP]": 102})
    assert names == ("[CLS]", "[SEP]", "other") and types.tolist() == [[0, 2, 1]]


CASES = {
    "own": (lambda: summary.OwnContribution(LAYERS, ("a", "b", "c")), lambda rows, types: (types[rows],)),
    "neighbours": (lambda: summary.NeighbourContribution(LAYERS), lambda rows, types: ()),
    "types": (lambda: summary.ContextByType(LAYERS, ("a", "b", "c")), lambda rows, types: (types[rows],)),
    "around": (lambda: summary.ContextAround(LAYERS), lambda rows, types: (types[rows, 0] + 4,)),
}


@pytest.mark.parametrize("case", CASES)
def test_pieces_merged_after_a_stored_file_equal_all_at_once(case, attribution, types):
    make, more = CASES[case]
    everything = slice(None)
    whole = make().add(attribution, *more(everything, types))
    first = make().add(part(attribution, slice(0, 1)), *more(slice(0, 1), types))
    stored = json.loads(json.dumps(first.to_dict()))
    resumed = type(first).from_dict(stored).add(part(attribution, slice(1, 3)), *more(slice(1, 3), types))
    resumed.merge(make().add(part(attribution, slice(3, 4)), *more(slice(3, 4), types)))
    assert len(whole.rows()) == len(resumed.rows()) > 0
    for ours, theirs in zip(whole.rows(), resumed.rows()):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert theirs[key] == (pytest.approx(value) if isinstance(value, float) else value)


def test_refusals(attribution, types):
    own = summary.OwnContribution(LAYERS)
    with pytest.raises(ValueError, match="same kind"):
        own.merge(summary.NeighbourContribution(LAYERS))
    with pytest.raises(ValueError, match="layers"):
        summary.OwnContribution((1, 2)).add(attribution)
    with pytest.raises(ValueError, match="names"):
        own.add(attribution, types)
    with pytest.raises(ValueError, match="shape"):
        own.add(attribution, types[:, :3])
