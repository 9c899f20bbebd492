"""One loaded version: what it computes, what it refuses and what it keeps."""

import shutil
import weakref

import keras
import numpy as np
import pytest
import serving_models
import tensorflow as tf
from google.protobuf import text_format
from serving_memory import growth, needs_counters
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from serving.server import checks, errors
from serving.server.batching import Parameters
from serving.server.errors import ServingError
from serving.server.servable import Servable

ROW = serving_models.ROW
IDS = {"ids": np.ones((2, 4), np.int32), "weight": np.array([0.5, 2.0], np.float32)}


@pytest.fixture(scope="module")
def servable(saved_model):
    return Servable(saved_model)


def refused(code, call, *arguments):
    with pytest.raises(ServingError) as caught:
        call(*arguments)
    assert caught.value.code == code
    return caught.value.message


def test_default_signature_and_named_ones(servable):
    np.testing.assert_array_equal(servable.run("", {"x": ROW})["y"], 2 * ROW)
    np.testing.assert_array_equal(servable.run("serving_default", {"x": ROW})["y"], 2 * ROW)
    found = servable.run("seen", IDS)
    assert {name: value.tolist() for name, value in found.items()} == {
        "rows": [2, 2],
        "columns": [4, 4],
        "sums": [4, 4],
        "weight": [0.5, 2.0],
    }


def test_strings_are_bytes(servable):
    text = np.array([b"a", b"\xff\x00", "é".encode()], object)
    assert servable.run("twice", {"text": text})["text"].tolist() == [b"aa", b"\xff\x00\xff\x00", "éé".encode()]


def test_output_filter_computes_only_what_it_names(servable):
    index = {"index": np.array([0, 7], np.int32)}
    found = servable.run("fragile", index, ["echo"])
    assert list(found) == ["echo"] and found["echo"].tolist() == [0, 7]
    assert "7 is not in [0, 3)" in refused("INVALID_ARGUMENT", servable.run, "fragile", index)


def test_errors_show_no_stack_of_the_exporter(servable):
    message = refused("INVALID_ARGUMENT", servable.run, "fragile", {"index": np.array([7], np.int32)})
    assert "File " not in message and "Graph execution error" not in message and "[Op:" not in message


def test_unknown_signature(servable):
    assert refused("FAILED_PRECONDITION", servable.run, "x", {}) == 'Serving signature key "x" not found.'


def test_input_names(servable):
    message = refused("INVALID_ARGUMENT", servable.run, "seen", {"ids": IDS["ids"]})
    assert message == (
        "input size does not match signature: 1!=2 len({ids}) != len({ids,weight}). Sent extra: {}. "
        "Missing but required: {weight}."
    )
    message = refused("INVALID_ARGUMENT", servable.run, "", {"x": ROW, "z": ROW})
    assert "2!=1 len({x,z}) != len({x}). Sent extra: {z}. Missing but required: {}." in message
    message = refused("INVALID_ARGUMENT", servable.run, "", {"z": ROW})
    assert message == (
        "Signature input alias: x(feed name: serving_default_x:0) not found in request and no default value provided. "
        "Inputs expected to be in the request {z}, or default input alias set: "
    )


def test_output_names(servable):
    message = refused("INVALID_ARGUMENT", servable.run, "fragile", {"index": np.zeros(1, np.int32)}, ["z"])
    assert message == ("output tensor alias not found in signature: z Outputs expected to be in the set {echo,value}.")
    message = refused("INVALID_ARGUMENT", servable.run, "", {"x": ROW}, ["y", "y"])
    assert message == "duplicate output tensor alias: y"


def test_types_and_shapes(servable):
    message = refused("INVALID_ARGUMENT", servable.run, "", {"x": ROW.astype(np.int64)})
    assert message == "Expects arg[0] to be float but int64 is provided"
    for wrong in (ROW[0], ROW[:, :2], ROW[None]):
        assert "[?,3]" in refused("INVALID_ARGUMENT", servable.run, "", {"x": wrong})


def test_defaults_of_a_signature_are_filled_in():
    signature = text_format.Parse(
        """inputs { key: "a" value { name: "a:0" dtype: DT_FLOAT } } inputs { key: "b" value { name: "b:0" } }
        defaults { key: "b" value { dtype: DT_INT32 tensor_shape {} int_val: 7 } }""",
        meta_graph_pb2.SignatureDef(),
    )
    found = checks.inputs(signature, {"a": ROW})
    assert list(found) == ["a", "b"] and found["b"] == 7
    message = refused("INVALID_ARGUMENT", checks.inputs, signature, {"a": ROW, "c": ROW})
    assert message == "Inputs contains invalid name. Used request inputs: a, request input: a,c"
    message = refused("INVALID_ARGUMENT", checks.inputs, signature, {"b": ROW})
    assert message.endswith("expected to be in the request {b}, or default input alias set: b")


