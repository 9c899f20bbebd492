"""Ranks of attention matrices, of positional attention matrices, and what bounds them (DIET, theorem 1).

DIET's figures 2 and 8 count ranks and do not say where a singular value counts as zero. Here it does at
`n eps s_max`, NumPy's cut, with the `eps` of float32, in which models compute: what is below cannot be told from
rounding. `tolerance` sets another cut as a share of `s_max`: 0.01 asks how many directions matter.
"""

import contextlib
import dataclasses

import numpy as np
from keras import ops

from keras_posenc.analysis.sums import Sums
from keras_posenc.conversion import profile
from keras_posenc.conversion.profile import attention_encodings, get_backbone, to_numpy
from keras_posenc.utils import checks
from keras_posenc.utils.progress import Progress

KINDS = ("scores", "attention")


def singular_values(matrices):
    """Singular values of `(..., m, n)`, largest first. Rows and columns of zeros (padding) only add zeros."""
    return np.linalg.svd(np.asarray(matrices, "float64"), compute_uv=False)


def numerical_rank(matrices, tolerance=None, length=None):
    """Number of singular values above the cut, `(...)`.

    Args:
        matrices: `(..., m, n)`.
        tolerance: the cut as a share of the largest singular value, `length * eps` of float32 by default.
        length: number of rows and columns that count, the larger of `m` and `n` by default; an array for a batch.
    """
    matrices = np.asarray(matrices)
    length = max(matrices.shape[-2:]) if length is None else length
    return _count(singular_values(matrices), tolerance, length)


def _count(values, tolerance, length):
    share = np.asarray(length) * np.finfo("float32").eps if tolerance is None else np.asarray(tolerance)
    return (values > share[..., None] * values[..., :1]).sum(axis=-1)


# Attention matrices on texts (figure 2)


@dataclasses.dataclass
class AttentionRanks:
    """Ranks of attention matrices.

    Attributes:
        ranks: `(texts, layers, heads)`.
        lengths: `(texts,)`, number of tokens, the largest rank there can be.
        kind: `"scores"` (before the softmax) or `"attention"` (after it).
        bounds: `(layers, heads)` of `rank_bounds`, or `None`.
    """

    ranks: np.ndarray
    lengths: np.ndarray
    kind: str = "scores"
    bounds: np.ndarray | None = None

    def rows(self):
        mean, low, high = self.ranks.mean(axis=0), self.ranks.min(axis=0), self.ranks.max(axis=0)
        share = (self.ranks / self.lengths[:, None, None]).mean(axis=0)
        return [
            {
                "kind": self.kind,
                "layer": layer + 1,
                "head": head + 1,
                "mean_rank": float(mean[layer, head]),
                "min_rank": int(low[layer, head]),
                "max_rank": int(high[layer, head]),
                "share_of_length": float(share[layer, head]),
                "bound": None if self.bounds is None else int(self.bounds[layer, head]),
                "texts": len(self.lengths),
            }
            for layer, head in np.ndindex(*mean.shape)
        ]


class RankSeries(Sums):
    """Collects `AttentionRanks` over batches: `add` for each, then `result`."""

    series = ("ranks", "lengths")

    def __init__(self, kind="scores", tolerance=None):
        super().__init__(kind=checks.one_of("RankSeries", "kind", kind, KINDS), tolerance=tolerance)

    def add(self, maps, padding_mask=None):
        """`maps (batch, layers, heads, n, n)`, or a list of `(batch, heads, n, n)`; `padding_mask (batch, n)`."""
        layers, real = split_layers(maps, padding_mask)
        pairs = (real[:, :, None] * real[:, None, :])[:, None]
        lengths = real.sum(axis=1).astype("int64")
        cut = self.settings["tolerance"]
        ranks = [_count(singular_values(layer * pairs), cut, lengths[:, None]) for layer in layers]
        self._add(ranks=np.stack(ranks, axis=1), lengths=lengths)

    def result(self, bounds=None):
        """`AttentionRanks`, with `bounds` where they are known."""
        self._needs_batches()
        ranks, lengths = (self.state[name].astype("int64") for name in ("ranks", "lengths"))
        return AttentionRanks(ranks, lengths, self.settings["kind"], bounds)


