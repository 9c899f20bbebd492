"""A stored model with other arguments: which it can be given, and what is kept of its weights."""

import collections

import keras

from keras_posenc.encodings import options as encoding_options
from keras_posenc.encodings import parse
from keras_posenc.models.presets import POSITIONS

SIZES = (
    "vocab_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "max_length",
    "num_segments",
    "embedding_dim",
    "tie_layers",
)
# Arguments that decide which weights there are besides those of the trained layers.
RENEWING = (*POSITIONS, "position_options", "sharing", "segments", "num_keys", "pooler")


def divide(path, stored, overrides):
    """Overrides as `(those that leave the weights as they are, those that make some of them anew)`.

    Args:
        path: of the folder, for the error.
        stored: dict, arguments of the model, or of the backbone inside a head.
        overrides: dict.
    """
    differing = {
        name: value
        for name, value in overrides.items()
        if name in SIZES + RENEWING and keras.saving.serialize_keras_object(value) != stored.get(name)
    }
    sizes = sorted(set(differing) & set(SIZES))
    if sizes:
        raise ValueError(
            f"The sizes of '{path}' are those of its files and cannot be changed. Received: {', '.join(sizes)}. For "
            "inputs beyond `max_length` pass extrapolate='clip' or 'interpolate'."
        )
    same = {name: value for name, value in overrides.items() if name not in differing}
    if differing and "position_options" not in overrides:
        differing["position_options"] = _still_taken({**stored, **overrides})
    return same, differing


def _still_taken(arguments):
    """The stored options of encodings, without those of encodings that are no longer there."""
    specs = [arguments[name] for name in POSITIONS if arguments.get(name) not in (None, "same")]
    taken = {option for spec in specs for name in parse(spec) for option in encoding_options(name)}
    return {name: value for name, value in arguments.get("position_options", {}).items() if name in taken}


def keep_weights(old, new):
    """Copies into `new` all weights that `old` has at the same place in the same shape. Returns the others."""
    kept, fresh = _by_place(old), []
    for place, weight in _by_place(new).items():
        if place in kept and kept[place].shape == weight.shape:
            weight.assign(kept[place].value)
        else:
            fresh.append(weight)
    return fresh


def _by_place(model):
    """Weights by their path; the encodings of tied layers have one path and are told apart by their order."""
    seen, found = collections.Counter(), {}
    for weight in model.weights:
        found[weight.path, seen[weight.path]] = weight
        seen[weight.path] += 1
    return found
