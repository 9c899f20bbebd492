"""SavedModels in TensorFlow's sessions, the runtime that TF-Serving uses.

The eager runtime computes the same, but keeps some memory for ever of every call that fails. So does a session where it
calls a function, which is why functions are inlined.
"""

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

_load = tf.compat.v1.saved_model.load.__wrapped__  # without the warning that it is old


def open_session(path, tags):
    """A session of a graph of its own with the SavedModel of the folder `path`, initialised.

    Threads are those of `tf.config.threading`, whose numbers are fixed from here on.
    """
    tf.config.list_logical_devices()  # all sessions share the pools of the first, so later changes have to be refused
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=True,
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
    )
    config.graph_options.optimizer_options.do_function_inlining = True
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default():
        _load(session, list(tags), path)
    return session


def function(session, feeds, fetches):
    """From a list of arrays to a list of arrays, for lists of names of tensors in the session's graph."""
    with session.graph.as_default():
        # A node that is fetched is not optimised away: a function would be called for all its outputs.
        fetches = [tf.identity(session.graph.get_tensor_by_name(name)).name for name in fetches]
    options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
    run = session._make_callable_from_options(options)  # the public `make_callable` with feeds calls `session.run`
    return lambda arrays: run(*arrays)
