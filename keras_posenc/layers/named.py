"""The named attentions: drop-in layers, each one encoding in `PositionalAttention`."""

import inspect

import keras

from keras_posenc import encodings
from keras_posenc.encodings.registry import PACKAGE
from keras_posenc.layers.attention import PositionalAttention
from keras_posenc.layers.linformer import LinformerAttention


class NamedAttention(PositionalAttention):
    """Base class: a subclass names its `encoding`, whose options become arguments of its constructor.

    `num_heads`, `key_dim` and `max_length` come first (`max_length` may be left out where the encoding has no table of
    positions). Options of the encoding and of `PositionalAttention` are keywords.
    """

    encoding = None

    def __init__(self, num_heads, key_dim, max_length=None, value_dim=None, **kwargs):
        if isinstance(kwargs.get("position"), dict):  # from a saved config
            super().__init__(num_heads, key_dim, value_dim, max_length=max_length, **kwargs)
            return
        if "position" in kwargs:
            raise TypeError(f"{type(self).__name__} always uses {self.encoding.__name__}; it takes no `position`.")
        options = {name: kwargs.pop(name) for name in self.encoding_options() if name in kwargs}
        if kwargs.get("share_heads") is not None:
            options["share_heads"] = kwargs["share_heads"]
        position = self.encoding(
            num_heads=num_heads,
            key_dim=key_dim,
            max_length=max_length,
            value_dim=value_dim,
            dtype=kwargs.get("dtype"),
            name=self.encoding.registry_name,
            **options,
        )
        super().__init__(num_heads, key_dim, value_dim, max_length=max_length, position=position, **kwargs)

    @classmethod
    def encoding_options(cls):
        return [*encodings.options(cls.encoding.registry_name), "extrapolate"]

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable(package=PACKAGE)(cls)
        if cls.__doc__:  # `help` of the layer tells the equation and the options too
            cls.__doc__ = (
                f"{inspect.cleandoc(cls.__doc__)}\n\n`{cls.encoding.__name__}`: {inspect.getdoc(cls.encoding)}"
            )
        cls.__signature__ = _signature(cls)


def _signature(cls):
    """What `help` and editors show: positional arguments, the encoding's options, then the attention layer's."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(cls.encoding.__init__).parameters
    start = [p for n, p in inspect.signature(NamedAttention.__init__).parameters.items() if n not in ("self", "kwargs")]
    options = [own[n].replace(kind=keyword) for n in cls.encoding_options() if n != "extrapolate"]
    options += [inspect.Parameter("extrapolate", keyword, default="error")]
    base = inspect.signature(PositionalAttention.__init__).parameters.items()
    taken = {p.name for p in start + options} | {"self", "position", "position_options"}
    rest = [p if p.kind is p.VAR_KEYWORD else p.replace(kind=keyword) for n, p in base if n not in taken]
    return inspect.Signature(start + options + rest)


class DietAbsAttention(NamedAttention):
    """Attention with DIET-ABS: `q k^T / sqrt(d) + P_Q P_K^T + E_S`, equation 1 of the paper.

    Args:
        num_heads, key_dim, max_length: heads, head size, number of positions.
        rank: width of `P_Q` and `P_K`, the head size by default.
        num_segments: if given, the per-head segment bias `E_S`; calls then need `segment_ids`.

    Example:

    >>> attention = keras_posenc.layers.DietAbsAttention(num_heads=8, key_dim=64, max_length=512, rank=128)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.DietAbs


class DietRelAttention(NamedAttention):
    """Attention with DIET-REL: one scalar per head and distance.

    Example:

    >>> attention = keras_posenc.layers.DietRelAttention(num_heads=8, key_dim=64, max_length=512)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    >>> attention.position.count_params() == 8 * (2 * 512 - 1)
    True
    """

    encoding = encodings.DietRel


class T5Attention(NamedAttention):
    """Attention with T5's logarithmic buckets.

    Example:

    >>> attention = keras_posenc.layers.T5Attention(num_heads=8, key_dim=64, num_buckets=32, max_distance=128)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    >>> attention.position.count_params()
    256
    """

    encoding = encodings.T5Bias


class TisaAttention(NamedAttention):
    """Attention with TISA's radial kernels.

    Example:

    >>> attention = keras_posenc.layers.TisaAttention(num_heads=12, key_dim=64, kernels=5)
    >>> attention(np.ones((2, 10, 768), "float32")).shape
    TensorShape([2, 10, 768])
    >>> attention.position.count_params()  # amplitude, sharpness and offset of each kernel
    180
    """

    encoding = encodings.Tisa


