"""Facts of the papers and of mathematics."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from subject import CASES, MAX_LENGTH, SIZE, UNCOMPRESSED, WIDTH, Subject, case_id, make_subject, randomize

from keras_posenc import encodings
from keras_posenc.encodings.alibi import alibi_slopes
from keras_posenc.encodings.t5 import bucket_table
from keras_posenc.layers import PositionalAttention
from keras_posenc.utils import toeplitz

# T5


@pytest.mark.parametrize(
    "offset, bucket",
    [
        (0, 0),
        (-1, 1),
        (-7, 7),
        (-8, 8),
        (-16, 10),
        (-64, 14),
        (-90, 14),
        (-91, 15),
        (-5000, 15),
        (1, 17),
        (8, 24),
        (64, 30),
        (90, 30),
        (91, 31),
        (5000, 31),
    ],
)
def test_t5_buckets(offset, bucket):
    t5 = encodings.T5Bias(num_heads=1)
    t5.build()
    t5.table.assign(np.arange(32)[None])
    assert t5.line(keras.ops.array([offset]), None)[0, 0] == bucket


def test_t5_uses_31_buckets_in_both_directions_and_32_in_one():
    assert set(bucket_table(32, 128, True)) == set(range(32)) - {16}
    assert set(bucket_table(32, 128, False)) == set(range(32))
    assert set(bucket_table(32, 128, False)[129:]) == {0}  # keys after the query


# ALiBi


def test_alibi_slopes():
    assert alibi_slopes(8) == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(16) == pytest.approx([2 ** (-k / 2) for k in range(1, 17)])
    # 12 heads: those of 8, then every second of 16.
    assert alibi_slopes(12) == pytest.approx([2.0**-k for k in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])


def test_alibi_three_by_three():
    bias = np.asarray(encodings.Alibi(num_heads=8).bias(3, 3))[0, 0]
    np.testing.assert_allclose(bias, [[0, -0.5, -1], [-0.5, 0, -0.5], [-1, -0.5, 0]])


# KERPLE


@pytest.mark.parametrize(
    "kind, beyond, limit",
    [("log", (0.004, -1.0), (0.01, 0.01)), ("power", (0.5, -1.0), (0.5, 0.01)), ("power", (0.5, 2.5), (0.5, 2.0))],
)
def test_kerple_parameters_beyond_a_limit_have_its_bias_and_its_gradient(kind, beyond, limit):
    """With the gradient of a maximum, which is 0 there, they would stay where they are for ever."""
    kerple = encodings.Kerple(num_heads=1, kind=kind, dtype="float64")
    kerple.build()

    def ask(values):
        for weight, value in zip((kerple.r1, kerple.r2), values):
            weight.assign([[value]])
        with tf.GradientTape() as tape:
            bias = kerple.bias(4, 4)
        return bias, tape.gradient(bias, [kerple.r1.value, kerple.r2.value])

    (bias, gradients), (expected, of_limit) = ask(beyond), ask(limit)
    np.testing.assert_allclose(bias, expected)
    np.testing.assert_allclose(gradients, of_limit)
    assert np.abs(gradients).min() > 0


# TISA


def test_tisa_diagonal_is_f_of_zero():
    tisa = encodings.Tisa(num_heads=1, kernels=1)
    tisa.build()
    for weight, value in ((tisa.amplitudes, 2.0), (tisa.sharpness, -0.5), (tisa.centers, 1.0)):
        weight.assign([[value]])
    bias = np.asarray(tisa.bias(4, 4))[0, 0]
    np.testing.assert_allclose(np.diag(bias), 2 * np.exp(-0.5), rtol=1e-6)
    np.testing.assert_allclose(np.diag(bias, 1), 2.0)  # the key after the query, at the kernel's centre
    nothing = encodings.Tisa(num_heads=2, kernels=0)
    nothing.build()
    np.testing.assert_array_equal(nothing.bias(3, 3), np.zeros((1, 2, 3, 3)))


def test_tisa_has_three_parameters_per_kernel_and_head():
    tisa = encodings.Tisa(num_heads=12, kernels=5)
    tisa.build()
    assert 12 * tisa.count_params() == 2160  # twelve layers, TISA's table 2


# TUPE


def test_tupe_cls_cells():
    """Row 0 is from [CLS], (0, 0) included; the rest of column 0 is to [CLS]."""
    for cls in (encodings.Tupe, encodings.TupeRel):
        tupe = cls(num_heads=2, key_dim=4, max_length=8)
        tupe.build()
        randomize(tupe)
        bias = np.asarray(tupe.bias(6, 6))[0]
        assert np.ptp(bias[:, 0, :], axis=-1) == pytest.approx([0, 0])
        assert np.ptp(bias[:, 1:, 0], axis=-1) == pytest.approx([0, 0])
        assert not np.allclose(bias[:, 0, 0], bias[:, 1, 0])
        assert np.ptp(bias[:, 1:, 1:].reshape(2, -1), axis=-1).min() > 0.01
        # Decoding row 3 of it later finds the same cells.
        np.testing.assert_allclose(tupe.bias(1, 6, start_index=3)[0, :, 0], bias[:, 3], rtol=1e-5)


# Transformer-XL


def test_relative_shift():
    """Entry (i, j) of the shifted matrix is the one for distance i + (k - q) - j, queries at the end of the keys."""
    q, k = 3, 5
    offsets = np.asarray(toeplitz.offsets(q, k, start_index=k - q))
    lines = keras.ops.broadcast_to(-keras.ops.array(offsets), (q, q + k))
    shifted = np.asarray(toeplitz.skew(lines, q, k))
    np.testing.assert_array_equal(shifted, [[i + k - q - j for j in range(k)] for i in range(q)])


@pytest.mark.parametrize("q, k", [(1, 1), (1, 5), (4, 4), (5, 2), (3, 7)])
def test_unskew_is_the_transpose_of_skew(q, k, rng):
    lines, matrix = rng.normal(size=(2, q, q + k)), rng.normal(size=(2, q, k))
    left = np.sum(np.asarray(toeplitz.skew(keras.ops.array(lines), q, k)) * matrix)
    right = np.sum(lines * np.asarray(toeplitz.unskew(keras.ops.array(matrix), q, k)))
    np.testing.assert_allclose(left, right, rtol=1e-5)


def test_shaw_never_builds_a_tensor_of_length_squared_times_size():
    n, heads, size = 64, 2, 32
    shaw = encodings.Shaw(heads, size, max_distance=16)
    shaw.build()

    def both_doors(x):
        positions = shaw.at(n)
        return positions.values(positions.scores(x, x))

    graph = tf.function(both_doors).get_concrete_function(tf.TensorSpec((1, heads, n, size))).graph
    sizes = [t.shape.num_elements() for op in graph.get_operations() for t in op.outputs if t.shape.rank]
    assert max(filter(None, sizes)) <= heads * n * 2 * n < n * n * size


# Translation and permutation


def scores_of(subject, q, k, start):
    """What the encoding makes of one query and one key vector, standing `start` further along."""
    layer = subject.attention
    query = keras.ops.ones((1, layer.num_heads, start + 4, SIZE), dtype=subject.compute_dtype) * q
    key = keras.ops.ones((1, layer.num_heads, start + 4, SIZE), dtype=subject.compute_dtype) * k
    positions = subject.encoding.at(start + 4)
    moved_query, moved_key, _ = positions.transform(query, key, key)
    scores = positions.scores(moved_query, moved_key)
    scores = scores if positions.bias is None else scores + positions.bias
    return np.asarray(scores)[0, :, start:, start:]


# Dynamic RoPE depends on the number of keys, which differs between the two places compared.
COMPARABLE = [case for case in UNCOMPRESSED if case[1].get("scaling") != "dynamic"]


@pytest.mark.parametrize("case", COMPARABLE, ids=case_id)
def test_relative_encodings_are_translation_invariant_and_absolute_ones_are_not(case, rng):
    subject = make_subject(case)
    if subject.at_input:
        table = np.asarray(subject.encoding.embedding(10))
        gram = table @ table.T
        here, there = gram[1:5, 1:5], gram[5:9, 5:9]
        invariant = case[0] == "sinusoidal"  # as inner products, though not as what attention sees after projection
    else:
        q, k = rng.normal(size=(2, SIZE))
        here, there = scores_of(subject, q, k, 1), scores_of(subject, q, k, 5)
        invariant = subject.encoding.relative or case[0] == "none"
        if case[0] == "fire":
            # Invariant only while the query stands before the threshold L; made absolute here by a small one.
            subject.encoding.threshold.assign(0.5 / subject.encoding.initial_threshold)
            subject.encoding.c.assign(1.0)
            here, there = scores_of(subject, q, k, 1), scores_of(subject, q, k, 5)
    assert np.allclose(here, there, atol=1e-9) == invariant


@pytest.mark.parametrize("case", UNCOMPRESSED, ids=case_id)
def test_only_without_positions_the_layer_is_permutation_equivariant(case, rng):
    subject = make_subject(case)
    x = rng.normal(size=(1, 7, WIDTH))
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    permuted_output = np.asarray(subject(x[:, order]))
    output_permuted = np.asarray(subject(x))[:, order]
    assert np.allclose(permuted_output, output_permuted, atol=1e-9) == (case[0] == "none")


# DIET


def test_theorem_1_rank_of_attention_scores(rng):
    """Positions at the input leave rank(A) <= d_h; DIET-ABS reaches d_h + d_p."""
    n, d, d_h, d_p = 24, 16, 4, 6
    x, p = rng.normal(size=(2, n, d))

    def score_matrix(layer, inputs):
        layer.build((None, n, d))
        randomize(layer, scale=1.0)
        layer.query_dense.bias.assign(np.zeros((1, d_h)))
        layer.key_dense.bias.assign(np.zeros((1, d_h)))
        positions = layer.position.at(n)
        q, k = (layer._heads(dense, inputs[None]) for dense in (layer.query_dense, layer.key_dense))
        scores = positions.scores(q, k)
        return np.asarray(scores if positions.bias is None else scores + positions.bias)[0, 0]

    at_input = score_matrix(PositionalAttention(1, d_h, dtype="float64"), x + p)
    assert np.linalg.matrix_rank(at_input) == d_h
    diet = PositionalAttention(
        1, d_h, position="diet_abs", position_options={"rank": d_p}, max_length=n, dtype="float64"
    )
    assert np.linalg.matrix_rank(score_matrix(diet, x)) == d_h + d_p


def test_theorem_2_gradients_of_tokens_and_input_positions_are_equal(rng):
    subject = make_subject(("learned", {}))
    x = tf.Variable(rng.normal(size=(1, MAX_LENGTH, WIDTH)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(subject(x)))
    of_tokens, of_positions = tape.gradient(loss, [x, subject.encoding.table.value])
    np.testing.assert_allclose(of_tokens[0], tf.convert_to_tensor(of_positions), rtol=1e-9)


def test_diet_abs_rank_defaults_to_the_head_size():
    layer = PositionalAttention(2, 8, position="diet_abs", max_length=16)
    assert layer.position.rank == 8
    layer.build((None, None, 16))
    assert layer.position.count_params() == 2 * 2 * 16 * 8


def test_diet_rel_is_one_scalar_per_head_and_distance():
    rel = encodings.DietRel(num_heads=12, max_length=512)
    rel.build()
    assert rel.count_params() == 12 * 1023
    rel.table.assign(np.tile(np.arange(1023), (12, 1)))
    bias = np.asarray(rel.bias(512, 512))[0, 0]
    i, j = np.indices((512, 512))
    np.testing.assert_array_equal(bias, i - j + 511)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_no_two_random_parameters_start_equal(case):
    """With P_Q = P_K the positional scores would start, and by symmetry stay close to, a Gram matrix."""
    encoding = Subject(*case).encoding
    encoding.build((None, None, WIDTH))
    values = [np.array(w) for w in encoding.weights if np.ptp(np.array(w)) > 0]
    for first, second in itertools.combinations(values, 2):
        assert first.shape != second.shape or not np.array_equal(first, second)


# Extrapolation


@pytest.mark.parametrize("name", ["learned", "diet_abs", "diet_rel", "tupe", "tupe_rel"])
def test_clip_repeats_the_end_and_interpolate_keeps_the_ends(name, rng):
    def table(extrapolate, length):
        keras.utils.set_random_seed(5)
        cls = encodings.get_class(name)
        e = cls(
            num_heads=2,
            key_dim=4,
            max_length=6,
            extrapolate=extrapolate,
            **({"untie_cls": False} if "tupe" in name else {}),
        )
        e.build((None, None, 5))
        if name == "learned":
            return np.asarray(e.embedding(length))[None, None]
        return np.asarray(e.at(length).bias)

    known = table("error", 6)
    for way in ("clip", "interpolate"):
        np.testing.assert_allclose(table(way, 6), known, rtol=1e-5, atol=1e-7)
    clipped, squeezed = table("clip", 11), table("interpolate", 11)
    if name == "diet_rel":
        np.testing.assert_allclose(clipped[0, :, 0, 6:], np.tile(known[0, :, 0, 5:], 5), rtol=1e-6)
        np.testing.assert_allclose(squeezed[0, :, 0, ::2], known[0, :, 0], rtol=1e-5)
        halfway = (known[0, :, 0, 0] + known[0, :, 0, 1]) / 2
        np.testing.assert_allclose(squeezed[0, :, 0, 1], halfway, rtol=1e-5)
    elif name != "tupe_rel":  # whose relative part is defined at all distances
        np.testing.assert_allclose(clipped[0, 0, 8], clipped[0, 0, 5], rtol=1e-5)
        even = squeezed[0, 0, ::2] if name == "learned" else squeezed[0, 0, ::2, ::2]
        np.testing.assert_allclose(even, known[0, 0], rtol=1e-4, atol=1e-6)


# Combinations


def test_biases_of_a_combination_add_up():
    keras.utils.set_random_seed(1)
    both = encodings.create("tisa+diet_rel", num_heads=2, key_dim=4, max_length=8)
    both.build()
    tisa, rel = both.encodings
    np.testing.assert_allclose(both.at(5).bias, tisa.bias(5, 5) + rel.bias(5, 5), rtol=1e-6)


def test_a_combination_scores_with_its_scorer_and_rotates_first(rng):
    q = keras.ops.array(rng.normal(size=(1, 2, 5, 4)).astype("float32"))
    both = encodings.create("rotary+shaw", num_heads=2, key_dim=4)
    both.build()
    rotary, shaw = both.encodings
    randomize(shaw)
    positions = both.at(5)
    rotated, _, _ = rotary.at(5).transform(q, q, q)
    np.testing.assert_allclose(
        positions.scores(*positions.transform(q, q, q)[:2]), shaw.at(5).scores(rotated, rotated), rtol=1e-5
    )
    np.testing.assert_allclose(positions.values(positions.scores(q, q)), shaw.at(5).values(shaw.at(5).scores(q, q)))
