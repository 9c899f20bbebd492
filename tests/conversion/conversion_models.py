"""Small models with positional scores that are known."""

import numpy as np

from keras_posenc.models import Bert, MaskedLM

VOCAB, LAYERS, HEADS, WIDTH, LENGTH = 30, 2, 2, 16, 24


def make(position="learned", seed=1, head=False, deviation=0.5, **options):
    """A built model with random weights."""
    options = {"max_length": LENGTH, "dropout": 0.0, "num_layers": LAYERS, "hidden_dim": WIDTH, **options}
    model = Bert(VOCAB, num_heads=HEADS, intermediate_dim=32, position=position, **options)
    model = MaskedLM(model) if head else model
    model.build()
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * deviation)
    return model


def inputs(rng, texts=4, length=LENGTH, padding=5):
    """Tokens in two segments; the last texts are shorter."""
    mask = np.ones((texts, length), "int32")
    mask[texts // 2 :, length - padding :] = 0
    return {
        "token_ids": rng.integers(3, VOCAB, (texts, length), dtype="int32"),
        "segment_ids": np.sort(rng.integers(0, 2, (texts, length), dtype="int32"), axis=1),
        "padding_mask": mask,
    }


def hidden(model, tokens):
    backbone = getattr(model, "backbone", model)
    real = np.asarray(tokens["padding_mask"], bool)
    return np.asarray(backbone(tokens)["sequence_output"])[real]
