"""One file, one encoding: its equation, its Keras layer, its reference.

Every module of this package is imported, and every encoding that one of them registers is an attribute here, so a new
encoding is one new file.
"""

import importlib
import pkgutil

from keras_posenc.encodings.base import PositionEncoding, Positions
from keras_posenc.encodings.combined import Combined
from keras_posenc.encodings.registry import create, get_class, names, options, parse, register, split
from keras_posenc.encodings.segment import SegmentBias

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

globals().update({get_class(name).__name__: get_class(name) for name in names()})

__all__ = [
    "Combined",
    "PositionEncoding",
    "Positions",
    "SegmentBias",
    "create",
    "get_class",
    "names",
    "options",
    "parse",
    "register",
    "split",
    *(get_class(name).__name__ for name in names()),
]
