"""`python -m training.compare`: one task, several position encodings, several seeds: the papers' tables.

    python -m training.compare --task=word_order:acceptability --positions=all --jobs=2 --output=runs/acceptability
    python -m training.compare --task=mrpc --data_dir=glue --checkpoint='pretrained/{positions}/model' \\
        --positions=learned,shaw,t5,tupe_rel,tisa,diet_rel,diet_abs --runs=5 --output=runs/mrpc

Trains each encoding with each seed, evaluates the best checkpoint of each run, measures the time of a step of each, and
writes `table.txt`, `table.csv`, `results.json` and `index.html` (plots, no other files needed) into `--output`.

A row is the median over seeds, with its spread: score on dev, in the word-order benchmark also on test and on examples
longer than any trained on; parameters, those of positions; step time as a ratio to the first encoding.

Tasks: GLUE's and tables of one's own, as in `training.finetune`, from fresh weights (`--model`, `--tokenizer`) or from
a checkpoint for each encoding; and `word_order:` acceptability, entailment, questions, translation, text, which need no
files, and have a small model and a number of steps by default.

Killed and started again with the same command, it goes on where it stopped, inside of a run too. Finished runs are not
made again: with more `--positions` or `--runs`, only the new ones are trained. A run that fails is named, and the
others go on; the next start tries it again.
"""

import os
import sys

from absl import flags

from keras_posenc import encodings
from keras_posenc.utils.binary import start
from training import model_flags
from training.comparing import page, pool, recipes, runs, subjects, timing
from training.data import glue
from training.engine import flags as train_flags
from training.files import alone

ALL, FIRST, LAST = "all", ["learned"], ["none"]
NOT_PASSED_ON = ("positions", "runs", "seed", "jobs", "threads", "help", "helpfull", "helpshort")


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    tasks = f"{', '.join(glue.TASKS)}, custom:NAME, or word_order: and one of {', '.join(recipes.RECIPES)}."
    known = f"{', '.join(encodings.names())}; + joins several; {subjects.BAG} does not see the order."
    flags.DEFINE_string("task", None, tasks, **named)
    flags.DEFINE_list("positions", [ALL], f"Rows of the table: {ALL}, or from {known}", **named)
    flags.DEFINE_integer("runs", 1, "Runs of each, with seeds --seed, --seed + 1, ...; 3 in word_order.", 1, **named)
    flags.DEFINE_integer("jobs", 1, "Runs at once, each a process.", 1, **named)
    flags.DEFINE_integer("threads", None, "Threads of each run; by default the cores divided by --jobs.", 1, **named)
    flags.DEFINE_integer("per_length", 400, "Examples of each length of the curve over lengths; 0: none.", 0, **named)
    flags.DEFINE_integer("timing_rounds", 15, "Rounds in which step times are measured; 0: not at all.", 0, **named)
    flags.DEFINE_integer("timing_steps", 10, "Steps of each in a round.", 1, **named)
    flags.DEFINE_string("data_dir", None, "Folder with GLUE's official files, or of TensorFlow Datasets.", **named)
    flags.DEFINE_bool("tfds", False, "Read the task from TensorFlow Datasets.", **named)
    flags.DEFINE_bool("download", False, "Let TensorFlow Datasets download what is not prepared.", **named)
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out rows that cannot be read, instead of stopping.", **named)
    flags.DEFINE_integer("max_length", None, "Tokens of an example; 128, in word_order what it needs.", 8, **named)
    flags.DEFINE_bool("static", None, "All batches of --max_length tokens; the default on TPU and with XLA.", **named)
    model_flags.define(values, positions=False)
    train_flags.define(values, batch=32, learning_rate=3e-5, epochs=5.0, warmup=0.1, epsilon=1e-8)


