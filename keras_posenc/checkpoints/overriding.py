"""A stored model with other arguments: which it can be given, and what is kept of its weights."""

import collections

import keras

from keras_posenc.encodings import get_class, parse
from keras_posenc.encodings import options as encoding_options
from keras_posenc.folding import position_encodings
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
# Options of an encoding that do not change what the values of its weights mean.
NO_MEANING = ("name", "dtype", "trainable", "initializer", "extrapolate")
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
            f"The sizes of '{path}' are those of its files and cannot be changed. Received: {', '.join(sizes)}."
            f"{_for_longer(stored) if 'max_length' in sizes else ''}"
        )
    same = {name: value for name, value in overrides.items() if name not in differing}
    if differing and "position_options" not in overrides:
        differing["position_options"] = _still_taken({**stored, **overrides})
    return same, differing


def _for_longer(stored):
    """How a model with these arguments takes longer inputs."""
    ways = {way for name in _names(stored) for way in get_class(name).extrapolations} - {"error"}
    if ways:
        return f" For inputs beyond `max_length` pass extrapolate={' or '.join(map(repr, sorted(ways)))}."
    return " See `keras_posenc.conversion.extend_length` for longer inputs."


def _names(arguments):
    """Of all encodings."""
    specs = [arguments[name] for name in POSITIONS if arguments.get(name) not in (None, "same")]
    return [name for spec in specs for name in parse(spec)]


def _still_taken(arguments):
    """The stored options of encodings, without those of encodings that are no longer there."""
    taken = {option for name in _names(arguments) for option in encoding_options(name)}
    return {name: value for name, value in arguments.get("position_options", {}).items() if name in taken}


def keep_weights(old, new):
    """Copies into `new` all weights that `old` has at the same place in the same shape. Returns the others.

    Tables of encodings with other options are not kept: their entries would stand for other distances.
    """
    kept, fresh = _by_place(old), []
    meaning = {**_meanings(old), **_meanings(new)}
    for place, weight in _by_place(new).items():
        before = kept.get(place)
        same = before is not None and meaning.get(id(before)) == meaning.get(id(weight))
        if same and before.shape == weight.shape:
            weight.assign(before.value)
        else:
            fresh.append(weight)
    return fresh


def _meanings(model):
    """By the `id` of weights of encodings, what their values are to mean."""
    found = {}
    for encoding in position_encodings(model):
        config = {name: value for name, value in encoding.get_config().items() if name not in NO_MEANING}
        found.update((id(weight), (type(encoding), config)) for weight in encoding.weights)
    return found


def _by_place(model):
    """Weights by their path; the encodings of tied layers have one path and are told apart by their order."""
    seen, found = collections.Counter(), {}
    for weight in model.weights:
        found[weight.path, seen[weight.path]] = weight
        seen[weight.path] += 1
    return found
