"""Longer inputs than a model was trained for, each encoding in its own way."""

import warnings

import numpy as np

from keras_posenc.conversion.profile import get_backbone, to_numpy
from keras_posenc.conversion.rebuild import copy_weights, rebuild
from keras_posenc.encodings.registry import get_class, parse
from keras_posenc.folding import position_encodings
from keras_posenc.utils import checks

METHODS = ("clip", "interpolate")

# What is known of encodings beyond the lengths they were trained at; those not named are made for it or untested.
DOUBTS = {
    "learned": "position embeddings beyond the trained ones do not exist",
    "diet_abs": "position vectors beyond the trained ones do not exist",
    "tupe": "position embeddings beyond the trained ones do not exist",
    "tupe_rel": "position embeddings beyond the trained ones do not exist",
    "diet_rel": "larger distances than the trained ones share one score",
    "sinusoidal": "the layers have not seen the sinusoids of later positions",
    "floater": "the layers have not seen the flow at later positions",
    "rotary": "the layers have not seen rotations by larger distances",
}

# Which axis of which weight is positions; `distances` has 2n - 1 entries and grows at both ends.
TABLES = {"embeddings": 0, "positions": 0, "query_positions": 1, "key_positions": 1, "distances": 1}


def extend_length(model, length, method=None):
    """The model made to take inputs of `length` tokens, with the same outputs as before on those it could take.

    Encodings without a table of positions take any length as they are, and `rotary` with dynamic scaling, which counts
    from the length it was trained at, keeps that as the model's `max_length`. Tables of positions are continued:

    - `"interpolate"`: an input longer than the table has its positions squeezed into it, as `extrapolate="interpolate"`
      does. The default where positions are absolute (`learned`, `diet_abs`, `tupe`).
    - `"clip"`: the table is made longer by repeating its last entry. The new entries can be trained. The default where
      they are distances (`diet_rel`): far is far.

    Neither makes a model good at lengths it has not seen. Where that cannot be expected there is a warning.

    Args:
        model: a `Bert` or a model with a head around one.
        length: number of tokens, more than the model takes now.
        method: `"interpolate"`, `"clip"`, or `None` for the default.

    Returns: a new model.
    """
    encoder = get_backbone(model).encoder
    checks.positive_int("extend_length", "length", length)
    if method is not None:
        checks.one_of("extend_length", "method", method, METHODS)
    if length <= encoder.max_length:
        raise ValueError(f"The model takes {encoder.max_length} tokens already. Received: length={length}")
    if encoder.num_keys is not None:
        raise ValueError(
            f"Linformer compresses {encoder.max_length} positions with a matrix of as many columns, which has no "
            "continuation: train a model of the larger length."
        )
    names = parse(encoder.position_spec)
    fixed = [name for name in names if "max_length" in get_class(name).needs]
    for name in fixed:
        if len(get_class(name).extrapolations) == 1:
            raise ValueError(
                f"'{name}' has trained a score for each of its {encoder.max_length} positions, and there is no way to "
                "continue them: train a model of the larger length."
            )
    if method is None:
        method = "clip" if set(fixed) <= {"diet_rel"} else "interpolate"
    for name in names:
        if name in DOUBTS:
            warnings.warn(
                f"{length} tokens with '{name}', trained at {encoder.max_length}: {DOUBTS[name]}. Outputs on longer "
                "inputs are not to be trusted before fine-tuning at that length.",
                stacklevel=2,
            )
    if fixed and method == "interpolate":
        return _interpolating(model)
    # Without a table, `max_length` limits nothing, and is only what dynamic scaling counts from.
    if not fixed and _counts_from_trained_length(model):
        length = encoder.max_length
    return _lengthened(model, length)


def _counts_from_trained_length(model):
    return any(getattr(encoding, "scaling", None) == "dynamic" for encoding in position_encodings(model))


def _interpolating(model):
    new = rebuild(model, extrapolate="interpolate")
    copy_weights(_weights(model), _weights(new))
    return new


def _lengthened(model, length):
    new = rebuild(model, max_length=length)
    for old, longer in zip(_weights(model), _weights(new), strict=True):
        values = to_numpy(old)
        more = 0 if old.shape == longer.shape else length - get_backbone(model).encoder.max_length
        if more:
            axis = TABLES[old.name]
            pad = [(0, 0)] * values.ndim
            pad[axis] = (more, more) if old.name == "distances" else (0, more)
            values = np.pad(values, pad, mode="edge")
        longer.assign(values)
    return new


def _weights(model):
    """Weights of encodings, in order; a sum of encodings lists those of its parts."""
    return [w for encoding in position_encodings(model) if hasattr(encoding, "registry_name") for w in encoding.weights]
