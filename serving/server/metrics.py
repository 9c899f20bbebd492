"""Counters and histograms under TF-Serving's names, as a page for Prometheus.

TensorFlow's metric `/tensorflow/serving/request_count` is `:tensorflow:serving:request_count` to Prometheus. Labels and
buckets are TF-Serving's, so that its dashboards and alerts work.
"""

import bisect
import contextlib
import threading
import time

from serving.server.errors import ServingError

LATENCY = tuple(10 * 1.8**i for i in range(33))  # microseconds, to about 20 minutes
EXAMPLES = tuple(2**i for i in range(15))
DEFAULT_PATH = "/monitoring/prometheus/metrics"
# A client chooses the model name of a request, and with it a label. Past this many, new ones are not kept.
MAX_CELLS = 2000


class _Metric:
    def __init__(self, name, labels, limits=None):
        self.name = name.replace("/", ":")
        self.labels = labels
        self.limits = limits  # of a histogram; a counter has none
        self.cells = {}
        self.lock = threading.Lock()

    def add(self, values, amount=1):
        with self.lock:
            cell = self.cells.get(values)
            if cell is None:
                if len(self.cells) >= MAX_CELLS:
                    return
                cell = self.cells[values] = [0] if self.limits is None else [0.0] + [0] * (len(self.limits) + 1)
            cell[0] += amount
            if self.limits is not None:
                cell[1 + bisect.bisect_right(self.limits, amount)] += 1

    def lines(self):
        with self.lock:
            cells = {values: list(cell) for values, cell in self.cells.items()}
        if not cells:
            return
        yield f"# TYPE {self.name} {'counter' if self.limits is None else 'histogram'}"
        for values, (total, *buckets) in cells.items():
            pairs = ",".join(f'{label}="{_escape(value)}"' for label, value in zip(self.labels, values))
            if self.limits is None:
                yield f"{self.name}{{{pairs}}} {total}"
                continue
            count = 0
            for limit, bucket in zip([*(f"{limit:.6g}" for limit in self.limits), "+Inf"], buckets):
                count += bucket
                yield f'{self.name}_bucket{{{pairs}{"," if pairs else ""}le="{limit}"}} {count}'
            yield f"{self.name}_sum{{{pairs}}} {total:.12g}"
            yield f"{self.name}_count{{{pairs}}} {count}"


def _escape(value):
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """What the server counts. Every method may be called from any thread."""

    def __init__(self):
        requests = ("model_name", "API", "entrypoint")
        self._requests = _Metric("/tensorflow/serving/request_count", ("model_name", "status"))
        self._request_latency = _Metric("/tensorflow/serving/request_latency", requests, LATENCY)
        runtime = ("model_name", "API", "runtime")
        self._runtime_latency = _Metric("/tensorflow/serving/runtime_latency", runtime, LATENCY)
        self._example_counts = _Metric("/tensorflow/serving/request_example_counts", ("model",), EXAMPLES)
        self._example_total = _Metric("/tensorflow/serving/request_example_count_total", ("model",))
        warmup = ("model_path", "status")
        self._warmup = _Metric("/tensorflow/serving/model_warmup_latency", warmup, LATENCY)
        self._load_attempts = _Metric("/tensorflow/cc/saved_model/load_attempt_count", ("model_path", "status"))
        self._load_latency = _Metric("/tensorflow/cc/saved_model/load_latency", ("model_path",))
        self._runs = _Metric("/tensorflow/core/graph_runs", ())
        self._run_time = _Metric("/tensorflow/core/graph_run_time_usecs", ())

    @contextlib.contextmanager
    def request(self, model, api, entrypoint):
        """Times and counts the request made inside: `api` is Predict, predict, ..., `entrypoint` GRPC or REST."""
        start, status = time.perf_counter(), "INTERNAL"
        try:
            yield
            status = "OK"
        except ServingError as error:
            status = error.code
            raise
        finally:
            self._requests.add((model, status))
            if status == "OK":  # like TF-Serving: refused requests would make the latency look good
                self._request_latency.add((model, api, entrypoint), _micros(start))

    @contextlib.contextmanager
    def runtime(self, model, api):
        """Times the work of TensorFlow's runtime inside."""
        start = time.perf_counter()
        yield
        spent = _micros(start)
        self._runtime_latency.add((model, api, "TF1"), spent)
        self._runs.add(())
        self._run_time.add((), int(spent))

    def examples(self, model, count):
        self._example_counts.add((model,), count)
        self._example_total.add((model,), count)

    def loaded(self, path, status, seconds):
        self._load_attempts.add((path, status))
        self._load_latency.add((path,), int(seconds * 1e6))

    def warmed(self, path, status, seconds):
        self._warmup.add((path, status), seconds * 1e6)

    def text(self):
        """The page, in Prometheus' text format."""
        found = (metric for metric in vars(self).values() if isinstance(metric, _Metric))
        return "".join(f"{line}\n" for metric in sorted(found, key=lambda m: m.name) for line in metric.lines())


def _micros(start):
    return (time.perf_counter() - start) * 1e6
