"""What a conversion kept: positional scores, parameters, and the outputs on given tokens."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_posenc.conversion.profile import get_backbone
from keras_posenc.conversion.rebuild import count, position_weights, without_positions

BATCH = 16
IGNORED = -1


@dataclasses.dataclass
class ConversionReport:
    """The price of a conversion.

    Attributes:
        target: what the positions were converted to, e.g. `"tisa, 5 kernels"`.
        length: number of positions that were looked at.
        r2: `(layers, heads)`, how much of the original positional score the new one explains, rows centred. Negative
            where it is further off than no positions.
        energy: `(layers, heads)`, mean square of the original positional score, rows centred: a head where it is small
            hardly looks at positions, and its `r2` says little.
        parameters_before, parameters_after: of the positions.
        total_before, total_after: of the model.
        change: dict of what happened to the outputs on the given tokens, `None` if none were given; see
            `Yardstick.measure`.
    """

    target: str
    length: int
    r2: np.ndarray
    energy: np.ndarray
    parameters_before: int
    parameters_after: int
    total_before: int
    total_after: int
    change: dict | None = None

    @property
    def r2_by_layer(self):
        """`(layers,)`: that of all heads together, so that heads count by how much they look at positions."""
        return np.array([_weighted(r2, energy) for r2, energy in zip(self.r2, self.energy)])

    @property
    def share(self):
        """Of all layers and heads together; NaN if none of them looks at positions."""
        return _weighted(self.r2, self.energy)

    @property
    def error(self):
        """Root of what is not explained, relative: `|A - B| / |A|` over all heads."""
        return float(np.sqrt(np.maximum(0.0, 1 - self.share)))

    def as_dict(self):
        """Plain numbers and lists, for JSON."""
        arrays = {"r2": self.r2.tolist(), "energy": self.energy.tolist(), "r2_by_layer": self.r2_by_layer.tolist()}
        return {**dataclasses.asdict(self), **arrays, "share": self.share, "error": self.error}

    def __str__(self):
        layers = "  ".join(f"{value:.3f}" for value in self.r2_by_layer)
        lines = [
            f"Positions converted to {self.target}, judged over {self.length} positions",
            f"positional score explained (R^2, rows centred): {self.share:.3f}; by layer: {layers}",
            f"position parameters: {self.parameters_before:,} -> {self.parameters_after:,}; "
            f"all: {self.total_before:,} -> {self.total_after:,}",
        ]
        if self.change is not None:
            lines += [
                f"{name.replace('_', ' ')}: {value:.4f}" for name, value in self.change.items() if value is not None
            ]
        return "\n".join(lines)


def _weighted(r2, energy):
    total = energy.sum()
    if total == 0:
        return float("nan")  # a share of nothing
    return float((np.where(energy > 0, r2, 0.0) * energy).sum() / total)


def make_report(target, profiles, r2, before, after, yardstick):
    from keras_posenc.conversion.toeplitz import center_rows

    return ConversionReport(
        target,
        profiles[0].length,
        np.asarray(r2),
        np.array([np.square(center_rows(p.matrix)).mean(axis=(-2, -1)) for p in profiles]),
        count(position_weights(before)),
        count(position_weights(after)),
        before.count_params(),
        after.count_params(),
        None if yardstick is None else yardstick.measure(after),
    )


class Yardstick:
    """Tokens on which models are compared with an original, and with the original without positions.

    Args:
        model: the original.
        inputs: dict of int arrays `(batch, length)`: `token_ids`, and if there are `segment_ids`, `padding_mask`.
        mask_id: id of the `[MASK]` token. With it, and if the model is a `MaskedLM`, losses are measured too.
        seed: of the tokens to mask: 15 % of those that are neither padding nor first or last of their text.
    """

    def __init__(self, model, inputs, mask_id=None, seed=0):
        self.inputs = {name: np.asarray(value) for name, value in inputs.items() if value is not None}
        tokens = self.inputs["token_ids"]
        self.real = np.asarray(self.inputs.get("padding_mask", np.ones_like(tokens))).astype(bool)
        self.masked = None
        if mask_id is not None and get_backbone(model) is not model and hasattr(model, "decoder_bias"):
            self.masked = mask_tokens(tokens, self.real, mask_id, seed)
        self.original = self._run(model)
        self.removed = self._compare(self._run(without_positions(model, length=self._length(model))))

    def _length(self, model):
        return min(get_backbone(model).encoder.max_length, self.inputs["token_ids"].shape[1])

    def measure(self, model):
        """How the outputs of `model` differ from the original's.

        Returns a dict: `cosine`, the mean cosine similarity of final hidden states of tokens; `relative_error`,
        `|h - h'| / |h|` over all of them; `loss` and `loss_original` of masked tokens, or `None`; and `cosine`,
        `relative_error` and `loss` for the original `without_positions`, the value of having no positions at all.
        """
        found = self._compare(self._run(model))
        found["loss_original"] = self.original[1]
        return {**found, **{f"{name}_without_positions": value for name, value in self.removed.items()}}

    def hidden_states(self, model):
        """Final hidden states of all texts, `(batch, length, width)`."""
        states = [get_backbone(model)(part)["sequence_output"] for part in self._batches(self.inputs)]
        return np.concatenate([ops.convert_to_numpy(state) for state in states]).astype("float64")

    def _run(self, model):
        return self.hidden_states(model), None if self.masked is None else self._loss(model)

    def _loss(self, model):
        token_ids, labels = self.masked
        total = 0.0
        for part in self._batches({**self.inputs, "token_ids": token_ids, "labels": labels}):
            wanted = part.pop("labels")
            logits = ops.convert_to_numpy(model(part)["logits"])[wanted != IGNORED]
            if len(logits):
                losses = keras.losses.sparse_categorical_crossentropy(wanted[wanted != IGNORED], logits, True)
                total += float(ops.sum(losses))
        return total / max(1, int((labels != IGNORED).sum()))

    def _batches(self, arrays):
        size = len(arrays["token_ids"])
        for begin in range(0, size, BATCH):
            yield {name: value[begin : begin + BATCH] for name, value in arrays.items()}

    def _compare(self, run):
        states, loss = run
        ours, theirs = states[self.real], self.original[0][self.real]
        norms = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
        return {
            "cosine": float(((ours * theirs).sum(-1) / norms).mean()),
            "relative_error": float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)),
            "loss": loss,
        }


def mask_tokens(token_ids, real, mask_id, seed=0, rate=0.15):
    """Tokens with 15 % of them replaced by `mask_id`, and labels: the token where it was, `IGNORED` elsewhere.

    The first and the last token of each text stay: they are [CLS] and [SEP]. Every text has at least one masked.
    """
    rng = np.random.default_rng(seed)
    tokens, labels = np.array(token_ids), np.full(token_ids.shape, IGNORED)
    for row, present in enumerate(real):
        inner = np.flatnonzero(present)[1:-1]
        if len(inner):
            chosen = rng.choice(inner, max(1, round(rate * len(inner))), replace=False)
            labels[row, chosen] = tokens[row, chosen]
            tokens[row, chosen] = mask_id
    return tokens, labels
