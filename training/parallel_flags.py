"""The flags that say which parallel text to train and evaluate on, and the vocabulary for it."""

import json
from pathlib import Path

from absl import flags

from training import ignored, tokenizers
from training.data import parallel, tables, tfds, word_order
from training.data.records import Parallel
from training.files import write_text

SPLITS = ("train", "dev", "test")
WORD_ORDER = "word_order"
FILES = tuple(f"{split}_{side}" for split in SPLITS for side in ("source", "target"))
# Which flags each kind of data uses besides its own.
USED = {
    "task": (),
    "tfds": ("data_dir", "source", "target", "train", "download"),
    "train_source": FILES,
    "data_dir": ("source", "target", "train", "dev", "test"),
}
SENTENCES = 4_000_000  # that a vocabulary is trained on at most, evenly from all


def define(values):
    """Defines the flags. `values`: where, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    flags.DEFINE_enum("task", None, [WORD_ORDER], "The built-in translation task instead of files.", **named)
    for name in FILES:
        split, side = name.split("_")
        flags.DEFINE_string(name, None, f"Plain text, the {side} of {split}; gz or not.", **named)
    flags.DEFINE_string("data_dir", None, "Folder of files named as train.en, or of TensorFlow Datasets.", **named)
    flags.DEFINE_string("source", None, "Language of the source, e.g. en.", **named)
    flags.DEFINE_string("target", None, "Language of the target, e.g. de.", **named)
    flags.DEFINE_list(
        "train", ["train"], "Training files in --data_dir, without language; or a split of --tfds.", **named
    )
    flags.DEFINE_list("dev", ["val", "dev", "valid"], "Those of the dev set; the first that is there.", **named)
    flags.DEFINE_list("test", [], "Those of test sets, each evaluated by itself.", **named)
    flags.DEFINE_string("tfds", None, "Name in TensorFlow Datasets, e.g. wmt18_translate/de-en.", **named)
    flags.DEFINE_bool("download", False, "Let TensorFlow Datasets download what is not prepared.", **named)
    flags.DEFINE_integer("limit", None, "Use only the first pairs of the training set.", lower_bound=1, **named)
    flags.DEFINE_bool("skip_bad_rows", False, "Leave lines out that cannot be read, instead of stopping.", **named)
    flags.DEFINE_string("vocabulary", None, "A sentence-piece model; else one is trained on the training set.", **named)
    flags.DEFINE_integer("vocabulary_size", 8000, "Pieces of a trained vocabulary.", lower_bound=8, **named)


class Data:
    """Where the sets of a run are. Files are looked for at once, and read when asked for.

    Attributes:
        sets: dict from names to what each is read from: a pair of lists of files, or a split.
        about: what tells this data from other, as JSON: file names and sizes, the vocabulary.
    """

    def __init__(self, values):
        self.values = values
        given = [name for name in ("task", "tfds") if values[name].value]
        given += (
            ["train_source"] if values.train_source else ["data_dir"] if values.data_dir and not values.tfds else []
        )
        if len(given) != 1:
            raise ValueError(
                "Parallel text comes from one of --train_source and --train_target, --data_dir with --source and "
                f"--target, --tfds, or --task={WORD_ORDER}. Received: {', '.join('--' + g for g in given) or 'none'}"
            )
        self.kind = given[0]
        self._refuse_ignored()
        self.sets = getattr(self, f"_find_{self.kind}")()
        self.about = {"data": {name: self._described(of) for name, of in self.sets.items()}, **self._vocabulary()}

    def _refuse_ignored(self):
        """Flags that say something else than what is done are refused."""
        known = {*FILES, *(name for names in USED.values() for name in names)} - {self.kind}
        unread = sorted(known - set(USED[self.kind]))
        if self.kind == "task":
            unread.append("vocabulary_size")
        ignored.refuse(self.values, f"--{self.kind}", unread)
        if self.values.vocabulary:
            ignored.refuse(self.values, "--vocabulary", ["vocabulary_size"])

    def _find_task(self):
        return {split: split for split in (*SPLITS, "test_longer")}

    def _find_tfds(self):
        self._check_languages()
        return {"train": "+".join(self.values.train), "dev": "validation", "test": "test"}

    def _find_train_source(self):
        sets = {}
        for split in SPLITS:
            files = [self.values[f"{split}_{side}"].value for side in ("source", "target")]
            if any(files):
                if not all(files):
                    raise ValueError(f"--{split}_source and --{split}_target go together. Received: {files}")
                for file in files:
                    if not Path(file).is_file():
                        raise FileNotFoundError(f"No file '{file}', which --{split}_source or _target names.")
                sets[split] = [[file] for file in files]
        return sets

    def _find_data_dir(self):
        self._check_languages()
        values = self.values
        sets = {"train": self._files(values.train)}
        for name in values.dev:
            try:
                sets["dev"] = self._files([name])
                break
            except FileNotFoundError:
                if values["dev"].present:
                    raise
        tests = {name: self._files([name]) for name in values.test}
        taken = [name for name, files in tests.items() if sets.get(name, files) != files]
        if taken:
            raise ValueError(f"--test={taken[0]}: the {taken[0]} set of this run is another. Rename the files.")
        return sets | tests

    def _files(self, names):
        languages = (self.values.source, self.values.target)
        return [
            [str(tables.find([self.values.data_dir], [f"{name}.{language}"])) for name in names]
            for language in languages
        ]

    def _check_languages(self):
        if not self.values.source or not self.values.target:
            raise ValueError(f"--{self.kind} has several languages: give --source and --target, e.g. en and de.")

    def _described(self, of):
        if self.kind == "tfds":
            return f"{self.values.tfds}[{of}] {self.values.source}-{self.values.target}"
        if self.kind == "task":
            return f"{self.values.task}[{of}]"
        return [[Path(file).name, Path(file).stat().st_size] for files in of for file in files]

    def _vocabulary(self):
        values = self.values
        if values.vocabulary:
            if not Path(values.vocabulary).is_file():
                raise FileNotFoundError(f"No file '{values.vocabulary}', which --vocabulary names.")
            return {"limit": values.limit, "vocabulary_file": values.vocabulary}
        if values.strategy == "multi_worker_mirrored":
            raise ValueError(
                "All workers need the same vocabulary: train one on one machine (vocabulary.model in its --output), "
                "and name it with --vocabulary."
            )
        return {"limit": values.limit, "vocabulary_size": None if self.kind == "task" else values.vocabulary_size}

    def load(self, name):
        """The pairs of a set."""
        of, values = self.sets[name], self.values
        on_error = "skip" if values.skip_bad_rows else "raise"
        if self.kind == "task":
            data = word_order.load("translation", of)
        elif self.kind == "tfds":
            languages = dict(source=values.source, target=values.target)
            data = tfds.load(values.tfds, of, values.data_dir, values.download, on_error, **languages)
        else:
            data = parallel.load(*of, on_error=on_error)
        limit = values.limit if name == "train" else None
        return Parallel(data.source[:limit], data.target[:limit])

    def tokenizer(self, output, train):
        """The vocabulary that was named, or one trained on `train`, a `Parallel`, into the folder `output`."""
        if self.values.vocabulary:
            return tokenizers.JointTokenizer(self.values.vocabulary)
        file, record = Path(output) / "vocabulary.model", Path(output) / "vocabulary.json"
        # The record comes last: a vocabulary without it, or of other data, is trained again.
        if not record.is_file() or json.loads(record.read_text(encoding="utf-8")) != self.about:
            file.parent.mkdir(parents=True, exist_ok=True)
            if self.kind == "task":
                words = {*word_order.vocabulary(), *word_order.target_vocabulary()}
                words = sorted(word for word in words if word[0] not in "[#")
                tokenizers.train_sentence_pieces(words, len(words) + 4, file, special=(), words=True)
            else:
                texts = [*train.source, *train.target]
                texts = texts[:: -(-len(texts) // SENTENCES)]
                tokenizers.train_sentence_pieces(texts, self.values.vocabulary_size, file, special=())
            write_text(record, json.dumps(self.about))
        return tokenizers.JointTokenizer(file)
