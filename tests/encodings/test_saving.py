"""`.keras` files, clones and configs reproduce outputs and weights."""

import keras
import numpy as np
import pytest
from subject import CASES, WIDTH, Subject, case_id, make_subject, randomize

from keras_posenc import encodings, layers

pytestmark = pytest.mark.integration


def functional(layer):
    inputs = keras.Input((None, WIDTH))
    return keras.Model(inputs, layer(inputs))


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_keras_file_round_trip(case, tmp_path, rng):
    model = functional(Subject(*case))
    randomize(model)
    x = rng.normal(size=(2, 6, WIDTH)).astype("float32")
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert len(loaded.weights) == len(model.weights) and loaded.count_params() == model.count_params()
    np.testing.assert_allclose(loaded(x), model(x), atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_config_describes_the_encoding_completely(case):
    encoding = make_subject(case, dtype="float32").encoding
    config = encoding.get_config()
    again = type(encoding).from_config(config)
    assert again.get_config() == config
    again.build((None, None, WIDTH))
    assert [w.shape for w in again.weights] == [w.shape for w in encoding.weights]


@pytest.mark.parametrize("sharing", ["none", "head", "layer"])
@pytest.mark.parametrize("name", encodings.names())
def test_every_sharing_mode_survives_a_file(name, sharing, tmp_path, rng):
    special = {"num_keys": 5} if name == "diet_abs_lin" else {"num_segments": 2}
    encoder = layers.TransformerEncoder(
        2, 3, WIDTH, 16, position=name, sharing=sharing, max_length=8, dropout=0.1, **special
    )
    inputs = [keras.Input((None, WIDTH)), keras.Input((None,), dtype="int32")]
    outputs = encoder(inputs[0]) if "num_keys" in special else encoder(inputs[0], segment_ids=inputs[1])
    model = keras.Model(inputs, outputs)
    randomize(model)
    x = [rng.normal(size=(2, 6, WIDTH)).astype("float32"), rng.integers(0, 2, (2, 6)).astype("int32")]
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert [w.path for w in loaded.weights] == [w.path for w in model.weights]
    np.testing.assert_allclose(loaded(x), model(x), atol=1e-6)


@pytest.mark.parametrize("name", ["diet_abs", "tupe_rel", "shaw"])
def test_sharing_decides_the_number_of_parameters(name):
    def build(sharing):
        encoder = layers.TransformerEncoder(3, 3, WIDTH, 16, position=name, sharing=sharing, max_length=8)
        encoder.build((None, None, WIDTH))
        return encoder

    none, layer = build("none"), build("layer")
    own = sum(e.count_params() for e in none.blocks[0]._flatten_layers() if isinstance(e, encodings.PositionEncoding))
    assert own > 0
    assert none.count_params() - layer.count_params() == 2 * own  # three copies against one


def test_cloning(rng):
    model = functional(layers.DietAbsAttention(3, 4, max_length=8, rank=2, num_segments=None))
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    x = rng.normal(size=(1, 5, WIDTH)).astype("float32")
    np.testing.assert_allclose(clone(x), model(x), atol=1e-6)


NAMED = [getattr(layers, n) for n in layers.__all__ if n.endswith("Attention") and n not in ("NamedAttention",)]


@pytest.mark.parametrize("cls", NAMED, ids=lambda c: c.__name__)
def test_named_attentions_round_trip(cls, tmp_path, rng):
    layer = cls(num_heads=3, key_dim=4, max_length=8, dropout=0.1, value_dim=6, kernel_initializer="he_normal")
    model = functional(layer)
    randomize(model)
    x = rng.normal(size=(2, 6, WIDTH)).astype("float32")
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert type(loaded.layers[1]) is cls
    np.testing.assert_allclose(loaded(x), model(x), atol=1e-6)


def test_every_attention_encoding_has_a_named_attention():
    covered = {getattr(c, "encoding", None) for c in NAMED} | {encodings.NoPosition, encodings.DietAbsLin}
    inside = {encodings.get_class(n) for n in encodings.names() if "embed" not in encodings.get_class(n).doors}
    assert inside <= covered


def test_a_combination_survives_a_file(tmp_path, rng):
    layer = layers.PositionalAttention(3, 4, position="rotary+diet_rel+tisa", max_length=8)
    model = functional(layer)
    randomize(model)
    x = rng.normal(size=(2, 6, WIDTH)).astype("float32")
    model.save(tmp_path / "m.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "m.keras")(x), model(x), atol=1e-6)
