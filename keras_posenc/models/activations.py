"""Activations that pretrained models use and Keras has no name for."""

import keras

from keras_posenc.encodings.registry import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
def gelu_tanh(x):
    """The tanh approximation of gelu, of ALBERT and of the first BERT code; Keras' `"gelu"` is the exact one."""
    return keras.activations.gelu(x, approximate=True)


def get(identifier):
    """`keras.activations.get`, which also knows `"gelu_tanh"`."""
    return gelu_tanh if identifier == "gelu_tanh" else keras.activations.get(identifier)
