"""The inner loop of training, as orbit's controller wants it."""

import json
import math
import time

import orbit
import tensorflow as tf

from training.engine.step import Step


class Diverged(FloatingPointError):
    """A loss or a gradient that is not finite."""


class Trainer(orbit.AbstractTrainer):
    """Runs loops of steps, compiled into one function, and averages their figures.

    Args:
        task: a `Task`.
        model, optimizer: built under the strategy.
        step: variable that counts steps.
        options: `TrainOptions`.
        strategy: where to train.
        data: distributed data set whose next batch is that of `step`.
        on_loop: called with a dict of figures after each loop.
    """

    def __init__(self, task, model, optimizer, step, options, strategy, data, on_loop=None):
        self.model, self.step, self.options, self.strategy = model, step, options, strategy
        self.replica_step = Step(task, model, optimizer, options, strategy)
        self.data, self.iterator = data, None
        self.on_loop = on_loop
        self.figures = Figures()
        self.speed = Speed(options.batch)
        self._loop = tf.function(self._steps)

    def train(self, num_steps):
        if self.iterator is None:
            self.iterator = iter(self.data)
        begin = time.monotonic()
        table, waited = self._loop(self.iterator, num_steps)
        table = table.numpy().astype("float64")
        names = self.replica_step.row_names
        sums = dict(zip(names, table.sum(axis=0)))
        tokens = sums.pop("tokens")[0]
        self.speed.add(int(num_steps), tokens, time.monotonic() - begin, float(waited))
        averages = {name: total / weight if weight else 0.0 for name, (total, weight) in sums.items()}
        averages["learning_rate"] = table[-1, names.index("learning_rate"), 0]
        self._check_finite(averages["loss"], table[:, names.index("gradient_norm"), 1], int(num_steps))
        self.figures.add({name: sums[name] for name in sums if name not in ("gradient_norm", "learning_rate")})
        found = {**averages, **self.speed.last}
        if self.on_loop is not None:
            found.update(self.on_loop(found) or {})
        return found

    def _check_finite(self, loss, finite_gradients, count):
        """Raises before the controller saves a checkpoint that nothing could go on from."""
        # With a loss scale, steps whose gradient is not finite are left out.
        gradients = self.replica_step.loss_scaled or finite_gradients.all()
        if not math.isfinite(loss) or not gradients:
            raise Diverged(
                f"The {'gradient' if math.isfinite(loss) else 'loss'} is not finite between steps "
                f"{self.step.numpy() - count} and {self.step.numpy()}. Lower the learning rate, lengthen the warm-up "
                "or clip gradients; the last checkpoint is from before."
            )

    def _steps(self, iterator, count):
        rows = tf.TensorArray(tf.float32, size=count, infer_shape=False)
        waited = tf.zeros((), tf.float64)
        last = tf.zeros(())
        for index in tf.range(count):
            with tf.control_dependencies([last]):
                begin = tf.timestamp()
            with tf.control_dependencies([begin]):
                batch = next(iterator)
            here = tf.nest.map_structure(lambda value: self.strategy.experimental_local_results(value)[0], batch)
            with tf.control_dependencies(tf.nest.flatten(here)):
                waited += tf.timestamp() - begin
            table = self.strategy.run(self.replica_step, args=(batch, self.step.read_value()))
            table = self.strategy.experimental_local_results(table)[0]
            last = table[0, 0]
            rows = rows.write(index, table)
            self.step.assign_add(1)
        return rows.stack(), waited


class Figures(tf.train.experimental.PythonState):
    """Sums of the figures of the steps since the last evaluation, in checkpoints: a resumed run goes on summing."""

    def __init__(self):
        self.sums = {}

    def add(self, sums):
        for name, (total, weight) in sums.items():
            before = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = (before[0] + float(total), before[1] + float(weight))

    def averages(self):
        return {name: total / weight if weight else 0.0 for name, (total, weight) in self.sums.items()}

    def reset(self):
        self.sums = {}

    def serialize(self):
        return json.dumps(self.sums)

    def deserialize(self, value):
        self.sums = {name: tuple(pair) for name, pair in json.loads(value).items()}


class Speed:
    """Examples and tokens a second, and the share of time spent waiting for input.

    The first loop of a process traces and compiles, and counts only as long as there is no other.
    """

    def __init__(self, batch):
        self.batch, self.loops, self.last = batch, 0, {}
        self._clear()

    def _clear(self):
        self.steps, self.tokens, self.seconds, self.waited = 0, 0.0, 0.0, 0.0

    def add(self, steps, tokens, seconds, waited):
        self.loops += 1
        if self.loops == 2:
            self._clear()
        self.steps += steps
        self.tokens += tokens
        self.seconds += seconds
        self.waited += waited
        self.last = self._rates(steps, tokens, seconds, waited)

    def _rates(self, steps, tokens, seconds, waited):
        return {
            "examples_per_second": steps * self.batch / seconds,
            "tokens_per_second": tokens / seconds,
            "input_wait": waited / seconds,
        }

    def summary(self):
        """Figures of all loops but the first, for `run.json`; nothing if no step was made."""
        if not self.loops:
            return {}
        rates = self._rates(self.steps, self.tokens, self.seconds, self.waited)
        return {**rates, "seconds_per_step": self.seconds / self.steps, "measured_steps": self.steps}
