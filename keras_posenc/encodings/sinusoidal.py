import numpy as np
from keras import ops

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.registry import register
from keras_posenc.utils import checks


@register("sinusoidal")
class Sinusoidal(PositionEncoding):
    """Fixed sinusoids of geometrically growing wavelength, added to the token embeddings.

    `PE(pos, 2i) = sin(pos / 10000^(2i/d))`, `PE(pos, 2i+1) = cos(pos / 10000^(2i/d))`.

    Args:
        max_wavelength: the base 10000.
        layout: `"interleaved"` as in the paper, or `"concatenated"`: all sines, then all cosines.

    Reference: Vaswani et al., 2017 (arXiv:1706.03762), section 3.5.
    """

    doors = ("embed",)

    def __init__(
        self, num_heads=None, key_dim=None, max_length=None, max_wavelength=10000.0, layout="interleaved", **kwargs
    ):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.max_wavelength = checks.positive("Sinusoidal", "max_wavelength", max_wavelength)
        self.layout = checks.one_of("Sinusoidal", "layout", layout, ("interleaved", "concatenated"))

    def build(self, input_shape):
        self.width = input_shape[-1]
        self.built = True

    def embed(self, length, start_index=0, total_length=None):
        positions = ops.cast(start_index + ops.arange(length, dtype="int32"), self.position_dtype)
        return sinusoids(positions, self.width, self.max_wavelength, self.layout)

    def get_config(self):
        return {**super().get_config(), "max_wavelength": self.max_wavelength, "layout": self.layout}


def sinusoids(positions, width, max_wavelength=10000.0, layout="concatenated"):
    """`(..., width)` sines and cosines of real `positions (...)`, in their dtype."""
    half = (width + 1) // 2
    frequencies = max_wavelength ** (-2.0 * np.arange(half) / width)
    angles = ops.expand_dims(positions, -1) * ops.convert_to_tensor(frequencies, positions.dtype)
    if layout == "concatenated":
        both = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return both if width % 2 == 0 else both[..., :-1]
    both = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(both, ops.shape(positions) + (2 * half,))[..., :width]
