"""Keeping what an encoding computed, and making sure that it cannot go stale."""

import keras
import numpy as np
from keras import tree


def run_compiled(function):
    """Calls `function` under XLA, on the backends that have it."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False).get_concrete_function()()
    if backend == "jax":
        import jax

        return jax.jit(function)()
    return function()


class Fold:
    """Tables of an encoding for positions below `length`, kept in non-trainable variables.

    The variables are deliberately no weights of the layer: what is saved is the model, not its fold. While a fold
    exists, the weights it was made from are locked: they leave the trainable weights, and writing to them by
    `assign`, an optimizer, `load_weights` or a checkpoint is an error. When it is released its variables are filled
    with NaN, so that a function compiled before cannot go on serving the old values unnoticed.
    """

    def __init__(self, owner, length, make_tables):
        self.length = length
        tables = run_compiled(lambda: make_tables(length))
        # A bfloat16 layer still computes its positions in float32, and keeps them so.
        self.tables = tree.map_structure(
            lambda t: keras.Variable(
                t, trainable=False, autocast=False, dtype=keras.backend.standardize_dtype(t.dtype)
            ),
            tables,
        )
        self._locked = [(weight, weight.trainable) for weight in owner.weights]
        for weight, _ in self._locked:
            weight.trainable = False
            _lock(weight, owner.name)

    def release(self):
        for table in tree.flatten(self.tables):
            table.assign(np.full(table.shape, np.nan, dtype="float32"))
        for weight, trainable in self._locked:
            _unlock(weight)
            weight.trainable = trainable


_WRITERS = ("assign", "assign_add", "assign_sub", "_direct_assign", "_restore_from_tensors")


def _written_objects(weight):
    """The Keras variable and, on TensorFlow, the variable behind it, which optimizers write to directly."""
    inner = getattr(weight, "_value", None)
    return [weight] + ([inner] if hasattr(inner, "assign_sub") else [])


def _lock(weight, owner):
    def refuse(*_, **__):
        raise ValueError(
            f"The positions of `{owner}` are folded, so its weight `{weight.path}` cannot be changed: the model would "
            "go on serving the old bias. Call `unfold_positions()` first, and `fold_positions(length)` again after."
        )

    for target in _written_objects(weight):
        for writer in _WRITERS:
            if hasattr(target, writer):
                target.__dict__[writer] = refuse


def _unlock(weight):
    for target in _written_objects(weight):
        for writer in _WRITERS:
            target.__dict__.pop(writer, None)
