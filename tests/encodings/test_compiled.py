"""XLA, gradients and precision policies."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from subject import CASES, MAX_LENGTH, WIDTH, case_id, make_subject

from keras_posenc import encodings

cases = pytest.mark.parametrize("case", CASES, ids=case_id)


@cases
def test_xla_equals_eager(case, rng):
    subject = make_subject(case, dtype="float32")
    x = rng.normal(size=(2, 7, WIDTH)).astype("float32")
    mask = np.array([[1] * 7, [1] * 5 + [0] * 2], "int32")

    @tf.function(jit_compile=True)
    def compiled(x, mask):
        return subject(x, attention_mask=mask)

    np.testing.assert_allclose(compiled(x, mask), subject(x, attention_mask=mask), rtol=1e-4, atol=1e-5)


@cases
def test_graph_with_dynamic_batch_and_length_equals_eager(case, rng):
    subject = make_subject(case, dtype="float32")
    graph = tf.function(lambda x: subject(x), input_signature=[tf.TensorSpec((None, None, WIDTH))])
    for batch, length in ((1, 1), (2, 5), (3, MAX_LENGTH)):
        x = rng.normal(size=(batch, length, WIDTH)).astype("float32")
        np.testing.assert_allclose(graph(x), subject(x), rtol=1e-4, atol=1e-5)


@cases
def test_gradients_reach_every_position_parameter_and_match_finite_differences(case, rng):
    subject = make_subject(case)
    x = tf.constant(rng.normal(size=(2, 6, WIDTH)))
    direction = tf.constant(rng.normal(size=(2, 6, WIDTH)))
    parameters = subject.encoding.trainable_weights
    if case[0] == "kerple":  # within its limits, which gradients pass: see test_facts.py
        for parameter in parameters:
            parameter.assign(np.abs(parameter) + 0.02)

    @tf.function
    def loss():
        return tf.reduce_sum(subject(x, training=True) * direction)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            value = loss()
        return tape.gradient(value, [p.value for p in parameters])

    for parameter, gradient in zip(parameters, gradients()):
        gradient = tf.convert_to_tensor(gradient).numpy()
        assert np.abs(gradient).max() > 1e-8, f"no gradient reaches {parameter.path}"
        step = rng.normal(size=parameter.shape)
        start = np.array(parameter)
        h = 1e-6
        parameter.assign(start + h * step)
        ahead = loss().numpy()
        parameter.assign(start - h * step)
        behind = loss().numpy()
        parameter.assign(start)
        np.testing.assert_allclose(np.sum(gradient * step), (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-7)


@cases
@pytest.mark.parametrize("policy, tolerance", [("mixed_bfloat16", 0.15), ("mixed_float16", 0.02)])
def test_low_precision_is_close_and_keeps_float32_weights_and_softmax(case, policy, tolerance, rng):
    x = rng.normal(size=(2, 7, WIDTH)).astype("float32")
    exact = make_subject(case, dtype="float32")(x)
    low = make_subject(case, dtype=policy)
    output, attention = low(x, return_attention_scores=True)
    assert attention.dtype == "float32"
    np.testing.assert_allclose(ops.sum(attention, axis=-1), 1.0, atol=1e-5)
    assert keras.backend.standardize_dtype(output.dtype) == low.compute_dtype
    assert all(w.dtype == "float32" for w in low.weights)
    scale = float(np.abs(exact).max())
    assert np.abs(np.asarray(ops.cast(output, "float32")) - exact).max() < tolerance * scale


FAR = 4000


@pytest.mark.parametrize("name", encodings.names())
def test_positions_are_exact_far_out_in_bfloat16(name):
    """At position 4,000 bfloat16 has steps of 16; what an encoding says there must not change with the policy."""

    def tables(policy):
        keras.utils.set_random_seed(3)
        cls = encodings.get_class(name)
        encoding = cls(num_heads=2, key_dim=4, max_length=FAR + 8, dtype=policy)
        encoding.build((None, None, 8))
        if "embed" in cls.doors:
            # Integrating FLOATER to 4,000 is slow, and it has no arithmetic on large positions but the time.
            start = 200 if name == "floater" else FAR
            return {"embedding": encoding.embedding(8, start_index=start)}
        # One row of queries at the far end against all keys.
        return encoding.at(2, FAR + 4, start_index=FAR).tables

    exact, low = tables("float32"), tables("mixed_bfloat16")
    for key in exact:
        assert keras.backend.standardize_dtype(low[key].dtype) in ("float32", "int32")
        np.testing.assert_array_equal(exact[key], low[key])
