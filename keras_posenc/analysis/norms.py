"""Norm-based analysis: attention weights times the size of what they weigh."""

from keras import ops

from keras_posenc.conversion.profile import get_backbone


def transformed_values(values, output_kernel):
    """`f(x_j) = (x_j W_V + b_V) W_O` of each head: what one token adds to the output for each unit of attention.

    Args:
        values: `(batch, ..., heads, keys, head size)`.
        output_kernel: `(..., heads, head size, width)`, of one layer or stacked (`output_kernels`).

    Returns: `(batch, ..., heads, keys, width)`. Weighed with the attention and summed over keys and heads, it is the
    output of the attention layer without its output bias (and without what an encoding adds through `values`).
    """
    values, output_kernel = ops.convert_to_tensor(values), ops.convert_to_tensor(output_kernel)
    if values.shape[-1] != output_kernel.shape[-2] or values.shape[-3] != output_kernel.shape[-3]:
        raise ValueError(
            "`values` (batch, ..., heads, keys, head size) and `output_kernel` (..., heads, head size, width) must "
            f"agree in heads and head size. Received: shapes {tuple(values.shape)} and {tuple(output_kernel.shape)}"
        )
    return ops.matmul(values, ops.cast(output_kernel, values.dtype))


def attention_norms(attention, values, output_kernel, padding_mask=None):
    """`||a_ij f(x_j)||` for each head, `(batch, ..., heads, queries, keys)`.

    A large weight on a token whose transformed value is small moves little; this is what raw weights do not show.

    Args:
        attention: `(batch, ..., heads, queries, keys)`.
        values, output_kernel: as in `transformed_values`.
        padding_mask: `(batch, keys)`, 1 for tokens; columns of padding are 0.

    Reference: Kobayashi et al., 2020 (arXiv:2004.10102).
    """
    attention = _without_padding(attention, padding_mask)
    sizes = ops.norm(transformed_values(values, output_kernel), axis=-1)
    return ops.abs(attention) * ops.cast(sizes, attention.dtype)[..., None, :]


def summed_norms(attention, values, output_kernel, padding_mask=None):
    """`||sum over heads of a_ij f(x_j)||`, `(batch, ..., queries, keys)`: what token j gives to token i in a layer.

    Heads may cancel, so that it is at most the sum of `attention_norms` over heads. Arguments are the same. The norm
    comes from the products of the heads' vectors with each other, so that no `(queries, keys, width)` is formed.
    """
    attention = _without_padding(attention, padding_mask)
    vectors = ops.cast(ops.swapaxes(transformed_values(values, output_kernel), -3, -2), attention.dtype)
    products = ops.matmul(vectors, ops.swapaxes(vectors, -1, -2))  # (..., keys, heads, heads)
    weights = ops.moveaxis(attention, -3, -1)  # (..., queries, keys, heads)
    weights = ops.swapaxes(weights, -3, -2)
    squares = ops.sum(ops.matmul(weights, products) * weights, axis=-1)
    return ops.sqrt(ops.maximum(ops.swapaxes(squares, -1, -2), 0.0))


def output_kernels(model):
    """The output kernels of all layers of a model, stacked: `(layers, heads, head size, width)`.

    Args:
        model: a `Bert` or a model with a head around one.

    They fit `values` and `attention` stacked as `(batch, layers, heads, ...)`; layers that share weights repeat them.
    """
    encoder = get_backbone(model).encoder
    kernels = [block.attention.output_dense.kernel for block in encoder.block_of_each_layer()]
    return ops.concatenate([ops.expand_dims(kernel, 0) for kernel in kernels])


def _without_padding(attention, padding_mask):
    attention = ops.convert_to_tensor(attention)
    if padding_mask is None:
        return attention
    mask = ops.cast(ops.cast(padding_mask, "bool"), attention.dtype)
    for _ in range(len(attention.shape) - 2):
        mask = mask[:, None]
    return attention * mask
