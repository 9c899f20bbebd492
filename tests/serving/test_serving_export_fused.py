"""Exported graphs have the form that TensorFlow's optimizer fuses, and the layers get their own form back."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from serving_export_subject import LAYERS, inputs, make

from keras_posenc.layers import PositionalAttention
from serving.exporting import export_model, reading
from serving.exporting.fused import fused
from serving.exporting.parts import Parts


def replaced(model):
    return [layer.name for layer in model._flatten_layers() if {"call", "_heads", "_penalties"} & set(vars(layer))]


@pytest.mark.parametrize("activation", [None, "gelu", "relu"])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize(
    "make_layer, shape",
    [
        (lambda **options: keras.layers.Dense(6, **options), (2, 3, 4)),
        (lambda **options: keras.layers.Dense(6, **options), (5, 4)),
        (lambda **options: keras.layers.EinsumDense("abc,cde->abde", (None, 3, 2), **options), (2, 3, 4)),
        (lambda **options: keras.layers.EinsumDense("abcd,cde->abe", (None, 7), **options), (2, 3, 4, 5)),
    ],
    ids=["dense", "pooler", "heads", "output"],
)
def test_products_are_those_of_the_layer(make_layer, shape, use_bias, activation, rng):
    if use_bias:
        bias = {3: "de", 4: "e"}[len(shape)] if len(shape) > 2 else None
        probe = make_layer()
        options = {"bias_axes": bias} if hasattr(probe, "equation") else {}
    else:
        options = {} if hasattr(make_layer(), "equation") else {"use_bias": False}
    layer = make_layer(activation=activation, bias_initializer="normal", **options)
    given = rng.normal(size=shape).astype("float32")
    expected = layer(given)
    with fused(layer):
        assert "call" in vars(layer)
        found = tf.function(lambda x: layer(x), autograph=False)(given)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "call" not in vars(layer)


def test_layer_normalisation_is_that_of_the_layer(rng):
    layer = keras.layers.LayerNormalization(epsilon=1e-6)
    given = (3.0 + 2.0 * rng.normal(size=(2, 3, 16))).astype("float32")
    layer.build(given.shape)
    layer.gamma.assign(rng.normal(size=16))
    layer.beta.assign(rng.normal(size=16))
    expected = layer(given)
    for parts in (1, 2):
        with fused(layer, Parts(parts)):
            assert "call" in vars(layer)
            np.testing.assert_allclose(layer(given), expected, atol=1e-5)
    with fused(layer, xla=True):
        assert "call" not in vars(layer)


@pytest.mark.parametrize(
    "layer",
    [
        type("Twice", (keras.layers.Dense,), {"call": lambda self, x: 2 * super(type(self), self).call(x)})(4),
        keras.layers.EinsumDense("ab,bc->ac", 4),
        keras.layers.LayerNormalization(axis=1),
        keras.layers.LayerNormalization(center=False),
    ],
    ids=["subclass", "equation", "axis", "no offset"],
)
def test_layers_of_another_kind_stay_as_they_are(layer):
    layer.build((None, 4))
    with fused(layer):
        assert "call" not in vars(layer)


def test_layers_get_their_form_back_after_an_error():
    model = make()
    with pytest.raises(RuntimeError, match="on purpose"), fused(model):
        assert (
            len(replaced(model)) == LAYERS * 9 + 2
        )  # six products, two norms and attention in a block; embedding norm, pooler
        raise RuntimeError("on purpose")
    assert not replaced(model)


@pytest.mark.parametrize("options", [{}, {"use_bias": False}, {"position": "synthesizer", "max_length": 8}], ids=str)
def test_queries_keys_and_values_are_one_product(options, rng):
    layer = PositionalAttention(2, 4, name="positional_attention", **options)
    first, second = rng.normal(size=(2, 2, 5, 8)).astype("float32")
    expected = layer(first, return_attention_scores=True), layer(second, return_attention_scores=True)
    before = [weight.path for weight in layer.weights]
    with fused(layer) as joined:
        found = [layer(given, return_attention_scores=True) for given in (first, second)]
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours[0], theirs[0], atol=1e-5)
        np.testing.assert_allclose(ours[1], theirs[1], atol=1e-5)
    assert [weight.path for weight in layer.weights] == before and not replaced(layer)
    if options.get("position") == "synthesizer":  # projects values only: nothing to join
        assert not joined
    else:
        assert joined["positional_attention/projections/kernel"].shape == (8, 24)


def test_projections_of_different_sizes_are_not_joined(rng):
    layer = PositionalAttention(2, 4, value_dim=3)
    given = rng.normal(size=(2, 5, 8)).astype("float32")
    expected = layer(given)
    with fused(layer) as joined:
        np.testing.assert_allclose(layer(given), expected, atol=1e-5)
    assert not joined


@pytest.mark.integration
def test_every_product_of_the_graph_is_followed_by_its_bias(tmp_path, rng):
    model, given = make(), inputs(rng)
    path = export_model(model, tmp_path / "m", signatures=(), warmup_lengths=())
    assert not replaced(model)
    for function in reading.read_graph(path).graph_def.library.function:
        by_name = {node.name: node for node in function.node_def}
        products = [name for name, node in by_name.items() if node.op == "MatMul"]
        if not products:
            continue
        biased = {node.input[0].split(":")[0] for node in by_name.values() if node.op == "BiasAdd"}
        assert len(products) == LAYERS * 4 + 1 and set(products) <= biased
        operations = {node.op for node in by_name.values()}
        assert not {name for name in by_name if "Tensordot" in name} and "BatchMatMulV2" in operations
        break
    else:
        pytest.fail("no function with products was found")
    served = tf.saved_model.load(str(path)).signatures["serving_default"](
        **{name: tf.constant(value) for name, value in given.items()}
    )
    np.testing.assert_allclose(served["logits"], model(given)["pooled_output"], atol=1e-5)


@pytest.mark.integration
def test_hiding_padding_is_part_of_the_product(tmp_path, rng):
    path = export_model(make(), tmp_path / "m", signatures=(), warmup_lengths=())
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ["serve"], str(path)).signature_def["serving_default"]
        fed = {signature.inputs[name].name: value for name, value in inputs(rng).items()}
        wanted = signature.outputs["logits"].name
        session.run(wanted, fed)
        run = v1.RunMetadata()
        session.run(wanted, fed, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run)
    labels = [node.timeline_label for device in run.step_stats.dev_stats for node in device.node_stats]
    if not any("_Mkl" in label for label in labels):
        pytest.skip("this TensorFlow runs without oneDNN")
    assert sum("= _MklFusedBatchMatMulV2(" in label for label in labels) == LAYERS
