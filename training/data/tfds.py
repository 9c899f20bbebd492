"""The same records through tensorflow_datasets, by name: `glue/mrpc`, `xnli`, `squad/v1.1`, `wmt18_translate/de-en`.

Nothing is downloaded unless asked for: a data set must have been prepared in `data_dir` before.
"""

from training.data import glue, squad, tables
from training.data.records import Classification, Parallel, Question

# Keys of the texts in GLUE's data sets, where they are not these.
SENTENCES = ("sentence1", "sentence2")
GLUE_TEXTS = {
    "cola": ("sentence", None),
    "sst2": ("sentence", None),
    "qqp": ("question1", "question2"),
    "qnli": ("question", "sentence"),
    "mnli": ("premise", "hypothesis"),
}
XNLI = ("xnli", "xtreme_xnli")
QUESTIONS = ("squad", "xquad", "mlqa", "tydi_qa")
DOCUMENTS = ("wikipedia", "wiki40b", "pg19", "lm1b")


def load(name, split, data_dir=None, download=False, on_error="raise", **languages):
    """The records of a split.

    Args:
        name: `name/config` as tensorflow_datasets has it. Known are `glue/*` but for the diagnostic set, `xnli`,
            `xtreme_xnli`, `squad`, `xquad/*`, `mlqa/*`, `tydi_qa`, all of `wmt*_translate`, and sets of documents
            such as `wikipedia/*`.
        split: a split of the data set, `"train[:1%]"`, `"train+validation"` and the like included.
        data_dir: where it was prepared; `~/tensorflow_datasets` by default.
        download: whether to download and prepare it if it is not there.
        on_error: `"raise"`, `"skip"` or `tables.Problems`, for answers that are not in their context.
        **languages: `language` for XNLI; `source` and `target` for translations.

    Returns: `Classification`, a list of `Question`, `Parallel`, or for documents an iterator of texts.
    """
    convert = converter(name, **languages)
    return convert(examples(name, split, data_dir, download), source_name=f"{name}[{split}]", on_error=on_error)


def converter(name, language=None, source=None, target=None):
    """The function that makes records of the examples (dicts of Python values) of a data set, found by its name.

    It takes the examples, `source_name` for messages, and `on_error`.
    """
    family, _, config = name.partition("/")
    config = config.split(":")[0].split("/")[0]
    if family == "glue":
        key = config.removesuffix("_matched").removesuffix("_mismatched")
        names = glue.task(key).label_names
        return lambda found, **options: _glue(found, *GLUE_TEXTS.get(key, SENTENCES), names, **options)
    if family in XNLI:
        if language is None:
            raise ValueError(f"{name} has many languages: expected `language`, such as 'de'. Received: None")
        return lambda found, **options: _xnli(found, language, **options)
    if family in QUESTIONS:
        return _questions
    if family.endswith("_translate"):
        if not source or not target:
            raise ValueError(
                f"{name}: expected `source` and `target`, languages such as 'en' and 'de'. Received: {source}, {target}"
            )
        return lambda found, **options: _parallel(found, source, target, **options)
    if family in DOCUMENTS:
        return _documents
    known = ", ".join(["glue/*", *XNLI, *QUESTIONS, "*_translate", *DOCUMENTS])
    raise ValueError(f"Do not know what the examples of {name!r} are like. Known: {known}.")


def examples(name, split, data_dir=None, download=False):
    """An iterator of the examples of a prepared data set, with `str` for bytes and lists for arrays."""
    found = builder(name, split, data_dir, download)
    import tensorflow_datasets

    # Files in order, so that a resumed run sees the same examples.
    config = tensorflow_datasets.ReadConfig(interleave_cycle_length=1)
    dataset = found.as_dataset(split=split, shuffle_files=False, read_config=config)
    return map(plain, dataset.as_numpy_iterator())


def builder(name, split, data_dir=None, download=False):
    """The builder of a data set, which is prepared (or downloaded, if asked for) and has all parts of the split."""
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ImportError(
            "Data sets by name need tensorflow-datasets: pip install tensorflow-datasets. Or read the official files "
            "from a folder, which needs nothing."
        ) from error
    try:
        found = tensorflow_datasets.builder(name, data_dir=data_dir)
    except tensorflow_datasets.core.DatasetNotFoundError as error:
        raise ValueError(f"tensorflow_datasets knows no {name!r}, and '{data_dir}' has none. {error}") from error
    if download:
        found.download_and_prepare()
    if not found.is_prepared():
        raise FileNotFoundError(
            f"{name} is not prepared in '{found.data_path}'. With a network, prepare it by `tfds build {name} "
            f"--data_dir DIR` (or pass download=True), and copy DIR to a machine without one; or read the official "
            "files from a folder instead."
        )
    for part in split.split("+"):
        if part.split("[")[0].strip() not in found.info.splits:
            raise ValueError(f"{name} has no split {part!r}. It has: {', '.join(found.info.splits)}.")
    return found


def plain(value):
    """An example in Python's own types."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return [plain(item) for item in value] if isinstance(value, list) else value


def _glue(found, first, second, label_names, source_name, on_error="raise"):
    texts, labels = [], []
    for example in found:
        texts.append((example[first].strip(), example[second].strip() if second else None))
        # -1 is how a test set says that it has no labels.
        labels.append(None if example["label"] == -1 else example["label"])
    return Classification.of(texts, labels, label_names, source=source_name)


def _xnli(found, language, source_name, on_error="raise"):
    texts, labels = [], []
    for example in found:
        languages = example["hypothesis"]["language"]
        if language not in languages:
            raise ValueError(f"{source_name} has no language {language!r}. It has: {', '.join(languages)}.")
        hypothesis = example["hypothesis"]["translation"][languages.index(language)]
        texts.append((example["premise"][language].strip(), hypothesis.strip()))
        labels.append(None if example["label"] == -1 else example["label"])
    return Classification.of(texts, labels, glue.ENTAILMENT, source=source_name)


def _questions(found, source_name, on_error="raise"):
    problems = tables.Problems.of(on_error)
    before, questions = len(problems.found), []
    for example in found:
        question = Question(example["id"], example["question"].strip(), example["context"], [])
        keys = () if example.get("is_impossible") else ("text", "answer_start")
        written = list(zip(*(example["answers"][key] for key in keys)))
        for text, start in written:
            try:
                answer = {"text": text, "answer_start": start}
                question.answers.append(squad.checked_answer(answer, question.context))
            except ValueError as error:
                problems.add(source_name, question.id, str(error))
        if question.answers or not written:
            questions.append(question)
    problems.report(before)
    return questions


def _parallel(found, source, target, source_name, on_error="raise"):
    problems, pairs = tables.Problems.of(on_error), Parallel([], [])
    before = len(problems.found)
    for number, example in enumerate(found, start=1):
        missing = [language for language in (source, target) if language not in example]
        if missing:
            raise ValueError(f"{source_name} has no language {missing[0]!r}. It has: {', '.join(example)}.")
        ours, theirs = example[source].strip(), example[target].strip()
        if ours and theirs:
            pairs.source.append(ours)
            pairs.target.append(theirs)
        else:
            problems.leave_out(source_name, number, "expected two sentences, received an empty one")
    problems.report(before)
    return pairs


def _documents(found, source_name, on_error="raise"):
    for example in found:
        yield example[next(key for key in ("text", "book_text") if key in example)]
