"""Masks, from what callers give to what the softmax needs."""

import keras
from keras import ops

NEGATIVE = -1e30  # finite, so that a fully masked row has no NaN on its way to zeros


def check_mask(mask, name="attention_mask"):
    """A mask says which keys may be seen: booleans, or integers 0 and 1. Floats are refused, being ambiguous."""
    if mask is not None and "float" in keras.backend.standardize_dtype(mask.dtype):
        raise ValueError(
            f"`{name}` must be boolean or integer, with True or 1 where attention is allowed. Received: dtype="
            f"{keras.backend.standardize_dtype(mask.dtype)}. Convert it: `mask > 0` if it has 1.0 where attention is "
            "allowed, `mask == 0` if it is added to scores, with 0.0 there."
        )
    return mask


def as_four_dims(mask, batch=None, query_length=None, key_length=None):
    """`(batch, keys)`, `(batch, queries, keys)` or `(batch, heads, queries, keys)`, as the last of them.

    Sizes that are known are checked; there may be one text, or one query, for all.
    """
    shape = tuple(mask.shape)
    allowed = {0: (1, batch), -1: (key_length,), -2: (1, query_length) if len(shape) > 2 else (None,)}
    fits = len(shape) in (2, 3, 4) and all(
        shape[axis] is None or not isinstance(sizes[-1], int) or shape[axis] in sizes for axis, sizes in allowed.items()
    )
    if not fits:
        raise ValueError(
            "A mask must have shape (batch, keys), (batch, queries, keys) or (batch, heads, queries, keys), here with "
            f"batch={batch}, queries={query_length}, keys={key_length}. Received: shape={shape}. Make a mask (queries, "
            "keys) for all texts `mask[None]`."
        )
    mask = ops.cast(mask, "bool")
    if len(shape) == 2:
        return mask[:, None, None, :]
    return mask[:, None, :, :] if len(shape) == 3 else mask


def causal_mask(query_length, key_length, start_index=0):
    """`(1, 1, queries, keys)`: a query sees the keys up to its own absolute position."""
    queries = start_index + ops.arange(query_length, dtype="int32")
    keys = ops.arange(key_length, dtype="int32")
    return (keys <= ops.expand_dims(queries, -1))[None, None]


def combine(*masks):
    """What all of the masks allow; `None` if there is none."""
    masks = [mask for mask in masks if mask is not None]
    if not masks:
        return None
    together = masks[0]
    for mask in masks[1:]:
        together = ops.logical_and(together, mask)
    return together
