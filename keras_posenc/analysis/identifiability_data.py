"""Tokens of sentences, folds over sentences, and the nearest neighbour within the sentence."""

import numpy as np

TRAIN, VALIDATION, TEST = range(3)
PARTS = ("train", "validation", "test")
METRICS = ("cosine", "l2")
_BATCH = 2**21  # floats of one padded array, 8 MB
_ROUNDING = 1e-5  # relative difference of vectors that are one and the same


def pack_tokens(states, padding_mask):
    """The real tokens of padded states, and the sentence each is from.

    Args:
        states: `(batch, length, d)`.
        padding_mask: `(batch, length)`, 1 for tokens and 0 for padding.

    Returns: `(tokens, d)` and int `(tokens,)`, the row of the batch.
    """
    states, taken = np.asarray(states), np.asarray(padding_mask).astype(bool)
    if states.shape[:2] != taken.shape:
        raise ValueError(f"`padding_mask` must be {states.shape[:2]}, as the states. Received: {taken.shape}")
    return states[taken], np.nonzero(taken)[0]


class Sentences:
    """Where the tokens of each sentence are.

    Args:
        sentences: integer `(tokens,)`, the sentence of each token, tokens of a sentence in their order.
        groups: integer `(tokens,)`, sentences of one group are never split; every sentence by itself by default.
        mask: bool `(tokens,)`, tokens that take part; the others are not looked for, looked up or learnt from, but
            keep their places between their neighbours. All by default.

    Attributes:
        order: `(kept,)`, rows of the caller's arrays, by sentence. All other indices here are places in it.
        sentence: `(kept,)`, 0, 1, ... in order of the ids.
        bounds: `(sentences + 1,)`, the tokens of sentence s are `bounds[s]:bounds[s + 1]`.
        groups: `(sentences,)`.
    """

    def __init__(self, sentences, groups=None, mask=None):
        ids = _flat("sentences", sentences)
        if ids.dtype.kind not in "iu" or not ids.size:
            raise ValueError(f"`sentences` must be integers, one for each token. Received: {ids.dtype} {ids.shape}")
        groups = ids if groups is None else _flat("groups", groups, ids.size)
        keep = np.ones(ids.size, bool) if mask is None else _flat("mask", mask, ids.size).astype(bool)
        if not keep.any():
            raise ValueError("`mask` leaves no token.")
        order = np.argsort(ids, kind="stable")
        # Places in the whole sentence, so that a token left out still lies between its neighbours.
        starts = np.flatnonzero(np.diff(ids[order], prepend=ids[order[0]] - 1))
        place = np.arange(ids.size) - np.repeat(starts, np.diff(starts, append=ids.size))
        kept = keep[order]
        self.order = order[kept]
        self._place, self._longest = place[kept], int(place.max()) + 1
        _, first, self.sentence = np.unique(ids[self.order], return_index=True, return_inverse=True)
        self.bounds = np.append(first, self.order.size)
        self.groups = groups[self.order[first]]
        if not np.array_equal(self.groups[self.sentence], groups[self.order]):
            raise ValueError("`groups` must be the same for all tokens of a sentence.")

    def pairs(self, offset=0):
        """Tokens that have a neighbour `offset` places on in their sentence, and those neighbours."""
        if abs(offset) >= self._longest:
            return np.zeros((2, 0), int)
        key = self.sentence * (3 * self._longest) + self._place
        place = np.minimum(np.searchsorted(key, key + offset), key.size - 1)
        query = np.flatnonzero(key[place] == key + offset)
        return np.stack([query, place[query]])

    def tokens_of(self, chosen):
        """Tokens of the sentences where `chosen` is true, and their bounds among themselves."""
        lengths = np.diff(self.bounds)[chosen]
        return np.flatnonzero(chosen[self.sentence]), np.concatenate([[0], np.cumsum(lengths)])


def _flat(name, values, size=None):
    values = np.asarray(values)
    if values.ndim != 1 or size not in (None, values.size):
        raise ValueError(f"`{name}` must have one entry for each of the {size or ''} tokens. Received: {values.shape}")
    return values


