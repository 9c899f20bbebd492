"""What positions add to the attention scores of a trained model, whatever the words."""

import dataclasses
import functools

import numpy as np
from keras import ops

from keras_posenc.conversion import toeplitz
from keras_posenc.encodings.registry import get_class, split
from keras_posenc.utils import checks

WORDS = ("expected", "average", "linear")


@dataclasses.dataclass
class PositionalProfile:
    """The positional score of the heads of one layer, and how far it depends on the distance only.

    Attributes:
        matrix: `F_P (heads, n, n)`, by query and key.
        layer: which layer.
    """

    matrix: np.ndarray
    layer: int = 0

    @property
    def length(self):
        return self.matrix.shape[-1]

    @functools.cached_property
    def toeplitz(self):
        """The nearest Toeplitz matrix of each head, `(heads, 2n - 1)` by `j - i`: the means of the diagonals."""
        return toeplitz.diagonal_means(self.matrix)

    @functools.cached_property
    def r2(self):
        """Share of the variance of each head that it explains."""
        return toeplitz.toeplitz_r2(self.matrix)

    @functools.cached_property
    def r2_off_diagonal(self):
        """The same without the main diagonal."""
        return toeplitz.toeplitz_r2(self.matrix, off_diagonal=True)

    @functools.cached_property
    def best_line(self):
        """The Toeplitz matrix of each head that is nearest up to row constants, as a line `(heads, 2n - 1)`."""
        return toeplitz.best_line(self.matrix)

    @functools.cached_property
    def singular(self):
        """Singular value decomposition `(u, s, vt)` of each head, its rows centred."""
        return np.linalg.svd(toeplitz.center_rows(self.matrix), full_matrices=False)


def positional_profile(model, layer=0, length=None, words="expected", center_rows=False):
    """The positional score `F_P` of the heads of a layer: formula 12 of TISA, through what the model really computes.

    The score of two average words at positions `i` and `j` is, with the layer's own `W_Q, b_Q, W_K, b_K`,

        F_P[i, j] = q(x_i) k(x_j)^T / sqrt(d_h) + bias_ij - (the same with all positions at their mean).

    The last term is one number, which no softmax sees. `bias` is there in models that have one inside attention;
    segments are segment 0. What `x_i` is, in the first layer:

    - `words="expected"`: `x_i = mean over all words w of LN(w + p_i + s_0)`. As queries and keys are linear in `x`,
      `F_P` is then exactly the mean of the score over all pairs of words of the vocabulary.
    - `words="average"`: `x_i = LN(w_mean + p_i + s_0)`, the average word in place of each, as the paper does. The
      average word is much shorter than a word, and the normalisation makes up for it: positions come out too strong.
    - `words="linear"`: formula 12 as printed, `(w_m W p_j^T + p_i W w_m^T + p_i W p_j^T) / sqrt(d_h)` with
      `W = W_Q W_K^T`: no normalisation, no segments, no biases. Of the first layer only.

    In deeper layers `x` is what the preceding layers make of that sequence. Exact it is in the first layer only: behind
    it, the mean over texts is not the output for a mean text.

    Args:
        model: a `Bert`, or a model with a head around one, whose positions enter at the input or as a bias.
        layer: which layer, from 0.
        length: number of positions, `max_length` of the model by default.
        words: see above.
        center_rows: take the mean of every row away, which the softmax does not see.

    Returns: a `PositionalProfile`.
    """
    backbone = get_backbone(model)
    layers = backbone.encoder.num_layers
    if not isinstance(layer, (int, np.integer)) or not 0 <= layer < layers:
        raise ValueError(f"`layer` must be from 0 to {layers - 1}. Received: layer={layer!r}")
    found = positional_profiles(model, length, words, last=layer)[layer]
    return PositionalProfile(toeplitz.center_rows(found.matrix), layer) if center_rows else found


