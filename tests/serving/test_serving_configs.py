"""Versions and configurations of the embedded server that change while it serves."""

import os
import threading
import time

import grpc
import pytest
import tensorflow as tf
from serving_grpc_client import refused
from serving_models import ROW, add_version, break_version, config, until
from tensorflow_serving.apis import model_management_pb2

from serving.server.embedded import EmbeddedServer
from serving.server.errors import ServingError
from serving.server.manager import Manager
from serving.server.options import Options


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
