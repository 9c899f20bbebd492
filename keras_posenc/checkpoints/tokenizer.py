"""From text to token ids and back, with the vocabulary of a checkpoint's folder.

Word pieces and sentence pieces are those of keras-hub; what is here reads the files, cuts text into words as BERT does,
and makes model inputs.
"""

import json
import shutil
import unicodedata
from pathlib import Path

import numpy as np

from keras_posenc.checkpoints import bert_text

VOCABULARY, SENTENCE_PIECE = "vocab.txt", "spiece.model"
TOKENIZER, OPTIONS = "tokenizer.json", "tokenizer_config.json"
LONGEST_WORD = 100  # longer words are unknown, in BERT


def found(folder):
    """Whether `load_tokenizer` can read this folder."""
    folder = Path(folder)
    return (folder / SENTENCE_PIECE).is_file() or _is_word_piece(_vocabulary(folder)[0])


def load_tokenizer(folder):
    """The tokenizer of a folder with `vocab.txt` or `tokenizer.json` (BERT), or `spiece.model` (ALBERT).

    Case, accents and ideographs are treated as `tokenizer_config.json` and `tokenizer.json` say. Where neither says,
    text is lowered if no word piece has a capital letter.
    """
    folder = Path(folder)
    if (folder / SENTENCE_PIECE).is_file():
        options = _read(folder / OPTIONS)
        return SentencePiece(
            folder / SENTENCE_PIECE, options.get("do_lower_case", True), options.get("keep_accents", False)
        )
    vocabulary, normalizer = _vocabulary(folder)
    if vocabulary is None:
        raise FileNotFoundError(f"'{folder}' has no tokenizer: looked for {VOCABULARY}, {TOKENIZER}, {SENTENCE_PIECE}.")
    if not _is_word_piece(vocabulary):
        raise ValueError(
            f"The vocabulary of '{folder}' is not one of word pieces: it has no [CLS], [SEP], [PAD] and [UNK], or no "
            "piece that begins with '##'. Cut the text with the model's own tokenizer, and pass token ids."
        )
    if normalizer.get("type", "BertNormalizer") != "BertNormalizer":
        raise ValueError(f"'{folder / TOKENIZER}' has a normalizer that BERT does not: {normalizer['type']}")
    options = _read(folder / OPTIONS)
    capitals = any(piece != piece.lower() for piece in vocabulary if not piece.startswith("["))
    return WordPiece(
        vocabulary,
        lowercase=options.get("do_lower_case", normalizer.get("lowercase", not capitals)),
        strip_accents=options.get("strip_accents", normalizer.get("strip_accents")),
        split_ideographs=options.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True)),
    )


def _read(file):
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _vocabulary(folder):
    """The pieces in the order of their ids, or `None`; and the normalizer of `tokenizer.json`."""
    whole = _read(folder / TOKENIZER)
    normalizer = whole.get("normalizer") or {}
    if (folder / VOCABULARY).is_file():
        text = (folder / VOCABULARY).read_text(encoding="utf-8")
        # Not splitlines(): some vocabularies have Unicode's own line separators among their pieces.
        return text.removesuffix("\n").split("\n"), normalizer
    pieces = whole.get("model", {}).get("vocab")
    if whole.get("model", {}).get("type", "WordPiece") != "WordPiece" or not isinstance(pieces, dict):
        return None, normalizer
    if sorted(pieces.values()) != list(range(len(pieces))):
        missing = sorted(set(range(len(pieces))) - set(pieces.values()))
        raise ValueError(
            f"The ids of the {len(pieces)} pieces of '{folder / TOKENIZER}' must be 0 to {len(pieces) - 1}. Missing: "
            f"{', '.join(map(str, missing[:5]))}. Put a {VOCABULARY} beside it that has a line for every id."
        )
    return sorted(pieces, key=pieces.get), normalizer


def _is_word_piece(vocabulary):
    if vocabulary is None:
        return False
    return set(WordPiece.special) - {"[MASK]"} <= set(vocabulary) and any(p.startswith("##") for p in vocabulary)


def _keras_hub():
    try:
        import keras_hub
    except ImportError as error:
        raise ImportError(
            "Tokenizers need keras-hub: pip install keras-hub, or keras_posenc with its extra 'checkpoints'."
        ) from error
    return keras_hub


