"""Position encodings against transformers on PyTorch, with the same weights."""

import importlib

import numpy as np
import pytest
from subject import randomize

from keras_posenc.encodings import Alibi, Rotary
from keras_posenc.encodings.t5 import bucket_table
from keras_posenc.layers import RotaryAttention, ShawAttention, T5Attention, TransformerXLAttention

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TOLERANCE = dict(rtol=1e-5, atol=1e-5)
WIDTH, HEADS, SIZE, LENGTH = 12, 3, 4, 9


def agree(ours, theirs):
    return np.allclose(ours, theirs, **TOLERANCE)


def found_in(family, *names):
    """The named objects of a model family, or a skip where this version of transformers has them no longer."""
    try:
        module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        return [getattr(module, name) for name in names]
    except (ImportError, AttributeError) as gone:
        pytest.skip(f"transformers {transformers.__version__}: {gone}")


@pytest.fixture
def tokens(rng):
    return rng.normal(size=(2, LENGTH, WIDTH)).astype("float32")


def built(attention):
    attention.build((None, None, WIDTH))
    randomize(attention)
    return attention


def copy_projection(dense, linear, factor=1.0):
    """Our `(width, heads, size)` or `(heads, size, width)` kernel, and the bias if there is one, as a torch Linear."""
    rows = linear.weight.shape[1]
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(np.asarray(dense.kernel).reshape(rows, -1).T * factor))
        if linear.bias is not None:
            linear.bias.copy_(torch.tensor(np.asarray(dense.bias).reshape(-1) * factor))


def copy_projections(attention, query, key, value, output, query_factor=1.0):
    copy_projection(attention.query_dense, query, query_factor)
    copy_projection(attention.key_dense, key)
    copy_projection(attention.value_dense, value)
    copy_projection(attention.output_dense, output)


def causal_mask(length):
    return torch.full((length, length), -1e30).triu(1)[None, None]


# T5


@pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (32, 256), (16, 64), (8, 20)])
def test_t5_buckets(num_buckets, max_distance, bidirectional):
    (oracle,) = found_in("t5", "T5Attention")
    offsets = torch.arange(-max_distance, max_distance + 1)  # key minus query
    theirs = oracle._relative_position_bucket(offsets, bidirectional, num_buckets, max_distance).numpy()
    ours = bucket_table(num_buckets, max_distance, bidirectional)
    np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(ours[::-1], theirs)  # a flipped sign would be noticed


def t5_outputs(tokens, causal, query_factor):
    (oracle,) = found_in("t5", "T5Attention")
    buckets, distance = 8, 7
    ours = built(
        T5Attention(HEADS, SIZE, num_buckets=buckets, max_distance=distance, bidirectional=not causal, use_bias=False)
    )
    config = transformers.T5Config(
        d_model=WIDTH,
        d_kv=SIZE,
        num_heads=HEADS,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance,
        dropout_rate=0.0,
    )
    config.is_decoder = causal
    theirs = oracle(config, has_relative_attention_bias=True, layer_idx=0).eval()
    copy_projections(ours, theirs.q, theirs.k, theirs.v, theirs.o, query_factor)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(torch.tensor(np.asarray(ours.position.table).T))
        mask = causal_mask(LENGTH) if causal else torch.zeros(1, 1, 1, LENGTH)
        expected = theirs(torch.tensor(tokens), mask=mask)[0].numpy()
    return np.asarray(ours(tokens, use_causal_mask=causal)), expected


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_t5_attention(causal, tokens):
    """T5 leaves out `1 / sqrt(d_h)`, so its query kernel is ours divided by `sqrt(d_h)`."""
    np.testing.assert_allclose(*t5_outputs(tokens, causal, SIZE**-0.5), **TOLERANCE)


def test_t5_attention_would_notice_the_scale(tokens):
    assert not agree(*t5_outputs(tokens, False, 1.0))


# RoPE


def llama_config(**rope):
    return transformers.LlamaConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=4,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default", **rope},
    )


def llama_waves(positions, **rope):
    (waves,) = found_in("llama", "LlamaRotaryEmbedding")
    return waves(llama_config(**rope))(torch.zeros(1, 1, WIDTH), torch.tensor(positions)[None])


def heads(rng, length):
    return rng.normal(size=(2, HEADS, length, SIZE)).astype("float32")


