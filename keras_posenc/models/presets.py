"""Named sizes, and models made of a name."""

import importlib
import inspect

from keras_posenc.encodings import names as encoding_names
from keras_posenc.encodings import options as encoding_options
from keras_posenc.encodings import parse

# Where each class is, imported when one of its presets is built.
CLASSES = {"Bert": "keras_posenc.models.bert", "EncoderDecoder": "keras_posenc.models.encoder_decoder"}


def _size(num_layers, num_heads, hidden_dim, intermediate_dim, vocab_size=30522, **more):
    return dict(
        vocab_size=vocab_size,
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        **more,
    )


PRESETS = {
    "Bert": {
        "bert_tiny": _size(2, 2, 128, 512),
        "bert_small": _size(4, 8, 512, 2048),
        "bert_base": _size(12, 12, 768, 3072),
        "bert_base_multilingual": _size(12, 12, 768, 3072, vocab_size=120000),
        "minilm_l6": _size(6, 12, 384, 1536),
        "minilm_l12": _size(12, 12, 384, 1536),
        "albert_base": _size(
            12, 12, 768, 3072, vocab_size=30000, embedding_dim=128, tie_layers=True, activation="gelu_tanh"
        ),
    },
    "EncoderDecoder": {
        "transformer_tiny": _size(2, 2, 128, 512, vocab_size=8000, max_length=512, dropout=0.1),
        "transformer_base": _size(6, 8, 512, 2048, vocab_size=32000, max_length=512, dropout=0.1),
    },
}

# Constructor arguments that name encodings, whose options `build` takes.
POSITIONS = ("position", "decoder_position", "cross_position")

# Task: (class in `heads`, constructor arguments it fixes, whether it needs `num_classes`).
TASKS = {
    "masked_lm": ("MaskedLM", {}, False),
    "classify": ("Classifier", {}, True),
    "regress": ("Classifier", {"num_classes": 1}, False),
    "span": ("SpanPredictor", {}, False),
    "token_classify": ("TokenClassifier", {}, True),
}


def names():
    """The names of all sizes, sorted."""
    return sorted(name for sizes in PRESETS.values() for name in sizes)


def build(name, task=None, num_classes=None, **options):
    """A model of a named size, built, with fresh weights.

    Args:
        name: one of `keras_posenc.models.list()`.
        task: `None` for the bare model, or `"masked_lm"`, `"classify"`, `"regress"`, `"span"`, `"token_classify"`.
        num_classes: for `"classify"` and `"token_classify"`.
        **options: arguments of the model's class that differ from those of the size, such as `position`, `sharing`,
            `segments` or `dropout`; and options of the position encoding, such as `rank` or `kernels`.

    Example:

    >>> model = keras_posenc.models.build("bert_tiny", position="diet_abs", rank=16, sharing="layer", task="masked_lm")
    >>> model.position_summary(print_fn=None).positions
    32768
    """
    class_name, size = _find(name)
    cls = getattr(importlib.import_module(CLASSES[class_name]), class_name)
    if task is not None:
        _check_task(name, class_name, task, num_classes)
    elif num_classes is not None:
        raise ValueError(f"`num_classes` goes with a task. Received: num_classes={num_classes!r}, task=None")
    model = cls(**_arguments(cls, size, options))
    if task is not None:
        head, fixed, _ = TASKS[task]
        given = {} if num_classes is None else {"num_classes": num_classes}
        model = getattr(importlib.import_module("keras_posenc.models.heads"), head)(model, **{**given, **fixed})
    model.build()
    return model


def _find(name):
    for class_name, sizes in PRESETS.items():
        if name in sizes:
            return class_name, sizes[name]
    raise ValueError(f"Unknown model: {name!r}. Known: {', '.join(names())}.")


def _check_task(name, class_name, task, num_classes):
    if class_name != "Bert":
        raise ValueError(f"'{name}' is an {class_name}, which has no task heads. Received: task={task!r}")
    if task not in TASKS:
        raise ValueError(f"Unknown task: {task!r}. Known: {', '.join(TASKS)}, or None.")
    needs_classes = TASKS[task][2]
    if needs_classes and num_classes is None:
        raise ValueError(f"task={task!r} needs `num_classes`.")
    if not needs_classes and num_classes is not None:
        raise ValueError(f"task={task!r} takes no `num_classes`. Received: num_classes={num_classes!r}")


def _arguments(cls, size, options):
    """Constructor arguments: the size, what was given, and what the encoding takes in `position_options`."""
    parameters = inspect.signature(cls.__init__).parameters
    known = [name for name in parameters if name not in ("self", "kwargs")] + ["name", "dtype"]
    given = {key: value for key, value in options.items() if key in known}
    others = {key: value for key, value in options.items() if key not in known}
    specs = [given.get(name, parameters[name].default) for name in POSITIONS if name in parameters]
    parts = dict.fromkeys(part for spec in specs if spec not in (None, "same") for part in parse(spec))
    position = "+".join(part for part in parts if part != "none") or "none"
    offered = sorted({option for part in parse(position) for option in encoding_options(part)})
    unknown = sorted(set(others) - set(offered))
    if unknown:
        elsewhere = [
            f"'{option}' is an option of {', '.join(e for e in encoding_names() if option in encoding_options(e))}"
            for option in unknown
            if any(option in encoding_options(e) for e in encoding_names())
        ]
        raise ValueError(
            f"Unknown option {', '.join(map(repr, unknown))}. {cls.__name__} takes: {', '.join(known)}. "
            f"position={position!r} takes: {', '.join(offered) or 'none'}."
            + (f" ({'; '.join(elsewhere)}.)" if elsewhere else "")
        )
    merged = {**size, **given}
    if others:
        merged["position_options"] = {**(given.get("position_options") or {}), **others}
    return merged
