from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.registry import register


@register("none")
class NoPosition(PositionEncoding):
    """No positions at all: attention is permutation equivariant, a model of it a bag of words."""
