"""Checkpoints: the newest ones by step, and the best apart from them."""

import os

import numpy as np
import tensorflow as tf

NEWEST, BEST = "checkpoints", "best"


class Manager(tf.train.CheckpointManager):
    """Where a loop asks whether it is time to save, TensorFlow's says yes at the first time, whatever the interval."""

    def save(self, checkpoint_number=None, check_interval=True, options=None):
        if check_interval and not self.checkpoints and int(checkpoint_number) < self.checkpoint_interval:
            return None
        return super().save(checkpoint_number=checkpoint_number, check_interval=check_interval, options=options)


class Checkpoints:
    """The checkpoints of a run.

    A checkpoint exists when the file `checkpoint` of its folder names it, and that file is replaced in one move
    after the data has been written. What a killed process left half written is never read, and removed.

    Weights and the state of the optimizer are lists of variables: TensorFlow does not look into the lists of layers of
    a Keras model, and would silently leave out the blocks of an encoder.

    Args:
        output: folder of the run.
        model, optimizer: built.
        step: variable that counts steps.
        figures: further trackable state.
        every: steps between checkpoints.
        keep: number of newest checkpoints.
        chief: whether this process writes. The others only read.
    """

    def __init__(self, output, model, optimizer, step, figures, every, keep, chief=True):
        self.step, self.newest_folder, self.chief = step, os.path.join(output, NEWEST), chief
        state = [variable.value for variable in optimizer.variables]
        self.checkpoint = tf.train.Checkpoint(weights=_values(model), optimizer=state, step=step, figures=figures)
        self.manager = self.best = None
        if chief:
            best_folder = os.path.join(output, BEST)
            for folder in (self.newest_folder, best_folder):
                remove_unfinished(folder)
            self.manager = Manager(
                self.checkpoint, self.newest_folder, keep, checkpoint_interval=every, step_counter=step
            )
            self.best = tf.train.CheckpointManager(tf.train.Checkpoint(weights=_values(model)), best_folder, 1)

    def restore(self):
        """Reads the newest checkpoint into its parts, if there is one, and returns its path."""
        path = tf.train.latest_checkpoint(self.newest_folder)
        if path is not None:
            self.checkpoint.restore(path).assert_existing_objects_matched()
        return path

    def save(self):
        """Makes sure that the present step has a checkpoint."""
        if self.chief:
            step = int(self.step.numpy())
            if _number(self.manager.latest_checkpoint) != step:
                self.manager.save(checkpoint_number=step, check_interval=False)

    def save_best(self):
        if self.chief:
            self.best.save(checkpoint_number=int(self.step.numpy()))


def restore(model, output, which="best"):
    """Reads weights that a run has saved into a built model.

    Args:
        model: built as the run's task builds it.
        output: folder of the run.
        which: `"best"` (with `ema` the averaged weights, which were evaluated), `"newest"` (those of the last step), or
            the path of a checkpoint.

    Returns: the model.
    """
    path = tf.train.latest_checkpoint(os.path.join(output, {"best": BEST, "newest": NEWEST}.get(which, which)))
    path = path or (which if tf.io.gfile.exists(which + ".index") else None)
    if path is None:
        raise ValueError(f"There is no checkpoint {which!r} in {output}. Train first.")
    tf.train.Checkpoint(weights=_values(model)).restore(path).expect_partial().assert_existing_objects_matched()
    return model


def newest(output):
    """Paths of the newest checkpoints of a run, in order."""
    state = tf.train.get_checkpoint_state(os.path.join(output, NEWEST))
    return list(state.all_model_checkpoint_paths) if state else []


def newest_steps(output):
    """The steps of the newest checkpoints of a run, in order."""
    return [_number(path) for path in newest(output)]


def restore_average(model, output, last):
    """Puts the mean of the weights of the `last` newest checkpoints into a built model and returns it.

    Reference: Vaswani et al., 2017, section 6.1.
    """
    paths = newest(output)
    if len(paths) < last:
        raise ValueError(
            f"{output} has {len(paths)} checkpoint(s), and {last} are to be averaged. Train with keep={last}."
        )
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for path in paths[-last:]:
        restore(model, output, path)
        sums = [total + weight.numpy() for total, weight in zip(sums, model.weights)]
    for weight, total in zip(model.weights, sums):
        weight.assign(total / last)
    return model


def remove_unfinished(folder):
    """Removes files of checkpoints that the folder's list does not name."""
    if not tf.io.gfile.isdir(folder):
        return
    state = tf.train.get_checkpoint_state(folder)
    known = {os.path.basename(path) for path in state.all_model_checkpoint_paths} if state else set()
    for name in tf.io.gfile.listdir(folder):
        stem = name.rstrip("/").split(".")[0]
        if name.startswith("ckpt-") and (stem not in known or "tempstate" in name or "_temp" in name):
            path = os.path.join(folder, name)
            (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)


def _values(model):
    return [weight.value for weight in model.weights]


def _number(path):
    return None if path is None else int(path.rsplit("-", 1)[1])
