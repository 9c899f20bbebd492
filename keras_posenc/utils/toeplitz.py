"""Matrices that depend on `key position - query position` only, without a gather.

An attention map of `q` queries and `k` keys meets `q + k - 1` different offsets. Whatever an encoding says about an
offset is computed once per offset, along a line, and the line is laid out as a matrix by reshaping: entry `(i, j)` of
the matrix is entry `j - i + q - 1` of the line. One unused entry makes the line `q + k` long, which lets one reshape
serve every shape including a single query. Both directions are copies, so gradients are copies too; a gather of
`q * k` indices would need a scatter-add to differentiate.
"""

from keras import ops


def offsets(query_length, key_length, start_index=0):
    """Key position minus query position, int32 `(q + k,)`, in the order that `skew` and `toeplitz` expect."""
    return ops.arange(query_length + key_length, dtype="int32") - (query_length - 1) - start_index


def skew(lines, query_length, key_length):
    """`(..., q, q + k)` by offset to `(..., q, k)` by key: `out[i, j] = lines[i, j - i + q - 1]`."""
    q, k = query_length, key_length
    lead = ops.shape(lines)[:-2]
    stride = q + k - 1
    flat = ops.reshape(lines, lead + (q * (q + k),))
    flat = flat[..., q - 1 : q - 1 + q * stride]
    return ops.reshape(flat, lead + (q, stride))[..., :k]


def unskew(matrix, query_length, key_length):
    """The transpose of `skew`: `(..., q, k)` by key to `(..., q, q + k)` by offset, zero where no key is."""
    q, k = query_length, key_length
    lead = ops.shape(matrix)[:-2]
    stride = q + k - 1
    rows = ops.concatenate([matrix, ops.zeros(lead + (q, q - 1), dtype=matrix.dtype)], axis=-1)
    flat = ops.reshape(rows, lead + (q * stride,))
    front = ops.zeros(lead + (q - 1,), dtype=matrix.dtype)
    back = ops.zeros(lead + (1,), dtype=matrix.dtype)
    return ops.reshape(ops.concatenate([front, flat, back], axis=-1), lead + (q, q + k))


def toeplitz(line, query_length, key_length):
    """`(..., q + k)` by offset to the Toeplitz matrix `(..., q, k)` it describes."""
    q, k = query_length, key_length
    lead = ops.shape(line)[:-1]
    lines = ops.broadcast_to(ops.expand_dims(line, -2), lead + (q, q + k))
    return skew(lines, q, k)
