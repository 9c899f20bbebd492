"""Masks, from what callers give to what the softmax needs."""

import keras
from keras import ops

NEGATIVE = -1e30  # finite, so that a fully masked row has no NaN on its way to zeros


def check_mask(mask, name="attention_mask"):
    """A mask says which keys may be seen: booleans, or integers 0 and 1. Floats are refused, being ambiguous."""
    if mask is not None and "float" in keras.backend.standardize_dtype(mask.dtype):
        raise ValueError(
            f"`{name}` must be boolean or integer, with True or 1 where attention is allowed. Received: dtype="
            f"{keras.backend.standardize_dtype(mask.dtype)}. An additive float mask such as (0, -1e9) must be "
            "converted first, e.g. by `mask == 0`."
        )
    return mask


def as_four_dims(mask):
    """`(batch, keys)`, `(batch, queries, keys)` or `(batch, heads, queries, keys)`, as the last of them."""
    rank = len(mask.shape)
    mask = ops.cast(mask, "bool")
    if rank == 2:
        return mask[:, None, None, :]
    if rank == 3:
        return mask[:, None, :, :]
    if rank == 4:
        return mask
    raise ValueError(
        "`attention_mask` must have shape (batch, keys), (batch, queries, keys) or (batch, heads, queries, keys). "
        f"Received: shape={tuple(mask.shape)}"
    )


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
