"""Questions about a context, from files in SQuAD's JSON: SQuAD 1.1 and 2.0, XQuAD, MLQA, TyDi QA's gold passages.

Rajpurkar et al., https://arxiv.org/abs/1606.05250; Artetxe et al. (XQuAD), https://arxiv.org/abs/1910.11856; Lewis et
al. (MLQA), https://arxiv.org/abs/1910.07475; Clark et al. (TyDi QA), https://arxiv.org/abs/2003.05002.
"""

import gzip
import json
import zlib
from pathlib import Path

from training.data import tables
from training.data.records import Question

# Where each benchmark keeps the file of a language.
FILES = {
    "squad": ("{split}-v1.1.json", "{split}.json"),
    "xquad": ("xquad.{language}.json",),
    "mlqa": ("{split}-context-{language}-question-{language}.json",),
    "tydiqa": (
        "tydiqa.goldp.{language}.{split}.json",
        "tydiqa.goldp.{language}.{split}.uid.json",
        "tydiqa-goldp-v1.1-{split}/tydiqa-goldp-{split}-{name}.json",
    ),
}
NAMES = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
}


def read(file, on_error="raise"):
    """The questions of a file.

    Args:
        file: path, gzip or not.
        on_error: `"raise"`, `"skip"` to leave out what is not as it should be, or `tables.Problems`. JSON has no rows:
            where a message of another reader has a line, one of this has the id of the question.

    Returns: list of `Question`; those that SQuAD 2.0 calls impossible have no answers.
    """
    problems = tables.Problems.of(on_error)
    before, found = len(problems.found), {}
    data = _list(_json(file), "data", file, "top level")
    for a, article in enumerate(data):
        for p, paragraph in enumerate(_list(article, "paragraphs", file, f"data[{a}]")):
            where = f"data[{a}].paragraphs[{p}]"
            for q, entry in enumerate(_list(paragraph, "qas", file, where)):
                try:
                    question = _question(entry, paragraph.get("context"), problems, file)
                    same = found.setdefault(question.id, question)
                    if (same.question, same.context) != (question.question, question.context):
                        raise ValueError("expected ids that differ, received this one for two questions")
                except ValueError as error:
                    name = entry.get("id") if isinstance(entry, dict) else None
                    problems.add(file, name or f"{where}.qas[{q}]", str(error))
                    continue
                if same is not question:
                    # XTREME's files have a question again for each of its answers.
                    same.answers += question.answers
    problems.report(before)
    if not found:
        raise ValueError(f"{file}: expected questions, received none")
    return list(found.values())


def _question(entry, context, problems, file):
    if not isinstance(entry, dict):
        raise ValueError(f"expected a question, received {tables.shown(repr(entry))}")
    for key, value in (("id", entry.get("id")), ("question", entry.get("question")), ("context", context)):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"expected a text as {key!r}, received {tables.shown(repr(value))}")
    answers = entry.get("answers", [])
    if not isinstance(answers, list):
        raise ValueError(f"expected a list as 'answers', received {tables.shown(repr(answers))}")
    question = Question(entry["id"], entry["question"].strip(), context, [])
    for answer in [] if entry.get("is_impossible") else answers:
        try:
            question.answers.append(checked_answer(answer, context))
        except ValueError as error:
            problems.add(file, question.id, str(error))
    if answers and not entry.get("is_impossible") and not question.answers:
        raise ValueError("expected an answer in the context, received none that is")
    return question


def checked_answer(answer, context):
    """`(text, start)` of a dict of `text` and `answer_start`, if that is what the context has there."""
    text, start = (answer.get("text"), answer.get("answer_start")) if isinstance(answer, dict) else (None, None)
    if not isinstance(text, str) or not text or not isinstance(start, int):
        hidden = ". XTREME's own test files hide the answers: use those of the benchmark itself" if text == "" else ""
        received = tables.shown(repr(answer))
        raise ValueError(f"expected an answer with 'text' and 'answer_start', received {received}{hidden}")
    if start < 0 or context[start : start + len(text)] != text:
        there = context[max(start, 0) : max(start, 0) + len(text)]
        raise ValueError(
            f"expected the answer {tables.shown(text)} at character {start} of the context, received "
            f"{tables.shown(there)} there"
        )
    return text, start


def _json(file):
    file = Path(file)
    if not file.is_file():
        raise FileNotFoundError(f"No file '{file}'.")
    raw = file.read_bytes()
    try:
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{file}:1: the gzip data end or break ({error}); expected a whole file.") from error
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{file}:{line}: expected UTF-8, received {raw[error.start : error.end]!r}") from error
    except json.JSONDecodeError as error:
        near = tables.shown(error.doc[error.pos : error.pos + 20])
        raise ValueError(
            f"{file}:{error.lineno}: expected JSON, received {near} at column {error.colno} ({error.msg})"
        ) from error


def _list(node, key, file, where):
    value = node.get(key) if isinstance(node, dict) else None
    if not isinstance(value, list):
        received = sorted(node) if isinstance(node, dict) else tables.shown(repr(node))
        raise ValueError(f"{file}: expected a list {key!r} at {where} (SQuAD's format), received {received}")
    return value
