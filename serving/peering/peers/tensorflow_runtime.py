"""TensorFlow for the peers that run on it."""

import importlib.metadata


def start(threads):
    """TensorFlow with so many threads for the work inside an operation, and its default between operations."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return tf


def versions(*packages):
    return {name: importlib.metadata.version(name) for name in packages}
