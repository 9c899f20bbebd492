"""Token identifiability: facts of the nearest-neighbour rule, and of maps that are known."""

import json

import numpy as np
import pytest

from keras_posenc.analysis.identifiability import Identifiability, LayerRates, Piece
from keras_posenc.analysis.identifiability_data import (
    TEST,
    TRAIN,
    VALIDATION,
    Sentences,
    first_equal,
    nearest,
    pack_tokens,
    split_folds,
)

WIDTH = 8


@pytest.fixture
def data(rng):
    """60 sentences of 2 to 12 tokens: inputs and sentence ids."""
    sentences = np.repeat(np.arange(60), rng.integers(2, 13, 60))
    return rng.normal(size=(sentences.size, WIDTH)).astype("float32"), sentences


@pytest.fixture
def rotation(rng):
    return np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0].astype("float32")


def rates(result, metric="cosine", **where):
    return [
        row["rate"]
        for row in result.rows()
        if row["metric"] == metric and all(row[name] == value for name, value in where.items())
    ]


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_nearest_is_the_smallest_distance_of_the_sentence(data, rng, metric):
    x, sentences = data
    predicted = rng.normal(size=x.shape).astype("float32")
    bounds = Sentences(sentences).bounds
    found = nearest(predicted, x, bounds)[["cosine", "l2"].index(metric)]
    for token, (p, sentence) in enumerate(zip(predicted, sentences)):
        rows = np.flatnonzero(sentences == sentence)
        if metric == "l2":
            distance = np.linalg.norm(x[rows] - p, axis=1)
        else:
            distance = 1 - x[rows] @ p / np.linalg.norm(x[rows], axis=1) / np.linalg.norm(p)
        assert found[token] == rows[np.argmin(distance)]


def test_identity_is_identified(data):
    x, sentences = data
    result = Identifiability(x, x[None], sentences).identify(("naive", "linear"))
    assert all(row["rate"] == 1 and row["std"] == 0 for row in result.rows())


def test_rotation_is_identified_by_the_linear_map_only(data, rotation):
    x, sentences = data
    result = Identifiability(x, (x @ rotation)[None], sentences).identify(("naive", "linear"))
    assert all(rate == 1 for metric in ("cosine", "l2") for rate in rates(result, metric, map="linear"))
    assert all(rate < 0.6 for rate in rates(result, map="naive"))


def test_scaling_is_identified_by_cosine_and_not_by_distance(data):
    # Near the origin every token is nearest to the shortest of its sentence, which is right once in a sentence.
    x, sentences = data
    result = Identifiability(x, (1e-3 * x)[None], sentences).identify(("naive",))
    assert rates(result, "cosine") == [1]
    assert rates(result, "l2")[0] == pytest.approx(result.rows()[0]["chance"], abs=0.01)


def test_random_embeddings_are_identified_by_chance(rng):
    # An answer that knows nothing of the token is right once in a sentence of n tokens, so one time in n.
    sentences = np.repeat(np.arange(1500), np.tile([3, 5, 12], 500))
    x, h = rng.normal(size=(2, sentences.size, 4))
    probe = Identifiability(x, h[None], sentences, split=(0.1, 0.1, 0.8), folds=1)
    piece = probe.identify(("naive",)).pieces[0]
    # Mean of 1/n over tokens: sentences over tokens.
    tested = np.unique(sentences[probe.tokens.order][np.repeat(probe.roles[0] == TEST, np.tile([3, 5, 12], 500))])
    assert piece.chance == pytest.approx(tested.size / piece.tokens)
    tolerance = 4 * np.sqrt(piece.chance / piece.tokens)
    assert abs(piece.cosine - piece.chance) < tolerance and abs(piece.l2 - piece.chance) < tolerance


def test_equal_inputs_are_one_answer(rng):
    # Without positions a word that comes twice has one vector: finding either is finding it.
    words = rng.normal(size=(3, WIDTH)).astype("float32")
    x = np.tile(words[[0, 1, 0, 2]], (20, 1))
    x[2::4] *= 1 + 1e-7
    sentences = np.repeat(np.arange(20), 4)
    np.testing.assert_array_equal(first_equal(x, np.arange(0, 81, 4))[:8], [0, 1, 0, 3, 4, 5, 4, 7])
    row = Identifiability(x, x[None], sentences).identify(("naive",)).rows()[0]
    assert row["rate"] == 1 and row["chance"] == pytest.approx((2 / 4 + 1 / 4 + 2 / 4 + 1 / 4) / 4)


