"""Token ids of different lengths as the three inputs of an exported model."""

import numpy as np


def batch(token_ids, segment_ids=None, padding_mask=None):
    """`token_ids`, `segment_ids` and `padding_mask`, int32 `(batch, length)`.

    Shorter rows are filled with zeros, which the mask says are padding. (A server that pads repeats the first element
    of a tensor, whatever it means, and would take the padding for text.)

    Args:
        token_ids: one row, or several of any lengths.
        segment_ids: of the same shape; zeros by default.
        padding_mask: 1 for tokens and 0 for padding; by default all that was given are tokens.
    """
    rows = _rows("token_ids", token_ids)
    lengths = [len(row) for row in rows]
    given = {"token_ids": rows}
    for name, value, filling in (("segment_ids", segment_ids, 0), ("padding_mask", padding_mask, 1)):
        given[name] = [np.full(n, filling) for n in lengths] if value is None else _rows(name, value)
        own = [len(row) for row in given[name]]
        if own != lengths:
            raise ValueError(f"{name} must have the lengths of token_ids. Received: {own}, not {lengths}")
    found = {name: np.zeros((len(rows), max(lengths)), np.int32) for name in given}
    for name, values in given.items():
        for place, row in zip(found[name], values):
            place[: len(row)] = row
    return found


def pad(ids, lengths):
    """The arrays of `batch` with padding behind them, up to the smallest of `lengths` that holds them, if one does."""
    width = ids["token_ids"].shape[1]
    size = min((length for length in lengths if length >= width), default=width)
    return {name: np.pad(value, ((0, 0), (0, size - width))) for name, value in ids.items()}


def check_lengths(lengths):
    """A tuple of lengths for `pad`."""
    lengths = tuple(lengths)
    if any(not isinstance(length, (int, np.integer)) or length < 1 for length in lengths):
        raise ValueError(f"lengths are whole numbers above 0, such as (16, 32, 64). Received: {lengths}")
    return lengths


def _rows(name, values):
    values = list(values)
    if values and np.ndim(values[0]) == 0:
        values = [values]
    rows = [np.asarray(row) for row in values]
    if not rows or any(row.ndim != 1 or not row.size for row in rows):
        raise ValueError(f"{name} is a row of whole numbers, or a list of such rows, none of them empty.")
    if any(row.dtype.kind not in "iub" for row in rows):
        raise ValueError(f"{name} must be whole numbers. Received: {sorted({str(row.dtype) for row in rows})}")
    return rows


def strings(texts, pairs=None):
    """`text` and `text_pair`, object arrays of bytes; without a pair its string is empty."""
    texts = [texts] if isinstance(texts, (str, bytes)) else list(texts)
    pairs = [pairs] if isinstance(pairs, (str, bytes)) else [""] * len(texts) if pairs is None else list(pairs)
    if not texts or len(pairs) != len(texts):
        raise ValueError(f"There must be a pair for each text, and at least one text: {len(texts)}, {len(pairs)}")
    return {"text": as_bytes(texts), "text_pair": as_bytes(["" if pair is None else pair for pair in pairs])}


def as_bytes(values):
    """An object array of bytes, of strings in any nesting."""
    found = np.array(values, dtype=object)
    flat = [value.encode() if isinstance(value, str) else bytes(value) for value in found.ravel()]
    filled = np.empty(len(flat), object)
    filled[:] = flat
    return filled.reshape(found.shape)
