"""XNLI: natural language inference in fifteen languages.

Conneau et al., "XNLI: Evaluating Cross-lingual Sentence Representations", https://arxiv.org/abs/1809.05053. Three
layouts are read: XTREME's (`dev-de.tsv`: premise, hypothesis, label; no header), the official one (`xnli.dev.tsv`, all
languages in one file with a header) and that of the translated training sets (`multinli.train.de.tsv`).
"""

from training.data import tables
from training.data.glue import ENTAILMENT
from training.data.records import Classification

LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
COLUMNS = {
    "first": ("sentence1", "premise"),
    "second": ("sentence2", "hypo", "hypothesis"),
    "label": ("gold_label", "label"),
    "language": ("language",),
}
# The translated training sets write one label in another way.
LABELS = {name: index for index, name in enumerate(ENTAILMENT)} | {"contradictory": 2}


def files(split, language):
    """Names that the file of a split may have."""
    names = [f"{split}-{language}.tsv", f"xnli.{split}.tsv", f"{split}.tsv"]
    return names + [f"multinli.train.{language}.tsv"] * (split == "train")


def read(file, language=None, on_error="raise"):
    """The pairs of one file; those of one language, if it has a column `language`."""
    problems = tables.Problems.of(on_error)
    before = len(problems.found)
    texts, labels = [], []
    header = _has_header(file)
    if header:
        rows = tables.rows(file, COLUMNS, optional=("language",), on_error=problems)
    else:
        rows = tables.rows(file, {"first": 0, "second": 1, "label": 2}, header=False, width=3, on_error=problems)
    for row in rows:
        spoken = row.fields.get("language")
        if spoken is not None and language is not None and spoken != language:
            continue
        label = row.fields["label"]
        if label not in LABELS:
            problems.add(
                file, row.line, f"unknown label: expected {', '.join(ENTAILMENT)}, received {tables.shown(label)}"
            )
            continue
        texts.append((row.fields["first"], row.fields["second"]))
        labels.append(LABELS[label])
    problems.report(before)
    return Classification.of(texts, labels, ENTAILMENT, source=f"{file} (language {language})")


def _has_header(file):
    """A header is a first line with a column for labels and one for premises."""
    _, first = next(iter(tables.lines(file)), (1, ""))
    names = {name.strip() for name in first.split("\t")}
    return bool(names & set(COLUMNS["label"])) and bool(names & set(COLUMNS["first"]))
