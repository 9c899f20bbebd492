"""Attention against `keras.layers.MultiHeadAttention`, and encodings against keras-hub, with the same weights."""

import keras
import numpy as np
import pytest
from subject import randomize

from keras_posenc.encodings import Alibi, Rotary, Sinusoidal, T5Bias
from keras_posenc.encodings.t5 import bucket_table
from keras_posenc.layers import DietAbsAttention, PositionalAttention

TOLERANCE = dict(rtol=1e-5, atol=1e-5)
HEADS, SIZE, WIDTH, QUERIES, KEYS = 3, 4, 10, 5, 7


def agree(ours, theirs):
    return np.allclose(ours, theirs, **TOLERANCE)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


# keras.layers.MultiHeadAttention


def pair(query, value, key=None, **options):
    """Our layer without positions and Keras's, with equal weights."""
    shapes = [x.shape for x in (query, value, value if key is None else key)]
    ours = PositionalAttention(HEADS, SIZE, position=None, **options)
    theirs = keras.layers.MultiHeadAttention(HEADS, SIZE, **options)
    for layer in (ours, theirs):
        layer.build(*shapes)
    randomize(theirs)
    same_names = [w.path.split("/")[1:] for w in ours.weights] == [w.path.split("/")[1:] for w in theirs.weights]
    assert same_names  # so the weights of one are the weights of the other
    ours.set_weights(theirs.get_weights())
    return ours, theirs


def check(ours, theirs, *inputs, **call):
    output, scores = ours(*inputs, return_attention_scores=True, **call)
    expected, expected_scores = theirs(*inputs, return_attention_scores=True, **call)
    np.testing.assert_allclose(output, expected, **TOLERANCE)
    np.testing.assert_allclose(scores, expected_scores, **TOLERANCE)
    np.testing.assert_allclose(ours(*inputs, **call), expected, **TOLERANCE)  # whether or not scores are asked for


def padding(query_length, key_length):
    """Keys 0..2 for the first example, all for the second, so that no row is empty."""
    mask = np.ones((2, query_length, key_length), bool)
    mask[0, :, 3:] = False
    return mask


@pytest.mark.parametrize(
    "options",
    [{}, {"value_dim": 6}, {"use_bias": False}, {"output_shape": 8}],
    ids=["plain", "value_dim", "no_bias", "output_shape"],
)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_self_attention_equals_keras(options, causal, masked, rng):
    x = normal(rng, 2, QUERIES, WIDTH)
    mask = padding(QUERIES, QUERIES) if masked else None
    check(*pair(x, x, **options), x, x, attention_mask=mask, use_causal_mask=causal)


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("own_key", [False, True], ids=["value_only", "value_and_key"])
def test_cross_attention_equals_keras(own_key, masked, rng):
    """Widths differ, so exchanging value and key, which Keras takes in this order, could not go unnoticed."""
    query, value, key = normal(rng, 2, QUERIES, WIDTH), normal(rng, 2, KEYS, 6), normal(rng, 2, KEYS, 9)
    inputs = (query, value, key) if own_key else (query, value)
    mask = padding(QUERIES, KEYS) if masked else None
    check(*pair(*inputs, value_dim=5), *inputs, attention_mask=mask)


def test_mask_per_head_equals_keras(rng):
    x = normal(rng, 2, QUERIES, WIDTH)
    mask = rng.random(size=(2, HEADS, QUERIES, QUERIES)) < 0.6
    mask |= np.eye(QUERIES, dtype=bool)  # no row is empty
    check(*pair(x, x), x, x, attention_mask=mask)


def test_the_comparison_would_notice_an_inverted_or_forgotten_mask(rng):
    x, mask = normal(rng, 2, QUERIES, WIDTH), padding(QUERIES, QUERIES)
    mask[1, :, 0] = False
    ours, theirs = pair(x, x)
    expected = theirs(x, x, attention_mask=mask)
    assert agree(ours(x, x, attention_mask=mask), expected)
    assert not agree(ours(x, x, attention_mask=~mask), expected)
    assert not agree(ours(x, x), expected)


