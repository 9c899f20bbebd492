"""Attention maps with a known pattern, made by code, to train and to test a classifier of patterns.

The five patterns are those of Kovaleva et al., 2019 (arXiv:1908.08593), which Sun & Marasović, 2021 (arXiv:2105.08855)
count in raw and effective attention. A map is a mixture of parts, each of which has rows that sum to one: columns,
diagonals, blocks of two sentences, and content, where queries meet keys at random. It is kept only if its pattern can
be seen in it, by three shares between 0 and 1: see `shares`.
"""

import dataclasses

import numpy as np

PATTERNS = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
VERTICAL, DIAGONAL, BOTH, BLOCK, HETEROGENEOUS = range(len(PATTERNS))

# Weights of the parts of a pattern, from least to most: columns, diagonals, blocks. The rest is content.
WEIGHTS = {
    VERTICAL: ((0.12, 0.95), (0.0, 0.1), (0.0, 0.15)),
    DIAGONAL: ((0.0, 0.12), (0.25, 1.0), (0.0, 0.1)),
    BOTH: ((0.15, 0.6), (0.2, 0.6), (0.0, 0.1)),
    BLOCK: ((0.0, 0.08), (0.0, 0.08), (0.5, 1.0)),
    HETEROGENEOUS: ((0.0, 0.1), (0.0, 0.1), (0.0, 0.2)),
}
# What can be seen: least and largest shares of columns, of the diagonal and of blocks.
SEEN = {
    VERTICAL: ((0.4, 1.0), (0.0, 0.3), (0.0, 1.0)),
    DIAGONAL: ((0.0, 0.12), (0.45, 1.0), (0.0, 1.0)),
    BOTH: ((0.15, 0.9), (0.4, 1.0), (0.0, 1.0)),
    BLOCK: ((0.0, 0.3), (0.0, 0.45), (0.2, 1.0)),
    HETEROGENEOUS: ((0.0, 0.3), (0.0, 0.35), (0.0, 0.12)),
}
TRIALS = 100


@dataclasses.dataclass
class LabelledMaps:
    """Attention maps of different lengths.

    Attributes:
        maps: list of `(n, n)` arrays.
        labels: `(number,)`, indices into `PATTERNS`.
        effective: `(number,)`, whether a map is like effective attention.
    """

    maps: list
    labels: np.ndarray
    effective: np.ndarray

    def __len__(self):
        return len(self.maps)


def make_maps(number, seed=0, lengths=(16, 96), effective=0.5):
    """Labelled maps, as many of each pattern.

    Args:
        number: how many.
        seed: of all random choices.
        lengths: shortest and longest map.
        effective: share of maps that are like effective attention.

    Returns: `LabelledMaps`, patterns in turn.
    """
    labels = np.arange(number) % len(PATTERNS)
    maps, flags = [], []
    for label, child in zip(labels, np.random.SeedSequence(seed).spawn(number)):
        rng = np.random.default_rng(child)
        flags.append(bool(rng.random() < effective))
        maps.append(make_map(int(label), rng, int(rng.integers(lengths[0], lengths[1] + 1)), flags[-1]))
    return LabelledMaps(maps, labels, np.array(flags, bool))


def make_map(label, rng, length, effective=False):
    """One map `(length, length)` of a pattern.

    Args:
        label: index into `PATTERNS`.
        rng: a NumPy generator.
        length: number of tokens, 8 at least.
        effective: whether to remove what random values cannot see: rows have any sum then, and entries any sign.
    """
    if length < 8:
        raise ValueError(f"Patterns need a length of at least 8. Received: {length}")
    for _ in range(TRIALS):
        split = int(rng.uniform(0.3, 0.7) * length)  # the [SEP] of the first sentence
        attention = _mixture(label, rng, length, split)
        if effective:
            attention = _project(attention, rng, split)
        found = shares(attention, split)
        if all(low <= share <= high for share, (low, high) in zip(found, SEEN[label])):
            return attention.astype("float32")
    raise RuntimeError(f"No map of the pattern {PATTERNS[label]!r} and length {length} was found in {TRIALS} trials.")


def shares(attention, split):
    """How far columns, the diagonal and two sentences explain a map `(n, n)`.

    Returns three numbers:
        the variance of the means of the columns, without what is near the diagonal, as a share of that of all entries;
        the share of the squares of the map, less the median of each column, that lies within `2 + n / 24` of the
            diagonal, less what is there by chance;
        the share of the variance that the means of the four blocks made by `split` explain.
    """
    length = len(attention)
    total = attention.var() + 1e-12
    offsets = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    near = offsets <= 2 + length // 24
    columns = np.average(attention, axis=0, weights=~near).var() / total
    rest = np.square(attention - np.median(attention, axis=0))
    chance = near.mean()
    diagonal = (rest[near].sum() / (rest.sum() + 1e-12) - chance) / (1 - chance)
    cuts = [0, split + 1]
    size = np.diff([*cuts, length])
    means = np.add.reduceat(np.add.reduceat(attention, cuts, axis=0), cuts, axis=1) / np.outer(size, size)
    blocks = (np.outer(size, size) * np.square(means - attention.mean())).sum() / length**2 / total
    return float(columns), float(max(diagonal, 0.0)), float(blocks)


