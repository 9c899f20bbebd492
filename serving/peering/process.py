"""The parent's side of `worker`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Missing(Exception):
    """A peer that is not installed."""


class Process:
    """A peer in a process of its own, as a context manager.

    Args:
        name: for messages and the log.
        entry: `catalog.Entry`.
        python: interpreter of its environment.
        work: folder for its files and its log.
        threads: it may use.
    """

    def __init__(self, name, entry, python, work, threads):
        self.name, self.entry, self.threads = name, entry, threads
        self.work = Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), "TF_CPP_MIN_LOG_LEVEL": "3"}
        # Only the folder of this project: packages of one environment must not be seen in another.
        environment |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        self._log = (self.work / "log.txt").open("w")
        self._child = subprocess.Popen(
            [str(python), "-m", "serving.peering.worker", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self.work,
            env=environment,
            text=True,
        )

    def load(self, folder, batches, length):
        """Loads the weights in `folder`. Returns versions and notes; raises `Missing` for what is not installed."""
        entry, given = self.entry, dict(folder=str(folder), work=str(self.work), threads=self.threads)
        found = self._ask("load", module=entry.module, options=entry.options, batches=batches, length=length, **given)
        if "missing" in found:
            raise Missing(found["missing"])
        return found

    def answer(self, batch):
        """What it computes, as a dict of arrays."""
        file = self.work / f"answer-{batch}.npz"
        self._ask("answer", batch=batch, file=str(file))
        with np.load(file) as found:
            return dict(found)

    def time(self, batch, calls):
        """Dict of `seconds` and `cpu_seconds`, an entry for each call."""
        return self._ask("time", batch=batch, calls=calls)

    def close(self):
        if self._child.poll() is None:
            self._child.stdin.close()
            try:
                self._child.wait(10)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._child.stdout.close()
        self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _ask(self, what, **arguments):
        try:
            self._child.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self.name} ended while it was asked to {what}; see {self._log.name}")
        found = json.loads(line)
        if "error" in found:
            raise RuntimeError(f"{self.name} could not {what}: {found['error']}; see {self._log.name}")
        return found


def python_of(entry, elsewhere):
    """The interpreter for an entry: that of the peers' environment where the entry wants it and there is one."""
    return elsewhere if entry.elsewhere and elsewhere is not None else sys.executable
