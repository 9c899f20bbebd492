"""A small classifier on synthetic data, and the child processes that train it."""

import contextlib
import json
import multiprocessing
import os
import signal
import socket

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_io_ops

from keras_posenc import models
from training import engine
from training.engine import pipeline
from training.tasks.base import Task

EXAMPLES, LENGTH, BATCH = 44, 8, 8


class Toy(Task):
    """Which of three tokens comes first. Examples have weights, unequal over the batch."""

    name, primary, num_examples = "toy", "dev/accuracy", EXAMPLES

    def __init__(self, dropout=0.1, position="tisa"):
        self.dropout, self.position = dropout, position
        rng = np.random.default_rng(0)
        token_ids = rng.integers(3, 20, (EXAMPLES, LENGTH)).astype("int32")
        self.examples = {
            "token_ids": token_ids,
            "padding_mask": (np.arange(LENGTH) < rng.integers(3, LENGTH + 1, (EXAMPLES, 1))).astype("int32"),
            "labels": token_ids[:, 0] % 3,
            "weights": rng.integers(0, 4, EXAMPLES).astype("float32"),
        }

    def config(self):
        return {"dropout": self.dropout, "position": self.position}

    def build_model(self):
        sizes = dict(vocab_size=20, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32, max_length=LENGTH)
        bert = models.Bert(**sizes, position=self.position, dropout=self.dropout, segments="none")
        model = models.Classifier(bert, 3)
        model.build()
        self.model = model
        return model

    def train_data(self, start_step, pipeline):
        return batches_of(self.examples, pipeline.batch, pipeline.seed, start_step, pipeline=pipeline)

    def eval_data(self):
        return {"dev": pipeline.eval_batches({name: value[:30] for name, value in self.examples.items()}, 7)}

    def _logits(self, model, batch, training):
        return model({name: batch[name] for name in ("token_ids", "padding_mask")}, training=training)["logits"]

    def loss(self, model, batch, training):
        logits, weights = self._logits(model, batch, training), batch["weights"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)
        right = tf.cast(tf.argmax(logits, -1, output_type=tf.int32) == batch["labels"], tf.float32)
        total = tf.reduce_sum(weights)
        return tf.reduce_sum(losses * weights), total, {"accuracy": (tf.reduce_sum(right * weights), total)}

    def predict(self, model, batch):
        return {"logits": self._logits(model, batch, False), "labels": batch["labels"]}

    def metrics(self, name, outputs):
        logits, labels = outputs["logits"].astype("float64"), outputs["labels"]
        losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(labels)), labels]
        return {"accuracy": (logits.argmax(-1) == labels).mean(), "loss": losses.mean(), "rows": len(labels)}


batches_of = pipeline.batches_of


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class DyingInLoop(Toy):
    """Killed by its own input pipeline, in the middle of a compiled loop."""

    def __init__(self, at_step, **options):
        super().__init__(**options)
        self.at_step = at_step

    def train_data(self, start_step, pipeline):
        def check(step):
            if step == self.at_step:
                die()
            return step

        data = super().train_data(start_step, pipeline)
        steps = tf.data.Dataset.range(start_step, 10**9).map(lambda s: tf.numpy_function(check, [s], tf.int64))
        return tf.data.Dataset.zip(data, steps).map(lambda batch, _: batch)


class DyingInEvaluation(Toy):
    """Killed between the predictions of its second evaluation and their figures."""

    def metrics(self, name, outputs):
        self.seen = getattr(self, "seen", 0) + 1
        if self.seen == 2:
            die()
        return super().metrics(name, outputs)


def die_in_checkpoint(number):
    """From here on, the process is killed while it writes the checkpoint of step `number`.

    TensorFlow writes the data into a folder beside the checkpoint and merges it into place. It dies in between.
    """
    save, merge = tf.train.CheckpointManager.save, gen_io_ops.merge_v2_checkpoints

    def watched(manager, checkpoint_number=None, **options):
        gen_io_ops.merge_v2_checkpoints = (lambda *_, **__: die()) if checkpoint_number == number else merge
        return save(manager, checkpoint_number, **options)

    tf.train.CheckpointManager.save = watched


def train(output, task=Toy, task_options=None, checkpoint=None, tf_config=None, dump=None, **changed):
    """Body of a child process. `dump` is a file for the weights that it has in the end."""
    if tf_config is not None:
        os.environ["TF_CONFIG"] = tf_config
    if checkpoint is not None:
        die_in_checkpoint(checkpoint)
    given = options(**changed)
    strategy = engine.start(given)
    made = task(**(task_options or {}))
    engine.run(made, given, output, strategy, stream=False)
    if dump is not None:
        np.savez(dump, **named(made.model))


def spawn(target=train, **arguments):
    """A started child process that calls `target`. Children are forked from a server that has imported TensorFlow."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=target, kwargs=arguments)
    child.start()
    return child


def cluster(count=2):
    """`TF_CONFIG` of each worker of a cluster on this machine."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in opened:
            each.bind(("localhost", 0))
        workers = [f"localhost:{each.getsockname()[1]}" for each in opened]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks]


def join(child, timeout=240):
    """The exit code of a child; negative if a signal killed it."""
    child.join(timeout)
    if child.is_alive():
        child.kill()
        raise TimeoutError("The child process did not end.")
    return child.exitcode


def options(**changed):
    """A training of 24 steps, with loops that checkpoints and evaluations cut unevenly."""
    given = dict(
        steps=24, batch=BATCH, learning_rate=3e-3, warmup=4, eval_every=8, checkpoint_every=5, steps_per_loop=3
    )
    return engine.TrainOptions(**{**given, **changed})


def named(model):
    """The weights of a model by number and name: the paths of two models of a process differ."""
    return {f"{index} {weight.name}": weight.numpy() for index, weight in enumerate(model.weights)}


def weights(output, which="newest", **task):
    """The weights that a run has saved."""
    return named(engine.restore(Toy(**task).build_model(), output, which))
