"""The step against a step written by hand, and the ways to compute it that must not change it."""

import functools
import json

import engine_subject as subject
import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from keras_posenc import encodings, models
from training import engine, throughput
from training.engine import optimizer as optimizers
from training.engine import strategy as strategies
from training.engine.pipeline import Pipeline
from training.engine.step import Step

pytestmark = pytest.mark.integration


@functools.cache
def after_steps(dropout=0.0, precision="float32", count=3, **changed):
    """A model after some steps, its optimizer, its weights after each step, and the figures of each."""
    keras.config.set_dtype_policy(precision)
    # With a large epsilon a step is proportional to the gradient, and does not blow up rounding where that is 0.
    task, options = subject.Toy(dropout), subject.options(**{"epsilon": 0.1, **changed}).validate()
    strategy = strategies.make("one_device")
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = task.build_model()
        optimizer = optimizers.make(model, options, options.steps)
    step = Step(task, model, optimizer, options, strategy)
    run = tf.function(lambda batch, number: strategy.run(step, args=(batch, number)))
    data = iter(task.train_data(0, Pipeline(options.batch, options.seed)))
    tables, weights = [], []
    for number in range(count):
        tables.append(run(next(data), tf.constant(number, tf.int64)).numpy())
        weights.append([weight.numpy() for weight in model.trainable_weights])
    return model, optimizer, weights, dict(zip(step.row_names, np.stack(tables, axis=1)))


def distance(weights, others):
    """The largest difference between two lists of weights."""
    return max(np.abs(one - other).max() for one, other in zip(weights, others))


def test_first_step_by_hand():
    """`w -= lr (wd w + g / (|g| + eps'))`, the first step of AdamW, for the clipped gradient of the weighted mean."""
    model, _, _, figures = after_steps(count=1, clip_norm=0.01, weight_decay=0.5, warmup=0, epsilon=1e-7)
    keras.utils.set_random_seed(5)
    task = subject.Toy(dropout=0.0)
    fresh = task.build_model()
    batch = next(iter(task.train_data(0, Pipeline(subject.BATCH, 0))))
    with tf.GradientTape() as tape:
        logits = fresh({"token_ids": batch["token_ids"], "padding_mask": batch["padding_mask"]})["logits"]
        losses = keras.losses.sparse_categorical_crossentropy(batch["labels"], logits, from_logits=True)
        loss = tf.reduce_sum(losses * batch["weights"]) / tf.reduce_sum(batch["weights"])
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, fresh.trainable_weights)]
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    total, weight = figures["loss"][0]
    assert total / weight == pytest.approx(float(loss), rel=1e-5)
    assert figures["gradient_norm"][0, 0] == pytest.approx(norm, rel=1e-4)
    assert norm > 0.01
    kept = {id(weight) for weight in optimizers.not_decayed(fresh)}
    for weight, start, gradient in zip(model.trainable_weights, fresh.trainable_weights, gradients):
        gradient, decay = gradient * 0.01 / norm, 0.0 if id(start) in kept else 0.5
        expected = start.numpy() * (1 - 3e-3 * decay)
        # With bias correction the moments of the first step are g and g^2; epsilon is not corrected by Keras.
        expected = expected - 3e-3 * gradient / (np.abs(gradient) + 1e-7 / np.sqrt(1 - 0.999))
        np.testing.assert_allclose(weight.numpy(), expected, rtol=0, atol=2e-5, err_msg=weight.path)


def test_accumulated_micro_batches_are_one_batch():
    """4 x 2 examples equal 8, though the weights of the micro-batches are unequal."""
    _, _, whole, figures = after_steps()
    _, _, parts, others = after_steps(accumulation=4)
    assert distance(parts[-1], whole[-1]) < 1e-7 < 1e-5 < distance(whole[-1], whole[0])
    for name, table in figures.items():
        if name != "tokens":
            np.testing.assert_allclose(others[name], table, rtol=1e-4, err_msg=name)
    assert others["tokens"][0, 0] == figures["tokens"][0, 0] == subject.BATCH * subject.LENGTH


def test_xla_makes_the_same_step():
    """Without dropout: from the same seeds XLA draws other masks than TensorFlow's kernels do."""
    _, _, plain, figures = after_steps()
    _, _, compiled, others = after_steps(xla=True)
    assert distance(plain[-1], compiled[-1]) < 1e-7 < 1e-5 < distance(plain[-1], plain[0])
    np.testing.assert_allclose(others["loss"], figures["loss"], rtol=1e-5)


def test_dropout_is_a_function_of_seed_and_step():
    """Generators that were used before, or never, give the same masks; other steps and seeds other ones."""
    task, strategy = subject.Toy(dropout=0.5), strategies.make("one_device")
    batch = next(iter(task.train_data(0, Pipeline(subject.BATCH, 0))))
    with strategy.scope():
        model = task.build_model()

    def loss(seed, number):
        options = subject.options(seed=seed).validate()
        with strategy.scope():
            step = Step(task, model, optimizers.make(model, options, 24), options, strategy)
        return float(step._gradients(batch, tf.constant(number, tf.int64))[1][0, 0])

    first = loss(0, 3)
    model({"token_ids": batch["token_ids"]}, training=True)
    assert loss(0, 3) == first
    assert len({first, loss(0, 4), loss(1, 3)}) == 3