def set_defaults(values):
    """Defaults that depend on other flags."""
    if values.task is None or values.output is None:
        raise ValueError("--task and --output are needed.")
    recipes.apply(values)
    if values.threads is None:
        values.threads = max(1, (os.cpu_count() or 1) // values.jobs)


def choose(subject, names):
    """The encodings of the table, each checked; of `all` those that can do the task, with the reasons of the others."""
    left_out = {}
    if ALL in names:
        if len(names) > 1:
            raise ValueError(f"--positions={ALL} has all encodings. Received also: {', '.join(set(names) - {ALL})}")
        rest = [name for name in encodings.names() if name not in (*FIRST, *LAST)]
        found = []
        for name in [*FIRST, *rest, *LAST]:
            try:
                subject.check(name)
                found.append(name)
            except (ValueError, OSError) as error:
                left_out[name] = str(error)
        if not found:
            raise ValueError(f"No encoding can do {subject.values.task}. {left_out[FIRST[0]]}")
        return found + [subjects.BAG] * subject.has_bag, left_out
    for name in names:
        if name == subjects.BAG:
            if not subject.has_bag:
                raise ValueError(f"{subjects.BAG} is a row of word_order:acceptability and word_order:entailment only.")
        else:
            encodings.parse(name)
    if len(set(names)) < len(names) or set(names) <= {subjects.BAG}:
        raise ValueError(f"--positions takes different encodings, at least one. Received: {','.join(names)}")
    for name in names:
        if name != subjects.BAG:
            subject.check(name)
    return list(names), left_out


def command(values):
    """Function of the name of a run to the command of its process."""
    given = [values[name].serialize() for name in values if values[name].present and name not in NOT_PASSED_ON]
    given += [f"--positions={','.join(values.positions)}", f"--threads={values.threads}", f"--seed={values.seed}"]
    return lambda name: [sys.executable, "-m", "training.comparing.worker", *given, f"--only={name}"]


def run(values):
    """Makes the comparison that the parsed flags describe. Returns its table as text, and the names of failed runs."""
    set_defaults(values)
    options = train_flags.options(values)
    _hide_devices()
    subject = subjects.make(values, options)
    values.positions, left_out = choose(subject, values.positions)
    planned = runs.plan(values.positions, range(options.seed, options.seed + values.runs), values.output)
    for each in planned:
        each.check(subject, options)
    for name, reason in left_out.items():
        print(f"{name} is left out: {reason}", file=sys.stderr)
    if any(each.result(values.per_length) is None for each in planned):
        subject.read()
    with alone(values.output):
        return _compare(values, subject, planned)


def _compare(values, subject, planned):
    """Makes the runs that are missing, measures step times, and writes the table."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "OMP_NUM_THREADS": str(values.threads)}
    to_do = {each.name: each for each in planned if each.result(values.per_length) is None}
    workers = pool.Pool(command(values), values.jobs, environment)
    failed = []
    if to_do:
        subject.prepare()
        kept = len(planned) - len(to_do)
        print(f"{len(to_do)} runs to make{f', {kept} finished before' if kept else ''}", file=sys.stderr, flush=True)
        progress = pool.Progress({name: each.done for name, each in to_do.items()})
        failed = workers.run({name: each.folder / runs.LOG for name, each in to_do.items()}, progress)
    if values.timing_rounds and timing.missing(values):
        print("measuring step times", file=sys.stderr, flush=True)
        log = planned[0].output / "timing.log"
        failed += workers.run({timing.TIMING: log}, pool.Progress({timing.TIMING: lambda: 0.0}))
    results = [found for each in planned if (found := each.result(values.per_length)) is not None]
    if not results:
        return "no run is finished", failed
    times = timing.read(values) if values.timing_rounds else {}
    return page.write(values.output, subject, planned, results, times, failed, _about(values)), failed


def _about(values):
    """What tells this comparison from others."""
    names = ("task", "runs", "seed", "model", "checkpoint", "model_options", "sharing", "segments", "dropout")
    names += ("steps", "epochs", "batch", "learning_rate", "schedule", "warmup", "weight_decay", "eval_every")
    names += ("max_length", "per_length", "threads", "data_dir")
    found = {name: values[name].value for name in names}
    small = values.task.startswith(recipes.PREFIX) and not values["model"].present and values.checkpoint is None
    if small:
        sizes = recipes.RECIPES[recipes.word_order_task(values.task)].model
        found["sizes"] = {**sizes, **model_flags.parse_options(values.model_options)}
    return found


def _hide_devices():
    """Leaves GPUs to the processes that train: this one only builds small models to look at them."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")


def main(values):
    """Runs, prints the table, and says what failed."""
    text, failed = run(values)
    print(text)
    print(f"The page is {values.output}/index.html", flush=True)
    if failed:
        raise SystemExit(f"error: {len(failed)} failed: {', '.join(failed)}. The same command tries them again.")


if __name__ == "__main__":
    start(define, main)
