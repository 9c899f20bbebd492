"""Directions in which hidden token attribution probes a Jacobian, and what is known from their norms."""

import numpy as np

from keras_posenc.utils import checks


class Probes:
    """Directions for every token: all unit vectors, or some random orthonormal ones.

    For orthonormal `v_1..v_m` in uniformly random directions, `q_p = width * ||J v_p||^2` has the mean `||J||_F^2`,
    and since a whole basis would give it exactly, the mean of `m` has the variance `var(q) / m * (1 - m / width)`,
    as in sampling without replacement.

    Args:
        width: size of a vector.
        count: random directions a token; `None` for all unit vectors.
        seed: of the directions.
        dtype: of the directions.
    """

    def __init__(self, width, count, seed=0, dtype="float32"):
        self.width, self.exact, self.seed, self.dtype = width, count is None, seed, dtype
        self.count = width if self.exact else checks.positive_int("Hidden token attribution", "probes", count)
        if self.count > width:
            raise ValueError(f"There are no {count} orthogonal directions in width {width}. Use method='exact'.")

    @property
    def have_spread(self):
        return not self.exact and self.count > 1

    def draw(self, token_ids, mask):
        """The tangents of sentences `(batch, length)`: sources and directions of each."""
        sources = [np.flatnonzero(row) for row in mask]
        most = max(len(found) for found in sources)
        directions = None
        if not self.exact:
            # Seeded by the sentence: the same in any batch, and different for different sentences.
            directions = np.zeros((len(mask), most, self.count, self.width))
            for row, found in enumerate(sources):
                rng = np.random.default_rng([self.seed, *map(int, token_ids[row, found])])
                gaussian = rng.normal(size=(len(found), self.width, self.count))
                directions[row, : len(found)] = np.swapaxes(np.linalg.qr(gaussian)[0], 1, 2)
        padded = np.stack([np.pad(found, (0, most - len(found)), constant_values=-1) for found in sources], axis=1)
        return Tangents(padded, directions, self)


class Tangents:
    """All tangents of some sentences, by source and within it by direction, dealt out in chunks."""

    def __init__(self, sources, directions, probes):
        self.sources, self.directions, self.probes = sources, directions, probes

    def chunks(self, size):
        """Pairs of sources, int `(tangents, batch)`, and directions `(tangents, batch, width)`.

        A sentence that has fewer tokens than the longest gets tangents at -1, which start nowhere and are all zero.
        """
        count, total = self.probes.count, len(self.sources) * self.probes.count
        for begin in range(0, total, size):
            tangents = np.arange(begin, min(begin + size, total))
            at, which = tangents // count, tangents % count
            if self.probes.exact:
                directions = np.zeros((len(tangents), self.sources.shape[1], self.probes.width), self.probes.dtype)
                directions[np.arange(len(tangents)), :, which] = 1
            else:
                directions = np.swapaxes(self.directions[:, at, which], 0, 1)
            yield self.sources[at].astype("int32"), directions.astype(self.probes.dtype)


def contributions_of(first, second, mask, probes):
    """From sums over probes to contributions and their standard errors.

    With `a_k = sqrt(s_k)`, `c_i = a_i / A`, `A = sum_k a_k` and independent errors of the sources, to first order
    `var(c_i) = ((1 - 2 c_i) var(a_i) + c_i^2 sum_k var(a_k)) / A^2` and `var(a) = var(s) / (4 s)`.

    Args:
        first: `(batch, layers, target, source)`, sum over probes of `||J v||^2`.
        second: the same of `||J v||^4`.
        mask: bool `(batch, length)`.
        probes: the `Probes`.

    Returns: contributions, and standard errors or `None`.
    """
    pairs = (mask[:, :, None] & mask[:, None, :])[:, None]
    count, width = probes.count, probes.width
    norms = np.sqrt(np.where(pairs, first, 0) * (width / count))
    total = np.sum(norms, axis=-1, keepdims=True)
    total = np.where(total > 0, total, 1)
    contributions = norms / total
    if not probes.have_spread:
        return contributions, None
    spread = np.maximum(second - first**2 / count, 0) / (count - 1) * width**2
    variance = np.where(pairs, spread, 0) / count * (1 - count / width)
    of_norms = np.divide(variance, 4 * norms**2, out=np.zeros_like(norms), where=norms > 0)
    summed = np.sum(of_norms, axis=-1, keepdims=True)
    squared = (1 - 2 * contributions) * of_norms + contributions**2 * summed
    return contributions, np.sqrt(np.maximum(squared, 0)) / total


def group_by_length(mask, trim=True, tokens=64, waste=0.1):
    """Sentences that are computed together: a list of `(rows, length)`, the shortest first.

    Few short sentences leave matrix products small, and padding costs twice, in targets and in sources: a group has
    up to about `tokens` tokens, or one sentence, and lengths that differ by at most `waste`.

    Args:
        mask: bool `(batch, length)`. Sentences without any token belong to no group.
        trim: cut the padding at the end of each group.
        tokens: of a group.
        waste: largest part of a sentence's length in its group that is padding.
    """
    ends = np.where(mask.any(axis=1), mask.shape[1] - np.argmax(mask[:, ::-1], axis=1), 0)
    groups = []
    for row in sorted(np.flatnonzero(ends), key=lambda row: ends[row]):
        rows, shortest = groups[-1] if groups else ([], 0)
        if rows and (len(rows) + 1) * ends[row] <= tokens and ends[row] * (1 - waste) <= shortest:
            rows.append(row)
        else:
            groups.append(([row], ends[row]))
    return [(np.array(rows), int(ends[rows[-1]]) if trim else mask.shape[1]) for rows, _ in groups]
