"""What users of Keras expect of any layer: shapes, masks, seeds, and no argument that is taken and ignored."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_posenc
from keras_posenc import encodings
from keras_posenc.encodings import create
from keras_posenc.layers import (
    DietAbsAttention,
    LinformerAttention,
    PositionalAttention,
    TransformerBlock,
    TransformerDecoder,
    TransformerDecoderBlock,
    TransformerEncoder,
)

X = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")


@pytest.mark.parametrize(
    "layer",
    [
        PositionalAttention(3, 4, output_shape=(7,)),
        LinformerAttention(3, 4, 8, num_keys=2),
        TransformerBlock(3, 16, 12),
        TransformerEncoder(1, 3, 12, 16, "tisa"),
        TransformerDecoder(1, 3, 12, 16, "tisa"),
        encodings.Sinusoidal(),
        encodings.Tisa(3),
        encodings.T5Bias(3, share_heads=True),
        encodings.DietAbsLin(3, 4, 8, num_keys=2),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_shapes_are_known_without_a_call(layer):
    given = (X, X) if isinstance(layer, TransformerDecoder) else (X,)
    shape = layer.compute_output_shape(*(each.shape for each in given))
    assert shape == tuple(layer(*given).shape)


def test_a_block_for_each_of_many_texts():
    x = keras.Input((None, 5, 12))
    output = keras.layers.TimeDistributed(TransformerBlock(3, 16, 12, position="alibi"))(x)
    assert keras.Model(x, output)(X[None]).shape == (1, 2, 5, 12)


def test_symbolic_calls_have_all_outputs():
    x = keras.Input((5, 12))
    output, scores = PositionalAttention(3, 4, output_shape=7)(x, return_attention_scores=True)
    assert (output.shape, scores.shape) == ((None, 5, 7), (None, 3, 5, 5))


@pytest.mark.parametrize("seed", [1, keras.random.SeedGenerator(1)], ids=["number", "generator"])
def test_seeded_initializers_give_each_weight_its_own_values(seed):
    normal = keras.initializers.RandomNormal(seed=seed)
    layers = [DietAbsAttention(3, 4, 8, initializer=normal, kernel_initializer=normal) for _ in range(2)]
    for layer in layers:
        layer(X)
        assert not np.allclose(layer.query_dense.kernel, layer.key_dense.kernel)
        tables = [np.array(weight) for weight in layer.position.weights]
        assert not np.allclose(*tables)
    for one, other in zip(layers[0].weights, layers[1].weights):
        np.testing.assert_array_equal(one, other)  # and the same in every layer that is made so


def test_seeded_initializers_give_each_block_its_own_values():
    normal = keras.initializers.RandomNormal(seed=1)
    for make, part in ((TransformerEncoder, "attention"), (TransformerDecoder, "self_attention")):
        stack = make(2, 3, 12, 16, "tisa", kernel_initializer=normal)
        stack(*((X, X) if make is TransformerDecoder else (X,)))
        first, second = (getattr(block, part).query_dense.kernel for block in stack.blocks)
        assert not np.allclose(first, second)


def test_content_free_scores_drop_weights_of_each_text():
    layer = PositionalAttention(
        3, 4, position="synthesizer", position_options={"kind": "random"}, max_length=8, dropout=0.5
    )
    first, second = layer(np.repeat(X[:1], 2, axis=0), training=True)
    assert not np.allclose(first, second)


def test_combined_encodings_by_hand_have_the_sizes_of_their_parts():
    parts = [encodings.Tupe(2, 8, 16), encodings.Tisa(2)]
    combined = encodings.Combined(parts)
    assert (combined.num_heads, combined.key_dim) == (2, 8)
    attention = PositionalAttention(2, 8, position=combined)
    assert attention._scale(combined) == combined.scale == parts[0].scale
    with pytest.raises(ValueError, match=r"same `num_heads`.*\[2, 3\]"):
        encodings.Combined([encodings.Tisa(2), encodings.T5Bias(3)])


def test_combined_encodings_by_hand_know_the_size_of_values():
    combined = encodings.Combined([encodings.Shaw(3, 4, value_dim=5), encodings.Tisa(3)])
    assert PositionalAttention(3, 4, value_dim=5, position=combined)(X).shape == X.shape
    with pytest.raises(ValueError, match="value_dim=4.*value_dim=5"):
        PositionalAttention(3, 4, position=combined)


def test_combined_encodings_are_folded_once(monkeypatch):
    layer = PositionalAttention(3, 4, position="diet_abs+diet_rel", max_length=8)
    layer(X)
    made = []
    monkeypatch.setattr(keras_posenc.utils.folding, "run_compiled", lambda make: made.append(1) or make())
    keras_posenc.fold_positions(layer, 8)
    assert len(made) == 2


def test_parts_extrapolate_where_they_can():
    both = create("diet_abs+diet_rel", num_heads=3, key_dim=4, max_length=4, extrapolate="clip")
    assert [part.extrapolate for part in both.encodings] == ["clip", "clip"]
    encoder = TransformerEncoder(1, 3, 12, 16, "diet_abs+tisa", max_length=4, extrapolate="clip")
    assert encoder(X).shape == X.shape
    for make in (TransformerEncoder, TransformerDecoder):
        with pytest.raises(ValueError, match="`extrapolate` must be one of .* Received: extrapolate='cilp'"):
            make(1, 3, 12, 16, "tisa", extrapolate="cilp")


def test_an_interpolated_fold_is_of_its_length():
    learned = encodings.Learned(max_length=4, extrapolate="interpolate")
    learned(X[:, :4])
    learned.fold(4)
    run = tf.function(lambda total: learned(X[:, :3], total_length=total))
    with pytest.raises(tf.errors.InvalidArgumentError, match="folded at length 4"):
        run(tf.constant(8))


def test_a_causal_encoder_spends_no_parameters_on_what_comes_after():
    encoder = TransformerEncoder(1, 3, 12, 16, "t5", causal=True)
    assert encoder.blocks[0].attention.position.bidirectional is False
    encoder = TransformerEncoder(1, 3, 12, 16, "t5", {"bidirectional": True}, causal=True)
    assert encoder.blocks[0].attention.position.bidirectional is True
    block = TransformerBlock(3, 16, 12, causal=True, position="t5")
    assert block.attention.position.bidirectional is False
    assert TransformerBlock.from_config(block.get_config()).attention.position.bidirectional is False


def test_a_decoder_block_spends_none_on_what_comes_after_either():
    block = TransformerDecoderBlock(3, 16, 12, position="t5", cross_position="t5")
    again = TransformerDecoderBlock.from_config(block.get_config())
    for each in (block, again):
        assert each.self_attention.position.bidirectional is False
        assert each.cross_attention.position.bidirectional is True
    block = TransformerDecoderBlock(3, 16, 12, position="synthesizer", max_length=8)
    whole = block(X, X)
    cache = block.self_attention.make_cache(2, 5), block.cross_attention.make_cache(memory=X)
    np.testing.assert_allclose(block(X, cache=cache)[0], whole, atol=1e-5)


@pytest.mark.parametrize("position", ["diet_abs_lin", ["diet_abs_lin"]])
def test_a_named_encoding_has_the_compressed_keys_of_its_layer(position):
    layer = LinformerAttention(3, 4, 8, num_keys=5, position=position)
    block = TransformerBlock(3, 16, 12, max_length=8, num_keys=5, position=position)
    assert layer.position.num_keys == block.attention.position.num_keys == 5
    assert layer(X).shape == block(X).shape == X.shape
    with pytest.raises(ValueError, match="num_keys=5 differs from that of the encoding, 7"):
        LinformerAttention(3, 4, 8, num_keys=5, position=position, position_options={"num_keys": 7})


def test_a_bias_given_to_a_block_of_low_precision_stays_exact():
    """Around 100, bfloat16 has steps of one half."""
    block = TransformerBlock(3, 16, 12, dtype="mixed_bfloat16")
    bias = 100 + np.random.default_rng(1).normal(size=(1, 3, 5, 5)).astype("float32")
    _, found = block(X, position_bias=bias, return_intermediates=True)
    _, expected = block.attention(X, position_bias=bias, return_attention_scores=True)
    np.testing.assert_array_equal(found["attention"], expected)


def test_scaling_by_one_is_none():
    plain, scaled = encodings.Rotary(key_dim=4), encodings.Rotary(key_dim=4, scaling="linear", factor=1)
    np.testing.assert_array_equal(plain.at(5).tables["key"], scaled.at(5).tables["key"])
    assert encodings.Rotary.from_config(plain.get_config()).factor == 1


def test_segment_ids_out_of_range_in_a_graph():
    layer = DietAbsAttention(3, 4, 8, num_segments=2)
    run = tf.function(lambda ids: layer(X, segment_ids=ids))
    run(tf.zeros((2, 5), "int32"))
    for bad in (2, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of range for num_segments=2"):
            run(tf.fill((2, 5), bad))


MADE = encodings.DietAbs(3, 4, 8)
REFUSED = {
    "options of an encoding that is made": (
        lambda: PositionalAttention(3, 4, position=MADE, position_options={"rank": 3}),
        "DietAbs is made already",
    ),
    "options of a named attention": (lambda: DietAbsAttention(3, 4, 8, position_options={"rank": 3}), "made already"),
    "another sharing of heads": (
        lambda: PositionalAttention(3, 4, position=MADE, share_heads=True),
        "share_heads=True",
    ),
    "another size of values": (
        lambda: PositionalAttention(3, 4, value_dim=5, position=encodings.Shaw(3, 4)),
        "value_dim=5",
    ),
    "an encoding where a name is wanted": (lambda: TransformerEncoder(1, 3, 12, 16, MADE), "must be the name"),
    "compressed keys in a sum": (
        lambda: PositionalAttention(3, 4, position="diet_abs_lin+tisa", max_length=8),
        "compressed keys",
    ),
    "an output of two dimensions": (lambda: PositionalAttention(3, 4, output_shape=(4, 8)), r"output_shape=\(4, 8\)"),
    "segments of an encoder without them": (
        lambda: TransformerEncoder(1, 3, 12, 16, "tisa")(X, segment_ids=np.zeros((2, 5), "int32")),
        "construct it with `num_segments`",
    ),
    "segments of compressed keys": (
        lambda: LinformerAttention(3, 4, 8)(X, segment_ids=np.zeros((2, 5), "int32")),
        "`segment_ids`",
    ),
    "ids where embeddings are wanted": (lambda: encodings.Learned(max_length=8)(np.array([[3, 4]])), "int64 of shape"),
    "c of FIRE": (lambda: encodings.Fire(2, initial_c=0), "initial_c=0"),
    "L of FIRE": (lambda: encodings.Fire(2, initial_threshold=-1.0), "initial_threshold=-1.0"),
    "width of FLOATER": (lambda: encodings.Floater(hidden_dim=0), "hidden_dim=0"),
    "step of FLOATER": (lambda: encodings.Floater(step=0), "step=0"),
    "base of sinusoids": (lambda: encodings.Sinusoidal(max_wavelength=0), "max_wavelength=0"),
    "base of RoPE": (lambda: encodings.Rotary(key_dim=4, base=-1), "base=-1"),
    "factor without scaling": (lambda: encodings.Rotary(key_dim=4, factor=4), "scaling=None, factor=4"),
    "scaling without factor": (lambda: encodings.Rotary(key_dim=4, scaling="ntk"), "scaling='ntk', factor=None"),
    "another number of positions": (lambda: PositionalAttention(3, 4, position=MADE, max_length=512), "max_length=512"),
    "a way beyond what has none": (
        lambda: TransformerEncoder(1, 3, 12, 16, "synthesizer", max_length=4, extrapolate="clip"),
        "'synthesizer' has no positions beyond",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_is_taken_and_ignored(what):
    make, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        make()
