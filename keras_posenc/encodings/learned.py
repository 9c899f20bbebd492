from keras import initializers

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.registry import register
from keras_posenc.utils import rows


@register("learned")
class Learned(PositionEncoding):
    """Learned absolute position embeddings, added to the token embeddings.

    `x_i = w_i + p_i`, with a trained row `p_i` of `P (n x d)` per position.

    Args:
        max_length: `n`.
        initializer: of `P`.

    Example:

    >>> layer = keras_posenc.encodings.Learned(max_length=512)
    >>> layer(np.zeros((2, 7, 16), "float32")).shape
    TensorShape([2, 7, 16])

    Reference: Gehring et al., 2017 (arXiv:1705.03122); Devlin et al., 2018 (arXiv:1810.04805).
    """

    doors = ("embed",)
    needs = ("max_length",)
    extrapolations = rows.EXTRAPOLATIONS

    def __init__(self, num_heads=None, key_dim=None, max_length=None, initializer="bert", **kwargs):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.initializer = get_initializer(initializer)

    def build(self, input_shape):
        self.table = self.add_position_weight("embeddings", (self.max_length, input_shape[-1]), self.initializer)
        self.built = True

    def embed(self, length, start_index=0, total_length=None):
        total_length = start_index + length if total_length is None else total_length
        return rows.absolute_rows(self.read(self.table), length, start_index, total_length, 0, self.extrapolate)

    def get_config(self):
        return {**super().get_config(), "initializer": initializers.serialize(self.initializer)}


def get_initializer(identifier):
    """Keras' `initializers.get`, and `"bert"` for BERT's normal distribution cut at two standard deviations."""
    return initializers.TruncatedNormal(stddev=0.02) if identifier == "bert" else initializers.get(identifier)
