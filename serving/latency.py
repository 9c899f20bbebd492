"""`python -m serving.latency`: what encodings cost when they are served, over REST and gRPC.

    python -m serving.latency --positions=learned,diet_abs,rotary --output=latency
    python -m serving.latency --quick
    python -m serving.latency --server=localhost:8501,grpc://localhost:8500 --served=mrpc --output=remote

Exports each encoding, folded and not, starts the model server in a process of its own, and measures latency (in
process, gRPC and REST taking turns), the cost of each signature, throughput with request batching, and latency under an
open load. A run that was stopped goes on where it was. `index.html`, `table.txt`, CSV files and `results.json` are
written to --output.
"""

import dataclasses
import math
import shutil
import sys
import tempfile
from pathlib import Path

from absl import flags

from keras_posenc.utils.binary import start
from serving.client.errors import ClientError
from serving.measuring.settings import BASELINE, SERVED, TASKS, Plan, Settings

DEFAULTS, PLAN = Settings(), Plan(())
QUICK = dict(rounds=10, warmup=2, duration=2.0, load_rounds=2)
QUICK_PLAN = dict(batches=(1,), concurrency=(1, 16), fractions=(0.4, 0.8, 1.2))


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)

    def text(values):
        return ",".join(map(str, values))

    flags.DEFINE_list("positions", ["all"], "Encodings, or 'all'.", **named)
    flags.DEFINE_string("model", DEFAULTS.model, "Size of the model: a BERT of keras_posenc.models.list().", **named)
    flags.DEFINE_list("batch", None, f"Rows of a request (default: {text(PLAN.batches)}).", **named)
    flags.DEFINE_integer("length", DEFAULTS.length, "Tokens of a row.", 1, **named)
    flags.DEFINE_integer("max_length", None, "Positions that are folded (default: --length).", 1, **named)
    flags.DEFINE_list("tasks", list(TASKS), f"Of {text(TASKS)}.", **named)
    flags.DEFINE_list("protocols", list(SERVED), f"Of {text(SERVED)}.", **named)
    flags.DEFINE_integer("rounds", None, f"Timed calls of each kind (default: {DEFAULTS.rounds}).", 2, **named)
    flags.DEFINE_integer("warmup", None, f"Calls before those (default: {DEFAULTS.warmup}).", 0, **named)
    flags.DEFINE_float("pause", DEFAULTS.pause, "Seconds before each timed call.", 0.0, **named)
    flags.DEFINE_list(
        "load_positions", None, f"Encodings for throughput and load (default: {BASELINE} and diet_abs).", **named
    )
    flags.DEFINE_list("concurrency", None, f"Clients at one time (default: {text(PLAN.concurrency)}).", **named)
    flags.DEFINE_list(
        "load", None, f"Offered rates, as parts of the largest throughput (default: {text(PLAN.fractions)}).", **named
    )
    flags.DEFINE_float("duration", None, f"Seconds of each load (default: {DEFAULTS.duration:g}).", 0.1, **named)
    flags.DEFINE_integer("load_rounds", None, f"Throughputs of a kind (default: {DEFAULTS.load_rounds}).", 2, **named)
    flags.DEFINE_float("limit", PLAN.limit, "Most seconds for the rounds of one throughput.", 0.0, **named)
    flags.DEFINE_integer("processes", DEFAULTS.processes, "Processes that generate load.", 1, **named)
    flags.DEFINE_integer("threads", 0, "Threads of TensorFlow, served and in process; 0 is one a core.", 0, **named)
    parts = "Export models with --parts, and TensorFlow has so many threads between operations, one within."
    flags.DEFINE_integer("parts", 1, parts, 1, **named)
    flags.DEFINE_integer("batch_threads", DEFAULTS.batch_threads, "num_batch_threads of the server.", 1, **named)
    flags.DEFINE_integer("batch_timeout", DEFAULTS.batch_timeout, "batch_timeout_micros of the server.", 0, **named)
    flags.DEFINE_list("server", None, "Measure this server instead: host:port (REST), grpc://host:port.", **named)
    flags.DEFINE_list("served", None, "With --server: its models (default: those named as the encodings).", **named)
    flags.DEFINE_string("output", None, "Folder for results (default: a temporary one, which is removed).", **named)
    flags.DEFINE_bool("fresh", False, "Measure again what is in --output.", **named)
    flags.DEFINE_bool("keep_models", False, "Leave the exported models in --output.", **named)
    flags.DEFINE_bool("quick", False, f"A small run: {QUICK}, unless other flags say otherwise.", **named)