def rotated(encoding, query, key, start_index=0):
    positions = encoding.at(query.shape[2], key.shape[2], start_index)
    return [np.asarray(x) for x in positions.transform(query, key, key)[:2]]


SCALINGS = {
    "plain": ({}, {}),
    "linear": ({"scaling": "linear", "factor": 2.5}, {"rope_type": "linear", "factor": 2.5}),
    "dynamic": (
        {"scaling": "dynamic", "factor": 2.0, "max_length": 4},
        {"rope_type": "dynamic", "factor": 2.0},
    ),
}


@pytest.mark.parametrize("options, rope", SCALINGS.values(), ids=SCALINGS)
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_rotary_half(family, options, rope, rng):
    (apply,) = found_in(family, "apply_rotary_pos_emb")
    query, key = heads(rng, LENGTH), heads(rng, LENGTH)
    cos, sin = llama_waves(np.arange(LENGTH), **rope)
    theirs = apply(torch.tensor(query), torch.tensor(key), cos, sin)
    for ours, expected in zip(rotated(Rotary(key_dim=SIZE, **options), query, key), theirs):
        np.testing.assert_allclose(ours, expected.numpy(), **TOLERANCE)
    other = rotated(Rotary(key_dim=SIZE, layout="interleaved", **options), query, key)
    assert not agree(other[0], theirs[0].numpy())


def gptj_rotated(x):
    """Theirs of every position; it takes `(batch, length, heads, size)`."""
    create, apply = found_in("gptj", "create_sinusoidal_positions", "apply_rotary_pos_emb")
    sin, cos = create(x.shape[2], SIZE)[None].chunk(2, dim=-1)
    return apply(torch.tensor(x).transpose(1, 2), sin, cos).transpose(1, 2).numpy()


def test_rotary_interleaved(rng):
    query, key = heads(rng, LENGTH), heads(rng, LENGTH)
    ours = rotated(Rotary(key_dim=SIZE, layout="interleaved"), query, key)
    for mine, x in zip(ours, (query, key)):
        np.testing.assert_allclose(mine, gptj_rotated(x), **TOLERANCE)
    assert not agree(rotated(Rotary(key_dim=SIZE, layout="half"), query, key)[0], gptj_rotated(query))


def test_rotary_start_index(rng):
    query, key = heads(rng, 2), heads(rng, LENGTH)
    encoding = Rotary(key_dim=SIZE, layout="interleaved")
    padded = np.concatenate([np.zeros_like(key[:, :, :-2]), query], axis=2)  # the queries stand at the end
    expected = gptj_rotated(padded)[:, :, -2:]
    np.testing.assert_allclose(rotated(encoding, query, key, LENGTH - 2)[0], expected, **TOLERANCE)
    assert not agree(rotated(encoding, query, key, 0)[0], expected)


def test_llama_attention(tokens):
    (oracle,) = found_in("llama", "LlamaAttention")
    ours = built(RotaryAttention(HEADS, SIZE, use_bias=False))
    theirs = oracle(llama_config(), layer_idx=0).eval()
    copy_projections(ours, theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.o_proj)
    waves = llama_waves(np.arange(LENGTH))
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens), position_embeddings=waves, attention_mask=causal_mask(LENGTH))[0]
    np.testing.assert_allclose(ours(tokens, use_causal_mask=True), expected.numpy(), **TOLERANCE)


# XLNet


def xlnet_outputs(rng, memory_length, change=None):
    """Our output and XLNet's, after its residual connection and layer normalisation; `change` mutates ours."""
    (oracle,) = found_in("xlnet", "XLNetModel")
    ours = built(TransformerXLAttention(HEADS, SIZE, use_bias=False))
    config = transformers.XLNetConfig(
        vocab_size=8, d_model=WIDTH, n_layer=1, n_head=HEADS, d_inner=8, dropout=0.0, attn_type="bi"
    )
    model = oracle(config).eval()
    theirs = model.layer[0].rel_attn
    position = ours.position
    copied = {
        theirs.q: ours.query_dense.kernel,
        theirs.k: ours.key_dense.kernel,
        theirs.v: ours.value_dense.kernel,
        theirs.o: np.transpose(np.asarray(ours.output_dense.kernel), (2, 0, 1)),
        theirs.r: position.kernel,
        theirs.r_w_bias: position.content_bias,
        theirs.r_r_bias: position.position_bias,
    }
    with torch.no_grad():
        for parameter, weight in copied.items():
            parameter.copy_(torch.tensor(np.asarray(weight)))
    context = rng.normal(size=(2, memory_length + 5, WIDTH)).astype("float32")
    memory, now = torch.tensor(context).transpose(0, 1).split([memory_length, 5])
    if change is not None:
        change(position)
    output = ours(context[:, memory_length:], context, start_index=memory_length)
    with torch.no_grad():
        waves = model.relative_positional_encoding(5, 5 + memory_length, bsz=2)
        expected = theirs(now, None, None, None, waves, None, mems=memory if memory_length else None)[0]
        normalised = theirs.layer_norm(torch.tensor(np.asarray(output)).transpose(0, 1) + now)
    return normalised.numpy(), expected.numpy()


