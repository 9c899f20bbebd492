"""Starts load generators, and puts together what they saw."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np

from serving.client.client import connect
from serving.measuring.generator import Job
from serving.measuring.server import ROOT

OPEN_CLIENTS = 128  # of an open loop; a late request is reported as such
STARTING = 3.0  # seconds to expect for the start of a generator and the answers that are late


def payload(address, name, given, signature="serving_default"):
    """A request as bytes."""
    transport = connect(address, name)
    try:
        request = transport.prepare(given, signature)
    finally:
        transport.close()
    return request if isinstance(request, bytes) else request.SerializeToString()


def closed(address, name, request, clients, duration, processes=1):
    """Answers a second, their latencies in seconds, and the errors."""
    processes = min(processes, clients)
    shares = [clients // processes + (number < clients % processes) for number in range(processes)]
    found = _run([Job(address, name, request, share, duration) for share in shares])
    return steady_rate(found["answered"], clients, duration), found["latency"], found["errors"]


def steady_rate(answered, clients, duration):
    """Answers a second from the first answers, one for each client, to the last one within `duration`.

    Counting all answers and dividing by `duration` would take the batch under way at the end for idle time: with
    batches of 0.4 seconds, two percent of ten seconds.
    """
    times = np.sort(answered)
    within = times[times <= duration]
    if len(within) <= clients:  # not even two each: all there is, until the last one came
        return len(times) / max(duration, times[-1]) if len(times) else 0.0
    return float((len(within) - clients) / (within[-1] - within[clients - 1]))


def opened(address, name, request, rate, duration, seed=0, processes=1):
    """What a Poisson process of requests meets: dict of `latency`, `late`, `answered` and `errors`."""
    job = Job(address, name, request, OPEN_CLIENTS, duration, rate / processes)
    return _run([replace(job, seed=seed * processes + number) for number in range(processes)])


def _run(jobs):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "serving.measuring.generator"]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) for _ in jobs]
    try:
        for process, job in zip(started, jobs):
            pickle.dump(job, process.stdin)
            process.stdin.flush()
        for process, job in zip(started, jobs):
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"A load generator failed to reach {job.name} at {job.address}; see above.")
        for process in started:
            process.stdin.write(b"go\n")
            process.stdin.flush()
        parts = [pickle.load(process.stdout) for process in started]
    finally:
        for process in started:
            process.stdin.close()
            process.stdout.close()
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()
            process.wait()
    errors = {}
    for part in parts:
        for kind, count in part["errors"].items():
            errors[kind] = errors.get(kind, 0) + count
    return {"errors": errors, **{n: np.concatenate([p[n] for p in parts]) for n in ("latency", "late", "answered")}}
