"""A whole run: training, evaluations, checkpoints, and going on where a killed run stopped."""

import os

import keras
import orbit
import tensorflow as tf
from absl import flags, logging

from training.engine import optimizer as optimizers
from training.engine import strategy as strategies
from training.engine import summaries
from training.engine.checkpoints import Checkpoints
from training.engine.evaluator import Evaluator
from training.engine.folder import RunFolder
from training.engine.pipeline import distribute
from training.engine.progress import Progress
from training.engine.trainer import Diverged, Trainer

orbit.controller._log = logging.info  # orbit also prints each message; the console has our progress line


def start(options):
    """Makes the strategy and sets the precision. Call it first: workers and virtual devices must come before anything
    that TensorFlow runs. Returns the strategy, for `run`.
    """
    options.validate()
    if "verbosity" not in flags.FLAGS or not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # orbit and TensorFlow log every loop; the console has a progress line
    strategy = strategies.make(options.strategy, options.tpu, virtual_devices=options.virtual_devices)
    strategies.set_precision(options.precision, options.strategy)
    if options.deterministic:
        tf.config.experimental.enable_op_determinism()
    return strategy


def finished(name, config, options, output):
    """Results of the run in `output` if it is finished, `None` if it has to be (or go on being) trained.

    Raises a `ValueError` if the folder is that of another run. A binary can ask before it reads any data.

    Args:
        name: that of the task.
        config: what the task's `config()` will be.
        options: `TrainOptions`.
        output: folder of the run.
    """
    return _checked(name, config, options, output).results


def diverged(task, options, output):
    """What the run in `output` said when it diverged, `None` if it did not. Raises as `finished` does."""
    return _checked(task.name, task.config(), options, output).diverged


def _checked(name, config, options, output):
    folder = RunFolder(output, {**options.that_matter(), "task": name, **config})
    folder.check()
    return folder


def run(task, options, output, strategy=None, stream=None):
    """Trains a task, or goes on training it, and returns its results.

    Killed at any point and called again with the same arguments, it continues from the newest checkpoint, with the
    batches, masks and dropout that an uninterrupted run would have had: on one device the weights are the same, bit
    for bit, and so is the history of evaluations. A finished run is not trained again.

    Args:
        task: a `Task`.
        options: `TrainOptions`.
        output: folder of the run. It gets `run.json`, `metrics.jsonl`, `checkpoints/`, `best/` and `tensorboard/`.
        strategy: from `start`; made here if it was not.
        stream: where to show progress, standard error by default; `False` for silence.

    Returns: a dict: `steps` made, `last` (figures of the last evaluation per set), `best` (the same of the best one,
    with its `step` and its `primary` figure), `train` (figures of training up to the last evaluation).

    Raises `Diverged` if the loss or a gradient is not finite.
    """
    options.validate(examples=task.num_examples)
    folder = _checked(task.name, task.config(), options, output)
    if folder.results is not None:
        Progress(1, stream=stream).say(f"{output} is a finished run; its results are in run.json.")
        return folder.results
    strategy = strategy or start(options)
    options.validate(strategy.num_replicas_in_sync, task.num_examples)
    try:
        return _Run(task, options, output, folder, strategy, stream).results()
    except Diverged as error:
        folder.write(state="diverged", diverged=str(error))
        raise


