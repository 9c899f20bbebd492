"""Masks, from what callers give to what the softmax needs."""

import keras
from keras import ops
from keras.src.backend import get_keras_mask, set_keras_mask

from keras_posenc.utils import checks

NEGATIVE = -1e30  # finite, so that a fully masked row has no NaN on its way to zeros


def implicit(x):
    """The mask that Keras keeps for a tensor: on it, or beside it where tensors take no attributes, as in JAX's jit."""
    return get_keras_mask(x)


def with_implicit(x, mask):
    """`x`, for which Keras keeps this mask from now on."""
    if mask is not None:
        set_keras_mask(x, mask)
    return x


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

    There may be one text, one query, or one key of each query, for all. Sizes are checked: a mask `(queries, keys)`
    would otherwise pass for one of as many texts.
    """
    shape = tuple(mask.shape)
    sizes = {0: batch, -1: key_length} | ({-2: query_length} if len(shape) > 2 else {})

    def message(got):
        known = [size if isinstance(size, int) else "unknown" for size in (batch, query_length, key_length)]
        return (
            "A mask must have shape (batch, keys), (batch, queries, keys) or (batch, heads, queries, keys), here with "
            f"batch={known[0]}, queries={known[1]}, keys={known[2]}. Received: shape={shape}. Make a mask (queries, "
            "keys) for all texts `mask[None]`."
        )

    if len(shape) not in (2, 3, 4):
        raise ValueError(message(None))
    mask = _sized(mask, sizes, message)
    if len(shape) == 2:
        return mask[:, None, None, :]
    return mask[:, None, :, :] if len(shape) == 3 else mask


def of_keys(mask, batch, key_length, owner):
    """A padding mask `(batch or 1, keys)` as booleans, its sizes checked, for a layer that takes no other."""
    shape = tuple(mask.shape)

    def message(got):
        known = [size if isinstance(size, int) else "unknown" for size in (batch, key_length)]
        return (
            f"{owner} takes a padding mask (batch, keys) only, here with batch={known[0]}, keys={known[1]}: compressed "
            f"keys cannot be masked pair by pair. Received: a mask of shape {shape}"
        )

    if len(shape) != 2:
        raise ValueError(message(None))
    return _sized(mask, {0: batch, -1: key_length}, message)


def _sized(mask, sizes, message):
    """`mask` as booleans, after `ValueError(message(got))` if an axis has another size than `sizes` says.

    One text, query, or key of each query may be for all.
    """
    shape = tuple(mask.shape)
    mask = ops.cast(mask, "bool")
    for axis, size in sizes.items():
        one_for_all = shape[axis] == 1 and (axis != -1 or len(shape) > 2)
        if size is not None and shape[axis] is not None and not one_for_all:
            mask = checks.equal(size, shape[axis], message, then=mask)
    return mask


def of_cache(mask, cache_length, attention_mask):
    """What an implicit mask of keys says of those in a cache: a mask as long as the cache, or `None`.

    That of new tokens says nothing of the others, and is forgotten by the next step, so none of them may be padding
    unless an `attention_mask` says so of all.
    """
    if mask is None or (mask.shape[1] is not None and mask.shape[1] == cache_length):
        return mask
    if attention_mask is None:
        checks.all_true(
            mask,
            "Among the new tokens is padding, which later steps would not know of. Pass a mask of shape (batch, cache "
            "length): `attention_mask` of an attention layer, `padding_mask` of blocks, encoders and decoders.",
        )
    return None


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
