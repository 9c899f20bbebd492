"""Masks that Keras hands from layer to layer, and masks of shapes that mean something else."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_posenc import encodings
from keras_posenc.layers import (
    DietAbsAttention,
    LinformerAttention,
    PositionalAttention,
    TransformerBlock,
    TransformerDecoder,
    TransformerEncoder,
)

IDS = np.array([[3, 4, 5, 6, 0, 0], [5, 6, 7, 0, 0, 0]])
INPUT = [name for name in encodings.names() if "embed" in encodings.get_class(name).doors]


def embed(width=12):
    return keras.layers.Embedding(10, width, mask_zero=True)


def test_attention_hands_the_mask_on_as_keras_does():
    embedding = embed()
    pooled = keras.layers.GlobalAveragePooling1D()
    longer = np.concatenate([IDS, np.zeros((2, 3), int)], axis=1)
    for attention in (PositionalAttention(3, 4), keras.layers.MultiHeadAttention(3, 4)):

        def run(ids, attention=attention):
            x = embedding(ids)
            return pooled(attention(x, x))

        np.testing.assert_allclose(run(IDS), run(longer), atol=1e-6)


@pytest.mark.parametrize("name", ["none", "tisa", *INPUT])
@pytest.mark.parametrize("layers", [1, 2])
def test_an_encoder_takes_the_mask_of_its_embedding(name, layers):
    embedding, encoder = embed(), TransformerEncoder(layers, 3, 12, 16, position=name, max_length=8)
    implicit = encoder(embedding(IDS))
    explicit = encoder(embedding(IDS).numpy(), padding_mask=IDS > 0)
    np.testing.assert_allclose(implicit[IDS > 0], explicit[IDS > 0], atol=1e-5)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(implicit), IDS > 0)


@pytest.mark.parametrize("name", ["tisa", "sinusoidal"])
def test_a_decoder_takes_the_masks_of_its_embeddings(name, rng):
    """Padding before the text, which a causal mask does not hide."""
    ids, embedding = IDS[:, ::-1].copy(), embed()
    decoder, memory = TransformerDecoder(2, 3, 12, 16, position=name), embedding(IDS)
    implicit = decoder(embedding(ids), memory)
    explicit = decoder(embedding(ids).numpy(), memory.numpy(), padding_mask=ids > 0, memory_mask=IDS > 0)
    np.testing.assert_allclose(implicit[ids > 0], explicit[ids > 0], atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_block_of_low_precision_takes_the_mask_of_its_embedding(norm_first):
    embedding, block = embed(), TransformerBlock(3, 16, 12, norm_first=norm_first, dtype="mixed_bfloat16")
    implicit = keras.ops.cast(block(embedding(IDS)), "float32")
    explicit = keras.ops.cast(block(embedding(IDS).numpy(), padding_mask=IDS > 0), "float32")
    np.testing.assert_array_equal(implicit[IDS > 0], explicit[IDS > 0])


IN_JAX = """
import jax, keras, numpy as np
from keras_posenc.layers import LinformerAttention, PositionalAttention

ids = np.array([[3, 4, 5, 0, 0], [3, 4, 0, 0, 0]])
embedding, attention = keras.layers.Embedding(10, 12, mask_zero=True), PositionalAttention(3, 4)
queries = np.ones((2, 1, 12), "float32")

def of_memory(x, **given):
    return attention(queries, cache=attention.make_cache(memory=x), update_cache=False, **given)[0]

for ask in (attention, LinformerAttention(3, 4, 8, num_keys=2), of_memory):
    x = np.asarray(embedding(ids))
    expected = np.asarray(ask(x, attention_mask=ids > 0))
    found = np.asarray(jax.jit(lambda ids: ask(embedding(ids)))(ids))
    seen = slice(None) if found.shape[1] == 1 else ids > 0
    np.testing.assert_allclose(found[seen], expected[seen], atol=1e-5)
    assert np.abs(np.asarray(ask(x)) - expected).max() > 1e-3
