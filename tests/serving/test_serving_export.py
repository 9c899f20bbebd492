"""A SavedModel answers what the model answers in Python, for every encoding, head and option."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from serving_export_subject import HEADS, LAYERS, MAX_LENGTH, VOCABULARY, call, inputs, make, tokenizer

from keras_posenc import encodings
from keras_posenc.analysis import Runner, effective
from keras_posenc.models import Bert, EncoderDecoder, heads
from serving.exporting import export_model, reading, warmup

pytestmark = pytest.mark.integration
CLOSE = dict(rtol=0, atol=1e-5)
MAPS = ("attention", "effective_attention")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(7)
    return make("diet_rel", lambda backbone: heads.Classifier(backbone, 3))


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    base = tmp_path_factory.mktemp("serving") / "classifier"
    return export_model(model, base, tokenizer(), labels=["no", "maybe", "yes"])


@pytest.fixture(scope="module")
def loaded(path):
    return tf.saved_model.load(str(path))


@pytest.mark.parametrize("position", encodings.names())
def test_every_encoding(position, rng, tmp_path):
    """Folded and served is computed and called: the export changes nothing but the place."""
    model, given = make(position, layers=1), inputs(rng)
    loaded = tf.saved_model.load(str(export_model(model, tmp_path / "m", signatures=(), warmup_lengths=())))
    served = call(loaded, "serving_default", **given)
    np.testing.assert_allclose(served["logits"], model(given)["pooled_output"], **CLOSE)
    shorter = {name: value[:1, :4] for name, value in given.items()}
    served = call(loaded, "serving_default", **shorter)
    np.testing.assert_allclose(served["logits"], model(shorter)["pooled_output"], **CLOSE)


def test_maps_are_those_of_the_analysis(model, loaded, rng):
    given = inputs(rng)
    expected, logits = Runner(model)(given), model(given)["logits"]
    found = call(loaded, "effective_attention", **given)
    assert found["attention"].shape == (3, LAYERS, HEADS, 9, 9)
    np.testing.assert_allclose(found["logits"], logits, **CLOSE)
    np.testing.assert_allclose(found["attention"], expected.attention, **CLOSE)
    np.testing.assert_allclose(found["effective_attention"], expected.effective, **CLOSE)
    assert not found["effective_attention"][-1, ..., 5:].any()  # padding
    raw = call(loaded, "attention", **given)
    np.testing.assert_allclose(raw["attention"], found["attention"], **CLOSE)
    layer = np.array([1, 0, 1], "int32")
    one = call(loaded, "layer_attention", layer=layer, **given)
    for name in MAPS:
        np.testing.assert_allclose(one[name], found[name][np.arange(3), layer], **CLOSE)
    np.testing.assert_allclose(one["logits"], logits, **CLOSE)


def test_the_contract(path):
    """Names, dtypes and free axes of the design's table; every output begins with the batch and is float32."""
    found = reading.inspect(path)["signatures"]
    assert set(found) == {"serving_default", "attention", "effective_attention", "layer_attention", "text"}
    ids = {"token_ids", "segment_ids", "padding_mask"}
    outputs = {"serving_default": set(), "attention": {"attention"}, "layer_attention": set(MAPS)}
    outputs["effective_attention"] = set(MAPS)
    for name, extra in outputs.items():
        more = {"layer"} if name == "layer_attention" else set()
        assert set(found[name]["inputs"]) == ids | more
        assert all(found[name]["inputs"][i] == {"dtype": "int32", "shape": [-1, -1]} for i in ids)
        assert set(found[name]["outputs"]) == {"logits"} | extra
        assert found[name]["method"] == "tensorflow/serving/predict"
        for output in found[name]["outputs"].values():
            assert output["dtype"] == "float32" and output["shape"][0] == -1
    assert found["layer_attention"]["inputs"]["layer"] == {"dtype": "int32", "shape": [-1]}
    assert found["attention"]["outputs"]["attention"]["shape"] == [-1, LAYERS, HEADS, -1, -1]
    strings = {"dtype": "string", "shape": [-1]}
    assert found["text"]["inputs"] == {"text": strings, "text_pair": strings}
    assert set(found["text"]["outputs"]) == ids | {"logits", "tokens"}


