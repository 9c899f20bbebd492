"""Whether a function is being compiled by XLA, for the few operations that XLA on a CPU is slow at."""

import keras


def inside_xla():
    """Whether the operations made now are those of a `tf.function` with `jit_compile=True`.

    Only TensorFlow is asked: JAX compiles everything with XLA, but calls LAPACK for factorisations. Where TensorFlow
    does not tell (XLA on a TPU, or switched on for a whole process), the answer is no, and results are the same.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False
