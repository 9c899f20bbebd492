"""GLUE's tasks, read from the official files; and tables of one's own.

Layouts: Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding",
https://arxiv.org/abs/1804.07461, and the files its download script writes. Names of the classes are in the order of
tensorflow_datasets.
"""

import dataclasses
from pathlib import Path

from training.data import custom, tables
from training.data.records import Classification

CUSTOM = "custom:"
ENTAILMENT = ("entailment", "neutral", "contradiction")


@dataclasses.dataclass(frozen=True)
class Task:
    """Where the texts and labels of a task are, and how it is scored.

    Attributes:
        folders: names of its folder, the official one first.
        first, second: names that the columns of the texts may have in the header; no `second` for single texts.
        label: names that the column of the label may have.
        label_names: the classes; `None` for a score.
        label_values: how files write the classes, where they do not write the names.
        metrics: names of metrics as GLUE reports them, the primary one first.
        files: dict from a split to its file names.
        headerless: for files without header, dict of the index of each field; test sets have headers all the same.
        width: number of columns of a file without header.
        ragged: whether the official files have rows cut short by line breaks in a text, and empty texts. All users
            leave out the former and keep the latter.
        score_range: least and greatest score.
        unlabelled: what is written where annotators did not agree; such rows are left out.
    """

    folders: tuple
    first: tuple
    second: tuple | None
    label: tuple
    label_names: tuple | None
    metrics: tuple
    label_values: tuple | None = None
    files: dict = dataclasses.field(
        default_factory=lambda: {
            "train": ("train.tsv", "train_subset.tsv"),
            "dev": ("dev.tsv", "validation.tsv", "heldout_subset.tsv", "dev_subset.tsv"),
            "test": ("test.tsv",),
        }
    )
    headerless: dict | None = None
    width: int | None = None
    ragged: bool = False
    score_range: tuple | None = None
    unlabelled: str | None = None

    @property
    def dev_splits(self):
        """The splits that are reported: two for MNLI."""
        return tuple(split for split in self.files if split.startswith("dev"))


