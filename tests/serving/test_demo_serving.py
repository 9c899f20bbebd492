"""`make serve` without a server: what it says, what it asks, what it refuses."""

import errno
import json
import shlex
import socket
from urllib.parse import parse_qs, urlsplit

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving.demoing import exports, serve
from serving.demoing.ports import in_use
from serving.measuring.server import free_ports

EXPORT = {"texts": ["the cats see him", "the see cats him"], "labels": [1, 0], "models": {"t5": {}, "tisa": {}}}


def demo(folder, export=EXPORT):
    """A folder as the demo leaves it, as far as serving reads it."""
    for name in export["models"]:
        (folder / "served" / name / "1").mkdir(parents=True)
    (folder / "stages").mkdir()
    (folder / "stages" / "export.json").write_text(json.dumps({"found": export}))
    return exports.write_config(folder, export["models"])


def test_the_configuration_names_all_models_with_absolute_paths(tmp_path, monkeypatch):
    folder = tmp_path / 'a "quoted" folder'
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    path = exports.write_config(folder.name, ["t5", "minilm"])
    assert path == folder / "models.config"
    config = text_format.Parse(path.read_text(), model_server_config_pb2.ModelServerConfig())
    found = {each.name: each.base_path for each in config.model_config_list.config}
    assert found == {name: str(folder / "served" / name) for name in ("t5", "minilm")}


def test_without_a_demo_it_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="run make demo first"):
        serve.found(tmp_path / "nothing")
    demo(tmp_path)
    assert list(serve.found(tmp_path)["models"]) == ["t5", "tisa"]
    (tmp_path / "served" / "t5" / "1").rmdir()
    assert list(serve.found(tmp_path)["models"]) == ["tisa"]
    (tmp_path / "served" / "tisa" / "1").rmdir()
    with pytest.raises(ValueError, match="run make demo again"):
        serve.found(tmp_path)


def test_the_studied_model_is_the_one_of_the_examples(tmp_path):
    demo(tmp_path)
    assert serve.chosen(tmp_path, EXPORT) == "t5"
    study = tmp_path / "stages" / "study.json"
    for position, expected in (("tisa", "tisa"), ("shaw", "t5")):
        study.write_text(json.dumps({"found": {"position": position}}))
        assert serve.chosen(tmp_path, EXPORT) == expected


def test_the_curl_line_is_one_command_with_the_request_in_it():
    text = 'it\'s "quoted" & costs $5'
    program, silent, data, body, address = shlex.split(serve.curl("localhost:8501", "tisa", text))
    assert (program, silent, data) == ("curl", "-s", "-d")
    assert address == "http://localhost:8501/v1/models/tisa:predict"
    assert json.loads(body) == {"signature_name": "text", "instances": [{"text": text, "text_pair": ""}]}


def test_the_viewer_s_link_says_what_to_show():
    link = urlsplit(serve.viewer("localhost:8501", "minilm", "a & b", "c"))
    assert (link.netloc, link.path) == ("localhost:8501", "/viewer/")
    assert parse_qs(link.fragment) == {"model": ["minilm"], "text": ["a & b"], "pair": ["c"], "kind": ["effective"]}


def test_a_port_that_is_taken_is_refused_before_anything_is_loaded(tmp_path):
    demo(tmp_path)
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        assert in_use(port)
        with pytest.raises(ValueError, match=f"Port {port} is in use.*PORT="):
            serve.serve(tmp_path, port)
    assert not in_use(free_ports(1)[0])


def test_a_port_that_may_not_be_had_is_not_said_to_be_in_use(monkeypatch):
    def denied(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", denied)
    with pytest.raises(OSError, match="Port 80: Permission denied"):
        in_use(80)
