"""How alike two sets of attention maps are: raw and effective, before and after fine-tuning.

References: Brunner et al., 2020 (arXiv:1908.04211), section 3.5 and figure 1a; Sun & Marasović, 2021
(arXiv:2105.08855), section 3.3 and figure 3.
"""

import dataclasses

import numpy as np
from keras import ops

from keras_posenc.analysis.sums import Sums


def pearson(first, second, padding_mask=None):
    """Pearson correlation of two attention maps, over all pairs of real tokens.

        r = sum (a - mean a)(b - mean b) / sqrt(sum (a - mean a)^2 sum (b - mean b)^2)

    over the `n * n` entries of the flattened maps, `n` being the number of tokens that are no padding.

    Args:
        first, second: `(batch, ..., n, n)`.
        padding_mask: `(batch, n)`, 1 for tokens; no padding by default.

    Returns: `(batch, ...)`; NaN where a map is constant.
    """
    first, second, real = _pair(first, second, padding_mask)
    entries = ops.sum(real, axis=(-2, -1), keepdims=True)
    return _ratio(*(_centred(x * real, entries) * real for x in (first, second)))


def _centred(maps, entries):
    mean = ops.sum(maps, axis=(-2, -1), keepdims=True) / entries
    # What rounding leaves of a constant map is no variation.
    return ops.where(ops.abs(maps - mean) > 1e-6 * ops.abs(mean), maps - mean, 0.0)


def cosine(first, second, padding_mask=None):
    """Cosine similarity of two flattened attention maps, over all pairs of real tokens. As `pearson`, not centred."""
    first, second, real = _pair(first, second, padding_mask)
    return _ratio(first * real, second * real)


def _pair(first, second, padding_mask):
    first, second = ops.cast(first, "float32"), ops.cast(second, "float32")
    if tuple(first.shape) != tuple(second.shape):
        raise ValueError(
            f"Attention maps are compared entry by entry and need one shape. Received: {tuple(first.shape)} and "
            f"{tuple(second.shape)}"
        )
    if padding_mask is None:
        return first, second, ops.ones_like(first)
    mask = ops.cast(padding_mask, "float32")
    real = mask[:, :, None] * mask[:, None, :]
    shape = (-1,) + (1,) * (len(first.shape) - 3) + (first.shape[-2], first.shape[-1])
    return first, second, ops.reshape(real, shape)


def _ratio(first, second):
    product, one, two = (ops.sum(x * y, axis=(-2, -1)) for x, y in ((first, second), (first, first), (second, second)))
    # Roots before the product: effective attention can be so small that the product of squares underflows.
    norm = ops.sqrt(one) * ops.sqrt(two)
    return ops.where(norm > 0, ops.clip(product / ops.where(norm > 0, norm, 1.0), -1.0, 1.0), float("nan"))


def stacked(owner, name, maps):
    """`maps` as a tensor `(batch, layers, heads, n, n)`; anything else is an error."""
    shape = tuple(np.shape(maps))
    if len(shape) != 5 or shape[-1] != shape[-2]:
        raise ValueError(
            f"{owner}: `{name}` must have the shape (batch, layers, heads, n, n): stack the layers of a model on axis "
            f"1. Received: {shape}"
        )
    return ops.cast(maps, "float32")


@dataclasses.dataclass
class CorrelationResult:
    """Raw against effective attention.

    Attributes:
        lengths: `(sentences,)`, numbers of real tokens.
        correlation: `(sentences, layers, heads)`, NaN where a map is constant.
    """

    lengths: np.ndarray
    correlation: np.ndarray

    def by_length(self):
        """Dict from length to the correlations of that length, `(sentences, layers, heads)`, by increasing length."""
        return {int(n): self.correlation[self.lengths == n] for n in np.unique(self.lengths)}

    def rows(self):
        """One per length and layer: mean, smallest and largest correlation over sentences and heads."""
        rows = []
        for length, found in self.by_length().items():
            for layer in range(found.shape[1]):
                values = found[:, layer][np.isfinite(found[:, layer])]
                mean, low, high = (values.mean(), values.min(), values.max()) if values.size else (np.nan,) * 3
                row = {"length": length, "layer": layer + 1, "sentences": len(found)}
                rows.append({**row, "mean": float(mean), "smallest": float(low), "largest": float(high)})
        return rows