def test_text_is_the_tokenizer_and_the_model(model, loaded):
    rows = [("Hello, the WORLD", "naïve [MASK]"), ("the", ""), ("hello " * 20, "world " * 20)]
    first, second = (np.array([pair[i] for pair in rows], object) for i in (0, 1))
    found = call(loaded, "text", text=first, text_pair=second)
    expected = tokenizer().encode([pair if pair[1] else pair[0] for pair in rows], MAX_LENGTH)
    for name, value in expected.items():
        assert found[name].dtype == np.int32
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    np.testing.assert_allclose(found["logits"], model(expected)["logits"], **CLOSE)
    tokens = [[piece.decode() for piece in row] for row in found["tokens"]]
    assert tokens == [[VOCABULARY[i] for i in row] for row in expected["token_ids"]]


@pytest.mark.parametrize("position, sharing", [("diet_abs", "none"), ("learned+tisa", "layer")])
def test_folds_are_variables(position, sharing, tmp_path):
    """No q x k constant in the graph: each table is a variable once, however many signatures read it."""
    model = make(position, sharing=sharing, max_length=48)
    path = export_model(model, tmp_path / "m", signatures=["attention"], warmup_lengths=())
    graph = reading.read_graph(path)
    assert max(np.prod(constant["shape"]) for constant in reading.constants(graph)) < 48
    shapes = [v["shape"] for v in reading.variables_of(path) if "folded_positions" in v["name"]]
    assert shapes.count([1, HEADS, 48, 48]) == (LAYERS if sharing == "none" else 1)
    assert not any("position_query" in v["name"] or "kernels" in v["name"] for v in reading.variables_of(path))
    # The model is as it was: not folded, and its weights can be trained.
    assert all(weight.trainable for weight in model.trainable_weights) and not model.non_trainable_weights


def test_serving_default_pays_for_nothing_else(path):
    """Its graph has no decomposition and no stacked maps, and is the smallest."""
    graph = reading.read_graph(path)
    functions = {function.signature.name: function for function in graph.graph_def.library.function}

    def reached(name):
        for node in functions[name].node_def:
            yield node
            for called in [value.func.name for value in node.attr.values() if value.func.name]:
                yield from reached(called)

    operations = {}
    for name, signature in graph.signature_def.items():
        if name != "__saved_model_init_op":
            node = next(iter(signature.outputs.values())).name.split(":")[0]
            call_node = next(n for n in graph.graph_def.node if n.name == node)
            operations[name] = [n.op for n in reached(call_node.attr["f"].func.name)]
    assert "Cholesky" in operations["effective_attention"] and "Cholesky" not in operations["serving_default"]
    assert len(operations["serving_default"]) == min(map(len, operations.values()))
    assert "WordpieceTokenizeWithOffsets" not in operations["serving_default"]


@pytest.mark.parametrize(
    "head, answer",
    [
        (heads.MaskedLM, lambda out: out["logits"]),
        (heads.SpanPredictor, lambda out: np.stack([out["start_logits"], out["end_logits"]], -1)),
        (None, lambda out: out["sequence_output"]),
    ],
    ids=["masked_lm", "span", "no pooler"],
)
def test_heads(head, answer, rng, tmp_path):
    model, given = make("alibi", head, layers=1, pooler=head is not None), inputs(rng)
    path = export_model(model, tmp_path / "m", signatures=() if head else ["embeddings"], warmup_lengths=())
    np.testing.assert_allclose(call(path, "serving_default", **given)["logits"], answer(model(given)), **CLOSE)
    if head is None:
        found = call(path, "embeddings", **given)
        assert list(found) == ["sequence_output"]
        np.testing.assert_allclose(found["sequence_output"], answer(model(given)), **CLOSE)