def _mixture(label, rng, length, split):
    """Parts, weighted; the weights differ a little from row to row and entries by a noise of their own."""
    weights = np.array([rng.uniform(*reach) for reach in WEIGHTS[label]])
    if weights.sum() > 1:
        weights /= weights.sum()
    weights = np.append(weights, 1 - weights.sum()) * np.exp(rng.uniform(0, 1.2) * rng.standard_normal((length, 4)))
    parts = (
        vertical(rng, length, split),
        diagonal(rng, length),
        block(rng, length, split),
        content(rng, length, split, rng.uniform(0.2, 1.6 if label != HETEROGENEOUS else 5.0)),
    )
    mixed = sum(weight[:, None] * part for weight, part in zip(weights.T, parts))
    mixed *= np.exp(rng.uniform(0, 0.5) * rng.standard_normal((length, length)))
    return mixed / mixed.sum(axis=1, keepdims=True)


def vertical(rng, length, split):
    """One to four columns: delimiters first, then others; some are for one sentence only, or faint."""
    number = rng.integers(1, 5)
    delimiters = rng.permutation([0, split, length - 1])
    others = rng.permutation(length)
    columns = np.append(delimiters, others)[:number] if rng.random() < 0.75 else others[:number]
    strength = np.zeros((length, length))
    for column in columns:
        rows = slice(None)
        if number > 1 and rng.random() < 0.25:
            rows = slice(0, split + 1) if rng.random() < 0.5 else slice(split + 1, None)
        strength[rows, column] += rng.uniform(0.3, 1.0)
    if number == 4:  # stripes: what some words are to all queries
        strength += 0.15 * rng.gamma(0.3, 1.0, length)
    strength += 1e-3
    strength *= np.exp(rng.uniform(0, 0.6) * rng.standard_normal((length, length)))
    return strength / strength.sum(axis=1, keepdims=True)


def diagonal(rng, length):
    """One or two diagonals near the main one, sharp or wide, of a strength that differs from token to token.

    Some are rows of phrases, in which tokens look at each other.
    """
    offsets = rng.choice(np.arange(-2, 3), size=2 if rng.random() < 0.3 else 1, replace=False)
    width = 0.3 if rng.random() < 0.4 else rng.uniform(0.5, max(1.0, length / 10))
    power = rng.choice([1.0, 2.0])  # Laplace or Gauss
    place = np.subtract.outer(np.arange(length), np.arange(length))
    logits = np.logaddexp.reduce([-(np.abs((place + offset) / width) ** power) for offset in offsets])
    if rng.random() < 0.25:
        phrase = np.cumsum(rng.random(length) < rng.uniform(0.2, 0.5))
        logits = logits / 4 + 3.0 * (phrase[:, None] == phrase[None, :])
    logits = np.maximum(logits, -30.0) + rng.uniform(0, 1.0) * rng.standard_normal((length, length))
    return _softmax(logits + rng.uniform(0, 1.0) * rng.standard_normal(length))


def block(rng, length, split):
    """Tokens look at their own sentence, at its words more or less alike."""
    second = np.arange(length) > split
    same = second[:, None] == second[None, :]
    return _softmax(np.log(content(rng, length, split, rng.uniform(0.0, 0.9)) + 1e-9) + rng.uniform(1.5, 6.0) * same)


def content(rng, length, split, contrast):
    """Queries meet keys, `softmax(contrast * q k^T / sqrt(rank))`, of tokens that are like their neighbours or not.

    Some maps prefer the same part of the text, too loosely for a diagonal. In half of the maps the second sentence
    repeats words of the first, as paraphrases do, and tokens look at their own word and at its copy.
    """
    rank = int(rng.integers(2, 12))
    tokens = rng.standard_normal((length, rank))
    if rng.random() < 0.5:
        copies = rng.permutation(np.arange(split + 1, length))[: (length - split) // 2]
        tokens[copies] = tokens[(copies - split + rng.integers(0, 3)) % (split + 1)]
    if rng.random() < 0.5:
        reach = rng.uniform(0.5, 2.0)
        smooth = np.exp(-np.square(np.subtract.outer(np.arange(length), np.arange(length)) / reach) / 2)
        tokens = smooth @ tokens
        tokens /= tokens.std() + 1e-9
    mix = rng.standard_normal((rank, rank)) + rng.choice([0.0, 1.0]) * np.eye(rank)
    scores = tokens @ (mix / np.sqrt(rank)) @ tokens.T / np.sqrt(rank)
    scores = contrast * scores + rng.uniform(0, 0.5) * rng.standard_normal(length)
    if rng.random() < 0.4:
        distance = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
        scores = scores - distance / (rng.uniform(0.1, 0.6) * length)
    return _softmax(scores)


def _project(attention, rng, split):
    """`A T T^+` for random values `T` of fewer columns than rows: effective attention.

    Columns of delimiters are first made stronger in part of the maps, their values being nearly zero: attention that
    does nothing, which the projection takes away again.
    """
    length = len(attention)
    values = rng.standard_normal((length, max(4, int(rng.uniform(0.35, 1.0) * length))))
    # Values share directions, more or less, as those of a trained model do.
    values *= np.exp(-rng.uniform(0, 2.0) * np.linspace(0, 1, values.shape[1]))
    if rng.random() < 0.5:
        idle = np.array([0, split, length - 1])[rng.random(3) < 0.6]
        values[idle] *= 0.02
        share = rng.uniform(0.2, 0.8)
        moved = np.zeros_like(attention)
        moved[:, idle] = rng.dirichlet(np.ones(len(idle)), size=length) if len(idle) else 0.0
        attention = (1 - share) * attention + share * moved if len(idle) else attention
    basis = np.linalg.qr(values)[0]  # random values have full rank: T T^+ is the projection on their columns
    return attention @ basis @ basis.T


def _softmax(logits):
    found = np.exp(logits - logits.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)