class CorrelationByLength(Sums):
    """Pearson correlation of raw and effective attention, per sentence, layer and head, with the sentence's length.

    Up to the size of a head there is no null space and the correlation is 1; beyond, it falls (Brunner, figure 1a).
    """

    series = ("lengths", "correlation")

    def add(self, attention, effective, padding_mask=None):
        """A batch: raw and effective maps `(batch, layers, heads, n, n)`, and its padding mask `(batch, n)`."""
        attention = stacked("CorrelationByLength", "attention", attention)
        effective = stacked("CorrelationByLength", "effective", effective)
        found = ops.convert_to_numpy(pearson(attention, effective, padding_mask))
        batch, n = attention.shape[0], attention.shape[-1]
        lengths = np.full(batch, n) if padding_mask is None else ops.convert_to_numpy(padding_mask).sum(axis=1)
        self._add(lengths=lengths, correlation=found)

    def result(self):
        self._needs_batches()
        return CorrelationResult(self.state["lengths"].astype(int), self.state["correlation"])


@dataclasses.dataclass
class SimilarityResult:
    """Attention before against after fine-tuning.

    Attributes:
        similarity: dict of `(layers, heads)`: mean cosine similarity over sentences, for `"raw"` and, where it was
            given, `"effective"`.
        spread: the same for the standard deviation over sentences.
        sentences: how many.
    """

    similarity: dict
    spread: dict
    sentences: int

    def rows(self):
        """One per kind, layer and head."""
        return [
            {
                "attention": kind,
                "layer": layer + 1,
                "head": head + 1,
                "cosine": float(value),
                "deviation": float(self.spread[kind][layer, head]),
            }
            for kind, values in self.similarity.items()
            for (layer, head), value in np.ndenumerate(values)
        ]


class SimilarityOfModels(Sums):
    """Mean cosine similarity of the flattened attention maps of two models on the same inputs, per layer and head.

    The layers whose maps change most are those with the features of the task. A map that is all zero has no direction,
    and is left out of the mean.
    """

    def __init__(self, effective=True):
        super().__init__(effective=bool(effective))

    def add(self, before, after, padding_mask=None, effective_before=None, effective_after=None):
        """A batch.

        Args:
            before, after: raw maps `(batch, layers, heads, n, n)` of the two models.
            padding_mask: `(batch, n)`.
            effective_before, effective_after: their effective maps; needed unless made with `effective=False`.
        """
        pairs = {"raw": (before, after)}
        if self.settings["effective"]:
            if effective_before is None or effective_after is None:
                raise ValueError(
                    "SimilarityOfModels: pass `effective_before` and `effective_after`, or make it with "
                    "`effective=False`."
                )
            pairs["effective"] = (effective_before, effective_after)
        for kind, pair in pairs.items():
            maps = (stacked("SimilarityOfModels", f"{kind} maps", x) for x in pair)
            found = ops.convert_to_numpy(cosine(*maps, padding_mask)).astype("float64")
            known = np.isfinite(found)
            found = np.where(known, found, 0.0)
            self._add(
                **{
                    f"{kind}_sum": found.sum(axis=0),
                    f"{kind}_squares": np.square(found).sum(axis=0),
                    f"{kind}_count": known.sum(axis=0),
                }
            )
        self._add(sentences=len(found))

    def result(self):
        self._needs_batches()
        kinds = ("raw", "effective") if self.settings["effective"] else ("raw",)
        similarity, spread = {}, {}
        for kind in kinds:
            count = self.state[f"{kind}_count"]
            count = np.where(count > 0, count, np.nan)
            similarity[kind] = self.state[f"{kind}_sum"] / count
            variance = self.state[f"{kind}_squares"] / count - np.square(similarity[kind])
            spread[kind] = np.sqrt(np.maximum(variance, 0.0))
        return SimilarityResult(similarity, spread, int(self.state["sentences"]))
