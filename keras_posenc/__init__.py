"""How transformers know word order, and what their attention means."""

from keras_posenc import analysis, checkpoints, conversion, encodings, layers, models
from keras_posenc.folding import fold_positions, position_encodings, unfold_positions
from keras_posenc.plotting import plot_encodings
from keras_posenc.version import __version__

__all__ = [
    "__version__",
    "analysis",
    "checkpoints",
    "conversion",
    "encodings",
    "fold_positions",
    "layers",
    "models",
    "plot_encodings",
    "position_encodings",
    "unfold_positions",
]