def test_averages_of_weights():
    """`a <- m a + (1 - m) w` after each step, starting at the weights of the first."""
    model, optimizer, (first, second, third), _ = after_steps(ema=0.75)
    expected = [0.75 * (0.75 * a + 0.25 * b) + 0.25 * c for a, b, c in zip(first, second, third)]
    with optimizers.averaged_weights(model, optimizer, True):
        assert distance([weight.numpy() for weight in model.trainable_weights], expected) < 1e-7
    assert distance([weight.numpy() for weight in model.trainable_weights], third) == 0


@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(precision):
    """Weights stay float32, and loss and norm are free of the loss scale."""
    _, _, _, exact = after_steps()
    model, _, _, figures = after_steps(precision=precision)
    assert {str(weight.dtype) for weight in model.trainable_weights} == {"float32"}
    for name, rows in (("loss", slice(None)), ("gradient_norm", slice(1))):
        ours, theirs = (table[name][rows, 0] / table[name][rows, 1] for table in (figures, exact))
        np.testing.assert_allclose(ours, theirs, rtol=0.05, err_msg=name)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(FloatingPointError, match="The loss is not finite between steps"):
        engine.run(subject.Toy(), subject.options(learning_rate=1e30, clip_norm=None), str(tmp_path), stream=False)


class Infinite(subject.Toy):
    """Its loss is 0, and the gradient of its root infinite."""

    def loss(self, model, batch, training):
        total, weight, figures = super().loss(model, batch, training)
        return tf.sqrt(total - total), weight, figures


def test_a_gradient_that_is_not_finite_is_in_no_checkpoint(tmp_path):
    options = subject.options(checkpoint_every=1, steps_per_loop=1)
    with pytest.raises(engine.Diverged, match="The gradient is not finite between steps 0 and 1"):
        engine.run(Infinite(), options, str(tmp_path), stream=False)
    assert not list(tmp_path.glob("checkpoints/*"))
    assert json.loads((tmp_path / "run.json").read_text())["state"] == "diverged"


def test_a_trainer_by_itself_takes_epochs_as_a_run_does():
    trainer = throughput.make_trainer(subject.Toy(), subject.options(steps=None, epochs=2.0))
    assert trainer.train(tf.constant(1))["loss"] > 0


def test_throughput_is_measured_of_models_that_keras_hub_has():
    values = flags.FlagValues()
    throughput.define(values)
    values(["throughput", "--model=albert_base"])
    with pytest.raises(ValueError, match="bert_small.*Received: albert_base"):
        throughput.run(values)


# What is decayed of each encoding; the rest of its weights is not.
DECAYED = {
    "diet_abs": ["query_positions", "key_positions"],
    "diet_abs_lin": ["query_positions", "key_positions"],
    "fire": ["kernel_1", "kernel_2"],
    "floater": ["kernel_1", "kernel_2"],
    "learned": ["embeddings"],
    "shaw": ["keys", "values"],
    "transformer_xl": ["kernel"],
    "tupe": ["positions", "cls_positions", "query_kernel", "key_kernel"],
    "tupe_rel": ["positions", "cls_positions", "query_kernel", "key_kernel"],
}
SCALARS = {
    "diet_rel": ["distances"],
    "fire": ["c", "threshold", "bias_1"],
    "floater": ["initial", "bias_1", "bias_2"],
    "kerple": ["r1", "r2"],
    "synthesizer": ["random"],
    "t5": ["buckets"],
    "tisa": ["amplitudes", "sharpness", "centers"],
    "transformer_xl": ["content_bias", "position_bias"],
    "tupe_rel": ["buckets"],
}


@pytest.mark.parametrize("name", encodings.names())
def test_what_is_decayed(name):
    """The decision for every encoding; a new one has to be decided about here."""
    given = {"num_keys": 4} if name == "diet_abs_lin" else {"segments": "per_head"}
    model = models.Bert(20, 1, 2, 8, 16, max_length=8, position=name, **given)
    model.build()
    kept = {id(weight) for weight in optimizers.not_decayed(model)}
    inside = [weight for weight in model.trainable_weights if f"/{name}/" in weight.path]
    assert sorted(w.name for w in inside if id(w) not in kept) == sorted(DECAYED.get(name, []))
    assert sorted(w.name for w in inside if id(w) in kept) == sorted(SCALARS.get(name, []))
    for weight in model.trainable_weights:
        last = weight.path.rsplit("/", 1)[-1]
        if f"/{name}/" not in weight.path:
            assert (id(weight) in kept) == (last in ("bias", "gamma", "beta", "segments")), weight.path
