"""What a served model says about requests that it cannot answer.

Checks are operations of the graph, so every server makes them: a failed one is the error INVALID_ARGUMENT. Without
them an id beyond the vocabulary, or a position beyond a table, is an error on some devices and a wrong answer on
others.
"""

import tensorflow as tf


def checked(inputs, max_length, vocab_size, num_segments):
    """The inputs, whose use waits for the checks.

    Args:
        inputs: dict of `token_ids`, `segment_ids` and `padding_mask`, int32 `(batch, length)`.
        max_length: largest length.
        vocab_size, num_segments: ids must be below these; `None` for a model that does not read segments.
    """
    shape = tf.shape(inputs["token_ids"])
    limit = f"This model takes from 1 to {max_length} tokens (export it with a larger max_length for more). Received:"
    checks = [tf.debugging.Assert((shape[1] >= 1) & (shape[1] <= max_length), [limit, shape[1]])]
    for name in ("segment_ids", "padding_mask"):
        own = tf.shape(inputs[name])
        message = f"{name} must have the shape of token_ids. Received:"
        checks.append(tf.debugging.Assert(tf.reduce_all(own == shape), [message, own, shape]))
    limits = {"token_ids": vocab_size, "segment_ids": num_segments, "padding_mask": 2}
    checks += [_within(name, inputs[name], limit) for name, limit in limits.items() if limit is not None]
    return after(checks, inputs)


def checked_layer(layer, batch, num_layers):
    """Number of a layer for each row, which waits for its check."""
    same = tf.debugging.Assert(
        tf.size(layer) == batch, ["layer has a number for each row of token_ids. Received:", tf.size(layer), batch]
    )
    return after([same, _within("layer", layer, num_layers)], {"layer": layer})["layer"]


def after(checks, tensors):
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in tensors.items()}


def _within(name, values, limit):
    low, high = tf.reduce_min(values), tf.reduce_max(values)
    message = f"{name} must be from 0 to {limit - 1}. Received values from"
    return tf.debugging.Assert((low >= 0) & (high < limit), [message, low, "to", high])
