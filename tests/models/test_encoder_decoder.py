"""The encoder-decoder: what is causal, what is hidden, and that steps with a cache are the whole."""

import keras
import numpy as np
import pytest

import keras_posenc
from keras_posenc.layers.decoder import TransformerDecoder
from keras_posenc.layers.decoder_block import TransformerDecoderBlock
from keras_posenc.models.encoder_decoder import EncoderDecoder

DECODABLE = [name for name in keras_posenc.encodings.names() if name != "diet_abs_lin"]
VOCAB, LENGTH = 11, 8


def make(position="sinusoidal", seed=0, **kwargs):
    """A tiny model with weights large enough for every part to matter."""
    sizes = dict(vocab_size=VOCAB, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, max_length=LENGTH)
    model = EncoderDecoder(**{**sizes, "position": position, **kwargs})
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return model


def batch(seed=1, source=5, target=6):
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(1, VOCAB, (2, source)).astype("int32")
    token_ids[1, source - 2 :] = 0
    return {"token_ids": token_ids, "target_ids": rng.integers(1, VOCAB, (2, target)).astype("int32")}


def logits(model, inputs, **kwargs):
    return keras.ops.convert_to_numpy(model(inputs, **kwargs)["logits"])


def decode(model, inputs, sizes, cache_length=LENGTH):
    """The logits from steps of the given sizes."""
    mask = model.source_mask(inputs["token_ids"])
    cache = model.make_cache(model.encode(inputs["token_ids"], mask), cache_length)
    found, start = [], 0
    for size in sizes:
        step, cache = model.decode_step(inputs["target_ids"][:, start : start + size], cache, start, mask)
        found.append(keras.ops.convert_to_numpy(step))
        start += size
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize("name", DECODABLE)
@pytest.mark.parametrize("norm_first, sharing, sizes", [(False, "none", [1] * 6), (True, "layer", [3, 1, 2])])
def test_cached_steps_equal_the_whole(name, norm_first, sharing, sizes):
    model = make(name, norm_first=norm_first, sharing=sharing, cross_position="same")
    inputs = batch()
    np.testing.assert_allclose(decode(model, inputs, sizes), logits(model, inputs), atol=1e-5)


@pytest.mark.parametrize("position, cross", [("learned+rotary", "same"), ("t5", "rotary+alibi"), ("none", "shaw")])
def test_cached_steps_with_several_encodings(position, cross):
    model = make(position, cross_position=cross, sharing="head", num_layers=(1, 2))
    inputs = batch()
    np.testing.assert_allclose(decode(model, inputs, [1] * 6), logits(model, inputs), atol=1e-5)


@pytest.mark.parametrize("name", ["diet_rel", "diet_abs", "tupe_rel", "diet_rel+diet_abs"])
@pytest.mark.parametrize("sharing", ["none", "layer"])
def test_cached_steps_squeeze_positions_as_the_whole_does(name, sharing):
    """A target longer than the table, and than the source: its length counts in cross-attention from the first step."""
    model = make(name, sharing=sharing, cross_position="same", max_length=4, extrapolate="interpolate")
    inputs = batch(source=3, target=8)
    np.testing.assert_allclose(decode(model, inputs, [1] * 8), logits(model, inputs), atol=1e-5)


@pytest.mark.parametrize("name", DECODABLE)
def test_targets_do_not_look_ahead_but_do_look_back(name):
    model = make(name, cross_position="same")
    inputs = batch()
    changed = {**inputs, "target_ids": inputs["target_ids"].copy()}
    changed["target_ids"][:, 3] = changed["target_ids"][:, 3] % (VOCAB - 1) + 1
    change = np.abs(logits(model, changed) - logits(model, inputs)).max(axis=(0, 2))
    assert change[:3].max() == 0
    assert change[3:].min() > 0


def test_source_padding_is_hidden():
    model = make("diet_rel", cross_position="same")
    inputs = batch()
    longer = {**inputs, "token_ids": np.pad(inputs["token_ids"], ((0, 0), (0, 2)))}
    np.testing.assert_allclose(logits(model, longer), logits(model, inputs), atol=1e-5)
    explicit = {**inputs, "padding_mask": (inputs["token_ids"] != 0).astype("int32")}
    np.testing.assert_array_equal(logits(model, explicit), logits(model, inputs))
    unmasked = {**inputs, "padding_mask": np.ones_like(inputs["token_ids"])}
    assert np.abs(logits(model, unmasked) - logits(model, inputs))[1].max() > 1e-3


