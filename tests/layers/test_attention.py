"""`PositionalAttention` as a layer: masks, arguments, use in models, errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from subject import WIDTH, randomize

import keras_posenc
from keras_posenc import encodings
from keras_posenc.layers import (
    DietAbsAttention,
    DietAbsLinformerAttention,
    LinformerAttention,
    PositionalAttention,
    TisaAttention,
    TransformerBlock,
    TransformerDecoder,
    TransformerEncoder,
)

X = np.random.default_rng(0).normal(size=(2, 6, WIDTH)).astype("float32")


def inside():
    return [n for n in encodings.names() if "embed" not in encodings.get_class(n).doors and n != "diet_abs_lin"]


# Scores and masks


@pytest.mark.parametrize("name", inside())
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_asking_for_scores_changes_nothing_else(name, policy):
    layer = PositionalAttention(3, 4, position=name, max_length=8, dtype=policy)
    mask = np.array([[1] * 6, [0] * 6], "int32")
    plain = layer(X, attention_mask=mask)
    output, scores = layer(X, attention_mask=mask, return_attention_scores=True)
    np.testing.assert_array_equal(output, plain)
    assert scores.shape == (2, 3, 6, 6)
    np.testing.assert_array_equal(scores[1], np.zeros((3, 6, 6)))


def test_masks_of_every_shape_agree():
    layer = PositionalAttention(3, 4, position="tisa")
    keys = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]], "int32")
    expected = layer(X, attention_mask=keys)
    for mask in (
        keys.astype(bool),
        np.tile(keys[:, None, :], (1, 6, 1)),
        np.tile(keys[:, None, None, :], (1, 3, 6, 1)).astype(bool),
    ):
        np.testing.assert_allclose(layer(X, attention_mask=mask), expected, atol=1e-6)
    np.testing.assert_allclose(layer(X, X, value_mask=keys.astype(bool)), expected, atol=1e-6)


def test_a_masked_key_changes_nothing():
    layer = PositionalAttention(3, 4, position="shaw")
    mask = np.array([[1, 1, 1, 1, 0, 0]] * 2, "int32")
    other = X.copy()
    other[:, 4:] = 99.0
    np.testing.assert_allclose(
        layer(X, attention_mask=mask)[:, :4], layer(other, attention_mask=mask)[:, :4], atol=1e-5
    )


def test_masks_of_embeddings_arrive_by_themselves():
    embedding = keras.layers.Embedding(10, WIDTH, mask_zero=True)
    layer = PositionalAttention(3, 4, position="alibi")
    ids = np.array([[3, 4, 5, 0, 0]])
    x = embedding(ids)
    expected = np.asarray(layer(np.asarray(x), attention_mask=ids != 0))
    np.testing.assert_allclose(layer(x)[:, :3], expected[:, :3], atol=1e-6)
    bias = np.asarray(layer.output_dense.bias)
    np.testing.assert_allclose(layer(x)[:, 3:], np.tile(bias, (1, 2, 1)), atol=1e-6)  # masked queries give zeros


def test_dropout_acts_in_training_only_and_keeps_the_expectation():
    layer = PositionalAttention(3, 4, dropout=0.5, seed=1)
    same = layer(X)
    np.testing.assert_array_equal(layer(X, training=False), same)
    # Four hundred copies in one call, each with a dropout of its own.
    runs = np.asarray(layer(np.repeat(X[:1], 400, axis=0), training=True))
    assert runs.std(axis=0).max() > 0.01
    assert np.abs(runs.mean(axis=0) - same[0]).max() < 0.2 * np.abs(same[0]).max()


def test_query_width_may_differ_from_memory_width():
    layer = PositionalAttention(3, 4, value_dim=5, position="t5")
    memory = np.zeros((2, 9, 20), "float32")
    assert layer(X, memory).shape == (2, 6, WIDTH)
    assert PositionalAttention(3, 4, output_shape=7)(X).shape == (2, 6, 7)
    assert len(PositionalAttention(3, 4, use_bias=False).weights) == 0


def test_output_shape_in_cross_attention_is_declared_right():
    layer = PositionalAttention(3, 4, position="tisa")
    output, scores = layer(keras.Input((5, WIDTH)), keras.Input((9, WIDTH)), return_attention_scores=True)
    assert output.shape == (None, 5, WIDTH) and scores.shape == (None, 3, 5, 9)


# In models


def losses_of(model, eagerly=False):
    model.compile("adam", "mse", jit_compile=False, run_eagerly=eagerly)
    return model.fit(X, X[..., :1], epochs=2, verbose=0).history["loss"]


@pytest.mark.integration
@pytest.mark.parametrize("name", inside())
def test_every_encoding_trains_in_a_functional_model(name):
    inputs = keras.Input((None, WIDTH))
    attended = PositionalAttention(3, 4, position=name, max_length=8)(inputs)
    # Eagerly: that gradients in graphs are right is in encodings/test_compiled.py.
    first, second = losses_of(keras.Model(inputs, keras.layers.Dense(1)(attended)), eagerly=True)
    assert np.isfinite(second) and second < first


@pytest.mark.integration
def test_sequential_and_subclassed_models_train():
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.attention, self.out = DietAbsAttention(3, 4, max_length=8), keras.layers.Dense(1)

        def call(self, x):
            return self.out(self.attention(x))

    for model in (keras.Sequential([DietAbsAttention(3, 4, max_length=8), keras.layers.Dense(1)]), Subclassed()):
        first, second = losses_of(model)
        assert second < first


def test_a_model_written_with_keras_attention_needs_only_the_class_name_and_max_length():
    def model(attention, **extra):
        x = inputs = keras.Input((None, WIDTH))
        attended = attention(num_heads=3, key_dim=4, dropout=0.1, **extra)(
            query=x, value=x, key=x, use_causal_mask=True
        )
        return keras.Model(inputs, keras.layers.LayerNormalization()(x + attended))

    theirs, ours = model(keras.layers.MultiHeadAttention), model(DietAbsAttention, max_length=16)
    assert ours(X).shape == theirs(X).shape
    # With positions silenced it is the same function of the same weights.
    layer = ours.layers[1]
    layer.position.query_table.assign(np.zeros(layer.position.query_table.shape))
    for name in ("query", "key", "value", "attention_output"):
        of_theirs = next(s for s in theirs.layers[1]._flatten_layers() if s.name == name)
        next(s for s in layer._flatten_layers() if s.name == name).set_weights(of_theirs.get_weights())
    np.testing.assert_allclose(ours(X), theirs(X), atol=1e-5)


def test_a_bias_computed_once_serves_many_layers():
    """Sharing in a functional model: the bias is a tensor that each attention layer is given."""
    inputs = keras.Input((None, WIDTH))
    bias = encodings.DietRel(num_heads=3, max_length=8)(inputs)
    x = inputs
    for _ in range(3):
        x = x + PositionalAttention(3, 4)(x, position_bias=bias)
    model = keras.Model(inputs, x)
    assert sum("distances" in w.path for w in model.weights) == 1
    own = PositionalAttention(3, 4, position=encodings.DietRel(num_heads=3, max_length=8))
    alone = PositionalAttention(3, 4)
    own.build((None, None, WIDTH)), alone.build((None, None, WIDTH))
    for name in ("query_dense", "key_dense", "value_dense", "output_dense"):
        getattr(alone, name).set_weights(getattr(own, name).get_weights())
    np.testing.assert_allclose(alone(X, position_bias=own.position(X)), own(X), atol=1e-6)


def test_an_encoder_asks_a_shared_encoding_once(monkeypatch):
    encoder = TransformerEncoder(4, 3, WIDTH, 16, position="tisa", sharing="layer")
    encoder.build((None, None, WIDTH))
    calls, bias = [], encodings.Tisa.bias
    monkeypatch.setattr(encodings.Tisa, "bias", lambda self, *a: calls.append(1) or bias(self, *a))
    encoder(X)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["tisa", "shaw", "transformer_xl", "rotary", "diet_abs"])
def test_layer_sharing_equals_the_same_parameters_in_every_layer(name):
    shared = TransformerEncoder(2, 3, WIDTH, 16, position=name, sharing="layer", max_length=8, num_segments=2)
    own = TransformerEncoder(2, 3, WIDTH, 16, position=name, sharing="none", max_length=8, num_segments=2)
    shared.build((None, None, WIDTH)), own.build((None, None, WIDTH))
    randomize(shared)
    for block, other in zip(own.blocks, shared.blocks):
        for sub in ("query_dense", "key_dense", "value_dense", "output_dense"):
            getattr(block.attention, sub).set_weights(getattr(other.attention, sub).get_weights())
        for sub in ("attention_norm", "intermediate", "output_dense", "output_norm"):
            getattr(block, sub).set_weights(getattr(other, sub).get_weights())
        block.attention.position.set_weights(shared.position.get_weights())
        block.attention.segment_bias.set_weights(shared.segment_bias.get_weights())
    own.input_norm.set_weights(shared.input_norm.get_weights())
    segments = np.array([[0, 0, 0, 1, 1, 1]] * 2, "int32")
    np.testing.assert_allclose(own(X, segment_ids=segments), shared(X, segment_ids=segments), rtol=1e-4, atol=1e-5)


# Linformer


def test_pads_do_not_leak_through_the_compression():
    for layer in (LinformerAttention(3, 4, 8, num_keys=4), DietAbsLinformerAttention(3, 4, 8, num_keys=4)):
        mask = np.array([[1, 1, 1, 0, 0, 0]] * 2, "int32")
        other = X.copy()
        other[:, 3:] = 1e3
        np.testing.assert_allclose(
            layer(X, attention_mask=mask)[:, :3], layer(other, attention_mask=mask)[:, :3], atol=1e-4
        )
        np.testing.assert_allclose(layer(X, attention_mask=mask)[:, :3], layer(X[:, :3]), atol=1e-5)


def test_one_compression_can_serve_keys_and_values():
    two, one = LinformerAttention(3, 4, 8), LinformerAttention(3, 4, 8, share_projections=True)
    two.build(X.shape), one.build(X.shape)
    assert two.count_params() - one.count_params() == 32 * 8
    for sub in ("query_dense", "key_dense", "value_dense", "output_dense"):
        getattr(two, sub).set_weights(getattr(one, sub).get_weights())
    two.key_projection.assign(one.key_projection), two.value_projection.assign(one.key_projection)
    np.testing.assert_allclose(two(X), one(X), atol=1e-6)


# Bad input

LONG = np.zeros((1, 9, WIDTH), "float32")


def bad_calls():
    tisa = PositionalAttention(3, 4, position="tisa")
    bias = np.zeros((1, 3, 6, 6), "float32")
    segmented = PositionalAttention(3, 4, num_segments=2)
    linformer = LinformerAttention(3, 4, 8)
    return {
        "beyond max_length": (
            lambda: DietAbsAttention(3, 4, max_length=8)(LONG),
            "max_length=8, but 9 positions.*extrapolate='clip'",
        ),
        "float mask": (
            lambda: tisa(X, attention_mask=np.zeros((2, 6), "float32")),
            "boolean or integer.*float32.*mask == 0",
        ),
        "mask of one dimension": (lambda: tisa(X, attention_mask=np.ones(6, bool)), r"shape=\(6,\)"),
        "segment out of range": (
            lambda: segmented(X, segment_ids=np.array([[0, 1, 2, 0, 0, 0]] * 2)),
            "Segment id 2.*num_segments=2",
        ),
        "negative segment": (lambda: segmented(X, segment_ids=np.full((2, 6), -1)), "Segment id -1"),
        "segments as floats": (lambda: segmented(X, segment_ids=np.zeros((2, 6), "float32")), "integers"),
        "segments missing": (lambda: segmented(X), "pass `segment_ids`"),
        "segments not expected": (lambda: tisa(X, segment_ids=np.zeros((2, 6), "int32")), "with `num_segments`"),
        "own and given bias": (lambda: tisa(X, position_bias=bias), "already has a bias.*Tisa.*position=None"),
        "own and shared positions": (
            lambda: tisa(X, positions=encodings.Alibi(num_heads=3).at(6)),
            "shared `positions`.*own",
        ),
        "bias for other heads": (
            lambda: PositionalAttention(3, 4)(X, position_bias=np.zeros((1, 2, 6, 6), "float32")),
            r"shape=\(1, 2, 6, 6\)",
        ),
        "two dimensions": (lambda: PositionalAttention(3, 4)(X[0]), r"\(batch, length, width\).*shape=\(6, 12\)"),
        "input encoding in attention": (
            lambda: PositionalAttention(3, 4, position="learned", max_length=8),
            "added to the input embeddings",
        ),
        "compressed keys in full attention": (
            lambda: PositionalAttention(3, 4, position="diet_abs_lin", max_length=8),
            "DietAbsLinformerAttention",
        ),
        "heads of another encoding": (
            lambda: PositionalAttention(3, 4, position=encodings.Tisa(num_heads=2)),
            "num_heads=3.*num_heads=2",
        ),
        "heads that do not divide": (lambda: TransformerBlock(5, 16, WIDTH), "hidden_dim=12, num_heads=5"),
        "heads that do not divide, in an encoder": (
            lambda: TransformerEncoder(2, 5, WIDTH, 16, position="tisa"),
            "hidden_dim=12, num_heads=5",
        ),
        "heads that do not divide, of a size that the encoding needs": (
            lambda: TransformerEncoder(2, 5, WIDTH, 16, position="rotary"),
            "TransformerEncoder.*hidden_dim=12, num_heads=5",
        ),
        "heads that do not divide, in a decoder": (
            lambda: TransformerDecoder(2, 5, WIDTH, 16, position="rotary"),
            "TransformerDecoder.*hidden_dim=12, num_heads=5",
        ),
        "zero heads of an encoder": (lambda: TransformerEncoder(2, 0, WIDTH, 16, max_length=8), "num_heads=0"),
        "no width of a decoder": (lambda: TransformerDecoder(2, 3, 0, 16), "hidden_dim=0"),
        "zero heads": (lambda: PositionalAttention(0, 4), "num_heads=0"),
        "dropout of one": (lambda: PositionalAttention(3, 4, dropout=1.0), "dropout=1.0"),
        "unknown option": (
            lambda: TransformerEncoder(2, 3, WIDTH, 16, position="tisa", position_options={"rank": 3}),
            "no option 'rank'.*kernels",
        ),
        "later start without a cache": (
            lambda: TransformerEncoder(1, 3, WIDTH, 16, position="tisa")(X, start_index=3),
            "`start_index` goes with a `cache`",
        ),
        "unknown sharing": (lambda: TransformerEncoder(2, 3, WIDTH, 16, sharing="all", max_length=4), "sharing='all'"),
        "named with another position": (lambda: TisaAttention(3, 4, position="t5"), "always uses Tisa"),
        "named with an unknown keyword": (lambda: TisaAttention(3, 4, kernals=3), "kernals"),
        "pairwise mask in Linformer": (
            lambda: linformer(X, attention_mask=np.ones((2, 6, 6), bool)),
            r"padding mask.*\(2, 6, 6\)",
        ),
        "causal Linformer": (lambda: linformer(X, use_causal_mask=True), "causal mask"),
        "segments in Linformer": (lambda: LinformerAttention(3, 4, 8, num_segments=2), "num_segments=2"),
        "relative Linformer": (lambda: LinformerAttention(3, 4, 8, position="tisa"), "compressed keys"),
        "long Linformer": (lambda: linformer(LONG), "max_length=8, but 9 keys"),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_names_the_value_and_the_remedy(name):
    call, message = bad_calls()[name]
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call()


@pytest.mark.parametrize("name", [n for n in encodings.names() if "max_length" in encodings.get_class(n).needs])
def test_a_length_beyond_the_table_is_an_error_when_it_is_known(name):
    """Eagerly, when a functional model is built, and when a graph or XLA is traced; never a silent clamp."""
    special = {"num_keys": 4} if name == "diet_abs_lin" else {}

    def encoder():
        return TransformerEncoder(1, 3, WIDTH, 16, position=name, max_length=8, **special)

    for attempt in (
        lambda: encoder()(LONG),
        lambda: encoder()(keras.Input((9, WIDTH))),
        lambda: tf.function(encoder())(LONG),
        lambda: tf.function(encoder(), jit_compile=True)(LONG),
    ):
        with pytest.raises(ValueError, match="max_length=8.*9"):
            attempt()
    graph = tf.function(encoder(), input_signature=[tf.TensorSpec((None, None, WIDTH))])
    graph(LONG[:, :8])
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_length=8"):
        graph(LONG)


@pytest.mark.parametrize("name", [n for n in encodings.names() if "max_length" not in encodings.get_class(n).needs])
def test_encodings_without_a_table_take_any_length(name):
    encoder = TransformerEncoder(1, 3, WIDTH, 16, position=name, max_length=8)
    assert np.isfinite(encoder(np.ones((1, 40, WIDTH), "float32"))).all()


# The package


def test_import_prints_nothing_and_brings_nothing_heavy():
    import subprocess
    import sys

    script = (
        "import sys, keras; before = set(sys.modules); import keras_posenc;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "assert new == {'keras_posenc'}, new"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""


def test_version():
    assert keras_posenc.__version__.count(".") == 2
