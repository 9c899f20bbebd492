"""Weights from elsewhere, and our own folders."""

from keras_posenc.checkpoints import installed, tokenizer
from keras_posenc.checkpoints.folder import save
from keras_posenc.checkpoints.loading import Checkpoint, load
from keras_posenc.checkpoints.peers import from_keras_hub, from_tf_models
from keras_posenc.checkpoints.tokenizer import load_tokenizer

__all__ = [
    "Checkpoint",
    "from_keras_hub",
    "from_tf_models",
    "installed",
    "load",
    "load_tokenizer",
    "save",
    "tokenizer",
]
