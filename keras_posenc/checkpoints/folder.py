"""Our own folder: weights, configuration and tokenizer of any model of this library.

`keras_posenc.json` says what the model is, `model.weights.h5` has its weights, and the tokenizer's files are beside
them. A folder is there whole or not at all; behind a URI, `keras_posenc.json` comes last, and nothing is a checkpoint
without it.
"""

import contextlib
import importlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import keras

from keras_posenc.checkpoints import overriding, remote
from keras_posenc.checkpoints.building import build_for_loading
from keras_posenc.checkpoints.tasks import DROPPING, task_of, with_head
from keras_posenc.models import PositionalModel
from keras_posenc.models.presets import CLASSES
from keras_posenc.version import __version__

CONFIG = "keras_posenc.json"
WEIGHTS = "model.weights.h5"
FORMAT = 1


def is_own(path):
    """Whether `save` wrote this folder."""
    return (Path(path) / CONFIG).is_file()


def save(model, path, tokenizer=None, overwrite=False):
    """Writes a model, and its tokenizer if given, to one folder that `load` opens.

    The folder appears when all of it is written. Folded positions are not saved: the weights are.

    Args:
        model: any model of this library, built.
        path: of the folder, which must not exist. It may be a URI such as `gs://...`.
        tokenizer: from `load_tokenizer` or a `Checkpoint`.
        overwrite: replace a folder that `save` wrote. Any other folder is never replaced.
    """
    if not isinstance(model, PositionalModel):
        raise ValueError(f"`save` takes a model of keras_posenc.models. Received: {type(model).__name__}")
    if not model.built:
        raise ValueError(f"'{model.name}' has no weights yet. Call `build()` or call it on inputs first.")
    exists = remote.exists if remote.is_remote(path) else os.path.exists
    if exists(path) and not overwrite:
        raise FileExistsError(f"'{path}' exists. Pass overwrite=True to replace it, or choose another folder.")
    if exists(path) and not any(exists(f"{path}/{name}") for name in (CONFIG, remote.PARTIAL)):
        raise FileExistsError(f"'{path}' was not written by `save`, and is not replaced. Choose another folder.")
    config = {
        "format": FORMAT,
        "class": type(model).__name__,
        "task": task_of(model),
        "library_version": __version__,
        "keras_version": keras.__version__,
        "model": _architecture(model),
    }
    with _sending(str(path)) if remote.is_remote(path) else _replacing(Path(path)) as partial:
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        model.save_weights(partial / WEIGHTS)
        if tokenizer is not None:
            tokenizer.save(partial)


def _architecture(model):
    """What Keras needs to construct the model: not how it was compiled, which a reader may not be able to import."""
    config = dict(model.get_config())
    if "backbone" in config:
        config["backbone"] = _architecture(model.backbone)
    return {
        "module": type(model).__module__,
        "class_name": type(model).__name__,
        "registered_name": keras.saving.get_registered_name(type(model)),
        "config": keras.saving.serialize_keras_object(config),
    }


@contextlib.contextmanager
def _sending(uri):
    """A new folder, which is copied to `uri` if nothing fails."""
    with tempfile.TemporaryDirectory() as local:
        yield Path(local)
        remote.send(local, uri.rstrip("/"), last=CONFIG)


@contextlib.contextmanager
def _replacing(path):
    """A new folder beside `path`, which takes its place if nothing fails and goes away if something does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield partial
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o777 & ~umask)  # temporary folders are for their owner only
        if path.exists():
            # A folder cannot be renamed onto one that is not empty: the old one steps aside first.
            aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            os.rename(path, aside / "old")
            try:
                os.rename(partial, path)
            except BaseException:
                os.rename(aside / "old", path)
                raise
            finally:
                shutil.rmtree(aside)
        else:
            os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def load(path, task=None, num_classes=None, **overrides):
    """The model of a folder, as `(model, config, names of weights that are not from the files)`."""
    path = Path(path)
    config = _read_config(path)
    same, renewing = overriding.divide(path, _backbone_arguments(config["model"]), overrides)
    model = _construct(path, config["model"], same)
    build_for_loading(model)
    weights = path / WEIGHTS
    if not weights.is_file():
        raise FileNotFoundError(f"'{path}' has no weights: looked for {WEIGHTS}.")
    try:
        model.load_weights(weights)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"'{weights}' cannot be read, or is not of this {config['class']}: {error}") from error
    fresh = []
    if renewing:
        loaded, model = model, _construct(path, config["model"], {**same, **renewing})
        model.build()
        fresh = overriding.keep_weights(loaded, model)
    model, head = _for_task(model, config["task"], task, num_classes)
    fresh = {id(weight) for weight in fresh + head}
    return model, config, tuple(weight.path for weight in model.trainable_weights if id(weight) in fresh)


def _read_config(path):
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        version = config["format"]
        config = {**config, "class": config["class"], "task": config["task"], "model": dict(config["model"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"'{path / CONFIG}' is damaged: {error!r}") from error
    if version != FORMAT:
        raise ValueError(
            f"'{path}' has format {version}, written by keras_posenc {config.get('library_version')}. This version "
            f"({__version__}) reads format {FORMAT}."
        )
    return config


def _construct(path, serialized, overrides):
    for module in CLASSES.values():
        importlib.import_module(module)  # registers the classes
    name = serialized.get("registered_name")
    cls = keras.saving.get_registered_object(name)
    if not (isinstance(cls, type) and issubclass(cls, PositionalModel)):
        raise ValueError(
            f"'{path}' holds a {name!r}, which is no registered model. If it is yours, import its module first."
        )
    own = dict(serialized["config"])
    of_all = ("dtype", "dropout") if cls.__name__ in DROPPING else ("dtype",)
    own.update((name, overrides[name]) for name in of_all if name in overrides)
    arguments = {**_backbone_arguments(serialized), **overrides}
    if "backbone" in own:
        own["backbone"] = {**own["backbone"], "config": arguments}
    else:
        own = arguments
    return keras.saving.deserialize_keras_object({**serialized, "config": own})


def _backbone_arguments(serialized):
    """The arguments of a model, or of the backbone inside a head."""
    return serialized["config"].get("backbone", serialized)["config"]


def _for_task(model, stored, task, num_classes):
    """The model with the head that was asked for, and a list of the weights that are new."""
    task = stored if task is None else task
    if task == stored and num_classes in (None, getattr(model, "num_classes", None)):
        return model, []
    backbone = getattr(model, "backbone", model)
    if task != "backbone" and type(backbone).__name__ != "Bert":
        raise ValueError(
            f"A {type(backbone).__name__} has no task heads. Received: task={task!r}, num_classes={num_classes!r}"
        )
    model = with_head(backbone, task, num_classes, dropout=getattr(model, "dropout", None) if task == stored else None)
    model.build()
    own = {id(weight) for weight in backbone.weights}
    return model, [weight for weight in model.weights if id(weight) not in own]
