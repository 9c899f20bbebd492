"""`python -m keras_posenc.benchmark`: what positions cost."""

import argparse
import dataclasses
import sys
from pathlib import Path

import keras

from keras_posenc import encodings
from keras_posenc.benchmark import cost, decoding, effective, linear, models, report
from keras_posenc.benchmark.store import Store
from keras_posenc.layers.stack import SHARING
from keras_posenc.utils.arguments import count, names_of
from keras_posenc.utils.progress import Progress

TASKS = (*cost.TASKS, "linear", "effective", "decoding")
DEFAULTS = cost.Settings()


def parser():
    made = argparse.ArgumentParser(
        prog="python -m keras_posenc.benchmark",
        description="Measures the time of training and of inference with every position encoding, relative to the same "
        "model with learned embeddings (Table 1 of DIET), time and memory of linear attention, and the time of "
        "effective attention and of decoding. Without options it measures everything: about an hour on two cores.",
    )
    add = made.add_argument
    add("--models", type=names_of("model", models.SIZES), metavar="A,B", help="of base, small (default: all)")
    add(
        "--positions",
        type=names_of("encoding", encodings.names()),
        default="all",
        metavar="A,B",
        help="registered encodings (default: all)",
    )
    add(
        "--modes",
        type=names_of("mode", models.MODES),
        default="all",
        metavar="A,B",
        help="of graph, xla (default: all)",
    )
    add("--tasks", type=names_of("task", TASKS), metavar="A,B", help=f"of {', '.join(TASKS)} (default: all)")
    add("--linear", action="store_true", help="short for --tasks linear")
    add("--quick", action="store_true", help="BERT_SMALL, inference only, 5 rounds, unless other options say otherwise")
    add("--rounds", type=count, metavar="N", help=f"rounds of inference (default: {DEFAULTS.rounds})")
    add(
        "--training-rounds",
        type=count,
        default=DEFAULTS.training_rounds,
        metavar="N",
        help="rounds of training (default: %(default)s)",
    )
    add("--batch", type=count, default=DEFAULTS.batch, metavar="N", help="batch at inference (default: %(default)s)")
    add(
        "--training-batch",
        type=count,
        default=DEFAULTS.training_batch,
        metavar="N",
        help="batch in training (default: %(default)s)",
    )
    add(
        "--length",
        type=count,
        default=DEFAULTS.length,
        metavar="N",
        help="tokens of a sequence, at most 512 (default: %(default)s)",
    )
    add(
        "--sharing",
        choices=SHARING,
        default=DEFAULTS.sharing,
        help="of position weights over heads or layers (default: %(default)s)",
    )
    add("--threads", type=count, metavar="N", help="threads of TensorFlow (default: one per core)")
    add("--output", type=Path, metavar="DIR", help="where results.json, table.txt and the plots go")
    add("--fresh", action="store_true", help="measure again what an interrupted run left in --output")
    return made


def parse(arguments=None):
    made = parser()
    options = made.parse_args(arguments)
    if options.linear and options.tasks:
        made.error("--linear is --tasks linear; give one of them")
    if options.tasks is None:
        options.tasks = ["linear"] if options.linear else ["inference"] if options.quick else list(TASKS)
    if options.models is None:
        options.models = ["small"] if options.quick else list(models.SIZES)
    if options.rounds is None:
        options.rounds = 5 if options.quick else DEFAULTS.rounds
    longest = min(models.SIZES[name].max_length for name in options.models)
    if options.length > longest:
        made.error(f"--length must be at most {longest}, the size of the position tables, not {options.length}")
    if keras.backend.backend() != "tensorflow":
        made.error(f"the benchmark measures TensorFlow; the Keras backend is {keras.backend.backend()}")
    return options


def main(arguments=None):
    options = parse(arguments)
    if options.threads:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    names = [field.name for field in dataclasses.fields(cost.Settings)]
    settings = cost.Settings(**{name: getattr(options, name) for name in names if hasattr(options, name)})
    try:
        store = Store(options.output, dataclasses.asdict(settings), options.fresh)
    except ValueError as error:
        sys.exit(str(error))
    sizes = {name: models.SIZES[name] for name in options.models}
    tasks = [task for task in options.tasks if task in cost.TASKS]
    points = (linear.ATTENTIONS, linear.LENGTHS)
    cells = (sizes, options.positions, options.modes)

    groups = cost.pending(store, *cells, tasks, settings)
    total = sum(len(group[-1]) for group in groups)
    total += len(linear.pending(store, *points)) if "linear" in options.tasks else 0
    total += len(effective.pending(store, sizes, options.modes)) if "effective" in options.tasks else 0
    if "decoding" in options.tasks:
        total += sum(map(len, decoding.pending(store, decoding.Size(), options.positions)))
    with Progress(total) as progress:
        cost.run(store, *cells, tasks, settings, progress)
        if "linear" in options.tasks:
            linear.run(store, *points, settings.training_rounds, settings.threads, progress)
        if "effective" in options.tasks:
            effective.run(store, sizes, options.modes, settings, progress)
        if "decoding" in options.tasks:
            decoding.run(store, decoding.Size(), options.positions, settings.rounds, progress)

    text = [report.table(store, *cells, settings)] if tasks else []
    text += [linear.table(store, *points)] if "linear" in options.tasks else []
    text += [effective.table(store, sizes, options.modes, settings)] if "effective" in options.tasks else []
    text += [decoding.table(store, decoding.Size(), options.positions)] if "decoding" in options.tasks else []
    print("\n\n".join(text))
    if options.output:
        store.save()
        (options.output / "table.txt").write_text("\n\n".join(text) + "\n")
        if tasks:
            report.plot(store, *cells, options.output / "table.png")
        if "linear" in options.tasks:
            linear.plot(store, *points, options.output / "linear.png")
        print(f"\nWritten to {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
