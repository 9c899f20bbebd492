"""AdamW: what is decayed, and gradients that come summed over the replicas."""

import contextlib

import keras

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.segment import SegmentBias
from training.engine import schedules

# Weights of encodings that are scores, or that a score is an elementary function of: scalars per head, for an offset
# (DIET-REL, T5, TUPE's relative part), a pair of positions (Synthesizer), a kernel (TISA, KERPLE), a pair of segments.
POSITION_SCALARS = ("distances", "buckets", "random", "gate", "amplitudes", "sharpness", "centers", "r1", "r2")


class AdamW(keras.optimizers.AdamW):
    """Keras' AdamW for gradients that are equal on all replicas already.

    Keras clips the gradients of each replica and then sums them, which is not the step of one device. Here the
    trainer sums first, clips the sum, and hands it to every replica.
    """

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars


def make(model, options, total):
    """The optimizer of a model, built: its slots exist before a checkpoint is read.

    Args:
        model: a built model.
        options: `TrainOptions`.
        total: number of steps, for the schedule.
    """
    optimizer = AdamW(
        schedules.make(options, total),
        weight_decay=options.weight_decay,
        beta_2=options.beta_2,
        epsilon=options.epsilon,
        use_ema=options.ema is not None,
        ema_momentum=options.ema or 0.99,
    )
    kept = not_decayed(model)
    if options.weight_decay and kept:
        optimizer.exclude_from_weight_decay(var_list=kept)
    if model.dtype_policy.name == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    return optimizer


def not_decayed(model):
    """The trainable weights without weight decay.

    BERT leaves out layer norms and biases and decays all else, its position embeddings included, and the papers on
    encodings train as BERT does. So vectors that positions are multiplied with or mapped to (`learned`, DIET-ABS, TUPE,
    Shaw, the networks of FIRE and FLOATER) are decayed. A weight that is itself added to the scores is a bias like
    any other and is not: the entries of DIET-REL, T5, Synthesizer and segments, and likewise the few parameters of
    the functions that TISA, KERPLE and FIRE add, where decay would pull amplitudes, centres and thresholds to 0.
    """
    scalars = set()
    for layer in model._flatten_layers():
        if isinstance(layer, PositionEncoding):
            scalars.update(id(weight) for weight in layer.weights if weight.name in POSITION_SCALARS)
        elif isinstance(layer, SegmentBias):
            scalars.update(id(weight) for weight in layer.weights)
    return [
        weight
        for weight in model.trainable_variables
        if len(weight.shape) <= 1 or "bias" in weight.name or id(weight) in scalars
    ]


@contextlib.contextmanager
def averaged_weights(model, optimizer, wanted):
    """Puts the moving averages in the place of the weights for a while, if `wanted`."""
    if not wanted:
        yield
        return
    weights = [weight.numpy() for weight in model.trainable_variables]
    optimizer.finalize_variable_values(model.trainable_variables)
    try:
        yield
    finally:
        for weight, value in zip(model.trainable_variables, weights):
            weight.assign(value)