TASKS = {
    "mnli": Task(
        folders=("MNLI", "mnli"),
        first=("sentence1", "premise"),
        second=("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        label_names=ENTAILMENT,
        metrics=("accuracy",),
        files={
            "train": ("train.tsv", "train_subset.tsv", "multinli_1.0_train.txt"),
            "dev_matched": ("dev_matched.tsv", "validation_matched.tsv", "multinli_1.0_dev_matched.txt"),
            "dev_mismatched": ("dev_mismatched.tsv", "validation_mismatched.tsv", "multinli_1.0_dev_mismatched.txt"),
            "test_matched": ("test_matched.tsv",),
            "test_mismatched": ("test_mismatched.tsv",),
        },
        unlabelled="-",
    ),
    "qqp": Task(
        folders=("QQP", "qqp"),
        first=("question1",),
        second=("question2",),
        label=("is_duplicate", "label"),
        label_names=("not_duplicate", "duplicate"),
        label_values=("0", "1"),
        metrics=("f1", "accuracy"),
        ragged=True,
    ),
    "qnli": Task(
        folders=("QNLI", "qnli"),
        first=("question",),
        second=("sentence",),
        label=("label",),
        label_names=("entailment", "not_entailment"),
        metrics=("accuracy",),
    ),
    "sst2": Task(
        folders=("SST-2", "SST2", "sst2"),
        first=("sentence",),
        second=None,
        label=("label",),
        label_names=("negative", "positive"),
        label_values=("0", "1"),
        metrics=("accuracy",),
    ),
    "cola": Task(
        folders=("CoLA", "cola"),
        first=("sentence",),
        second=None,
        label=("label",),
        label_names=("unacceptable", "acceptable"),
        label_values=("0", "1"),
        metrics=("matthews",),
        headerless={"label": 1, "first": 3},
        width=4,
    ),
    "stsb": Task(
        folders=("STS-B", "STSB", "stsb"),
        first=("sentence1",),
        second=("sentence2",),
        label=("score", "label"),
        label_names=None,
        metrics=("spearman", "pearson"),
        score_range=(0.0, 5.0),
    ),
    "mrpc": Task(
        folders=("MRPC", "mrpc"),
        first=("#1 String", "sentence1"),
        second=("#2 String", "sentence2"),
        label=("Quality", "label"),
        label_names=("not_equivalent", "equivalent"),
        label_values=("0", "1"),
        metrics=("f1", "accuracy"),
    ),
    "rte": Task(
        folders=("RTE", "rte"),
        first=("sentence1",),
        second=("sentence2",),
        label=("label",),
        label_names=("entailment", "not_entailment"),
        metrics=("accuracy",),
    ),
}


def task(name):
    """The `Task` of a name, written as GLUE does or not: `"SST-2"`, `"sst2"`."""
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        raise ValueError(f"Unknown task {name!r}. Known: {', '.join(TASKS)}, and {CUSTOM}NAME for tables of your own.")
    return TASKS[key]


def load(name, folder, split, on_error="raise"):
    """The examples of one split of a task.

    Args:
        name: a key of `TASKS`, or `"custom:NAME"` for `NAME/train.tsv` and so on, as `custom.load` reads them.
        folder: the folder that has the task's folder, or the task's folder itself.
        split: `"train"`, `"dev"` (also called `"validation"`) or `"test"`; MNLI has `"dev_matched"`,
            `"dev_mismatched"` and likewise for test, and `"dev"` is the matched one.
        on_error: `"raise"`, `"skip"` or `tables.Problems`.

    Returns: `Classification`, without labels where the file has no column of labels.
    """
    if name.startswith(CUSTOM):
        return custom.load(name.removeprefix(CUSTOM), folder, split, on_error)
    this, problems = task(name), tables.Problems.of(on_error)
    split = _split(this, name, split)
    folders = [Path(folder) / sub for sub in this.folders] + [Path(folder)]
    file = tables.find(folders, this.files[split])
    return read(this, file, headerless=this.headerless is not None and split != "test", on_error=problems)


def _split(this, name, split):
    wanted = split.replace("validation", "dev")
    wanted = next((known for known in (wanted, f"{wanted}_matched") if known in this.files), None)
    if wanted is None:
        raise ValueError(f"{name} has no split {split!r}. It has: {', '.join(this.files)}.")
    return wanted


def read(this, file, headerless=False, on_error="raise"):
    """The examples of one file of a `Task`."""
    problems = tables.Problems.of(on_error)
    before = len(problems.found)
    columns = {"first": this.first, "second": this.second, "label": this.label}
    columns = this.headerless if headerless else {field: names for field, names in columns.items() if names}
    found = tables.rows(
        file,
        columns,
        header=not headerless,
        width=this.width,
        optional=("label",),
        may_be_empty=("first", "second") if this.ragged else (),
        ragged=this.ragged,
        on_error=problems,
    )
    texts, labels = [], []
    for row in found:
        text, written = (row.fields["first"], row.fields.get("second")), row.fields["label"]
        if written is not None and written == this.unlabelled:
            problems.leave_out(file, row.line, f"no agreement on the label ({written!r})")
            continue
        try:
            label = None if written is None else number(this, written)
        except ValueError as error:
            problems.add(file, row.line, str(error))
            continue
        texts.append(text)
        labels.append(label)
    problems.report(before)
    return Classification.of(texts, labels, this.label_names, source=file)


def number(this, written):
    """The index of a class, or the score, from what a file says."""
    if this.label_names is None:
        return tables.score(written, this.score_range)
    for names in (this.label_values, this.label_names):
        if names and written in names:
            return names.index(written)
    expected = " or ".join(", ".join(names) for names in (this.label_values, this.label_names) if names)
    raise ValueError(f"unknown label: expected {expected}, received {tables.shown(written)}")
