"""Small models and what their exports answer, for the tests of the export."""

import numpy as np
import tensorflow as tf

from keras_posenc.checkpoints.tokenizer import WordPiece
from keras_posenc.models import Bert

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz0123456789.,!?$^`~|<>=+-_'\"[]()東中文漢字éïßςσ한привет😀สวัดีคร")
WORDS = ["the", "hello", "world", "cafe", "naive", "The", "Hello", "café", "привет", "—", "…"]
VOCABULARY = SPECIAL + WORDS + LETTERS + ["##" + piece for piece in LETTERS + ["the", "world", "привет"]]
LAYERS, HEADS, WIDTH, MAX_LENGTH = 2, 2, 8, 12


def make(position="diet_rel", head=None, layers=LAYERS, **options):
    """A built model with weights of order one, so that no term can hide; `head` is a function of the backbone."""
    if position == "diet_abs_lin":
        options.setdefault("num_keys", 4)
    else:
        options.setdefault("segments", "per_head")
    options = {"max_length": MAX_LENGTH, "dropout": 0.0, **options}
    model = Bert(len(VOCABULARY), layers, HEADS, WIDTH, 16, position=position, **options)
    model = model if head is None else head(model)
    model.build()
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if weight.dtype != "uint32":  # seed generators
            weight.assign(rng.normal(size=weight.shape) * 0.5)
    return model


def tokenizer(**options):
    return WordPiece(VOCABULARY, **options)


def inputs(rng, batch=3, length=9, padding=4):
    """Random tokens of two segments; the last row ends in padding."""
    mask = np.ones((batch, length), "int32")
    mask[-1, length - padding :] = 0
    return {
        "token_ids": rng.integers(0, len(VOCABULARY), (batch, length), dtype="int32"),
        "segment_ids": np.sort(rng.integers(0, 2, (batch, length), dtype="int32"), axis=1),
        "padding_mask": mask,
    }


def call(path_or_loaded, signature, **given):
    """What a signature answers, as a dict of arrays."""
    loaded = path_or_loaded
    if not hasattr(loaded, "signatures"):
        loaded = tf.saved_model.load(str(loaded))
    answer = loaded.signatures[signature](**{name: tf.constant(value) for name, value in given.items()})
    return {name: value.numpy() for name, value in answer.items()}
