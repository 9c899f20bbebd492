"""Load on a server, from a process of its own: `python -m serving.measuring.generator`, started by `loads`.

In a closed loop each of a number of clients sends its next request when it has the answer to the last. In an open loop
requests are due at the times of a Poisson process, whether answers come or not, and latency counts from when a request
was due: a server that stalls is charged for the requests that should have come meanwhile (no coordinated omission).

Nothing here imports TensorFlow; requests arrive as bytes.
"""

import itertools
import pickle
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np

PREDICT = "/tensorflow.serving.PredictionService/Predict"


@dataclass
class Job:
    """
    Args:
        address: as `serving.client` takes it.
        name: of the model.
        payload: request, as it is sent: the body of REST, or a serialised `PredictRequest`.
        clients: requests at one time. In an open loop there must be enough that one is always free.
        duration: seconds.
        rate: requests a second of an open loop; `None` for a closed loop.
        timeout: seconds for an answer.
        seed: of the Poisson process.
    """

    address: str
    name: str
    payload: bytes = field(repr=False)
    clients: int
    duration: float
    rate: float | None = None
    timeout: float = 60.0
    seed: int = 0


def due_times(rate, duration, seed):
    """Seconds after the start at which a Poisson process of that rate asks, up to `duration`."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1 / rate, int(rate * duration + 10 * (rate * duration) ** 0.5 + 20))
    times = np.cumsum(gaps)
    return times[times < duration]


def sender(job):
    """A function that sends the request and waits for the answer, and one that closes the connections."""
    scheme, separator, rest_of_it = job.address.partition("://")
    if scheme in ("http", "https") or not (separator or job.address.startswith("unix:")):
        from serving.client.rest import Rest

        rest = Rest(job.address if separator else f"http://{job.address}", job.name, connections=job.clients)
        return lambda: rest.send(job.payload, job.timeout), rest.close
    import grpc

    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
    target = job.address if job.address.startswith("unix:") else rest_of_it.rstrip("/")
    if scheme == "grpcs":
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(), options)
    else:
        channel = grpc.insecure_channel(target, options)
    call = channel.unary_unary(PREDICT)
    return lambda: call(job.payload, timeout=job.timeout), channel.close


def generate(job, send, ready=lambda: None):
    """Runs the load.

    Args:
        job: `Job`.
        send: function without arguments.
        ready: called when all clients wait for the start; returns when they may.

    Returns: dict of `latency` (seconds, one for each answer), `late` (seconds by which sending lagged behind, open loop
    only), `answered` (seconds after the start), and `errors` (counts by kind).
    """
    times = None if job.rate is None else due_times(job.rate, job.duration, job.seed)
    turns = itertools.count()  # next() on it is atomic
    records, errors, lock = [], {}, threading.Lock()
    gate, start = threading.Event(), [0.0]

    def work():
        own = []
        gate.wait()
        while True:
            now = time.monotonic() - start[0]
            if times is None:
                due = now
                if now >= job.duration:
                    break
            else:
                turn = next(turns)
                if turn >= len(times):
                    break
                due = times[turn]
                if due > now:
                    time.sleep(due - now)
            sent = time.monotonic() - start[0]
            try:
                send()
                done = time.monotonic() - start[0]
                own.append((done - due, sent - due, done))
            except Exception as error:  # whatever it is, it is counted
                kind = error.code if hasattr(error, "code") else type(error).__name__
                kind = kind().name if callable(kind) else kind
                with lock:
                    errors[kind] = errors.get(kind, 0) + 1
        with lock:
            records.extend(own)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(job.clients)]
    for thread in threads:
        thread.start()
    ready()
    start[0] = time.monotonic()
    gate.set()
    for thread in threads:
        thread.join()
    latency, late, answered = np.array(records).reshape(-1, 3).T
    return {"latency": latency, "late": late, "answered": answered, "errors": errors}


def main():
    job = pickle.load(sys.stdin.buffer)
    send, close = sender(job)
    send()  # opens a connection, and fails here if nothing answers

    def ready():
        sys.stdout.buffer.write(b"ready\n")
        sys.stdout.buffer.flush()
        sys.stdin.buffer.readline()

    found = generate(job, send, ready)
    close()
    pickle.dump(found, sys.stdout.buffer)


if __name__ == "__main__":
    main()
