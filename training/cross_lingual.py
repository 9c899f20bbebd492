"""`python -m training.cross_lingual`: fine-tunes in English and evaluates in other languages.

    python -m training.cross_lingual --task=xquad --data_dir=data --checkpoint=multilingual --output=runs/xquad
    python -m training.cross_lingual --task=mlqa --data_dir=data --init_run=runs/xquad --output=runs/mlqa

MultiNLI to XNLI, SQuAD 1.1 to XQuAD, MLQA and TyDi QA's gold passages, as in XTREME. Trains once for each learning rate
and seed, chooses checkpoints on the dev set of the training task (found in `--data_dir`, or named by `--dev_file`) or
else on the benchmark's own in English, never on a file that is reported, and evaluates the runs of the best learning
rate in each language. Reported are the medians over the seeds and their average over the languages. Killed and started
again, it goes on where it stopped.

XQuAD is a part of SQuAD 1.1's dev set, translated. On that set, where XTREME too chooses its checkpoints, they are
chosen by some of the questions that are reported: `chosen_on` in `results.json` says by how many. Another `--dev_file`,
such as MLQA's dev set in English, has none of them.
"""

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import tensorflow as tf
from absl import flags

from keras_posenc import checkpoints
from keras_posenc.checkpoints import folder as folders
from keras_posenc.utils.binary import start
from training import engine, ignored, languages, model_flags, resuming, sweep
from training.data.cross_lingual import BENCHMARKS, MLQA_RULES, Source
from training.engine import flags as train_flags
from training.engine.strategy import is_chief, wait_for_all
from training.files import digest
from training.metrics import glue as glue_metrics
from training.tasks.classify import Classify
from training.tasks.models import ModelSource
from training.tasks.span import Spans, check_answers

ENGLISH_DEV = "dev"
# The flags that `--init_run` reads; all others are of training, or of a model that is not there yet.
OF_DATA = ("task", "data_dir", "languages", "split", "tfds", "download", "skip_bad_rows")
OF_DEVICES = ("strategy", "tpu", "virtual_devices", "precision", "xla", "deterministic")
EVALUATING = (*OF_DATA, *OF_DEVICES, "init_run", "output", "batch", "max_length", "stride", "static")


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    flags.DEFINE_enum("task", None, list(BENCHMARKS), "What to evaluate on.", **named)
    flags.DEFINE_string("data_dir", None, "Folder of the files, or of TensorFlow Datasets.", **named)
    flags.DEFINE_list("languages", None, "Such as en,de; all whose files are there if not given.", **named)
    flags.DEFINE_string("split", None, "That is evaluated; test, and dev for TyDi QA, if not given.", **named)
    flags.DEFINE_string("train_file", None, "In SQuAD's format, or a table of MNLI or XNLI.", **named)
    flags.DEFINE_string("dev_file", None, "Likewise, to choose checkpoints on.", **named)
    flags.DEFINE_integer("limit", None, "Use only the first examples of the training set.", 1, **named)
    flags.DEFINE_bool("tfds", False, "Read from TensorFlow Datasets.", **named)
    flags.DEFINE_bool("download", False, "Let TensorFlow Datasets download what is not prepared.", **named)
    flags.DEFINE_string("init_run", None, "Folder of a finished run, or its model: evaluate it only.", **named)
    flags.DEFINE_list("learning_rates", None, "Sweep, e.g. 1e-5,2e-5,3e-5,4e-5; else --learning_rate.", **named)
    flags.DEFINE_integer("runs", 1, "Runs of each learning rate, with seeds --seed, --seed + 1, ...", 1, **named)
    flags.DEFINE_integer("max_length", None, "Tokens of an example or window; 128 for xnli, else 384.", 8, **named)
    flags.DEFINE_integer("stride", 128, "Tokens from one window of a long context to the next.", 1, **named)
    flags.DEFINE_bool("static", None, "All batches of --max_length tokens; the default on TPU and with XLA.", **named)
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out what cannot be read, instead of stopping.", **named)
    model_flags.define(values)
    train_flags.define(values, batch=32, learning_rate=3e-5, epochs=3.0, warmup=0.1, epsilon=1e-8)


class Maker:
    """Makes the tasks of a benchmark: to train on, and of one language.

    Args:
        values: parsed flags.
        options: `TrainOptions`.
        source: a `ModelSource`.
        about: dict, what else tells this model from others: the files that it is trained on, or its weights.
    """

    def __init__(self, values, options, source, about=None):
        self.source, self.options, self.about = source, options, dict(about or {})
        self.benchmark = BENCHMARKS[values.task]
        static = (options.strategy == "tpu" or options.xla) if values.static is None else values.static
        self.settings = dict(max_length=values.max_length or (384 if self.benchmark.spans else 128), static=static)
        if self.benchmark.spans:
            self.settings["stride"] = values.stride

    @property
    def known(self):
        """What is known of the task's configuration before data are read."""
        return {**self.source.config(), **self.about, **self.settings}

    def __call__(self, train, evaluations, spoken=None):
        """A task with a training set (or `None`) and a dict of evaluation sets. `spoken`: their languages."""
        if self.benchmark.spans:
            spoken = spoken if self.benchmark.scoring == MLQA_RULES else None
            more = dict(about=self.about, **self.settings)
            return Spans(self.source, train, evaluations, spoken, self.options.batch, **more)
        more = dict(primary=f"{next(iter(evaluations))}/accuracy", about=self.about, **self.settings)
        return Classify(self.source, train, evaluations, _accuracy, batch=self.options.batch, **more)

    @property
    def task_name(self):
        return Spans.name if self.benchmark.spans else "classify"