def test_a_reloaded_keras_file(rng, tmp_path):
    """Exported after `.keras`, with tied layers and factorized embeddings (ALBERT), under XLA."""
    model, given = make("t5", heads.MaskedLM, tie_layers=True, embedding_dim=6), inputs(rng)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    path = export_model(again, tmp_path / "m", signatures=["layer_attention"], xla=True, warmup_lengths=())
    found = call(path, "layer_attention", layer=np.array([0, 1, 1], "int32"), **given)
    expected = model(given, return_intermediates=True)
    np.testing.assert_allclose(found["logits"], expected["logits"], **CLOSE)
    raw = effective.effective_attention(expected["attention"][1], expected["values"][1], given["padding_mask"])
    np.testing.assert_allclose(found["effective_attention"][1:], raw[1:], **CLOSE)
    assert reading.inspect(path)["xla"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 12 tokens"):  # XLA itself would clamp
        call(path, "serving_default", **inputs(rng, length=13))


def test_half(model, path, loaded, rng, tmp_path):
    """Float32 outputs near those of the model, half the bytes of weights, and the model untouched."""

    def is_weight(name):
        return name.startswith("weights/") and "folded_positions" not in name

    halved = export_model(model, tmp_path / "m", signatures=["attention"], half=True, warmup_lengths=())
    given = inputs(rng)
    found, expected = call(halved, "attention", **given), call(loaded, "attention", **given)
    for name in found:
        assert found[name].dtype == np.float32
        assert 0 < np.abs(found[name] - expected[name]).max() < 0.05 * np.abs(expected[name]).max()
    sizes = [sum(v["bytes"] for v in reading.variables_of(p) if is_weight(v["name"])) for p in (halved, path)]
    assert sizes[0] * 2 == sizes[1]
    assert model.dtype == "float32"


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(token_ids=[[1] * 13], segment_ids=[[0] * 13], padding_mask=[[1] * 13]), "from 1 to 12 tokens.*13"),
        (dict(token_ids=np.zeros((1, 0)), segment_ids=np.zeros((1, 0)), padding_mask=np.zeros((1, 0))), "from 1 to 12"),
        (dict(token_ids=[[len(VOCABULARY)]]), rf"token_ids must be from 0 to {len(VOCABULARY) - 1}"),
        (dict(token_ids=[[-1]]), "token_ids must be from 0.*-1"),
        (dict(segment_ids=[[2]]), "segment_ids must be from 0 to 1"),
        (dict(padding_mask=[[7]]), "padding_mask must be from 0 to 1"),
        (dict(padding_mask=[[1], [1]]), "padding_mask must have the shape of token_ids"),
        (dict(layer=[2]), "layer must be from 0 to 1"),
        (dict(layer=[0, 1]), "layer has a number for each row"),
    ],
)
def test_requests_that_cannot_be_answered(change, message, loaded):
    given = {"token_ids": [[5]], "segment_ids": [[0]], "padding_mask": [[1]], "layer": [0], **change}
    given = {name: np.asarray(value, "int32") for name, value in given.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(loaded, "layer_attention", **given)


def test_an_empty_batch_has_an_empty_answer(loaded):
    empty = np.zeros((0, 5), "int32")
    found = call(loaded, "serving_default", token_ids=empty, segment_ids=empty, padding_mask=empty)
    assert found["logits"].shape == (0, 3)


def test_warm_up_requests_run(path, loaded):
    """Each record of the file is a request that its signature answers, and there is one for every signature."""
    from tensorflow_serving.apis import prediction_log_pb2

    seen = []
    for record in tf.data.TFRecordDataset(str(path / warmup.FILE)):
        request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        given = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        assert call(loaded, request.model_spec.signature_name, **given)["logits"].shape == (1, 3)
        assert request.model_spec.name == "classifier"
        seen.append(request.model_spec.signature_name)
    assert sorted(seen) == sorted(loaded.signatures)
    made = list(warmup.requests(["text", "layer_attention"], (4, 8), (1, 3), 10, 2, 12))
    assert len(made) == 8
    assert {given["token_ids"].shape for name, given in made if name != "text"} == {(1, 4), (3, 4), (1, 8), (3, 8)}


def test_what_is_refused(model, tmp_path):
    def refused(message, model=model, error=ValueError, **options):
        with pytest.raises(error, match=message):
            export_model(model, tmp_path / "m", **{"warmup_lengths": (), "signatures": (), **options})
        assert not list((tmp_path / "m").glob("*")), "nothing is left of a refused export"

    refused("no weights yet", model=heads.MaskedLM(Bert(10, 1, 1, 4, 4)))
    refused("2 labels for 3 classes", labels=["a", "b"])
    refused("'text' needs a tokenizer", signatures=["text"])
    refused("max_length=12, but 13", max_length=13)
    refused("at most max_length=12", warmup_lengths=(13,))
    refused("at most 1000 warm-up requests", warmup_lengths=range(1, 13), warmup_batches=range(1, 101))
    refused("at least 1", version=0)
    refused("pieces, but the model embeddings for", tokenizer=type(tokenizer())(VOCABULARY + ["more"]))
    other = EncoderDecoder(20, 1, 2, 8, 8, max_length=8)
    refused("Only a Bert", model=other)
    folded = make("alibi", layers=1)
    folded.fold_positions(6)
    refused("folded at length 6", model=folded)
    assert export_model(folded, tmp_path / "m", max_length=6, signatures=(), warmup_lengths=()).name == "1"
    assert folded.encoder.blocks[0].attention.position.folded_length == 6