def small_model(attention, **options):
    """A user's functional model; the attention class is all that changes."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(11, WIDTH, mask_zero=True)(ids)
    x = x + attention(num_heads=HEADS, key_dim=SIZE, **options)(x, x)
    return keras.Model(ids, keras.layers.Dense(3)(x))


def batch_of_ids(rng):
    ids = rng.integers(1, 11, size=(4, 6))
    ids[0, 4:] = 0  # padding, which the embedding masks
    return ids


def copy_common(source, target):
    """Copies weights layer by layer and name by name; `target` may have more."""
    for old, new in zip(source.layers, target.layers):
        by_name = {weight.path.split("/", 1)[1]: weight for weight in new.weights}
        for weight in old.weights:
            by_name[weight.path.split("/", 1)[1]].assign(weight)


def test_drop_in_with_zero_positions_is_the_same_model(rng):
    """With `P_Q = P_K = 0`, DIET-ABS is plain attention, the masks that Keras passes along included."""
    theirs = small_model(keras.layers.MultiHeadAttention)
    ours = small_model(DietAbsAttention, max_length=8, initializer="zeros")
    randomize(theirs)
    copy_common(theirs, ours)
    ids = batch_of_ids(rng)
    real = ids != 0
    expected = theirs.predict(ids, verbose=0)[real]
    np.testing.assert_allclose(ours.predict(ids, verbose=0)[real], expected, **TOLERANCE)
    (attention,) = (layer for layer in ours.layers if isinstance(layer, DietAbsAttention))
    randomize(attention.position)
    assert not agree(ours.predict(ids, verbose=0)[real], expected)


def test_drop_in_trains(rng):
    model = small_model(DietAbsAttention, max_length=8)
    model.compile(keras.optimizers.SGD(1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = [np.array(weight) for weight in model.trainable_weights]
    loss = model.train_on_batch(batch_of_ids(rng), rng.integers(0, 3, size=(4, 6)))
    assert np.isfinite(loss)
    for weight, old in zip(model.trainable_weights, before):
        # A key bias adds the same to a whole row of scores, which the softmax does not see.
        if not weight.path.endswith("key/bias"):
            assert np.abs(np.asarray(weight) - old).max() > 0, f"{weight.path} got no gradient"


# keras-hub


@pytest.fixture
def hub():
    return pytest.importorskip("keras_hub", reason="keras-hub is not installed")


def rotated(encoding, query, key, start_index):
    return [np.asarray(x) for x in encoding.at(QUERIES, KEYS, start_index).transform(query, key, key)[:2]]


@pytest.mark.parametrize("scaling", [{}, {"scaling": "linear", "factor": 2.5}], ids=["plain", "linear"])
@pytest.mark.parametrize("base", [10000.0, 500.0])
@pytest.mark.parametrize("start_index", [0, 2])
def test_rotary(hub, start_index, base, scaling, rng):
    query, key = normal(rng, 2, HEADS, QUERIES, SIZE), normal(rng, 2, HEADS, KEYS, SIZE)
    layer = hub.layers.RotaryEmbedding(base, scaling_factor=scaling.get("factor", 1.0), sequence_axis=2)
    theirs = np.asarray(layer(query, start_index=start_index)), np.asarray(layer(key))
    ours = rotated(Rotary(key_dim=SIZE, layout="half", base=base, **scaling), query, key, start_index)
    for mine, expected in zip(ours, theirs):
        np.testing.assert_allclose(mine, expected, **TOLERANCE)

    other_layout = rotated(Rotary(key_dim=SIZE, layout="interleaved", base=base, **scaling), query, key, start_index)
    assert not agree(other_layout[0], theirs[0])
    elsewhere = rotated(Rotary(key_dim=SIZE, base=base, **scaling), query, key, start_index + 1)
    assert not agree(elsewhere[0], theirs[0])


@pytest.mark.parametrize("width", [6, 7])
@pytest.mark.parametrize("start_index", [0, 3])
def test_sinusoids(hub, start_index, width, rng):
    x = normal(rng, 2, QUERIES, width)
    theirs = hub.layers.SinePositionEncoding(max_wavelength=500)(x, start_index=start_index)
    ours = Sinusoidal(max_wavelength=500, layout="interleaved")
    np.testing.assert_allclose(ours(x, start_index=start_index) - x, theirs, **TOLERANCE)
    concatenated = Sinusoidal(max_wavelength=500, layout="concatenated")
    assert not agree(concatenated(x, start_index=start_index) - x, theirs)


@pytest.mark.parametrize("num_heads", [4, 8, 12])
def test_alibi(hub, num_heads, rng):
    """Theirs adds one row of key positions: ours up to a constant per row, so equal under a causal softmax only."""
    scores = normal(rng, 2, num_heads, KEYS, KEYS)
    bias = np.asarray(Alibi(num_heads).at(KEYS).bias)
    theirs = np.asarray(hub.layers.AlibiBias()(scores))
    hidden = np.where(np.tril(np.ones((KEYS, KEYS), bool)), 0.0, -np.inf)

    def softmax(x):
        x = np.exp(x - x.max(axis=-1, keepdims=True))
        return x / x.sum(axis=-1, keepdims=True)

    np.testing.assert_allclose(softmax(scores + bias + hidden), softmax(theirs + hidden), **TOLERANCE)
    assert not agree(softmax(scores - bias + hidden), softmax(theirs + hidden))  # the wrong sign
    assert not agree(softmax(scores + bias), softmax(theirs))  # in both directions distances are not key positions


@pytest.fixture
def hub_t5():
    path = "keras_hub.src.models.t5.t5_multi_head_attention"
    return pytest.importorskip(path, reason="keras-hub is not installed, or without this layer").T5MultiHeadAttention


@pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (16, 20)])
def test_t5_buckets(hub_t5, num_buckets, max_distance, bidirectional):
    offsets = np.arange(-max_distance, max_distance + 1, dtype="int32")
    theirs = hub_t5._relative_position_bucket(offsets, bidirectional, num_buckets, max_distance)
    ours = bucket_table(num_buckets, max_distance, bidirectional)
    np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(ours[::-1], theirs)  # a flipped sign


@pytest.mark.parametrize("bidirectional", [True, False], ids=["encoder", "decoder"])
@pytest.mark.parametrize("start_index", [0, 150])
def test_t5_bias_while_decoding(hub_t5, start_index, bidirectional):
    layer = hub_t5(not bidirectional, WIDTH, SIZE, HEADS, dropout=0.0, use_relative_attention_bias=True)
    ours = T5Bias(HEADS, bidirectional=bidirectional)
    ours.build()
    randomize(ours)
    layer.relative_attention_bias.assign(np.asarray(ours.table).T)
    theirs = np.asarray(layer.compute_bias(2, 160, query_start_index=start_index))
    np.testing.assert_allclose(ours.at(2, 160, start_index).bias, theirs, **TOLERANCE)
    assert not agree(ours.at(2, 160, start_index + 1).bias, theirs)
