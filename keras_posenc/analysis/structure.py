"""What positions look like in a model: at the input, in the scores, in the attention, between segments.

The figures of TISA (section 3, appendix B) and of DIET (section 4.4, appendix C). Functions take arrays, or a built
model of this library. Results have `rows()`, a list of flat dicts.
"""

import dataclasses

import numpy as np
from keras import ops

from keras_posenc.conversion import profile, toeplitz
from keras_posenc.conversion.profile import get_backbone, positional_profiles, to_numpy
from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.folding import position_encodings
from keras_posenc.utils import checks

LENGTHS = (128, 256, 512)
SEEDS = 5


def input_positions(source, length=None):
    """`E_P (n, width)`, what is added to the token embeddings.

    Args:
        source: the array itself, an encoding, or a model or layer with encodings at its input. Where one stack of
            layers has several, they are added, as the model does; of an encoder and a decoder the first one counts.
        length: number of positions; by default all that the source has, or 512 where it has no limit.
    """
    if not hasattr(source, "trainable_weights"):
        table = np.asarray(ops.convert_to_numpy(source), "float64")
        if table.ndim != 2:
            raise ValueError(f"Position embeddings are a matrix (positions, width). Received: shape={table.shape}")
        checks.at_most(
            length or 1,
            len(table),
            lambda got: f"The table has {len(table)} positions, but {got} were asked for. Pass a smaller length.",
        )
        return table[:length]
    encodings = _encodings_at_input(source)
    limits = [e.max_length for e in encodings if "max_length" in e.needs]
    length = length or (min(limits) if limits else getattr(encodings[0], "max_length", None) or max(LENGTHS))
    return sum(to_numpy(encoding.embedding(length)) for encoding in encodings)


def _encodings_at_input(source):
    if isinstance(source, PositionEncoding):
        found = [source]
    else:
        stacks = [s.input_positions for s in source._flatten_layers() if getattr(s, "input_positions", None)]
        found = stacks[0] if stacks else position_encodings(source)
    at_input = [encoding for encoding in found if "embed" in encoding.doors]
    if not at_input:
        inside = sorted({type(encoding).__name__ for encoding in found if encoding.doors}) or ["none"]
        raise ValueError(
            f"'{source.name}' adds no position embeddings to its input (its positions: {', '.join(inside)}), so there "
            "is no E_P to look at. What positions add inside attention is in `position_shifts`."
        )
    if not all(encoding.built for encoding in at_input):
        raise ValueError(f"'{source.name}' has no weights yet. Call `build()` or call it on inputs first.")
    return at_input


# E_P E_P^T (TISA, section 3.1)


@dataclasses.dataclass
class PositionGram:
    """The inner products of position embeddings and how far they depend on the distance only.

    Attributes:
        matrix: `E_P E_P^T (n, n)`.
        width: of the embeddings.
        scores: a dict per length, see `rows`.
    """

    matrix: np.ndarray
    width: int
    scores: list

    def rows(self):
        """For each length: `r2` (TISA's), `r2_off_diagonal`, both also `_without_first` position, and what random
        embeddings of the same shape give: `random_r2`, `random_r2_off_diagonal` and their deviations, `..._sd`."""
        return [dict(score) for score in self.scores]


def position_gram(source, lengths=None, seeds=SEEDS):
    """`E_P E_P^T` of position embeddings and its Toeplitz `R^2` over the first 128, 256, 512 positions and all.

    The `R^2` of TISA, equations 6 to 8, counts the main diagonal, which is strong for any vectors; the values without
    the diagonal and those of random normal vectors say how much of it is structure. Position 0, that of [CLS], often
    stands apart from the others and lowers the value alone.

    Args:
        source: see `input_positions`.
        lengths: numbers of positions to compare over; those beyond the table are left out.
        seeds: number of random embeddings to compare with.

    Returns: a `PositionGram`.
    """
    table = input_positions(source)
    matrix = table @ table.T
    lengths = {*LENGTHS, len(table)} if lengths is None else set(lengths)
    lengths = sorted(length for length in lengths if 3 <= length <= len(table))
    if not lengths:
        raise ValueError(f"No length is from 3 to the {len(table)} positions that there are. Pass `lengths` that are.")
    scores = []
    for length in lengths:
        score = {"length": length, "width": table.shape[1]}
        for suffix, off_diagonal in (("", False), ("_off_diagonal", True)):
            part = matrix[:length, :length]
            score[f"r2{suffix}"] = float(toeplitz.toeplitz_r2(part, off_diagonal))
            score[f"r2{suffix}_without_first"] = float(toeplitz.toeplitz_r2(part[1:, 1:], off_diagonal))
            random = [toeplitz.random_toeplitz_r2(length, table.shape[1], off_diagonal, seed) for seed in range(seeds)]
            score[f"random_r2{suffix}"] = float(np.mean(random)) if random else None
            score[f"random_r2{suffix}_sd"] = float(np.std(random)) if random else None
        scores.append(score)
    return PositionGram(matrix, table.shape[1], scores)


