"""Folding is exact, and a fold cannot go stale."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from subject import CASES, MAX_LENGTH, WIDTH, case_id, make_subject, randomize

import keras_posenc
from keras_posenc.encodings import DietRel
from keras_posenc.layers import DietAbsAttention, PositionalAttention, TransformerEncoder

cases = pytest.mark.parametrize("case", CASES, ids=case_id)


@cases
def test_folded_equals_unfolded_at_every_length_up_to_it_and_beyond(case, rng):
    subject = make_subject(case, dtype="float32")
    inputs = [rng.normal(size=(2, n, WIDTH)).astype("float32") for n in (1, 2, 7, 9, 11)]
    expected = [subject(x) for x in inputs]
    subject.encoding.fold(9)
    for x, y in zip(inputs, expected):
        np.testing.assert_allclose(subject(x), y, rtol=1e-5, atol=1e-5)
    subject.encoding.unfold()
    for x, y in zip(inputs[2::2], expected[2::2]):
        np.testing.assert_allclose(subject(x), y, rtol=1e-6, atol=1e-6)


def model_of(layer):
    inputs = keras.Input((None, WIDTH))
    return keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))


@pytest.fixture
def model():
    model = model_of(DietAbsAttention(3, 4, max_length=MAX_LENGTH))
    randomize(model)
    return model


@pytest.fixture
def x(rng):
    return rng.normal(size=(4, 6, WIDTH)).astype("float32")


def test_fold_positions_works_on_any_model_and_with_dynamic_lengths(model, x):
    expected = model.predict(x, verbose=0)
    keras_posenc.fold_positions(model, 8)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict(x[:, :3], verbose=0), model(x[:, :3]), atol=1e-5)


def test_a_folded_graph_with_dynamic_lengths_refuses_longer_inputs(model, rng):
    keras_posenc.fold_positions(model, 4)
    graph = tf.function(lambda t: model(t), input_signature=[tf.TensorSpec((None, None, WIDTH))])
    graph(np.zeros((1, 4, WIDTH), "float32"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="folded at length 4"):
        graph(np.zeros((1, 5, WIDTH), "float32"))


def test_a_folded_model_trains_after_unfolding(model, x):
    model.compile("sgd", "mse")
    keras_posenc.fold_positions(model, 8)
    model.predict(x, verbose=0)
    encoding = keras_posenc.position_encodings(model)[0]
    before = np.array(encoding.query_table)
    with pytest.raises(ValueError, match="unfold_positions"):
        model.fit(x, x[..., :1], verbose=0)
    keras_posenc.unfold_positions(model)
    model.fit(x, x[..., :1], verbose=0)
    assert np.abs(np.array(encoding.query_table) - before).max() > 0
    np.testing.assert_allclose(model.predict(x, verbose=0), model(x), atol=1e-5)


def test_a_fold_does_not_count_as_weights(model):
    count, trainable = model.count_params(), len(model.trainable_weights)
    keras_posenc.fold_positions(model, 8)
    assert model.count_params() == count
    assert len(model.trainable_weights) == trainable - 2  # P_Q and P_K are frozen meanwhile
    keras_posenc.unfold_positions(model)
    assert len(model.trainable_weights) == trainable


def writers(encoding, model, tmp_path):
    table = encoding.query_table
    other = np.ones(table.shape, "float32")
    optimizer = keras.optimizers.SGD(0.1)
    path = str(tmp_path / "w.weights.h5")
    keras_posenc.unfold_positions(model)
    model.save_weights(path)
    checkpoint = tf.train.Checkpoint(model=model)
    saved = checkpoint.write(str(tmp_path / "ckpt"))
    keras_posenc.fold_positions(model, 8)
    return {
        "assign": lambda: table.assign(other),
        "assign_add": lambda: table.assign_add(other),
        "assign_sub": lambda: table.assign_sub(other),
        "set_weights": lambda: encoding.set_weights([other, other]),
        "load_weights": lambda: model.load_weights(path),
        "optimizer": lambda: optimizer.apply([tf.constant(other)], [table]),
        "compiled optimizer": lambda: tf.function(lambda: optimizer.apply([tf.constant(other)], [table]))(),
        "tf variable": lambda: table.value.assign(other),
        "tf.train.Checkpoint": lambda: checkpoint.read(saved),
    }


@pytest.mark.parametrize(
    "writer",
    [
        "assign",
        "assign_add",
        "assign_sub",
        "set_weights",
        "load_weights",
        "optimizer",
        "compiled optimizer",
        "tf variable",
        "tf.train.Checkpoint",
    ],
)
def test_folded_weights_cannot_be_changed(model, x, tmp_path, writer):
    encoding = keras_posenc.position_encodings(model)[0]
    write = writers(encoding, model, tmp_path)[writer]
    before = np.array(encoding.query_table)
    with pytest.raises(ValueError, match="folded.*unfold_positions"):
        write()
    np.testing.assert_array_equal(encoding.query_table, before)
    keras_posenc.unfold_positions(model)
    write()


def test_a_function_compiled_while_folded_fails_visibly_after_unfolding(model, x):
    keras_posenc.fold_positions(model, 8)
    old = tf.function(lambda t: model(t))
    assert np.isfinite(old(x)).all()
    keras_posenc.unfold_positions(model)
    assert np.isnan(old(x)).all()
    assert np.isfinite(model(x)).all()


def test_folds_are_not_saved(model, x, tmp_path):
    keras_posenc.fold_positions(model, 8)
    expected = model(x)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert all(e.folded_length is None for e in keras_posenc.position_encodings(loaded))
    np.testing.assert_allclose(loaded(x), expected, atol=1e-5)


def test_refolding_takes_the_new_weights_and_length(model, x):
    encoding = keras_posenc.position_encodings(model)[0]
    keras_posenc.fold_positions(model, 8)
    keras_posenc.unfold_positions(model)
    randomize(model, seed=5)
    expected = model(x)
    keras_posenc.fold_positions(model, 6)
    keras_posenc.fold_positions(model, 7)
    assert encoding.folded_length == 7
    np.testing.assert_allclose(model(x), expected, atol=1e-5)


SUM = dict(position="alibi+diet_rel", max_length=6)


def test_a_fold_that_fails_leaves_nothing_folded(monkeypatch):
    layer = TransformerEncoder(2, 3, WIDTH, 24, **SUM)
    layer.build((None, None, WIDTH))
    last = keras_posenc.position_encodings(layer)[-1]
    monkeypatch.setattr(last, "foldable_tables", lambda length: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        layer.fold_positions(6)
    assert all(e.folded_length is None for e in keras_posenc.position_encodings(layer))


@pytest.mark.parametrize("layer", [TransformerEncoder(2, 3, WIDTH, 24, **SUM), PositionalAttention(3, 4, **SUM)])
def test_a_fold_that_is_refused_leaves_the_one_that_was_there(layer):
    layer.build((None, None, WIDTH))
    layer.fold_positions(4)
    for length, message in ((7, "max_length=6"), (0, "at least 1")):
        with pytest.raises(ValueError, match=message):
            layer.fold_positions(length)
    assert {e.folded_length for e in keras_posenc.position_encodings(layer)} == {4}


def test_folding_before_building_says_so():
    with pytest.raises(ValueError, match="Build the model"):
        PositionalAttention(3, 4, position="tisa").fold_positions(4)
    with pytest.raises(ValueError, match="at least 1"):
        PositionalAttention(3, 4, position="tisa").fold_positions(0)


def test_interpolated_positions_fold_only_within_the_table(rng):
    layer = DietAbsAttention(3, 4, max_length=6, extrapolate="interpolate")
    layer.build((None, None, WIDTH))
    layer.fold_positions(6)
    with pytest.raises(ValueError, match="depend on the length"):
        layer.fold_positions(7)


def test_a_fold_is_not_for_a_target_that_is_interpolated():
    """Three keys and one query would fit; but the query is of a sequence of eight, squeezed into the table."""
    rel = DietRel(num_heads=2, max_length=4, extrapolate="interpolate")
    rel.build()
    expected = rel.at(1, 3, 2, total_length=8).bias
    assert not np.allclose(rel.at(1, 3, 2).bias, expected)
    rel.fold(4)
    np.testing.assert_array_equal(rel.at(1, 3, 2, total_length=8).bias, expected)
    later = tf.function(lambda total: rel.at(1, 3, 2, total_length=total).bias)
    with pytest.raises(tf.errors.InvalidArgumentError, match="folded at length 4"):
        later(tf.constant(8))


def test_shared_encodings_fold_once(rng):
    layer = TransformerEncoder(3, 3, WIDTH, 24, position="tisa", sharing="layer")
    x = rng.normal(size=(1, 5, WIDTH)).astype("float32")
    expected = layer(x)
    layer.fold_positions(5)
    assert len(keras_posenc.position_encodings(layer)) == 1 + 3  # one shared; each block holds NoPosition
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    with pytest.raises(ValueError, match="unfold_positions"):
        layer(x, training=True)
