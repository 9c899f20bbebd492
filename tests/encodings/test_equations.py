"""Every encoding against NumPy written from its paper, in float64."""

import keras
import numpy as np
import pytest
from reference import INPUT, SCORES, attention
from subject import CASES, UNCOMPRESSED, WIDTH, case_id, make_subject

from keras_posenc import encodings

# Keras' sine is float32 on JAX, whatever it is given.
TOLERANCE = dict(rtol=1e-7, atol=1e-7) if keras.backend.backend() == "tensorflow" else dict(rtol=1e-5, atol=1e-5)
cases = pytest.mark.parametrize("case", CASES, ids=case_id)
# Compressed keys have no positions and no order, so that some questions do not arise.
uncompressed = pytest.mark.parametrize("case", UNCOMPRESSED, ids=case_id)


def check(subject, query, value=None, masks=None, start_index=0, segments=None, **call):
    if start_index:
        call["start_index"] = start_index
    output, weights = subject(query, value, return_attention_scores=True, **call)
    for b in range(len(query)):
        expected = attention(
            subject,
            query[b],
            None if value is None else value[b],
            None if masks is None else masks[b],
            start_index,
            None if segments is None else [s[b] for s in segments],
        )
        np.testing.assert_allclose(np.asarray(output)[b], expected[0], **TOLERANCE)
        np.testing.assert_allclose(np.asarray(weights)[b], expected[1], **TOLERANCE)


def test_every_encoding_has_a_reference():
    assert set(encodings.names()) == set(INPUT) | set(SCORES)


@cases
def test_self_attention(case, rng):
    check(make_subject(case), rng.normal(size=(2, 7, WIDTH)))


@cases
def test_padding(case, rng):
    real = np.array([[1] * 7, [1] * 4 + [0] * 3], "int32")
    masks = [np.tile(row.astype(bool), (7, 1)) for row in real]
    check(make_subject(case), rng.normal(size=(2, 7, WIDTH)), masks=masks, attention_mask=real)


@cases
def test_fully_masked_example_is_zero(case, rng):
    real = np.array([[1] * 5, [0] * 5], bool)
    masks = [np.tile(row, (5, 1)) for row in real]
    check(make_subject(case), rng.normal(size=(2, 5, WIDTH)), masks=masks, attention_mask=real)


@uncompressed
def test_causal(case, rng):
    masks = [np.tril(np.ones((7, 7), bool))] * 2
    check(make_subject(case), rng.normal(size=(2, 7, WIDTH)), masks=masks, use_causal_mask=True)


def test_compressed_keys_cannot_be_causal(rng):
    with pytest.raises(ValueError, match="causal"):
        make_subject(("diet_abs_lin", {}))(rng.normal(size=(1, 5, WIDTH)), use_causal_mask=True)


@cases
def test_cross_attention_with_different_lengths(case, rng):
    check(make_subject(case), rng.normal(size=(2, 4, WIDTH)), rng.normal(size=(2, 9, WIDTH)))


@uncompressed
def test_cross_attention_with_a_mask_for_each_pair(case, rng):
    real = rng.random((2, 4, 9)) < 0.6
    query, memory = rng.normal(size=(2, 4, WIDTH)), rng.normal(size=(2, 9, WIDTH))
    check(make_subject(case), query, memory, masks=real, attention_mask=real)


@uncompressed
def test_queries_that_start_later(case, rng):
    query, memory = rng.normal(size=(1, 3, WIDTH)), rng.normal(size=(1, 8, WIDTH))
    check(make_subject(case), query, memory, start_index=5)


@uncompressed
def test_segments_add_to_any_encoding(case, rng):
    subject = make_subject(case, num_segments=3)
    segment_ids = rng.integers(0, 3, size=(2, 6)).astype("int32")
    query = rng.normal(size=(2, 6, WIDTH))
    check(subject, query, segments=[segment_ids, segment_ids], segment_ids=segment_ids)
    memory = rng.normal(size=(2, 8, WIDTH))
    of_memory = rng.integers(0, 3, size=(2, 8)).astype("int32")
    check(subject, query, memory, segments=[segment_ids, of_memory], segment_ids=(segment_ids, of_memory))


@cases
def test_values_of_another_size(case, rng):
    check(make_subject(case, value_dim=6), rng.normal(size=(1, 5, WIDTH)))