# Cosine similarity (DIET, figure 5)


@dataclasses.dataclass
class PositionCosines:
    """Cosine similarities of all pairs of position embeddings, `matrix (n, n)`."""

    matrix: np.ndarray

    @property
    def pairs(self):
        """One value for each pair of different positions."""
        return self.matrix[np.triu_indices(len(self.matrix), 1)]

    def rows(self):
        low, middle, high = np.percentile(self.pairs, [5, 50, 95])
        return [
            {
                "length": len(self.matrix),
                "mean": float(self.pairs.mean()),
                "sd": float(self.pairs.std()),
                "percentile_5": float(low),
                "median": float(middle),
                "percentile_95": float(high),
            }
        ]


def position_cosines(source, length=None):
    """Cosine similarity of position embeddings (see `input_positions`). Near 1 throughout, they tell nothing apart."""
    table = input_positions(source, length)
    norms = np.linalg.norm(table, axis=-1, keepdims=True)
    table = table / np.where(norms > 0, norms, 1)
    return PositionCosines(table @ table.T)


# Sections through the positional score (TISA, section 3.2 and figures 3, 6, 7)


@dataclasses.dataclass
class Sections:
    """Rows of positional scores, the query's own position in the middle.

    Attributes:
        values: `(layers, heads, queries, 2 reach + 1)`, NaN where there is no such key.
        queries: positions of the queries.
        offsets: key minus query.
    """

    values: np.ndarray
    queries: np.ndarray
    offsets: np.ndarray

    @property
    def spread(self):
        """`(layers, heads)`: deviation between queries over deviation between offsets; 0 for a Toeplitz matrix."""
        inner = self.values[..., ~np.isnan(self.values).any(axis=(0, 1, 2))]
        inner = inner - inner.mean(axis=-1, keepdims=True)
        size = inner.mean(axis=-2).std(axis=-1)
        return inner.std(axis=-2).mean(axis=-1) / np.where(size > 0, size, 1)

    def rows(self):
        index = np.argwhere(~np.isnan(self.values))
        return [
            {
                "layer": int(layer) + 1,
                "head": int(head) + 1,
                "query": int(self.queries[query]),
                "offset": int(self.offsets[offset]),
                "score": float(self.values[layer, head, query, offset]),
            }
            for layer, head, query, offset in index
        ]


