"""Running text for masked language models: documents, and the sentences in them."""

import re
from pathlib import Path

from training.data import tables

# A sentence ends with one of these, perhaps within closing quotes or brackets.
_CLOSE = "\"'\u2019\u201d\u00bb)\\]"
_OPEN = "\"'\u2018\u201c\u00ab\u00bf\u00a1(\\["
# What follows a space begins a sentence unless it begins with a small letter; scripts without case always do.
_LATIN_END = re.compile(rf"(?P<end>[.!?\u2026\u061f\u06d4\u0964][{_CLOSE}]*)\s+(?=[{_OPEN}]*(?P<next>\w))")
_CHINESE_END = re.compile(r"(?<=[\u3002\uff01\uff1f\uff61])(?P<close>[\u201d\u2019\u300d\u300f\uff09]*)(?!$)")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st mt jr sr gen col capt lt sgt rev hon gov sen rep messrs mme mlle vs no nos vol pp fig figs "
    "ca cf al etc e.g i.e u.s u.k a.m p.m inc ltd co corp dept est approx jan feb mar apr jun jul aug sep sept oct nov "
    "dec z.b d.h bzw nr usw ca str bd sog u.a tj resp např p.ej sra srta sr ud uds".split()
)


def documents(files, on_error="raise"):
    """The documents of text files, each a list of paragraphs; a blank line or the end of a file ends a document.

    Args:
        files: a path or a list of paths, gzip or not.
        on_error: `"raise"`, `"skip"` or `tables.Problems`, for lines that are not UTF-8.
    """
    for file in [files] if isinstance(files, str | Path) else files:
        document = []
        for _, text in tables.lines(file, on_error):
            text = text.strip()
            if text:
                document.append(text)
            elif document:
                yield document
                document = []
        if document:
            yield document


def sentences(text):
    """The sentences of a paragraph.

    A rule of thumb, for packing inputs: a full stop, exclamation or question mark, then a space, then no small letter;
    not after an initial or a common abbreviation of English, German, Spanish or Czech. Chinese and Japanese marks end
    a sentence by themselves.
    """
    marked = _CHINESE_END.sub(lambda found: found["close"] + "\n", text)
    found = []
    for part in marked.split("\n"):
        begin = 0
        for end in _LATIN_END.finditer(part):
            if end["next"].islower() or _abbreviated(part[begin : end.start() + 1], end["end"]):
                continue
            found.append(part[begin : end.end("end")])
            begin = end.end()
        found.append(part[begin:])
    return [sentence.strip() for sentence in found if sentence.strip()]


def documents_of_sentences(files, on_error="raise"):
    """`documents`, each a list of sentences."""
    for document in documents(files, on_error):
        yield [sentence for paragraph in document for sentence in sentences(paragraph)]


def _abbreviated(before, end):
    """Whether a full stop belongs to the word before it."""
    if not end.startswith("."):
        return False
    word = before[:-1].split()[-1:] or [""]
    word = word[0].lstrip(_OPEN.replace("\\", "")).lower()
    initial = len(word) == 1 and word.isalpha() and word != "i"
    return initial or word in _ABBREVIATIONS
