"""One step of training on every replica: gradient, sum over replicas, clipping, update."""

import keras
import tensorflow as tf

from training.engine.pipeline import parts_of


class Step:
    """What `strategy.run` runs.

    With `L_r` the sum of losses of replica `r` and `W_r` its sum of weights, the gradient is
    `sum_r grad L_r / sum_r W_r`: that of one device with the whole batch, however unequal the weights are.

    Dropout is a function of the seed, the step, the replica and the micro-batch: Keras' seed generators are given
    their states for the length of a call, and no state of theirs is ever changed or needs to be saved.

    Args:
        task: a `Task`.
        model, optimizer: built.
        options: `TrainOptions`.
        strategy: the strategy they were built under.
    """

    def __init__(self, task, model, optimizer, options, strategy):
        self.task, self.model, self.optimizer, self.options = task, model, optimizer, options
        self.replicas = strategy.num_replicas_in_sync
        self.variables = model.trainable_variables
        self.seed_states = [value for value in model.variables if value.name == "seed_generator_state"]
        self.loss_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        self.names = None  # of the rows of the table of figures, known when the step has been traced
        # A TPU compiles by itself. Sums over replicas cannot be inside a compiled function.
        compiled = options.xla and not isinstance(strategy, tf.distribute.TPUStrategy)
        self.gradients = tf.function(self._gradients, jit_compile=compiled, autograph=False)
        self.update = tf.function(self._update, jit_compile=True, autograph=False) if compiled else self._update
        if self.replicas > 1:
            self.update = self._update

    def __call__(self, batch, step):
        """One step on this replica. Returns a table of `(sum, weight)`, the same on all: a row for each of `names`."""
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        gradients, table = self.gradients(batch, tf.cast(step, tf.int64) * self.replicas + replica)
        if self.replicas > 1:
            *gradients, table = context.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, table])
        return self.update(gradients, table)

    def _gradients(self, batch, number):
        """Gradients of the sum of losses, and the table of sums, over all micro-batches of this replica."""
        count = self.options.accumulation
        if count == 1:
            return self._micro_batch(batch, number)
        parts = parts_of(batch, count)

        def part(index):
            chosen = tf.nest.map_structure(lambda value: value[index], parts)
            return self._micro_batch(chosen, number * count + tf.cast(index, tf.int64))

        def body(index, sums):
            return index + 1, tf.nest.map_structure(tf.add, sums, part(index))

        # The first is outside of the loop: it says how many figures the task has.
        return tf.while_loop(lambda index, _: index < count, body, (tf.constant(1), part(0)), parallel_iterations=1)[1]

    def _micro_batch(self, batch, number):
        with keras.StatelessScope(state_mapping=self._seeds(number)), tf.GradientTape() as tape:
            loss, weight, figures = self.task.loss(self.model, batch, training=True)
            # Half precision has no room for sums, so a scaled loss is a mean; sums of gradients are float32.
            size = tf.maximum(tf.stop_gradient(weight), 1.0) if self.loss_scaled else None
            scaled = self.optimizer.scale_loss(loss / size) if self.loss_scaled else loss
        found = tape.gradient(scaled, [variable.value for variable in self.variables])
        self.used = [index for index, gradient in enumerate(found) if gradient is not None]
        # The gradient of an embedding lists its rows, some of them twice, and has no norm before they are added.
        gradients = [tf.convert_to_tensor(found[index]) for index in self.used]
        if self.loss_scaled:
            gradients = [gradient * size for gradient in gradients]
        tokens = sum(tf.size(batch[name], tf.int64) for name in ("token_ids", "target_ids") if name in batch)
        rows = {"loss": (loss, weight), "tokens": (tokens, 1.0), **figures}
        self.names = tuple(rows)
        return gradients, tf.stack([tf.stack([tf.cast(x, tf.float32) for x in row]) for row in rows.values()])

    def _seeds(self, number):
        """A state for every seed generator of the model."""
        if not self.seed_states:
            return []
        seed = tf.stack([tf.constant(self.options.seed % (2**31 - 1), tf.int32), tf.cast(number % (2**31), tf.int32)])
        shape = (len(self.seed_states), 2)
        states = tf.random.stateless_uniform(shape, seed, minval=0, maxval=2**31 - 1, dtype=tf.int32)
        return [(state, tf.cast(states[i], state.dtype)) for i, state in enumerate(self.seed_states)]

    def _update(self, gradients, table):
        # With a loss scale, gradients are larger by it until the optimizer divides: the norm must not be.
        scale = self.optimizer.scale_loss(tf.ones(())) if self.loss_scaled else 1.0
        factor = tf.math.divide_no_nan(1.0, table[0, 1])
        norm = tf.linalg.global_norm(gradients) * factor / scale
        if self.options.clip_norm:
            factor *= self.options.clip_norm / tf.maximum(norm, self.options.clip_norm)
        gradients = [gradient * factor for gradient in gradients]
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        self.optimizer.apply(gradients, [self.variables[index] for index in self.used])
        finite = tf.math.is_finite(norm)  # not so in a step that a loss scale leaves out
        return tf.concat([table, [[tf.where(finite, norm, 0.0), tf.cast(finite, tf.float32)], [rate, 1.0]]], axis=0)

    @property
    def row_names(self):
        """Names of the rows of the table that a step returns."""
        return (*self.names, "gradient_norm", "learning_rate")
