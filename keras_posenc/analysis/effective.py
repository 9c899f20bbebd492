"""Effective attention: the part of an attention matrix that reaches the output of its head."""

import keras
import numpy as np
from keras import ops

from keras_posenc.utils.xla import inside_xla

BLOCK = 8  # up to this size XLA factors a Gram matrix itself; larger ones it would expand into slow loops
EPSILON = 1.1920929e-07  # of float32
FLOOR = 128  # the default tolerance is at least so many epsilons, well above the rounding of short sequences
SHARE = 1 / 3  # of the tolerance that a ridge is
SAFE = 32  # a ridge is at least so many epsilons of the dtype, or a factorisation could fail


def effective_attention(attention, values, padding_mask=None, tolerance=None, constrained=False):
    """The component of `attention` orthogonal to the left null space of `values`: `A_eff = A T T^+`.

    A head computes `A T`. What a row of `A` has in the left null space of `T`, `{x: x T = 0}`, is lost there, so that
    `A_eff T = A T`, and `A_eff` has the smallest norm of all such matrices. It may be negative, and its rows need not
    sum to one. Sequences of at most `head size` tokens whose values are linearly independent have no null space; for
    them the result is `attention` itself, bit by bit.

    All of this is about `A T`. An encoding that also adds to the values (door `values`: `shaw`) has query `i` weigh
    `T_j + R[j - i]`, which is no product with one `T`: there, `A_eff` keeps the part `A T` of the output and not the
    part of the positions. `null_attention` likewise is without effect on `A T` alone.

    No singular vectors are needed. With `T^T T + l ||T^T T|| I = L L^T`, the columns of `Q = T L^-T` span the range of
    `T` and are orthonormal but for what the ridge `l` and the rounding of a Gram matrix take from small singular
    values. Doing the same to `Q` makes up for it: the singular value `s` of `T`, relative to the largest, then counts
    `s^2 / (s^2 + l^2)` in `A Q Q^T`, with `l` a third of the tolerance. That is half at `l`, 0.999 at ten times the
    tolerance, and a smooth step rather than a cut, which keeps gradients finite. All is float32: rounding moves the
    result by about the condition number of `T` times the epsilon, as much as the rounding of `T` itself does, and
    `A_eff T` not at all (the factorisations are backward stable).

    Args:
        attention: `(batch, ..., queries, keys)`, rows sum to one over the tokens.
        values: `(batch, ..., keys, head size)`, what each head weighs, with the same leading axes.
        padding_mask: `(batch, keys)`, 1 for tokens and 0 for padding. Padding is removed before the decomposition,
            and its columns of the result are 0.
        tolerance: singular values below `tolerance` times the largest count as 0; by default `max(tokens, head size,
            128)` times the epsilon of float32. The square of the largest is estimated by the largest sum of a row of
            `|T^T T|`, which is at most `(head size)^(1/2)` times too large.
        constrained: use the null space of `[T, 1]`, so that rows sum to what the rows of `attention` sum to.

    Returns: like `attention`, float32 (float64 if `attention` is).

    Example:

    >>> values = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]], "float32")
    >>> attention = np.array([[[0.5, 0.5, 0.0]]], "float32")
    >>> keras_posenc.analysis.effective.effective_attention(attention, values).numpy().round(3)
    array([[[0.167, 0.167, 0.333]]], dtype=float32)

    Reference: Brunner et al., 2020 (arXiv:1908.04211), section 3.4; Sun and Marasovic, 2021 (arXiv:2105.08855).
    """
    attention, values, mask = _prepare(attention, values, padding_mask)
    rows = _basis(values, mask, tolerance, constrained)
    projected = ops.matmul(_product(attention, rows, second=True), rows)
    if mask is None and values.shape[-2] is not None and values.shape[-2] > rows.shape[-2]:
        return projected  # more tokens than columns: there is a null space
    # The columns of padding are 0 already, as their values are.
    raw = (_rank(rows) >= _count(values, mask))[..., None, None]
    return ops.where(raw if mask is None else ops.logical_and(raw, _transpose(mask) > 0), attention, projected)


def null_attention(attention, values, padding_mask=None, tolerance=None, constrained=False):
    """The component of `attention` in the left null space of `values`: raw minus effective, without effect on `A T`.

    That is the output of a head unless an encoding adds to the values. Arguments as in `effective_attention`. Columns
    of padding are 0.
    """
    effective = effective_attention(attention, values, padding_mask, tolerance, constrained)
    attention, _, mask = _prepare(attention, values, padding_mask)
    return (attention if mask is None else attention * _transpose(mask)) - effective


def null_dimension(values, padding_mask=None, tolerance=None, constrained=False):
    """Dimension of the left null space of the values of the tokens, int32 `(batch, ...)`: tokens minus rank.

    At least `tokens - head size` (`tokens - head size - 1` if `constrained`). Arguments as in `effective_attention`.
    """
    _, values, mask = _prepare(None, values, padding_mask)
    rows = _basis(values, mask, tolerance, constrained)
    return ops.cast(_count(values, mask) - _rank(rows), "int32")


