"""A function from characters to strings, as a few small variables that a graph looks characters up in.

TensorFlow's own string operations follow the Unicode version of the library they are linked with, and treat case and
accents differently from Python. Tables made by Python's functions at export give the same pieces on every server.
"""

import functools
import unicodedata

import numpy as np
import tensorflow as tf

from keras_posenc.checkpoints import bert_text

CODES = 0x110000  # code points of Unicode
KEEP, DROP, SPACED, REPLACE = range(4)
SIGMA = "\u03a3"
_IDEOGRAPHS = frozenset(chr(code) for first, last in bert_text.IDEOGRAPHS for code in range(first, last + 1))


def word_piece_character(char, lowercase, strip_accents, split_ideographs):
    """What BERT makes of a character before text is cut at spaces; see `keras_posenc.checkpoints.bert_text`."""
    category = unicodedata.category(char)
    if category == "Co":
        return ""
    ideograph = char in _IDEOGRAPHS
    if category == "Cn" or (ideograph and not unicodedata.decomposition(char)):  # most of Unicode
        return f" {char} " if ideograph and split_ideographs else char
    # Between two letters one sees whether it is dropped, is a space, or is a word of its own.
    return " ".join(bert_text.words(f"a{char}a", lowercase, strip_accents, split_ideographs))[1:-1]


def sentence_piece_character(char, lowercase, keep_accents):
    """What ALBERT makes of a character. The capital sigma is left as it is: its small form depends on the word."""
    if not keep_accents and char > "\x7f":
        char = "".join(c for c in unicodedata.normalize("NFKD", char) if not unicodedata.combining(c))
    return "".join(c if c == SIGMA else c.lower() for c in char) if lowercase else char


@functools.lru_cache(8)
def _runs(function, options):
    """All of Unicode in runs of one kind: the first code, the kind and the first entry of each; and the entries.

    Only characters that become something else (`REPLACE`) have entries, tuples of codes.
    """
    firsts, kinds, offsets, entries, known = [], [], [], [], {}
    for code in range(CODES):
        char = chr(code)
        category = unicodedata.category(char)
        # Nine tenths of all codes are not assigned or for private use: one of them stands for all.
        alike = (category, char in _IDEOGRAPHS) if category in ("Cn", "Co", "Cs") else None
        if alike in known:
            kind = known[alike]
        else:
            became = function(char, *options)
            kind = _kind(char, became)
            if alike is not None and kind != REPLACE:
                known[alike] = kind
        if not kinds or kinds[-1] != kind:
            firsts.append(code)
            kinds.append(kind)
            offsets.append(len(entries))
        if kind == REPLACE:
            entries.append(tuple(map(ord, became)))
    return firsts, kinds, offsets, entries


def _kind(char, became):
    if became == char:
        return KEEP
    return DROP if not became else SPACED if became == f" {char} " else REPLACE


class CharacterMap(tf.Module):
    """Replaces each character of strings by the string that `function(char, *options)` gives for it.

    Args:
        function: from a character to a string, of Python.
        options: further arguments of `function`, hashable.
    """

    def __init__(self, function, options):
        super().__init__(name="characters")
        firsts, kinds, offsets, entries = _runs(function, tuple(options))
        entries = [*entries, (0,)]  # there is always one to look at
        splits = np.cumsum([0] + [len(entry) for entry in entries])
        self.firsts = _kept(firsts, "firsts")
        self.kinds = _kept(kinds, "kinds")
        self.offsets = _kept(offsets, "offsets")
        self.splits = _kept(splits, "splits")
        self.codes = _kept([code for entry in entries for code in entry], "codes")

    def __call__(self, texts):
        """Strings `(n,)` of valid UTF-8 to strings `(n,)`."""
        texts = tf.strings.unicode_decode(texts, "UTF-8")
        became = texts.with_flat_values(self._replaced(texts.flat_values))
        return tf.strings.unicode_encode(became.merge_dims(1, 2), "UTF-8")

    def _replaced(self, codes):
        """Codes `(n,)` to a ragged `(n, codes each became)`."""
        run = tf.searchsorted(self.firsts, codes, side="right") - 1
        kind = tf.gather(self.kinds, run)
        entry = tf.gather(self.offsets, run) + codes - tf.gather(self.firsts, run)
        entry = tf.where(kind == REPLACE, entry, 0)
        length = tf.gather(self.splits, entry + 1) - tf.gather(self.splits, entry)
        length = tf.where(kind == REPLACE, length, tf.gather(tf.constant([1, 0, 3, 0]), kind))
        # For each code that comes out: which character it is of, and how far into what that became.
        origin = tf.repeat(tf.range(tf.size(codes)), length)
        place = tf.ragged.range(length).flat_values
        kind, code = tf.gather(kind, origin), tf.gather(codes, origin)
        code = tf.where((kind == SPACED) & (place != 1), ord(" "), code)
        stored = tf.where(kind == REPLACE, tf.gather(self.splits, tf.gather(entry, origin)) + place, 0)
        code = tf.where(kind == REPLACE, tf.gather(self.codes, stored), code)
        return tf.RaggedTensor.from_row_lengths(code, tf.cast(length, tf.int64), validate=False)


def _kept(values, name):
    return tf.Variable(np.asarray(values, "int32"), trainable=False, name=name)
