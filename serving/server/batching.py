"""Requests of several clients run as one batch.

The scheduler is TensorFlow's batch op, the same code that TF-Serving's batching session uses. One scheduler (a pool of
batch threads) serves everybody with the same parameters; each set of outputs of each signature of each version has a
queue of its own in it.

Two names matter to the op: `shared_name` is the scheduler, `batching_queue` the queue. The op never deletes either, so
both are taken from a `Queues` and given back when a version is unloaded; every task carries its own function, which
makes a queue that has run empty as good as new.
"""

import itertools
import os
import threading
from typing import NamedTuple

import tensorflow as tf

from serving.server.errors import ServingError, invalid

PER_MODEL_FILE = "batching_params.pbtxt"
MIXED_SHAPES = (
    "Tensors with name '{}' from different tasks have different shapes and padding is turned off."
    "Set pad_variable_length_inputs to true, or ensure that all tensors with the same name"
    "have equal dimensions starting with the first dim."
)


class Parameters(NamedTuple):
    """TF-Serving's batching parameters with its defaults."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None

    @property
    def execution_size(self):
        """The largest batch that runs at once."""
        splits = self.enable_large_batch_splitting and self.max_execution_batch_size is not None
        return self.max_execution_batch_size if splits else self.max_batch_size


def parameters(proto):
    """`Parameters` of a `BatchingParameters` message, checked."""
    given = {}
    for field in Parameters._fields:
        kind = proto.DESCRIPTOR.fields_by_name[field]
        if field == "allowed_batch_sizes":
            given[field] = tuple(proto.allowed_batch_sizes)
        elif kind.message_type is None:
            given[field] = getattr(proto, field)
        elif proto.HasField(field):
            given[field] = getattr(proto, field).value
    found = Parameters(**given)
    for field, least in (("max_batch_size", 1), ("batch_timeout_micros", 0), ("max_enqueued_batches", 1)):
        if getattr(found, field) < least:
            raise invalid(f"{field} must be at least {least}; was {getattr(found, field)}")
    if found.num_batch_threads < 1:
        raise invalid(f"num_batch_threads must be positive; was {found.num_batch_threads}")
    if not 1 <= found.execution_size <= found.max_batch_size:
        raise invalid(
            f"max_execution_batch_size must be between 1 and max_batch_size {found.max_batch_size}; "
            f"was {found.max_execution_batch_size}"
        )
    sizes = found.allowed_batch_sizes
    if any(a >= b for a, b in itertools.pairwise(sizes)) or (sizes and sizes[0] < 1):
        raise invalid(f"allowed_batch_sizes entries must be positive and in increasing order; were {list(sizes)}")
    if sizes and sizes[-1] != found.execution_size:
        raise invalid(
            "Last entry in allowed_batch_sizes must match max_batch_size, or max_execution_batch_size with large batch "
            f"splitting; last entry was {sizes[-1]}, expected {found.execution_size}"
        )
    return found


class Queues:
    """Names of queues: new ones, or those given back."""

    def __init__(self):
        self._lock = threading.Lock()
        self._free = {}
        self._count = itertools.count()

    def take(self, parameters):
        with self._lock:
            free = self._free.setdefault(parameters, [])
            return free.pop() if free else f"queue_{next(self._count)}"

    def give_back(self, parameters, name):
        with self._lock:
            self._free[parameters].append(name)


QUEUES = Queues()  # one for the process, as are the schedulers of the op


def check_sizes(arrays):
    """All inputs need the batch in front."""
    arrays = list(arrays)
    if not arrays:
        raise invalid("Batching Run() must have at least one input tensor")
    if any(array.ndim == 0 for array in arrays):
        raise invalid("Batching Run() input tensors must have at least one dimension")
    if len({len(array) for array in arrays}) > 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")


def batched(function, specs, parameters, queue):
    """`function` of a flat list of tensors, as a concrete function that runs it on batches.

    Args:
        function: takes tensors like `specs` and returns a list of tensors, all with the batch in front.
        specs: list of `tf.TensorSpec`.
        parameters: `Parameters`.
        queue: name of the queue.
    """
    sizes = list(parameters.allowed_batch_sizes)
    if parameters.enable_large_batch_splitting and not sizes:
        sizes = list(range(1, parameters.execution_size + 1))  # the op splits at the last allowed size
    if parameters.pad_variable_length_inputs:
        pack, unpack, inner_specs = _pack, _unpack, [packed for spec in specs for packed in _packed_specs(spec)]
    else:
        pack, unpack, inner_specs = list, lambda tensors, _: tensors, specs

    @tf.function(input_signature=inner_specs, autograph=False)
    def run(*tensors):
        return function(*unpack(tensors, specs))

    run = run.get_concrete_function()

    @tf.function(input_signature=specs, autograph=False)
    def enqueue(*tensors):
        return tf.raw_ops.BatchFunction(
            in_tensors=pack(tensors),
            captured_tensors=run.captured_inputs,
            f=run,
            Tout=[output.dtype for output in run.outputs],
            num_batch_threads=parameters.num_batch_threads,
            max_batch_size=parameters.max_batch_size,
            batch_timeout_micros=parameters.batch_timeout_micros,
            max_enqueued_batches=parameters.max_enqueued_batches,
            allowed_batch_sizes=sizes,
            enable_large_batch_splitting=parameters.enable_large_batch_splitting,
            shared_name=f"serving_{'_'.join(map(str, parameters))}",
            batching_queue=queue,
        )

    return enqueue.get_concrete_function()


def explain(error, names):
    """TF-Serving's error for requests of different lengths that met in one batch; others as they are."""
    if error.code == "INVALID_ARGUMENT" and "Dimensions of inputs should match" in error.message:
        return ServingError("FAILED_PRECONDITION", MIXED_SHAPES.format("', '".join(names)))
    return error


