"""Other attention weights with the same output: why attention is not identifiable."""

import keras
from keras import ops

from keras_posenc.analysis.effective import null_attention


def alternative_attention(attention, values, seed, padding_mask=None, amount=0.5):
    """Different attention on the probability simplex that a head cannot tell from `attention`: `A' T = A T`.

    `A' = A + amount * t * D`, where the rows of `D` are random in the left null space of `[T, 1]`, so that neither the
    output nor the sum of a row changes, and `t` is the step at which the first weight of the row becomes 0. Of `D` and
    `-D` the one that can go farther is taken, row by row.

    A row is returned as it is where it cannot move: if `[T, 1]` has no null space (`null_dimension(values,
    padding_mask, constrained=True)` is 0, as for independent values of at most `head size + 1` tokens), or if a token
    has a weight of exactly 0 that both directions would change (as under a causal mask). Rows of a softmax without a
    causal mask are inside the simplex and always move, though not far where a weight is tiny.

    The output is `A T` only if no encoding adds to the values (door `values`: `shaw`). Where one does, the part of the
    positions changes with `A'`, and a head can tell the two apart by it.

    Args:
        attention: `(batch, ..., queries, keys)`, non-negative, rows sum to one.
        values: `(batch, ..., keys, head size)`.
        seed: an integer or a `keras.random.SeedGenerator`.
        padding_mask: `(batch, keys)`, 1 for tokens. The weights of padding stay as they are.
        amount: how far to go, above 0 and at most 1, where 1 is the boundary of the simplex.

    Returns: like `attention`.

    Reference: Brunner et al., 2020 (arXiv:1908.04211), section 3.3.
    """
    if not 0 < amount <= 1:
        raise ValueError(f"`amount` must be above 0 and at most 1. Received: amount={amount!r}")
    given = ops.convert_to_tensor(attention)
    float64 = keras.backend.standardize_dtype(given.dtype) == "float64"
    attention = ops.cast(given, "float64" if float64 else "float32")  # as `null_attention` is
    # Small weights should change little, or they would stop the row early.
    noise = attention * keras.random.normal(ops.shape(attention), dtype=attention.dtype, seed=seed)
    direction = null_attention(noise, values, padding_mask, constrained=True)
    forward, backward = _steps(attention, direction), _steps(attention, -direction)
    step = ops.where(forward >= backward, forward, -backward)
    return ops.cast(ops.maximum(attention + amount * step * direction, 0.0), given.dtype)


def _steps(attention, direction):
    """The largest `t` for which `attention + t * direction` is not negative, `(..., queries, 1)`; 0 without any."""
    falls = direction < 0
    room = ops.where(falls, attention / ops.where(falls, -direction, ops.ones_like(direction)), float("inf"))
    step = ops.min(room, axis=-1, keepdims=True)
    return ops.where(ops.isfinite(step), step, ops.zeros_like(step))
