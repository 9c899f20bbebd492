"""Where documents come from. Each input is small and can be sent to another machine, which then reads it."""

import contextlib
import dataclasses
import tempfile
from pathlib import Path

import tensorflow as tf

from training.data import prose, tables, tfds, word_order


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A text file, gzip or not; a blank line ends a document.

    Attributes:
        path: of the file, also on a file system that TensorFlow knows, such as `gs://`.
        skip: whether lines that are not UTF-8 are left out and logged; otherwise the first one is an error.
    """

    path: str
    skip: bool = False

    def documents(self):
        """Yields documents, lists of sentences."""
        problems = tables.Problems("skip" if self.skip else "raise")
        with _local(self.path) as file:
            try:
                yield from prose.documents_of_sentences(file, problems)
            except ValueError as error:
                raise ValueError(str(error).replace(str(file), self.path, 1)) from error
        problems.report()


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A split, or a shard of one, of a data set of TensorFlow Datasets that has documents."""

    name: str
    split: str
    data_dir: str | None = None

    def documents(self):
        """Yields documents, lists of sentences."""
        for text in tfds.load(self.name, self.split, self.data_dir):
            document = [sentence for line in text.split("\n") for sentence in prose.sentences(line)]
            if document:
                yield document


@dataclasses.dataclass(frozen=True)
class WordOrder:
    """Text of the word-order benchmark."""

    split: str = "train"
    size: int | None = None
    seed: int = 0

    def documents(self):
        """Yields documents, lists of sentences."""
        yield from word_order.load("text", self.split, self.size, self.seed)


def text_files(patterns, skip=False):
    """A `TextFile` for each file that the glob patterns match, sorted; a pattern without a file is an error."""
    found = {}
    for pattern in patterns:
        files = tf.io.gfile.glob(pattern)
        if not files:
            raise FileNotFoundError(f"No file matches '{pattern}'.")
        found.update((file, TextFile(file, skip)) for file in files)
    return [found[file] for file in sorted(found)]


def data_sets(names, split="train", data_dir=None, download=False):
    """A `DataSet` for each shard of the split of each data set, to be read in parallel."""
    import tensorflow_datasets

    found = []
    for name in names:
        tfds.converter(name)  # an unknown name is an error before anything is read
        next(tfds.examples(name, split, data_dir, download), None)
        splits = tensorflow_datasets.builder(name, data_dir=data_dir).info.splits
        shards = splits[split].num_shards if split in splits else 1
        parts = [f"{split}[{number}shard]" for number in range(shards)] if shards > 1 else [split]
        found += [DataSet(name, part, data_dir) for part in parts]
    return found


def sample(inputs, count):
    """About `count` sentences, the same number from the beginning of each input that has so many."""
    each = -(-count // len(inputs))
    for item in inputs:
        left = each
        for document in item.documents():
            yield from document[:left]
            left -= len(document)
            if left <= 0:
                break


@contextlib.contextmanager
def _local(path):
    """A path that Python can open: the file itself, or a copy for as long as it is read."""
    if "://" not in path:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.rsplit("/", 1)[-1]
        tf.io.gfile.copy(path, str(copy))
        yield copy
