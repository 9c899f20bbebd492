"""`python -m serving.peers`: the forward pass of our exported BERT beside other libraries and runtimes.

    python -m serving.peers --output=benchmark_output/peers
    python -m serving.peers --size=bert_small --batch=1 --rounds=5

All load the same random weights from one Hugging Face folder, and must compute the same outputs before they are timed.
Each is a process of its own on the same cores; they take turns within each round, and times are compared within
rounds. Peers that are not installed are named and left out. Some are looked for in an environment of their own:
`make peers` makes it, of `serving/peering/requirements.txt`.
"""

import sys
import tempfile
from pathlib import Path

from absl import flags

from keras_posenc.utils.binary import start
from serving.peering import catalog, weights

ENVIRONMENT = Path(".venv-peers/bin/python")


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    flags.DEFINE_list("peers", ["all"], f"Of {','.join(catalog.PEERS)}, or 'all'.", **named)
    flags.DEFINE_enum("size", "bert_base", list(weights.SIZES), "Size of the model.", **named)
    flags.DEFINE_list("batch", ["1", "8"], "Rows of an input.", **named)
    flags.DEFINE_integer("length", 128, "Tokens of a row.", 1, 512, **named)
    flags.DEFINE_integer("rounds", 20, "Timed calls of each peer.", 1, **named)
    flags.DEFINE_integer("warmup", 3, "Calls before those.", 1, **named)
    flags.DEFINE_integer("threads", 2, "Threads and cores of each peer.", 1, **named)
    flags.DEFINE_string("environment", str(ENVIRONMENT), "Python of the environment that has the peers.", **named)
    flags.DEFINE_string("output", None, "Folder for results (default: none are written).", **named)
    flags.DEFINE_bool("fresh", False, "Measure again what is in --output.", **named)


def run(values):
    """Measures as the parsed flags say. Returns the text of the table."""
    names = list(catalog.PEERS) if values.peers == ["all"] else values.peers
    unknown = [name for name in names if name not in catalog.PEERS]
    if unknown or not names:
        raise ValueError(f"--peers: unknown {', '.join(unknown) or 'nothing'}. Known: {', '.join(catalog.PEERS)}.")
    try:
        batches = sorted({int(batch) for batch in values.batch})
    except ValueError as error:
        raise ValueError(f"--batch takes whole numbers with commas. Received: {','.join(values.batch)}") from error
    if not batches or batches[0] < 1:
        raise ValueError(f"--batch takes numbers of at least 1. Received: {','.join(values.batch)}")
    from keras_posenc.benchmark.store import Store
    from keras_posenc.utils.progress import Progress
    from serving.peering import report
    from serving.peering.run import Run

    settings = {name: getattr(values, name) for name in ("size", "length", "rounds", "warmup", "threads")}
    store = Store(values.output, {**settings, "peers": names}, values.fresh)
    store.data["command"] = " ".join(["python -m serving.peers", *sys.argv[1:]])
    environment = Path(values.environment).absolute()
    with tempfile.TemporaryDirectory() as folder:
        elsewhere = environment if environment.is_file() else None
        made = Run(store, names=names, batches=batches, folder=folder, elsewhere=elsewhere, progress=None, **settings)
        with Progress(made.steps()) as progress:
            made.progress = progress
            made.all()
    title = f"{values.size} forward, length {values.length}, float32, {values.threads} threads, {values.rounds} rounds"
    text = report.table(store, batches, title)
    print(text)
    if values.output:
        output = Path(values.output)
        store.save()
        (output / "table.txt").write_text(f"{store.data['command']}\n\n{text}\n")
        report.plot(store, batches, output / "table.png")
        print(f"\nWritten to {output}", file=sys.stderr)
    return text


if __name__ == "__main__":
    start(define, run, (ValueError, OSError, RuntimeError), quiet=True)
