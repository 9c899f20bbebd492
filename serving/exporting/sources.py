"""Whatever a user calls a checkpoint: a folder, an installed package's weights, a `.keras` file."""

import dataclasses
from pathlib import Path

import keras

from keras_posenc import checkpoints
from keras_posenc.checkpoints import folder, installed, remote
from keras_posenc.checkpoints import tokenizer as tokenizers


@dataclasses.dataclass
class Source:
    """A model to export, its tokenizer and the names of its classes; `None` where there are none."""

    model: keras.Model
    tokenizer: object = None
    labels: list | None = None


def open_source(name, task=None):
    """Opens a folder of this library or of Hugging Face, known installed weights, or a `.keras` file.

    Args:
        name: path or URI; or a name such as `minilm` of `keras_posenc.checkpoints.installed`.
        task: head to load instead of the stored one, as in `keras_posenc.checkpoints.load`. It must be stored.
    """
    path = remote.fetch(name) if remote.is_remote(name) else Path(name)
    if path.suffix == ".keras":
        return _keras_file(path, task)
    if path.exists():
        if not folder.is_own(path) and folder.is_own(path / "model"):
            path = path / "model"  # the output of a training run
        checkpoint = checkpoints.load(path, task)
    elif name in installed.KNOWN:
        checkpoint = installed.load(name, task)
    else:
        raise FileNotFoundError(
            f"There is no folder or file '{name}', and no known weights of that name. Known: "
            f"{', '.join(installed.KNOWN)}."
        )
    if checkpoint.fresh:
        some = ", ".join(checkpoint.fresh[:4])
        raise ValueError(f"'{name}' has no trained weights for task={task!r}: {some} would be random.")
    return Source(checkpoint.model, checkpoint.tokenizer, _labels(checkpoint))


def _keras_file(path, task):
    if task is not None:
        raise ValueError(f"A .keras file holds one model, with its head. Received: task={task!r}")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file '{path}'.")
    import keras_posenc.models  # noqa: F401  registers the classes

    model = keras.saving.load_model(path, compile=False)
    place = path.parent
    return Source(model, tokenizers.load_tokenizer(place) if tokenizers.found(place) else None)


def _labels(checkpoint):
    """Hugging Face's `id2label`, unless it says nothing but `LABEL_0`, `LABEL_1`, ..."""
    names = checkpoint.config.get("id2label")
    classes = getattr(checkpoint.model, "num_classes", None)
    if not isinstance(names, dict) or len(names) != classes:
        return None
    labels = [str(names.get(str(index), names.get(index))) for index in range(classes)]
    return None if all(label.startswith("LABEL_") for label in labels) else labels
