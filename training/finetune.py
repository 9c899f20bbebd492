"""`python -m training.finetune`: GLUE's tasks, tables of one's own, and the word-order benchmark.

    python -m training.finetune --task=mrpc --data_dir=glue --checkpoint=minilm --output=runs/mrpc

Trains once for each learning rate and seed, keeps the best checkpoint of each run, and reports the median over seeds of
the best learning rate, as DIET does (section 4). Killed and started again, it goes on where it stopped.
"""

import functools
from pathlib import Path

from absl import flags

from keras_posenc import checkpoints
from keras_posenc.checkpoints.tokenizer import WordPiece
from keras_posenc.utils.binary import start
from training import engine, model_flags, sweep
from training.data import glue, tfds, word_order
from training.engine import flags as train_flags
from training.engine.strategy import is_chief
from training.metrics import glue as glue_metrics
from training.tasks.classify import Classify

WORD_ORDER = "word_order:"
CLASSIFIED = ("acceptability", "entailment")
PAPER_RATES = ("1e-5", "2e-5", "3e-5", "4e-5")
# Unless flags say otherwise.
RECIPE = {"batch": 32, "learning_rate": 3e-5, "epochs": 5.0, "warmup": 0.1, "epsilon": 1e-8}


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    known = ", ".join(glue.TASKS)
    tasks = f"{known}, custom:NAME, {' or '.join(WORD_ORDER + name for name in CLASSIFIED)}."
    flags.DEFINE_string("task", None, tasks, **named)
    flags.DEFINE_string("data_dir", None, "Folder with GLUE's official files, or of TensorFlow Datasets.", **named)
    flags.DEFINE_bool("tfds", False, "Read the task from TensorFlow Datasets.", **named)
    flags.DEFINE_bool("download", False, "Let TensorFlow Datasets download what is not prepared.", **named)
    flags.DEFINE_list("learning_rates", None, f"Sweep, e.g. {','.join(PAPER_RATES)}; else --learning_rate.", **named)
    flags.DEFINE_integer("runs", 1, "Runs of each learning rate, with seeds --seed, --seed + 1, ...", 1, **named)
    flags.DEFINE_integer("max_length", 128, "Tokens of an example.", 8, **named)
    flags.DEFINE_bool("static", None, "All batches of --max_length tokens; the default on TPU and with XLA.", **named)
    flags.DEFINE_bool("by_length", False, "Batches of texts of similar lengths, for less padding.", **named)
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out rows that cannot be read, instead of stopping.", **named)
    model_flags.define(values)
    train_flags.define(values, **RECIPE)


def check_task(task):
    """Raises a `ValueError` for tasks of the word-order benchmark that are none of classification."""
    known = [WORD_ORDER + name for name in CLASSIFIED]
    if task.startswith(WORD_ORDER) and task not in known:
        raise ValueError(
            f"Of the word-order benchmark, {' and '.join(known)} are done here; training.compare does all. Received: "
            f"--task={task}"
        )


def load(task, *given, **options):
    """Training set, and dict of evaluation sets, all with labels. Arguments are those of `_load`."""
    train, evaluations = _load(task, *given, **options)
    for name, data in {"train": train, **evaluations}.items():
        if data.labels is None:
            raise ValueError(f"--task={task}: the file of {name} has no column of labels.")
    return train, evaluations


def _load(task, data_dir, from_tfds=False, download=False, skip=False, seed=0):
    on_error = "skip" if skip else "raise"
    if task.startswith(WORD_ORDER):
        name = task.removeprefix(WORD_ORDER)
        train, dev = (word_order.load(name, split, seed=seed) for split in ("train", "dev"))
        return train, {"dev": dev}
    if from_tfds:
        name = f"glue/{task.lower().replace('-', '')}"
        splits = ["validation_matched", "validation_mismatched"] if "mnli" in name else ["validation"]
        read = {s: tfds.load(name, s, data_dir, download, on_error) for s in ("train", *splits)}
        return read.pop("train"), {split.replace("validation", "dev"): data for split, data in read.items()}
    if data_dir is None:
        raise ValueError(f"--task={task} is read from files: name their folder with --data_dir, or use --tfds.")
    splits = ("dev",) if task.startswith(glue.CUSTOM) else glue.task(task).dev_splits
    found = {}
    for split in splits:
        try:
            found[split] = glue.load(task, data_dir, split, on_error)
        except FileNotFoundError:
            if not found:  # of several (MNLI's two), those that are there are evaluated
                raise
    return glue.load(task, data_dir, "train", on_error), found


def group_of(task):
    """Number of neighbouring examples of a task that stay in one batch.

    The pairs (or fours) of the word-order benchmark have the same words: with all of a group in a batch, what the words
    alone would suggest cancels in the gradient, and the order is learned far sooner.
    """
    return word_order.TASKS[task.removeprefix(WORD_ORDER)].group if task.startswith(WORD_ORDER) else 1


def scoring(task, label_names):
    """Function of predictions and labels to figures, and the name of the first."""
    name = glue.CUSTOM if task.startswith(WORD_ORDER) else task
    names = glue_metrics.names(name, label_names)
    return lambda predictions, labels: glue_metrics.evaluate(name, predictions, labels, label_names), names[0]


def run(values):
    """Trains as the parsed flags say. Returns the results."""
    if values.task is None or values.output is None:
        raise ValueError("--task and --output are needed.")
    check_task(values.task)
    options = train_flags.options(values)
    rates = sweep.rates(values.learning_rates, options)
    strategy = engine.start(options)
    fresh = values.task.startswith(WORD_ORDER) and values.checkpoint is None
    source = model_flags.source(values, WordPiece(word_order.vocabulary()) if fresh else None)
    train, evaluations = load(values.task, values.data_dir, values.tfds, values.download, values.skip_bad_rows)
    options.validate(strategy.num_replicas_in_sync, len(train))
    measure, primary = scoring(values.task, train.label_names)
    primary = f"{next(iter(evaluations))}/{primary}"
    static = (options.strategy == "tpu" or options.xla) if values.static is None else values.static
    if values.by_length and static:
        raise ValueError("--by_length is for batches of different lengths: leave it out, or give --nostatic.")

    sizes = (options.batch, values.max_length, static, options.seed, group_of(values.task))
    task = Classify(source, train, evaluations, measure, primary, *sizes, values.by_length)
    seeds = range(options.seed, options.seed + values.runs)
    trials = sweep.run(functools.partial(sweep.reseeded, task), options, values.output, rates, seeds, strategy)
    return _write(values, task, trials) if is_chief(strategy) else None


def _write(values, task, trials):
    """Writes results and the best model. Returns the results."""
    found = sweep.write(trials, task.primary, values.output, task=values.task)
    best = sweep.best_trial(sweep.counted(trials, found["learning_rate"]))
    folder = Path(values.output) / "model"
    model = engine.restore(task.build_model(), str(best.folder))
    checkpoints.save(model, folder, task.source.tokenizer, overwrite=True)
    print(sweep.table(trials, task.primary))
    print(f"The best model, seed {best.seed}, is in {folder}")
    return found


if __name__ == "__main__":
    start(define, run, engine.ERRORS)
