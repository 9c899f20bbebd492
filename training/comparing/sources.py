"""The model of each row of the table: fresh weights of one size, or a checkpoint for each encoding."""

import inspect

from keras_posenc import encodings, models
from keras_posenc.models.bert import Bert
from training import ignored
from training.model_flags import parse_options
from training.tasks.models import ModelSource, find

PLACE = "{positions}"


def model_options(values, position, defaults):
    """Arguments of the model with an encoding: defaults, then flags; options that only others take are left out."""
    options = {**({} if values["model"].present else defaults), **parse_options(values.model_options)}
    for name in ("sharing", "dropout"):
        if values[name].value is not None:
            options[name] = values[name].value
    arguments = inspect.signature(Bert.__init__).parameters
    of_some = {option for name in encodings.names() for option in encodings.options(name)} - set(arguments)
    of_this = {option for name in encodings.parse(position) for option in encodings.options(name)}
    return {name: value for name, value in options.items() if name not in of_some or name in of_this}


def source(values, position, tokenizer=None, **defaults):
    """The `ModelSource` of an encoding.

    Args:
        values: parsed flags.
        position: encodings joined by `+`.
        tokenizer: if `--tokenizer` names none; by default that of the checkpoint.
        **defaults: arguments of the model if no size is named.
    """
    if values.tokenizer is not None:
        from keras_posenc.checkpoints.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(find(values.tokenizer))
    encodings.parse(position)
    if values.checkpoint is not None:
        ignored.refuse(values, "--checkpoint", ["model", "sharing"])
        if PLACE not in values.checkpoint:
            raise ValueError(
                f"A checkpoint has the positions it was trained with. Name one for each encoding, with {PLACE} in "
                f"--checkpoint where they differ, e.g. --checkpoint=runs/{PLACE}/model. Received: {values.checkpoint}"
            )
        options = {name: value for name, value in parse_options(values.model_options).items()}
        options.update({"dropout": values.dropout} if values.dropout is not None else {})
        return ModelSource(values.checkpoint.replace(PLACE, position), None, tokenizer, None, options, values.segments)
    if values.model is None:
        raise ValueError(
            f"Name a size for fresh weights with --model ({', '.join(models.list())}), or trained models with "
            f"--checkpoint, e.g. --checkpoint=runs/{PLACE}/model."
        )
    options = model_options(values, position, defaults)
    return ModelSource(None, values.model, tokenizer, position, options, values.segments)
