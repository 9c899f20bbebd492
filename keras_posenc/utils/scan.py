"""A scan whose gradient compiles under XLA."""

import keras
from keras import ops


def states(advance, initial, inputs):
    """The states before each input: `initial, advance(initial, inputs[0]), ...`, stacked along a new first axis.

    On TensorFlow this is `tf.scan`, which tells XLA the number of steps; `keras.ops.scan` does not, and its gradient
    cannot be compiled there.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        following = tf.scan(advance, inputs, initializer=initial)
    else:

        def step(state, x):
            state = advance(state, x)
            return state, state

        _, following = ops.scan(step, initial, inputs)
    return ops.concatenate([ops.expand_dims(initial, 0), following[:-1]], axis=0)
