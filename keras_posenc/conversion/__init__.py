"""Moving a trained model from one position encoding to another, and to longer inputs."""

from keras_posenc.conversion.convert import to_diet_abs, to_diet_rel, to_t5, to_tisa
from keras_posenc.conversion.lengths import extend_length
from keras_posenc.conversion.profile import PositionalProfile, positional_profile, positional_profiles
from keras_posenc.conversion.rebuild import without_positions
from keras_posenc.conversion.report import ConversionReport, Yardstick
from keras_posenc.conversion.toeplitz import random_toeplitz_r2, toeplitz_r2

__all__ = [
    "ConversionReport",
    "PositionalProfile",
    "Yardstick",
    "extend_length",
    "positional_profile",
    "positional_profiles",
    "random_toeplitz_r2",
    "to_diet_abs",
    "to_diet_rel",
    "to_t5",
    "to_tisa",
    "toeplitz_r2",
    "without_positions",
]
