"""The benchmarks of zero-shot transfer: what to train on, in English, and what to evaluate on, in each language.

Hu et al., "XTREME", https://arxiv.org/abs/2003.11080: MultiNLI to XNLI, SQuAD 1.1 to XQuAD, MLQA and TyDi QA's gold
passages.
"""

import contextlib
import dataclasses
from pathlib import Path

from training.data import glue, squad, tables, tfds, xnli
from training.files import digest


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What there is to know about a benchmark.

    Attributes:
        spans: whether its answers are spans of a context; else pairs are classified.
        scoring: how XTREME scores it: accuracy, or F1 and exact match by the rules of SQuAD or of MLQA.
        languages: in which XTREME has it.
        split: that is reported.
        tfds: name of the set of a language in TensorFlow Datasets.
        tfds_split: name of the reported split there.
        dev: whether it has a dev set besides, in English too.
        more: languages in files only, evaluated if they are asked for.
    """

    spans: bool
    scoring: str
    languages: tuple
    split: str
    tfds: str
    tfds_split: str
    dev: bool = False
    more: tuple = ()


ACCURACY, SQUAD_RULES, MLQA_RULES = "accuracy", "squad", "mlqa"
XQUAD = ("ar", "de", "el", "en", "es", "hi", "ru", "th", "tr", "vi", "zh")
MLQA = ("ar", "de", "en", "es", "hi", "vi", "zh")
TYDIQA = tuple(squad.NAMES)
BENCHMARKS = {
    "xnli": Benchmark(False, ACCURACY, xnli.LANGUAGES, "test", "xnli", "{split}", dev=True),
    "xquad": Benchmark(True, SQUAD_RULES, XQUAD, "test", "xquad/{language}", "test", more=("ro",)),
    "mlqa": Benchmark(True, MLQA_RULES, MLQA, "test", "mlqa/{language}", "{split}", dev=True),
    "tydiqa": Benchmark(True, SQUAD_RULES, TYDIQA, "dev", "tydi_qa/goldp", "{split}-{language}"),
}
ENGLISH = "en"


class Source:
    """Where the sets of a benchmark are read from. Files are looked for at once, and read when first asked for.

    Args:
        name: key of `BENCHMARKS`.
        folder: that has the files of the benchmark (or its folder), and those of MNLI or SQuAD.
        languages: list, or `None` for all of XTREME's whose files are there.
        split: `None` for the one that is reported.
        train_file, dev_file: instead of those found in `folder`: in the format of SQuAD, or a table of MNLI or XNLI.
        use_tfds, download: read from TensorFlow Datasets, prepared in `folder`.
        train: whether there have to be a training set, and one to choose checkpoints on.
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
        self._check_split()
        self.use_tfds, self.download, self.on_error = use_tfds, download, "skip" if skip else "raise"
        known = self.about.languages + (() if use_tfds else self.about.more)
        unknown = sorted(set(languages or ()) - set(known))
        if unknown:
            raise ValueError(f"{name} is not in {', '.join(unknown)}. It is in: {', '.join(known)}.")
        self.files, self.missing, self.sets = {}, [], {}
        self.train_file, self.dev_file = self._given(train_file), self._given(dev_file)
        if use_tfds:
            self.languages = list(languages or self.about.languages)
            self._check_tfds(train)
        else:
            self._find(languages)
            if train:
                self.train_file = self.train_file or self._training("train")
                self.dev_file = self.dev_file or self._dev_file()
                self._check_dev_file()

    def _check_split(self):
        names = (self.about.tfds_split, *squad.FILES.get(self.name, ()))
        if self.split != self.about.split and not any("{split}" in name for name in names):
            raise ValueError(f"{self.name} has one set, {self.about.split!r}. Received: --split={self.split}")

    def _check_dev_file(self):
        reported = {Path(file).resolve(): language for language, file in self.files.items()}
        language = reported.get(Path(self.dev_file).resolve())
        if language is not None:
            raise ValueError(
                f"Checkpoints would be chosen on what is reported: '{self.dev_file}' is the file of {self.name} in "
                f"{language}. Name another with --dev_file."
            )

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

    def _check_tfds(self, train):
        """Looks for all that will be read: a language that is missing must not be found out after training."""
        asked = [self._names(language) for language in self.languages]
        if train:
            asked += [self._training_names("train")] if self.train_file is None else []
            asked += [self._training_names("dev")] if self.dev_file is None else []
        for name, split in dict.fromkeys(asked):
            tfds.builder(name, split, self.folder, self.download)

    def _names(self, language):
        """Name and split in TensorFlow Datasets of the evaluation set of a language."""
        spoken = dict(split={"dev": "validation"}.get(self.split, self.split), language=language)
        return self.about.tfds.format(**spoken), self.about.tfds_split.format(**spoken)

    def _training_names(self, split):
        if self.about.spans:
            return "squad", {"dev": "validation"}.get(split, split)
        return "glue/mnli", {"dev": "validation_matched"}.get(split, split)

    def _file(self, language, split=None):
        folder, split = Path(self.folder), split or self.split
        if self.name == "xnli":
            folders = [folder, folder / "xnli", folder / "XNLI", folder / "XNLI-1.0"]
            return tables.find(folders, xnli.files(split, language))
        spoken = dict(language=language, split=split, name=squad.NAMES.get(language, language))
        return tables.find([folder, folder / self.name], [name.format(**spoken) for name in squad.FILES[self.name]])

    def _dev_file(self):
        """The dev set of the training task, or the benchmark's own in English, if another set is reported."""
        with contextlib.suppress(FileNotFoundError):
            return self._training("dev")
        if self.about.dev and self.split != "dev":
            with contextlib.suppress(FileNotFoundError):
                return self._file(ENGLISH, "dev")
        raise ValueError(
            f"Nothing to choose checkpoints on but what is reported, {self.name}[{self.split}]: '{self.folder}' has no "
            f"dev set of {'SQuAD' if self.about.spans else 'MNLI'}. Name a file with --dev_file."
        )

    def _training(self, split):
        folder = Path(self.folder)
        if self.about.spans:
            folders, names = [folder / "squad"], [name.format(split=split) for name in squad.FILES["squad"]]
        else:
            folders = [folder / "MNLI", folder / "mnli", folder / "glue" / "MNLI"]
            names = glue.TASKS["mnli"].files["train" if split == "train" else "dev_matched"]
        try:
            return tables.find([*folders, folder], names)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"Nothing to train on: {error} Name a file with --train_file.") from error

    @staticmethod
    def _given(file):
        if file is not None and not Path(file).is_file():
            raise FileNotFoundError(f"No file '{file}'.")
        return file

    def train(self):
        """The training set: `Classification` or a list of `Question`."""
        if self.train_file is None and self.use_tfds:
            return self._tfds(*self._training_names("train"))
        return self._read(self.train_file)

    def dev(self):
        """The set that chooses checkpoints, and its name: that of the training task, or the benchmark's in English."""
        if self.dev_file is not None:
            return self._read(self.dev_file), str(self.dev_file)
        name, split = self._training_names("dev")
        return self._tfds(name, split), f"{name}[{split}]"

    def described(self):
        """What tells the sets to train and to choose on from others, also from those of the same size; as JSON."""
        files = {"train": self.train_file, "dev": self.dev_file}
        return {
            split: "{}[{}]".format(*self._training_names(split)) if file is None else [Path(file).name, digest(file)]
            for split, file in files.items()
        }

    def shared(self, dev):
        """How many questions of `dev` are reported as well, in whatever language: translations keep their ids."""
        if not self.about.spans:
            return 0
        reported = {question.id for language in self.languages for question in self.load(language)}
        return sum(question.id in reported for question in dev)

    def _read(self, file):
        if self.about.spans:
            return squad.read(file, self.on_error)
        _, first = next(iter(tables.lines(file)), (1, ""))
        columns = first.strip().split("\t")
        if "gold_label" in columns and "language" not in columns:
            # MNLI's own, which has pairs that annotators did not agree on.
            return glue.read(glue.TASKS["mnli"], file, on_error=self.on_error)
        return xnli.read(file, ENGLISH, on_error=self.on_error)

    def load(self, language):
        """The evaluation set of a language. It is read once and kept."""
        if language not in self.sets:
            self.sets[language] = self._load(language)
        return self.sets[language]

    def _load(self, language):
        if self.use_tfds:
            return self._tfds(*self._names(language), language)
        if self.about.spans:
            return squad.read(self.files[language], self.on_error)
        return xnli.read(self.files[language], language, self.on_error)

    def _tfds(self, name, split, language=None):
        spoken = {"language": language} if name in tfds.XNLI else {}
        return tfds.load(name, split, self.folder, self.download, self.on_error, **spoken)