class _Run:
    """The pieces of a run, and the order in which things happen to them.

    At an evaluation: the checkpoint is saved, the evaluation is made, the best weights are saved if they are these,
    and the line of `metrics.jsonl` is written last. So wherever a process dies, the next one finds either the line,
    or a checkpoint from which the same line follows.
    """

    def __init__(self, task, options, output, folder, strategy, stream):
        self.task, self.options, self.folder, self.strategy = task, options, folder, strategy
        self.chief = folder.chief = strategies.is_chief(strategy)
        self.total = options.total_steps(task.num_examples)
        self.evaluations = options.evaluation_steps(task.num_examples)
        keras.utils.set_random_seed(options.seed)
        with strategy.scope():
            self.step = orbit.utils.create_global_step()
            self.model = task.build_model()
            self.optimizer = optimizers.make(self.model, options, self.total)
        self.trainer = Trainer(task, self.model, self.optimizer, self.step, options, strategy, None, self._after_loop)
        every = options.checkpoint_every or options.eval_every or self.evaluations[0]
        self.checkpoints = Checkpoints(
            output,
            self.model,
            self.optimizer,
            self.step,
            self.trainer.figures,
            every,
            options.keep,
            self.chief,
        )
        with strategy.scope():
            restored = self.checkpoints.restore()
        done = self.done
        self.trainer.data = distribute(strategy, task, options, done)
        self.evaluator = Evaluator(task, self.model, self.optimizer, options, strategy, self._after_evaluation)
        boards = [os.path.join(output, "tensorboard", part) if self.chief else None for part in ("train", "eval")]
        self.controller = orbit.Controller(
            global_step=self.step,
            trainer=self.trainer,
            evaluator=self.evaluator,
            strategy=strategy,
            steps_per_loop=options.steps_per_loop,
            checkpoint_manager=self.checkpoints.manager,
            summary_dir=boards[0],
            eval_summary_dir=boards[1],
        )
        self.history = folder.history(until=done)
        folder.write_history(self.history)
        self.progress = Progress(self.total, done, stream if self.chief else False)
        if restored:
            self.progress.say(f"continuing from step {done} of {self.total}")
        folder.start(
            options=vars(options),
            seed=options.seed,
            replicas=strategy.num_replicas_in_sync,
            precision=self.model.dtype_policy.name,
            parameters=self.model.count_params(),
            total_steps=self.total,
        )

    @property
    def done(self):
        return int(self.step.numpy())

    def results(self):
        if self.done in self._evaluated:
            self.trainer.figures.reset()
        while True:
            if self.done in self.evaluations and self.done not in self._evaluated:
                self.checkpoints.save()
                self.controller.evaluate()
                self.trainer.figures.reset()
            if self.done >= self.total or self._out_of_patience():
                break
            until = next(step for step in self.evaluations if step > self.done)
            self.controller.train(until, checkpoint_at_completion=False)
        self.checkpoints.save()
        self.progress.close()
        last, best = self.history[-1], self._best(self.history)
        results = {
            "steps": self.done,
            "train": last["train"],
            "last": last["eval"],
            "best": best and {"step": best["step"], "primary": best["primary"], **best["eval"]},
        }
        self.folder.write(state="finished", step=self.done, results=results, **self._speed())
        return results

    @property
    def _evaluated(self):
        return {entry["step"] for entry in self.history}

    def _after_loop(self, figures):
        self.progress.update(self.done, figures)
        return summaries.position_norms(self.model)

    def _after_evaluation(self, figures):
        entry = {
            "step": self.done,
            "train": self.trainer.figures.averages(),
            "eval": figures,
            "primary": self._primary(figures),
        }
        if self.chief:
            summaries.write_positions(self.model, self.step)
        history = [*self.history, entry]
        if self._best(history) is entry:
            self.checkpoints.save_best()
        self.history = history
        self.folder.write_history(history)
        self.folder.write(step=self.done, **self._speed())
        shown = [f"{name}/{key} {value:.4g}" for name, of in figures.items() for key, value in of.items()]
        self.progress.say(f"step {self.done}: {', '.join(shown) or 'no evaluation set'}")

    def _primary(self, figures):
        """The figure that decides which checkpoint is the best, or `None` if nothing is evaluated."""
        if not figures or self.task.primary is None:
            return None
        *name, metric = self.task.primary.split("/", 1)
        sets = name or list(figures)
        for each in sets:
            if metric in figures.get(each, {}):
                return figures[each][metric]
        known = [f"{each}/{key}" for each, of in figures.items() for key in of]
        raise ValueError(f"The task's primary metric {self.task.primary!r} is none of {', '.join(known)}.")

    def _best(self, history):
        """The entry with the highest primary figure, the first of equals. Without figures the last is the best."""
        best = None
        for entry in history:
            value = entry["primary"]
            if best is None or value is None or value > best["primary"] or best["primary"] != best["primary"]:
                best = entry
        return best

    def _out_of_patience(self):
        if self.options.patience is None or not self.history:
            return False
        return len(self.history) - 1 - self.history.index(self._best(self.history)) >= self.options.patience

    def _speed(self):
        found = self.trainer.speed.summary()
        return {"speed": found} if found else {}