def positional_profiles(model, length=None, words="expected", last=None):
    """The `positional_profile` of every layer (up to `last`), computed in one pass; a list."""
    backbone = get_backbone(model)
    encoder = backbone.encoder
    checks.one_of("positional_profile", "words", words, WORDS)
    check_source(encoder)
    length = encoder.max_length if length is None else checks.positive_int("positional_profile", "length", length)
    last = encoder.num_layers - 1 if last is None else last
    table = position_table(backbone, length)
    if words == "linear":
        if last:
            raise ValueError("words='linear' is a formula for the first layer. Use 'expected' or 'average'.")
        return [PositionalProfile(_linear(backbone, table), 0)]

    inputs = _expected_inputs if words == "expected" else _average_inputs
    scores = _layer_scores(encoder, inputs(backbone, table), last)
    without = _layer_scores(encoder, inputs(backbone, table.mean(axis=0, keepdims=True)), last)
    biases = attention_biases(encoder, length)
    return [
        PositionalProfile(score - constant + biases[index], index)
        for index, (score, constant) in enumerate(zip(scores, without))
    ]


def get_backbone(model):
    """The `Bert` of a model."""
    backbone = getattr(model, "backbone", model)
    if not hasattr(backbone, "encoder") or not hasattr(backbone, "token_embedding"):
        raise ValueError(f"A Bert, or a model with a head around one, is needed. Received: {type(model).__name__}")
    if not model.built:
        raise ValueError(f"'{model.name}' has no weights yet. Call `build()` or call it on inputs first.")
    return backbone


def check_source(encoder):
    """Positional scores that do not depend on words are those of the doors `embed` and `bias`."""
    spec = encoder.position_spec
    for name in [part for group in split(spec) for part in group]:
        others = set(get_class(name).doors) - {"embed", "bias"}
        if others:
            raise ValueError(
                f"The positions of '{name}' act on the content of queries and keys ({', '.join(sorted(others))}): "
                "there is no score of position alone to convert. Encodings at the input and biases can be converted."
            )
    if encoder.num_keys is not None:
        raise ValueError("The compressed keys of a Linformer have no positions, so there is no profile of them.")


def position_table(backbone, length):
    """`P (n, width)`, the sum of what is added to the token embeddings; zeros if nothing is."""
    table = np.zeros((length, backbone.embedding_width))
    for encoding in backbone.encoder.input_positions:
        table += to_numpy(encoding.embedding(length))
    return table


def attention_encodings(encoder):
    """The encoding inside attention of each layer, or `None`."""
    if encoder.position is not None:
        return [encoder.position] * encoder.num_layers
    found = encoder.positions or [block.attention.position for block in encoder.block_of_each_layer()]
    return [encoding if encoding.doors else None for encoding in found]


def attention_biases(encoder, length):
    """What positions add inside attention, for each layer: `(heads or 1, n, n)`, or 0."""
    found = {}
    for encoding in attention_encodings(encoder):
        if id(encoding) not in found:
            found[id(encoding)] = 0.0 if encoding is None else to_numpy(encoding.at(length).bias)[0]
    return [found[id(encoding)] for encoding in attention_encodings(encoder)]


def to_numpy(tensor):
    return ops.convert_to_numpy(tensor).astype("float64")


def _words(backbone):
    """Token embeddings, and what else is added to them besides positions (segment 0)."""
    words = to_numpy(backbone.token_embedding.embeddings)
    if backbone.segment_embedding is None:
        return words, 0.0
    return words, to_numpy(backbone.segment_embedding.embeddings)[0]


def _average_inputs(backbone, table):
    words, segment = _words(backbone)
    x = ops.convert_to_tensor((words.mean(axis=0) + segment + table)[None], backbone.compute_dtype)
    encoder = backbone.encoder
    x = x if encoder.input_norm is None else encoder.input_norm(x)
    return x if encoder.input_projection is None else encoder.input_projection(x)


