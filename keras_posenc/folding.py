"""Folding the positions of any Keras model that uses these layers."""

import keras

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.combined import Combined


def position_encodings(model):
    """The encodings inside a layer or model, in the order of its layers; the parts of combined ones, not their sum."""
    found = [layer for layer in model._flatten_layers() if isinstance(layer, PositionEncoding)]
    return [encoding for encoding in found if not isinstance(encoding, Combined)]


def fold_positions(model, length):
    """Computes every bias of `model` that depends on positions only, once, and keeps it for inference.

    It is exact: outputs do not change. While folded, the model refuses to train, and its position weights refuse to be
    changed, so that the kept values cannot go stale. Folds are not part of what `save` writes.

    Args:
        model: any Keras model or layer that holds encodings of this library, built. If it is to be trained again, the
            model that `fit` is called on, not a part of it: see `PositionalAttention.fold_positions`.
        length: number of positions to cover. Longer inputs are computed from the weights where their length is known
            when the call is traced, and are an error in a graph with dynamic lengths.
    """
    encodings = position_encodings(model)
    for encoding in encodings:  # all before any: a length that is refused leaves the fold that was there
        encoding.check_fold(length)
    try:
        for encoding in encodings:
            encoding.fold(length)
    except Exception:
        unfold_positions(model)
        raise
    _forget_compiled(model)


def unfold_positions(model):
    """Undoes `fold_positions`: positions are computed from the weights again, and can be trained."""
    for encoding in position_encodings(model):
        encoding.unfold()
    _forget_compiled(model)


def _forget_compiled(model):
    """Functions that `fit`, `evaluate` and `predict` compiled hold the old way of computing positions."""
    if isinstance(model, keras.Model):
        model.train_function = model.test_function = model.predict_function = None
