"""Checks whose errors say what was received and what to do."""

import keras
import numpy as np
from keras import ops


def positive_int(owner, name, value):
    """Returns `value` if it is a whole number of at least one, and says so otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{owner}: `{name}` must be an integer of at least 1. Received: {name}={value!r}")
    return int(value)


def positive(owner, name, value):
    if not (isinstance(value, (int, float, np.number)) and 0 < value < float("inf")):
        raise ValueError(f"{owner}: `{name}` must be a number above 0. Received: {name}={value!r}")
    return float(value)


def one_of(owner, name, value, allowed):
    if value not in allowed:
        raise ValueError(
            f"{owner}: `{name}` must be one of {', '.join(map(repr, allowed))}. Received: {name}={value!r}"
        )
    return value


def heads(owner, num_heads, hidden_dim):
    """Both, if they are whole numbers of at least one, and the first divides the second."""
    num_heads, hidden_dim = positive_int(owner, "num_heads", num_heads), positive_int(owner, "hidden_dim", hidden_dim)
    if hidden_dim % num_heads:
        raise ValueError(
            f"{owner}: `num_heads` must divide `hidden_dim`. Received: hidden_dim={hidden_dim}, num_heads={num_heads}"
        )
    return num_heads, hidden_dim


def built(layer, before):
    """Refuses a layer without weights; `before` says what they are needed for."""
    if not layer.built:
        raise ValueError(f"'{layer.name}' has no weights yet. Build the model or call it once before {before}.")


def static_int(value):
    """`value` as a Python int where it is known now, `None` where it is only known when a graph runs."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    values = concrete(value)
    return None if values is None or values.dtype.kind not in "iu" else int(values)


def concrete(tensor):
    """`tensor` as a NumPy array where its values are known now, `None` inside a traced or symbolic computation."""
    if tensor is None or isinstance(tensor, keras.KerasTensor):
        return None
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.is_tensor(tensor) and not hasattr(tensor, "numpy"):
            return None
    try:
        return np.asarray(keras.ops.convert_to_numpy(tensor))
    except Exception:  # a JAX tracer, or a backend's own symbolic tensor
        return None


def at_most(value, limit, message, then=None):
    """Raises `ValueError(message(value))` if `value > limit`: now if both are known, else when the graph runs.

    A length that is dynamic in a TensorFlow graph becomes an assertion of that graph, and the tensor returned (`then`,
    by default the value) waits for it, so that nothing computed from it can fail first and say less. XLA leaves out
    assertions: there lengths are static, and checked while tracing, but a position that is computed is not.
    """
    then = value if then is None else then
    known, most = static_int(value), static_int(limit)
    if known is None or most is None:
        return _when_run(lambda: value <= limit, message("more"), value, then)
    if known > most:
        raise ValueError(message(known))
    return then


def below(values, limit, message):
    """Raises `ValueError(message(bad))` for integers not in `[0, limit)`, now or when the graph runs, as `at_most`."""
    known = concrete(values)
    if known is None:
        return _when_run(lambda: ops.all((values >= 0) & (values < limit)), message("given"), values, values)
    bad = known[(known < 0) | (known >= limit)]
    if bad.size:
        raise ValueError(message(bad.ravel()[0]))
    return values


def equal(value, expected, message, then):
    """Raises `ValueError(message(value))` if `value != expected`, now or when the graph runs, as `at_most`."""
    known = static_int(value)
    if known is None:
        return _when_run(lambda: value == expected, message("another"), value, then)
    if known != expected:
        raise ValueError(message(known))
    return then


def all_true(values, message):
    """`values`, after `ValueError(message)` if some are false, now or when the graph runs, as `at_most`."""
    known = concrete(values)
    if known is None:
        return _when_run(lambda: ops.all(ops.cast(values, "bool")), message, values, values)
    if not known.all():
        raise ValueError(message)
    return values


def _when_run(condition, message, value, then):
    """`then`, which waits for the assertion of a TensorFlow graph; elsewhere there is none."""
    if keras.backend.backend() != "tensorflow" or isinstance(value, keras.KerasTensor):
        return then
    import tensorflow as tf

    with tf.control_dependencies([tf.debugging.Assert(condition(), [message, value])]):
        return tf.identity(then)
