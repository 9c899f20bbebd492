"""Goes over everything that is to be measured and is not in the store yet."""

import contextlib
import time
from pathlib import Path

import numpy as np

from serving.measuring import loads, statistics
from serving.measuring.calls import InProcess, Served, check_same, requests, take_turns
from serving.measuring.server import MeasuredServer, available
from serving.measuring.settings import BASELINE, SIGNATURES, UNFOLDED, batching_text

IN_PROCESS = "in process"
WARM = 2.0  # seconds of the load that is not measured
LEAST_ROUNDS = 2  # of a throughput, whatever the limit


class Run:
    """
    Args:
        plan: `Plan`.
        settings: `Settings`.
        store: `keras_posenc.benchmark.store.Store`.
        folder: for models, configuration and log of the server.
        progress: has `step(text)`.
        keep: whether exported models stay.
    """

    def __init__(self, plan, settings, store, folder, progress, keep=False):
        self.plan, self.settings, self.store = plan, settings, store
        self.folder, self.progress, self.keep = Path(folder), progress, keep

    def pending(self):
        """`(task, group of names)` that are not finished."""
        plan, found = self.plan, []
        sequential = [task for task in ("latency", "signatures") if task in plan.tasks]
        others = [name for name in plan.names if name != BASELINE]
        groups = [others[i : i + plan.group] for i in range(0, len(others), plan.group)] or [[]]
        if BASELINE in plan.names:
            groups[0] = [BASELINE, *groups[0]]
        for group in groups:
            tasks = [task for task in sequential if any(self._left(task, name) for name in group)]
            if tasks:
                found.append((tasks, group))
        for name in plan.load_names:
            tasks = [task for task in ("throughput", "load") if task in plan.tasks and self._left(task, name)]
            if tasks:
                found.append((tasks, [name]))
        return found

    def expected(self):
        """Sentences on how long throughputs and load curves take at most, if no answer is late."""
        plan, settings = self.plan, self.settings
        names = {task: sum(task in tasks for tasks, _ in self.pending()) for task in ("throughput", "load")}
        ways = len(plan.protocols) + (settings.server is None)
        one = ways * (settings.duration + loads.STARTING)
        point = max(min(settings.load_rounds * one, plan.limit), LEAST_ROUNDS * one) + ways * (WARM + loads.STARTING)
        curve = len(plan.protocols) * len(plan.fractions) * (settings.duration + loads.STARTING)
        counts = {"throughput": len(plan.concurrency) * point, "load": curve}
        return [
            f"{task}: at most {counts[task]:.0f} seconds for each of {count} models"
            for task, count in names.items()
            if count
        ]

    def _left(self, task, name):
        plan, ways = self.plan, self.plan.protocols
        if task == "latency":
            return any(("latency", batch, name, way) not in self.store for batch in plan.batches for way in ways)
        if task == "signatures":
            return any(("signatures", SIGNATURES[-1], name, way) not in self.store for way in ways)
        if task == "throughput":
            return any(("throughput", name, way, n) not in self.store for way in ways for n in plan.concurrency)
        return not all(self._loaded(name, way, part) for way in ways for part in plan.fractions)

    def _loaded(self, name, way, part):
        """Whether a point of the load curve is there: a part of the throughput of as many clients."""
        return (self.store.get(("load", name, way, part)) or {}).get("clients") == max(self.plan.concurrency)

    def all(self):
        """Measures what is pending, and saves after each group."""
        for tasks, group in self.pending():
            loaded = "throughput" in tasks or "load" in tasks
            with self._models(group, loaded) as (paths, addresses):
                for task in tasks:
                    getattr(self, f"_{task}")(paths, addresses, group)
                    self.store.save()
                    self.progress.step(f"{task}: {', '.join(group)}")
        if not self.keep and not self.settings.server:
            from serving.measuring import exports

            exports.remove(self.folder / "models")

    @contextlib.contextmanager
    def _models(self, group, loaded):
        """Folders of models (`None` for those of a server that is not ours) and addresses by protocol."""
        settings = self.settings
        if settings.server:
            addresses = {way: address for way, address in settings.server if way in self.plan.protocols}
            yield dict.fromkeys(dict.fromkeys([*self._baseline(group), *group])), addresses
            return
        from serving.measuring import exports

        positions = list(dict.fromkeys([*([] if loaded else [BASELINE]), *group]))
        paths = exports.base_paths(self.folder / "models", positions, settings, twins=not loaded)
        batching = batching_text(self.plan.concurrency, settings) if loaded else None
        with MeasuredServer(paths, self.folder / "server", batching, settings.pools, 2 * loads.OPEN_CLIENTS) as server:
            yield paths, {way: server.addresses[way] for way in self.plan.protocols}
        if not self.keep:
            exports.remove(*(path for name, path in paths.items() if name.removesuffix(UNFOLDED) != BASELINE))

    def _baseline(self, group):
        return [BASELINE] if BASELINE not in group and BASELINE in self.plan.names else []

    # Tasks. Each takes folders by names of models, addresses by protocol, and the names of the group.

    def _latency(self, paths, addresses, group):
        with self._callables(paths, addresses) as called:
            for batch in self.plan.batches:
                given = requests(batch, self.settings.length)
                check_same({key: model.predict(given) for key, model in called.items()})
                timed = {key: lambda model=model: model.predict(given) for key, model in called.items()}  # noqa: B023
                seconds = self._timed(timed)
                for (name, way), own in seconds.items():
                    if name.removesuffix(UNFOLDED) in group:
                        baseline = None if name == BASELINE else seconds.get((BASELINE, way))
                        self._put(("latency", batch, name, way), own, seconds.get((name, IN_PROCESS)), way, baseline)

    def _signatures(self, paths, addresses, group):
        chosen = {name: path for name, path in paths.items() if name in group}
        with self._callables(chosen, addresses) as called:
            for name in chosen:
                ways = {way: model for (own, way), model in called.items() if own == name}
                timed = {}
                for signature in SIGNATURES:
                    given = requests(1, self.settings.length, signature)
                    for way, model in ways.items():
                        timed[signature, way] = lambda m=model, g=given, s=signature: m.predict(g, s)
                seconds = self._timed(timed)
                for (signature, way), own in seconds.items():
                    first = seconds[SIGNATURES[0], way] if signature != SIGNATURES[0] else None
                    key = ("signatures", signature, name, way)
                    self._put(key, own, seconds.get((signature, IN_PROCESS)), way, first)

    def _throughput(self, paths, addresses, group):
        """Rows a second with each number of clients, taking turns with the same model on batches in process."""
        (name,) = group
        settings, plan = self.settings, self.plan
        one = requests(1, settings.length)
        ways = {way: (address, loads.payload(address, name, one)) for way, address in addresses.items()}
        model = None if paths[name] is None else InProcess(paths[name])
        for clients in plan.concurrency:
            rates = {way: [] for way in [*([] if model is None else [IN_PROCESS]), *ways]}
            seen, errors = {way: [] for way in ways}, {way: 0 for way in ways}
            rng = np.random.default_rng(0)
            for turn in rounds(settings.load_rounds, plan.limit):
                duration = settings.duration if turn >= 0 else min(WARM, settings.duration)
                for way in rng.permutation(list(rates)):
                    if way == IN_PROCESS:
                        rate = _rows_a_second(model, requests(clients, settings.length), duration)
                    else:
                        rate, latency, failed = loads.closed(
                            ways[way][0], name, ways[way][1], clients, duration, settings.processes
                        )
                        if turn >= 0:
                            seen[way].append(latency)
                            errors[way] += sum(failed.values())
                    if turn >= 0:
                        rates[way].append(rate)
            for way, values in rates.items():
                found = {"rows_a_second": statistics.mean(values), "rounds": values}
                if way != IN_PROCESS:
                    found["latency"] = _percentiles(np.concatenate(seen[way]))
                    found["errors"] = errors[way]
                    if model is not None:
                        found["ratio"] = statistics.ratio(values, rates[IN_PROCESS])
                self.store.put(("throughput", name, way, clients), found)
            self.store.save()

    def _load(self, paths, addresses, group):
        """Latency at rates that are parts of the throughput of the most clients."""
        (name,) = group
        settings, plan = self.settings, self.plan
        given = requests(1, settings.length)
        for way, address in addresses.items():
            body = loads.payload(address, name, given)
            largest = self._largest(name, way, address, body)
            for number, part in enumerate(plan.fractions):
                if self._loaded(name, way, part):
                    continue
                rate = part * largest
                found = loads.opened(address, name, body, rate, settings.duration, number, settings.processes)
                last = max(settings.duration, found["answered"].max(initial=0.0))
                self.store.put(
                    ("load", name, way, part),
                    {
                        "clients": max(plan.concurrency),
                        "offered": rate,
                        "answered": len(found["latency"]) / last,
                        "latency": _percentiles(found["latency"]),
                        "late": _percentiles(found["late"]),
                        "errors": found["errors"],
                    },
                )
                self.store.save()

    # What they are made of.

    def _largest(self, name, way, address, body):
        """Rows a second of the most clients; measured once, if throughputs are not asked for."""
        settings, clients = self.settings, max(self.plan.concurrency)
        known = self.store.get(("throughput", name, way, clients))
        if known is not None:
            return known["rows_a_second"]["value"]
        key = ("largest", name, way, clients)
        if key not in self.store:
            for duration in (min(WARM, settings.duration), settings.duration):
                rate = loads.closed(address, name, body, clients, duration, settings.processes)[0]
            self.store.put(key, rate)
            self.store.save()
        return self.store.get(key)

    @contextlib.contextmanager
    def _callables(self, paths, addresses):
        made = {}
        try:
            for name, path in paths.items():
                if path is not None:
                    made[name, IN_PROCESS] = InProcess(path)
                for way, address in addresses.items():
                    made[name, way] = Served(address, name)
            yield made
        finally:
            for model in made.values():
                model.close()

    def _timed(self, functions):
        settings = self.settings
        return take_turns(functions, settings.rounds, settings.warmup, settings.pause)

    def _put(self, key, seconds, in_process, way, baseline):
        found = statistics.summary(seconds)
        if in_process is not None and way != IN_PROCESS:
            found["overhead"] = statistics.overhead(seconds, in_process)
        if baseline is not None:
            found["ratio"] = statistics.ratio(seconds, baseline)
        self.store.put(key, found)


def rounds(count, limit):
    """-1 for a round that warms up, then up to `count` numbers: no more when one as long as the last would end after
    `limit` seconds, but `LEAST_ROUNDS` at least."""
    yield -1
    begin = last = time.monotonic()
    for turn in range(count):
        now = time.monotonic()
        if turn >= LEAST_ROUNDS and now - begin + (now - last) > limit:
            return
        last = now
        yield turn


def served_names(address, names):
    """Those of `names` that a server has. One that does not answer is a `ClientError`."""
    return [name for name in names if available(address, name, absent=("NOT_FOUND",))]


def _rows_a_second(model, given, duration):
    begin, calls = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < duration:
        model.predict(given)
        calls += 1
    return calls * len(given["token_ids"]) / passed


def _percentiles(seconds):
    if not len(seconds):
        return None
    p50, p95, p99 = np.percentile(np.asarray(seconds) * 1e3, [50, 95, 99])
    return {"p50": float(p50), "p95": float(p95), "p99": float(p99), "count": len(seconds)}
