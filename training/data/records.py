"""What a data set is once it is read, whatever it was read from."""

import dataclasses
import hashlib

import numpy as np


@dataclasses.dataclass
class Classification:
    """Texts or pairs of texts with labels.

    Attributes:
        first: list of texts.
        second: list of texts as long, or `None` if there is one text an example.
        labels: int32 indices into `label_names`, or float32 scores if `label_names` is `None`; `None` if the file has
            no labels (a test set).
        label_names: tuple of the names of the classes, in the order of their indices; `None` for a regression.
    """

    first: list
    second: list | None
    labels: np.ndarray | None
    label_names: tuple | None

    @classmethod
    def of(cls, texts, labels, label_names, source="the data"):
        """From a list of `(first, second)`, all or none with a second text, and of labels, all or none `None`."""
        if not texts:
            raise ValueError(f"{source}: expected examples, received none")
        firsts, seconds = map(list, zip(*texts))
        return cls(
            first=firsts,
            second=None if seconds[0] is None else seconds,
            labels=None if labels[0] is None else np.array(labels, "float32" if label_names is None else "int32"),
            label_names=label_names,
        )

    def __len__(self):
        return len(self.first)

    @property
    def texts(self):
        """A list of texts or of pairs, as tokenizers take them."""
        return self.first if self.second is None else list(zip(self.first, self.second))

    def digest(self):
        """A short name of texts and labels, the same for the same ones."""
        labels = None if self.labels is None else self.labels.tolist()
        return hashlib.sha256(repr((self.first, self.second, labels)).encode()).hexdigest()[:16]


@dataclasses.dataclass
class Question:
    """A question about a context, in SQuAD's terms.

    Attributes:
        id: unique in its file.
        question, context: texts.
        answers: list of `(text, start)`, `start` in characters of the context; empty if none is known.
    """

    id: str
    question: str
    context: str
    answers: list


@dataclasses.dataclass
class Parallel:
    """Sentences and their translations, two lists of the same length."""

    source: list
    target: list

    def __len__(self):
        return len(self.source)