def read(values):
    """`Settings` and `Plan` of the parsed flags; wrong ones are a `ValueError`."""
    from keras_posenc import encodings
    from keras_posenc.models.presets import PRESETS

    quick, quick_plan = (QUICK, QUICK_PLAN) if values.quick else ({}, {})
    _among("model", [values.model], list(PRESETS["Bert"]))
    positions = encodings.names() if values.positions == ["all"] else values.positions
    _among("positions", positions, encodings.names())
    _among("tasks", values.tasks, TASKS)
    _among("protocols", values.protocols, SERVED)
    max_length = values.length if values.max_length is None else values.max_length
    if max_length < values.length:
        raise ValueError(f"--max_length={max_length} is less than --length={values.length}.")
    if values.parts > 1 and (values.threads or values.server):
        raise ValueError("--parts says how models are exported and threads used; leave out --threads and --server.")
    addresses = None
    protocols = tuple(way for way in SERVED if way in values.protocols)
    if values.server:
        addresses = tuple((_protocol(address), address) for address in values.server)
        protocols = tuple(way for way in protocols if way in dict(addresses))
        if len(dict(addresses)) < len(addresses) or not protocols:
            raise ValueError(f"--server has one address for each of --protocols. Received: {','.join(values.server)}")
    elif values.served:
        raise ValueError("--served names the models of another server; give its address with --server.")
    given = {name: getattr(values, name) for name in ("rounds", "warmup", "duration", "load_rounds")}
    settings = Settings(
        model=values.model,
        length=values.length,
        max_length=max_length,
        pause=values.pause,
        threads=values.threads,
        parts=values.parts,
        processes=values.processes,
        batch_threads=values.batch_threads,
        batch_timeout=values.batch_timeout,
        server=addresses,
        **{name: quick.get(name, getattr(DEFAULTS, name)) if v is None else v for name, v in given.items()},
    )
    names = tuple(dict.fromkeys(values.served or positions))
    load_names = values.load_positions or [n for n in (BASELINE, "diet_abs") if n in names] or names[:1]
    _among("load_positions", load_names, names)
    lists = {"batches": ("batch", int), "concurrency": ("concurrency", int), "fractions": ("load", float)}
    found = {field: _numbers(flag, getattr(values, flag), kind) for field, (flag, kind) in lists.items()}
    found = {field: quick_plan.get(field, getattr(PLAN, field)) if v is None else v for field, v in found.items()}
    tasks = tuple(task for task in TASKS if task in values.tasks)
    plan = Plan(names, tasks=tasks, protocols=protocols, load_names=tuple(load_names), limit=values.limit, **found)
    return settings, plan


def run(values):
    """Measures as the parsed flags say. Returns the text of the tables."""
    settings, plan = read(values)
    from keras_posenc.benchmark.store import Store
    from keras_posenc.utils.progress import Progress
    from serving.measuring import page
    from serving.measuring.run import Run, served_names

    if settings.server:
        have = served_names(settings.server[0][1], plan.names)
        if not have:
            raise ValueError(f"{settings.server[0][1]} has none of the models {', '.join(plan.names)}; see --served.")
        loaded = tuple(name for name in plan.load_names if name in have) or tuple(have[:1])
        plan = dataclasses.replace(plan, names=tuple(have), load_names=loaded)
    else:
        import tensorflow as tf

        within, between = settings.pools
        tf.config.threading.set_intra_op_parallelism_threads(within)
        tf.config.threading.set_inter_op_parallelism_threads(between)
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(values.output or temporary)
        described = {**dataclasses.asdict(settings), "server": settings.server and [list(s) for s in settings.server]}
        store = Store(output, described, values.fresh)
        if values.fresh:
            shutil.rmtree(output / "work", ignore_errors=True)  # models of other sizes, perhaps
        store.data["command"] = " ".join(["python -m serving.latency", *sys.argv[1:]])
        measured = Run(plan, settings, store, output / "work", None, values.keep_models)
        for sentence in measured.expected():
            print(sentence, file=sys.stderr)
        with Progress(sum(len(tasks) for tasks, _ in measured.pending())) as progress:
            measured.progress = progress
            measured.all()
        store.save()
        text = page.write(output, store, plan)
    print(text)
    if values.output:
        print(f"\nWritten to {output}", file=sys.stderr)
    return text


def _protocol(address):
    return "grpc" if address.startswith(("grpc://", "grpcs://", "unix:")) else "rest"


def _among(flag, given, known):
    unknown = [name for name in given if name not in known]
    if unknown or not given:
        raise ValueError(f"--{flag}: unknown {', '.join(unknown) or 'nothing'}. Known: {', '.join(known)}.")


def _numbers(flag, given, kind):
    if given is None:
        return None
    try:
        found = tuple(sorted({kind(value) for value in given}))
    except ValueError as error:
        raise ValueError(f"--{flag} takes numbers with commas. Received: {','.join(given)}") from error
    if not found or not all(0 < value < math.inf for value in found):
        raise ValueError(f"--{flag} takes numbers above 0. Received: {','.join(given)}")
    return found


if __name__ == "__main__":
    start(define, run, (ValueError, OSError, RuntimeError, ClientError), quiet=True)
