"""A sequence in parts that run beside each other, while a model is traced for export.

A runtime may use several cores in two ways: within an operation, or by running operations that do not wait for each
other at the same time. With one short text the first leaves them idle for part of the time: operations are small, and
each of them begins and ends with all threads waiting for the last one. So the length is cut into as many parts as there
are cores, and each part goes through all layers by itself; the parts meet only where attention needs the keys and
values of all of them. A server runs such a model with `--tensorflow_intra_op_parallelism=1` and
`--tensorflow_inter_op_parallelism` at the number of parts.

Several texts that can be shared out evenly need not be cut: groups of them go through the model beside each other, and
never meet. Which of the two it is, a graph finds out for each request (`Parts.by_texts`).

Layers keep taking and giving whole tensors. `Parts` remembers which parts a whole was put together from, and the next
layer takes those; the whole, if nobody asks for it, is left out of the graph.
"""

import contextlib
from typing import NamedTuple

import tensorflow as tf


class Cut(NamedTuple):
    """Parts of a tensor.

    Args:
        pieces: none of them is empty, which operations may not stand. A sequence with fewer rows than there are parts
            gets rows of zeros at its end.
        length: of the whole, without those.
    """

    pieces: list
    length: tf.Tensor | None = None

    def together(self, pieces, axis=1):
        """Pieces that were made of these, in one tensor."""
        if len(pieces) == 1:
            return pieces[0]
        return tf.concat(pieces, axis)[(slice(None),) * axis + (slice(self.length),)]