def attention_ranks(model, batches, kind="scores", tolerance=None, progress=False):
    """Ranks of the attention matrices of a model on texts.

    Args:
        model: a `Bert`, or a model with a head around one.
        batches: a list of its inputs.
        kind: `"scores"`, which DIET counts, or `"attention"`, their softmax.
        tolerance: see `numerical_rank`.
        progress: whether to show a progress bar.

    Returns: `AttentionRanks`, with bounds for scores.
    """
    checks.one_of("attention_ranks", "kind", kind, KINDS)
    backbone = get_backbone(model)
    longest = max(np.shape(inputs["token_ids"])[1] for inputs in batches)
    found = RankSeries(kind, tolerance)
    with Progress(len(batches)) if progress else contextlib.nullcontext() as bar:
        for inputs in batches:
            if kind == "scores":
                maps = attention_scores(model, inputs)
            else:
                maps = backbone(inputs, return_intermediates=True)["attention"]
            found.add(maps, inputs.get("padding_mask"))
            if bar is not None:
                bar.step(f"ranks of {kind}")
    return found.result(rank_bounds(model, longest) if kind == "scores" else None)


def attention_scores(model, inputs):
    """What the softmax of each layer gets, before masks: a list of `(batch, heads, n, n)`, whatever the encoding."""
    backbone = get_backbone(model)
    encoder = backbone.encoder
    if encoder.num_keys is not None:
        raise ValueError("The keys of a Linformer are compressed. Use kind='attention' or look at its maps.")
    states = backbone(inputs, return_intermediates=True)["hidden_states"]
    n = states[0].shape[1]
    segment_ids = None
    if encoder.num_segments is not None:
        given = inputs.get("segment_ids")
        segment_ids = ops.zeros(states[0].shape[:2], "int32") if given is None else ops.convert_to_tensor(given)
    handed = encoder.handed_positions(n, n, 0, segment_ids, False)
    found = []
    for index, block in enumerate(encoder.block_of_each_layer()):
        attention = block.attention
        positions = handed[0 if encoder.sharing == "layer" else index] if handed else attention.position.at(n)
        x = block.attention_norm(states[index]) if block.norm_first else states[index]
        query, key = (
            None if dense is None else ops.transpose(dense(x), (0, 2, 1, 3))
            for dense in (attention.query_dense, attention.key_dense)
        )
        if query is not None:
            query = query * profile.query_scale(encoder, index)
        query, key, _ = positions.transform(query, key, None)
        scores = positions.scores(query, key)
        own = attention.segment_bias
        biases = [positions.bias, positions.segment_bias, None if own is None else own(segment_ids)]
        for bias in biases:
            scores = scores if bias is None else scores + ops.cast(bias, scores.dtype)
        found.append(ops.broadcast_to(scores, (x.shape[0], attention.num_heads, n, n)))
    return found


def rank_bounds(model, length):
    """The largest rank that the scores of each layer and head can have on `length` tokens, `(layers, heads)`.

    Theorem 1 of DIET: queries and keys of `d_h` numbers give rank `d_h` at most, with positions at the input too. A
    bias adds its own rank, for DIET-ABS `d_p` at most, and segments add the rank of their table. Encodings that
    compute the content score themselves (Shaw, Transformer-XL, Synthesizer) are bounded by the length only.
    """
    encoder = get_backbone(model).encoder
    bounds = np.full((encoder.num_layers, encoder.num_heads), length)
    for layer, (block, encoding) in enumerate(zip(encoder.block_of_each_layer(), attention_encodings(encoder))):
        doors = () if encoding is None else encoding.doors
        if "scores" in doors:
            continue
        rank = np.full(encoder.num_heads, block.attention.key_dim)
        if "bias" in doors:
            rank = rank + numerical_rank(to_numpy(encoding.at(length).bias)[0])
        if encoder.num_segments is not None:
            rank = rank + encoder.num_segments
        bounds[layer] = np.minimum(rank, length)
    return bounds


