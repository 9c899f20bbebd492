"""Norms of weighted values, against NumPy token by token and against the output of the layer itself."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_posenc.analysis import norms
from keras_posenc.models import Bert, Classifier


@pytest.fixture
def found():
    """A BERT of two layers on a padded batch: its intermediates, stacked over layers, and its output kernels."""
    model = Bert(50, 2, 3, 12, 16, max_length=9, dropout=0.0)
    model.build()
    for variable in model.trainable_variables:
        variable.assign(keras.random.normal(variable.shape, seed=1))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3])
    outputs = model({"token_ids": np.arange(14).reshape(2, 7), "padding_mask": mask}, return_intermediates=True)
    stacked = {name: ops.convert_to_numpy(ops.stack(outputs[name], axis=1)) for name in ("attention", "values")}
    hidden = [ops.convert_to_numpy(x) for x in outputs["hidden_states"]]
    return model, mask, stacked["attention"], stacked["values"], hidden


def test_norms_are_those_of_each_weighted_vector(found):
    model, mask, attention, values, _ = found
    kernels = ops.convert_to_numpy(norms.output_kernels(model))
    assert kernels.shape == (2, 3, 4, 12)
    per_head = ops.convert_to_numpy(norms.attention_norms(attention, values, kernels, mask))
    summed = ops.convert_to_numpy(norms.summed_norms(attention, values, kernels, mask))
    assert per_head.shape == (2, 2, 3, 7, 7) and summed.shape == (2, 2, 7, 7)
    for b, layer, i, j in np.ndindex(summed.shape):
        vectors = [attention[b, layer, h, i, j] * values[b, layer, h, j] @ kernels[layer, h] for h in range(3)]
        np.testing.assert_allclose(per_head[b, layer, :, i, j], np.linalg.norm(vectors, axis=-1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(summed[b, layer, i, j], np.linalg.norm(sum(vectors)), rtol=1e-3, atol=1e-3)
    assert not per_head[1, ..., 4:].any() and not summed[1, ..., 4:].any()


def test_the_vectors_sum_to_the_output_of_the_layer(found):
    model, mask, attention, values, hidden = found
    kernels = norms.output_kernels(model)
    vectors = ops.convert_to_numpy(norms.transformed_values(values, kernels))
    for layer, block in enumerate(model.encoder.block_of_each_layer()):
        expected = block.attention(hidden[layer], attention_mask=mask)
        output = np.einsum("bhqk,bhkw->bqw", attention[:, layer], vectors[:, layer])
        np.testing.assert_allclose(output + block.attention.output_dense.bias, expected, rtol=1e-4, atol=1e-3)


def test_shared_layers_repeat_their_kernel():
    model = Bert(50, 3, 2, 8, 8, tie_layers=True)
    model.build()
    kernels = ops.convert_to_numpy(norms.output_kernels(model))
    assert kernels.shape == (3, 2, 4, 8)
    np.testing.assert_array_equal(kernels[0], kernels[2])


def test_kernels_of_a_model_with_a_head():
    model = Classifier(Bert(50, 2, 2, 8, 8), 3)
    model.build()
    np.testing.assert_array_equal(norms.output_kernels(model), norms.output_kernels(model.backbone))


def test_kernels_of_other_heads_are_refused():
    with pytest.raises(ValueError, match="agree in heads and head size"):
        norms.transformed_values(np.ones((1, 3, 5, 4), "float32"), np.ones((2, 4, 8), "float32"))
