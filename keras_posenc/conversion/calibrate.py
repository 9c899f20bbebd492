"""Positional scores measured on texts, layer by layer, in place of those of an average word.

The profile of an average word says what positions add to scores in the mean over words that stand anywhere. In real
texts [CLS] always stands first, and deeper layers see what attention has made of words and positions together. A
calibration asks for the bias `B` of a layer that makes up, in the mean over texts, for what the converted model lacks:

    B = argmin sum over texts |C (S - S') - C B|^2 = mean over texts of C (S - S'),

where `S` are the scores of the original, `S'` those of the converted model, whose earlier layers have their biases
already. `C` takes away the mean of every row, over the keys that all texts have: over all keys of each text, the mean
would depend on its length, and so would `B`.
"""

import numpy as np

from keras_posenc.conversion.profile import (
    PositionalProfile,
    attention_encodings,
    check_source,
    get_backbone,
    queries_and_keys,
    run_layer,
    to_numpy,
)

BATCH = 16


class Calibration:
    """Texts, and what the layers of a model see of them.

    Args:
        model: the original.
        inputs: dict of int arrays `(texts, length)` as the model takes. Positions that no text reaches are left out.
            A hundred texts or more: the mean over few texts is noise at ends that few of them reach.
    """

    def __init__(self, model, inputs):
        self.model = get_backbone(model)
        check_source(self.model.encoder)
        inputs = {name: np.asarray(value) for name, value in inputs.items() if value is not None}
        mask = np.asarray(inputs.get("padding_mask", np.ones_like(inputs["token_ids"]))).astype(bool)
        if not mask.any(axis=1).all() or (mask[:, :-1] < mask[:, 1:]).any():
            raise ValueError("Texts to calibrate on must have tokens, and padding only at their end.")
        self.length = int(mask.sum(axis=1).max())
        inputs = {name: value[:, : self.length] for name, value in {**inputs, "padding_mask": mask}.items()}
        self.common = inputs["padding_mask"].all(axis=0)
        self.batches = [
            {name: value[begin : begin + BATCH] for name, value in inputs.items()}
            for begin in range(0, len(mask), BATCH)
        ]
        seen = [self.model(part, return_intermediates=True)["hidden_states"] for part in self.batches]
        self.states = [[states[layer] for states in seen] for layer in range(self.model.encoder.num_layers)]

    @classmethod
    def of(cls, model, inputs):
        """`inputs` as a calibration of `model`."""
        if not isinstance(inputs, cls):
            return cls(model, inputs)
        if inputs.model is not get_backbone(model):
            raise ValueError("The calibration was made for another model.")
        return inputs

    def run(self, new, fit):
        """Goes through the layers of `new`; `fit(profile)` is to give each what the profile says it lacks.

        Returns: the list of these profiles.
        """
        new = get_backbone(new)
        profiles = []
        states = [new(part, return_intermediates=True)["hidden_states"][0] for part in self.batches]
        for layer in range(new.encoder.num_layers):
            profiles.append(PositionalProfile(self._lacking(new.encoder, layer, states), layer))
            fit(profiles[-1])
            states = [
                run_layer(new.encoder, layer, x, part["padding_mask"], part.get("segment_ids"))
                for x, part in zip(states, self.batches)
            ]
        return profiles

    def _lacking(self, encoder, layer, states):
        """The mean over texts of the scores of the original less those of `encoder`, `(heads, n, n)`."""
        bias = self._own_bias(layer)
        total, number = 0.0, 0
        for part, original, x in zip(self.batches, self.states[layer], states):
            pairs = part["padding_mask"][:, None, None, :] & part["padding_mask"][:, None, :, None]
            scores = _scores(self.model.encoder, layer, original) + bias - _scores(encoder, layer, x)
            scores = scores - scores[..., self.common].mean(-1, keepdims=True)
            total = total + (scores * pairs).sum(axis=0)
            number = number + pairs.sum(axis=0)
        return total / np.maximum(number, 1)

    def _own_bias(self, layer):
        encoding = attention_encodings(self.model.encoder)[layer]
        return 0.0 if encoding is None else to_numpy(encoding.at(self.length).bias)


def _scores(encoder, layer, x):
    query, key = queries_and_keys(encoder, layer, x)
    return np.einsum("bqhd,bkhd->bhqk", query, key, optimize=True)
