"""Batches that are functions of the seed and the step."""

import dataclasses

import numpy as np
import tensorflow as tf

POOL = 8  # batches that are sorted by length together; with more, batches would differ in little but length
FOREVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """What a task's input pipeline is for: global `batch` and `seed`, and which of the `hosts` this one is."""

    batch: int
    seed: int
    host: int = 0
    hosts: int = 1

    @property
    def host_batch(self):
        """Number of rows of a batch that this host's devices take."""
        return self.batch // self.hosts

    @property
    def rows(self):
        """Which rows those are."""
        return slice(self.host * self.host_batch, (self.host + 1) * self.host_batch)


def batches_of(examples, batch, seed, start_step=0, map_fn=None, lengths=None, pipeline=None, group=1):
    """Batches of examples in random order, without end, from any step on.

    Every epoch has an order of its own, a function of `seed` and the number of the epoch; the examples that do not
    fill a batch are left out of it. Starting at a step costs one permutation, however many steps came before.

    Args:
        examples: dict of arrays with the same first dimension.
        batch: number of examples of a step.
        seed: of the order.
        start_step: number of steps made already.
        map_fn: function of a batch and its step (int64 scalar), run in parallel; what it draws must be a function
            of the two, e.g. with `tf.random.stateless_uniform`.
        lengths: of the examples; batches then have examples of similar lengths, in random order.
        pipeline: the engine's `Pipeline`. Without `map_fn`, only the rows of this host are gathered.
        group: number of neighbouring examples that stay together, such as the two of a minimal pair. Groups are
            shuffled, not examples; a batch has whole groups, and of examples of one length if `lengths` are given.

    Returns: a `tf.data.Dataset` of dicts of `(batch, ...)`.
    """
    count = check_examples(examples)
    if pipeline is not None and pipeline.batch != batch:
        raise ValueError(f"The task makes batches of {batch}, and the engine was given batch={pipeline.batch}.")
    check_group(group, batch, count)
    steps, groups = count // batch, batch // group
    if not steps:
        raise ValueError(f"There are {count} examples, fewer than batch={batch}. Choose a smaller batch.")
    rows = slice(None) if pipeline is None or map_fn is not None else pipeline.rows
    tensors = {name: tf.convert_to_tensor(value) for name, value in examples.items()}
    if lengths is not None:  # that of a group is the longest of it
        lengths = tf.reduce_max(tf.reshape(tf.convert_to_tensor(lengths, tf.int64), (-1, group)), axis=1)

    def epoch(number):
        order = permutation(count // group, seed, number)[: steps * groups]
        if lengths is not None:
            pool = tf.range(steps * groups, dtype=tf.int64) // (POOL * groups)
            by_length = tf.argsort(pool * (tf.reduce_max(lengths) + 1) + tf.gather(lengths, order), stable=True)
            order = tf.gather(order, by_length)
        batches = tf.reshape(order[:, None] * group + tf.range(group, dtype=tf.int64), (steps, batch))
        return batches if lengths is None else tf.gather(batches, permutation(steps, seed + 1, number))

    def gather(indices, step):
        found = {name: tf.gather(value, indices[rows]) for name, value in tensors.items()}
        return found if map_fn is None else map_fn(found, step)

    orders = tf.data.Dataset.range(start_step // steps, FOREVER).map(epoch).prefetch(1)
    indices = orders.flat_map(tf.data.Dataset.from_tensor_slices).skip(start_step % steps)
    numbered = tf.data.Dataset.zip(indices, tf.data.Dataset.range(start_step, FOREVER))
    return numbered.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def permutation(count, seed, number):
    """The numbers below `count` in an order that is a function of `(seed, number)`, int64."""
    noise = tf.random.stateless_uniform((count,), (seed, number), minval=None, maxval=None, dtype=tf.int64)
    return tf.cast(tf.argsort(noise, stable=True), tf.int64)


def eval_batches(examples, batch):
    """All examples once, in order, in batches of one shape.

    Rows beyond the last example repeat it. `weight`, float32 `(batch,)`, is 1 for examples (or what `examples` has
    under that name) and 0 for those rows.
    """
    count = check_examples(examples)
    tensors = {name: tf.convert_to_tensor(value) for name, value in examples.items()}
    weights = tf.cast(tensors.pop("weight", tf.ones((count,))), tf.float32)

    def gather(number):
        indices = number * batch + tf.range(batch, dtype=tf.int64)
        inside = tf.minimum(indices, count - 1)
        found = {name: tf.gather(value, inside) for name, value in tensors.items()}
        return {**found, "weight": tf.where(indices < count, tf.gather(weights, inside), 0.0)}

    numbers = tf.data.Dataset.range(-(-count // batch))
    return numbers.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def check_examples(examples):
    """The number of examples in a dict of arrays."""
    sizes = {name: len(value) for name, value in examples.items()}
    if len(set(sizes.values())) != 1 or not next(iter(sizes.values())):
        raise ValueError(f"The examples must be arrays of one length, at least 1. Received lengths: {sizes}")
    return next(iter(sizes.values()))


def check_group(group, batch, count):
    """Raises a `ValueError` unless batches, and all examples, are whole groups."""
    if batch % group:
        raise ValueError(
            f"Examples come in groups of {group} that stay in one batch: the batch must be a multiple of it. Received: "
            f"batch={batch}"
        )
    if count % group:
        raise ValueError(f"{count} examples are no whole groups of {group}.")


def distribute(strategy, task, options, start_step):
    """The task's training data, distributed: each replica gets its rows of every batch, in the order of replicas."""

    def for_host(context):
        hosts = context.num_input_pipelines
        pipeline = Pipeline(options.batch, options.seed, context.input_pipeline_id, hosts)
        data = task.train_data(start_step, pipeline=pipeline)
        size = _static_batch(data, pipeline)
        if size != pipeline.host_batch:
            data = data.map(lambda batch: tf.nest.map_structure(lambda value: value[pipeline.rows], batch))
        replicas = context.num_replicas_in_sync // hosts
        if replicas > 1:
            data = data.flat_map(lambda batch: tf.data.Dataset.from_tensor_slices(parts_of(batch, replicas)))
        return data.prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(for_host)


def parts_of(batch, count):
    """Every tensor of a batch as `(count, rows, ...)`."""

    def split(value):
        shape = tf.shape(value)
        parts = tf.reshape(value, tf.concat([[count, value.shape[0] // count], shape[1:]], axis=0))
        return tf.ensure_shape(parts, (count, value.shape[0] // count, *value.shape[1:]))

    return tf.nest.map_structure(split, batch)


def _static_batch(data, pipeline):
    sizes = {spec.shape[0] if spec.shape.rank else None for spec in tf.nest.flatten(data.element_spec)}
    if len(sizes) != 1 or not sizes <= {pipeline.batch, pipeline.host_batch}:
        raise ValueError(
            f"Training data must have batches of a static size of {pipeline.batch} in every feature. Received: "
            f"{ {name: tuple(spec.shape) for name, spec in data.element_spec.items()} }"
        )
    return sizes.pop()
