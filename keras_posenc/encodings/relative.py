"""Biases that depend on `key position - query position` only."""

from keras import ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.utils import rows, toeplitz


class RelativeBias(PositionEncoding):
    """Base class: a subclass says what each offset adds, `line(offsets, total_length) -> (heads, offsets)`."""

    doors = ("bias",)
    relative = True
    needs = ("num_heads",)

    def line(self, offsets, total_length):
        raise TypeError(f"{type(self).__name__} must define `line(offsets, total_length)`.")

    def bias(self, query_length, key_length, start_index=0, total_length=None):
        offsets = toeplitz.offsets(query_length, key_length, start_index)
        total = rows.longest(query_length, key_length, start_index, total_length)
        matrix = toeplitz.toeplitz(self.line(offsets, total), query_length, key_length)
        return ops.expand_dims(matrix, 0)
