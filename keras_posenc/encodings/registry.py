"""Encodings by name.

Flags, presets, the test harness, the benchmark and the pictures iterate over this registry: a module in this package
that registers a class is all there is to adding an encoding.
"""

import inspect

import keras

_REGISTRY = {}

PACKAGE = "keras_posenc"

# Constructor arguments that every encoding takes.
COMMON = ("self", "kwargs", "num_heads", "key_dim", "max_length", "value_dim", "share_heads", "extrapolate")


def register(name):
    """Class decorator: makes an encoding known as `name`, and loadable from `.keras` files."""

    def decorate(cls):
        if name in _REGISTRY and _REGISTRY[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"The encoding name '{name}' is taken by {_REGISTRY[name].__qualname__}.")
        cls.registry_name = name
        _REGISTRY[name] = cls
        return keras.saving.register_keras_serializable(package=PACKAGE)(cls)

    return decorate


def names():
    """The registered names, sorted."""
    return sorted(_REGISTRY)


def get_class(name):
    """The encoding class registered as `name`."""
    if name not in _REGISTRY:
        raise ValueError(f"Unknown position encoding: {name!r}. Known: {', '.join(names())}.")
    return _REGISTRY[name]


def options(name):
    """The names of the options that the encoding `name` takes, beside those that all take."""
    return _own_options(get_class(name))


def _own_options(cls):
    return [name for name in inspect.signature(cls.__init__).parameters if name not in COMMON]


def known_options(spec, given=None, **known):
    """The `given` options, and those of `known`, what a layer knows itself, that the encodings named by `spec` take.

    An encoding that is made already is left as it is.
    """
    if not isinstance(spec, (str, list, tuple)):
        return given
    taken = {option for part in parse(spec) for option in options(part)}
    return {**{option: value for option, value in known.items() if option in taken}, **(given or {})}


def parse(spec):
    """A spec as a list of names: `"learned+tisa"` is `["learned", "tisa"]`, `None` is `["none"]`."""
    if spec is None:
        return ["none"]
    if not isinstance(spec, (str, list, tuple)):
        raise ValueError(f"`position` must be the name of an encoding, or several joined by '+'. Received: {spec!r}")
    parts = [part.strip() for part in spec.split("+")] if isinstance(spec, str) else list(spec)
    for part in parts:
        get_class(part)
    if len(parts) != len(set(parts)):
        raise ValueError(f"Each encoding can be used once. Received: position={spec!r}")
    return parts


def split(spec):
    """A spec as `(names that enter at the input, names that enter in the attention layers)`."""
    parts = parse(spec)
    at_input = [name for name in parts if "embed" in get_class(name).doors]
    return at_input, [name for name in parts if name not in at_input and name != "none"]


def create(spec, options=None, **common):
    """Makes the encoding, or the sum of encodings, that `spec` names.

    Args:
        spec: a registered name, several joined by `+`, or an encoding, which is returned as it is.
        options: dict, own options of the named encodings such as `rank` or `kernels`. One that none of them takes
            is an error.
        **common: options that every encoding takes: `num_heads`, `key_dim`, `value_dim`, `max_length`,
            `share_heads`, `extrapolate`, `dtype`. Of several encodings, those get `extrapolate` that can do it.
    """
    if isinstance(spec, keras.layers.Layer):
        if options:
            raise ValueError(
                f"{type(spec).__name__} is made already: give it its options, or pass its name. Received: {options}"
            )
        return spec
    parts, given = parse(spec), dict(options or {})
    extrapolate = common.pop("extrapolate", "error")
    taken = {part: [o for o in _own_options(get_class(part)) if o in given] for part in parts}
    unknown = set(given).difference(*taken.values())
    if unknown:
        offered = {part: _own_options(get_class(part)) for part in parts}
        raise ValueError(f"No encoding of '{spec}' takes {', '.join(sorted(unknown))}. Their options: {offered}")
    # Named after the encoding, so that weights are called the same in every process.
    able = [part for part in parts if extrapolate in get_class(part).extrapolations] or parts
    made = [
        get_class(part)(
            name=part,
            extrapolate=extrapolate if part in able else "error",
            **common,
            **{option: given[option] for option in taken[part]},
        )
        for part in parts
    ]
    if len(made) == 1:
        return made[0]
    from keras_posenc.encodings.combined import Combined

    return Combined(made, name="combined", **common)