class TupeAttention(NamedAttention):
    """Attention with TUPE-A: untied absolute positions.

    Example:

    >>> attention = keras_posenc.layers.TupeAttention(num_heads=8, key_dim=64, max_length=512)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.Tupe


class TupeRelAttention(NamedAttention):
    """Attention with TUPE-R: untied absolute positions and T5's buckets.

    Example:

    >>> attention = keras_posenc.layers.TupeRelAttention(num_heads=8, key_dim=64, max_length=512)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.TupeRel


class AlibiAttention(NamedAttention):
    """Attention with ALiBi's linear biases.

    Example:

    >>> attention = keras_posenc.layers.AlibiAttention(num_heads=2, key_dim=64)
    >>> attention(np.ones((2, 10, 128), "float32"), use_causal_mask=True).shape
    TensorShape([2, 10, 128])
    >>> np.asarray(attention.position.bias(3, 3))[0, 0]  # the first of two heads: slope 1/16
    array([[-0.    , -0.0625, -0.125 ],
           [-0.0625, -0.    , -0.0625],
           [-0.125 , -0.0625, -0.    ]], dtype=float32)
    """

    encoding = encodings.Alibi


class KerpleAttention(NamedAttention):
    """Attention with KERPLE's logarithmic or power kernels.

    Example:

    >>> attention = keras_posenc.layers.KerpleAttention(num_heads=8, key_dim=64, kind="power")
    >>> attention(np.ones((2, 10, 512), "float32"), use_causal_mask=True).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.Kerple


class FireAttention(NamedAttention):
    """Attention with FIRE's function of normalised distances.

    Example:

    >>> attention = keras_posenc.layers.FireAttention(num_heads=8, key_dim=64)
    >>> attention(np.ones((2, 10, 512), "float32"), use_causal_mask=True).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.Fire


class ShawAttention(NamedAttention):
    """Attention with Shaw's vectors per distance for keys and values.

    Example:

    >>> attention = keras_posenc.layers.ShawAttention(num_heads=8, key_dim=64, max_distance=16)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    >>> attention.position.count_params() == 2 * (2 * 16 + 1) * 64
    True
    """

    encoding = encodings.Shaw


class TransformerXLAttention(NamedAttention):
    """Attention with Transformer-XL's relative sinusoids.

    Example:

    >>> attention = keras_posenc.layers.TransformerXLAttention(num_heads=8, key_dim=64)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.TransformerXL


class RotaryAttention(NamedAttention):
    """Attention with rotated queries and keys.

    Example:

    >>> attention = keras_posenc.layers.RotaryAttention(num_heads=8, key_dim=64, layout="interleaved")
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.Rotary


class SynthesizerAttention(NamedAttention):
    """Attention whose scores are synthesized instead of computed from queries and keys.

    Example:

    >>> attention = keras_posenc.layers.SynthesizerAttention(num_heads=8, key_dim=64, max_length=128, kind="factorized")
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    TensorShape([2, 10, 512])
    """

    encoding = encodings.Synthesizer


@keras.saving.register_keras_serializable(package=PACKAGE)
class DietAbsLinformerAttention(LinformerAttention):
    """DIET-ABS-LIN: Linformer attention with `P_Q (n x d_p)` and `P_K (k x d_p)` for each head.

    Args:
        num_heads, key_dim, max_length: heads, head size, number of positions.
        num_keys: number of compressed keys.
        rank: `d_p`, the head size by default.

    Example:

    >>> attention = keras_posenc.layers.DietAbsLinformerAttention(num_heads=8, key_dim=64, max_length=512, num_keys=32)
    >>> attention(np.ones((2, 512, 512), "float32")).shape
    TensorShape([2, 512, 512])
    """

    def __init__(self, num_heads, key_dim, max_length, value_dim=None, *, num_keys=32, rank=None, **kwargs):
        if "position" not in kwargs:
            kwargs["position"] = encodings.DietAbsLin(
                num_heads=num_heads,
                key_dim=key_dim,
                max_length=max_length,
                num_keys=num_keys,
                rank=rank,
                share_heads=bool(kwargs.get("share_heads")),
                dtype=kwargs.get("dtype"),
                name=encodings.DietAbsLin.registry_name,
            )
        super().__init__(num_heads, key_dim, max_length, value_dim, num_keys=num_keys, **kwargs)
