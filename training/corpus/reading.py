"""Batches of a corpus as a function of the seed and the step, read from its shards as they are needed."""

import numpy as np
import tensorflow as tf

from training.corpus import shards
from training.engine.pipeline import FOREVER, permutation

BLOCK = 64  # neighbouring rows that are read at once
WINDOW = 256  # blocks whose rows are mixed; 16,384 rows, 8 MB at 128 tokens
READS = 16  # blocks of a window that are read in parallel


class RowStream:
    """The rows of a split in random order, without end, from any step on.

    An epoch is a permutation of all rows, a function of the seed and its number: the blocks of `block` neighbouring
    rows are permuted, and then the rows of every `window` blocks. (Documents are in the shards in an order of their
    own hashes, so neighbours are no neighbours in the text beyond their document.) Batches go on from one epoch to the
    next, and no row is left out. Step `s` begins at row `s * batch` of that order, which lies in a window that is
    known from the permutation of blocks alone: seeking costs the reading of at most one window, and memory is a few
    windows however large the corpus is.

    Args:
        corpus: a `Corpus`.
        split: its split.
        batch: rows of a step.
        seed: of the order.
        block, window: as above.
    """

    def __init__(self, corpus, split, batch, seed=0, block=BLOCK, window=WINDOW):
        self.corpus, self.batch, self.seed, self.block, self.window = corpus, batch, seed, block, window
        found = [shard for shard in corpus.shards(split) if shard["rows"]]
        self.count = sum(shard["rows"] for shard in found)
        if not self.count:
            raise ValueError(f"'{corpus.folder}' has no rows in its split '{split}'.")
        firsts = [np.arange(0, shard["rows"], block) for shard in found]
        self.files = [corpus.path(shard) for shard in found]
        self.shard = np.repeat(np.arange(len(found)), [len(first) for first in firsts])
        self.first = np.concatenate(firsts)
        ends = np.concatenate([np.minimum(first + block, shard["rows"]) for first, shard in zip(firsts, found)])
        self.rows = ends - self.first

    def __len__(self):
        return self.count

    def __call__(self, start_step=0):
        """A `tf.data.Dataset` of `{"token_ids": (batch, length)}`, beginning with the batch of `start_step`."""
        epoch, row = divmod(start_step * self.batch, self.count)
        window, inside = self._seek(epoch, row)
        blocks, windows = len(self.rows), -(-len(self.rows) // self.window)
        padding = windows * self.window - blocks

        def plan(number):
            order = tf.pad(permutation(blocks, self.seed, number), [[0, padding]], constant_values=-1)
            return tf.reshape(order, (windows, self.window)), number * windows + tf.range(windows, dtype="int64")

        def rows(blocks_of_window, number):
            ids = self._read(blocks_of_window[blocks_of_window >= 0])
            order = permutation(tf.shape(ids)[0], self.seed + 1, number)
            return tf.gather(ids, order)

        plans = tf.data.Dataset.range(epoch, FOREVER).map(plan).prefetch(1)
        planned = plans.flat_map(lambda *plan: tf.data.Dataset.from_tensor_slices(plan)).skip(window)
        read = planned.map(rows, num_parallel_calls=2, deterministic=True)
        made_before = tf.data.Dataset.from_tensors(inside).concatenate(tf.data.Dataset.from_tensors(0).repeat())
        left = tf.data.Dataset.zip(read, made_before).map(lambda ids, made: ids[made:])
        batches = left.rebatch(self.batch, drop_remainder=True)
        shape = (self.batch, self.corpus.length)
        return batches.map(lambda ids: {"token_ids": tf.ensure_shape(ids, shape)}).prefetch(tf.data.AUTOTUNE)

    def _seek(self, epoch, row):
        """The window of an epoch that has a row, and how many rows of the window are before it."""
        order = permutation(len(self.rows), self.seed, epoch).numpy()
        ends = np.cumsum(self.rows[order])
        begins = np.concatenate([[0], ends[self.window - 1 :: self.window]])
        window = int(np.searchsorted(begins, row, side="right")) - 1
        return window, int(row - begins[window])

    def _read(self, blocks):
        """Rows of the blocks, one block after the other."""
        size = self.corpus.about["record_bytes"]
        files, shard = tf.constant(self.files), tf.constant(self.shard)
        first, count = tf.constant(self.first), tf.constant(self.rows)

        def block(number):
            place = tf.gather(files, tf.gather(shard, number))
            header = tf.gather(first, number) * size
            records = tf.data.FixedLengthRecordDataset(place, size, header_bytes=header, buffer_size=size * self.block)
            return records.take(tf.gather(count, number)).batch(self.block)

        data = tf.data.Dataset.from_tensor_slices(blocks)
        data = data.interleave(block, READS, 1, num_parallel_calls=READS, deterministic=True)
        records = data.unbatch().batch(self.block * self.window).get_single_element()
        before, after = shards.FRAME
        return shards.parse(tf.strings.substr(records, before, size - before - after), self.corpus.length)
