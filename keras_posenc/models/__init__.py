"""Models of named sizes, with any position encoding and for several tasks."""

from keras_posenc.models.base import PositionalModel
from keras_posenc.models.bert import Bert
from keras_posenc.models.encoder_decoder import EncoderDecoder
from keras_posenc.models.generation import generate
from keras_posenc.models.heads import Classifier, MaskedLM, SpanPredictor, TokenClassifier
from keras_posenc.models.presets import build
from keras_posenc.models.presets import names as list  # noqa: A004 - reads well as keras_posenc.models.list()
from keras_posenc.models.summary import PositionSummary

__all__ = [
    "Bert",
    "Classifier",
    "EncoderDecoder",
    "MaskedLM",
    "PositionSummary",
    "PositionalModel",
    "SpanPredictor",
    "TokenClassifier",
    "build",
    "generate",
    "list",
]