@pytest.mark.parametrize("memory_length", [0, 4])
def test_xlnet_attention(memory_length, rng):
    np.testing.assert_allclose(*xlnet_outputs(rng, memory_length), **TOLERANCE)


def exchange_biases(position):
    u, v = np.asarray(position.content_bias), np.asarray(position.position_bias)
    position.content_bias.assign(v)
    position.position_bias.assign(u)


def reverse_distances(position):
    """`sin(-x) = -sin(x)`: negating the rows of the projection that meet the sines mirrors every distance."""
    kernel = np.array(position.kernel)
    kernel[: WIDTH // 2] *= -1
    position.kernel.assign(kernel)


@pytest.mark.parametrize("bug", [exchange_biases, reverse_distances], ids=lambda bug: bug.__name__)
def test_xlnet_attention_would_notice(bug, rng):
    assert not agree(*xlnet_outputs(rng, 4, change=bug))


# Shaw


def shaw_outputs(tokens, reverse=False):
    """Wav2Vec2-BERT's `relative_key` attention has Shaw's vectors for keys, one table for all heads."""
    (oracle,) = found_in("wav2vec2_bert", "Wav2Vec2BertSelfAttention")
    ours = built(ShawAttention(HEADS, SIZE, max_distance=3, use_values=False))
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=3,
        right_max_position_embeddings=3,
        attention_dropout=0.0,
    )
    theirs = oracle(config).eval()
    copy_projections(ours, theirs.linear_q, theirs.linear_k, theirs.linear_v, theirs.linear_out)
    table = np.asarray(ours.position.key_table)[0]
    with torch.no_grad():
        theirs.distance_embedding.weight.copy_(torch.tensor(table[::-1].copy() if reverse else table))
        expected = theirs(torch.tensor(tokens))[0].numpy()
    return np.asarray(ours(tokens)), expected


def test_shaw_keys(tokens):
    np.testing.assert_allclose(*shaw_outputs(tokens), **TOLERANCE)


def test_shaw_keys_would_notice_a_flipped_sign(tokens):
    assert not agree(*shaw_outputs(tokens, reverse=True))


# ALiBi


def bloom_bias(num_heads):
    (build,) = found_in("bloom", "build_alibi_tensor")
    return build(torch.ones(1, LENGTH), num_heads, torch.float32).numpy().reshape(num_heads, 1, LENGTH)


def mpt_bias(num_heads):
    (build,) = found_in("mpt", "build_mpt_alibi_tensor")
    return build(num_heads, LENGTH).numpy().reshape(num_heads, 1, LENGTH)


def causal_softmax(bias):
    """Theirs is one row of key positions; under a causal mask that equals distances up to a constant per row."""
    visible = np.tril(np.ones((LENGTH, LENGTH), bool))
    weights = np.where(visible, np.exp(bias - bias.max(axis=-1, keepdims=True)), 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("oracle", [bloom_bias, mpt_bias], ids=lambda oracle: oracle.__name__)
@pytest.mark.parametrize("num_heads", [4, 8, 12])
def test_alibi(num_heads, oracle):
    ours = np.asarray(Alibi(num_heads).at(LENGTH).bias)[0]
    theirs = causal_softmax(np.broadcast_to(oracle(num_heads), ours.shape))
    np.testing.assert_allclose(causal_softmax(ours), theirs, **TOLERANCE)
    assert not agree(causal_softmax(-ours), theirs)  # the wrong sign
    distances = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))
    one_series = -(2.0 ** (-8.0 * np.arange(1, num_heads + 1) / num_heads))[:, None, None] * distances
    assert agree(causal_softmax(one_series), theirs) == (num_heads != 12)  # slopes of no power of two need two series