def test_requests_of_any_size_add_nothing_to_the_graph(servable):
    servable.run("seen", IDS, ["sums"])
    before = servable._session.graph.get_operations()
    for batch in range(1, 6):
        for length in (1, 5, 9):
            ids = np.ones((batch, length), np.int32)
            found = servable.run("seen", {"ids": ids, "weight": np.ones(batch, np.float32)}, ["sums"])
            assert found["sums"].tolist() == [length] * batch
    assert servable._session.graph.get_operations() == before


@pytest.mark.parametrize("batching", [None, Parameters()])
def test_unloading_frees_session_and_graph(saved_model, batching):
    servable = Servable(saved_model, batching)
    servable.run("", {"x": ROW})
    held = weakref.ref(servable._session), weakref.ref(servable._session.graph)
    servable.close()
    assert [reference() for reference in held] == [None, None]


@needs_counters
@pytest.mark.parametrize("batching", [None, Parameters()])
def test_requests_that_fail_leave_nothing_in_memory(tmp_path, batching):
    class Checked(tf.Module):
        def __init__(self):
            super().__init__()
            self.factor = tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def scale(self, x):
            tf.debugging.assert_less(x, 3.0, "x is too large")
            return {"y": self.factor * x}

    model = Checked()
    tf.saved_model.save(model, str(tmp_path / "1"), {"serving_default": model.scale})
    servable = Servable(str(tmp_path / "1"), batching)

    def fail(times):
        for _ in range(times):
            assert "x is too large" in refused("INVALID_ARGUMENT", servable.run, "", {"x": ROW})

    fail(200)
    with growth() as grown:
        fail(500)
    servable.close()
    assert grown.bytes / 500 < 100 and grown.blocks / 500 < 0.5


def test_tensorflow_1_models(tf1_model):
    servable = Servable(tf1_model)
    examples = np.array([serving_models.example(x).SerializeToString() for x in (1.0, 2.0)], object)
    np.testing.assert_allclose(servable.run("", {"inputs": examples})["scores"], [[-3, 3], [-6, 6]])
    np.testing.assert_allclose(servable.run("regress", {"inputs": examples})["outputs"], [3, 6])


def test_keras_models(tmp_path):
    inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((2,), name="b")}
    joined = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
    model = keras.Model(inputs, {"logits": keras.layers.Dense(3, name="logits")(joined)})
    model.export(str(tmp_path / "1"), verbose=False)
    given = {"a": np.random.rand(5, 4).astype(np.float32), "b": np.random.rand(5, 2).astype(np.float32)}
    found = Servable(str(tmp_path / "1")).run("", given)["logits"]
    np.testing.assert_allclose(found, model(given)["logits"], atol=1e-6)


def test_folders_that_are_no_models(tmp_path):
    assert "Could not find SavedModel" in refused("NOT_FOUND", Servable, str(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"no graph")
    assert "Can't parse" in refused("DATA_LOSS", Servable, str(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert "matching supplied tags: { serve }" in refused("NOT_FOUND", Servable, str(tmp_path))


def test_models_in_text_format(other_model, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(other_model, folder)
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (folder / "saved_model.pbtxt").write_text(text_format.MessageToString(saved))
    (folder / "saved_model.pb").unlink()
    np.testing.assert_array_equal(Servable(str(folder)).run("", {"x": ROW})["y"], 5 * ROW)


def test_missing_variables_are_found_when_loading(saved_model, tmp_path):
    tf.io.gfile.makedirs(tmp_path / "1")
    tf.io.gfile.copy(f"{saved_model}/saved_model.pb", str(tmp_path / "1/saved_model.pb"))
    with pytest.raises(ServingError):
        Servable(str(tmp_path / "1"))


def test_codes_are_those_of_grpc():
    for name, (number, _) in errors.CODES.items():
        error = ServingError(name, "m")
        assert error.grpc_code.value[0] == number
    assert ServingError("RESOURCE_EXHAUSTED", "").http_status == 429
    with pytest.raises(ValueError, match="canonical"):
        ServingError("TEAPOT", "")
