"""Requests of several clients run as one batch, by the rules of TF-Serving's batching session and its scheduler.

Each set of outputs of each signature of each version has a `Queue`. A request goes into the last batch of its queue; a
batch is ready to run when another has been started behind it, when it is full, or when its first request has waited
long enough. One `Scheduler` (a pool of threads) runs the batches of everybody with the same parameters. A batch that
nobody waits for any more is not run.

TensorFlow has an operation for it, `BatchFunction`, but keeps some memory for ever of every batch that fails in it.
"""

import collections
import itertools
import os
import threading
import time
from typing import NamedTuple

import numpy as np

from serving.server import waiting
from serving.server.errors import ServingError, failed_precondition, from_tensorflow, invalid

PER_MODEL_FILE = "batching_params.pbtxt"
MAX_WAIT = 3600.0  # seconds at a time
MIXED_SHAPES = (
    "Tensors with name '{}' from different tasks have different shapes and padding is turned off."
    "Set pad_variable_length_inputs to true, or ensure that all tensors with the same name"
    "have equal dimensions starting with the first dim."
)
EXPIRED = "Run() timeout exceeded while waiting in batching queue"
WRONG_ROWS = (
    "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input tensors"
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


def check_sizes(arrays):
    """All inputs need the batch in front."""
    arrays = list(arrays)
    if not arrays:
        raise invalid("Batching Run() must have at least one input tensor")
    if any(array.ndim == 0 for array in arrays):
        raise invalid("Batching Run() input tensors must have at least one dimension")
    if len({len(array) for array in arrays}) > 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")


class Scheduler:
    """Threads that run batches of queues in turn. They live as long as there are queues."""

    def __init__(self, threads):
        self.changed = threading.Condition()
        self._threads = threads
        self._queues, self._team = collections.deque(), None

    def add(self, queue):
        with self.changed:
            if not self._queues:
                self._team = object()
                for _ in range(self._threads):
                    threading.Thread(target=self._work, args=(self._team,), name="batches", daemon=True).start()
            self._queues.append(queue)

    def remove(self, queue):
        with self.changed:
            self._queues.remove(queue)
            if not self._queues:
                self._team = None
                self.changed.notify_all()

    def _work(self, team):
        while True:
            with self.changed:
                queue, batch = self._next(team)
            if batch is None:
                return
            queue.execute(batch)
            queue = batch = None  # the next may be long in coming, and these hold inputs and outputs

    def _next(self, team):
        while self._team is team:
            now, soonest = time.monotonic(), MAX_WAIT
            for _ in range(len(self._queues)):
                queue = self._queues[0]
                self._queues.rotate(-1)
                wait = queue.wait(now)
                if wait <= 0:
                    batch = queue.take()
                    if any(other.wait(now) < MAX_WAIT for other in self._queues):
                        self.changed.notify()  # another thread looks after the rest
                    return queue, batch
                soonest = min(soonest, wait)
            self.changed.wait(soonest)
        return None, None


_SCHEDULERS, _LOCK = {}, threading.Lock()  # by their parameters; one of each kind for the process


class Queue:
    """Batches of one function that have not run yet.

    Args:
        function: from a list of arrays to a list of arrays, all with the batch in front.
        names: of its arguments.
        parameters: `Parameters`.
    """

    def __init__(self, function, names, parameters):
        self._function, self._names, self._parameters = function, names, parameters
        self._batches = collections.deque([_Batch()])  # the last one is open
        with _LOCK:
            self._scheduler = _SCHEDULERS.setdefault(parameters, Scheduler(parameters.num_batch_threads))
        self._scheduler.add(self)

    def close(self):
        self._scheduler.remove(self)
        self._function = None  # an idle thread may hold the queue until it next looks for work

    def run(self, arrays):
        """The function's results for these arrays, computed together with those of others."""
        request = _Request(arrays, waiting.current())
        with self._scheduler.changed:
            self._add(request)
        request.done.acquire()
        if request.failure is not None:
            raise ServingError(request.failure.code, request.failure.message)
        return [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in zip(*request.results)]

    def _add(self, request):
        limits, largest, batches = self._parameters, self._parameters.execution_size, self._batches
        if request.size > limits.max_batch_size:
            raise invalid(f"Task size {request.size} is larger than maximum input batch size {limits.max_batch_size}")
        free = largest - batches[-1].size
        capacity = (limits.max_enqueued_batches - len(batches)) * largest + free
        full = "The batch scheduling queue to which this task was submitted is full; "
        if limits.enable_large_batch_splitting:
            if request.size > capacity:
                room = (
                    f"task size is {request.size} but scheduling capacity is only {capacity} "
                    f"(num_enqueued_batches={len(batches)}, max_enqueued_batches={limits.max_enqueued_batches}, "
                    f"open_batch_size={batches[-1].size}, max_execution_batch_size={largest})"
                )
                raise ServingError("UNAVAILABLE", full + room)
        elif request.size > free and len(batches) >= limits.max_enqueued_batches:
            room = (
                f"currently {len(batches)} batches enqueued and max_enqueued_batches is {limits.max_enqueued_batches}"
            )
            raise ServingError("UNAVAILABLE", full + room)
        splits = [0, request.size]
        if limits.enable_large_batch_splitting and request.size > free:
            splits = sorted({0, *range(free, request.size, largest), request.size})
        request.results = [None] * (len(splits) - 1)
        request.missing = len(request.results)
        for index, (start, stop) in enumerate(itertools.pairwise(splits)):
            if batches[-1].size + stop - start > largest:
                batches.append(_Batch())
            batch = batches[-1]
            batch.parts.append(_Part(request, index, start, stop))
            batch.size += stop - start
            batch.due = batch.due or time.monotonic() + limits.batch_timeout_micros / 1e6
            if len(batch.parts) == 1 or batch.size == largest:
                self._scheduler.changed.notify()

    def wait(self, now):
        """Seconds until there is a batch to `take`: zero or less if there is. Both need the scheduler's lock."""
        first = self._batches[0]
        if not first.parts:
            return MAX_WAIT
        ready = len(self._batches) > 1 or first.size >= self._parameters.execution_size
        return 0 if ready else min(first.due - now, MAX_WAIT - 1)

    def take(self):
        if len(self._batches) == 1:
            self._batches.append(_Batch())
        return self._batches.popleft()

    def execute(self, batch):
        """Runs a batch and hands its results, or its failure, to the requests in it."""
        try:
            if not any(part.request.is_waiting() for part in batch.parts):
                raise ServingError("RESOURCE_EXHAUSTED", EXPIRED)
            size = next((n for n in self._parameters.allowed_batch_sizes if n >= batch.size), batch.size)
            size = size if batch.size else 0
            outputs = self._function(self._join(batch.parts, size))
            for output in outputs:
                if not np.ndim(output):
                    raise failed_precondition("Batched output tensor has 0 dimensions")
                if len(output) != size:
                    raise failed_precondition(WRONG_ROWS)
            failure, row = None, 0
            for part in batch.parts:
                rows = slice(row, row + part.stop - part.start)
                part.request.results[part.index] = [_rows_of(output, rows) for output in outputs]
                row = rows.stop
        except Exception as error:  # TensorFlow's own, or too little memory
            # Without its stack, which has this batch in it, and the batch the failure.
            failure = error.with_traceback(None) if isinstance(error, ServingError) else from_tensorflow(error)
        with self._scheduler.changed:
            for part in batch.parts:
                part.request.finish(failure)

    def _join(self, parts, size):
        """Arrays of a batch of `size` rows."""
        if len(parts) == 1 and parts[0].stop - parts[0].start == size == parts[0].request.size:
            return parts[0].request.arrays
        joined = []
        for name, arrays in zip(self._names, zip(*(part.request.arrays for part in parts))):
            shapes = {array.shape[1:] for array in arrays}
            pads = self._parameters.pad_variable_length_inputs and len(set(map(len, shapes))) == 1
            if len(shapes) > 1 and not pads:
                raise failed_precondition(MIXED_SHAPES.format(name))
            joined.append(_stack(parts, arrays, size, tuple(map(max, zip(*shapes)))))
        return joined


def _stack(parts, arrays, size, shape):
    """Rows of the parts one after the other, padded to `shape`. Rows that are still missing repeat the first."""
    stacked, row = np.empty((size, *shape), arrays[0].dtype), 0
    for part, array in zip(parts, arrays):
        rows = stacked[row : row + part.stop - part.start]
        row += len(rows)
        if array.shape[1:] != shape:
            # TF-Serving pads with the first element of the tensor, whatever it means.
            rows[...] = array.flat[0] if array.size else (b"" if array.dtype == object else 0)
        rows[(slice(None), *map(slice, array.shape[1:]))] = array[part.start : part.stop]
    stacked[row:] = stacked[:1]
    return stacked


def _rows_of(output, rows):
    """A copy unless they are all: a view would keep the outputs of the whole batch for as long as one is being sent."""
    return output if rows.stop - rows.start == len(output) else output[rows].copy()


class _Request:
    def __init__(self, arrays, is_waiting):
        self.arrays, self.size, self.is_waiting = arrays, len(arrays[0]), is_waiting
        self.results, self.missing, self.failure = [], 0, None
        self.done = threading.Lock()
        self.done.acquire()

    def finish(self, failure):
        """One of its parts has run."""
        self.failure = self.failure or failure
        self.missing -= 1
        if not self.missing:
            self.done.release()


class _Part(NamedTuple):
    """Rows `start` to `stop` of a request, whose results go to the place `index`."""

    request: _Request
    index: int
    start: int
    stop: int


class _Batch:
    def __init__(self):
        self.parts, self.size, self.due = [], 0, None