class Parts:
    """Cuts tensors `(batch, length, ...)` along the length.

    Args:
        count: number of parts. With 1 everything stays whole.
    """

    def __init__(self, count=1):
        self.count = count
        self._known = {}  # from ids of wholes to them and their cuts; an id is theirs as long as they are kept
        self._lengths = {}  # likewise from ids of tensors to them and their lengths
        self._positions = {}  # the same of positions that layers share

    def of(self, whole):
        """The `Cut` of a tensor."""
        if self.count > 1 and id(whole) not in self._known:
            length = tf.shape(whole)[1]
            rows = tf.maximum(length, self.count)
            padded = tf.pad(whole, [[0, 0], [0, rows - length], *[[0, 0]] * (len(whole.shape) - 2)])
            sizes = [(rows + index) // self.count for index in range(self.count)]
            self._known[id(whole)] = whole, Cut(tf.split(padded, sizes, axis=1, num=self.count), length)
        return Cut([whole]) if self.count == 1 else self.known(whole)

    def known(self, whole):
        """The `Cut` of a tensor that has been cut or put together before; of others, themselves."""
        return self._known.get(id(whole), (whole, Cut([whole])))[1]

    def join(self, cut, pieces):
        """The whole of pieces that were made of those of a cut."""
        whole = cut.together(pieces)
        if len(pieces) > 1:
            self._known[id(whole)] = whole, Cut(pieces, cut.length)
        return whole

    def map(self, function, *wholes):
        """A function of tensors of one length that treats each row by itself, applied to their parts.

        Tensors without a length, of less than three axes, stay whole.
        """
        if len(wholes[0].shape) < 3:
            return function(*wholes)
        cuts, found = [self.of(whole) for whole in wholes], []
        for pieces in zip(*(cut.pieces for cut in cuts)):
            length = self.length(pieces[0])
            found.append(function(*pieces))
            self._lengths[id(found[-1])] = found[-1], length
        return self.join(cuts[0], found)

    def length(self, tensor):
        """Length of a tensor, the same object for those that were made of one another: the graph has it once."""
        if id(tensor) not in self._lengths:
            self._lengths[id(tensor)] = tensor, tf.shape(tensor)[1]
        return self._lengths[id(tensor)][1]

    def by_texts(self, function):
        """A function of tensors, or dicts of them, to a dict, all with the texts first, that is computed for groups of
        texts beside each other where they can be shared out evenly. Nothing has to meet then."""
        if self.count == 1:
            return function

        def either(*given):
            batch = tf.shape(tf.nest.flatten(given)[0])[0]

            def groups():
                cut = [tf.split(each, self.count) for each in tf.nest.flatten(given)]
                with self.one():
                    found = [function(*tf.nest.pack_sequence_as(given, group)) for group in zip(*cut)]
                return {name: tf.concat([each[name] for each in found], axis=0) for name in found[0]}

            even = tf.logical_and(batch > 0, batch % self.count == 0)
            return tf.cond(even, groups, lambda: function(*given))

        return either

    @contextlib.contextmanager
    def one(self):
        """Inside a part: what is met there is not cut again."""
        count, self.count = self.count, 1
        try:
            yield
        finally:
            self.count = count

    def of_positions(self, shared, sizes, length):
        """Positions that several layers share, at each part."""
        if id(shared) not in self._positions:
            segments = [None] * len(sizes)
            if shared.segment_bias is not None:
                segments = self._rows(shared.segment_bias, sizes)
            found, start = [], 0
            for size, segment_bias in zip(sizes, segments):
                found.append(shared.encoding.at(size, length, start))
                found[-1].segment_bias = segment_bias
                start = start + size
            self._positions[id(shared)] = shared, found
        return self._positions[id(shared)][1]

    @staticmethod
    def _rows(bias, sizes):
        """Parts of a `(batch, heads, queries, keys)` tensor, with rows of zeros at its end if there are too few."""
        missing = tf.add_n(sizes) - tf.shape(bias)[2]
        return tf.split(tf.pad(bias, [[0, 0], [0, 0], [0, missing], [0, 0]]), sizes, axis=2, num=len(sizes))


class Attention:
    """Self-attention in parts: takes the place of `PositionalAttention.call`.

    Each part is a call with the keys and values of the whole as its cache, starting where the part does.

    Args:
        layer: `PositionalAttention`.
        parts: `Parts`.
    """

    # What encoders ask of it.
    usual = {"attention_mask", "segment_ids", "use_causal_mask", "training", "return_attention_scores", "return_values"}

    def __init__(self, layer, parts):
        self.layer, self.parts, self.whole = layer, parts, layer.call

    def __call__(self, query, value=None, key=None, positions=None, attention_mask=None, **given):
        encoding = self.layer.position if positions is None else positions.encoding
        others = [name for name, value in given.items() if value is not None and name not in self.usual]
        by_query = attention_mask is not None and len(attention_mask.shape) > 2
        given["attention_mask"] = attention_mask
        # Encodings that cannot go on from a cache see the whole, and so does all that encoders do not ask for.
        if others or by_query or value is not None or key is not None or encoding.no_cache:
            return self.whole(query, value, key, positions=positions, **given)
        return self._in_parts(query, encoding, positions, **given)

    def _in_parts(self, query, encoding, shared, segment_ids=None, **given):
        parts, cut = self.parts, self.parts.of(query)
        sizes = [tf.shape(piece)[1] for piece in cut.pieces]
        cache = self.layer.make_cache(memory=query, positions=encoding.at(1, cut.length))
        more = [{} for _ in sizes]
        if segment_ids is not None:
            for own, segments in zip(more, parts.of(segment_ids).pieces):
                own["segment_ids"] = segments, segment_ids
        if shared is not None:
            for own, positions in zip(more, parts.of_positions(shared, sizes, cut.length)):
                own["positions"] = positions
        results, start = [], 0
        for piece, size, own in zip(cut.pieces, sizes, more):
            with parts.one():
                found = self.whole(piece, cache=cache, update_cache=False, start_index=start, **own, **given)
            results.append(found[:-1])  # without the cache
            start = start + size
        output, *extras = zip(*results)
        found = [parts.join(cut, list(output))]
        if given.get("return_attention_scores"):
            found.append(cut.together(list(extras[0]), axis=2))
        if given.get("return_values"):
            found.append(cache["value"])
        return found[0] if len(found) == 1 else tuple(found)
