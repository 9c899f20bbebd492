"""How a stack of blocks, encoder or decoder, makes the encodings that it owns or puts into its blocks."""

from keras_posenc.encodings.registry import create, get_class, options
from keras_posenc.utils import checks
from keras_posenc.utils.rows import EXTRAPOLATIONS

SHARING = ("none", "head", "layer")


def make_encoding(stack, names, **own):
    """The encoding of `names` with the sizes of the stack and those of its options that they take; `None` for none.

    Args:
        stack: has `num_heads`, `hidden_dim`, `max_length`, `sharing`, `extrapolate`, `position_options`.
        names: list of registered names.
        **own: further options, used if the encoding takes them and the stack's options do not say otherwise.
    """
    if not names:
        return None
    taken = {option for name in names for option in options(name)}
    common = dict(
        num_heads=stack.num_heads,
        key_dim=stack.hidden_dim // stack.num_heads,
        max_length=stack.max_length,
        dtype=stack.dtype_policy,
    )
    if stack.sharing == "head":
        common["share_heads"] = True
    if stack.extrapolate is not None and any(stack.extrapolate in get_class(name).extrapolations for name in names):
        common["extrapolate"] = stack.extrapolate
    chosen = {option: value for option, value in {**own, **stack.position_options}.items() if option in taken}
    return create("+".join(names), chosen, **common)


def check_extrapolate(stack, names):
    """Refuses names that mean nothing, and ways that one of the encodings `names` has not.

    Encodings that need no way beyond `max_length` take no notice of it.
    """
    if stack.extrapolate is None:
        return
    checks.one_of(type(stack).__name__, "extrapolate", stack.extrapolate, EXTRAPOLATIONS)
    for name in names:
        cls = get_class(name)
        if "max_length" in cls.needs and stack.extrapolate not in cls.extrapolations:
            raise ValueError(
                f"{type(stack).__name__}: {name!r} has no positions beyond `max_length`, and no way to make up some. "
                f"Received: extrapolate={stack.extrapolate!r}"
            )


def check_start(start_index, cache):
    """Without a cache, inputs are the whole sequence."""
    if cache is None and checks.static_int(start_index) != 0:
        raise ValueError("Without a cache the inputs are the whole sequence: `start_index` goes with a `cache`.")


def check_memory(memory, cache):
    """Cross-attention looks at a memory, or at the cache that was made of one."""
    if (memory is None) == (cache is None):
        raise ValueError(
            "Pass the `memory` to attend to, or a `cache` that was made from it: by `make_cache(memory, length)` of a "
            "decoder, `make_cache(memory=memory)` of the cross-attention of a block. "
            f"Received: {'neither' if memory is None else 'both'}."
        )


def check_options(given, names):
    """Refuses options that none of the encodings `names` takes."""
    offered = {option for name in names for option in options(name)}
    unknown = sorted(set(given) - offered)
    if unknown:
        raise ValueError(
            f"position={'+'.join(names)!r} takes no option {', '.join(map(repr, unknown))}. "
            f"It takes: {', '.join(sorted(offered)) or 'none'}."
        )


def project_for(attention, encoding):
    """Tells an attention layer what the encoding it will be handed needs projected."""
    attention.projects_query, attention.projects_key = encoding.needs_query, encoding.needs_key
