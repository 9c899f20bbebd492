"""The process of one peer: reads requests from its standard input, a JSON object a line, and answers in kind.

    {"do": "load", ...}                    -> {"versions": {...}} or {"missing": "what is not installed"}
    {"do": "answer", "batch": 1, "file": ...}  -> {} and the outputs in an .npz file
    {"do": "time", "batch": 1, "calls": 1}     -> {"seconds": [...], "cpu_seconds": [...]}

What fails is `{"error": text}`. The process ends with its input.
"""

import importlib
import json
import os
import sys
import time
import traceback


class Worker:
    """Keeps the peer, and a prepared call for each batch size."""

    def __init__(self):
        self.peer, self.calls, self.length, self.config = None, {}, None, None

    def load(self, module, options, folder, work, threads, batches, length):
        from serving.peering import weights

        self.config, self.length = weights.read_config(folder), length
        try:
            made = importlib.import_module(f"serving.peering.peers.{module}").Peer
            self.peer = made(folder=folder, work=work, threads=threads, **options)
        except ImportError as error:
            return {"missing": str(error)}
        for batch in batches:
            self.calls[batch] = self.peer.prepare(weights.inputs(self.config, batch, length))
        return {"versions": self.peer.versions, "notes": getattr(self.peer, "notes", "")}

    def answer(self, batch, file):
        import numpy as np

        np.savez(file, **self.calls[batch]())
        return {}

    def time(self, batch, calls):
        call, seconds, cpu = self.calls[batch], [], []
        for _ in range(calls):
            used, begin = time.process_time(), time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - used)
        return {"seconds": seconds, "cpu_seconds": cpu}


def pin(threads):
    """Keeps this process, whatever starts threads in it, on so many cores."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])


def main(threads):
    # Libraries print to standard output; answers go another way.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    pin(threads)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:  # whatever a library raises is for the parent to tell
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
