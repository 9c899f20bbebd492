"""The benchmarks of zero-shot transfer: what to train on, in English, and what to evaluate on, in each language.

Hu et al., "XTREME", https://arxiv.org/abs/2003.11080: MultiNLI to XNLI, SQuAD 1.1 to XQuAD, MLQA and TyDi QA's gold
passages.
"""

import dataclasses
from pathlib import Path

from training.data import glue, squad, tables, tfds, xnli


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What there is to know about a benchmark.

    Attributes:
        spans: whether its answers are spans of a context; else pairs are classified.
        languages: in which it is.
        split: that is reported.
        tfds: name of the set of a language in TensorFlow Datasets.
        tfds_split: name of the reported split there.
    """

    spans: bool
    languages: tuple
    split: str
    tfds: str
    tfds_split: str


XQUAD = ("ar", "de", "el", "en", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")
MLQA = ("ar", "de", "en", "es", "hi", "vi", "zh")
BENCHMARKS = {
    "xnli": Benchmark(False, xnli.LANGUAGES, "test", "xnli", "{split}"),
    "xquad": Benchmark(True, XQUAD, "test", "xquad/{language}", "test"),
    "mlqa": Benchmark(True, MLQA, "test", "mlqa/{language}", "{split}"),
    "tydiqa": Benchmark(True, tuple(squad.NAMES), "dev", "tydi_qa/goldp", "{split}-{language}"),
}


class Source:
    """Where the sets of a benchmark are read from. Files are looked for at once, and read when asked for.

    Args:
        name: key of `BENCHMARKS`.
        folder: that has the files of the benchmark (or its folder), and those of MNLI or SQuAD.
        languages: list, or `None` for all whose files are there.
        split: `None` for the one that is reported.
        train_file, dev_file: instead of those found in `folder`: in the format of SQuAD, or a table of MNLI or XNLI.
        use_tfds, download: read from TensorFlow Datasets, prepared in `folder`.
        train: whether there has to be a training set.
        skip: whether to leave out what cannot be read instead of stopping at the first.
    """

    def __init__(
        self,
        name,
        folder,
        languages=None,
        split=None,
        train_file=None,
        dev_file=None,
        use_tfds=False,
        download=False,
        train=True,
        skip=False,
    ):
        if name not in BENCHMARKS:
            raise ValueError(f"Unknown benchmark {name!r}. Known: {', '.join(BENCHMARKS)}.")
        if folder is None and not use_tfds:
            raise ValueError(f"{name} is read from files: name their folder with --data_dir, or use --tfds.")
        self.name, self.about, self.folder = name, BENCHMARKS[name], folder
        self.split = split or self.about.split
        self.use_tfds, self.download, self.on_error = use_tfds, download, "skip" if skip else "raise"
        unknown = sorted(set(languages or ()) - set(self.about.languages))
        if unknown:
            raise ValueError(f"{name} is not in {', '.join(unknown)}. It is in: {', '.join(self.about.languages)}.")
        self.files, self.missing = {}, []
        if use_tfds:
            self.languages = list(languages or self.about.languages)
        else:
            self._find(languages)
        self.train_file = self._given(train_file) or (self._training("train") if train and not use_tfds else None)
        self.dev_file = self._given(dev_file) or (self._training("dev", needed=False) if not use_tfds else None)

    def _find(self, languages):
        for language in languages or self.about.languages:
            try:
                self.files[language] = self._file(language)
            except FileNotFoundError:
                if languages:
                    raise
                self.missing.append(language)
        if not self.files:
            raise FileNotFoundError(f"No language of {self.name}, split {self.split!r}, is in '{self.folder}'.")
        self.languages = list(self.files)

    def _file(self, language):
        folder = Path(self.folder)
        if self.name == "xnli":
            folders = [folder, folder / "xnli", folder / "XNLI", folder / "XNLI-1.0"]
            return tables.find(folders, xnli.files(self.split, language))
        spoken = dict(language=language, split=self.split, name=squad.NAMES.get(language, language))
        return tables.find([folder, folder / self.name], [name.format(**spoken) for name in squad.FILES[self.name]])

    def _training(self, split, needed=True):
        folder = Path(self.folder)
        if self.about.spans:
            folders, names = [folder / "squad"], [name.format(split=split) for name in squad.FILES["squad"]]
        else:
            folders = [folder / "MNLI", folder / "mnli", folder / "glue" / "MNLI"]
            names = glue.TASKS["mnli"].files["train" if split == "train" else "dev_matched"]
        try:
            return tables.find([*folders, folder], names)
        except FileNotFoundError as error:
            if needed:
                raise FileNotFoundError(f"Nothing to train on: {error} Name a file with --train_file.") from error
            return None

    @staticmethod
    def _given(file):
        if file is not None and not Path(file).is_file():
            raise FileNotFoundError(f"No file '{file}'.")
        return file

    def train(self):
        """The training set: `Classification` or a list of `Question`."""
        if self.train_file is None and self.use_tfds:
            return self._tfds("squad" if self.about.spans else "glue/mnli", "train")
        return self._read(self.train_file)

    def dev(self):
        """The set that chooses checkpoints, and its name: that of the training task, or the benchmark's in English."""
        if self.dev_file is not None:
            return self._read(self.dev_file), str(self.dev_file)
        if self.use_tfds:
            name, split = ("squad", "validation") if self.about.spans else ("glue/mnli", "validation_matched")
            return self._tfds(name, split), f"{name}[{split}]"
        language = "en" if "en" in self.languages else self.languages[0]
        return self.load(language), f"{self.name}[{self.split}] {language}"

    def _read(self, file):
        if self.about.spans:
            return squad.read(file, self.on_error)
        _, first = next(iter(tables.lines(file)), (1, ""))
        if "gold_label" in first.split("\t"):  # MNLI's own, which has pairs that annotators did not agree on
            return glue.read(glue.TASKS["mnli"], file, on_error=self.on_error)
        return xnli.read(file, on_error=self.on_error)

    def load(self, language):
        """The evaluation set of a language."""
        if self.use_tfds:
            split = {"dev": "validation"}.get(self.split, self.split)
            spoken = dict(split=split, language=language)
            return self._tfds(self.about.tfds.format(**spoken), self.about.tfds_split.format(**spoken), language)
        if self.about.spans:
            return squad.read(self.files[language], self.on_error)
        return xnli.read(self.files[language], language, self.on_error)

    def _tfds(self, name, split, language=None):
        spoken = {"language": language} if name in tfds.XNLI else {}
        return tfds.load(name, split, self.folder, self.download, self.on_error, **spoken)
