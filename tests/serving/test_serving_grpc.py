"""The embedded server over real sockets, with the stubs that clients of TF-Serving use."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from serving_models import ROW, add_version, break_version, config, example, until
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from serving.server import protos, sessions
from serving.server.embedded import EmbeddedServer
from serving.server.errors import ServingError
from serving.server.handlers import Target
from serving.server.manager import Manager
from serving.server.options import Options

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


class Client:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def predict(self, inputs, name="m", signature="", version=None, label=None, outputs=()):
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name, request.model_spec.signature_name = name, signature
        if version is not None:
            request.model_spec.version.value = version
        if label is not None:
            request.model_spec.version_label = label
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        return self.prediction.Predict(request, timeout=60)

    def status(self, name="m"):
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = name
        found = self.model.GetModelStatus(request, timeout=60).model_version_status
        return {s.version: get_model_status_pb2.ModelVersionStatus.State.Name(s.state) for s in found}


@pytest.fixture
def serve(request):
    """Starts servers on free ports, with a client for each."""

    def serve(**options):
        given = {"port": 0, "model_name": "m", "file_system_poll_wait_seconds": 0.05, "max_num_load_retries": 0}
        server = EmbeddedServer(Options(**{**given, "load_timeout_seconds": 60, "stop_grace_seconds": 10, **options}))
        server.start()
        request.addfinalizer(server.stop)
        client = Client(f"localhost:{server.port}")
        request.addfinalizer(client.channel.close)
        return server, client

    return serve


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


def refused(code, call, *arguments, **keywords):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **keywords)
    assert caught.value.code() == getattr(grpc.StatusCode, code), caught.value
    return caught.value.details()


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


def test_hot_reload_while_clients_call(serve, base_path, other_model):
    _, client = serve(model_base_path=str(base_path))
    seen, failures, done = [], [], threading.Event()

    def call():
        while not done.is_set():
            try:
                response = client.predict({"x": ROW})
                seen.append((response.model_spec.version.value, response.outputs["y"].float_val[0]))
            except grpc.RpcError as error:
                failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(seen) > 20)
    add_version(other_model, base_path, 2)
    until(lambda: client.status() == {1: "END", 2: "AVAILABLE"})
    count = len(seen)
    until(lambda: len(seen) > count + 10)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures and set(seen) == {(1, 2.0), (2, 5.0)}


def test_reload_config(serve, base_path, tmp_path):
    _, client = serve(model_base_path=str(base_path))
    request = model_management_pb2.ReloadConfigRequest(config=config(n=base_path))
    assert client.model.HandleReloadConfigRequest(request).status.error_code == 0
    assert client.predict({"x": ROW}, "n").model_spec.name == "n"
    refused("NOT_FOUND", client.predict, {"x": ROW}, "m")
    request.config.CopyFrom(config(n=tmp_path / "none"))
    request.config.model_config_list.config.add(name="o", base_path="relative", model_platform="tensorflow")
    assert "absolute path" in refused("INVALID_ARGUMENT", client.model.HandleReloadConfigRequest, request)


def test_a_config_file_that_changes(serve, base_path, tmp_path):
    file = tmp_path / "models.config"
    file.write_text(str(config(m=base_path)))
    _, client = serve(model_config_file=str(file), model_config_file_poll_wait_seconds=0.05)
    file.write_text("model_config_list {")
    changed = config(m=base_path, n=base_path)
    changed.model_config_list.config[0].version_labels["stable"] = 1
    (tmp_path / "next").write_text(str(changed))
    os.replace(tmp_path / "next", file)

    def served():
        try:
            return client.predict({"x": ROW}, label="stable").model_spec.version.value == 1
        except grpc.RpcError:
            return False

    until(served)
    until(lambda: client.status("n") == {1: "AVAILABLE"})


def test_a_config_that_is_refused_is_tried_again(serve, base_path, other_model, tmp_path, caplog):
    file = tmp_path / "models.config"

    def write(**labels):
        found = config(m=base_path)
        found.model_config_list.config[0].model_version_policy.all.SetInParent()
        found.model_config_list.config[0].version_labels.update(labels)
        file.write_text(str(found))

    def served(label):
        try:
            return client.predict({"x": ROW}, label=label).model_spec.version.value
        except grpc.RpcError:
            return None

    def told(words):
        return sum(words in record.getMessage() for record in caplog.records)

    write()
    _, client = serve(model_config_file=str(file), model_config_file_poll_wait_seconds=0.05)
    with caplog.at_level("INFO", "serving.server.embedded"):
        write(stable=2)
        until(lambda: told("label to version 2"))
        assert served("stable") is None
        time.sleep(0.3)
        assert told("label to version 2") == 1
        add_version(other_model, base_path, 2)
        until(lambda: served("stable") == 2)
        until(lambda: told("is in force"))


def test_a_config_that_fails_is_taken_back(serve, base_path, tmp_path, monkeypatch):
    """Its models that fail are in force all the same, so the config before it is a change."""
    file, broken = tmp_path / "models.config", tmp_path / "broken"
    broken.mkdir()
    break_version(broken, 1)
    file.write_text(str(config(m=base_path)))
    reload, failed = Manager.reload, []

    def reload_and_write(manager, new, *arguments, **keywords):
        try:
            reload(manager, new, *arguments, **keywords)
        except ServingError as error:
            failed.append(error)
            file.write_text(str(config(m=base_path)))  # before the next look
            raise

    monkeypatch.setattr(Manager, "reload", reload_and_write)
    server, client = serve(model_config_file=str(file), model_config_file_poll_wait_seconds=0.05)
    (tmp_path / "next").write_text(str(config(n=broken)))
    os.replace(tmp_path / "next", file)
    until(lambda: failed)
    until(lambda: server._manager.names() == ["m"])
    until(lambda: client.status() == {1: "AVAILABLE"})
    assert client.predict({"x": ROW}).model_spec.version.value == 1


def test_a_config_that_tensorflow_cannot_look_at(serve, base_path, tmp_path, caplog):
    file = tmp_path / "models.config"
    file.write_text(str(config(m=base_path)))
    _, client = serve(model_config_file=str(file), model_config_file_poll_wait_seconds=0.05)
    file.write_text(str(config(n=file)))  # a base path that is no folder
    until(lambda: any(str(file) in record.getMessage() for record in caplog.records))
    file.write_text(str(config(n=base_path)))

    def served():
        try:
            return client.status("n") == {1: "AVAILABLE"}
        except grpc.RpcError:
            return False

    until(served)


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


def test_unix_socket_and_large_messages(serve, base_path, tmp_path):
    path = tmp_path / "socket"
    _, tcp = serve(
        model_base_path=str(base_path), grpc_socket_path=str(path), enable_serialization_as_tensor_content=True
    )
    client = Client(f"unix:{path}")
    large = np.ones((700_000, 3), np.float32)  # 8.4 MB, above gRPC's default of 4 MB
    assert refused("RESOURCE_EXHAUSTED", client.predict, {"x": large})  # of the client, for the answer
    client.channel.close()
    channel = grpc.insecure_channel(f"unix:{path}", [("grpc.max_receive_message_length", -1)])
    client.prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    found = client.predict({"x": large}).outputs["y"]
    assert len(found.tensor_content) == large.nbytes and not found.float_val
    channel.close()
    assert tcp.predict({"x": ROW}).model_spec.version.value == 1


def test_stop_leaves_sockets_of_others(serve, base_path, tmp_path):
    path, file = tmp_path / "socket", tmp_path / "file"
    server, _ = serve(model_base_path=str(base_path), grpc_socket_path=str(path))
    with pytest.raises(ValueError, match="Name what to serve"):
        EmbeddedServer(Options(port=0, grpc_socket_path=str(path))).start()
    assert path.is_socket()
    server.stop()
    assert not path.exists()
    file.write_text("kept")
    with pytest.raises((RuntimeError, OSError)):
        serve(model_base_path=str(base_path), grpc_socket_path=str(file))
    assert file.read_text() == "kept"


def test_stop_leaves_the_socket_of_its_successor(serve, base_path, tmp_path):
    """A server that finishes its requests has given up its path, and the next may listen there."""
    path = tmp_path / "socket"
    first, _ = serve(model_base_path=str(base_path), grpc_socket_path=str(path))
    stopping = threading.Thread(target=first.stop)
    with first._manager.use(Target("m")):  # a request that keeps the model
        stopping.start()
        until(lambda: not path.exists())
        serve(model_base_path=str(base_path), grpc_socket_path=str(path))
    stopping.join(60)
    assert not stopping.is_alive()
    client = Client(f"unix:{path}")
    assert client.predict({"x": ROW}).model_spec.version.value == 1
    client.channel.close()


def test_a_socket_in_use_is_an_error_and_one_left_behind_is_not(serve, base_path, tmp_path):
    path = tmp_path / "socket"
    serve(model_base_path=str(base_path), grpc_socket_path=str(path))
    with pytest.raises(OSError, match=f"unix:{path}: another server is there"):
        serve(model_base_path=str(base_path), grpc_socket_path=str(path))
    client = Client(f"unix:{path}")
    assert client.predict({"x": ROW}).model_spec.version.value == 1
    client.channel.close()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "left"))
    serve(model_base_path=str(base_path), grpc_socket_path=str(tmp_path / "left"))


def test_a_taken_port_is_an_error(serve, base_path):
    server, _ = serve(model_base_path=str(base_path))
    with pytest.raises(OSError, match="another server"):
        serve(model_base_path=str(base_path), port=server.port)


def test_stop_finishes_what_is_under_way(serve, base_path):
    server, client = serve(model_base_path=str(base_path))
    answers = []
    work = {"steps": np.array([400], np.int32)}
    client.predict({"steps": np.array([1], np.int32)}, signature="work")
    thread = threading.Thread(target=lambda: answers.append(client.predict(work, signature="work")))
    thread.start()
    until(lambda: any(v._users for v in server._manager._versions["m"].values()))
    server.stop()
    thread.join()
    assert answers[0].outputs["done"].dtype == 1
    refused("UNAVAILABLE", client.predict, {"x": ROW})


def test_sigterm_ends_the_process_in_good_order(base_path):
    code = (
        "import sys; from serving.server.embedded import EmbeddedServer; from serving.server.options import Options;"
        "server = EmbeddedServer(Options(port=0, model_name='m', model_base_path=sys.argv[1],"
        "tensorflow_intra_op_parallelism=1, tensorflow_inter_op_parallelism=1)).start();"
        "print(server.port, flush=True); server.wait(); print('stopped', flush=True)"
    )
    folder = str(Path(protos.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code, str(base_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            port = int(process.stdout.readline())
            assert Client(f"localhost:{port}").predict({"x": ROW}).outputs["y"].float_val[0] == 2.0
            process.send_signal(signal.SIGTERM)
            assert process.stdout.read() == "stopped\n"
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_ssl(serve, base_path, tmp_path):
    key, cert = tmp_path / "key", tmp_path / "cert"
    name = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 {name}"
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    ssl = protos.SSLConfig(server_key=key.read_text(), server_cert=cert.read_text())
    (tmp_path / "ssl").write_text(str(ssl))
    server, client = serve(model_base_path=str(base_path), ssl_config_file=str(tmp_path / "ssl"))
    refused("UNAVAILABLE", client.predict, {"x": ROW})
    client.channel.close()
    client.channel = grpc.secure_channel(f"localhost:{server.port}", grpc.ssl_channel_credentials(cert.read_bytes()))
    client.prediction = prediction_service_pb2_grpc.PredictionServiceStub(client.channel)
    assert client.predict({"x": ROW}).model_spec.version.value == 1


def test_config_files_behind_a_uri():
    with tf.io.gfile.GFile("ram://configs/batching", "w") as file:
        file.write("max_batch_size { value: 3 }")
    options = Options(enable_batching=True, batching_parameters_file="ram://configs/batching")
    assert options.batching().max_batch_size == 3
    options.batching_parameters_file = "ram://configs/none"
    with pytest.raises(OSError, match="ram://configs/none"):
        options.batching()


def test_nothing_to_serve():
    with pytest.raises(ValueError, match="Name what to serve"):
        EmbeddedServer(Options(port=0)).start()
