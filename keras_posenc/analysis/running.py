"""Runs a model over many texts and gives what it computed inside, batch by batch."""

import dataclasses
import warnings

import keras
import numpy as np
from keras import ops

from keras_posenc.analysis.effective import effective_attention
from keras_posenc.conversion.profile import attention_encodings, get_backbone

TOKENS = 2048  # of a batch
STEP = 8  # lengths of batches are multiples of it: fewer shapes, hardly more padding


@dataclasses.dataclass
class Batch:
    """What a model computed for some texts; arrays of NumPy.

    Attributes:
        indices: which texts, `(batch,)`.
        inputs: dict of `token_ids`, `segment_ids`, `padding_mask`, `(batch, length)`.
        hidden_states: `(batch, layers + 1, length, width)`, the input of the first layer and the output of each.
        attention, effective: `(batch, layers, heads, length, length)`.
        values: `(batch, layers, heads, length, head size)`.
    """

    indices: np.ndarray
    inputs: dict
    hidden_states: np.ndarray
    attention: np.ndarray
    values: np.ndarray
    effective: np.ndarray

    @property
    def mask(self):
        return self.inputs["padding_mask"].astype(bool)


def batches(inputs, tokens=TOKENS):
    """Indices of texts of similar length, for batches of at most `tokens` tokens with their padding.

    Args:
        inputs: dict with `padding_mask`, `(texts, length)`.
        tokens: number of tokens of a batch; a longer text is a batch by itself.

    Returns: list of index arrays, from the shortest texts to the longest.
    """
    lengths = np.asarray(inputs["padding_mask"]).sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    found, begin = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - begin) * _rounded(lengths[order[end]]) > tokens:
            found.append(order[begin:end])
            begin = end
    return found


def _rounded(length):
    return -(-int(length) // STEP) * STEP


def select(inputs, indices):
    """The inputs of some texts, cut to the longest of them."""
    lengths = np.asarray(inputs["padding_mask"])[indices].sum(axis=1)
    length = min(_rounded(lengths.max()), np.asarray(inputs["padding_mask"]).shape[1])
    return {name: np.asarray(value)[indices, :length] for name, value in inputs.items()}


def check_keys(model):
    """Refuses models whose keys are no tokens."""
    if get_backbone(model).encoder.num_keys is not None:
        raise ValueError(
            "The keys of a Linformer are mixtures of tokens: its attention maps have no tokens to name and cannot be "
            "studied."
        )


def values_note(model):
    """What effective attention does not cover where positions are added to the values, or `None`."""
    encodings = attention_encodings(get_backbone(model).encoder)
    if not any(encoding is not None and "values" in encoding.doors for encoding in encodings):
        return None
    return (
        f"The positions of '{get_backbone(model).encoder.position_spec}' are also added to the values. Effective "
        "attention is that of the values without them: what it leaves out has no effect on A V, and may have one on "
        "what the positions add to the output of a head."
    )


class Runner:
    """A model that gives its intermediates and its effective attention, compiled once for all lengths.

    Where an encoding adds to the values (`shaw`), effective attention is about `A V` only, and a warning says so.

    Args:
        model: a `Bert` or a model with a head around one.

    >>> model = keras_posenc.models.build("bert_tiny", max_length=16)
    >>> batch = keras_posenc.analysis.Runner(model)(
    ...     {"token_ids": np.ones((3, 5), "int32"), "padding_mask": np.ones((3, 5), "int32")}
    ... )
    >>> batch.effective.shape
    (3, 2, 2, 5, 5)
    """

    def __init__(self, model):
        check_keys(model)
        self.backbone = get_backbone(model)
        if note := values_note(model):
            warnings.warn(note, stacklevel=2)
        self._call = self._compute
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            self._call = tf.function(self._compute, reduce_retracing=True)

    def _compute(self, inputs):
        found = self.backbone(inputs, return_intermediates=True, training=False)
        mask = inputs.get("padding_mask")
        # Layer by layer: what a layer needs stays in the caches.
        found["effective"] = [effective_attention(*layer, mask) for layer in zip(found["attention"], found["values"])]
        names = ("hidden_states", "attention", "values", "effective")
        return {name: ops.stack(found[name], axis=1) for name in names}

    def __call__(self, inputs, indices=None):
        count, length = np.shape(inputs["token_ids"])
        inputs = {name: value for name, value in inputs.items() if value is not None}
        inputs = {"padding_mask": np.ones((count, length), "int32"), **inputs}
        found = self._call({name: ops.convert_to_tensor(value, "int32") for name, value in inputs.items()})
        found = {name: ops.convert_to_numpy(value) for name, value in found.items()}
        return Batch(np.arange(count) if indices is None else indices, inputs, **found)