# Padding. The op concatenates along the batch and wants equal shapes, so rows travel as scalars of type variant, with
# their shape and padding value beside them, and are laid out again inside the batch.


def _packed_specs(spec):
    if _flat(spec):
        return [spec]
    rank = spec.shape.rank - 1
    return [
        tf.TensorSpec([None], tf.variant),
        tf.TensorSpec([None, rank], tf.int64),
        tf.TensorSpec([None], spec.dtype),
    ]


def _flat(spec):
    return spec.shape.rank is None or spec.shape.rank <= 1


def _pack(tensors):
    packed = []
    for tensor in tensors:
        if _flat(tensor):
            packed.append(tensor)
            continue
        batch, shape = tf.shape(tensor, tf.int64)[0], tf.shape(tensor, tf.int64)[1:]
        splits = tf.range(batch + 1) * tf.reduce_prod(shape)
        values = tf.reshape(tensor, [-1])
        rows = tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=values, batched_input=True)
        # TF-Serving pads with the first element of the tensor, whatever it means.
        padding = tf.concat([values[:1], tf.zeros([1], tensor.dtype) if tensor.dtype != tf.string else [""]], 0)[0]
        packed += [rows, tf.tile(shape[None], [batch, 1]), tf.fill([batch], padding)]
    return packed


def _unpack(tensors, specs):
    tensors = iter(tensors)
    return [next(tensors) if _flat(spec) else _lay_out(*itertools.islice(tensors, 3), spec) for spec in specs]


def _lay_out(rows, shapes, padding, spec):
    values = tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=rows, input_ragged_rank=0, output_ragged_rank=1, Tvalues=spec.dtype, Tsplits=tf.int64
    ).output_dense_values
    batch, largest = tf.shape(shapes, tf.int64)[:1], tf.reduce_max(shapes, 0)
    full = tf.concat([batch, largest], 0)

    def pad():
        rank = spec.shape.rank
        inside = tf.fill(full, True)
        for axis in range(1, rank):
            within = tf.range(largest[axis - 1]) < shapes[:, axis - 1, None]
            inside &= tf.reshape(within, [-1] + [1] * (axis - 1) + [largest[axis - 1]] + [1] * (rank - 1 - axis))
        background = tf.broadcast_to(tf.reshape(padding, [-1] + [1] * (rank - 1)), full)
        return tf.tensor_scatter_nd_update(background, tf.where(inside), values)

    laid = tf.cond(tf.reduce_all(shapes == largest), lambda: tf.reshape(values, full), pad)
    laid.set_shape([None, *spec.shape[1:]])
    return laid
