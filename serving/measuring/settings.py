"""What measurements depend on, and which there are."""

from dataclasses import dataclass

WAYS = ("in process", "grpc", "rest")
SERVED = WAYS[1:]
SIGNATURES = ("serving_default", "attention", "effective_attention", "layer_attention")
TASKS = ("latency", "signatures", "throughput", "load")
BASELINE = "learned"
UNFOLDED = "_unfolded"


@dataclass(frozen=True)
class Settings:
    """Figures made with other values of these are not comparable.

    Args:
        model: name of a preset.
        length: tokens of a request.
        max_length: most tokens of a request, the size of folded positions.
        rounds, warmup: calls of each kind that are timed, and that are not.
        pause: seconds before each timed call, in which threads of the call before go to sleep.
        duration, load_rounds: seconds of load for each measurement, and how many there are of a throughput.
        threads: of TensorFlow, in the server and in process; 0 for one a core.
        parts: of the exported models. With more than one, TensorFlow has one thread within an operation and so many
            between them.
        processes: that generate load.
        batch_threads, batch_timeout: of request batching (threads, microseconds).
        server: addresses of a server that is not ours, or `None`.
    """

    model: str = "bert_small"
    length: int = 128
    max_length: int = 128
    rounds: int = 100
    warmup: int = 5
    pause: float = 0.005
    duration: float = 5.0
    load_rounds: int = 7
    threads: int = 0
    parts: int = 1
    processes: int = 1
    batch_threads: int = 1
    batch_timeout: int = 5000
    server: tuple | None = None

    @property
    def pools(self):
        """Threads of TensorFlow within an operation and between operations; 0 for one a core."""
        return (1, self.parts) if self.parts > 1 else (self.threads, 0)


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Args:
        names: models, in order: encodings, or what a server calls its models.
        batches: rows of a request.
        tasks: of `TASKS`.
        protocols: of `SERVED`.
        load_names: models whose throughput and load curve are measured.
        concurrency: clients at one time, in increasing order.
        fractions: offered load, as parts of the largest throughput.
        limit: seconds for the rounds of one throughput (a model and a number of clients, all ways); rounds that would
            go beyond it are left out, but for the first two.
        group: models beside the baseline that are served at one time.
    """

    names: tuple
    batches: tuple = (1, 8)
    tasks: tuple = TASKS
    protocols: tuple = SERVED
    load_names: tuple = ()
    concurrency: tuple = (1, 16)
    fractions: tuple = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.2)
    limit: float = 120.0
    group: int = 4


def batching_text(concurrency, settings):
    """`BatchingParameters` for that many clients, each with one row: a batch is full when all of them wait."""
    return (
        f"max_batch_size {{ value: {max(concurrency)} }}\n"
        f"batch_timeout_micros {{ value: {settings.batch_timeout} }}\n"
        f"num_batch_threads {{ value: {settings.batch_threads} }}\n"
        "max_enqueued_batches { value: 1000 }\n"
    )
