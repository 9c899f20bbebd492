"""Batches are functions of the seed and the step."""

import itertools

import engine_subject as subject
import numpy as np
import pytest
import tensorflow as tf

from keras_posenc import encodings, models
from training.engine import pipeline, summaries
from training.engine.options import TrainOptions

COUNT = 23
EXAMPLES = {"number": np.arange(COUNT), "pair": np.arange(2 * COUNT).reshape(COUNT, 2)}


def take(data, count):
    return [{name: value.numpy() for name, value in batch.items()} for batch in itertools.islice(data, count)]


def numbers(batches):
    return np.array([batch["number"] for batch in batches])


def test_every_epoch_is_another_order_of_the_examples():
    batches = numbers(take(pipeline.batches_of(EXAMPLES, 5, seed=3), 16))
    epochs = batches.reshape(4, 20)
    for epoch in epochs:
        assert len(set(epoch)) == 20
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert set(batches.ravel()) == set(range(COUNT))  # the three that are left out are not always the same
    assert not np.array_equal(batches, numbers(take(pipeline.batches_of(EXAMPLES, 5, seed=4), 16)))


@pytest.mark.parametrize("lengths", [None, np.arange(COUNT) % 7])
@pytest.mark.parametrize("start", [0, 3, 4, 9])
def test_any_step_can_be_the_first(start, lengths):
    def noisy(batch, step):
        return {**batch, "noise": tf.random.stateless_uniform((5,), (9, step))}

    whole = take(pipeline.batches_of(EXAMPLES, 5, 3, map_fn=noisy, lengths=lengths), 13)
    for ours, theirs in zip(take(pipeline.batches_of(EXAMPLES, 5, 3, start, noisy, lengths), 4), whole[start:]):
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value)


def test_shapes_are_static_and_columns_stay_together():
    data = pipeline.batches_of(EXAMPLES, 5, seed=0)
    assert {name: tuple(spec.shape) for name, spec in data.element_spec.items()} == {"number": (5,), "pair": (5, 2)}
    for batch in take(data, 3):
        np.testing.assert_array_equal(batch["pair"][:, 0], 2 * batch["number"])


def test_orders_are_uniform():
    """Each example is as often in each place: the chi-squared statistic of 6 x 6 counts has mean 25, deviation 7."""
    orders = tf.map_fn(lambda number: pipeline.permutation(6, 1, number), tf.range(600, dtype=tf.int64)).numpy()
    counts = np.array([np.bincount(orders[:, place], minlength=6) for place in range(6)])
    assert ((counts - 100) ** 2 / 100).sum() < 25 + 5 * 7


def test_batches_of_similar_lengths():
    """Within a batch lengths differ less than in random batches; an epoch still has every example at most once."""
    lengths = np.random.default_rng(0).integers(1, 100, 64)
    examples = {"number": np.arange(64)}
    sorted_batches = numbers(take(pipeline.batches_of(examples, 8, 0, lengths=lengths), 8))
    random_batches = numbers(take(pipeline.batches_of(examples, 8, 0), 8))
    assert sorted(sorted_batches.ravel()) == list(range(64))
    assert np.ptp(lengths[sorted_batches], axis=1).max() < np.ptp(lengths[random_batches], axis=1).min()
    means = lengths[sorted_batches].mean(axis=1)
    assert not np.array_equal(means, np.sort(means))  # short and long ones come in random order


def test_hosts_share_a_batch():
    whole = numbers(take(pipeline.batches_of(EXAMPLES, 6, 2), 4))
    parts = [
        numbers(take(pipeline.batches_of(EXAMPLES, 6, 2, pipeline=pipeline.Pipeline(6, 2, host, 3)), 4))
        for host in range(3)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_evaluation_batches():
    batches = take(pipeline.eval_batches(EXAMPLES, 10), 9)
    assert [batch["weight"].sum() for batch in batches] == [10, 10, 3]
    real = np.concatenate([batch["number"][batch["weight"] > 0] for batch in batches])
    np.testing.assert_array_equal(real, np.arange(COUNT))
    weighted = take(pipeline.eval_batches({**EXAMPLES, "weight": np.arange(COUNT) % 2}, 10), 9)
    assert sum(batch["weight"].sum() for batch in weighted) == 11


def test_examples_that_are_refused():
    with pytest.raises(ValueError, match=r"arrays of one length.*{'a': 2, 'b': 3}"):
        pipeline.batches_of({"a": [1, 2], "b": [1, 2, 3]}, 1, 0)
    with pytest.raises(ValueError, match="There are 23 examples, fewer than batch=24"):
        pipeline.batches_of(EXAMPLES, 24, 0)
    with pytest.raises(ValueError, match="makes batches of 5, and the engine was given batch=6"):
        pipeline.batches_of(EXAMPLES, 5, 0, pipeline=pipeline.Pipeline(6, 0))

    class Ragged(subject.Toy):
        def train_data(self, start_step, pipeline):
            return super().train_data(start_step, pipeline).unbatch().batch(3)

    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with pytest.raises(ValueError, match="batches of a static size of 8 in every feature. Received: {'token_ids'"):
        pipeline.distribute(strategy, Ragged(), TrainOptions(steps=1, batch=8), 0)


@pytest.mark.parametrize("name", encodings.names())
def test_picture_of_every_encoding(name):
    """A row per layer, a column per head, nothing for encodings without weights."""
    given = {"num_keys": 4} if name == "diet_abs_lin" else {}
    model = models.Bert(20, 2, 3, 12, 16, max_length=8, position=name, segments="none", **given)
    model.build()
    image = summaries.position_image(model)
    norms = summaries.position_norms(model)
    if name in ("alibi", "none", "rotary", "sinusoidal"):
        assert image is None and not norms
        return
    assert image.dtype == "float32" and image.min() >= 0 and image.max() <= 1 and np.ptp(image) > 0.1
    rows, columns = (1, 1) if "embed" in encodings.get_class(name).doors else (2, 3)
    side = 96 + 4
    assert image.shape[1] == rows * side + 4 and image.shape[3] == 3
    assert image.shape[2] == columns * (side if name != "diet_abs_lin" else 4 * 12 + 4) + 4
    assert all(np.isfinite(value) for value in norms.values())


def test_parts_of_a_combined_encoding_are_drawn_once():
    model = models.Bert(20, 1, 2, 8, 16, max_length=8, position="learned+t5+diet_abs", segments="none")
    model.build()
    found = [type(encoding).__name__ for encoding in summaries.learned_encodings(model)]
    assert sorted(found) == ["DietAbs", "Learned", "T5Bias"]