def split_folds(groups, folds=10, split=(0.7, 0.15, 0.15), seed=0):
    """Which sentences each fold trains on, validates on and tests on.

    Groups are shuffled once and laid on a circle. Fold f tests on the stretch that begins at f / folds of the circle,
    validates on the next one and trains on the rest. Every sentence is so tested at least once; exactly once if the
    share of the test is 1 / folds. With the paper's ten folds of 70/15/15 the test sets overlap: half of the sentences
    are tested twice.

    Args:
        groups: `(sentences,)`; sentences of the same group stay together.
        split: shares of training, validation and test.

    Returns: int8 `(folds, sentences)` of `TRAIN`, `VALIDATION` and `TEST`.
    """
    shares = np.asarray(split, float)
    if shares.shape != (3,) or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"`split` must be three positive shares that sum to 1. Received: {split}")
    _, group = np.unique(groups, return_inverse=True)
    count = int(group.max()) + 1
    place = np.random.default_rng([seed, 1]).permutation(count)[group]
    roles = np.full((folds, place.size), TRAIN, np.int8)
    for fold in range(folds):
        edges = (fold / folds + np.cumsum([0, shares[TEST], shares[VALIDATION]])) * count
        begin, middle, end = np.floor(edges + 1e-9).astype(int)
        on = (place - begin) % count
        roles[fold, on < end - begin] = VALIDATION
        roles[fold, on < middle - begin] = TEST
        if min(middle - begin, end - middle, count - (end - begin)) < 1:
            raise ValueError(f"{count} sentences (or groups) are too few for a split of {split}: a part is empty.")
    return roles


def nearest(predicted, candidates, bounds):
    """For each token the nearest candidate of the same sentence.

    One product serves both rules: with p the prediction and c a candidate, the largest cosine is the largest
    p.c / |c|, and the smallest distance is the largest p.c - |c|^2 / 2.

    Args:
        predicted: `(tokens, d)`, by sentence.
        candidates: `(tokens, d)`, of the same tokens.
        bounds: `(sentences + 1,)`, sentence s is rows `bounds[s]:bounds[s + 1]`.

    Returns: int `(2, tokens)`: rows of `candidates` by cosine and by L2 distance.
    """
    found = np.empty((len(METRICS), len(predicted)), int)
    for rows, real in _padded(bounds, predicted.shape[1]):
        candidate = candidates[rows]
        square = np.einsum("bnd,bnd->bn", candidate, candidate)[:, None]
        products = predicted[rows] @ candidate.swapaxes(1, 2)
        length = np.sqrt(np.where(square > 0, square, 1))
        for metric, scores in enumerate((products / length, products - square / 2)):
            best = np.where(real[:, None], scores, -np.inf).argmax(-1)
            found[metric, rows[real]] = (rows[:, :1] + best)[real]
    return found


def first_equal(candidates, bounds):
    """For each token the first of its sentence with the same vector, up to rounding; mostly itself.

    Without positions in the input a word has the same vector wherever it stands, and finding either is finding it.
    """
    found = np.arange(len(candidates))
    for rows, real in _padded(bounds, candidates.shape[1]):
        x = candidates[rows]
        square = np.einsum("bnd,bnd->bn", x, x)
        scale = square[:, :, None] + square[:, None]
        # The product loses digits, so it only proposes pairs; rows before columns, so that the first is kept.
        close = (scale - 2 * (x @ x.swapaxes(1, 2)) <= 1e-4 * scale) & real[:, None] & real[:, :, None]
        sentence, later, earlier = np.nonzero(np.tril(close, -1))
        for part in range(0, sentence.size, 2**14):
            s, i, j = (index[part : part + 2**14] for index in (sentence, later, earlier))
            gap = np.abs(x[s, i] - x[s, j]).max(-1)
            same = gap <= _ROUNDING * np.sqrt(scale[s, i, j] / x.shape[-1])
            np.minimum.at(found, rows[s, i][same], rows[s, j][same])
    return found


def _padded(bounds, width):
    """Sentences of similar length in batches: rows `(batch, longest)`, and which of them are no padding."""
    lengths = np.diff(bounds)
    by_length = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < lengths.size:
        longest = int(lengths[by_length[begin]])
        batch = by_length[begin : begin + max(1, _BATCH // (longest * max(longest, width)))]
        begin += batch.size
        place = np.arange(longest)
        # Padding repeats the last token, which is then masked.
        yield (
            bounds[batch, None] + np.minimum(place, lengths[batch, None] - 1),
            place < lengths[batch, None],
        )
