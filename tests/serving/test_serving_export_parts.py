"""Sequences in parts: the same answers, in graphs whose parts wait for each other only in attention."""

import numpy as np
import pytest
import tensorflow as tf
from serving_export_subject import LAYERS, MAX_LENGTH, call, inputs, make, tokenizer

from keras_posenc.encodings import names
from keras_posenc.folding import fold_positions
from keras_posenc.layers import PositionalAttention, TransformerEncoder
from keras_posenc.models import heads
from serving.exporting import export_model, reading
from serving.exporting.fused import fused
from serving.exporting.parts import Parts


def traced(model, parts, intermediates=False):
    """The model in parts as a function of inputs of any length."""
    specs = {name: tf.TensorSpec((None, None), tf.int32) for name in ("token_ids", "segment_ids", "padding_mask")}

    @tf.function(input_signature=[specs], autograph=False)
    def run(given):
        return model(given, return_intermediates=intermediates, training=False)

    with fused(model, Parts(parts)):
        run.get_concrete_function()
    return run


def same(found, expected):
    tf.nest.assert_same_structure(found, expected)
    for ours, theirs in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("folded", [False, True], ids=["", "folded"])
@pytest.mark.parametrize("position", names())
def test_every_encoding(position, folded, rng):
    model = make(position)
    if folded:
        fold_positions(model, MAX_LENGTH)
    run = traced(model, 2, intermediates=True)
    for length in (1, 2, 7, MAX_LENGTH):
        given = inputs(rng, length=length, padding=length // 3)
        same(run(given), model(given, return_intermediates=True, training=False))


@pytest.mark.parametrize(
    "options",
    [
        {"sharing": "layer"},
        {"sharing": "head"},
        {"sharing": "layer", "position": "tupe_rel"},
        {"sharing": "layer", "position": "rotary"},
        {"sharing": "layer", "position": "none"},
        {"tie_layers": True, "position": "diet_abs"},
        {"position": "learned+tisa"},
        {"position": "none", "segments": "input"},
        {"embedding_dim": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("parts", [2, 3])
def test_every_kind_of_encoder(options, parts, rng):
    model = make(**options)
    given = inputs(rng)
    same(traced(model, parts, True)(given), model(given, return_intermediates=True, training=False))


@pytest.mark.parametrize(
    "head",
    [heads.MaskedLM, lambda backbone: heads.Classifier(backbone, 3), heads.SpanPredictor],
    ids=["words", "classes", "span"],
)
def test_heads(head, rng):
    model, given = make(head=head), inputs(rng)
    same(traced(model, 2)(given), model(given, training=False))


def test_an_encoder_that_looks_back_and_normalises_first(rng):
    encoder = TransformerEncoder(2, 2, 8, 16, position="tisa", causal=True, norm_first=True)
    x = rng.normal(size=(2, 5, 8)).astype("float32")
    expected = encoder(x)
    with fused(encoder, Parts(2)):
        np.testing.assert_allclose(encoder(x), expected, atol=1e-5)


def test_attention_that_is_not_an_encoders_stays_whole(rng):
    layer = PositionalAttention(2, 4, position="tisa")
    x, y = rng.normal(size=(2, 2, 5, 8)).astype("float32")
    mask = rng.integers(0, 2, (2, 5, 5))
    expected = layer(x, attention_mask=mask), layer(x, y)
    with fused(layer, Parts(2)):
        for found, wanted in zip((layer(x, attention_mask=mask), layer(x, y)), expected):
            np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("length, sizes", [(7, [2, 2, 3]), (3, [1, 1, 1]), (2, [1, 1, 1])])
def test_a_whole_is_cut_once(length, sizes):
    parts = Parts(3)
    whole = tf.reshape(tf.range(2 * length), (1, length, 2))
    cut = parts.of(whole)
    assert [piece.shape[1] for piece in cut.pieces] == sizes
    assert parts.of(whole) is cut
    joined = parts.map(lambda part: part + 1, whole)
    np.testing.assert_array_equal(joined, whole + 1)
    assert [piece.shape[1] for piece in parts.of(joined).pieces] == sizes
    with parts.one():
        assert parts.map(lambda part: part, whole) is whole


def test_rows_without_a_length_stay_whole():
    rows = tf.ones((3, 5))
    assert Parts(2).map(lambda part: part, rows) is rows


@pytest.mark.integration
def test_an_export_in_parts_answers_as_the_model_does(tmp_path, rng):
    model = make("diet_abs")
    whole, cut = (
        export_model(model, tmp_path / f"in{parts}", tokenizer(), parts=parts, warmup_lengths=()) for parts in (1, 2)
    )
    assert not any({"call", "_add", "_heads"} & set(vars(layer)) for layer in model._flatten_layers())
    for batch in (1, 3, 4):
        answers_as(whole, cut, inputs(rng, batch))
    text = {"text": np.array([b"hello world"]), "text_pair": np.array([b""])}
    np.testing.assert_allclose(call(cut, "text", **text)["logits"], call(whole, "text", **text)["logits"], atol=1e-4)
    assert "sequences in 2 parts" in reading.report(cut) and "sequences in" not in reading.report(whole)


def answers_as(whole, cut, given):
    layer = {"layer": np.arange(len(given["token_ids"]), dtype="int32") % 2}
    for signature in ("serving_default", "attention", "effective_attention", "layer_attention"):
        more = layer if signature == "layer_attention" else {}
        found, expected = (call(path, signature, **given, **more) for path in (cut, whole))
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-4, err_msg=f"{signature}, {name}")


def ran(path, given):
    """Number of products with weights that an export computes, and ranks of what it splits and puts together."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ["serve"], str(path)).signature_def["serving_default"]
        fed = {signature.inputs[name].name: value for name, value in given.items()}
        run = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        session.run(signature.outputs["logits"].name, fed, options, run)
    nodes = [node for device in run.step_stats.dev_stats for node in device.node_stats]
    products = [node for node in nodes if "MatMul(" in node.timeline_label and "Batch" not in node.timeline_label]
    if any("_Mkl" in node.timeline_label for node in nodes):  # with oneDNN a layer normalisation is one operation
        assert sum("= _MklLayerNorm(" in node.timeline_label for node in nodes) >= 2 * 2 * LAYERS
    ranks = {"ConcatV2": [], "SplitV": [], "Split": []}
    for node in nodes:
        for name, found in ranks.items():
            if f"= {name}(" in node.timeline_label:
                found.append(len(node.output[0].tensor_description.shape.dim))
    return len(products), ranks


@pytest.mark.integration
def test_parts_meet_only_for_keys_and_values(tmp_path, rng):
    path = export_model(make(), tmp_path / "m", signatures=(), warmup_lengths=(), parts=2)
    products, ranks = ran(path, inputs(rng))
    assert products == 2 * 4 * LAYERS + 1  # and the pooler
    # Keys and values of each layer, and the output of the last one for the pooler; the rest are shapes.
    assert sorted(rank for rank in ranks["ConcatV2"] if rank > 1) == [3] + [4] * 2 * LAYERS
    assert ranks["SplitV"] == [2, 3] or ranks["SplitV"] == [3, 2]  # segments and embeddings


@pytest.mark.integration
def test_groups_of_texts_never_meet(tmp_path, rng):
    path = export_model(make(), tmp_path / "m", signatures=(), warmup_lengths=(), parts=2)
    products, ranks = ran(path, inputs(rng, batch=4))
    assert products == 2 * (4 * LAYERS + 1)
    assert [rank for rank in ranks["ConcatV2"] if rank > 1] == [2] and ranks["SplitV"] == []  # the logits
    assert ranks["Split"] == [2] * 3  # the inputs


@pytest.mark.parametrize(
    "options, message",
    [({"parts": 0}, "parts"), ({"parts": 2, "xla": True}, "one program"), ({"parts": 13}, "max_length=12")],
)
def test_what_cannot_be(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_model(make(), tmp_path / "m", **options)
    assert not (tmp_path / "m").exists()
