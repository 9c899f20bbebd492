"""The life of one version: loading with retries, being used, unloading when the last request has left."""

import contextlib
import logging
import threading
import time

import tensorflow as tf

from serving.server import batching, protos, warmup
from serving.server.errors import ServingError, from_tensorflow
from serving.server.servable import Servable

START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"
log = logging.getLogger(__name__)


class Loader:
    """How versions are loaded: what all models of a server have in common.

    Args:
        batching_parameters: `batching.Parameters`, or `None`.
        per_model_batching: `batching_params.pbtxt` in a version's folder replaces them.
        warm_up: replay the stored requests, `warmup_iterations` times each.
        check_methods: see `Servable`.
        retries, retry_interval: more attempts after one that failed, and seconds between them.
        threads: versions loaded at once.
        metrics: `Metrics`.
    """

    def __init__(
        self,
        batching_parameters=None,
        per_model_batching=False,
        warm_up=True,
        warmup_iterations=1,
        check_methods=False,
        retries=5,
        retry_interval=60.0,
        threads=1,
        metrics=None,
    ):
        self.batching_parameters = batching_parameters
        self.per_model_batching = per_model_batching
        self.warm_up = warm_up
        self.warmup_iterations = warmup_iterations
        self.check_methods = check_methods
        self.retries = retries
        self.retry_interval = retry_interval
        self.metrics = metrics
        self.slots = threading.Semaphore(max(threads, 1))

    def load(self, path):
        """A `Servable` that has answered its warm-up requests."""
        start, status = time.perf_counter(), "fail"
        try:
            servable = Servable(path, self._batching(path), self.check_methods)
            status = "success"
        finally:
            if self.metrics is not None:
                self.metrics.loaded(path, status, time.perf_counter() - start)
        try:
            if self.warm_up:
                warmup.warm_up(servable, self.metrics, self.warmup_iterations)
        except BaseException:
            servable.close()
            raise
        return servable

    def _batching(self, path):
        if self.batching_parameters is None or not self.per_model_batching:
            return self.batching_parameters
        file = f"{path}/{batching.PER_MODEL_FILE}"
        if not tf.io.gfile.exists(file):
            return None  # as in TF-Serving: with per-model parameters, a model without them is not batched
        try:
            return batching.parameters(protos.read_text(file, protos.BatchingParameters()))
        except ValueError as error:
            raise ServingError("INVALID_ARGUMENT", str(error)) from error


class Version:
    """One version of a model, and its state. `changed` is called after every change of state."""

    def __init__(self, name, number, path, loader, changed):
        self.name, self.number, self.path = name, number, path
        self.state, self.error = START, None
        self.wanted = True
        self.again = None  # the path to load from, if it is asked for again while it is on its way out
        self._loader, self._changed = loader, changed
        self._servable, self._users, self._closing = None, 0, False
        self._free = threading.Condition()
        self._unwanted = threading.Event()

    def __str__(self):
        return f"{{name: {self.name} version: {self.number}}}"

    def start(self):
        threading.Thread(target=self._load, name=f"load {self}", daemon=True).start()

    def unwant(self):
        """Nobody asks for this version any more: no further attempts to load it."""
        self.wanted, self.again = False, None
        self._unwanted.set()

    def unload(self):
        """Takes no new requests from now on, and is freed when the last has left."""
        with self._free:
            self._closing = True
        self._set(UNLOADING)
        threading.Thread(target=self._unload, name=f"unload {self}", daemon=True).start()

    @contextlib.contextmanager
    def use(self):
        """The servable, kept until the end of the block, or `None` if it is about to be unloaded."""
        with self._free:
            servable = None if self._closing else self._servable
            self._users += servable is not None
        try:
            yield servable
        finally:
            if servable is not None:
                with self._free:
                    self._users -= 1
                    if self._closing and not self._users:
                        self._free.notify_all()

    def _load(self):
        self._set(LOADING)
        for attempt in range(self._loader.retries + 1):
            try:
                with self._loader.slots:
                    if not self.wanted:
                        break
                    servable = self._loader.load(self.path)
                with self._free:
                    self._servable = servable
                log.info("Loaded %s from %s", self, self.path)
                return self._set(AVAILABLE)
            except Exception as error:
                self.error = error if isinstance(error, ServingError) else from_tensorflow(error)
                log.error("Loading %s failed, attempt %d: %s", self, attempt + 1, self.error)
            if attempt < self._loader.retries and self._unwanted.wait(self._loader.retry_interval):
                break
        if not self.wanted and self.error is None:
            self.error = ServingError("CANCELLED", "Load of the version was cancelled")
        self._set(END)

    def _unload(self):
        with self._free:
            self._free.wait_for(lambda: not self._users)
            servable, self._servable = self._servable, None
        servable.close()
        log.info("Unloaded %s", self)
        self._set(END)

    def _set(self, state):
        self.state = state
        if state in (AVAILABLE, UNLOADING):
            self.error = None
        self._changed(self)
