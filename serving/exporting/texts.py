"""Tokenizers inside the graph: what `keras_posenc.checkpoints.tokenizer` does, in operations of TensorFlow.

Word pieces and sentence pieces are cut by operations of tensorflow_text, which TF-Serving has built in; a Python
process has to import tensorflow_text before it loads such a model. The ids are those of the Python tokenizers.
"""

import re
from pathlib import Path

import tensorflow as tf

from keras_posenc.checkpoints.tokenizer import LONGEST_WORD, SentencePiece, WordPiece
from serving.exporting.characters import CharacterMap, sentence_piece_character, word_piece_character

VOCABULARY = "vocab.txt"
MARK = b"\xff"  # a byte that UTF-8 does not have
SPACES = r"[\x09-\x0d\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"


def in_graph(tokenizer, max_length, folder):
    """The tokenizer as a `TextEncoder`.

    Args:
        tokenizer: from `keras_posenc.checkpoints.load_tokenizer`.
        max_length: number of tokens above which texts are cut.
        folder: where the vocabulary is written, which must exist until the model is saved.
    """
    for cls, made in ((WordPiece, WordPieceEncoder), (SentencePiece, SentencePieceEncoder)):
        if isinstance(tokenizer, cls):
            return made(tokenizer, max_length, folder)
    raise ValueError(
        "Only tokenizers of keras_posenc.checkpoints can be exported: WordPiece or SentencePiece. Received: "
        f"{type(tokenizer).__name__}"
    )


