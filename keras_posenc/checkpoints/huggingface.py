"""BERT and ALBERT from the files of a Hugging Face model, without torch or transformers."""

import json
import warnings
from pathlib import Path

import numpy as np

from keras_posenc.checkpoints import names, tensors
from keras_posenc.checkpoints.building import build_for_loading
from keras_posenc.checkpoints.copying import copy_all
from keras_posenc.checkpoints.tasks import with_head
from keras_posenc.models import Bert

CONFIG = "config.json"

# `hidden_act`, as Keras or `keras_posenc.models.activations` call it.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}

# Argument of `Bert`: (key of config.json, tensor whose shape also tells it, axis of that shape).
SIZES = {
    "vocab_size": ("vocab_size", names.WORDS, 0),
    "num_layers": ("num_hidden_layers", None, None),
    "num_heads": ("num_attention_heads", None, None),
    "hidden_dim": ("hidden_size", "{layer}{intermediate}.weight", 1),
    "intermediate_dim": ("intermediate_size", "{layer}{intermediate}.weight", 0),
    "max_length": ("max_position_embeddings", "embeddings.position_embeddings.weight", 0),
    "num_segments": ("type_vocab_size", "embeddings.token_type_embeddings.weight", 0),
}

# Dropout where config.json does not tell it, of hidden states, attention and heads; `None` as that of hidden states.
DROPOUT = {
    "bert": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "classifier_dropout": None},
    "albert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.1},
}

# Settings of config.json that change the model into one that is not built here, and the values that do not.
ORDINARY = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "num_hidden_groups": (1, None),
    "inner_group_num": (1, None),
    "pruned_heads": ({}, [], None),
}


def read_config(path):
    """The `config.json` of a folder, or beside a file of weights; empty if there is none."""
    path = Path(path)
    file = (path if path.is_dir() else path.parent) / CONFIG
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"'{file}' is not a JSON object: {error}") from error


def load(path, task=None, num_classes=None, **overrides):
    """The model of a folder or file, as `(model, config, names of weights that are not from the files)`.

    Arguments are those of `keras_posenc.checkpoints.load`.
    """
    config = read_config(path)
    _check_config(path, config)
    with tensors.opened(path) as found:
        found = found.renamed(names.modern)
        prefix = names.find_prefix(found)
        outer = names.outer_prefix(prefix)
        kind = "albert" if prefix + names.ALBERT_LAYER + "ffn.weight" in found else config.get("model_type", "bert")
        stored = _stored_task(found, prefix, outer, kind, config)
        task = stored if task is None else task
        arguments = _arguments(path, config, found, prefix, kind, overrides)
        has_pooler = f"{prefix}{names.POOLER[kind]}.weight" in found
        arguments.setdefault("pooler", has_pooler or task in ("classify", "regress"))
        backbone = Bert(**arguments)
        kept, num_classes = _stored_head(task, stored, num_classes, found, outer)
        # A dropout that was asked for is that of the whole model.
        head_dropout = None if "dropout" in overrides else _dropouts(config, kind)[2]
        model = with_head(backbone, task, num_classes, head_dropout)
        build_for_loading(model)
        copies, unused = names.backbone_copies(backbone, kind, prefix, has_pooler and backbone.pooler is not None)
        if kept:
            copies += names.head_copies(model, task, kind, outer, found)
            if task == "masked_lm":
                _check_tied(config, found, prefix, outer, kind)
        copy_all(copies, found, _ignored(found, prefix, outer, unused), f"'{path}'")
        filled = {id(copy.variable) for copy in copies}
    fresh = tuple(weight.path for weight in model.trainable_weights if id(weight) not in filled)
    return model, config, fresh


def _check_config(path, config):
    kind = config.get("model_type", "bert")
    if kind not in names.PARTS:
        what = ", ".join(config.get("architectures") or [kind])
        raise ValueError(f"'{path}' is a {what} (model_type={kind!r}). Only BERT and ALBERT can be read.")
    unlike = {k: config[k] for k, ordinary in ORDINARY.items() if k in config and config[k] not in ordinary}
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        unlike["hidden_act"] = activation
    if any(name.endswith("ForMultipleChoice") for name in config.get("architectures") or ()):
        unlike["architectures"] = config["architectures"]
    if unlike:
        settings = ", ".join(f"{key}={value!r}" for key, value in unlike.items())
        raise ValueError(f"'{path}' is a variant of {kind.upper()} that cannot be read: {settings}.")


