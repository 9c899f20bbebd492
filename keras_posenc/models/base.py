"""What all models of this package can do with their positions, and how they read their inputs."""

import keras
import numpy as np
from keras import ops

from keras_posenc.folding import fold_positions, unfold_positions
from keras_posenc.models.summary import PositionSummary
from keras_posenc.utils import checks

INPUTS = ("token_ids", "segment_ids", "padding_mask")


class PositionalModel(keras.Model):
    """A Keras model whose positions can be folded and are part of its summary."""

    def fold_positions(self, length):
        """Computes what does not depend on tokens once, for all positions below `length`."""
        fold_positions(self, length)

    def unfold_positions(self):
        """Undoes `fold_positions`."""
        unfold_positions(self)

    def position_summary(self, print_fn=print):
        """Prints where positions enter the model and how many parameters they take.

        Args:
            print_fn: what to print with; `None` not to print.

        Returns: a `PositionSummary` with the same figures.
        """
        found = PositionSummary(self)
        if print_fn is not None:
            print_fn(str(found))
        return found

    def summary(self, *args, print_fn=None, **kwargs):
        """Keras' summary, followed by `position_summary`."""
        super().summary(*args, print_fn=print_fn, **kwargs)
        self.position_summary(print_fn or print)


def read_inputs(owner, inputs, more=()):
    """The inputs as a dict of all known names, int32 and a boolean padding mask; `None` for those left out.

    A name that is not known is an error: a misspelt `padding_mask` would otherwise be no mask.
    """
    known = (*INPUTS, *more)
    if not isinstance(inputs, dict):
        raise ValueError(f"{owner} takes a dict with {', '.join(map(repr, known))}. Received: {type(inputs).__name__}")
    unknown = sorted(set(inputs) - set(known))
    if unknown:
        raise ValueError(f"{owner} takes the inputs {', '.join(map(repr, known))}. Received also: {unknown}")
    if inputs.get("token_ids") is None:
        raise ValueError(f"{owner} needs 'token_ids' among its inputs. Received: {sorted(inputs)}")
    # Keras under tf.distribute averages a batch over replicas to learn its shapes, which makes floats of integers.
    read = {name: ops.cast(value, "int32") for name, value in inputs.items() if value is not None}
    if "padding_mask" in read:
        read["padding_mask"] = _as_mask(inputs["padding_mask"])
    return {name: read.get(name) for name in known}


def _as_mask(mask):
    values = checks.concrete(mask)
    if values is not None and not np.isin(values, (0, 1)).all():
        raise ValueError(
            "`padding_mask` is 1 for tokens and 0 for padding. Received values from "
            f"{values.min()} to {values.max()}, dtype={keras.backend.standardize_dtype(mask.dtype)}"
        )
    return ops.cast(mask, "bool")


def initializer(deviation):
    """BERT's: normal, cut at two deviations. A new one per weight, so that weights differ."""
    return keras.initializers.TruncatedNormal(stddev=deviation)