# Positional attention matrices (figure 8)


@dataclasses.dataclass
class PositionalRanks:
    """Ranks of what positions alone add to the scores.

    Attributes:
        ranks: `(layers, heads)`.
        spectrum: `(layers, heads, n)`, singular values over the largest.
        head_size: `d_h`, the bound of positions at the input.
    """

    ranks: np.ndarray
    spectrum: np.ndarray
    head_size: int

    def rows(self):
        n = self.spectrum.shape[-1]
        matter = (self.spectrum > 0.01).sum(axis=-1)
        return [
            {
                "layer": layer + 1,
                "head": head + 1,
                "rank": int(self.ranks[layer, head]),
                "above_one_percent": int(matter[layer, head]),
                "head_size": self.head_size,
                "length": n,
            }
            for layer, head in np.ndindex(*self.ranks.shape)
        ]


def positional_matrices(model, length=None):
    """The positional attention matrices of all layers and heads, `(layers, heads, n, n)`.

    The bias where the model has one (`P_Q P_K^T` for DIET-ABS), `P W_Q W_K^T P^T / sqrt(d_h)` where positions are
    added at the input, the sum where it has both. In layers behind the first the input's positions are those that the
    residual connections carry there.
    """
    backbone = get_backbone(model)
    encoder = backbone.encoder
    profile.check_source(encoder)
    length = encoder.max_length if length is None else checks.positive_int("positional_matrices", "length", length)
    total = np.zeros((encoder.num_layers, encoder.num_heads, length, length))
    for layer, bias in enumerate(profile.attention_biases(encoder, length)):
        total[layer] += bias
    if encoder.input_positions:
        table = profile.position_table(backbone, length)
        if encoder.input_projection is not None:
            table = table @ to_numpy(encoder.input_projection.kernel)
        for layer, block in enumerate(encoder.block_of_each_layer()):
            dense = (block.attention.query_dense, block.attention.key_dense)
            query, key = (np.einsum("nc,chd->hnd", table, to_numpy(part.kernel)) for part in dense)
            total[layer] += query @ key.swapaxes(-1, -2) * profile.query_scale(encoder, layer)
    return total


def positional_ranks(model, length=None, tolerance=None):
    """`PositionalRanks` of a model whose positions enter at the input or as a bias, over `length` positions."""
    matrices = positional_matrices(model, length)
    values = singular_values(matrices)
    largest = values[..., :1]
    spectrum = values / np.where(largest > 0, largest, 1)
    ranks = _count(values, tolerance, matrices.shape[-1])
    return PositionalRanks(ranks, spectrum, get_backbone(model).encoder.blocks[0].attention.key_dim)


def split_layers(maps, padding_mask=None):
    """Maps as a list of float64 `(batch, heads, n, n)` per layer, and which tokens are real, `(batch, n)`."""
    if not isinstance(maps, (list, tuple)):
        maps = ops.convert_to_numpy(maps)
        maps = list(maps.swapaxes(0, 1)) if maps.ndim == 5 else [maps]
    maps = [to_numpy(layer) for layer in maps]
    shape = maps[0].shape
    if len(shape) != 4 or shape[-1] != shape[-2]:
        raise ValueError(
            "Attention maps are (batch, layers, heads, n, n), or a list of (batch, heads, n, n) per layer. "
            f"Received: shape={shape}"
        )
    real = np.ones((shape[0], shape[-1])) if padding_mask is None else to_numpy(padding_mask)
    if real.shape != (shape[0], shape[-1]):
        raise ValueError(f"`padding_mask` must be of shape {(shape[0], shape[-1])}. Received: shape={real.shape}")
    return maps, real
