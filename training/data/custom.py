"""Tables of one's own: `text<TAB>label` or `text<TAB>text<TAB>label`.

`train.tsv`, `dev.tsv` and `test.tsv` lie in one folder. The training file says what the others must be: its first row
the number of columns, its labels the classes, sorted, numbers as numbers. Labels that are all numbers, not all whole,
are scores, and the task is a regression. A first row whose last field is the word "label" is a header. A test file may
leave out the column of labels.
"""

import dataclasses
from pathlib import Path

from training.data import tables
from training.data.records import Classification

FILES = {
    "train": ("train.tsv", "train.txt"),
    "dev": ("dev.tsv", "dev.txt", "validation.tsv", "valid.tsv"),
    "test": ("test.tsv", "test.txt"),
}
MOST_CLASSES = 1000


@dataclasses.dataclass(frozen=True)
class Form:
    """What the training file is like: number of columns, whether they have names, the classes (`None`: scores)."""

    width: int
    header: bool
    label_names: tuple | None


def load(name, folder, split, on_error="raise"):
    """One split of the table in `folder/name`, or in `folder` itself, as `Classification`."""
    split = "dev" if split == "validation" else split
    if split not in FILES:
        raise ValueError(f"A table of your own has the splits {', '.join(FILES)}. Received: {split!r}")
    folders = [Path(folder) / name, Path(folder)] if name else [Path(folder)]
    problems = tables.Problems.of(on_error)
    before = len(problems.found)
    train = tables.find(folders, FILES["train"])
    form = learn_form(train)
    file = train if split == "train" else tables.find(folders, FILES[split])
    data = read(file, form, labelled=split != "test" or _first(file)[0] == form.width, on_error=problems)
    problems.report(before)
    return data


def learn_form(file):
    """The `Form` of a training file."""
    width, last = _first(file)
    if width not in (2, 3):
        raise ValueError(
            f"{file}:1: expected text<TAB>label or text<TAB>text<TAB>label, received {width} columns ending in "
            f"{tables.shown(last)}"
        )
    header = last.lower() == "label"
    # Bad rows are reported when the examples are read; here they only must not count.
    labels = {}
    for row in _rows(file, width, header, True, tables.Problems("skip")):
        labels.setdefault(row.fields["label"], row.line)
        if len(labels) > MOST_CLASSES and _numbers(labels) is None:
            raise ValueError(
                f"{file}:{row.line}: expected labels in column {width}, received more than {MOST_CLASSES} different "
                f"texts there, such as {tables.shown(row.fields['label'])}. Is it the last column?"
            )
    values = _numbers(labels)
    if values is None:
        return Form(width, header, tuple(sorted(labels)))
    if any(value != int(value) for value in values):
        return Form(width, header, None)
    return Form(width, header, tuple(sorted(labels, key=float)))


def read(file, form, labelled=True, on_error="raise"):
    """The examples of one file, which must have a `Form`."""
    problems, texts, labels = tables.Problems.of(on_error), [], []
    width = form.width if labelled else form.width - 1
    for row in _rows(file, width, form.header, labelled, problems):
        written = row.fields.get("label")
        try:
            labels.append(_label(form, written))
        except ValueError as error:
            problems.add(file, row.line, str(error))
            continue
        texts.append((row.fields["first"], row.fields.get("second")))
    return Classification.of(texts, labels, form.label_names, source=file)


def _label(form, written):
    if written is None:
        return None
    if form.label_names is None:
        return tables.score(written)
    if written not in form.label_names:
        known = ", ".join(form.label_names[:10]) + ", ..." * (len(form.label_names) > 10)
        raise ValueError(
            f"unknown label: expected one of the training file ({known}), received {tables.shown(written)}"
        )
    return form.label_names.index(written)


def _rows(file, width, header, labelled, problems):
    texts = width - 1 if labelled else width
    columns = {"first": 0, **({"second": 1} if texts == 2 else {}), **({"label": width - 1} if labelled else {})}
    for row in tables.rows(file, columns, header=False, width=width, on_error=problems):
        if not (header and row.line == 1):
            yield row


def _first(file):
    """The number of columns of the first line, and its last field."""
    for _, text in tables.lines(file):
        fields = text.split("\t")
        return len(fields), fields[-1].strip()
    raise ValueError(f"{file}:1: expected rows, received an empty file")


def _numbers(labels):
    try:
        return [tables.score(label) for label in labels]
    except ValueError:
        return None