def test_a_map_without_information_finds_nothing_by_ties(data):
    x, sentences = data
    row = Identifiability(x, np.zeros_like(x)[None], sentences).identify(("linear",)).rows()[0]
    assert row["rate"] == pytest.approx(row["chance"], abs=0.05)


@pytest.mark.parametrize("count", [20, 60, 408])
def test_folds_are_disjoint_of_the_right_size_and_test_every_sentence(count):
    roles = split_folds(np.arange(count), 10, (0.7, 0.15, 0.15), seed=2)
    sizes = np.stack([(roles == role).sum(1) for role in (TRAIN, VALIDATION, TEST)], 1)
    assert (sizes.sum(1) == count).all()
    assert np.abs(sizes - np.array([0.7, 0.15, 0.15]) * count).max() < 1 + 1e-9
    tested = (roles == TEST).sum(0)
    assert tested.min() == 1 and tested.max() == 2


@pytest.mark.parametrize("folds", [5, 7, 10])
def test_folds_test_every_sentence_once_when_the_share_allows(folds):
    share = 1 / folds
    roles = split_folds(np.arange(103), folds, (1 - 2 * share, share, share))
    assert ((roles == TEST).sum(0) == 1).all() and ((roles == VALIDATION).sum(0) == 1).all()


def test_groups_are_never_split():
    groups = np.repeat(np.arange(40), 3)
    roles = split_folds(groups, 10)
    assert (roles.reshape(10, 40, 3) == roles.reshape(10, 40, 3)[..., :1]).all()
    assert len({tuple(row) for row in roles}) == 10


def test_tokens_of_a_sentence_share_their_part_in_any_order(data, rng):
    x, sentences = data
    order = rng.permutation(len(x))
    probe = Identifiability(x[order], x[order][None], sentences[order])
    for fold in probe.roles:
        parts = [set(sentences[order][probe.tokens.order][fold[probe.tokens.sentence] == role]) for role in range(3)]
        assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])


def test_order_of_sentences_does_not_matter(data, rotation, rng):
    x, sentences = data
    h = x @ rotation + rng.normal(size=x.shape).astype("float32")
    order = np.argsort(rng.permutation(60)[sentences], kind="stable")
    ids = np.array([100 - s for s in range(60)])
    one = Identifiability(x, h[None], ids[sentences]).identify()
    other = Identifiability(x[order], h[order][None], ids[sentences[order]]).identify()
    assert [row["rate"] for row in one.rows()] == pytest.approx([row["rate"] for row in other.rows()], abs=1e-9)


def test_padding_never_enters(data, rng):
    x, sentences = data
    lengths = np.bincount(sentences)
    mask = np.arange(lengths.max()) < lengths[:, None]
    states = []
    for values in (x, x + rng.normal(size=x.shape).astype("float32")):
        padded = np.full((*mask.shape, WIDTH), np.nan, "float32")
        padded[mask] = values
        states.append(padded)
    packed = [pack_tokens(state, mask) for state in states]
    np.testing.assert_array_equal(packed[0][0], x)
    np.testing.assert_array_equal(packed[0][1], sentences)
    beforehand = Identifiability(packed[0][0], [packed[1][0]], sentences).identify()
    flat = [state.reshape(-1, WIDTH) for state in states]
    rows = np.repeat(np.arange(60), mask.shape[1])
    by_mask = Identifiability(flat[0], [flat[1]], rows, mask=mask.ravel()).identify()
    assert beforehand.rows() == by_mask.rows()
    with pytest.raises(ValueError, match="finite"):
        Identifiability(flat[0], [flat[1]], rows).identify()


def test_resumed_results_are_identical_and_nothing_is_done_twice(data, rotation, rng):
    x, sentences = data
    hidden = np.stack([x @ rotation, x @ rotation + rng.normal(size=x.shape)]).astype("float32")
    probe = Identifiability(x, hidden, sentences)
    whole = probe.cross_layer(("naive", "linear"))
    stored = [json.loads(json.dumps(piece.row())) for piece in whole.pieces[::3]]
    new = []
    again = Identifiability(x, hidden, sentences).cross_layer(("naive", "linear"), done=stored, on_result=new.append)
    assert again.pieces == whole.pieces
    assert len(new) == len(whole.pieces) - len(stored)
    # What was stored for other folds is not taken over.
    other = Identifiability(x, hidden, sentences, seed=5).cross_layer(("naive", "linear"), done=stored)
    assert not {piece.run for piece in other.pieces} & {row["run"] for row in stored}


