"""A file beside an exported model that says what it is: for `serving.inspect`, the viewer and the client."""

import json
from pathlib import Path

import keras
import tensorflow as tf

from keras_posenc.checkpoints.tasks import task_of
from keras_posenc.encodings import get_class, parse
from keras_posenc.folding import position_encodings
from keras_posenc.version import __version__
from serving.exporting.signatures import meaning

FILE = "assets.extra/keras_posenc.json"
FORMAT = 1


def describe(model, max_length, signatures, **more):
    """The description of a model as a dict that JSON can hold.

    Args:
        model: a `Bert` or a head around one, folded if its export is.
        max_length: largest number of tokens of a request.
        signatures: names.
        **more: further entries.
    """
    backbone = getattr(model, "backbone", model)
    encoder = backbone.encoder
    parts = parse(encoder.position_spec)
    folded = [e.folded_length for e in position_encodings(model) if e.folded_length is not None]
    return {
        "format": FORMAT,
        "keras_posenc": __version__,
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "class": type(model).__name__,
        "task": task_of(model),
        "logits": meaning(model),
        "signatures": list(signatures),
        "position": "+".join(parts),
        "doors": sorted({door for part in parts for door in get_class(part).doors}),
        "position_options": encoder.position_options or {},
        "sharing": encoder.sharing,
        "segments": backbone.segments,
        "max_length": max_length,
        "folded_length": min(folded, default=None),
        "num_layers": encoder.num_layers,
        "num_heads": encoder.num_heads,
        "hidden_dim": encoder.hidden_dim,
        "intermediate_dim": encoder.intermediate_dim,
        "vocab_size": backbone.vocab_size,
        "num_segments": backbone.num_segments,
        "num_keys": encoder.num_keys,
        "tie_layers": encoder.tie_layers,
        "parameters": model.count_params(),
        "position_parameters": model.position_summary(print_fn=None).positions,
        **more,
    }


def write(folder, description):
    file = Path(folder) / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(description, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def read(folder):
    """The description in a version folder, or `None` if there is none that can be read."""
    try:
        found = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