def _accuracy(predictions, labels):
    found = glue_metrics.evaluate("mnli", predictions, labels)
    return {name: 100 * value for name, value in found.items()}  # as XTREME reports it, beside F1 in percent


def run(values):
    """Trains and evaluates as the parsed flags say. Returns the results."""
    if values.task is None or values.output is None:
        raise ValueError("--task and --output are needed.")
    if values.init_run is not None:
        ignored.refuse(values, "--init_run", _training_names())
    options = train_flags.options(values)
    rates = sweep.rates(values.learning_rates, options)
    data = Source(
        values.task,
        values.data_dir,
        values.languages,
        values.split,
        values.train_file,
        values.dev_file,
        values.tfds,
        values.download,
        train=values.init_run is None,
        skip=values.skip_bad_rows,
    )
    strategy = engine.start(options)
    if values.init_run is not None:
        source = _stored(values)
        maker = Maker(values, options, source, {"weights": digest(source.path / folders.WEIGHTS)})
        _check_languages(data)
        runs = {"init_run": (Path(values.output), lambda task: task.build_model())}
        about = {"init_run": values.init_run}
    else:
        maker = Maker(values, options, model_flags.source(values), {"data": data.described()})
        _check_languages(data)
        runs, about = _train(values, options, rates, data, maker, strategy)
    chief = is_chief(strategy)
    if data.missing and chief:
        print(f"no files of {values.task}, {data.split}: {', '.join(data.missing)}", flush=True)
    wait_for_all(strategy)  # the checkpoints that all of them read are written
    figures = {name: languages.evaluate(data, maker, folder, load, strategy) for name, (folder, load) in runs.items()}
    if not chief:
        return None
    about.update(task=values.task, split=data.split)
    found = languages.write(figures, values.output, languages=data.languages, **about)
    print((Path(values.output) / "results.txt").read_text(encoding="utf-8"), end="", flush=True)
    return found


def _training_names():
    """Flags of this binary that `--init_run` does not read."""
    own = flags.FlagValues()
    define(own)
    return sorted(set(own) - set(EVALUATING))


def _check_languages(data):
    """Reads all that will be evaluated: what cannot be read or scored must not be found out after training."""
    for language in data.languages:
        found = data.load(language)
        if data.about.spans:
            check_answers(language, found)
        elif found.labels is None:
            raise ValueError(f"{data.name}[{data.split}] has no labels in {language}: it cannot be scored.")


def _train(values, options, rates, data, maker, strategy):
    """The runs of the best learning rate: dict from names to their folder and how to load their model."""
    seeds = range(options.seed, options.seed + values.runs)
    for rate, seed in itertools.product(rates, seeds):
        folder = Path(values.output) / "runs" / f"lr{rate:g}-seed{seed}"
        changed = dataclasses.replace(options, learning_rate=rate, seed=seed)
        resuming.finished(maker.task_name, maker.known, changed, str(folder))
    train, (dev, chosen_on) = data.train(), data.dev()
    shared = data.shared(dev)
    if shared:
        chosen_on += f" ({shared} of its questions are reported, in English or translated)"
    if values.limit is not None:
        train = languages.first(train, values.limit)
    options.validate(strategy.num_replicas_in_sync, len(train))
    task = maker(train, {ENGLISH_DEV: dev})
    make_task = functools.partial(sweep.reseeded, task)
    trials = sweep.run(make_task, options, values.output, rates, seeds, strategy)
    rate, _ = sweep.best_rate(trials)
    best = sweep.counted(trials, rate)
    runs = {}
    for trial in best:
        runs[trial.folder.name] = (
            trial.folder,
            lambda task, folder=trial.folder: engine.restore(task.build_model(), str(folder)),
        )
    if is_chief(strategy):
        model = engine.restore(task.build_model(), str(sweep.best_trial(best).folder))
        checkpoints.save(model, Path(values.output) / "model", maker.source.tokenizer, overwrite=True)
    about = {"learning_rate": rate, "chosen_on": chosen_on, "primary": task.primary, "planned": len(seeds)}
    return runs, {**about, "dev": {trial.folder.name: trial.score if trial.scored else None for trial in trials}}


def _stored(values):
    """The model of `--init_run`, here or behind a URI, which must have the head of this task."""
    given = values.init_run.rstrip("/")
    places = [place for place in (given, f"{given}/model") if tf.io.gfile.exists(f"{place}/{folders.CONFIG}")]
    if not places:
        raise ValueError(f"--init_run={values.init_run} has no trained model in it (a folder 'model').")
    source = ModelSource(places[0])
    needed = "span" if BENCHMARKS[values.task].spans else "classify"
    stored = json.loads((source.path / folders.CONFIG).read_text(encoding="utf-8"))["task"]
    if stored != needed:
        raise ValueError(f"--task={values.task} needs a model trained for {needed!r}. {places[0]} has: {stored!r}")
    return source


if __name__ == "__main__":
    start(define, run, engine.ERRORS)
