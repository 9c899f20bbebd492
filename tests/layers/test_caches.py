"""What a cache needs to be told, and what has none."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from subject import randomize

from keras_posenc.layers import (
    DietAbsAttention,
    PositionalAttention,
    TransformerBlock,
    TransformerDecoder,
    TransformerEncoder,
)

SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]], "int32")


@pytest.fixture
def x(rng):
    return rng.normal(size=(2, 5, 12)).astype("float32")


@pytest.mark.parametrize("sharing", ["none", "layer"])
def test_segments_of_cached_keys_count(sharing, x):
    encoder = TransformerEncoder(2, 3, 12, 16, "tisa", sharing=sharing, causal=True, num_segments=2)
    whole = encoder(x, segment_ids=SEGMENTS)
    randomize(encoder)
    whole = encoder(x, segment_ids=SEGMENTS)
    cache, outputs = encoder.make_cache(2, 5), []
    for t in range(5):
        given = dict(segment_ids=(SEGMENTS[:, t : t + 1], SEGMENTS), cache=cache, start_index=t)
        output, cache = encoder(x[:, t : t + 1], **given)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"as a pair.*\(batch, cache length\)"):
        encoder(x[:, :1], segment_ids=SEGMENTS[:, :1], cache=cache)


@pytest.mark.parametrize(("start", "tokens"), [(4, 1), (3, 2), (-1, 1)])
def test_a_cache_holds_what_it_was_made_for(start, tokens, x):
    layer = PositionalAttention(3, 4, position="alibi")
    layer(x)
    message = "negative" if start < 0 else "cache of 4 positions, but 5 are to be kept"
    with pytest.raises(ValueError, match=message):
        layer(x[:, :tokens], cache=layer.make_cache(2, 4), start_index=start)

    @tf.function
    def later(start):
        return layer(x[:, :1], cache=layer.make_cache(2, 4), start_index=start)

    with pytest.raises(tf.errors.InvalidArgumentError, match="cache of 4 positions"):
        later(tf.constant(7))


@pytest.mark.parametrize("start", [None, 4], ids=["tensor", "number"])
@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
def test_a_cache_of_unknown_length_holds_no_more_than_its_length(start, compiled, x):
    layer = PositionalAttention(3, 4, position="alibi")
    whole = layer(x, use_causal_mask=True)
    _, filled = layer(x[:, :4], cache=layer.make_cache(2, 5))
    unknown = tf.TensorSpec((None, 3, None, 4))
    signature = [{"key": unknown, "value": unknown}, tf.TensorSpec((), "int32")]

    @tf.function(input_signature=signature, jit_compile=compiled)
    def step(cache, t):
        return layer(x[:, 4:], cache=cache, start_index=t if start is None else start)[0]

    np.testing.assert_allclose(step(filled, 4), whole[:, 4:], atol=1e-5)
    full = {name: values[:, :, :4] for name, values in filled.items()}
    if compiled:
        assert np.isnan(step(full, 4)).all()
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Make a longer cache"):
            step(full, 4)


@pytest.mark.parametrize("both", [False, True], ids=["query", "query and value"])
def test_a_mask_of_new_tokens_is_no_mask_of_the_cache(both):
    embedding, layer = keras.layers.Embedding(10, 12, mask_zero=True), PositionalAttention(3, 4)

    def ask(ids, start=0, cache=None, **given):
        x = embedding(np.array([ids]))
        return layer(*((x, x) if both else (x,)), cache=cache or layer.make_cache(1, 4), start_index=start, **given)

    whole = layer(embedding(np.array([[3, 4]])), use_causal_mask=True)
    np.testing.assert_allclose(ask([3, 4])[0], whole, atol=1e-6)
    first, cache = ask([3])
    second, _ = ask([4], 1, cache)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-6)
    np.testing.assert_allclose(ask([3, 4], attention_mask=np.ones((1, 4), bool))[0], whole, atol=1e-6)
    with pytest.raises(ValueError, match="keys=4"):
        ask([3, 4], attention_mask=np.ones((1, 2), bool))

    # Padding that later steps would not know of; a mask of the whole cache tells them.
    padded = layer(embedding(np.array([[0, 3, 4]])), use_causal_mask=True)
    with pytest.raises(ValueError, match=r"\(batch, cache length\).*`padding_mask` of blocks"):
        ask([0, 3])
    real = np.array([[False, True, True, True]])
    _, cache = ask([0, 3], attention_mask=real)
    np.testing.assert_allclose(ask([4], 2, cache, attention_mask=real)[0], padded[:, 2:], atol=1e-6)
    run = tf.function(lambda ids: layer(embedding(ids), cache=layer.make_cache(1, 4)))
    run(tf.constant([[3, 4]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Among the new tokens is padding"):
        run(tf.constant([[0, 4]]))


def test_an_encoder_decodes_from_masked_embeddings():
    embedding, ids = keras.layers.Embedding(10, 12, mask_zero=True), np.array([[3, 4, 5]])
    encoder = TransformerEncoder(2, 3, 12, 16, "tisa", causal=True)
    whole, cache, outputs = encoder(embedding(ids)), encoder.make_cache(1, 3), []
    for t in range(3):
        output, cache = encoder(embedding(ids[:, t : t + 1]), cache=cache, start_index=t)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5)


def test_the_mask_of_queries_is_none_of_a_cached_memory(x):
    queries = keras.layers.Embedding(10, 12, mask_zero=True)(np.array([[3, 4, 0, 0], [3, 0, 0, 0]]))
    layer = PositionalAttention(3, 4)
    for memory in (x[:, :4], x):
        whole = layer(queries, memory)
        found, _ = layer(queries, cache=layer.make_cache(memory=memory), update_cache=False)
        np.testing.assert_allclose(found, whole, atol=1e-6)


def test_a_cached_memory_keeps_its_mask(x):
    memory = keras.layers.Embedding(10, 12, mask_zero=True)(np.array([[3, 4, 0, 0], [3, 0, 0, 0]]))
    decoder = TransformerDecoder(2, 3, 12, 16, "tisa")
    whole, cache, outputs = decoder(x, memory), decoder.make_cache(memory, 5), []
    for t in range(5):
        output, cache = decoder(x[:, t : t + 1], cache=cache, start_index=t)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5)


def test_what_looks_ahead_has_no_cache(x):
    encoder = TransformerEncoder(1, 3, 12, 16, "none")
    encoder(x)
    with pytest.raises(ValueError, match="causal=True"):
        encoder(x, cache=encoder.make_cache(2, 5))


@pytest.mark.parametrize("make", [TransformerBlock, TransformerEncoder, TransformerDecoder])
def test_a_start_needs_a_cache(make, x):
    layer = TransformerBlock(3, 16, 12) if make is TransformerBlock else make(1, 3, 12, 16, "tisa")
    given = dict(memory=x) if make is TransformerDecoder else {}
    layer(x, **given)
    with pytest.raises(ValueError, match="`start_index` goes with a `cache`"):
        layer(x, start_index=5, **given)


def test_make_cache_says_what_it_needs(x):
    with pytest.raises(ValueError, match="`batch_size` and `length`, or a `memory`"):
        PositionalAttention(3, 4).make_cache()
    with pytest.raises(ValueError, match="no weights yet. Build"):
        PositionalAttention(3, 4).make_cache(memory=x)
    with pytest.raises(ValueError, match="no weights yet. Build"):
        TransformerDecoder(1, 3, 12, 16, "tisa", "same", sharing="layer").make_cache(x, 4)


@pytest.mark.parametrize("folded", [False, True])
def test_a_compiled_loop_that_goes_too_far_gives_nan_and_not_the_last_position(folded, x):
    layer = DietAbsAttention(3, 4, max_length=4)
    layer(x[:, :4])
    if folded:
        layer.fold_positions(4)

    @tf.function(jit_compile=True)
    def last(steps):
        def step(t, _):
            return t + 1, layer(x[:, :1], x[:, :4], start_index=t)

        return tf.while_loop(lambda t, _: t < steps, step, (0, tf.zeros((2, 1, 12))))[1]

    assert np.isfinite(last(tf.constant(4))).all()
    assert np.isnan(last(tf.constant(5))).all()


def test_a_compiled_loop_that_overruns_a_cache_gives_nan(x):
    layer = PositionalAttention(3, 4, position="alibi")
    layer(x)
    run = tf.function(lambda t: layer(x[:, :1], cache=layer.make_cache(2, 4), start_index=t)[0], jit_compile=True)
    assert np.isfinite(run(tf.constant(3))).all()
    assert np.isnan(run(tf.constant(4))).all()


@pytest.mark.parametrize("name", ["tisa", "diet_abs", "sinusoidal"])
@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
def test_a_fold_shorter_than_the_cache_is_not_used(name, compiled, x):
    encoder = TransformerEncoder(1, 3, 12, 16, name, causal=True, max_length=5)
    whole = encoder(x)
    encoder.fold_positions(2)
    run = tf.function(lambda x, cache, t: encoder(x, cache=cache, start_index=t), jit_compile=compiled)
    cache, outputs = encoder.make_cache(2, 5), []
    for t in range(5):
        output, cache = run(x[:, t : t + 1], cache, tf.constant(t))
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5)
