"""The train step of every encoding under XLA, with static shapes: the nearest thing to a TPU that runs anywhere."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_posenc import encodings, models
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
    compressed = getattr(encodings.get_class(position), "compresses_keys", False)
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
        segments="none" if compressed else "per_head",
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


def weights_and_table_after_a_step(position, xla):
    # With a large epsilon the step is proportional to the gradient, and does not blow up rounding where that is 0.
    options = engine.TrainOptions(steps=10, batch=ROWS, learning_rate=0.1, epsilon=0.1, xla=xla)
    strategy = strategies.make("one_device")
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = build(position)
        optimizer = optimizers.make(model, options, options.steps)
    step = Step(Fixed(), model, optimizer, options, strategy)
    before = [weight.numpy() for weight in model.trainable_weights]
    table = strategy.run(step, args=(batch(), tf.constant(0, tf.int64))).numpy()
    return before, model.trainable_weights, table


@pytest.mark.parametrize("position", encodings.names())
def test_the_compiled_step_is_the_step(position):
    before, weights, table = weights_and_table_after_a_step(position, xla=False)
    _, compiled_weights, compiled_table = weights_and_table_after_a_step(position, xla=True)
    np.testing.assert_allclose(compiled_table, table, rtol=1e-4, atol=1e-6)
    for new, compiled in zip(weights, compiled_weights):
        np.testing.assert_allclose(compiled.numpy(), new.numpy(), rtol=1e-4, atol=2e-5, err_msg=new.path)
    # It is a step: more than half of the weights have moved by more than they may differ.
    moved = [np.abs(new.numpy() - old).max() > 1e-3 for old, new in zip(before, weights)]
    assert np.mean(moved) > 0.5