"""


def test_masks_of_embeddings_arrive_in_compiled_functions_of_jax():
    """Whose tensors have no attributes."""
    pytest.importorskip("jax")
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    run = subprocess.run([sys.executable, "-c", IN_JAX], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_bias_is_no_sequence_and_has_no_mask():
    bias = encodings.Tisa(2)(embed()(IDS))
    assert keras.src.backend.get_keras_mask(bias) is None


def test_a_mask_of_queries_and_keys_needs_a_batch_in_front(rng):
    layer, x = PositionalAttention(3, 4), rng.normal(size=(1, 5, 12)).astype("float32")
    lower = np.tril(np.ones((5, 5), bool))
    with pytest.raises(ValueError, match=r"shape=\(5, 5\).*`mask\[None\]`"):
        layer(x, attention_mask=lower)
    np.testing.assert_allclose(layer(x, attention_mask=lower[None]), layer(x, use_causal_mask=True), atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 4), (2, 4, 5), (3, 5), (5,), (2, 1, 1, 1, 5), (2, 1)])
def test_masks_of_other_sizes_are_refused(shape, rng):
    x = rng.normal(size=(2, 5, 12)).astype("float32")
    with pytest.raises(ValueError, match="A mask must have shape .* batch=2, queries=5, keys=5"):
        PositionalAttention(3, 4)(x, attention_mask=np.ones(shape, bool))


@pytest.mark.parametrize("shape", [(5, 5), (2, 5), (1, 4), (1, 1), (1, 5, 5), (5,)])
@pytest.mark.parametrize("name", ["attention_mask", "value_mask"])
def test_compressed_keys_take_a_mask_of_the_keys_only(name, shape, rng):
    """A mask (queries, keys) of one text would make a batch of it."""
    x = rng.normal(size=(1, 5, 12)).astype("float32")
    with pytest.raises(ValueError, match=r"padding mask \(batch, keys\) only, here with batch=1, keys=5"):
        LinformerAttention(3, 4, 8, num_keys=2)(x, **{name: np.ones(shape, bool)})


def test_one_padding_mask_serves_all_texts_of_compressed_keys(rng):
    layer, x = LinformerAttention(3, 4, 8, num_keys=2), rng.normal(size=(2, 5, 12)).astype("float32")
    one = np.array([[True, True, True, False, False]])
    found = layer(x, attention_mask=one)
    np.testing.assert_allclose(found, layer(x, attention_mask=np.repeat(one, 2, axis=0)), atol=1e-6)


def test_float_masks_are_told_both_ways_to_convert_them():
    with pytest.raises(ValueError, match="`mask > 0` .* `mask == 0`"):
        PositionalAttention(3, 4)(np.ones((1, 2, 12), "float32"), attention_mask=np.ones((1, 2), "float32"))


def test_a_mask_of_queries_and_keys_is_refused_where_the_batch_is_unknown_too(rng):
    """The fusion of TensorFlow's graphs would take the wrong broadcast without a word."""
    x, layer = rng.normal(size=(2, 8, 12)).astype("float32"), DietAbsAttention(3, 4, max_length=8)
    lower = np.tril(np.ones((8, 8), bool))
    layer(x)

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 12))])
    def run(x):
        return layer(x, attention_mask=lower)

    with pytest.raises(tf.errors.InvalidArgumentError, match="A mask must have shape"):
        run(x)


def test_one_key_of_a_mask_is_for_all(rng):
    x, layer = rng.normal(size=(2, 5, 12)).astype("float32"), PositionalAttention(3, 4)
    seeing = np.array([[[True], [True], [False], [True], [True]]])
    found = layer(x, attention_mask=seeing)
    np.testing.assert_allclose(found, layer(x, attention_mask=np.repeat(seeing, 5, axis=2)), atol=1e-6)
    np.testing.assert_allclose(found[:, 2], np.zeros((2, 12)) + layer.output_dense.bias, atol=1e-6)
