"""Hidden token attribution: how much of each input token is in each contextual embedding."""

import dataclasses

import keras
import numpy as np

from keras_posenc.analysis.attribution_probes import Probes, contributions_of, group_by_length
from keras_posenc.analysis.layers import check_layers
from keras_posenc.utils import checks
from keras_posenc.utils.progress import Progress

METHODS = ("exact", "random")
SOURCES = ("layers", "sum")


@dataclasses.dataclass
class Attribution:
    """What `hidden_token_attribution` found.

    Attributes:
        contributions: `(batch, layers, target, source)`, rows of real targets sum to one; zeros at padding.
        standard_error: of the contributions, same shape; `None` for the exact method and for a single probe, whose
            spread cannot be known. The variance of an entry is estimated from its few probes, so one entry's error
            is itself rough; its mean square over many entries is right to about 15 % (variance) with 4 probes and
            Jacobians of effective rank above 10. It is first order: too small, by up to 1.3, for rank one.
        layers: int `(layers,)`, the layer of each entry of that axis; 0 is the input of the first block.
        padding_mask: bool `(batch, length)`.
    """

    contributions: np.ndarray
    standard_error: np.ndarray | None
    layers: np.ndarray
    padding_mask: np.ndarray


class HiddenTokenAttribution:
    """Contributions of input tokens to hidden embeddings, compiled once for a model.

    The contribution of input `i` to the embedding of token `j` at layer `l` is

        c_ij^l = ||d e_j^l / d x_i||_F / sum_k ||d e_j^l / d x_k||_F

    with the whole Jacobian, width x width, of each pair. One tangent at `x_i` gives a column of the Jacobians of all
    targets and all layers together, so the work is forward: `width` tangents a token for the exact norms. With
    orthonormal random directions `v_1..v_m` instead, `width / m * sum_p ||J v_p||^2` is an unbiased estimate of
    `||J||_F^2`, exact at `m = width`. A tangent is propagated by deriving the backward pass once more, by the vector
    it is linear in: this leaves only the tangent's own arithmetic, vectorized over tangents, while the model itself is
    computed once for all of them.

    What is `x_i`? The paper's is the sum of token, position and segment embeddings. In BERT a layer normalisation
    follows, which divides every token by a deviation of its own; so a derivative by the sum also says how large that
    token's embedding happened to be. `source="layers"`, the default, is the normalised sum, which is what the first
    attention sees and where all tokens have one scale. `source="sum"` is the paper's. Neither depends on the other
    tokens, so at layer 0 every token is its own only contributor in both.

    Args:
        model: a `Bert`, or a task model around one (its `backbone` is taken).
        layers: list of layers, 0 to `num_layers`; 1 to `num_layers` by default.
        source: `"layers"` or `"sum"`.

    Call arguments: those of `hidden_token_attribution`.

    Reference: Brunner et al., 2020 (arXiv:1908.04211), section 5.1, equation 11.
    """

    def __init__(self, model, layers=None, source="layers"):
        if keras.backend.backend() != "tensorflow":
            raise NotImplementedError(
                "Hidden token attribution derives with TensorFlow's tapes. Set KERAS_BACKEND=tensorflow. Received: "
                f"backend={keras.backend.backend()!r}"
            )
        import tensorflow as tf

        model = getattr(model, "backbone", model)
        if not hasattr(getattr(model, "encoder", None), "run_blocks"):
            raise ValueError(
                f"Hidden token attribution needs a Bert or a model with a Bert as `backbone`. Received: {type(model)}"
            )
        self.model, self.encoder = model, model.encoder
        self.source = checks.one_of("HiddenTokenAttribution", "source", source, SOURCES)
        self.layers = check_layers(layers, self.encoder.num_layers)
        ids = tf.TensorSpec((None, None), "int32")
        signature = [ids, ids, tf.TensorSpec((None, None), "bool"), ids]
        signature.append(tf.TensorSpec((None, None, self.width), self._dtype))
        self._squares = tf.function(self._tangents, input_signature=signature, autograph=False)

    def __call__(self, inputs, method="exact", probes=4, seed=0, max_memory=2**28, progress=False):
        checks.one_of("HiddenTokenAttribution", "method", method, METHODS)
        token_ids, segment_ids, mask = _as_arrays(inputs)
        probes = Probes(self.width, None if method == "exact" else probes, seed, self._dtype)
        shape = (len(token_ids), len(self.layers), token_ids.shape[1], token_ids.shape[1])
        contributions = np.zeros(shape, np.float32)
        errors = np.zeros(shape, np.float32) if probes.have_spread else None
        # Interpolated positions depend on the length of the padded input, which must then stay as it is.
        groups = group_by_length(mask, trim=self.encoder.extrapolate != "interpolate")
        bar = Progress(len(token_ids)) if progress else None
        for rows, length in groups:
            cut = [array[rows, :length] for array in (token_ids, segment_ids, mask)]
            found = self._group(*cut, probes, max_memory)
            contributions[rows, :, :length, :length] = found[0]
            if errors is not None:
                errors[rows, :, :length, :length] = found[1]
            if bar is not None:
                bar.step(f"attribution, {length} tokens", len(rows))
        return Attribution(contributions, errors, np.array(self.layers), mask)

    @property
    def width(self):
        """Size of an input `x_i`."""
        return self.encoder.hidden_dim if self.source == "layers" else self.model.embedding_width

    @property
    def _dtype(self):
        return keras.backend.standardize_dtype(self.model.compute_dtype)

    def tangent_bytes(self, length):
        """Roughly what one tangent of one sentence holds in memory while it goes through a block."""
        encoder = self.encoder
        a_token = 3 * encoder.intermediate_dim + 8 * encoder.hidden_dim + 4 * encoder.num_heads * length
        return a_token * length * np.dtype("float64" if self._dtype == "float64" else "float32").itemsize

    def _group(self, token_ids, segment_ids, mask, probes, max_memory):
        """Sums over probes for sentences of one length, in as many chunks of tangents as memory asks for."""
        batch, length = mask.shape
        drawn = probes.draw(token_ids, mask)
        sums = np.zeros((2, batch, length, len(self.layers), length))
        chunk = max(1, int(max_memory // (self.tangent_bytes(length) * batch)))
        for sources, directions in drawn.chunks(chunk):
            squares = self._squares(token_ids, segment_ids, mask, sources, directions)
            squares = squares.numpy().astype("float64")  # (tangents, layers, batch, targets)
            for row in range(batch):
                np.add.at(sums[0, row], sources[:, row], squares[:, :, row])
                np.add.at(sums[1, row], sources[:, row], squares[:, :, row] ** 2)
        # From (source, layer, target) to (layer, target, source).
        return contributions_of(*np.transpose(sums, (0, 1, 3, 4, 2)), mask, probes)

    def _tangents(self, token_ids, segment_ids, mask, sources, directions):
        """Squared norms of the tangents, `(tangents, layers, batch, targets)`.

        `sources`: int `(tangents, batch)`, where each tangent starts. `directions`: `(tangents, batch, width)`.
        """
        import tensorflow as tf

        x, hidden_states = self._entry(token_ids, segment_ids, mask)
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                states = hidden_states(x)
                states = [tf.identity(states[layer]) for layer in self.layers]
            # The backward pass is linear in what it starts from; where that is, has no influence on its derivative.
            starts = [tf.zeros_like(state) for state in states]
            outer.watch(starts)
            backward = inner.gradient(states, x, output_gradients=starts)

        def one(tangent):
            source, direction = tangent
            at = tf.one_hot(source, tf.shape(x)[1], dtype=x.dtype)
            pushed = outer.gradient(backward, starts, output_gradients=at[:, :, None] * direction[:, None, :])
            return tf.stack([tf.reduce_sum(tf.square(state), axis=-1) for state in pushed])

        return tf.vectorized_map(one, (sources, directions))

    def _entry(self, token_ids, segment_ids, mask):
        """`x`, and the function from it to the hidden states."""
        given = {"padding_mask": mask, "return_intermediates": True, "training": False}
        if self.model.segments == "per_head":
            given["segment_ids"] = segment_ids
        if self.source == "layers":
            inputs = {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": mask}
            x = self.model(inputs, return_intermediates=True, training=False)["hidden_states"][0]
            return x, lambda x: self.encoder.run_blocks(x, **given)[1]["hidden_states"]
        # Positions at the input are added to this inside the encoder: a derivative by either summand is the same.
        x = self.model.token_embedding(token_ids)
        if self.model.segment_embedding is not None:
            x = x + self.model.segment_embedding(segment_ids)
        return x, lambda x: self.encoder(x, **given)[1]["hidden_states"]


def hidden_token_attribution(
    model,
    inputs,
    method="exact",
    layers=None,
    probes=4,
    seed=0,
    source="layers",
    max_memory=2**28,
    progress=False,
):
    """Contribution of every input token to every hidden embedding; see `HiddenTokenAttribution` for the equation.

    For several batches make one `HiddenTokenAttribution` and call that: it is compiled once.

    Args:
        model: a `Bert`, or a task model around one.
        inputs: dict of `token_ids` and, as the model takes them, `segment_ids` and `padding_mask`.
        method: `"exact"`, `width` tangents a token, or `"random"`, `probes` tangents a token.
        layers: list of layers, 0 to `num_layers`; 1 to `num_layers` by default.
        probes: random directions a token, at most the width. The more, the smaller the error; from 2 on it is known.
            Noise makes the largest of many others larger: on four sentence pairs and MiniLM, the share of tokens that
            are not their own main contributor in the last layer was 30 % with 16 probes, and 1, 2 and 6 points more
            with 4, 2 and 1. Mean contributions of the own token differed by less than 0.005 with one probe.
        seed: of the directions, which depend on it and on the sentence, and neither on the other sentences of a batch
            nor on `max_memory`.
        source: by what is derived: `"layers"` (the input of the first block) or `"sum"` (the embeddings before their
            normalisation).
        max_memory: bytes that tangents may take together, roughly; they go in chunks of that size.
        progress: show a progress bar.

    Returns: an `Attribution`.

    Example:

    >>> model = keras_posenc.models.Bert(100, 2, 2, 16, 32, max_length=8)
    >>> from keras_posenc.analysis.attribution import hidden_token_attribution
    >>> hidden_token_attribution(model, {"token_ids": np.array([[2, 5, 3]])}).contributions.shape
    (1, 2, 3, 3)
    """
    attribution = HiddenTokenAttribution(model, layers, source)
    return attribution(inputs, method, probes, seed, max_memory, progress)


def _as_arrays(inputs):
    token_ids = np.asarray(inputs["token_ids"], "int32")
    segment_ids, mask = inputs.get("segment_ids"), inputs.get("padding_mask")
    segment_ids = np.zeros_like(token_ids) if segment_ids is None else np.asarray(segment_ids, "int32")
    mask = np.ones(token_ids.shape, bool) if mask is None else np.asarray(mask).astype(bool)
    return token_ids, segment_ids, mask
