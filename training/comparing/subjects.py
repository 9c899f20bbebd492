"""What is compared: for each kind of task, how to train it and what to evaluate its best checkpoint on."""

import functools
import pickle
from pathlib import Path

import numpy as np

from keras_posenc import encodings, models
from keras_posenc.checkpoints.tokenizer import WordPiece
from training import finetune
from training.comparing import recipes, sources
from training.corpus.packing import Packer
from training.data import word_order
from training.data.word_order.bag_of_words import BagOfWords
from training.tasks.classify import Classify
from training.tasks.masked_lm import MaskedLanguageModel
from training.tasks.span import Spans
from training.tasks.translate import Translate

BAG = "bag_of_words"
LONGER, LENGTH = "longer", "length "  # names of evaluation sets: those of one length are "length 14"


class Subject:
    """A task to compare encodings on.

    Attributes:
        values: parsed flags.
        options: `TrainOptions`.
        primary: name of the figure in the table, with its set: `"dev/accuracy"`.
        name: of the engine's task.
        trained: `(shortest, longest)` that is trained on, or `None` if lengths are not known.
        unit: what lengths are counted in.
    """

    name = head = "classify"
    primary, trained, unit, has_bag = None, None, "words", False

    def __init__(self, values, options):
        self.values, self.options = values, options
        self.static = (options.strategy == "tpu" or options.xla) if values.static is None else values.static
        self.word_order = recipes.word_order_task(values.task)
        if self.word_order is not None:
            self.about = word_order.TASKS[self.word_order]
            self.trained = self.about.lengths

    @property
    def max_length(self):
        """Tokens of an example; in the benchmark those of the longest that is evaluated."""
        if self.values.max_length is not None:
            return self.values.max_length
        return 128 if self.word_order is None else self.about.longer_max_length

    def source(self, position):
        """The `ModelSource` of an encoding."""
        if self.word_order is None:
            return sources.source(self.values, position)
        defaults = {**recipes.RECIPES[self.word_order].model, "max_length": self.max_length}
        tokenizer = WordPiece(word_order.vocabulary()) if self.values.checkpoint is None else None
        return sources.source(self.values, position, tokenizer, **defaults)

    def check(self, position):
        """Raises a `ValueError` if this encoding cannot do the task; builds one layer of the model to find out."""
        self.source(position).check(self.head, 2 if self.head == "classify" else None)

    def known(self, position):
        """Name and `config` of the task of a run, as far as they are known before data is read."""
        return self.name, {**self.source(position).config(), "max_length": self.max_length, "static": self.static}

    def sets(self):
        """Evaluation sets of the best checkpoint: those of the benchmark that are not trained on, and by length."""
        if self.word_order is None:
            return {}
        if self.made.is_file():
            return pickle.loads(self.made.read_bytes())
        load = functools.partial(word_order.load, self.word_order)
        found = {"test": load("test"), LONGER: load("test_longer")}
        if self.values.per_length:
            for length, split in recipes.lengths(self.word_order).items():
                found[f"{LENGTH}{length}"] = load(split, self.values.per_length, lengths=(length, length))
        # Sentences of exactly one length are found by trying: once for all runs.
        partial = self.made.with_suffix(".part")
        partial.write_bytes(pickle.dumps(found))
        partial.replace(self.made)
        return found

    @property
    def made(self):
        return Path(self.values.output) / f"sets-{self.values.per_length}.pickle"

    def read(self):
        """Reads the data, if they are files, so that what is wrong with them is said before anything is made."""

    def prepare(self):
        """Makes what all runs share."""
        Path(self.values.output).mkdir(parents=True, exist_ok=True)
        self.sets()

    def task(self, position, seed):
        """The engine's task of a run."""
        raise NotImplementedError

    def evaluations(self, position):
        """Tasks without training data whose sets the best checkpoint is evaluated on."""
        raise NotImplementedError


class Classes(Subject):
    """GLUE's tasks, tables of one's own, acceptability and entailment."""

    def __init__(self, values, options):
        super().__init__(values, options)
        self.has_bag = self.word_order is not None
        self.group = finetune.group_of(values.task)
        if options.batch % self.group:
            raise ValueError(f"{values.task} is learned in groups of {self.group}. Received: --batch={options.batch}")

    @functools.cached_property
    def data(self):
        """Training set, evaluation sets during training, function that scores, and its name in the table."""
        values = self.values
        train, dev = finetune.load(values.task, values.data_dir, values.tfds, values.download, values.skip_bad_rows)
        measure, metric = finetune.scoring(values.task, train.label_names)
        return train, dev, measure, f"{next(iter(dev))}/{metric}"

    @property
    def primary(self):
        return self.data[-1]

    def read(self):
        self.options.validate(examples=len(self.data[0]))

    @functools.cached_property
    def digests(self):
        """What tells the data from other data."""
        train, dev, *_ = self.data
        return {name: data.digest() for name, data in {"train": train, **dev}.items()}

    def known(self, position):
        name, known = super().known(position)
        if self.has_bag:
            return name, known
        return "regress" if self.data[0].label_names is None else name, {**known, "data": self.digests}

    def _make(self, position, train, evaluations, seed=0):
        *_, measure, primary = self.data
        sizes = (self.options.batch, self.max_length, self.static)
        return Classify(self.source(position), train, evaluations, measure, primary, *sizes, seed, self.group)

    def task(self, position, seed):
        return self._make(position, *self.data[:2], seed)

    def evaluations(self, position):
        sets = self.sets()
        return [self._make(position, None, sets)] if sets else []

    def bag_of_words(self, seed):
        """Figures of the row that does not see the order, per set, and its number of weights."""
        train, dev, measure, _ = self.data
        model = BagOfWords(word_order.vocabulary(), len(train.label_names), seed=seed).fit(train)
        figures = {name: measure(model.predict(of), of.labels) for name, of in {**dev, **self.sets()}.items()}
        return figures, model.weights.size


