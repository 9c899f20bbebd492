"""Which of five patterns an attention map has: a small ConvNet, and percentages raw against effective.

References: Kovaleva et al., 2019 (arXiv:1908.08593); Sun & Marasović, 2021 (arXiv:2105.08855), section 3.1, table 2.
"""

import dataclasses
import json
from pathlib import Path

import keras
import numpy as np
from keras import ops

from keras_posenc.analysis.pattern_maps import PATTERNS, make_maps
from keras_posenc.analysis.sums import Sums
from keras_posenc.analysis.token_types import KINDS
from keras_posenc.utils.progress import Progress

SIZE = 32
BATCH = 64


def resize_maps(maps, padding_mask=None, size=SIZE):
    """Maps of any length on a grid of `size * size` cells: each cell is the mean of what it covers, without padding.

        resized = R A R^T,    R[s, k] = |[s c, (s + 1) c] and [k, k + 1]| / c,    c = n / size

    with `n` the number of real tokens and `k` the place of a token among them. Attention spread evenly gives `1 / n`
    in all cells.

    Args:
        maps: `(batch, ..., n, n)`.
        padding_mask: `(batch, n)`, 1 for tokens; no padding by default.
        size: number of cells.

    Returns: `(batch, ..., size, size)`.
    """
    maps = ops.cast(maps, "float32")
    mask = ops.ones(maps.shape[:1] + maps.shape[-1:]) if padding_mask is None else ops.cast(padding_mask, "float32")
    place = (ops.cumsum(mask, axis=1) - 1.0)[:, None, :]
    cell = ops.sum(mask, axis=1)[:, None, None] / size
    edge = ops.arange(size, dtype="float32")[None, :, None] * cell
    overlap = ops.maximum(ops.minimum(edge + cell, place + 1.0) - ops.maximum(edge, place), 0.0)
    grid = overlap * mask[:, None, :] / cell
    grid = ops.reshape(grid, (-1,) + (1,) * (len(maps.shape) - 3) + tuple(grid.shape[1:]))
    return ops.matmul(ops.matmul(grid, maps), ops.swapaxes(grid, -1, -2))


def features(maps, padding_mask=None, size=SIZE):
    """What the network sees of maps `(batch, ..., n, n)`: `(batch, ..., size, size, 2)`.

    The map in units of even attention, its logarithm taken so that faint patterns are seen beside strong ones; and
    the map in units of its largest entry, as pictures of attention show it.
    """
    resized = resize_maps(maps, padding_mask, size)
    length = maps.shape[-1] if padding_mask is None else ops.sum(ops.cast(padding_mask, "float32"), axis=1)
    even = resized * ops.reshape(ops.cast(length, "float32"), (-1,) + (1,) * (len(resized.shape) - 1))
    largest = ops.max(ops.abs(resized), axis=(-2, -1), keepdims=True)
    return ops.stack([ops.sign(even) * ops.log1p(ops.abs(even)), resized / (largest + 1e-9)], axis=-1)


@dataclasses.dataclass
class PatternReport:
    """Held-out maps: what they are and what was said.

    Attributes:
        confusion: dict of `(5, 5)` counts, by true pattern and answer, for `"raw"` and `"effective"` maps made by code
            and `"labelled"` ones of the user, where there are any.
    """

    confusion: dict

    @property
    def accuracy(self):
        """Dict of the share of right answers for each kind, and for `"all"` maps made by code."""
        made = sum(table for kind, table in self.confusion.items() if kind != "labelled")
        return {
            kind: float(np.trace(table) / max(table.sum(), 1))
            for kind, table in {"all": made, **self.confusion}.items()
        }

    def rows(self):
        """One per kind and true pattern."""
        return [
            {"maps": kind, "pattern": name, **{f"as_{other}": int(n) for other, n in zip(PATTERNS, row)}}
            for kind, table in self.confusion.items()
            for name, row in zip(PATTERNS, table)
        ]