def _expected_inputs(backbone, table):
    """The mean over all words of `LN(w + p_i + s_0)`, without making all pairs of words and positions.

    `LN(v) = gamma (v - mean v) / sd(v) + beta`, and the variance of `w + p` is a sum of a term of the word, one of the
    position, and a product of both; so the reciprocals `1 / sd` are a matrix, and the mean two products with it.
    """
    encoder = backbone.encoder
    if encoder.input_norm is None:
        return _average_inputs(backbone, table)
    words, segment = _words(backbone)
    words = words - words.mean(axis=-1, keepdims=True)
    table = table + segment
    table = table - table.mean(axis=-1, keepdims=True)
    width = words.shape[-1]
    variance = np.square(words).mean(-1)[:, None] + np.square(table).mean(-1) + 2 / width * (words @ table.T)
    reciprocal = 1 / np.sqrt(variance + encoder.input_norm.epsilon)
    x = reciprocal.T @ words / len(words) + reciprocal.mean(axis=0)[:, None] * table
    x = x * to_numpy(encoder.input_norm.gamma) + to_numpy(encoder.input_norm.beta)
    x = ops.convert_to_tensor(x[None], backbone.compute_dtype)
    return x if encoder.input_projection is None else encoder.input_projection(x)


def _layer_scores(encoder, x, last):
    """`q k^T / sqrt(d_h)` of each layer, `(heads, n, n)`, for the input `x (1, n, width)` of the first."""
    found = []
    for layer in range(last + 1):
        query, key = queries_and_keys(encoder, layer, x)
        found.append(np.einsum("bqhd,bkhd->bhqk", query, key, optimize=True)[0])
        if layer < last:
            x = run_layer(encoder, layer, x)
    return found


def queries_and_keys(encoder, layer, x):
    """Scaled queries and keys of a layer for its input `x`, `(batch, n, heads, size)` each."""
    block = encoder.block_of_each_layer()[layer]
    x = block.attention_norm(x) if block.norm_first else x
    query, key = (to_numpy(dense(x)) for dense in (block.attention.query_dense, block.attention.key_dense))
    return query * query_scale(encoder, layer), key


def query_scale(encoder, layer):
    """What the queries of a layer are multiplied with: `d_h^-1/2`, unless its encoding says otherwise (TUPE)."""
    encoding = attention_encodings(encoder)[layer]
    return encoder.block_of_each_layer()[layer].attention.key_dim ** -0.5 if encoding is None else encoding.scale


def run_layer(encoder, layer, x, padding_mask=None, segment_ids=None):
    """The output of a layer for its input `x`; segments are 0 unless they are given."""
    length = x.shape[1]
    given = {"padding_mask": padding_mask, "training": False}
    if encoder.num_segments is not None:
        segment_ids = ops.zeros(x.shape[:2], dtype="int32") if segment_ids is None else segment_ids
        if not encoder.segment_biases:
            given["segment_ids"] = segment_ids
    handed = encoder.handed_positions(length, length, 0, segment_ids, False)
    if handed:
        given["positions"] = handed[0 if encoder.sharing == "layer" else layer]
    return encoder.block_of_each_layer()[layer](x, **given)


def _linear(backbone, table):
    """Formula 12 as printed."""
    encoder = backbone.encoder
    word = _words(backbone)[0].mean(axis=0, keepdims=True)
    if encoder.input_projection is not None:
        kernel = to_numpy(encoder.input_projection.kernel)
        word, table = word @ kernel, table @ kernel
    attention = encoder.blocks[0].attention
    kernels = [to_numpy(dense.kernel) for dense in (attention.query_dense, attention.key_dense)]
    (word_query, word_key), (query, key) = (
        [np.einsum("nc,chd->hnd", x, kernel) for kernel in kernels] for x in (word, table)
    )
    scores = query @ (key + word_key).swapaxes(-1, -2) + word_query @ key.swapaxes(-1, -2)
    return scores * query_scale(encoder, 0)
