"""`python -m training.finetune`: GLUE's tasks, tables of one's own, and the word-order benchmark.

    python -m training.finetune --task=mrpc --data_dir=glue --checkpoint=minilm --output=runs/mrpc

Trains once for each learning rate and seed, keeps the best checkpoint of each run, and reports the median over seeds of
the best learning rate, as DIET does (section 4). Killed and started again, it goes on where it stopped.
"""

from pathlib import Path

from absl import app, flags

from keras_posenc import checkpoints
from keras_posenc.checkpoints.tokenizer import WordPiece
from training import engine, model_flags, sweep
from training.data import glue, tfds, word_order
from training.engine import flags as train_flags
from training.metrics import glue as glue_metrics
from training.tasks.classify import Classify

FLAGS = flags.FLAGS
WORD_ORDER = "word_order:"
PAPER_RATES = ("1e-5", "2e-5", "3e-5", "4e-5")

known = ", ".join(glue.TASKS)
flags.DEFINE_string("task", None, f"{known}, custom:NAME, word_order:acceptability or word_order:entailment.")
flags.DEFINE_string("data_dir", None, "Folder with GLUE's official files, or of TensorFlow Datasets.")
flags.DEFINE_bool("tfds", False, "Read the task from TensorFlow Datasets.")
flags.DEFINE_bool("download", False, "Let TensorFlow Datasets download what is not prepared.")
flags.DEFINE_list("learning_rates", None, f"Sweep, e.g. {','.join(PAPER_RATES)}; else --learning_rate.")
flags.DEFINE_integer("runs", 1, "Runs of each learning rate, with seeds --seed, --seed + 1, ...", lower_bound=1)
flags.DEFINE_integer("max_length", 128, "Tokens of an example.", lower_bound=8)
flags.DEFINE_bool("static", None, "All batches of --max_length tokens; the default on TPU.")
flags.DEFINE_bool("skip_bad_rows", False, "Leave rows out that cannot be read, instead of stopping at the first.")
model_flags.define()
train_flags.define(batch=32, learning_rate=3e-5, epochs=5.0, warmup=0.1)


def load(task, data_dir, from_tfds=False, download=False, skip=False, seed=0):
    """Training set, and dict of evaluation sets."""
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


def scoring(task, label_names):
    """Function of predictions and labels to figures, and the name of the first."""
    name = glue.CUSTOM if task.startswith(WORD_ORDER) else task
    names = glue_metrics.names(name, label_names)
    return lambda predictions, labels: glue_metrics.evaluate(name, predictions, labels, label_names), names[0]


def main(_):
    if FLAGS.task is None or FLAGS.output is None:
        raise app.UsageError("--task and --output are needed.")
    try:
        _run()
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error


def _run():
    options = train_flags.options()
    rates = [float(rate) for rate in FLAGS.learning_rates or [options.learning_rate]]
    strategy = engine.start(options)
    is_word_order = FLAGS.task.startswith(WORD_ORDER)
    tokenizer = WordPiece(word_order.vocabulary()) if is_word_order else None
    source = model_flags.source(FLAGS, tokenizer)
    train, evaluations = load(FLAGS.task, FLAGS.data_dir, FLAGS.tfds, FLAGS.download, FLAGS.skip_bad_rows)
    options.validate(strategy.num_replicas_in_sync, len(train))
    measure, primary = scoring(FLAGS.task, train.label_names)
    primary = f"{next(iter(evaluations))}/{primary}"
    static = options.strategy == "tpu" if FLAGS.static is None else FLAGS.static

    def make_task(seed):
        return Classify(
            source, train, evaluations, measure, primary, options.batch, FLAGS.max_length, static or options.xla, seed
        )

    seeds = range(options.seed, options.seed + FLAGS.runs)
    trials = sweep.run(make_task, options, FLAGS.output, rates, seeds, strategy)
    found = sweep.write(trials, primary, FLAGS.output, task=FLAGS.task)
    best = sweep.best_trial([trial for trial in trials if trial.learning_rate == found["learning_rate"]])
    folder = Path(FLAGS.output) / "model"
    model = engine.restore(make_task(best.seed).build_model(), str(best.folder))
    checkpoints.save(model, folder, source.tokenizer, overwrite=True)
    print(sweep.table(trials, primary))
    print(f"The best model, seed {best.seed}, is in {folder}")


if __name__ == "__main__":
    app.run(main)
