"""Batches without the padding that none of their rows needs."""

import tensorflow as tf

STEP = 8  # lengths are multiples of it, which keeps the number of shapes small


def cut_to_longest(batch, keys=("token_ids", "segment_ids", "padding_mask"), mask="padding_mask"):
    """The batch with the columns of `keys` cut to its longest row."""
    width = tf.shape(batch[mask])[1]
    longest = tf.reduce_max(tf.reduce_sum(tf.cast(batch[mask], "int32"), axis=1))
    length = tf.minimum((tf.maximum(longest, 1) + STEP - 1) // STEP * STEP, width)
    return {name: value[:, :length] if name in keys else value for name, value in batch.items()}
