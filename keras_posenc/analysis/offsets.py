"""Attention maps of many texts by the distance of query and key, and between segments.

Reference: DIET (Chen et al., 2021, arXiv:2104.08698), appendix C; shifting patterns in the maps themselves.
"""

import dataclasses

import numpy as np

from keras_posenc.analysis.ranks import split_layers
from keras_posenc.analysis.structure import rows_by_head
from keras_posenc.analysis.sums import Sums
from keras_posenc.conversion import toeplitz
from keras_posenc.utils import checks


@dataclasses.dataclass
class OffsetAttention:
    """Attention maps of many texts by the offset `j - i` of key and query.

    Attributes:
        offsets: `-reach .. reach`.
        mean: `(layers, heads, offsets)`, attention to the key at that offset, over all queries that have one; NaN if
            no text was long enough.
        to_first: `(layers, heads)`, mean attention of the other tokens to position 0, [CLS].
        r2, r2_without_first: `(layers, heads)`, mean over texts of the share of a map's variance that offsets explain,
            with and without position 0.
    """

    offsets: np.ndarray
    mean: np.ndarray
    to_first: np.ndarray
    r2: np.ndarray
    r2_without_first: np.ndarray

    def rows(self):
        by_offset = {f"offset_{k:+d}": self.mean[..., i] for i, k in enumerate(self.offsets)}
        names = ("r2", "r2_without_first", "to_first")
        return rows_by_head({**{name: getattr(self, name) for name in names}, **by_offset})


class AttentionByOffset(Sums):
    """Collects an `OffsetAttention` over batches: `add` for each, then `result`."""

    def __init__(self, reach=12):
        super().__init__(reach=checks.positive_int("AttentionByOffset", "reach", reach))
        self.reach = reach

    def add(self, attention, padding_mask=None):
        """`attention (batch, layers, heads, n, n)`, or a list of `(batch, heads, n, n)`; `padding_mask (batch, n)`."""
        layers, real = split_layers(attention, padding_mask)
        n = real.shape[1]
        pairs = (real[:, :, None] * real[:, None, :])[:, None]
        later = pairs * (np.arange(n) > 0) * (np.arange(n) > 0)[:, None]
        middle = slice(n - 1 - min(self.reach, n - 1), n + min(self.reach, n - 1))
        pad = [(0, 0), (max(0, self.reach - n + 1),) * 2]
        found = []
        for maps in layers:
            r2, sums = _explained_by_offset(maps, pairs)
            without_first, _ = _explained_by_offset(maps, later)
            column = (maps[..., 1:, 0] * pairs[..., 1:, 0]).sum(axis=(0, -1))
            found.append((r2.sum(0), without_first.sum(0), column, np.pad(sums.sum(0)[:, middle], pad)))
        r2, without_first, column, sums = (np.stack(parts) for parts in zip(*found))
        number = np.pad(toeplitz.diagonal_sums(pairs).sum(0)[:, middle], pad)[0]
        self._add(r2=r2, without_first=without_first, column=column, sums=sums, number=number)
        self._add(texts=len(real), queries=real[:, 1:].sum())

    def result(self):
        self._needs_batches()
        names = ("r2", "without_first", "column", "sums", "number", "texts", "queries")
        r2, without_first, column, sums, number, texts, queries = (self.state[name] for name in names)
        mean = np.where(number > 0, sums / np.where(number > 0, number, 1), np.nan)
        offsets = np.arange(-self.reach, self.reach + 1)
        return OffsetAttention(offsets, mean, column / max(queries, 1), r2 / texts, without_first / texts)


def _explained_by_offset(maps, used):
    """Share of the variance of the entries `used` of each map that their offset explains, and sums by offset."""
    maps = maps * used
    sums, number = toeplitz.diagonal_sums(maps), toeplitz.diagonal_sums(used)
    squares, count = np.square(maps).sum(axis=(-2, -1)), used.sum(axis=(-2, -1))
    total = squares - np.square(maps.sum(axis=(-2, -1))) / np.maximum(count, 1)
    rest = squares - (np.square(sums) / np.maximum(number, 1)).sum(axis=-1)
    varies = total > 1e-12 * squares
    return np.where(varies, 1 - rest / np.where(varies, total, 1), 1.0), sums


@dataclasses.dataclass
class SegmentAttention:
    """Attention between segments.

    Attributes:
        mass: `(layers, heads, segments, segments)`: how much of the attention of tokens of segment `s` is on `t`.
        uniform: `(segments, segments)`: how much it would be if all tokens were attended to alike.
    """

    mass: np.ndarray
    uniform: np.ndarray

    def rows(self):
        names = list(np.ndindex(*self.uniform.shape))
        mass = {f"from_{s}_to_{t}": self.mass[..., s, t] for s, t in names}
        uniform = {f"uniform_from_{s}_to_{t}": float(self.uniform[s, t]) for s, t in names}
        return [{**row, **uniform} for row in rows_by_head(mass)]


class AttentionBySegment(Sums):
    """Collects a `SegmentAttention` over batches: `add` for each, then `result`."""

    def __init__(self, num_segments=2):
        super().__init__(num_segments=checks.positive_int("AttentionBySegment", "num_segments", num_segments))
        self.num_segments = num_segments

    def add(self, attention, segment_ids, padding_mask=None):
        """As `AttentionByOffset.add`, with `segment_ids (batch, n)`."""
        layers, real = split_layers(attention, padding_mask)
        segment_ids = np.asarray(segment_ids)
        if segment_ids.shape != real.shape or segment_ids.max() >= self.num_segments:
            raise ValueError(
                f"`segment_ids` must be of shape {real.shape} and below num_segments={self.num_segments}. "
                f"Received: shape={segment_ids.shape}, largest={segment_ids.max()}"
            )
        member = np.eye(self.num_segments)[segment_ids] * real[..., None]
        masses = [(member.swapaxes(1, 2)[:, None] @ maps @ member[:, None]).sum(axis=0) for maps in layers]
        share = member.sum(axis=1) / np.maximum(real.sum(axis=1, keepdims=True), 1)
        self._add(mass=np.stack(masses), uniform=member.sum(axis=1).T @ share, tokens=member.sum(axis=(0, 1)))

    def result(self):
        self._needs_batches()
        mass, uniform, tokens = (self.state[name] for name in ("mass", "uniform", "tokens"))
        tokens = np.maximum(tokens, 1)[:, None]
        return SegmentAttention(mass / tokens, uniform / tokens)
