"""The embedded server over real sockets, with the stubs that clients of TF-Serving use."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from serving_grpc_client import Client, refused
from serving_models import ROW, add_version, config, example, until
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    predict_pb2,
    prediction_log_pb2,
    regression_pb2,
)

from serving.server import sessions
from serving.server.embedded import EmbeddedServer
from serving.server.errors import ServingError
from serving.server.options import Options

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


@pytest.fixture(scope="module")
def client(saved_model, tf1_model, tmp_path_factory):
    """Client of a server that has the test model, under m, and the TensorFlow 1 model, under old."""
    base = tmp_path_factory.mktemp("models")
    for name, source in (("m", saved_model), ("old", tf1_model)):
        (base / name).mkdir()
        add_version(source, base / name, 1)
    (base / "models.config").write_text(str(config(m=base / "m", old=base / "old")))
    with EmbeddedServer(Options(port=0, model_config_file=str(base / "models.config"))) as server:
        yield Client(f"localhost:{server.port}")


def test_predict(client):
    response = client.predict({"x": ROW})
    np.testing.assert_array_equal(tf.make_ndarray(response.outputs["y"]), 2 * ROW)
    assert list(response.outputs["y"].float_val) == [2.0, 4.0, 6.0]
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("m", 1, "serving_default")


def test_predict_with_an_output_filter(client):
    response = client.predict({"index": np.array([5], np.int32)}, signature="fragile", outputs=["echo"])
    assert list(response.outputs) == ["echo"] and response.model_spec.signature_name == "fragile"


def test_errors_of_predict(client):
    assert refused("NOT_FOUND", client.predict, {}, "n") == "Servable not found for request: Latest(n)"
    assert refused("NOT_FOUND", client.predict, {}, version=3) == "Servable not found for request: Specific(m, 3)"
    assert refused("INVALID_ARGUMENT", client.predict, {}, "") == "ModelSpec has no name specified."
    for method, request in (
        (client.prediction.Predict, predict_pb2.PredictRequest()),
        (client.prediction.Classify, classification_pb2.ClassificationRequest()),
        (client.prediction.Regress, regression_pb2.RegressionRequest()),
    ):
        assert refused("INVALID_ARGUMENT", method, request) == "Missing ModelSpec"
    assert refused("INVALID_ARGUMENT", client.predict, {}, label="a") == "Unrecognized servable version label: a"
    message = refused("FAILED_PRECONDITION", client.predict, {}, signature="a")
    assert message == 'Serving signature key "a" not found.'
    assert "input size does not match signature" in refused("INVALID_ARGUMENT", client.predict, {})
    long = refused("INVALID_ARGUMENT", client.predict, {"x" * 5000: ROW, "x": ROW})
    assert len(long) == 1024 + len("...TRUNCATED") and long.endswith("...TRUNCATED")


def test_metadata(client):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    assert refused("INVALID_ARGUMENT", client.prediction.GetModelMetadata, request) == "Missing ModelSpec"
    request.model_spec.name = "m"
    message = refused("INVALID_ARGUMENT", client.prediction.GetModelMetadata, request)
    assert message == "GetModelMetadataRequest must specify at least one metadata_field"
    request.metadata_field.append("signature_def")
    response = client.prediction.GetModelMetadata(request)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found) and response.model_spec.version.value == 1
    assert set(found.signature_def["fragile"].outputs) == {"echo", "value"}
    request.metadata_field[0] = "weights"
    message = refused("INVALID_ARGUMENT", client.prediction.GetModelMetadata, request)
    assert message == "Metadata field weights is not supported"


@pytest.mark.parametrize(("name", "signature", "factor"), [("m", "classify", 2.0), ("old", "", 3.0)])
def test_classify(client, name, signature, factor):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    assert refused("INVALID_ARGUMENT", client.prediction.Classify, request) == "Input is empty."
    request.input.example_list.examples.extend([example(1.0), example(4.0)])
    response = client.prediction.Classify(request)
    rows = [[c.score for c in row.classes] for row in response.result.classifications]
    assert rows == [[-factor, factor], [-4 * factor, 4 * factor]]
    if name == "m":
        assert [c.label for c in response.result.classifications[0].classes] == ["no", "yes"]
    request.model_spec.signature_name = "seen"
    message = refused("INVALID_ARGUMENT", client.prediction.Classify, request)
    assert message in ("Expected one input Tensor.", "No signature was found with the name: seen")


def test_regress_with_a_context(client):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", "regress"
    given = request.input.example_list_with_context
    given.examples.extend([example(1.0), example(2.0)])
    given.context.CopyFrom(tf.train.Example(features=example(0.0, bias=10.0).features))
    del given.context.features.feature["x"]
    response = client.prediction.Regress(request)
    assert [r.value for r in response.result.regressions] == [12.0, 14.0]


def test_multi_inference(client):
    def request(*tasks, name="old"):
        found = inference_pb2.MultiInferenceRequest()
        found.input.example_list.examples.append(example(2.0))
        for method, signature in tasks:
            task = found.tasks.add(method_name=method)
            task.model_spec.name, task.model_spec.signature_name = name, signature
        return found

    call = client.prediction.MultiInference
    both = call(request((CLASSIFY, ""), (REGRESS, "regress"))).results
    assert [c.score for c in both[0].classification_result.classifications[0].classes] == [-6.0, 6.0]
    assert both[1].regression_result.regressions[0].value == 6.0
    assert [r.model_spec.signature_name for r in both] == ["serving_default", "regress"]
    message = refused("INVALID_ARGUMENT", call, request((REGRESS, "regress"), (REGRESS, "regress")))
    assert message == "Duplicate evaluation of signature: regress"
    message = refused("INVALID_ARGUMENT", call, request((CLASSIFY, "classify"), (REGRESS, "regress"), name="m"))
    assert message == "Input tensor must be the same for all Signatures."
    assert "Unsupported signature method_name" in refused("UNIMPLEMENTED", call, request(("a", "")))
    refused("INVALID_ARGUMENT", call, request())


def test_warm_up_happens_before_a_version_is_available(serve, base_path):
    def log(signature, **inputs):
        found = prediction_log_pb2.PredictionLog()
        found.predict_log.request.model_spec.signature_name = signature
        for name, value in inputs.items():
            found.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        return found.SerializeToString()

    classify = prediction_log_pb2.PredictionLog()
    classify.classify_log.request.model_spec.signature_name = "classify"
    classify.classify_log.request.input.example_list.examples.append(example(1.0))
    (base_path / "1" / "assets.extra").mkdir()
    file = str(base_path / "1" / "assets.extra" / "tf_serving_warmup_requests")
    with tf.io.TFRecordWriter(file) as writer:
        writer.write(log("", x=ROW))
        writer.write(classify.SerializeToString())
    server, _ = serve(model_base_path=str(base_path), num_request_iterations_for_warmup=2)
    assert f':model_warmup_latency_count{{model_path="{base_path}/1",status="OK"}} 1' in server.metrics.text()
    with tf.io.TFRecordWriter(file) as writer:
        writer.write(log("fragile", index=np.array([9], np.int32)))
    with pytest.raises(ServingError, match=r"did not become available.*9 is not in \[0, 3\)"):
        serve(model_base_path=str(base_path))
    serve(model_base_path=str(base_path), enable_model_warmup=False)


def test_batching_over_grpc(serve, base_path, tmp_path):
    (tmp_path / "batching").write_text(
        "max_batch_size { value: 4 } batch_timeout_micros { value: 600000000 } num_batch_threads { value: 1 }"
    )
    _, client = serve(
        model_base_path=str(base_path), enable_batching=True, batching_parameters_file=str(tmp_path / "batching")
    )
    rows = []

    def call():
        given = {"ids": np.ones((1, 2), np.int32), "weight": np.ones(1, np.float32)}
        rows.append(client.predict(given, signature="seen").outputs["rows"].int_val[0])

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows == [4, 4, 4, 4]


def test_calls_past_their_deadline_leave_the_queue_of_batches(serve, base_path, tmp_path, monkeypatch):
    make, ran, finish = sessions.function, [], threading.Event()

    def function(*arguments):
        run = make(*arguments)

        def counted(arrays):
            ran.append(int(arrays[0].flat[0]))
            assert finish.wait(30)
            return run(arrays)

        return counted

    monkeypatch.setattr(sessions, "function", function)
    (tmp_path / "batching").write_text("max_batch_size { value: 1 } num_batch_threads { value: 1 }")
    _, client = serve(
        model_base_path=str(base_path), enable_batching=True, batching_parameters_file=str(tmp_path / "batching")
    )
    first = threading.Thread(target=client.predict, args=({"x": ROW},))
    first.start()
    until(lambda: ran == [1])
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(2 * ROW))
    refused("DEADLINE_EXCEEDED", client.prediction.Predict, request, timeout=0.3)
    time.sleep(0.3)  # the server's own clock tells it
    finish.set()
    first.join()
    client.predict({"x": 3 * ROW})
    assert ran == [1, 3]


def test_metrics(serve, base_path):
    server, client = serve(model_base_path=str(base_path))
    for _ in range(3):
        client.predict({"x": ROW})
    refused("INVALID_ARGUMENT", client.predict, {})
    lines = server.metrics.text().splitlines()
    assert "# TYPE :tensorflow:serving:request_count counter" in lines
    assert ':tensorflow:serving:request_count{model_name="m",status="OK"} 3' in lines
    assert ':tensorflow:serving:request_count{model_name="m",status="INVALID_ARGUMENT"} 1' in lines
    assert "# TYPE :tensorflow:serving:request_latency histogram" in lines
    labels = 'model_name="m",API="Predict",entrypoint="GRPC"'
    assert f":tensorflow:serving:request_latency_count{{{labels}}} 3" in lines
    assert f':tensorflow:serving:request_latency_bucket{{{labels},le="+Inf"}} 3' in lines
    assert any(line.startswith(f':tensorflow:serving:request_latency_bucket{{{labels},le="58.32"}}') for line in lines)
    runtime = ':tensorflow:serving:runtime_latency_count{model_name="m",API="Predict",runtime="TF1"} 3'
    assert runtime in lines and ":tensorflow:core:graph_runs{} 3" in lines
