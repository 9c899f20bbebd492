"""The files of a prepared corpus: TFRecord shards of rows, the tokenizer, and an index that is written last.

A record is a `tf.train.Example` with the feature `token_ids`: one string, the row's token ids as little-endian int32.
All rows have one length, so all records have one size, and row `i` of a shard begins at byte `i * record_bytes`. Any
row can be read without those before it, and any program that reads TFRecords reads these.

A folder without `corpus.json` is no corpus, whatever else is in it: what a killed process left is never trained on.
"""

import dataclasses
import hashlib
import json
import os
import tempfile
import uuid
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_posenc.checkpoints.tokenizer import load_tokenizer

INDEX, TOKENIZER = "corpus.json", "tokenizer"
FORMAT = 1
FRAME = (12, 4)  # bytes of a TFRecord before and after its data: length and its checksum, checksum of the data


def serialized(row):
    """A row, int32 array, as a `tf.train.Example`."""
    value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[row.astype("<i4").tobytes()]))
    return tf.train.Example(features=tf.train.Features(feature={"token_ids": value})).SerializeToString()


def parse(examples, length):
    """Token ids `(n, length)` of `n` serialized rows."""
    raw = tf.io.parse_example(examples, {"token_ids": tf.io.FixedLenFeature((), tf.string)})["token_ids"]
    return tf.ensure_shape(tf.io.decode_raw(raw, tf.int32), (None, length))


def write_shard(path, rows):
    """Writes rows to a file that appears when it is whole. Returns their number and the bytes of a record."""
    partial = f"{path}.{uuid.uuid4().hex}.part"
    count = size = 0
    with tf.io.TFRecordWriter(partial) as writer:
        for row in rows:
            record = serialized(row)
            writer.write(record)
            count, size = count + 1, len(record) + sum(FRAME)
    tf.io.gfile.rename(partial, path, overwrite=True)
    return count, size


def replace(path, text):
    """Writes a small file in one move."""
    partial = f"{path}.{uuid.uuid4().hex}.part"
    with tf.io.gfile.GFile(partial, "wb") as file:
        file.write(text)
    tf.io.gfile.rename(partial, path, overwrite=True)


def files_of(tokenizer):
    """What a tokenizer's `save` writes, as sorted pairs of name and bytes: small enough to be sent to workers."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        return tuple(sorted((file.name, file.read_bytes()) for file in Path(folder).iterdir()))


def tokenizer_of(files):
    """The tokenizer with these files. They stay for as long as the process does: sentence pieces are copied later."""
    folder = Path(tempfile.mkdtemp(prefix="tokenizer-"))
    for name, content in files:
        (folder / name).write_bytes(content)
    return load_tokenizer(folder)


def fingerprint(files):
    """Of a tokenizer: two that cut text alike have the same."""
    return hashlib.sha256(repr([(name, hashlib.sha256(data).hexdigest()) for name, data in files]).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A prepared corpus.

    Attributes:
        folder: where it is.
        about: what `corpus.json` says.
    """

    folder: str
    about: dict

    @classmethod
    def open(cls, folder):
        """Reads the index of a folder and checks that its shards are whole."""
        folder, path = str(folder), os.path.join(folder, INDEX)
        if not tf.io.gfile.exists(path):
            raise FileNotFoundError(
                f"'{folder}' is no prepared corpus: it has no {INDEX}. Make one with `python -m "
                "training.prepare_corpus --output=...`; if that was killed, give the same command again."
            )
        try:
            about = json.loads(tf.io.gfile.GFile(path).read())
            version = about["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"'{path}' is damaged: {error!r}") from error
        if version != FORMAT:
            raise ValueError(f"'{path}' has format {version}, and this version reads {FORMAT}. Prepare it again.")
        found = cls(folder, about)
        for shard in about["shards"]:
            file, wanted = found.path(shard), shard["rows"] * about["record_bytes"]
            size = tf.io.gfile.stat(file).length if tf.io.gfile.exists(file) else None
            if size != wanted:
                raise ValueError(f"'{file}' has {size} bytes and should have {wanted}. Copy or prepare it again.")
        return found

    def path(self, shard):
        return os.path.join(self.folder, shard["file"])

    def shards(self, split):
        return [shard for shard in self.about["shards"] if shard["split"] == split]

    def rows(self, split):
        return sum(shard["rows"] for shard in self.shards(split))

    @property
    def length(self):
        return self.about["length"]

    def tokenizer(self):
        """The tokenizer that cut the text."""
        folder = os.path.join(self.folder, TOKENIZER)
        names = sorted(tf.io.gfile.listdir(folder))
        return tokenizer_of([(name, tf.io.gfile.GFile(os.path.join(folder, name), "rb").read()) for name in names])

    def array(self, split, limit=None):
        """The first rows of a split, int32 `(rows, length)`."""
        data = tf.data.TFRecordDataset([self.path(shard) for shard in self.shards(split)])
        data = data.take(-1 if limit is None else limit).batch(1024).map(lambda found: parse(found, self.length))
        return np.concatenate([np.zeros((0, self.length), "int32"), *data.as_numpy_iterator()])