class Tokenizer:
    """Base class. A tokenizer has `vocabulary`, the list of pieces, and `cls_id`, `sep_id`, `pad_id`, `mask_id`."""

    special = ()
    cls_token, sep_token, pad_token, mask_token = "[CLS]", "[SEP]", "[PAD]", "[MASK]"

    def _set_vocabulary(self, vocabulary):
        self.vocabulary = list(vocabulary)
        self.ids = {piece: index for index, piece in enumerate(self.vocabulary)}
        self.cls_id, self.sep_id, self.pad_id, self.mask_id = (
            self.ids.get(token) for token in (self.cls_token, self.sep_token, self.pad_token, self.mask_token)
        )

    def tokenize(self, texts):
        """A list of ids for each text of a list, without special tokens around them."""
        raise NotImplementedError

    def encode(self, texts, max_length=None):
        """Model inputs: `[CLS] text [SEP]`, or `[CLS] text [SEP] text [SEP]`, padded to the longest.

        Args:
            texts: a string, or a list of strings and of pairs of strings.
            max_length: number of tokens above which texts are cut, the longer one of a pair first.

        Returns: dict of int32 `(batch, length)`: `token_ids`; `segment_ids`, 1 in the second text of a pair;
            `padding_mask`, 1 for tokens.
        """
        rows = [
            (row,) if isinstance(row, str) else tuple(row) for row in ([texts] if isinstance(texts, str) else texts)
        ]
        for row in rows:
            if len(row) not in (1, 2) or not all(isinstance(text, str) for text in row):
                raise ValueError(f"`encode` takes strings and pairs of strings. Received: {row!r}")
        if max_length is not None and max_length < 3:
            raise ValueError(f"`max_length` must be at least 3, for the special tokens. Received: {max_length}")
        pieces = iter(self.tokenize([text for row in rows for text in row]))
        packed = [self._pack([next(pieces) for _ in row], max_length) for row in rows]
        shape = (len(rows), max((len(ids) for ids, _ in packed), default=0))
        encoded = {
            "token_ids": np.full(shape, self.pad_id or 0, "int32"),
            "segment_ids": np.zeros(shape, "int32"),
            "padding_mask": np.zeros(shape, "int32"),
        }
        for index, (ids, segments) in enumerate(packed):
            encoded["token_ids"][index, : len(ids)] = ids
            encoded["segment_ids"][index, : len(ids)] = segments
            encoded["padding_mask"][index, : len(ids)] = 1
        return encoded

    def _pack(self, parts, max_length):
        if max_length is not None:
            lengths = _cut([len(part) for part in parts], max_length - 1 - len(parts))
            parts = [part[:length] for part, length in zip(parts, lengths)]
        ids, segments = [self.cls_id], [0]
        for segment, part in enumerate(parts):
            ids += [*part, self.sep_id]
            segments += [segment] * (len(part) + 1)
        return ids, segments

    def tokens(self, ids):
        """The pieces of a sequence of ids, as strings."""
        return [self.vocabulary[int(i)] for i in np.asarray(ids).reshape(-1)]

    def decode(self, ids):
        """Text, without special tokens. Spaces are where the pieces say, not where they were."""
        raise NotImplementedError

    def _real(self, ids):
        hidden = {self.ids[token] for token in self.special if token in self.ids and token != self.unknown_token}
        return [int(i) for i in np.asarray(ids).reshape(-1) if int(i) not in hidden]


def _cut(lengths, room):
    """Lengths that fit into `room`: the longer of two is cut first; of two halves, the longer text gets the odd one."""
    room = max(room, 0)
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    shorter, half = min(lengths), room // 2
    kept = (shorter, room - shorter) if shorter <= half else (half, room - half)
    return list(kept) if lengths[0] <= lengths[1] else list(reversed(kept))


