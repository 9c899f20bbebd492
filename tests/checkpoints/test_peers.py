"""Models made of keras-hub's and tf-models-official's objects compute what those compute."""

import keras
import numpy as np
import pytest

from keras_posenc import checkpoints

VOCAB, LENGTH = 30, 9


def randomize(weights, rng):
    """Weights of order one, so that no term can hide; scales of normalisations stay near 1."""
    for weight in weights:
        shift = 1.0 if "gamma" in getattr(weight, "path", weight.name) else 0.0
        weight.assign(rng.normal(size=weight.shape) * 0.4 + shift)


def inputs(rng):
    mask = np.ones((2, LENGTH), "int32")
    mask[1, 5:] = 0
    return {
        "token_ids": rng.integers(0, VOCAB, (2, LENGTH), dtype="int32"),
        "segment_ids": np.sort(rng.integers(0, 2, (2, LENGTH), dtype="int32"), axis=1),
        "padding_mask": mask,
    }


def close(ours, theirs):
    np.testing.assert_allclose(keras.ops.convert_to_numpy(ours), np.asarray(theirs), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["BertBackbone", "AlbertBackbone"])
def test_keras_hub(name, rng):
    keras_hub = pytest.importorskip("keras_hub")
    sizes = dict(vocabulary_size=VOCAB, num_layers=3, num_heads=2, hidden_dim=8, intermediate_dim=12)
    if name == "AlbertBackbone":
        sizes["embedding_dim"] = 6
    backbone = getattr(keras_hub.models, name)(**sizes, max_sequence_length=11)
    randomize(backbone.weights, rng)
    model, given = checkpoints.from_keras_hub(backbone), inputs(rng)
    expected, found = backbone(given), model(given)
    assert model.count_params() == backbone.count_params()
    for output in ("sequence_output", "pooled_output"):
        close(found[output], keras.ops.convert_to_numpy(expected[output]))


def tf_models_encoder(version, rng, **options):
    networks = pytest.importorskip("official.nlp.modeling.networks")
    sizes = dict(
        vocab_size=VOCAB,
        num_layers=3,
        num_attention_heads=2,
        hidden_size=8,
        max_sequence_length=11,
        type_vocab_size=2,
        inner_dim=12,
    )
    if version == "BertEncoder":
        options["dict_outputs"] = True
    return getattr(networks, version)(**{**sizes, **options})


@pytest.mark.parametrize("options", [{}, {"embedding_width": 6}, {"inner_activation": "relu"}], ids=str)
@pytest.mark.parametrize("version", ["BertEncoder", "BertEncoderV2"])
def test_tf_models(version, options, rng):
    encoder, given = tf_models_encoder(version, rng, **options), inputs(rng)
    theirs = dict(
        input_word_ids=given["token_ids"], input_mask=given["padding_mask"], input_type_ids=given["segment_ids"]
    )
    encoder(theirs)
    randomize(encoder.weights, rng)
    expected = encoder(theirs)
    model = checkpoints.from_tf_models(encoder)
    found = model(given, return_intermediates=True)
    assert model.count_params() == encoder.count_params()
    for output in ("sequence_output", "pooled_output"):
        close(found[output], expected[output])
    for ours, other in zip(found["hidden_states"][1:], expected["encoder_outputs"]):
        close(ours, other)


def test_what_cannot_be_read(rng):
    with pytest.raises(ValueError, match="BertBackbone or AlbertBackbone. Received: Dense"):
        checkpoints.from_keras_hub(keras.layers.Dense(3))
    with pytest.raises(ValueError, match="norm_first"):
        checkpoints.from_tf_models(tf_models_encoder("BertEncoder", rng, norm_first=True))
    with pytest.raises(ValueError, match="no weights yet"):
        checkpoints.from_tf_models(tf_models_encoder("BertEncoderV2", rng))
    with pytest.raises(ValueError, match="activation"):
        checkpoints.from_tf_models(tf_models_encoder("BertEncoder", rng, inner_activation=lambda x: x * 3))
