"""Part-of-speech tags for text that has none: a linear probe on a model's own hidden states, and CoNLL-U files."""

import dataclasses
import re
from pathlib import Path

import numpy as np
from keras import ops

from keras_posenc.utils.progress import Progress

RIDGES = (10.0, 100.0, 1000.0)
ENOUGH = 10000  # words to compare layers on
# Contractions are cut as in English treebanks: do n't, she 's.
WORD = re.compile(
    r"\d+(?:[.,:]\d+)+|(?:[^\W\d_]\.){2,}|\w+?(?=n['\u2019]t\b)|n['\u2019]t\b|['\u2019](?:s|m|d|re|ve|ll)\b|\w+|[^\w\s]",
    re.IGNORECASE,
)


def split_words(text):
    """The words and punctuation marks of a text, roughly as English treebanks have them."""
    return WORD.findall(text)


def read_conllu(path, tags="upos", problems=None):
    """The sentences of a CoNLL-U file; see `parse_conllu`."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    return parse_conllu(text.split("\n"), tags, problems, name=str(path))


def parse_conllu(lines, tags="upos", problems=None, name="line"):
    """Sentences of `(word, tag)` pairs.

    Of a multiword token (`3-4`) the words are taken, which follow it; empty nodes (`8.1`) and comments are skipped.

    Args:
        lines: of the file, ended by a newline or not.
        tags: `"upos"` (universal tags) or `"xpos"` (those of the language, Penn's in English).
        problems: a list to which bad lines are reported, as strings; their sentences are left out. By default a bad
            line is an error.
        name: of the file, for messages.
    """
    if tags not in ("upos", "xpos"):
        raise ValueError(f"`tags` must be 'upos' or 'xpos'. Received: {tags!r}")
    sentences, words, good = [], [], True
    number = 0
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            sentences += [words] if words and good else []
            words, good = [], True
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        problem = _problem(fields, len(words) + 1) if good else None
        if problem:
            good = False
            if problems is None:
                raise ValueError(f"{name}:{number}: {problem}: {line[:80]!r}")
            problems.append(f"{name}:{number}: {problem}; the sentence is left out: {line[:80]!r}")
        elif good and fields[0].isdigit():
            words.append((fields[1], fields[3 if tags == "upos" else 4]))
    return sentences + ([words] if words and good else [])


def _problem(fields, expected):
    if len(fields) != 10:
        return f"{len(fields)} fields where CoNLL-U has 10, separated by tabs"
    if not re.fullmatch(r"\d+(?:[-.]\d+)?", fields[0]):
        return f"no word number: {fields[0]!r}"
    if fields[0].isdigit() and int(fields[0]) != expected:
        return f"word {fields[0]} where {expected} is due"
    return None if fields[1].strip() else "an empty word"


@dataclasses.dataclass
class TaggerReport:
    """How a tagger was chosen and how good it is.

    Attributes:
        layers: hidden states it reads, 0 being the input of the first layer.
        ridge: the penalty.
        validation: accuracy on held-out sentences, by layer, when single layers were compared; by `"chosen"` for the
            layers and the penalty chosen.
        words: number of words it was fitted on.
    """

    layers: tuple
    ridge: float
    validation: dict
    words: int

    def rows(self):
        return [{"layers": str(name), "validation_accuracy": value} for name, value in self.validation.items()]


class ProbeTagger:
    """Tags words by a linear map of a model's hidden states of their first and last pieces.

    With standardized states `x` (a word's first and last piece, layers side by side) and one-hot tags `y`, the map is
    that of ridge regression, `W = (X^T X + ridge I)^-1 X^T (Y - mean Y)`, in closed form, and the tag the largest
    entry of `x W + mean Y`. Make one with `fit`.

    Example:

        tagger = ProbeTagger.fit(model, tokenizer, read_conllu("dev.conllu"))
        tagger.accuracy(read_conllu("test.conllu"))
        tagger.tag(["The cat sat.", ["or", "words"]])
    """

    def __init__(self, reader, names, solution, report):
        self.reader, self.names, self.solution, self.report = reader, names, solution, report

    @classmethod
    def fit(
        cls, model, tokenizer, sentences, layers=None, held_out=0.15, max_length=None, batch_size=32, progress=False
    ):
        """A tagger fitted on tagged sentences.

        Args:
            model: a `Bert`.
            tokenizer: its tokenizer.
            sentences: lists of `(word, tag)` pairs.
            layers: list of hidden states to read side by side. By default the layer that does best on held-out
                sentences, and its neighbours.
            held_out: share of sentences held out to choose layers and penalty. The last fit is on all sentences.
            max_length: number of tokens the model is given at once; longer sentences are cut into several.
            batch_size: sentences at once.
            progress: whether to show it.

        All hidden states of all words are kept in float16: 4 * words * layers * width bytes.
        """
        sentences = [sentence for sentence in sentences if sentence]
        if len(sentences) < 2:
            raise ValueError(f"ProbeTagger needs two tagged sentences at least. Received: {len(sentences)}")
        reader = _Reader(model, tokenizer, max_length, batch_size)
        states, where = reader.read([[word for word, _ in s] for s in sentences], layers, progress)
        names = sorted({tag for s in sentences for _, tag in s})
        number = {name: index for index, name in enumerate(names)}
        tags = np.array([number[sentences[row][word][1]] for row, word in where])
        every = max(2, round(1 / held_out))
        # A sentence of each `every`: files are sorted by source, and all sources should be in both parts.
        held = np.array([row % every == every - 1 for row, _ in where])
        held = held if held.any() else np.arange(len(held)) % every == every - 1
        available, found = range(states.shape[1]), {}
        chosen = tuple(available)
        if layers is None:
            few = slice(None, None, -(-len(tags) // ENOUGH))
            for layer in available:
                found[layer] = max(_accuracies(states[few], tags[few], held[few], [layer], len(names), RIDGES[1:2]))
            best = max(found, key=found.get)
            chosen = tuple(layer for layer in (best - 1, best, best + 1) if layer in available)
        accuracies = _accuracies(states, tags, held, chosen, len(names), RIDGES)
        ridge = RIDGES[int(np.argmax(accuracies))]
        solution = _solve(*_moments(states, tags, chosen, len(names)), [ridge])[0]
        reader.layers = chosen if layers is None else tuple(layers)
        found["chosen"] = max(accuracies)
        return cls(reader, names, solution, TaggerReport(reader.layers, ridge, found, len(tags)))

    def tag(self, texts, progress=False):
        """Tagged sentences, lists of `(word, tag)` pairs.

        Args:
            texts: a list of strings (cut by `split_words`) and of lists of words.
            progress: whether to show it.
        """
        if isinstance(texts, str):
            raise ValueError("`tag` takes a list of texts, or of lists of words. Received one string.")
        texts = [split_words(text) if isinstance(text, str) else list(text) for text in texts]
        states, where = self.reader.read(texts, self.reader.layers, progress)
        tagged = [[(word, "X") for word in words] for words in texts]  # X, "other", for words without a piece
        found = _predict(_flat(states, range(states.shape[1])), self.solution) if len(states) else ()
        for (row, word), tag in zip(where, found):
            tagged[row][word] = (texts[row][word], self.names[tag])
        return tagged

    def accuracy(self, sentences, progress=False):
        """Share of the words of tagged sentences whose tag is found."""
        tagged = self.tag([[word for word, _ in sentence] for sentence in sentences], progress)
        pairs = [(x[1], y[1]) for a, b in zip(tagged, sentences) for x, y in zip(a, b)]
        return sum(x == y for x, y in pairs) / len(pairs)


class _Reader:
    """Hidden states of words: the model is given their pieces, a window of whole words at a time."""

    def __init__(self, model, tokenizer, max_length, batch_size):
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        limit = model.encoder.max_length
        self.max_length = min(x for x in (max_length, limit, 512) if x)
        self.layers = None

    def read(self, texts, layers, progress):
        """States `(words, layers, 2, width)` in float16, and for each the index of its text and word."""
        windows = sorted(self._windows(texts), key=lambda window: len(window[0]))
        batches = [windows[i : i + self.batch_size] for i in range(0, len(windows), self.batch_size)]
        states, where = [], []
        bar = Progress(len(batches)) if progress else None
        for batch in batches:
            hidden = self._hidden([ids for ids, _ in batch], layers)
            for row, (_, words) in enumerate(batch):
                for text, word, begin, end in words:
                    states.append(hidden[row, :, [begin, end]].swapaxes(0, 1))
                    where.append((text, word))
            if bar is not None:
                bar.step("hidden states of words")
        return np.array(states), where

    def _windows(self, texts):
        pieces = iter(self.tokenizer.tokenize([word for text in texts for word in text]))
        room = self.max_length - 1
        for index, text in enumerate(texts):
            ids, words = [self.tokenizer.cls_id], []
            for number in range(len(text)):
                part = next(pieces)[: room - 1]
                if len(ids) + len(part) > room:
                    yield ids + [self.tokenizer.sep_id], words
                    ids, words = [self.tokenizer.cls_id], []
                if part:
                    words.append((index, number, len(ids), len(ids) + len(part) - 1))
                    ids = ids + part
            if words:
                yield ids + [self.tokenizer.sep_id], words

    def _hidden(self, rows, layers):
        shape = (len(rows), max(map(len, rows)))
        ids, mask = np.zeros(shape, "int32"), np.zeros(shape, "int32")
        for index, row in enumerate(rows):
            ids[index, : len(row)], mask[index, : len(row)] = row, 1
        states = self.model({"token_ids": ids, "padding_mask": mask}, return_intermediates=True)["hidden_states"]
        chosen = range(len(states)) if layers is None else layers
        return np.stack([ops.convert_to_numpy(states[layer]).astype("float16") for layer in chosen], axis=1)


def _flat(states, layers):
    return states[:, list(layers)].reshape(len(states), -1).astype("float32")


def _moments(states, tags, layers, number):
    """Mean and deviation of the states, their Gram matrix, products with one-hot tags, and the mean of these."""
    x = _flat(states, layers)
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-6
    x = (x - mean) / deviation
    y = np.eye(number, dtype="float32")[tags]
    return mean, deviation, x.T @ x, x.T @ (y - y.mean(axis=0)), y.mean(axis=0)


def _solve(mean, deviation, gram, products, prior, ridges):
    eye = np.eye(len(gram), dtype="float32")
    return [(mean, deviation, np.linalg.solve(gram + ridge * eye, products), prior) for ridge in ridges]


def _predict(x, solution):
    mean, deviation, weights, prior = solution
    return np.argmax((x - mean) / deviation @ weights + prior, axis=-1)


def _accuracies(states, tags, held, layers, number, ridges):
    """On the words that are held out, for each penalty."""
    solutions = _solve(*_moments(states[~held], tags[~held], layers, number), ridges)
    x = _flat(states[held], layers)
    return [float(np.mean(_predict(x, solution) == tags[held])) for solution in solutions]