class Questions(Subject):
    """Spans of a passage: who did it?"""

    name = head = Spans.name
    primary = "dev/f1"

    def _make(self, position, train, evaluations, seed=0):
        # A window holds the whole of a passage: no strides.
        given = dict(batch=self.options.batch, max_length=self.max_length, stride=1, static=self.static)
        return Spans(self.source(position), train, evaluations, primary=self.primary, seed=seed, **given)

    def task(self, position, seed):
        return self._make(
            position, word_order.load("questions", "train"), {"dev": word_order.load("questions", "dev")}, seed
        )

    def evaluations(self, position):
        return [self._make(position, None, self.sets())]


class Translation(Subject):
    """Into the verb-final language; the share of target tokens that are predicted from all before them."""

    primary = "dev/accuracy"

    def _settings(self, position):
        defaults = recipes.RECIPES["translation"].model
        options = sources.model_options(self.values, position, defaults)
        return dict(preset=self.values.model, position=position, options=options, max_length=self.max_length)

    @property
    def max_length(self):
        # A passive or a relative clause has up to two words more in the target for some in the source.
        return self.values.max_length or 2 * self.about.longer_max_length

    def check(self, position):
        if self.values.checkpoint is not None:
            raise ValueError("Translation is trained from fresh weights: leave out --checkpoint.")
        encodings.parse(position)
        given = self._settings(position)
        small = {**given.pop("options"), "num_layers": 1, "vocab_size": 8}
        models.build(given.pop("preset"), **given, **small)

    def known(self, position):
        return Translate.name, {**self._settings(position), "static": self.static}

    @property
    def vocabulary(self):
        return Path(self.values.output) / "vocabulary.model"

    def prepare(self):
        from training import tokenizers

        super().prepare()
        if not self.vocabulary.is_file():
            words = {*word_order.vocabulary(), *word_order.target_vocabulary()}
            words = sorted(word for word in words if word[0] not in "[#")
            tokenizers.train_sentence_pieces(words, len(words) + 4, self.vocabulary, special=(), words=True)

    def _make(self, position, train, evaluations, seed=0):
        from training.tokenizers import JointTokenizer

        given = dict(batch=self.options.batch, static=self.static, seed=seed, **self._settings(position))
        return Translate(JointTokenizer(self.vocabulary), train, evaluations, **given)

    def task(self, position, seed):
        train, dev = (word_order.load("translation", split) for split in ("train", "dev"))
        return self._make(position, train, {"dev": dev}, seed)

    def evaluations(self, position):
        return [self._make(position, None, self.sets())]


class Text(Subject):
    """Masked words of documents; lengths are those of rows, and the longer ones have twice the trained length."""

    name = head = MaskedLanguageModel.name
    primary, unit = "dev/accuracy", "tokens"
    row = 64  # tokens of a trained row

    @property
    def max_length(self):
        return self.values.max_length or 2 * self.row

    def __init__(self, values, options):
        super().__init__(values, options)
        self.trained = (self.max_length // 2,) * 2

    def known(self, position):
        return self.name, {**self.source(position).config(), "length": self.trained[1]}

    def prepare(self):
        """Rows are packed by each run."""
        Path(self.values.output).mkdir(parents=True, exist_ok=True)

    def rows(self, source, split, length):
        tokenizer = source.tokenizer
        packer = Packer(length, tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
        return np.stack(list(packer.rows(tokenizer.tokenize(text) for text in word_order.load("text", split))))

    def task(self, position, seed):
        source, length = self.source(position), self.trained[1]
        train, dev = (self.rows(source, split, length) for split in ("train", "dev"))
        return MaskedLanguageModel(source, train, dev, self.options.batch, length, seed=seed)

    def evaluations(self, position):
        source, trained = self.source(position), self.trained[1]
        lengths = {"test": trained, LONGER: 2 * trained}
        if self.values.per_length:
            lengths |= {f"{LENGTH}{n}": n for n in range(trained // 2, 2 * trained + 1, trained // 4)}
        return [Renamed(name, source, self.rows(source, "test", n), n) for name, n in lengths.items()]


class Renamed(MaskedLanguageModel):
    """Evaluation of one set under a name of its own."""

    def __init__(self, set_name, source, rows, length):
        super().__init__(source, rows[:0], rows, 32, length)
        self.set_name = set_name

    def eval_data(self):
        return {self.set_name: super().eval_data()["dev"]}


KINDS = {"questions": Questions, "translation": Translation, "text": Text}


def make(values, options):
    """The `Subject` that the flags name."""
    return KINDS.get(recipes.word_order_task(values.task), Classes)(values, options)
