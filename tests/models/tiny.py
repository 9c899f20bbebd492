"""A tiny BERT with any encoding, for the tests of the models."""

import numpy as np

from keras_posenc import encodings
from keras_posenc.layers.stack import SHARING
from keras_posenc.models import Bert

VOCAB, LAYERS, HEADS, WIDTH, MAX_LENGTH = 40, 2, 2, 8, 10

CASES = [(name, sharing) for name in encodings.names() for sharing in SHARING]


def make(position="learned", sharing="none", seed=1, num_layers=LAYERS, **options):
    """A built model with random weights of order one, so that no term can hide."""
    if position == "diet_abs_lin":
        options.setdefault("num_keys", 4)
    options = {"max_length": MAX_LENGTH, "dropout": 0.0, **options}
    model = Bert(VOCAB, num_layers, HEADS, WIDTH, 16, position=position, sharing=sharing, **options)
    model.build()
    randomize(model, seed)
    return model


def randomize(model, seed=1):
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)


def inputs(rng, batch=2, length=6, padding=2):
    """Random tokens of two segments, the last `padding` of them hidden in the last row."""
    mask = np.ones((batch, length), "int32")
    mask[-1, length - padding :] = 0
    return {
        "token_ids": rng.integers(0, VOCAB, (batch, length), dtype="int32"),
        "segment_ids": np.sort(rng.integers(0, 2, (batch, length), dtype="int32"), axis=1),
        "padding_mask": mask,
    }
