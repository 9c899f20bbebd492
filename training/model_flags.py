"""The flags that say which model to train, in common to all binaries that train a BERT."""

from absl import flags

from keras_posenc import encodings, models
from keras_posenc.checkpoints import installed
from keras_posenc.layers.stack import SHARING
from keras_posenc.models.bert import SEGMENTS
from training.tasks.models import ModelSource, find


def define(flag_values=flags.FLAGS, model=None, positions=True):
    """Defines the flags. `model`: default of `--model`; `positions`: whether one encoding is chosen by a flag."""
    known = ", ".join(installed.KNOWN)
    named = dict(flag_values=flag_values)
    flags.DEFINE_string("checkpoint", None, f"Trained model: a folder, or installed weights: {known}.", **named)
    flags.DEFINE_string("model", model, f"Size of a model with fresh weights: {', '.join(models.list())}.", **named)
    flags.DEFINE_string("tokenizer", None, "Folder of the vocabulary, if not that of --checkpoint.", **named)
    if positions:
        names = ", ".join(encodings.names())
        flags.DEFINE_string("positions", "learned", f"Of fresh weights, joined by +: {names}.", **named)
    flags.DEFINE_list(
        "model_options", [], "Further arguments of the model and its positions, e.g. rank=64,dropout=0.", **named
    )
    flags.DEFINE_enum("sharing", None, list(SHARING), "Of position weights over heads or layers.", **named)
    flags.DEFINE_enum("segments", None, list(SEGMENTS), "Where segments enter; per_head is DIET's.", **named)
    flags.DEFINE_float("dropout", None, "Of embeddings and blocks.", **named)


def parse_options(written):
    """Options from `name=value` strings; numbers, true and false are read as such."""
    options = {}
    for item in written:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"--model_options takes name=value, joined by commas. Received: {item!r}")
        options[name.strip()] = _value(value.strip())
    return options


def _value(text):
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def source(flag_values=flags.FLAGS, tokenizer=None, position=None, **more):
    """The `ModelSource` that the flags describe.

    Args:
        flag_values: parsed flags.
        tokenizer: where `--tokenizer` does not name one; by default that of the checkpoint.
        position: encodings, if they are not a flag of this binary.
        **more: further arguments of the model, which flags override.
    """
    values = flag_values
    options = {**more, **parse_options(values.model_options)}
    for name in ("sharing", "dropout"):
        if values[name].value is not None:
            options[name] = values[name].value
    if values.tokenizer is not None:
        from keras_posenc.checkpoints.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(find(values.tokenizer))
    if position is None and "positions" in values:
        given = values["positions"].present or values.checkpoint is None
        position = values.positions if given else None
    model = values.model if values.checkpoint is None or values["model"].present else None
    if values.checkpoint is None and model is None:
        raise ValueError("Name a trained model with --checkpoint, or a size for fresh weights with --model.")
    if position is not None:
        encodings.parse(position)  # an unknown name is an error before any data is read
    return ModelSource(values.checkpoint, model, tokenizer, position, options, values.segments)