def _prepare(attention, values, padding_mask):
    """Tensors of one dtype, values of padding set to 0, and the mask as `(batch, 1, ..., keys, 1)` or `None`."""
    values = ops.convert_to_tensor(values)
    dtype = "float32"
    if attention is not None:
        attention = ops.convert_to_tensor(attention)
        if len(attention.shape) != len(values.shape) or len(values.shape) < 3:
            raise ValueError(
                "`attention` (batch, ..., queries, keys) and `values` (batch, ..., keys, head size) must have the same "
                f"number of axes, at least 3. Received: shapes {tuple(attention.shape)} and {tuple(values.shape)}"
            )
        if None not in (attention.shape[-1], values.shape[-2]) and attention.shape[-1] != values.shape[-2]:
            raise ValueError(
                f"`attention` is over {attention.shape[-1]} keys and `values` are of {values.shape[-2]}. Received: "
                f"shapes {tuple(attention.shape)} and {tuple(values.shape)}"
            )
        if keras.backend.standardize_dtype(attention.dtype) == "float64":
            dtype = "float64"
        attention = ops.cast(attention, dtype)
    values = ops.cast(values, dtype)
    if padding_mask is None:
        return attention, values, None
    mask = ops.cast(ops.cast(padding_mask, "bool"), dtype)
    if len(mask.shape) != 2:
        raise ValueError(f"`padding_mask` must have shape (batch, keys). Received: shape={tuple(mask.shape)}")
    expected = (values.shape[0], values.shape[-2])
    if any(None not in pair and pair[0] != pair[1] for pair in zip(mask.shape, expected)):
        raise ValueError(
            f"`padding_mask` must have shape (batch, keys), {expected} for these values. Received: "
            f"shape={tuple(mask.shape)}"
        )
    for _ in range(len(values.shape) - 3):
        mask = mask[:, None]
    mask = mask[..., None]
    # A `where`, as what stands at padding may be infinite.
    return attention, ops.where(mask > 0, values, ops.zeros_like(values)), mask


def _basis(values, mask, tolerance, constrained):
    """`Q^T`: rows that span the range of the values, orthonormal where their singular values count."""
    size = values.shape[-1]
    if constrained:
        values = ops.concatenate([values, _ones_column(values, mask)], axis=-1)
    if tolerance is None:
        tolerance = EPSILON * ops.maximum(_count(values, mask), max(size, FLOOR))[..., None, None]
    dtype = keras.backend.standardize_dtype(values.dtype)
    ridge = ops.maximum(SHARE * ops.cast(tolerance, dtype), SAFE * float(np.finfo(dtype).eps))
    gram = _product(values, values, first=True)
    largest = ops.max(ops.sum(ops.abs(ops.stop_gradient(gram)), axis=-1, keepdims=True), axis=-2, keepdims=True)
    # Values that are all 0 leave the ridge alone in the Gram matrix; it must not vanish with them.
    rows = _whitened(_transpose(values), gram, ops.maximum(ridge * largest, 1e-35))
    # Divided by 1 + ridge, so that large singular values count as 1.
    return _whitened(rows, _product(rows, rows, second=True) / (1 + ridge), ridge / (1 + ridge))


def _whitened(rows, gram, ridge):
    """`L^-1 rows`, for `L L^T = gram + ridge I`."""
    gram = gram + ridge * ops.eye(gram.shape[-1], dtype=gram.dtype)
    if inside_xla():
        return ops.matmul(inverse_factor(gram), rows)
    return ops.solve_triangular(ops.cholesky(gram), rows, lower=True)


def _ones_column(values, mask):
    """The column of ones for the tokens, as long as an average column of the values, so that neither hides the other.

    Its scale does not change the null space.
    """
    ones = ops.ones_like(values[..., :1]) * (1.0 if mask is None else mask)
    tokens = ops.maximum(ops.sum(ones, axis=(-2, -1), keepdims=True), 1.0)
    power = ops.sum(ops.square(values), axis=(-2, -1), keepdims=True) / (tokens * values.shape[-1])
    return ones * ops.stop_gradient(ops.where(power > 0, ops.sqrt(power), ops.ones_like(power)))


def inverse_factor(matrix):
    """`L^-1` of positive definite matrices `L L^T`, by halves.

    For `[[A, B^T], [B, C]]` it is `[[F, 0], [-G Y F, G]]`, with `F` that of `A`, `Y = B F^T` and `G` that of
    `C - Y Y^T`: nearly all of it products of matrices, which run batched and fast where factorisations do not.
    """
    size = matrix.shape[-1]
    if size <= BLOCK:
        eye = ops.broadcast_to(ops.eye(size, dtype=matrix.dtype), ops.shape(matrix))
        return ops.solve_triangular(ops.cholesky(matrix), eye, lower=True)
    half = size // 2
    first = inverse_factor(matrix[..., :half, :half])
    mixed = ops.matmul(matrix[..., half:, :half], _transpose(first))
    second = inverse_factor(matrix[..., half:, half:] - ops.matmul(mixed, _transpose(mixed)))
    corner = -ops.matmul(second, ops.matmul(mixed, first))
    upper = ops.concatenate([first, ops.zeros_like(_transpose(corner))], axis=-1)
    return ops.concatenate([upper, ops.concatenate([corner, second], axis=-1)], axis=-2)


def _rank(rows):
    """Number of singular values that count: the sum of their shares, rounded."""
    return ops.round(ops.sum(ops.square(ops.stop_gradient(rows)), axis=(-2, -1)))


def _count(values, mask):
    """Number of tokens, shaped like the leading axes of `values` (or to broadcast with them)."""
    if mask is None:
        return ops.cast(ops.shape(values)[-2], values.dtype) * ops.ones_like(values[..., 0, 0])
    return ops.sum(mask, axis=(-2, -1))


def _transpose(x):
    return ops.swapaxes(x, -1, -2)


def _product(a, b, first=False, second=False):
    """`a b` with the first or second matrix transposed, which TensorFlow does without making the transpose."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.matmul(a, b, transpose_a=first, transpose_b=second)
    return ops.matmul(_transpose(a) if first else a, _transpose(b) if second else b)
