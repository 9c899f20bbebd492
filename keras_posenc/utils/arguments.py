"""Types of command-line arguments, for argparse."""

import argparse


def count(text):
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def amount(text):
    """A whole number of at least 0."""
    return 0 if text == "0" else count(text)


def names_of(what, known):
    """Names joined by commas, or `all`, as a list without repetitions."""

    def parse(text):
        names = list(known) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(
                f"unknown {what} {', '.join(map(repr, unknown)) or repr(text)}; known: {', '.join(known)}"
            )
        return list(dict.fromkeys(names))

    return parse