class TextEncoder(tf.Module):
    """Base class: special tokens, the two texts of a pair, truncation and padding."""

    def __init__(self, tokenizer, max_length, folder):
        super().__init__(name="tokenizer")
        if max_length < 3:
            raise ValueError(f"`max_length` must be at least 3, for the special tokens. Received: {max_length}")
        self.special = tokenizer.special
        self.max_length = max_length
        self.cls_id, self.sep_id, self.pad_id = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id or 0
        file = Path(folder) / VOCABULARY
        file.write_text("".join(f"{piece}\n" for piece in tokenizer.vocabulary), encoding="utf-8")
        whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        self.ids = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(file), tf.string, whole, tf.int64, number), -1
        )
        self.pieces = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(file), tf.int64, number, tf.string, whole), ""
        )

    def tokenize(self, texts):
        """Strings `(batch,)` to ragged int32 ids `(batch, tokens)`, without special tokens around them."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        pattern = "|".join(map(re.escape, self.special))
        parts = tf.strings.split(tf.strings.regex_replace(texts, f"({pattern})", MARK + rb"\1" + MARK), MARK)
        # As in Python, text is at the even places of each row and special tokens are at the odd ones.
        is_special = tf.ragged.range(parts.row_lengths()).flat_values % 2 == 1
        ids = self.tokenize_parts(parts.flat_values, is_special)
        return tf.cast(parts.with_flat_values(ids).merge_dims(1, 2), tf.int32)

    def tokenize_parts(self, parts, is_special):
        """Strings `(n,)`, some of which are special tokens, to ragged ids `(n, tokens)`."""
        raise NotImplementedError

    def __call__(self, text, text_pair):
        """Model inputs and tokens of texts `(batch,)`; where the second is empty there is none."""
        first, second = self.tokenize(text), self.tokenize(text_pair)
        paired = tf.cast(tf.strings.length(text_pair) > 0, tf.int32)
        first, second = self._cut(first, second, self.max_length - 2 - paired)
        one = tf.ones_like(paired)
        ids = [_rows(self.cls_id, one), first, _rows(self.sep_id, one), second, _rows(self.sep_id, paired)]
        segments = [tf.zeros_like(part) for part in ids[:3]] + [tf.ones_like(part) for part in ids[3:]]
        ids, segments = tf.concat(ids, axis=1), tf.concat(segments, axis=1)
        token_ids = ids.to_tensor(self.pad_id)
        return {
            "token_ids": token_ids,
            "segment_ids": segments.to_tensor(0),
            "padding_mask": tf.ones_like(ids).to_tensor(0),
            "tokens": self.pieces.lookup(tf.cast(token_ids, tf.int64)),
        }

    def _cut(self, first, second, room):
        """Texts that fit into `room`: the longer is cut first; of two halves, the longer text gets the odd one."""
        room = tf.maximum(room, 0)
        lengths = tf.cast(first.row_lengths(), tf.int32), tf.cast(second.row_lengths(), tf.int32)
        short = tf.minimum(tf.minimum(*lengths), room // 2)
        long = room - short
        swapped = lengths[0] > lengths[1]
        fits = lengths[0] + lengths[1] <= room
        kept = tf.where(swapped, long, short), tf.where(swapped, short, long)
        return tuple(
            tf.ragged.boolean_mask(text, tf.ragged.range(length) < tf.where(fits, length, keep)[:, None])
            for text, length, keep in zip((first, second), lengths, kept)
        )


def _rows(value, lengths):
    """Rows of these lengths, `(batch,)`, in which every entry is `value`."""
    lengths = tf.cast(lengths, tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(lengths)], value), lengths, validate=False)


class WordPieceEncoder(TextEncoder):
    """BERT's: each character is cleaned by a table, words are cut into pieces by tensorflow_text's operation."""

    def __init__(self, tokenizer, max_length, folder):
        super().__init__(tokenizer, max_length, folder)
        import tensorflow_text

        strip = tokenizer.lowercase if tokenizer.strip_accents is None else tokenizer.strip_accents
        self.characters = CharacterMap(word_piece_character, (tokenizer.lowercase, strip, tokenizer.split_ideographs))
        self.unknown = tokenizer.unknown_token
        self.missing = [token for token in self.special if token not in tokenizer.ids]
        self.splitter = tensorflow_text.WordpieceTokenizer(
            self.ids, max_bytes_per_word=4 * LONGEST_WORD, unknown_token=self.unknown
        )

    def tokenize_parts(self, parts, is_special):
        words = tf.strings.split(tf.where(is_special, parts, self.characters(parts)))
        word = words.flat_values
        unknown = tf.strings.length(word, unit="UTF8_CHAR") > LONGEST_WORD
        for token in self.missing:  # no word but the token itself looks like it: punctuation is a word of its own
            unknown |= word == token
        return self.splitter.tokenize(words.with_flat_values(tf.where(unknown, self.unknown, word))).merge_dims(1, 2)


class SentencePieceEncoder(TextEncoder):
    """ALBERT's: text is normalised by a table, and cut by tensorflow_text's operation."""

    def __init__(self, tokenizer, max_length, folder):
        super().__init__(tokenizer, max_length, folder)
        import tensorflow_text

        self.lowercase = tokenizer.lowercase
        self.characters = CharacterMap(sentence_piece_character, (tokenizer.lowercase, tokenizer.keep_accents))
        self.splitter = tensorflow_text.SentencepieceTokenizer(tokenizer.file.read_bytes())

    def tokenize_parts(self, parts, is_special):
        text = tf.strings.regex_replace(tf.strings.regex_replace(parts, SPACES, " "), "^ | $", "")
        text = self.characters(tf.strings.regex_replace(text, "``|''", '"'))
        if self.lowercase:
            text = _lowered(text)  # what is left: the capital sigma
        pieces = self.splitter.tokenize(tf.where(is_special, "", text))
        special = tf.cast(self.ids.lookup(tf.boolean_mask(parts, is_special)), tf.int32)
        special = tf.RaggedTensor.from_row_lengths(special, tf.cast(is_special, tf.int64), validate=False)
        return tf.concat([pieces, special], axis=1)


def _lowered(text):
    """`tf.strings.lower`, which for itself stops at a zero byte."""
    zero = tf.strings.unicode_encode(tf.constant([0]), "UTF-8")  # a constant string would lose it
    parts = tf.strings.split(text, zero)
    before = tf.where(tf.ragged.range(parts.row_lengths()).flat_values > 0, zero, "")
    lowered = tf.strings.join([before, tf.strings.lower(parts.flat_values, encoding="utf-8")])
    return tf.strings.reduce_join(parts.with_flat_values(lowered), axis=-1)