class PatternClassifier:
    """Tells the pattern of attention maps. Make one with `train` or `load`.

    Example:

        classifier = PatternClassifier.train()
        print(classifier.report.accuracy)
        labels = classifier.classify(attention, padding_mask)       # indices into PATTERNS
    """

    def __init__(self, network, report=None):
        self.network, self.report = network, report
        self.size = network.input_shape[1]

    @classmethod
    def train(cls, number=3000, labelled=None, epochs=12, seed=0, held_out=0.2, size=SIZE, progress=False):
        """A network trained on maps made by code, and on labelled ones where given.

        Args:
            number: of maps made by code.
            labelled: `(maps, labels)`, or `(maps, labels, padding_mask)` if the maps are one array with padding: maps
                `(n, n)` of any lengths and indices into `PATTERNS` (or their names).
            epochs: passes over all maps.
            seed: of maps and weights: the same seed gives the same network on the same machine.
            held_out: share of maps not trained on, of which the report is. Of the user's maps of a pattern it is every
                so many-th, as neighbours may be of one text: at least one, if there are two or more.
            size: of the grid that maps are resized to.
            progress: whether to show it.
        """
        made = make_maps(number, seed)
        x, y, kind = _features_of(made.maps, size), made.labels, np.where(made.effective, "effective", "raw")
        if labelled is not None:
            maps, labels = _labelled(*labelled)
            x, y = np.concatenate([x, _features_of(maps, size)]), np.concatenate([y, labels])
            kind = np.concatenate([kind, np.full(len(labels), "labelled")])
        held = np.zeros(len(y), bool)
        for name in np.unique(kind):
            for label in range(len(PATTERNS)):
                where = np.flatnonzero((kind == name) & (y == label))
                held[where[_held_out(len(where), held_out, name)]] = True
        network = _network(size, seed, steps=epochs * -(-int((~held).sum()) // BATCH))
        rng = np.random.default_rng(seed)
        bar = Progress(epochs) if progress else None
        for _ in range(epochs):
            order = rng.permutation(np.flatnonzero(~held))
            for begin in range(0, len(order), BATCH):
                batch = order[begin : begin + BATCH]
                loss = network.train_on_batch(x[batch], y[batch])
            if bar is not None:
                bar.step(f"pattern classifier, loss {float(loss):.3f}")
        made = cls(network)
        answers = made._predict(x[held]).argmax(axis=-1)
        tables = {}
        for name in [k for k in (*KINDS, "labelled") if (kind[held] == k).any()]:
            tables[name] = np.zeros((len(PATTERNS),) * 2, int)
            np.add.at(tables[name], (y[held][kind[held] == name], answers[kind[held] == name]), 1)
        made.report = PatternReport(tables)
        return made

    def probabilities(self, maps, padding_mask=None):
        """`(batch, ..., 5)` for maps `(batch, ..., n, n)`."""
        found = ops.convert_to_numpy(features(maps, padding_mask, self.size))
        lead, cells = found.shape[:-3], found.shape[-3:]
        return self._predict(found.reshape(-1, *cells)).reshape(*lead, len(PATTERNS))

    def classify(self, maps, padding_mask=None):
        """Indices into `PATTERNS`, `(batch, ...)`, of maps `(batch, ..., n, n)` with padding mask `(batch, n)`."""
        return self.probabilities(maps, padding_mask).argmax(axis=-1)

    def _predict(self, x, batch_size=512):
        parts = [self.network(x[i : i + batch_size], training=False) for i in range(0, len(x), batch_size)]
        return np.concatenate([ops.convert_to_numpy(part) for part in parts])

    def save(self, path):
        """Writes the network to `path` (`.keras`) and its report beside it (`.json`)."""
        self.network.save(path)
        tables = {} if self.report is None else {k: v.tolist() for k, v in self.report.confusion.items()}
        Path(path).with_suffix(".json").write_text(json.dumps({"confusion": tables}) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path):
        """What `save` wrote."""
        file = Path(path).with_suffix(".json")
        tables = json.loads(file.read_text(encoding="utf-8"))["confusion"] if file.is_file() else {}
        report = PatternReport({k: np.array(v) for k, v in tables.items()}) if tables else None
        return cls(keras.models.load_model(path), report)


def _network(size, seed, steps):
    seeds = iter(range(1000 * seed, 1000 * seed + 100))
    layers = [keras.Input((size, size, 2))]
    for filters, kernel in ((16, 5), (32, 3), (32, 3)):
        start = keras.initializers.HeNormal(next(seeds))
        layers.append(keras.layers.Conv2D(filters, kernel, padding="same", activation="relu", kernel_initializer=start))
        layers.append(keras.layers.MaxPooling2D())
    layers += [keras.layers.Flatten(), keras.layers.Dropout(0.3, seed=next(seeds))]
    for units, activation in ((64, "relu"), (len(PATTERNS), "softmax")):
        start = keras.initializers.GlorotUniform(next(seeds))
        layers.append(keras.layers.Dense(units, activation=activation, kernel_initializer=start))
    network = keras.Sequential(layers, name="patterns")
    rate = keras.optimizers.schedules.CosineDecay(2e-3, max(steps, 1))
    network.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    return network


def _held_out(number, share, kind):
    """Which of so many maps are held out. Those made by code are in random order, the user's may be in any."""
    count = round(share * number)
    if kind != "labelled":
        return np.arange(count)
    if share > 0:
        count = min(max(count, 1), number - 1)
    return ((np.arange(count) + 0.5) * number / max(count, 1)).astype(int)


def _features_of(maps, size):
    """Features of maps of different lengths, padded to one."""
    length = max(len(each) for each in maps)
    found = []
    for begin in range(0, len(maps), 256):
        part = maps[begin : begin + 256]
        padded, mask = np.zeros((len(part), length, length), "float32"), np.zeros((len(part), length), "float32")
        for row, each in enumerate(part):
            padded[row, : len(each), : len(each)], mask[row, : len(each)] = each, 1.0
        found.append(ops.convert_to_numpy(features(padded, mask, size)))
    return np.concatenate(found)


def _labelled(maps, labels, padding_mask=None):
    """Maps without their padding, and labels as numbers."""
    if len(maps) != len(labels) or not len(maps):
        raise ValueError(f"Each labelled map needs a label. Received: {len(maps)} maps and {len(labels)} labels")
    maps = [np.asarray(each, "float32") for each in maps]
    if padding_mask is not None:
        maps = [each[np.ix_(real, real)] for each, real in zip(maps, np.asarray(padding_mask, bool))]
    for index, each in enumerate(maps):
        if each.ndim != 2 or each.shape[0] != each.shape[1]:
            raise ValueError(f"Labelled maps are (n, n). Received: map {index} of shape {each.shape}")
    known = [PATTERNS.index(label) if label in PATTERNS else label for label in np.asarray(labels).tolist()]
    unknown = [label for label in known if label not in range(len(PATTERNS))]
    if unknown:
        raise ValueError(f"Labels are {', '.join(PATTERNS)}, or their numbers from 0. Received: {unknown[0]!r}")
    return maps, np.array(known, int)


@dataclasses.dataclass
class PatternResult:
    """Counts of patterns: `counts[task]` is `(kinds, layers, patterns)`, kinds being raw and effective."""

    counts: dict

    def percentages(self, task):
        """`(kinds, patterns)`, over all layers and heads: a row of table 2 of Sun & Marasović for each kind."""
        counts = self.counts[task].sum(axis=1)
        return 100 * counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)

    def by_layer(self, task):
        """`(kinds, layers, patterns)`, in percent."""
        counts = self.counts[task]
        return 100 * counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)

    def rows(self):
        """One per task, kind and layer, and one for all layers."""
        rows = []
        for task in self.counts:
            layers = [("all", self.percentages(task))]
            layers += [(layer + 1, self.by_layer(task)[:, layer]) for layer in range(self.counts[task].shape[1])]
            for layer, table in layers:
                for kind, values in zip(KINDS, table):
                    shown = {name: float(value) for name, value in zip(PATTERNS, values)}
                    rows.append({"task": task, "attention": kind, "layer": layer, **shown})
        return rows


class PatternCounts(Sums):
    """How often each pattern occurs, by task and layer, raw against effective."""

    def add(self, raw, effective, task="text"):
        """Labels of a batch, `(batch, layers, heads)` each, as `PatternClassifier.classify` gives them."""
        labels = np.stack([np.asarray(raw), np.asarray(effective)])
        if labels.ndim != 4:
            raise ValueError(f"PatternCounts takes labels (batch, layers, heads). Received: {labels.shape[1:]}")
        self._add(**{task: (labels[..., None] == np.arange(len(PATTERNS))).sum(axis=(1, 3))})

    def result(self):
        self._needs_batches()
        return PatternResult(dict(self.state))
