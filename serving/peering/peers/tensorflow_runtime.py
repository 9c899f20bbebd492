"""TensorFlow for the peers that run on it."""

import importlib.metadata


def start(threads, within=None):
    """TensorFlow with so many threads between operations, and `within` (by default as many) inside of one."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads if within is None else within)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return tf


def versions(*packages):
    return {name: importlib.metadata.version(name) for name in packages}
