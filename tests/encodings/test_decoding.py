"""One token at a time with a cache gives what the whole sequence gives."""

import keras
import numpy as np
import pytest
from keras import ops
from subject import MAX_LENGTH, UNCOMPRESSED, WIDTH, Subject, case_id, make_subject

from keras_posenc import encodings
from keras_posenc.layers import DietAbsLinformerAttention, PositionalAttention

# For those that cannot, see test_what_cannot_decode_says_so.
DECODING = [case for case in UNCOMPRESSED if not Subject(*case).encoding.no_cache]
INSIDE = [name for name, options in UNCOMPRESSED if not options and "embed" not in encodings.get_class(name).doors]
cases = pytest.mark.parametrize("case", DECODING, ids=case_id)


@cases
@pytest.mark.parametrize("folded", [False, True], ids=["live", "folded"])
def test_cached_decoding_equals_the_causal_forward(case, folded, rng):
    subject = make_subject(case, dtype="float32")
    length = 8
    x = rng.normal(size=(2, length, WIDTH)).astype("float32")
    full = subject(x, use_causal_mask=True)
    if folded:
        subject.encoding.fold(MAX_LENGTH)
    cache = subject.attention.make_cache(2, length)
    # A prompt of three at once, then single tokens.
    steps = [slice(0, 3)] + [slice(t, t + 1) for t in range(3, length)]
    outputs = []
    for step in steps:
        output, cache = subject(x[:, step], cache=cache, start_index=step.start)
        outputs.append(np.asarray(output))
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), full, rtol=1e-4, atol=1e-5)


@cases
def test_start_index_may_be_a_tensor(case, rng):
    """As in a compiled loop, where the position is only known when it runs; under XLA for one case of each name."""
    import tensorflow as tf

    subject = make_subject(case, dtype="float32")
    x = rng.normal(size=(1, 6, WIDTH)).astype("float32")
    full = subject(x, use_causal_mask=True)

    @tf.function(jit_compile=not case[1])
    def step(token, cache, start):
        return subject(token, cache=cache, start_index=start)

    cache = subject.attention.make_cache(1, 6)
    for t in range(6):
        output, cache = step(x[:, t : t + 1], cache, tf.constant(t))
        np.testing.assert_allclose(output[:, 0], full[:, t], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", INSIDE)
def test_cached_memory_equals_cross_attention(name, rng):
    options = {"bidirectional": False} if name == "synthesizer" else {}
    layer = PositionalAttention(3, 4, position=name, max_length=12, position_options=options)
    query, memory = (rng.normal(size=(2, n, WIDTH)).astype("float32") for n in (5, 9))
    whole = layer(query, memory)
    cache = layer.make_cache(memory=memory)
    for t in range(5):
        output, cache = layer(query[:, t : t + 1], cache=cache, update_cache=False, start_index=t)
        np.testing.assert_allclose(output[:, 0], whole[:, t], rtol=1e-4, atol=1e-5)


def test_what_cannot_decode_says_so(rng):
    x = rng.normal(size=(1, 4, WIDTH)).astype("float32")
    layer = PositionalAttention(3, 4, position="synthesizer", max_length=8)
    with pytest.raises(ValueError, match="bidirectional=False"):
        layer(x, cache=layer.make_cache(1, 8))
    layer = DietAbsLinformerAttention(3, 4, 8, num_keys=4)
    with pytest.raises(ValueError, match="no cache"):
        layer(x, cache={"key": ops.zeros((1, 3, 8, 4)), "value": ops.zeros((1, 3, 8, 4))})


def test_a_cache_longer_than_the_table_is_refused(rng):
    layer = PositionalAttention(3, 4, position="diet_abs", max_length=8)
    layer.build((None, None, WIDTH))
    with pytest.raises(ValueError, match="max_length=8.*9 positions"):
        layer(np.zeros((1, 1, WIDTH), "float32"), cache=layer.make_cache(1, 9))


def test_cached_decoding_respects_padding(rng):
    subject = make_subject(("t5", {}), dtype="float32")
    x = rng.normal(size=(2, 6, WIDTH)).astype("float32")
    real = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]], "int32")  # padded on the left
    full = subject(x, attention_mask=real, use_causal_mask=True)
    cache = subject.attention.make_cache(2, 6)
    for t in range(6):
        output, cache = subject(x[:, t : t + 1], cache=cache, start_index=t, attention_mask=real)
        np.testing.assert_allclose(output[:, 0], full[:, t], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(full[1, 0], np.asarray(keras.ops.convert_to_numpy(subject.attention.output_dense.bias)))
