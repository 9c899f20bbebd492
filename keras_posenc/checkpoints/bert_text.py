"""How BERT cuts text into words, before word pieces.

keras-hub's word-piece layer does nearly this by itself, with differences that change ids: it keeps Unicode spaces
inside words, takes invisible characters for spaces, and folds case instead of lowering it (so that "ß" becomes "ss").
"""

import functools
import re
import unicodedata

# Blocks of ideographs, each of which is a word: those that BERT's authors list.
IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def words(text, lowercase=True, strip_accents=None, split_ideographs=True, special=()):
    """The words of a text: runs without spaces, each punctuation mark and each ideograph for itself.

    Args:
        text: a string.
        lowercase: whether to lower case, letter by letter.
        strip_accents: whether to drop combining marks; as `lowercase` by default.
        split_ideographs: whether each Chinese character is a word.
        special: tokens such as `[MASK]` that are words wherever they stand.
    """
    strip_accents = lowercase if strip_accents is None else strip_accents
    found = []
    for index, part in enumerate(split_special(text, special)):
        found += [part] if index % 2 else _plain_words(part, lowercase, strip_accents, split_ideographs)
    return found


def split_special(text, special):
    """The text between special tokens, and these: texts have even places in the list, tokens odd ones."""
    return re.split(f"({'|'.join(map(re.escape, special))})", text) if special else [text]


def _plain_words(text, lowercase, strip_accents, split_ideographs):
    text = "".join(_cleaned(char) for char in text)
    if split_ideographs:
        text = "".join(f" {char} " if _is_ideograph(char) else char for char in text)
    if strip_accents:
        text = "".join(char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) != "Mn")
    if lowercase:
        text = "".join(char.lower() for char in text)
    return "".join(f" {char} " if _is_punctuation(char) else char for char in text).split()


@functools.lru_cache(65536)
def _cleaned(char):
    """A space for any kind of space, nothing for what cannot be seen."""
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    # Lines and paragraphs are kept here, and split later. U+FFFD stands for what could not be decoded.
    return "" if char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs") else char


@functools.lru_cache(65536)
def _is_ideograph(char):
    return any(first <= ord(char) <= last for first, last in IDEOGRAPHS)


@functools.lru_cache(65536)
def _is_punctuation(char):
    """All of Unicode's punctuation, and ASCII's symbols too, such as `$` and `^`."""
    return char in "$+<=>^`|~" or unicodedata.category(char).startswith("P")
