"""A process of a comparison: `python -m training.comparing.worker --only=POSITIONS/SEED` and the comparison's flags.

Runs are processes of their own, so that one that fails does not take others with it, that small models can be trained
side by side with a thread each, and that a run is the same whatever ran before it.
"""

import dataclasses
import time

from absl import app, flags

from keras_posenc.utils.following import follow_parent
from training import compare, engine
from training.comparing import runs, subjects, timing
from training.engine import flags as train_flags
from training.engine.evaluator import Evaluator


def train(values, options, run):
    """Trains a run, or goes on with it, evaluates its best checkpoint, and writes its result."""
    begin = time.monotonic()
    strategy = engine.start(options)
    subject = subjects.make(values, options)
    about = dict(task=values.task, position=run.position, seed=run.seed, per_length=values.per_length)
    if run.position == subjects.BAG:
        sets, weights = subject.bag_of_words(run.seed)
        *name, metric = subject.primary.split("/")
        found = dict(score=sets[name[0]][metric], sets=sets, parameters=weights, position_parameters=0, best_step=None)
    else:
        task = subject.task(run.position, run.seed)
        best = engine.run(task, options, str(run.folder), strategy)["best"]
        with strategy.scope():
            model = engine.restore(task.build_model(), str(run.folder))
        sets = {name: of for name, of in best.items() if isinstance(of, dict)}
        sets |= evaluate(model, subject.evaluations(run.position), options, strategy)
        found = dict(
            score=best["primary"],
            sets=sets,
            parameters=model.count_params(),
            position_parameters=model.position_summary(print_fn=None).positions,
            best_step=best["step"],
        )
    run.write(**about, primary=subject.primary, **found, seconds=time.monotonic() - begin)


def evaluate(model, tasks, options, strategy):
    """Figures of every set of some tasks."""
    found = {}
    plain = dataclasses.replace(options, ema=None)  # the best checkpoint has the averages as its weights
    for task in tasks:
        found |= Evaluator(task, model, None, plain, strategy).evaluate(None)
    return found


def main(_):
    values = flags.FLAGS
    import tensorflow as tf

    if values.threads:
        tf.config.threading.set_intra_op_parallelism_threads(values.threads)
        tf.config.threading.set_inter_op_parallelism_threads(values.threads)
    compare.set_defaults(values)
    options = train_flags.options(values)
    if values.only == timing.TIMING:
        timing.measure(values, options)
    else:
        position, _, seed = values.only.rpartition("/seed")
        options = dataclasses.replace(options, seed=int(seed))
        try:
            train(values, options, runs.Run(position, int(seed), values.output))
        except engine.Diverged as error:
            raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    follow_parent()
    compare.define(flags.FLAGS)
    flags.DEFINE_string("only", None, "The run of this process, or 'timing'.")
    app.run(main)
