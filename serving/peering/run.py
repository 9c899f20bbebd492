"""Starts every peer, compares what they compute, and lets them take turns."""

import contextlib
import time
from pathlib import Path

import numpy as np

from keras_posenc.benchmark import timing
from serving.peering import catalog, weights
from serving.peering.peers.product import FLOPS
from serving.peering.process import Missing, Process, python_of

TOLERANCE = 1e-3  # of outputs, whose layer normalisation makes them of order one
PAUSE = 0.02  # seconds before each turn, in which threads of the one before stop waiting for work


class Run:
    """
    Args:
        store: `keras_posenc.benchmark.store.Store`.
        size: name in `weights.SIZES`, or such a tuple.
        names: of `catalog.PEERS`; the baseline is always among them.
        batches, length: of the inputs.
        rounds, warmup: timed turns of each peer, and calls before the first.
        threads: of each peer.
        folder: for weights, exported models and logs.
        elsewhere: Python interpreter of the peers' environment, or `None`.
        progress: has `step(text)`.
    """

    def __init__(self, store, size, names, batches, length, rounds, warmup, threads, folder, elsewhere, progress):
        self.store, self.batches, self.length = store, list(batches), length
        self.rounds, self.warmup, self.threads = rounds, warmup, threads
        self.folder, self.elsewhere, self.progress = Path(folder), elsewhere, progress
        self.names = [catalog.BASELINE, *(name for name in names if name != catalog.BASELINE)]
        self.config = weights.configuration(size)

    def pending(self):
        """Batch sizes that are not finished."""
        return [batch for batch in self.batches if ("forward", batch, catalog.BASELINE) not in self.store]

    def steps(self):
        """How often `progress` will be told."""
        return len(self.names) + len(catalog.PRODUCTS) + len(self.pending()) if self.pending() else 0

    def all(self):
        batches = self.pending()
        if not batches:
            return
        weights.write(self.folder / "weights", self.config)
        with contextlib.ExitStack() as stack:
            processes = self._start(stack, batches)
            for batch in batches:
                self._check(processes, batch)
                self._measure(processes, batch)
                self.store.save()
                self.progress.step(f"batch {batch}: {self.rounds} rounds")

    def _start(self, stack, batches):
        found = {}
        for name in [*self.names, *catalog.PRODUCTS]:
            entry = catalog.ENTRIES[name]
            place = self.folder / name
            process = stack.enter_context(Process(name, entry, python_of(entry, self.elsewhere), place, self.threads))
            try:
                about = process.load(self.folder / "weights", batches, self.length)
            except Missing as reason:
                process.close()
                if name == catalog.BASELINE:
                    raise RuntimeError(f"Our own model cannot be measured: {reason}") from reason
                self.store.put(("missing", name), {"reason": str(reason)})
                self.progress.step(f"{entry.label}: skipped ({reason})")
                continue
            self.store.put(("peer", name), about)
            found[name] = process
            self.progress.step(f"{entry.label}: loaded")
        return found

    def _check(self, processes, batch):
        """All peers compute the same, or there is nothing to compare."""
        expected = processes[catalog.BASELINE].answer(batch)
        for name in self._peers(processes):
            found = processes[name].answer(batch)
            apart = max(float(np.abs(found[key] - expected[key]).max()) for key in expected)
            if not apart <= TOLERANCE:
                raise RuntimeError(f"{name} computes something else: outputs are {apart:.2g} away from ours.")
            self.store.put(("apart", batch, name), apart)

    def _measure(self, processes, batch):
        cpu = {name: [] for name in processes}

        def turn(name):
            def take():
                time.sleep(PAUSE)
                # The first call finds caches as others left them; a busy server does not.
                found = processes[name].time(batch, 2)
                cpu[name].append(found["cpu_seconds"][-1])
                return found["seconds"][-1]

            return take

        for process in processes.values():
            process.time(batch, self.warmup)
        seconds = _interleave({name: turn(name) for name in processes}, self.rounds)
        baseline = seconds[catalog.BASELINE]
        for name in processes:
            found = timing.compare(seconds[name], baseline)
            found["fastest_milliseconds"] = float(seconds[name].min() * 1e3)
            found["cpu_milliseconds"] = float(np.median(cpu[name]) * 1e3)
            work = FLOPS if name in catalog.PRODUCTS else catalog.flops(self.config, batch, self.length)
            found["gflops"] = work / found["milliseconds"] / 1e6
            found["samples"] = [round(value * 1e3, 3) for value in seconds[name].tolist()]
            self.store.put(("forward", batch, name), found)

    def _peers(self, processes):
        return [name for name in processes if name in catalog.PEERS]


def _interleave(turns, rounds):
    """Like `timing.interleave`, with seconds that the functions return: those of the call, without the pipes."""
    rng, seconds = np.random.default_rng(0), {name: np.zeros(rounds) for name in turns}
    for number in range(rounds):
        for index in rng.permutation(len(turns)):
            name = list(turns)[index]
            seconds[name][number] = turns[name]()
    return seconds
