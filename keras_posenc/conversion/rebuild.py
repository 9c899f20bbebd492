"""The same model with other positions: a new one is built, and every weight that is no position is copied."""

import keras
import numpy as np

from keras_posenc.conversion.profile import attention_encodings, get_backbone, position_table, to_numpy
from keras_posenc.encodings.combined import Combined
from keras_posenc.folding import position_encodings


def rebuild(model, **changes):
    """A built copy of `model` whose backbone has other constructor arguments, with all weights but positions copied."""
    backbone = get_backbone(model)
    new = type(backbone).from_config({**backbone.get_config(), **changes})
    if model is not backbone:
        config = {**model.get_config(), "backbone": keras.saving.serialize_keras_object(new)}
        new = type(model).from_config(config)
    new.build()
    copy_weights(_other_weights(model), _other_weights(new))
    return new


def without_positions(model, position="none", length=None, **changes):
    """A copy of `model` that knows no positions at its input; those of `position`, in attention, are as initialised.

    As in TISA, all position embeddings become their mean (over the first `length` positions): the inputs keep their
    average `w + p`. With no table left to hold it, the mean is added to every token embedding. That is exact, also
    where a masked-LM head has its output weights in common with the token embeddings: the logits of a position all
    grow by the same number, and their softmax does not change.
    """
    backbone = get_backbone(model)
    check_segments(backbone)
    mean = position_table(backbone, length or backbone.encoder.max_length).mean(axis=0)
    new = rebuild(model, position=position, sharing="none", **{"position_options": {}, **changes})
    embeddings = get_backbone(new).token_embedding.embeddings
    embeddings.assign(to_numpy(embeddings) + mean)
    _keep_scale(backbone.encoder, get_backbone(new).encoder)
    return new


def _keep_scale(old, new):
    """TUPE divides scores by `sqrt(2 d_h)`, others by `sqrt(d_h)`: what differs becomes a part of the queries."""
    ratio = _scale(old) / _scale(new)
    if ratio != 1:
        for block in new.blocks:
            for weight in block.attention.query_dense.weights:
                weight.assign(weight * ratio)


def _scale(encoder):
    encoding = attention_encodings(encoder)[0]
    return encoder.blocks[0].attention.key_dim ** -0.5 if encoding is None else encoding.scale


def check_segments(backbone):
    if backbone.segments == "per_head" and backbone.encoder.sharing != "none":
        raise ValueError(
            "Converted positions are not shared, and segment biases are shared as the positions are. Received a model "
            f"with segments='per_head' and sharing={backbone.encoder.sharing!r}; only sharing='none' can be converted."
        )


def named_encodings(model, name):
    """The encoding called `name` inside the attention of each layer, also where it is one of a sum."""
    found = []
    for encoding in attention_encodings(get_backbone(model).encoder):
        parts = encoding.encodings if isinstance(encoding, Combined) else [encoding]
        found.append(next(part for part in parts if part.registry_name == name))
    return found


def copy_weights(source, target):
    """Copies weights pairwise; names and shapes must agree."""
    ours, theirs = ([(w.name, tuple(w.shape)) for w in weights] for weights in (target, source))
    if ours != theirs:
        differing = [f"{b} for {a}" for a, b in zip(ours, theirs) if a != b] or [f"{len(theirs)} for {len(ours)}"]
        raise ValueError(f"The weights of the models do not correspond: {'; '.join(differing[:5])}")
    for old, new in zip(source, target):
        new.assign(old.value)


def position_weights(model):
    """The weights of all position encodings, each once."""
    return list({id(w): w for encoding in position_encodings(model) for w in encoding.weights}.values())


def count(weights):
    return int(sum(np.prod(w.shape, dtype=int) for w in weights))


def _other_weights(model):
    positions = {id(w) for w in position_weights(model)}
    return [w for w in model.weights if id(w) not in positions]