def test_target_padding_mask_hides_a_target_token():
    model = make()
    inputs = batch()
    mask = np.ones_like(inputs["target_ids"])
    mask[:, 2] = 0
    hidden = {**inputs, "target_padding_mask": mask}
    # Nobody looks at it, though those after it do without the mask; so it may be any token.
    for given, seen in ((inputs, True), (hidden, False)):
        for attention in model(given, return_intermediates=True)["decoder"]["attention"]:
            assert ((np.asarray(attention)[:, :, 3:, 2] > 0) == seen).all()
    other = {**hidden, "target_ids": inputs["target_ids"].copy()}
    other["target_ids"][:, 2] = other["target_ids"][:, 2] % (VOCAB - 1) + 1
    elsewhere = [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(logits(model, other)[:, elsewhere], logits(model, hidden)[:, elsewhere])


def test_one_table_serves_source_target_and_output():
    # Vaswani et al., section 3.4. 4 d^2 and 2 d f with biases for each part, 2 d for each normalisation.
    d, f, layers = 8, 16, 3
    model = make(num_layers=(1, 2))
    attention, network, norm = 4 * (d * d + d), 2 * d * f + d + f, 2 * d
    expected = VOCAB * d + layers * (attention + network + 2 * norm) + 2 * (attention + norm)
    assert model.count_params() == expected

    table = keras.ops.convert_to_numpy(model.embedding.embeddings)
    result = model(batch(), return_intermediates=True)
    waves = keras.ops.convert_to_numpy(keras_posenc.encodings.Sinusoidal()(np.zeros((1, 6, d), "float32")))
    first = np.sqrt(d) * table[batch()["target_ids"]] + waves
    np.testing.assert_allclose(result["decoder"]["hidden_states"][0], first, atol=1e-5)
    last = keras.ops.convert_to_numpy(result["decoder"]["hidden_states"][-1])
    np.testing.assert_allclose(result["logits"], last @ table.T, atol=1e-4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_block_equals_keras_layers(norm_first):
    """One decoder block against the same weights in Keras' own attention, put together by hand."""
    rng = np.random.default_rng(3)
    x, memory = (rng.normal(size=(2, n, 8)).astype("float32") for n in (4, 5))
    block = TransformerDecoderBlock(2, 16, 8, norm_first=norm_first)
    block(x, memory)
    for weight in block.weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))

    def attention(ours, query, value, causal):
        theirs = keras.layers.MultiHeadAttention(2, 4)
        theirs.build(query.shape, value.shape)
        for name in ("query", "key", "value", "output"):
            getattr(theirs, f"_{name}_dense").set_weights(getattr(ours, f"{name}_dense").get_weights())
        return theirs(query, value, use_causal_mask=causal)

    def network(h):
        return block.output_dense(keras.ops.relu(h @ block.intermediate.kernel + block.intermediate.bias))

    parts = [
        (block.self_norm, lambda h: attention(block.self_attention, h, h, True)),
        (block.cross_norm, lambda h: attention(block.cross_attention, h, keras.ops.convert_to_tensor(memory), False)),
        (block.output_norm, network),
    ]
    expected = keras.ops.convert_to_tensor(x)
    for norm, part in parts:
        expected = expected + part(norm(expected)) if norm_first else norm(expected + part(expected))
    np.testing.assert_allclose(block(x, memory), expected, atol=1e-5)


def test_intermediates():
    model = make("tisa", num_layers=(1, 2), norm_first=True)
    inputs = batch()
    result = model(inputs, return_intermediates=True)
    np.testing.assert_array_equal(result["logits"], logits(model, inputs))
    encoder, decoder = result["encoder"], result["decoder"]
    assert len(encoder["hidden_states"]) == 2 and len(decoder["hidden_states"]) == 3
    assert encoder["attention"][0].shape == (2, 2, 5, 5)
    assert [a.shape for a in decoder["attention"]] == [(2, 2, 6, 6)] * 2
    assert [a.shape for a in decoder["cross_attention"]] == [(2, 2, 6, 5)] * 2
    assert decoder["values"][0].shape == (2, 2, 6, 4) and decoder["cross_values"][0].shape == (2, 2, 5, 4)
    cross = keras.ops.convert_to_numpy(decoder["cross_attention"][1])
    np.testing.assert_allclose(cross.sum(-1), 1, atol=1e-5)
    assert cross[1, :, :, 3:].max() == 0  # padding of the second source
    assert np.triu(keras.ops.convert_to_numpy(decoder["attention"][0]), 1).max() == 0


def test_sharing_owns_one_encoding_for_each_attention():
    heads, offsets = 2, 2 * LENGTH - 1
    counts = {}
    for sharing in ("none", "head", "layer"):
        model = make("diet_rel", sharing=sharing, num_layers=2, cross_position="same")
        counts[sharing] = sum(e.count_params() for e in keras_posenc.position_encodings(model))
    # Three attentions: encoder self, decoder self, cross.
    assert counts == {"none": 2 * 3 * heads * offsets, "head": 2 * 3 * offsets, "layer": 3 * heads * offsets}


