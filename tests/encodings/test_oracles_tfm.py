"""Position encodings against tf-models-official, with the same weights.

Its layers are tf_keras layers; they are called eagerly, and arrays are all that passes between the two.
"""

import numpy as np
import pytest
import tensorflow as tf
from subject import randomize

from keras_posenc.encodings import Sinusoidal, T5Bias
from keras_posenc.layers import TransformerXLAttention

layers = pytest.importorskip("official.nlp.modeling.layers", reason="tf-models-official is not installed")

TOLERANCE = dict(rtol=1e-5, atol=1e-5)


def agree(ours, theirs):
    return np.allclose(ours, theirs, **TOLERANCE)


def t5_biases(queries, keys, num_buckets, max_distance, bidirectional):
    """Ours and theirs, `(1, heads, queries, keys)`, from one random table."""
    ours = T5Bias(3, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)
    ours.build()
    randomize(ours)
    theirs = layers.RelativePositionBias(
        num_heads=3,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        bidirectional=bidirectional,
    )
    theirs.set_weights([np.asarray(ours.table).T])
    tokens = tf.zeros((1, max(queries, keys), 1))
    return np.asarray(ours.at(queries, keys).bias), np.asarray(theirs(tokens[:, :queries], tokens[:, :keys]))


@pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (16, 20), (8, 64)])
@pytest.mark.parametrize("queries, keys", [(40, 40), (3, 150), (150, 3)])
def test_t5_bias(queries, keys, num_buckets, max_distance, bidirectional):
    ours, theirs = t5_biases(queries, keys, num_buckets, max_distance, bidirectional)
    np.testing.assert_allclose(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "causal"])
def test_t5_bias_would_notice_a_flipped_sign(bidirectional):
    ours, theirs = t5_biases(20, 20, 16, 20, bidirectional)
    flipped = np.swapaxes(ours, 2, 3)  # query minus key instead of key minus query
    assert agree(ours, theirs) and not agree(flipped, theirs)


@pytest.mark.parametrize("width", [4, 16])
def test_sinusoids(width):
    """Theirs divides exponents by `d/2 - 1` where the paper divides by `d/2`: the same curves at another wavelength."""
    half = width // 2
    theirs = np.asarray(layers.RelativePositionEmbedding(hidden_size=width)(None, length=30))
    ours = Sinusoidal(layout="concatenated", max_wavelength=10000.0 ** (half / (half - 1)))
    ours.build((None, None, width))
    np.testing.assert_allclose(ours.embed(30), theirs, **TOLERANCE)
    np.testing.assert_allclose(ours.embed(5, start_index=25), theirs[25:], **TOLERANCE)

    of_the_paper = Sinusoidal(layout="concatenated")
    of_the_paper.build((None, None, width))
    assert not agree(of_the_paper.embed(30), theirs)
    interleaved = Sinusoidal(layout="interleaved", max_wavelength=ours.max_wavelength)
    interleaved.build((None, None, width))
    assert not agree(interleaved.embed(30), theirs)


WIDTH, HEADS, SIZE = 12, 3, 4


def transformer_xl(seed=1):
    attention = TransformerXLAttention(HEADS, SIZE)
    attention.build((None, None, WIDTH))
    randomize(attention, seed)
    return attention


def relative_attention(attention, tokens, memory, mask):
    """What theirs gives for `tokens` after `memory`, with the weights of our `attention`."""
    theirs = layers.MultiHeadRelativeAttention(num_heads=HEADS, key_dim=SIZE)
    xlnet = pytest.importorskip("official.nlp.modeling.networks.xlnet_base")
    queries, keys = tokens.shape[1], tokens.shape[1] + memory.shape[1]
    distances = np.arange(keys, -queries, -1, dtype="float32")  # the order that its shift expects
    position = attention.position

    def call():
        return theirs(
            tf.constant(tokens),
            tf.constant(tokens),
            content_attention_bias=tf.constant(np.asarray(position.content_bias)),
            positional_attention_bias=tf.constant(np.asarray(position.position_bias)),
            relative_position_encoding=xlnet.RelativePositionEncoding(WIDTH)(tf.constant(distances), len(tokens)),
            state=tf.constant(memory),
            attention_mask=tf.constant(mask),
        )

    call()  # builds it
    values = {weight.path.split("/", 1)[1]: np.asarray(weight) for weight in attention.weights}
    values["encoding/kernel"] = np.asarray(position.kernel)
    for weight in theirs.weights:
        weight.assign(values["/".join(weight.name.split(":")[0].split("/")[-2:])])
    return np.asarray(call())


def both(memory_length, causal, rng, attention=None, change=None):
    """Our output and theirs for random tokens after a memory; `change` mutates ours after the weights are copied."""
    attention = transformer_xl() if attention is None else attention
    tokens = rng.normal(size=(2, 5, WIDTH)).astype("float32")
    memory = rng.normal(size=(2, memory_length, WIDTH)).astype("float32")
    visible = np.ones((5, 5 + memory_length), bool)
    mask = np.tril(visible, memory_length) if causal else visible
    theirs = relative_attention(attention, tokens, memory, np.broadcast_to(mask, (2, *mask.shape)))
    if change is not None:
        change(attention)
    context = np.concatenate([memory, tokens], axis=1)
    ours = attention(tokens, context, start_index=memory_length, use_causal_mask=causal)
    return np.asarray(ours), theirs


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("memory_length", [0, 3])
def test_relative_attention(memory_length, causal, rng):
    ours, theirs = both(memory_length, causal, rng)
    np.testing.assert_allclose(ours, theirs, **TOLERANCE)


def exchange_biases(attention):
    position = attention.position
    u, v = np.asarray(position.content_bias), np.asarray(position.position_bias)
    position.content_bias.assign(v)
    position.position_bias.assign(u)


def reverse_distances(attention):
    """`sin(-x) = -sin(x)`: negating the rows of the projection that meet the sines mirrors every distance."""
    kernel = np.array(attention.position.kernel)
    kernel[: WIDTH // 2] *= -1
    attention.position.kernel.assign(kernel)


def forget_the_scale(attention):
    kernel = attention.query_dense.kernel
    kernel.assign(np.asarray(kernel) * SIZE**0.5)


@pytest.mark.parametrize("bug", [exchange_biases, reverse_distances, forget_the_scale], ids=lambda bug: bug.__name__)
def test_relative_attention_would_notice(bug, rng):
    ours, theirs = both(3, False, rng, change=bug)
    assert not agree(ours, theirs)
