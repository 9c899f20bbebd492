"""Lines and tab-separated tables, read strictly: whatever is wrong is said with its file and line.

Quotes are letters like any other (GLUE's files are written so). A line ends at `\\n` or `\\r\\n` and nowhere else:
Unicode's own line separators occur inside sentences.
"""

import dataclasses
import gzip
import logging
import math
import zlib
from pathlib import Path

BOM = b"\xef\xbb\xbf"
log = logging.getLogger(__name__)


class Problems:
    """What is wrong with some files: raised when it is found, or collected.

    Args:
        on_error: `"raise"`, or `"skip"` to leave bad rows out and go on. Every reader takes one of these words, or an
            object of this class, whose `found` can be read afterwards.

    Attributes:
        found: list of `(file, line, message)` of the rows that were left out.
    """

    def __init__(self, on_error="raise"):
        if on_error not in ("raise", "skip"):
            raise ValueError(f"`on_error` must be 'raise' or 'skip'. Received: {on_error!r}")
        self.on_error, self.found = on_error, []

    @classmethod
    def of(cls, on_error):
        return on_error if isinstance(on_error, cls) else cls(on_error)

    def add(self, file, line, message):
        """A bad row: an error, or one row less."""
        if self.on_error == "raise":
            raise ValueError(f"{file}:{line}: {message}")
        self.leave_out(file, line, message)

    def leave_out(self, file, line, message):
        """A row that everybody leaves out of this file; never an error."""
        self.found.append((str(file), line, message))

    def report(self, since=0, shown=3):
        """What was left out from `found[since]` on, in one string; empty if nothing was. It is logged as well."""
        found = self.found[since:]
        if not found:
            return ""
        parts = [f"{file}:{line}: {message}" for file, line, message in found[:shown]]
        parts += [f"and {len(found) - shown} more"] * (len(found) > shown)
        text = f"{len(found)} rows left out: " + "; ".join(parts)
        log.warning(text)
        return text


@dataclasses.dataclass(frozen=True)
class Row:
    """The wanted fields of one line of a table, stripped, by name; `None` for an optional column that is not there."""

    line: int
    fields: dict


def shown(text, limit=80):
    """A text as an error message quotes it."""
    text = text if isinstance(text, str) else repr(text)
    return repr(text if len(text) <= limit else text[:limit] + "...")


def lines(file, on_error="raise", keep_bad=False):
    """The lines of a UTF-8 text file as `(number, text)`, numbers from 1, read as they are asked for.

    A byte order mark and line ends are taken off. A file is decompressed if it begins as gzip does, whatever its name.

    Args:
        file: path.
        on_error: `"raise"`, `"skip"` or `Problems`.
        keep_bad: whether a line that is left out is `(number, None)` instead of being passed over.
    """
    file, problems = Path(file), Problems.of(on_error)
    if not file.is_file():
        raise FileNotFoundError(f"No file '{file}'.")
    with open(file, "rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
    number = 0
    with gzip.open(file, "rb") if packed else open(file, "rb") as stream:
        while True:
            try:
                raw = stream.readline()
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                # Not a bad row but a bad file: what is missing cannot be left out.
                raise ValueError(
                    f"{file}:{number + 1}: the gzip data end or break here ({error}); expected a whole file. "
                    "Copy or download it again."
                ) from error
            if not raw:
                return
            number += 1
            raw = raw.removeprefix(BOM) if number == 1 else raw
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                bad = raw[error.start : error.end]
                problems.add(file, number, f"expected UTF-8, received the bytes {bad!r} at byte {error.start + 1}")
                text = None
            if text is not None or keep_bad:
                yield number, text


def rows(file, columns, header=True, width=None, optional=(), may_be_empty=(), ragged=False, on_error="raise"):
    """The rows of a tab-separated table, as `Row` objects, one after the other.

    Args:
        file: path, gzip or not.
        columns: dict from the name of a field to where it is: the names that its column may have in the header, or,
            without header, its index.
        header: whether the first line names the columns.
        width: number of columns of each row; the header's if there is one.
        optional: fields whose column may be absent.
        may_be_empty: fields that may have no text.
        ragged: whether rows with too few fields are left out without an error, as is done with QQP.
        on_error: `"raise"`, `"skip"` or `Problems`.
    """
    problems, places, blank = Problems.of(on_error), None if header else dict(columns), None
    for number, text in lines(file, problems):
        if places is None:
            names = [name.strip() for name in text.split("\t")]
            places, width = _places(file, names, columns, optional), len(names)
            continue
        if not text.strip():
            # Blank lines at the end of a file are harmless.
            blank = blank or number
            continue
        if blank:
            problems.add(file, blank, f"expected {_columns(width)}, received a blank line")
            blank = None
        fields = text.split("\t")
        if len(fields) != width:
            message = f"expected {_columns(width)}, received {len(fields)}: {shown(text)}"
            drop = problems.leave_out if ragged and len(fields) < width else problems.add
            drop(file, number, message)
            continue
        row = {name: None if place is None else fields[place].strip() for name, place in places.items()}
        empty = [name for name, field in row.items() if field == "" and name not in may_be_empty]
        if empty:
            problems.add(file, number, f"expected a text, received nothing in {', '.join(empty)}: {shown(text)}")
            continue
        yield Row(number, row)
    if places is None:
        raise ValueError(f"{file}:1: expected a header, received an empty file")


def _columns(width):
    return f"{width} tab-separated column{'s' if width != 1 else ''}"


def _places(file, names, columns, optional):
    places = {}
    for field, accepted in columns.items():
        found = [names.index(name) for name in accepted if name in names]
        if not found and field not in optional:
            raise ValueError(f"{file}:1: expected a header with {' or '.join(map(repr, accepted))}, received {names}")
        places[field] = found[0] if found else None
    return places


def score(written, allowed=None):
    """A finite number from what a file says, within the pair `allowed` if given."""
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    low, high = allowed or (-math.inf, math.inf)
    if not (math.isfinite(value) and low <= value <= high):
        expected = "a number" if allowed is None else f"a number from {low:g} to {high:g}"
        raise ValueError(f"bad score: expected {expected}, received {shown(written)}")
    return value


def find(folders, names):
    """The first file with one of these names, or with `.gz` after it, in the first folder that has one."""
    folders = [Path(folder) for folder in folders]
    for folder in folders:
        for name in names:
            for file in (folder / name, folder / f"{name}.gz"):
                if file.is_file():
                    return file
    looked = ", ".join(f"'{folder}'" for folder in folders)
    raise FileNotFoundError(f"None of {', '.join(names)} (or with .gz) in {looked}.")
