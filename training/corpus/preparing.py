"""The steps from documents to a corpus, each a function of its input alone, in whatever order and place they run."""

import dataclasses
import functools
import hashlib
import json
import os

import numpy as np
import tensorflow as tf

from training.corpus import shards
from training.corpus.packing import Packer

TRAIN, DEV = "train", "dev"
_tokenizer = functools.lru_cache(maxsize=2)(shards.tokenizer_of)  # one for a process, not one for each element


def check(output, dev_share):
    """Raises what making a corpus would, before there is a vocabulary: training one takes long."""
    check_share(dev_share)
    left_in(output)


def check_share(dev_share):
    """Raises a `ValueError` for a share of held-out documents that leaves none, or is none."""
    if not 0 <= dev_share < 1:
        raise ValueError(f"The share of held-out documents is from 0 to below 1. Received: {dev_share}")


def left_in(output):
    """Names that a run which did not end left in a folder. A finished corpus, and other things, are refused."""
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(output)] if tf.io.gfile.isdir(output) else []
    if shards.INDEX in names:
        raise FileExistsError(f"'{output}' is a finished corpus. Choose another folder, or remove it.")
    others = [name for name in names if name != shards.TOKENIZER and not name.endswith((".tfrecord", ".part"))]
    if others:
        raise FileExistsError(f"'{output}' has other files, such as '{others[0]}'. Choose an empty folder.")
    return names


@dataclasses.dataclass(frozen=True)
class Job:
    """A corpus to be made. It can be pickled; workers get it with the steps they run.

    A document belongs to a shard by the hash of its text, and lies in it by the order of hashes. So the shards are
    the same for the same documents, whatever files they are in and whoever reads them first.

    Attributes:
        output: folder.
        length: tokens of a row.
        tokenizer_files: `shards.files_of` the tokenizer.
        num_shards: of the training rows.
        dev_share: share of the documents that are held out, in one shard of their own.
        source: what the documents are, for the index.
        trained_vocabulary: dict of how the tokenizer was trained, for the index; `None` if it was given.
    """

    output: str
    length: int
    tokenizer_files: tuple
    num_shards: int = 1
    dev_share: float = 0.0
    source: tuple = ()
    trained_vocabulary: dict | None = None

    def __post_init__(self):
        if self.num_shards < 1:
            raise ValueError(f"A corpus has at least one shard. Received: {self.num_shards}")
        check_share(self.dev_share)
        self.packer()

    def packer(self):
        tokenizer = _tokenizer(self.tokenizer_files)
        return Packer(self.length, tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id or 0)

    def settings(self):
        """What makes this corpus what it is, as the index has it."""
        return {
            "format": shards.FORMAT,
            "length": self.length,
            "num_shards": self.num_shards,
            "dev_share": self.dev_share,
            "vocabulary": len(_tokenizer(self.tokenizer_files).vocabulary),
            "tokenizer": shards.fingerprint(self.tokenizer_files),
            "trained_vocabulary": self.trained_vocabulary,
            "source": list(self.source),
        }

    def begin(self):
        """Makes the folder, with the tokenizer in it, if `left_in` does not refuse it."""
        tf.io.gfile.makedirs(self.output)
        for name in left_in(self.output):
            path = os.path.join(self.output, name)
            (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
        folder = os.path.join(self.output, shards.TOKENIZER)
        tf.io.gfile.makedirs(folder)
        for name, content in self.tokenizer_files:
            shards.replace(os.path.join(folder, name), content)

    def tokenize(self, documents):
        """Pairs of `(split, shard)` and `(hash, lengths, ids)` for documents, lists of sentences."""
        documents = list(documents)
        ids = iter(_tokenizer(self.tokenizer_files).tokenize([text for document in documents for text in document]))
        for document in documents:
            found = [tokens for tokens in (next(ids) for _ in document) if tokens]
            if not found:
                continue
            digest = hashlib.blake2b("\n".join(document).encode(), digest_size=16).digest()
            lengths = np.array([len(tokens) for tokens in found], "int32")
            yield self._place(digest), (digest, lengths.tobytes(), np.concatenate(found).astype("int32").tobytes())

    def _place(self, digest):
        first, second = (int.from_bytes(part, "big") for part in (digest[:8], digest[8:]))
        if first < self.dev_share * 2**64:
            return DEV, 0
        return TRAIN, second % self.num_shards

    def write(self, place, documents):
        """Packs and writes a shard, given all its documents. Returns what the index says of it."""
        split, number = place
        of = self.num_shards if split == TRAIN else 1
        name = f"{split}-{number:05}-of-{of:05}.tfrecord"
        known = {"split": split, "file": name, "documents": 0, "sentences": 0, "tokens": 0}

        def read():
            for _, lengths, ids in sorted(documents):
                ends = np.cumsum(np.frombuffer(lengths, "int32"))
                known["documents"] += 1
                known["sentences"] += len(ends)
                known["tokens"] += int(ends[-1])
                yield [part.tolist() for part in np.split(np.frombuffer(ids, "int32"), ends[:-1])]

        rows, size = shards.write_shard(os.path.join(self.output, name), self.packer().rows(read()))
        return {**known, "rows": rows, "record_bytes": size}

    def finish(self, written):
        """Writes the index, of what `write` returned for all shards: now there is a corpus. Returns its content."""
        written = sorted(written, key=lambda shard: (shard["split"] != TRAIN, shard["file"]))
        if not any(shard["split"] == TRAIN for shard in written):
            raise ValueError("There are no training rows: the input has no documents, or all are held out.")
        sizes = {shard.pop("record_bytes") for shard in written}
        totals = {name: sum(shard[name] for shard in written) for name in ("documents", "sentences", "tokens", "rows")}
        (record_bytes,) = sizes
        index = {**self.settings(), **totals, "record_bytes": record_bytes, "shards": written}
        shards.replace(os.path.join(self.output, shards.INDEX), (json.dumps(index, indent=1) + "\n").encode())
        return index
