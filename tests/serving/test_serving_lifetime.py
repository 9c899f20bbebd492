"""Where the embedded server listens, and how it stops."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import numpy as np
import pytest
from serving_grpc_client import Client, refused
from serving_models import ROW, until
from tensorflow_serving.apis import prediction_service_pb2_grpc

from serving.server import protos
from serving.server.embedded import EmbeddedServer
from serving.server.handlers import Target
from serving.server.options import Options


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


def test_paths_instead_of_keys_are_named_before_models_are_loaded(tmp_path):
    ssl = protos.SSLConfig(server_key="/etc/key.pem", server_cert="/etc/cert.pem")
    (tmp_path / "ssl").write_text(str(ssl))
    server = EmbeddedServer(Options(port=0, model_base_path="/nowhere", ssl_config_file=str(tmp_path / "ssl")))
    with pytest.raises(ValueError, match="ssl: server_key and server_cert must be the text of PEM files"):
        server.start()


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
