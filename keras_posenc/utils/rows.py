"""Rows of a table of positions, and what to do with positions the table does not have."""

from keras import ops

EXTRAPOLATIONS = ("error", "clip", "interpolate")


def longest(query_length, key_length, start_index, total_length=None):
    """The length of the longer sequence, that of the queries or that of the keys; queries may be a part of theirs."""
    return ops.maximum(key_length, start_index + query_length if total_length is None else total_length)


def shrink(length, max_length):
    """By how much positions are squeezed so that `length` of them fit into `max_length`; 1 if they fit already."""
    length = ops.cast(length, "float32")
    return ops.minimum(1.0, (max_length - 1.0) / ops.maximum(length - 1.0, 1.0))


def rows(table, positions, axis):
    """Entries of `table` along `axis` at whole `positions` that it has."""
    return ops.take(table, positions, axis=axis)


def blended_rows(table, positions, axis):
    """Entries at real `positions`, linearly between the two neighbouring rows."""
    last = table.shape[axis] - 1
    low = ops.clip(ops.cast(ops.floor(positions), "int32"), 0, last)
    high = ops.minimum(low + 1, last)
    weight = ops.cast(positions - ops.cast(low, positions.dtype), table.dtype)
    shape = [1] * len(table.shape)
    shape[axis] = -1
    weight = ops.reshape(weight, shape)
    return rows(table, low, axis) * (1 - weight) + rows(table, high, axis) * weight


def window(table, start, length, axis):
    """`length` consecutive entries along `axis`, from `start`; the table itself if that is all of it."""
    return windows(table, {axis: (start, length)})


def windows(table, cuts):
    """A window along several axes, cut in one go: each cut of a large table by itself would copy most of it.

    Args:
        cuts: dict from axes to pairs of the first entry and the number of entries.
    """
    table = ops.convert_to_tensor(table)
    if all(_is(0, start) and _is(table.shape[axis], length) for axis, (start, length) in cuts.items()):
        return table
    starts, sizes = [0] * len(table.shape), list(ops.shape(table))
    for axis, (start, length) in cuts.items():
        starts[axis], sizes[axis] = start, length
    return ops.slice(table, starts, sizes)


def _is(number, given):
    """Whether `given`, perhaps a tensor, is known to be that number."""
    return isinstance(given, int) and given == number


def absolute_rows(table, length, start, total, axis, extrapolate):
    """Rows `start .. start + length` of a sequence of `total` positions, by the chosen way beyond the table's end."""
    max_length = table.shape[axis]
    if extrapolate == "error":
        return window(table, start, length, axis)
    positions = start + ops.arange(length, dtype="int32")
    if extrapolate == "clip":
        return rows(table, ops.minimum(positions, max_length - 1), axis)
    return blended_rows(table, ops.cast(positions, "float32") * shrink(total, max_length), axis)
