"""Flags that say something else than what is done are refused, not ignored."""


def given(values, names):
    """Those of the flags `names` that ask for something. A switch that is set to its default asks for nothing."""
    found = []
    for name in names:
        flag = values[name]
        if flag.present and not (flag.boolean and flag.value == flag.default):
            found.append(name)
    return found


def refuse(values, by, names):
    """Raises a `ValueError` if any of the flags `names` was given, which `by` makes pointless.

    Args:
        values: parsed flags.
        by: what was asked for, as the user wrote it, e.g. `"--corpus"`.
        names: flags that are not read then.
    """
    found = given(values, names)
    if found:
        raise ValueError(f"{by} does not go with {', '.join('--' + name for name in found)}: leave one out.")