def sections(matrices, queries=None, reach=12):
    """Rows `i` of `(layers, heads, n, n)` at `j = i - reach .. i + reach`.

    By default for five queries from which position 0, [CLS], is out of reach.
    """
    matrices = np.asarray(matrices)
    n = matrices.shape[-1]
    reach = min(reach, max(1, (n - 2) // 2))
    queries = np.linspace(min(reach + 1, n - 1), n - 1 - reach, 5).round() if queries is None else queries
    queries, offsets = np.unique(np.asarray(queries, "int64")), np.arange(-reach, reach + 1)
    if queries.min() < 0 or queries.max() >= n:
        raise ValueError(f"Queries are positions from 0 to {n - 1}. Received: {queries.tolist()}")
    keys = queries[:, None] + offsets
    found = matrices[..., queries[:, None], keys.clip(0, n - 1)]
    return Sections(np.where((keys >= 0) & (keys < n), found, np.nan), queries, offsets)


def positional_sections(model, queries=None, reach=12, length=None, words="expected"):
    """Sections through the positional score of every layer and head; see `conversion.positional_profile`."""
    return sections(_positional_scores(model, length, words), queries, reach)


# Shifting patterns in scores (DIET, figures 4 and 7)


@dataclasses.dataclass
class Shifts:
    """How far matrices of scores depend on the distance of query and key only.

    Attributes (`(layers, heads)` each):
        r2, r2_off_diagonal: share of the variance that a Toeplitz matrix explains, with and without main diagonal.
        r2_without_first: the same for positions 1 to n - 1.
        first_row, first_column: share of what it leaves unexplained that is in row 0 and in column 0; `1 / n` each
            where position 0 is like the others, much more where [CLS] is treated apart.
        matrices: `(layers, heads, n, n)`, the scores, rows centred (the softmax does not see their means).
    """

    r2: np.ndarray
    r2_off_diagonal: np.ndarray
    r2_without_first: np.ndarray
    first_row: np.ndarray
    first_column: np.ndarray
    matrices: np.ndarray

    def rows(self):
        names = ("r2", "r2_off_diagonal", "r2_without_first", "first_row", "first_column")
        return rows_by_head({name: getattr(self, name) for name in names})


def shifts(matrices):
    """`Shifts` of scores `(layers, heads, n, n)`."""
    matrices = np.asarray(matrices, "float64")
    rest = np.square(matrices - toeplitz.from_line(toeplitz.diagonal_means(matrices)))
    total = rest.sum(axis=(-2, -1))
    # What rounding leaves of an exact Toeplitz matrix says nothing about its first row.
    exact = total <= 1e-12 * np.square(matrices).sum(axis=(-2, -1))
    divisor = np.where(exact, 1, total)
    return Shifts(
        r2=toeplitz.toeplitz_r2(matrices),
        r2_off_diagonal=toeplitz.toeplitz_r2(matrices, off_diagonal=True),
        r2_without_first=toeplitz.toeplitz_r2(matrices[..., 1:, 1:]),
        first_row=np.where(exact, 0, rest[..., 0, :].sum(-1) / divisor),
        first_column=np.where(exact, 0, rest[..., 0].sum(-1) / divisor),
        matrices=toeplitz.center_rows(matrices),
    )


def position_shifts(model, length=None, words="expected"):
    """`Shifts` of the positional score of every layer and head: the bias, and what positions at the input come to."""
    return shifts(_positional_scores(model, length, words))


def _positional_scores(model, length, words):
    return np.stack([layer.matrix for layer in positional_profiles(model, length, words)])


def rows_by_head(fields):
    """One row per layer and head of arrays `(layers, heads)`."""
    shape = next(iter(fields.values())).shape
    return [
        {"layer": layer + 1, "head": head + 1, **{name: float(values[layer, head]) for name, values in fields.items()}}
        for layer, head in np.ndindex(*shape)
    ]


# Segments (DIET, equation 2 and figure 6)


@dataclasses.dataclass
class SegmentBiases:
    """DIET's `E_S`, `tables (layers, heads, segments, segments)` by segment of query and key."""

    tables: np.ndarray

    def rows(self):
        names = [(s, t) for s, t in np.ndindex(*self.tables.shape[-2:])]
        return rows_by_head({f"from_{s}_to_{t}": self.tables[..., s, t] for s, t in names})


def segment_biases(model):
    """The segment biases of all layers and heads of a model that has them (`segments="per_head"`)."""
    encoder = get_backbone(model).encoder
    layers = list(encoder.segment_biases) or [block.attention.segment_bias for block in encoder.block_of_each_layer()]
    if None in layers:
        raise ValueError(f"'{model.name}' has no segment bias: only models with segments='per_head' have.")
    layers = layers * (encoder.num_layers if len(layers) == 1 else 1)
    tables = [to_numpy(layer.table) for layer in layers]
    shape = (encoder.num_heads, *tables[0].shape[1:])
    return SegmentBiases(np.stack([np.broadcast_to(table, shape) for table in tables]))


def content_free_attention(model, segment_ids):
    """Attention from position and segment biases alone, `softmax(bias + E_S)`: DIET, figure 6.

    Args:
        model: a model with a position bias, a segment bias or both.
        segment_ids: `(n,)`, for instance 16 zeros and 16 ones.

    Returns: `(layers, heads, n, n)`.
    """
    encoder = get_backbone(model).encoder
    profile.check_source(encoder)
    segment_ids = np.asarray(segment_ids)
    n = len(segment_ids)
    scores = np.zeros((encoder.num_layers, encoder.num_heads, n, n))
    for layer, bias in enumerate(profile.attention_biases(encoder, n)):
        scores[layer] += bias
    if encoder.num_segments is not None:
        scores += segment_biases(model).tables[..., segment_ids[:, None], segment_ids]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
