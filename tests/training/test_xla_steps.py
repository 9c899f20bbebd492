"""The train step of every encoding under XLA, with static shapes: the nearest thing to a TPU that runs anywhere."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_posenc import encodings, models
from keras_posenc.folding import position_encodings
from training import engine
from training.engine import optimizer as optimizers
from training.engine import strategy as strategies
from training.engine.step import Step
from training.tasks.masked_lm import MaskedLanguageModel

pytestmark = pytest.mark.integration
ROWS, LENGTH, PREDICTIONS, VOCABULARY = 4, 8, 2, 30


class Fixed(MaskedLanguageModel):
    """Only the loss of the task: models and batches are made here."""

    def __init__(self):
        pass


def build(position):
    compressed = any(getattr(encodings.get_class(part), "compresses_keys", False) for part in encodings.parse(position))
    bert = models.Bert(
        VOCABULARY,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_length=LENGTH,
        position=position,
        num_keys=4 if compressed else None,
        dropout=0.0,
        segments="none",
        pooler=False,
    )
    model = models.MaskedLM(bert)
    model.build()
    return model


def batch():
    rng = np.random.default_rng(1)
    ids = rng.integers(5, VOCABULARY, (ROWS, LENGTH))
    mask = np.arange(LENGTH) < [[8], [8], [6], [5]]
    return {
        "token_ids": tf.constant(np.where(mask, ids, 0), "int32"),
        "padding_mask": tf.constant(mask, "int32"),
        "masked_positions": tf.constant(rng.integers(0, 5, (ROWS, PREDICTIONS)), "int32"),
        "masked_ids": tf.constant(rng.integers(5, VOCABULARY, (ROWS, PREDICTIONS)), "int32"),
        "masked_weights": tf.constant([[1, 1], [1, 0], [1, 1], [0, 1]], "float32"),
    }


def make_steps(position):
    """A model, and its step without and with XLA."""
    strategy, steps = strategies.make("one_device"), []
    with strategy.scope():
        model = build(position)
        for weight in model.trainable_weights:
            if weight.name in ("kernel", "embeddings"):  # larger than fresh ones, so that all gradients are
                weight.assign(weight + 0.4 * keras.random.normal(weight.shape, seed=4))
        for xla in (False, True):
            options = engine.TrainOptions(steps=10, batch=ROWS, learning_rate=0.1, xla=xla)
            steps.append(Step(Fixed(), model, optimizers.make(model, options, options.steps), options, strategy))
    return model, *steps


@pytest.mark.parametrize("position", encodings.names())
def test_compiled_gradients_are_the_gradients(position):
    model, step, compiled_step = make_steps(position)
    features, number = batch(), tf.constant(0, tf.int64)
    gradients, table = step.gradients(features, number)
    compiled, compiled_table = compiled_step.gradients(features, number)
    np.testing.assert_allclose(compiled_table, table, rtol=1e-5)
    largest = max(np.abs(gradient).max() for gradient in gradients)
    paths = [step.variables[index].path for index in step.used]
    for path, expected, found in zip(paths, gradients, compiled):
        # Those of key biases are 0 but for rounding.
        atol = 1e-4 * np.abs(expected).max() + 1e-6 * largest
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=path)
    learned = [weight.path for encoding in position_encodings(model) for weight in encoding.trainable_weights]
    moving = [path for path, gradient in zip(paths, gradients) if np.abs(gradient).max() > 1e-5 * largest]
    assert set(learned) <= set(moving)


def test_the_compiled_update_is_the_update():
    """The update goes weight by weight, decayed or not, and knows nothing of encodings: one model stands for all."""
    model, *steps = make_steps("learned+diet_rel+tisa")
    gradients, table = steps[0].gradients(batch(), tf.constant(0, tf.int64))
    steps[1].gradients(batch(), tf.constant(0, tf.int64))  # tells the step which weights have gradients
    before, after = [weight.numpy() for weight in model.trainable_weights], []
    for step in steps:
        for weight, value in zip(model.trainable_weights, before):
            weight.assign(value)
        figures = step.update(gradients, table).numpy()
        after.append([figures, *(weight.numpy() for weight in model.trainable_weights)])
    for expected, found in zip(*after):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    moved = [np.abs(new - old).max() > 1e-3 for new, old in zip(after[1][1:], before)]
    assert np.mean(moved) > 0.9