def test_maps_of_one_layer_on_another(data, rotation):
    x, sentences = data
    hidden = np.stack([x @ rotation, 3 * x @ rotation, -x])
    result = Identifiability(x, hidden, sentences).cross_layer()
    (fitted, tested), mean, _ = result.array("linear")
    assert fitted == tested == [1, 2, 3]
    np.testing.assert_array_equal(mean[:2, :2], 1)  # the same map up to scale
    assert mean[2, 2] == 1 and mean[2, :2].max() < 0.6 and mean[:2, 2].max() < 0.6


def test_hidden_to_hidden_undoes_single_layers(data, rotation):
    x, sentences = data
    hidden = [x @ rotation, np.concatenate([x, x**2], axis=1)]
    probe = Identifiability(x, hidden, sentences)
    assert rates(probe.hidden_to_hidden(("linear",))) == [1, 1]
    assert rates(probe.hidden_to_hidden(("linear",), pairs=[(2, 0), (0, 1)])) == [1, 1]
    with pytest.raises(ValueError, match="wide"):
        probe.hidden_to_hidden(("naive",))


def test_layers_that_are_not_there(data):
    x, sentences = data
    probe = Identifiability(x, [x, -x], sentences)
    for experiment, name in (
        (probe.identify, "layers"),
        (probe.cross_layer, "layers"),
        (probe.cross_layer, "tested"),
        (probe.neighbours, "layers"),
    ):
        for wrong in ([-1], [3], [1.5], []):
            with pytest.raises(ValueError, match=f"`{name}` must be a list of integers from 0 to 2. Received"):
                experiment(**{name: wrong})
    for wrong in ([(1, -1)], [(3, 0)]):
        with pytest.raises(ValueError, match="`pairs` must be"):
            probe.hidden_to_hidden(pairs=wrong)
    chosen = probe.identify(("naive",), layers=np.array([1, 2]))
    assert rates(chosen) == rates(probe.hidden_to_hidden(("naive",), pairs=np.array([(1, 0), (2, 0)])))


def test_neighbours_that_the_embedding_holds_are_recovered(rng):
    sentences = np.repeat(np.arange(60), 9)
    x = rng.normal(size=(540, 8)).astype("float32")
    following = np.roll(x, -1, axis=0)  # beyond the end of a sentence this is another's token
    probe = Identifiability(x, np.concatenate([x, following], axis=1)[None], sentences)
    result = probe.neighbours(("linear",), offsets=(-1, 1, 2))
    (offsets, _), mean, _ = result.array("linear")
    assert offsets == [-1, 1, 2] and mean[1, 0] == 1 and mean[[0, 2], 0].max() < 0.4
    assert {piece.tokens for piece in result.pieces if piece.offset == 2} == {9 * 7}


def test_neighbours_keep_their_places_around_tokens_left_out():
    mask = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1], bool)
    tokens = Sentences(np.array([4, 4, 4, 4, 7, 7, 7, 7, 7]), mask=mask)
    np.testing.assert_array_equal(tokens.order[tokens.pairs(1)], [[0, 4, 7], [1, 5, 8]])
    np.testing.assert_array_equal(tokens.order[tokens.pairs(-2)], [[3, 7], [1, 5]])
    assert tokens.pairs(5).shape == (2, 0)


def test_rows_are_means_and_deviations_over_folds():
    pieces = [Piece("naive", 1, 0, 1, 0, f, "test", r, r / 2, 0.1, 10, "", "") for f, r in enumerate([0.2, 0.4])]
    cosine, l2 = LayerRates(pieces).rows()
    assert (cosine["rate"], cosine["std"]) == pytest.approx((0.3, np.sqrt(0.02)))
    assert (l2["rate"], l2["folds"], l2["tokens"]) == (pytest.approx(0.15), 2, 20)
    assert LayerRates(pieces[:1]).rows()[0]["std"] is None


def test_errors_say_what_to_do(data):
    x, sentences = data
    with pytest.raises(ValueError, match="layer 1"):
        Identifiability(x, x[None, :-1], sentences)
    with pytest.raises(ValueError, match="too few"):
        Identifiability(x[sentences < 3], x[None, sentences < 3], sentences[sentences < 3])
    with pytest.raises(ValueError, match="'mlp_l2'"):
        Identifiability(x, x[None], sentences).identify(("mlp",))
    with pytest.raises(ValueError, match="groups"):
        Identifiability(x, x[None], sentences, groups=np.arange(len(x)))