def _stored_task(found, prefix, outer, kind, config):
    """The task whose head is in the files, or `None`."""
    if f"{outer}{names.MASKED_LM[kind][0]}.weight" in found:
        return "masked_lm"
    if f"{outer}qa_outputs.weight" in found:
        return "span"
    if f"{outer}classifier.weight" not in found:
        return None
    architectures = config.get("architectures") or ()
    if architectures:
        by_token = any(name.endswith("ForTokenClassification") for name in architectures)
    else:
        # Only a classifier of whole sequences needs the pooler, and only there it is saved.
        by_token = f"{prefix}{names.POOLER[kind]}.weight" not in found
    return "token_classify" if by_token else "classify"


def _arguments(path, config, found, prefix, kind, overrides):
    """Constructor arguments of `Bert`."""
    layer, intermediate = names.layer_name(kind, 0), names.PARTS[kind]["intermediate"]
    sizes = {}
    for argument, (key, name, axis) in SIZES.items():
        name = name and prefix + name.format(layer=layer, intermediate=intermediate)
        if key in config:
            sizes[argument] = config[key]
        elif name in found:
            sizes[argument] = found.shape(name)[axis]
        elif argument == "num_layers" and kind == "bert":
            sizes[argument] = len({n for n in found if n.endswith(f".{intermediate}.weight")})
    if kind == "albert":
        sizes["embedding_dim"] = config.get("embedding_size") or found.shape(prefix + names.WORDS)[1]
    differing = {name: value for name, value in overrides.items() if name in sizes and value not in (sizes[name], None)}
    if differing or "tie_layers" in overrides:
        raise ValueError(
            f"The sizes of '{path}' are those of its files and cannot be changed. Received: "
            f"{', '.join(sorted({*differing, *({'tie_layers'} & set(overrides))}))}. For inputs beyond `max_length` "
            "pass extrapolate='clip' or 'interpolate'."
        )
    missing = [name for name in SIZES if name not in sizes and name not in overrides]
    if missing:
        raise ValueError(
            f"Neither a {CONFIG} nor the shapes of the tensors of '{path}' tell {', '.join(missing)}. Pass "
            f"{', '.join(f'{name}=...' for name in missing)} to `load`."
        )
    dropout, attention_dropout, _ = _dropouts(config, kind)
    return {
        **sizes,
        "tie_layers": kind == "albert",
        "activation": ACTIVATIONS[config.get("hidden_act", "gelu_new" if kind == "albert" else "gelu")],
        "dropout": dropout,
        "attention_dropout": attention_dropout,
        "epsilon": config.get("layer_norm_eps", 1e-12),
        **overrides,
    }


def _dropouts(config, kind):
    """Of hidden states, attention and heads."""
    return [config.get(name, default) for name, default in DROPOUT[kind].items()]


def _stored_head(task, stored, num_classes, found, outer):
    """Whether the head in the files is the one asked for, and the number of classes to construct it with."""
    if task is None or stored != ("classify" if task == "regress" else task):
        return False, num_classes
    if stored not in ("classify", "token_classify"):
        return True, num_classes
    classes = found.shape(f"{outer}classifier.weight")[0]
    if task == "regress":  # stored as a classifier of one class
        return classes == 1, num_classes
    return num_classes in (None, classes), num_classes or classes


def _check_tied(config, found, prefix, outer, kind):
    """The masked-LM head here reads the token embeddings; a decoder that is no copy of them cannot be used."""
    name, words = f"{outer}{names.MASKED_LM[kind][2]}.decoder.weight", prefix + names.WORDS
    if name not in found or np.array_equal(found[name], found[words]):
        return
    if config.get("tie_word_embeddings", True):
        warnings.warn(f"{name} differs from {words}, but the two are said to be tied. It is not used.", stacklevel=4)
        return
    raise ValueError(
        f"tie_word_embeddings is false and {name} differs from {words}, which the masked-LM head here reads. Load the "
        "encoder alone with task='backbone'."
    )


def _ignored(found, prefix, outer, unused):
    """Names that may be left over: buffers, embeddings that others replace, and what belongs to heads or a pooler."""
    groups = (*(outer + head for head in names.HEADS), prefix + "pooler.")
    return [*unused, *(prefix + name for name in names.BUFFERS), *(n for n in found if n.startswith(groups))]
