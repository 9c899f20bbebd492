"""The masks of BERT: how many tokens, which, and what becomes of them."""

import numpy as np
import pytest
import tensorflow as tf

from keras_posenc.checkpoints.tokenizer import WordPiece
from training.tasks.masked_lm import Masking

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LENGTH, ROWS = 64, 400


@pytest.fixture(scope="module")
def tokenizer():
    return WordPiece([*SPECIAL, *(f"w{i}" for i in range(60)), *(f"##p{i}" for i in range(35))])


@pytest.fixture(scope="module")
def ids():
    """Rows of `[CLS] ... [SEP]` and padding, the first ones full, with unknown words among them."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 100, (ROWS, LENGTH))
    ids[rng.random(ids.shape) < 0.02] = 1
    ids[:, 0] = 2
    lengths = np.where(np.arange(ROWS) < ROWS // 2, LENGTH, rng.integers(6, LENGTH, ROWS))
    places = np.arange(LENGTH)
    ids[places == lengths[:, None] - 1] = 3
    ids[places >= lengths[:, None]] = 0
    return ids.astype("int32")


def masked(tokenizer, ids, seed=(3, 5), **options):
    batch = {"token_ids": tf.constant(ids), "padding_mask": tf.constant(ids != 0)}
    found = Masking(tokenizer, LENGTH, **options)(batch, seed)
    return {name: value.numpy() for name, value in found.items()}


def chosen_places(found):
    """Boolean `(rows, length)`: the tokens that are to be predicted."""
    places = np.zeros((ROWS, LENGTH), bool)
    rows, columns = np.nonzero(found["masked_weights"])
    places[rows, found["masked_positions"][rows, columns]] = True
    return places


def test_15_percent_of_the_tokens_of_each_row(tokenizer, ids):
    found = masked(tokenizer, ids)
    tokens = (ids != 0).sum(axis=1)
    np.testing.assert_array_equal(found["masked_weights"].sum(axis=1), np.rint(0.15 * tokens.astype("float32")).clip(1))
    # Positions of a row are different and in order, and the ids to predict are those that were there.
    assert chosen_places(found).sum() == found["masked_weights"].sum()
    for row in range(ROWS):
        real = found["masked_weights"][row] == 1
        positions = found["masked_positions"][row][real]
        assert (np.diff(positions) > 0).all()
        np.testing.assert_array_equal(found["masked_ids"][row][real], ids[row][positions])


def test_every_token_of_a_row_is_as_likely_as_another(tokenizer, ids):
    ids = np.where(ids == 1, 7, ids)
    counts = sum(chosen_places(masked(tokenizer, ids, (1, step)))[: ROWS // 2].sum(axis=0) for step in range(20))
    draws, rate = 20 * ROWS // 2, 10 / (LENGTH - 2)
    assert counts[0] == counts[-1] == 0
    error = np.abs(counts[1:-1] - draws * rate) / np.sqrt(draws * rate * (1 - rate))
    assert error.max() < 4.5


def test_special_tokens_and_padding_are_never_chosen_and_nothing_else_changes(tokenizer, ids):
    for whole_words in (False, True):
        found = masked(tokenizer, ids, whole_words=whole_words)
        places = chosen_places(found)
        assert not places[ids < len(SPECIAL)].any()
        np.testing.assert_array_equal(found["token_ids"][~places], ids[~places])


def test_80_10_10(tokenizer, ids):
    found = [masked(tokenizer, ids, (0, step)) for step in range(10)]
    now = np.concatenate([each["token_ids"][chosen_places(each)] for each in found])
    before = np.concatenate([ids[chosen_places(each)] for each in found])
    count, ordinary = len(now), len(tokenizer.vocabulary) - len(SPECIAL)
    assert count > 15000
    # A random token is that which was there once in `ordinary` times.
    for share, expected in ((now == 4, 0.8), (now == before, 0.1 + 0.1 / ordinary)):
        assert abs(share.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / count)
    others = now[(now != 4) & (now != before)]
    assert others.min() >= len(SPECIAL) and len(np.unique(others)) == ordinary


def test_pieces_of_a_word_are_chosen_together(tokenizer, ids):
    places = chosen_places(masked(tokenizer, ids, whole_words=True))
    first_piece = len(SPECIAL) + 60
    continues = ids[:, 1:] >= first_piece
    word_before = ids[:, :-1] >= len(SPECIAL)
    together = continues & word_before
    np.testing.assert_array_equal(places[:, 1:][together], places[:, :-1][together])
    # Words of several pieces are chosen, and never more than the share. What is missing is less than a word a row.
    assert (places[:, 1:] & together).sum() > 100
    wanted = np.rint(0.15 * (ids != 0).sum(axis=1))
    assert (places.sum(axis=1) <= wanted).all()
    assert places[: ROWS // 2].sum() > 0.8 * wanted[: ROWS // 2].sum()


def test_masks_are_a_function_of_the_seed(tokenizer, ids):
    first, again, other = (masked(tokenizer, ids, seed) for seed in ((3, 5), (3, 5), (3, 6)))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert (chosen_places(first) != chosen_places(other)).any(axis=1).mean() > 0.9


def test_shapes_are_static(tokenizer):
    spec = {name: tf.TensorSpec((8, LENGTH), tf.int32) for name in ("token_ids", "padding_mask")}
    traced = tf.function(Masking(tokenizer, LENGTH)).get_concrete_function(spec, tf.TensorSpec((2,), tf.int64))
    shapes = {name: tuple(value.shape) for name, value in traced.structured_outputs.items()}
    assert shapes["token_ids"] == (8, LENGTH)
    assert {shapes[f"masked_{name}"] for name in ("positions", "ids", "weights")} == {(8, 10)}


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_rate_that_is_no_share_is_an_error(tokenizer, rate):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Masking(tokenizer, LENGTH, rate)
