"""Texts of a study, read line by line. A line that cannot be used is set aside with the reason, not an error."""

import dataclasses
import gzip
from pathlib import Path

from keras_posenc.analysis.tagging import parse_conllu


@dataclasses.dataclass
class Text:
    """A text or a pair.

    Attributes:
        line: of its file, from 1; of CoNLL-U, the number of the sentence.
        parts: one or two strings.
        tags: for each part a list of `(word, tag)`, or `None` if there are no tags.
    """

    line: int
    parts: tuple
    tags: tuple | None = None

    @property
    def row(self):
        """As tokenizers take it."""
        return self.parts[0] if len(self.parts) == 1 else self.parts


@dataclasses.dataclass
class Skipped:
    """A line that was not used, and why."""

    line: int
    reason: str


def read_texts(path, columns=None, header=False, limit=None):
    """Texts of a file.

    A name that ends in `.conllu` (or `.conllu.gz`) is read as CoNLL-U, with its tags. All else is text, one a line.

    Args:
        path: file, which may be compressed (`.gz`).
        columns: which columns of a table separated by tabs are the text, or the two texts of a pair: numbers from 1, or
            names that the first line has. `None` if a line is the text.
        header: whether the first line is a header; it is one if columns are given by name.
        limit: number of texts to stop at.

    Returns: `(list of Text, list of Skipped)`.
    """
    path = Path(path)
    if ".conllu" in path.suffixes:
        return _read_conllu(path, limit)
    columns = list(columns or ())
    names = [column for column in columns if not str(column).isdecimal()]
    if names and len(names) < len(columns):
        raise ValueError(f"Columns are given by number or by name, not both. Received: {columns}")
    if not names and any(int(column) < 1 for column in columns):
        raise ValueError(f"Columns are numbers from 1, or names. Received: {columns}")
    found, skipped, places = [], [], [int(column) - 1 for column in columns if not names]
    for number, line in lines(path):
        if isinstance(line, UnicodeDecodeError):
            if number == 1 and names:
                raise ValueError(
                    f"{path}, line 1: not UTF-8 ({line.reason} at byte {line.start}), so there is no header to find "
                    f"{', '.join(names)} in. Save the file as UTF-8, or give the columns by number."
                )
            skipped.append(Skipped(number, f"not UTF-8: {line.reason} at byte {line.start}"))
            continue
        if number == 1 and (header or names):
            places = _places(path, line, names) if names else places
            continue
        text, reason = _text(line, places)
        if reason is None:
            found.append(Text(number, text))
        else:
            skipped.append(Skipped(number, reason))
        if limit is not None and len(found) == limit:
            break
    return found, skipped


def lines(path):
    """`(number, line)` from 1, without line ends or a byte order mark; a line that is not UTF-8 is its error."""
    opened = gzip.open if Path(path).suffix == ".gz" else open
    with opened(path, "rb") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf" if number == 1 else b"")
            try:
                yield number, line.decode("utf-8")
            except UnicodeDecodeError as error:
                yield number, error


def _places(path, line, names):
    header = line.split("\t")
    missing = [name for name in names if name not in header]
    if missing:
        raise ValueError(f"{path}, line 1: no column {', '.join(map(repr, missing))}. Columns: {', '.join(header)}")
    return [header.index(name) for name in names]


def _text(line, places):
    """The parts of a line and `None`, or `None` and why it cannot be used."""
    fields = line.split("\t") if places else [line]
    if places and max(places) >= len(fields):
        return None, f"{len(fields)} columns, and column {max(places) + 1} is needed"
    parts = tuple(fields[place].strip() for place in places) if places else (line.strip(),)
    if not all(parts):
        return None, "empty" if not line.strip() else "an empty text"
    if any("\0" in part for part in parts):
        return None, "a NUL character: not text"
    return parts, None


def _read_conllu(path, limit):
    problems = []
    decoded = (line if isinstance(line, str) else "not UTF-8" for _, line in lines(path))
    sentences = parse_conllu(decoded, problems=problems)
    found = [
        Text(number, (" ".join(word for word, _ in sentence),), (sentence,))
        for number, sentence in enumerate(sentences[:limit], 1)
    ]
    places = (problem.split(":", 2) for problem in problems)  # line:12: what is wrong
    return found, [Skipped(int(number), reason.strip()) for _, number, reason in places]


def add_tags(texts, path):
    """Tags from a file that has a line for each line of the texts' file: a tag for each word between spaces.

    The tags of the two texts of a pair are separated by a tab. Texts whose number of tags is not their number of words
    stay without tags.

    Returns: list of `Skipped`, those texts.
    """
    tags = {number: line for number, line in lines(path) if isinstance(line, str)}
    skipped = []
    for text in texts:
        rows = [row.split() for row in tags.get(text.line, "").split("\t")]
        words = [part.split() for part in text.parts]
        if [len(row) for row in rows] != [len(row) for row in words]:
            counts = [" and ".join(str(len(row)) for row in some) for some in (rows, words)]
            skipped.append(Skipped(text.line, f"{counts[0]} tags for {counts[1]} words; used without tags"))
        else:
            text.tags = tuple(list(zip(*pair)) for pair in zip(words, rows))
    return skipped