class WordPiece(Tokenizer):
    """BERT's tokenizer: words, then the longest pieces of each that the vocabulary has.

    Args:
        vocabulary: list of pieces.
        lowercase, strip_accents, split_ideographs: as in `bert_text.words`.
    """

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    unknown_token = "[UNK]"

    def __init__(self, vocabulary, lowercase=True, strip_accents=None, split_ideographs=True):
        self._set_vocabulary(vocabulary)
        self.lowercase, self.strip_accents, self.split_ideographs = lowercase, strip_accents, split_ideographs
        self.unknown_id = self.ids[self.unknown_token]
        self.layer = _keras_hub().tokenizers.WordPieceTokenizer(self.vocabulary, split=False)

    def tokenize(self, texts):
        options = (self.lowercase, self.strip_accents, self.split_ideographs, self.special)
        texts = [bert_text.words(text, *options) for text in texts]
        pieces = self._pieces(sorted({word for words in texts for word in words}))
        return [[piece for word in words for piece in pieces[word]] for words in texts]

    def _pieces(self, words):
        """A dict from words to the ids of their pieces."""
        found = {}
        for word in words:
            if word in self.special:
                found[word] = [self.ids.get(word, self.unknown_id)]
            elif len(word) > LONGEST_WORD:
                found[word] = [self.unknown_id]
            elif len(word.encode()) > LONGEST_WORD:
                # keras-hub counts bytes, BERT letters: a sentence of Thai, which has no spaces, is one such word.
                found[word] = self._match(word)
        short = [[word] for word in words if word not in found]
        if short:
            ids = self.layer.tokenize(short)
            ids = ids.to_list() if hasattr(ids, "to_list") else ids
            found.update((word, list(map(int, row))) for (word,), row in zip(short, ids))
        return found

    def _match(self, word):
        ids, start = [], 0
        while start < len(word):
            ends = range(len(word), start, -1)
            end = next((e for e in ends if ("##" if start else "") + word[start:e] in self.ids), None)
            if end is None:
                return [self.unknown_id]
            ids.append(self.ids[("##" if start else "") + word[start:end]])
            start = end
        return ids

    def decode(self, ids):
        return " ".join(self.tokens(self._real(ids))).replace(" ##", "")

    def save(self, folder):
        """Writes `vocab.txt` and `tokenizer_config.json`, which Hugging Face's tokenizers read too."""
        folder = Path(folder)
        (folder / VOCABULARY).write_text("".join(f"{piece}\n" for piece in self.vocabulary), encoding="utf-8")
        options = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.split_ideographs,
        }
        (folder / OPTIONS).write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")


class SentencePiece(Tokenizer):
    """ALBERT's tokenizer.

    Args:
        file: the sentence-piece model.
        lowercase: whether text is lowered.
        keep_accents: whether combining marks are kept.
    """

    special = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    pad_token, unknown_token = "<pad>", "<unk>"

    def __init__(self, file, lowercase=True, keep_accents=False):
        self.file = Path(file)
        self.lowercase, self.keep_accents = lowercase, keep_accents
        self.layer = _keras_hub().tokenizers.SentencePieceTokenizer(proto=self.file.read_bytes())
        self._set_vocabulary(self.layer.get_vocabulary())
        missing = [token for token in (self.cls_token, self.sep_token) if token not in self.ids]
        if missing:
            raise ValueError(f"'{file}' has no piece {' and no piece '.join(missing)}, which ALBERT's inputs need.")

    def tokenize(self, texts):
        texts = [bert_text.split_special(text, self.special) for text in texts]
        plain = [self._normalized(part) for parts in texts for part in parts[::2]]
        ids = self.layer.tokenize(plain) if plain else []
        pieces = iter(ids.to_list() if hasattr(ids, "to_list") else ids)
        found = []
        for parts in texts:
            # Special tokens are at the odd places; those that the model lacks are unknown.
            rows = [[self.layer.token_to_id(part)] if index % 2 else next(pieces) for index, part in enumerate(parts)]
            found.append([int(piece) for row in rows for piece in row])
        return found

    def _normalized(self, text):
        text = " ".join(text.split()).replace("``", '"').replace("''", '"')
        if not self.keep_accents:
            text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
        return text.lower() if self.lowercase else text

    def decode(self, ids):
        return "".join(self.tokens(self._real(ids))).replace("\u2581", " ").strip()

    def save(self, folder):
        """Writes the sentence-piece model and `tokenizer_config.json`."""
        shutil.copyfile(self.file, Path(folder) / SENTENCE_PIECE)
        options = {"do_lower_case": self.lowercase, "keep_accents": self.keep_accents}
        (Path(folder) / OPTIONS).write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