def test_cross_attention_has_no_positions_unless_asked():
    encodings = keras_posenc.position_encodings
    assert {type(e).__name__ for e in encodings(make("tisa").decoder.blocks[0].cross_attention)} == {"NoPosition"}
    same = make("sinusoidal+tisa", cross_position="same").decoder.blocks[0]
    assert {type(e).__name__ for e in encodings(same.cross_attention)} == {"Tisa"}


def test_decoder_looks_one_way_and_encoder_both():
    model = make("t5", cross_position="same", position_options={"num_buckets": 8, "max_distance": 16})
    assert model.encoder.blocks[0].attention.position.bidirectional
    assert not model.decoder.blocks[0].self_attention.position.bidirectional
    assert model.decoder.blocks[0].cross_attention.position.bidirectional
    assert model.decoder.blocks[0].cross_attention.position.num_buckets == 8


@pytest.mark.parametrize("name", ["learned", "t5", "transformer_xl", "synthesizer", "tupe_rel"])
def test_folded_equals_unfolded(name):
    model = make(name, cross_position="same", sharing="layer")
    inputs = batch()
    before, steps = logits(model, inputs), decode(model, inputs, [1] * 6)
    model.fold_positions(LENGTH)
    np.testing.assert_allclose(logits(model, inputs), before, atol=1e-5)
    np.testing.assert_allclose(decode(model, inputs, [1] * 6), steps, atol=1e-5)
    model.unfold_positions()
    np.testing.assert_array_equal(logits(model, inputs), before)


@pytest.mark.integration
@pytest.mark.parametrize(
    "position, kwargs",
    [
        ("sinusoidal", {}),
        ("learned+diet_abs", {"sharing": "layer", "cross_position": "same", "position_options": {"rank": 3}}),
        ("shaw", {"decoder_position": "rotary", "cross_position": "tisa", "norm_first": True, "sharing": "head"}),
    ],
)
def test_save_and_load(tmp_path, position, kwargs):
    model = make(position, num_layers=(1, 2), dropout=0.1, **kwargs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(logits(loaded, batch()), logits(model, batch()))


def test_mixed_precision_gives_float32_logits_near_the_exact_ones():
    exact, mixed = make("diet_rel"), make("diet_rel", dtype="mixed_bfloat16")
    result = mixed(batch())["logits"]
    assert keras.backend.standardize_dtype(result.dtype) == "float32"
    np.testing.assert_allclose(result, logits(exact, batch()), atol=0.3)
    np.testing.assert_allclose(decode(mixed, batch(), [1] * 6), result, atol=0.1)


@pytest.mark.parametrize("sharing", ["none", "layer"])
def test_encodings_that_cannot_be_cached_are_refused(sharing):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, max_length=LENGTH, sharing=sharing)
    with pytest.raises(ValueError, match="compressed keys mix all positions"):
        TransformerDecoder(position="diet_abs_lin", **sizes)
    with pytest.raises(ValueError, match="compressed keys mix all positions"):
        TransformerDecoder(cross_position="diet_abs_lin", **sizes)
    with pytest.raises(ValueError, match="rows span keys after the query"):
        TransformerDecoder(position="synthesizer", position_options={"bidirectional": True}, **sizes)


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="'learned' is added to the inputs"):
        make(cross_position="learned")
    with pytest.raises(ValueError, match="'rnak'"):
        make("diet_abs", position_options={"rnak": 4})
    with pytest.raises(ValueError, match="must divide"):
        make("none", num_heads=3)
    with pytest.raises(ValueError, match="num_layers"):
        make(num_layers=(1, 2, 3))
    with pytest.raises(ValueError, match="needs 'target_ids'"):
        make()({"token_ids": batch()["token_ids"]})
    with pytest.raises(ValueError, match="no segments"):
        make()({**batch(), "segment_ids": batch()["token_ids"]})
    with pytest.raises(ValueError, match="max_length=8"):
        make("learned")(batch(target=9))
    decoder, x = make().decoder, np.zeros((1, 2, 8), "float32")
    block = decoder.blocks[0]
    caches = (
        (decoder, decoder.make_cache(x, 2)),
        (block, (block.self_attention.make_cache(1, 2), block.cross_attention.make_cache(memory=x))),
    )
    for layer, cache in caches:
        with pytest.raises(ValueError, match="neither"):
            layer(x)
        with pytest.raises(ValueError, match="both"):
            layer(x, x, cache=cache)
