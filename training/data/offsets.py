"""Where in a text its tokens come from.

Tokenizers change text before they cut it: case, accents, spaces, compatibility forms. The offsets are found again from
the ids, by following the pieces through the text as the tokenizer saw it, so that they belong to the ids in use.
"""

import functools
import re
import unicodedata

from keras_posenc.checkpoints import bert_text
from keras_posenc.checkpoints.tokenizer import SentencePiece, WordPiece

_QUOTES = re.compile("``|''")


def tokenize(tokenizer, texts):
    """Ids and offsets: for each text, a list of ids and a list of `(start, end)` in its characters, as many."""
    if isinstance(tokenizer, WordPiece):
        follow = _word_pieces
    elif isinstance(tokenizer, SentencePiece):
        follow = _sentence_pieces
    else:
        raise ValueError(f"Offsets are known for WordPiece and SentencePiece. Received: {type(tokenizer).__name__}")
    texts = list(texts)
    return [
        (ids, _with_marks(text, follow(tokenizer, text, ids))) for text, ids in zip(texts, tokenizer.tokenize(texts))
    ]


def _with_marks(text, spans):
    """Accents that were taken away belong to the letter before them."""
    longer = []
    for (start, end), (following, _) in zip(spans, [*spans[1:], (len(text), None)]):
        while start < end < following and unicodedata.category(text[end]).startswith("M"):
            end += 1
        longer.append((start, end))
    return longer


def _word_pieces(tokenizer, text, ids):
    """Word by word: pieces that add up to its letters, or one that is unknown."""
    spans, at, pieces = [], 0, tokenizer.tokens(ids)
    for letters in _words(tokenizer, text):
        word = "".join(letter for letter, _ in letters)
        if at < len(pieces) and (ids[at] == tokenizer.unknown_id or pieces[at] == word):
            spans.append((letters[0][1], letters[-1][1] + 1))
            at += 1
            continue
        used = 0
        while used < len(word):
            piece = pieces[at].removeprefix("##") if used and at < len(pieces) else "".join(pieces[at : at + 1])
            if not piece or not word.startswith(piece, used):
                raise ValueError(f"Pieces {pieces[at : at + 3]} do not make the word {word!r} in {text[:80]!r}.")
            spans.append((letters[used][1], letters[used + len(piece) - 1][1] + 1))
            used, at = used + len(piece), at + 1
    if at != len(ids):
        raise ValueError(f"{len(ids) - at} more pieces than words in {text[:80]!r}.")
    return spans


def _words(tokenizer, text):
    """The words that `bert_text.words` finds, each as a list of `(letter, index in the text)`."""
    options = (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.split_ideographs)
    words, begin = [], 0
    for place, part in enumerate(bert_text.split_special(text, tokenizer.special)):
        if place % 2:
            words.append([(letter, begin + i) for i, letter in enumerate(part)])
        else:
            word = []
            for index, char in enumerate(part, start=begin):
                first, *more = _between(char, *options)
                word += [(letter, index) for letter in first]
                for letters in more:
                    words.append(word)
                    word = [(letter, index) for letter in letters]
            words.append(word)
        begin += len(part)
    return [word for word in words if word]


@functools.lru_cache(65536)
def _between(char, lowercase, strip_accents, split_ideographs):
    """What a character does between two letters: adds to the word, or ends it, perhaps with a word of its own."""
    first, *more = bert_text.words(f"x{char}x", lowercase, strip_accents, split_ideographs)
    found = [first[1:], *more]
    found[-1] = found[-1][:-1]
    return tuple(found)


def _sentence_pieces(tokenizer, text, ids):
    """Known pieces are found in the text one after the other; unknown ones are what is left between them."""
    letters = _letters(text, tokenizer.keep_accents)
    whole = "".join(letter for letter, _, _ in letters)
    pieces = [
        _UNKNOWN if _is_unknown(tokenizer, piece) else _bare(piece, tokenizer.keep_accents)
        for piece in tokenizer.tokens(ids)
    ]
    places, at, index = [], 0, 0
    while index < len(pieces):
        known = _first_known(pieces, index)
        left, piece = pieces[index:known], "".join(pieces[known : known + 1])
        gap = _UNKNOWN in left
        if piece:
            # What an unknown piece stands for is in no other piece, so the first place is the right one. Without
            # unknown pieces there is nothing to skip but characters that the model's own normalisation dropped.
            begin = whole.find(piece, at + gap, len(whole) if gap else at + _DROPPED + len(piece))
        else:
            begin = len(whole) if gap else at
        lost = begin < 0
        begin = at if lost else begin
        places += _shared(left, letters, text, at, begin)
        places += [(begin, begin if lost else begin + len(piece))] * (known < len(pieces))
        at, index = places[-1][1], known + 1
    return [_span(letters, first, last) for first, last in places]


_UNKNOWN = object()
_DROPPED = 16


def _first_known(pieces, begin):
    return next((i for i in range(begin, len(pieces)) if pieces[i] not in (_UNKNOWN, "")), len(pieces))


def _is_unknown(tokenizer, piece):
    """Unknown pieces, and single bytes of what is unknown."""
    return piece == tokenizer.unknown_token or re.fullmatch(r"<0x[0-9A-F]{2}>", piece)


def _shared(pieces, letters, text, begin, end):
    """Places of unknown pieces, with spaces among them, in the letters from `begin` to `end`.

    Each stretch of unknown pieces gets one word; all of them get all letters if there are not as many words.
    """
    words = [begin] if begin < end else []
    words += [i for i in range(begin + 1, end) if any(map(str.isspace, text[letters[i - 1][2] : letters[i][1]]))]
    firsts = [i for i, p in enumerate(pieces) if p is _UNKNOWN and (i == 0 or pieces[i - 1] is not _UNKNOWN)]
    bounds = [*words, end] if len(words) == len(firsts) else None
    places, at, number = [], begin, -1
    for i, piece in enumerate(pieces):
        number += i in firsts
        if piece is _UNKNOWN:
            places.append((bounds[number], bounds[number + 1]) if bounds else (begin, end))
            at = places[-1][1]
        else:
            places.append((at, at))
    return places


def _span(letters, first, last):
    if first < last:
        return letters[first][1], letters[last - 1][2]
    edge = letters[first][1] if first < len(letters) else letters[-1][2] if letters else 0
    return edge, edge


def _letters(text, accents):
    """The letters of a text with `(start, end)` of what they were made from.

    Case, spaces and compatibility forms are taken away on both sides, whatever the tokenizer does with them: this is
    for comparing only. Accents are too if the tokenizer drops them; otherwise an unknown piece may be an accent.
    """
    found, begin = [], 0
    while begin < len(text):
        end = begin + (2 if _QUOTES.match(text, begin) else 1)
        found += [(letter, begin, end) for letter in _bare(text[begin:end], accents)]
        begin = end
    return found


@functools.lru_cache(65536)
def _bare(text, accents):
    text = unicodedata.normalize("NFKD", _QUOTES.sub('"', text).replace("\u2581", "")).lower()
    if not accents:
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return "".join(char for char in text if char != "\ufffd" and not char.isspace())
