"""Which server is taken, and with which command line. Programs on the PATH are small scripts that say what they got."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from serving import model_server as binary
from serving.backends import choice, docker, native

ROOT = Path(__file__).resolve().parents[2]


def program(folder, name, script):
    """Puts a shell script on a PATH of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    """An empty folder that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return folder


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    return folder


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def model_server(*arguments, path, cwd, **options):
    """Starts `python -m serving.model_server` with `path` before the system's PATH."""
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}/usr/bin{os.pathsep}/bin", "PYTHONPATH": str(ROOT)}
    environment.pop("DOCKER_HOST", None)
    # Tests that run in the background ignore SIGINT, and so would their children. (`preexec_fn` would fork the process,
    # which gRPC's threads do not bear.)
    first = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    line = [sys.executable, "-c", first, sys.executable, "-m", "serving.model_server", *map(str, arguments)]
    return subprocess.Popen(line, env=environment, cwd=cwd, stdout=subprocess.PIPE, text=True, **options)


def test_native_command_spells_flags_as_the_program_reads_them():
    given = {"port": 9000, "enable_batching": True, "enable_model_warmup": False, "model_base_path": "/m"}
    assert native.command("/bin/tensorflow_model_server", given) == [
        "/bin/tensorflow_model_server",
        "--port=9000",
        "--enable_batching=true",
        "--enable_model_warmup=false",
        "--model_base_path=/m",
    ]


@pytest.mark.parametrize("path, expected", [("m", "{cwd}/m"), ("/a/m", "/a/m"), ("gs://b/m", "gs://b/m")])
def test_base_paths_are_absolute(path, expected):
    line = native.command("server", {"model_base_path": path})
    assert line == ["server", "--model_base_path=" + expected.format(cwd=os.getcwd())]


def test_docker_command():
    given = {"port": 8500, "rest_api_port": 8501, "model_name": "m", "model_base_path": "/models/m"}
    assert docker.command("docker", given, image="image:1", extra=["--gpus=all"]) == [
        *("docker", "run", "--rm", "--init"),
        *("--publish", "8500:8500", "--publish", "8501:8501"),
        *("--mount", "type=bind,source=/models/m,target=/models/m,readonly"),
        *("--gpus=all", "--entrypoint", "/usr/bin/tensorflow_model_server", "image:1"),
        *("--port=8500", "--rest_api_port=8501", "--model_name=m", "--model_base_path=/models/m"),
    ]


def values_after(line, flag):
    return [line[i + 1] for i, argument in enumerate(line) if argument == flag]


def test_docker_mounts_what_the_flags_name():
    given = {
        "port": 0,
        "grpc_socket_path": "/run/serving/s",
        "model_config_file": "/etc/serving/models.config",
        "batching_parameters_file": "/etc/serving/batching.config",  # inside a folder that is mounted already
        "monitoring_config_file": "/etc/monitoring.config",
    }
    line = docker.command("docker", given, base_paths=["/models/a", "/models/a", "gs://bucket/b", "/models/ab"])
    assert values_after(line, "--mount") == [
        "type=bind,source=/etc/serving,target=/etc/serving,readonly",
        "type=bind,source=/models/a,target=/models/a,readonly",
        "type=bind,source=/models/ab,target=/models/ab,readonly",
        "type=bind,source=/etc/monitoring.config,target=/etc/monitoring.config,readonly",
        "type=bind,source=/run/serving,target=/run/serving",  # the socket is made there
    ]
    assert "--publish" not in line


def test_docker_leaves_uris_as_they_are():
    given = {"model_config_file": "gs://bucket/models.config", "monitoring_config_file": "gs://bucket/monitoring"}
    line = docker.command("docker", given)
    assert "--mount" not in line
    assert {f"--{name}={uri}" for name, uri in given.items()} < set(line)


def test_docker_publishes_the_default_port():
    line = docker.command("docker", {"model_base_path": "/m"})
    assert values_after(line, "--publish") == ["8500:8500"]
    assert "--port=8500" in line


def test_docker_mounts_paths_with_commas_and_quotes():
    """`--mount` is read as a line of CSV."""
    line = docker.command("docker", {"model_base_path": '/m,"1":2'})
    assert values_after(line, "--mount") == ['type=bind,"source=/m,""1"":2","target=/m,""1"":2",readonly']


def test_auto_prefers_the_program_to_docker(bin_folder):
    path = program(bin_folder, "tensorflow_model_server", "true")
    program(bin_folder, "docker", "echo 28.0")
    assert choice.choose("auto", {})[::2] == ("native", str(path))
    assert choice.choose("docker", {}).backend == "docker"
    assert choice.choose("embedded", {}).backend == "embedded"


@pytest.mark.parametrize(
    "script, reason",
    [
        ("echo 'Cannot connect to the Docker daemon.' >&2; exit 1", "no Docker engine answers .*Cannot connect"),
        ('case "$1" in version) echo 28.0;; *) echo "no such host" >&2; exit 1;; esac', "cannot get .*no such host"),
    ],
)
def test_auto_without_a_program_or_an_engine_is_embedded(bin_folder, script, reason):
    program(bin_folder, "docker", script)
    chosen = choice.choose("auto", {})
    assert chosen.backend == "embedded"
    assert chosen.reasons[0] == "tensorflow_model_server is not on the PATH"
    with pytest.raises(ValueError, match=reason):
        choice.choose("docker", {})
    with pytest.raises(ValueError, match="not on the PATH"):
        choice.choose("native", {})


def test_docker_is_taken_when_the_image_is_there_or_can_be_pulled(bin_folder):
    path = program(bin_folder, "docker", 'echo "$1" >> "$0.log"; [ "$1" = image ] && exit 1; echo 28.0')
    assert choice.choose("auto", {}) == choice.Choice(
        "docker",
        ["tensorflow_model_server is not on the PATH", f"Docker engine 28.0 pulled {docker.IMAGE}"],
        str(path),
    )
    assert Path(f"{path}.log").read_text().split() == ["version", "image", "pull"]


def test_an_engine_elsewhere_does_not_see_the_models(bin_folder, monkeypatch):
    program(bin_folder, "docker", "echo 28.0")
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2376")
    assert "elsewhere" in choice.choose("auto", {}).reasons[1]


def test_flags_that_matter_are_refused_where_only_the_embedded_server_is_left(bin_folder):
    given = {"platform_config_file": "/p"}
    with pytest.raises(ValueError, match="not on the PATH.*--platform_config_file"):
        choice.choose("auto", given)
    program(bin_folder, "tensorflow_model_server", "true")
    assert choice.choose("auto", given).backend == "native"


def test_the_program_gets_exactly_the_flags_and_its_exit_code_is_ours(tmp_path, base):
    script = 'for argument in "$@"; do echo "argument $argument"; done; exit 7'
    program(tmp_path / "bin", "tensorflow_model_server", script)
    port = free_port()
    arguments = [f"--port={port}", "--model_name=a name", "--model_base_path", "model", "--enable_batching"]
    process = model_server(*arguments, "--noenable_model_warmup", path=tmp_path / "bin", cwd=tmp_path)
    lines = process.communicate(timeout=300)[0].splitlines()
    assert lines[0].startswith("Server: native (tensorflow_model_server is at ")
    assert f"gRPC:   localhost:{port}" in lines
    assert [line.removeprefix("argument ") for line in lines if line.startswith("argument ")] == [
        f"--port={port}",
        "--model_name=a name",
        f"--model_base_path={base}",
        "--enable_batching=true",
        "--enable_model_warmup=false",
    ]
    assert process.returncode == 7


@pytest.mark.parametrize("name", ["tensorflow_model_server", "docker"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_program(tmp_path, base, name, number):
    wait = "trap 'echo stopped; exit 3' TERM INT; echo waiting; while :; do sleep 0.05; done"
    script = wait if name != "docker" else f'case "$1" in run) {wait};; *) echo 28.0;; esac'
    program(tmp_path / "bin", name, script)
    process = model_server(f"--port={free_port()}", f"--model_base_path={base}", path=tmp_path / "bin", cwd=tmp_path)
    with process:
        assert "waiting\n" in iter(process.stdout.readline, "")
        process.send_signal(number)
        try:
            assert process.communicate(timeout=60)[0] == "stopped\n"
        finally:
            process.kill()
    assert process.returncode == 3


def test_mistakes_are_one_line_and_found_before_any_server_starts(tmp_path):
    program(tmp_path / "bin", "tensorflow_model_server", "echo started")
    arguments = [f"--port={free_port()}", "--model_base_path=none"]
    process = model_server(*arguments, path=tmp_path / "bin", cwd=tmp_path, stderr=subprocess.PIPE)
    out, error = process.communicate(timeout=300)
    assert (out, error) == ("", "error: The base path of model default is no folder: 'none'.\n")
    assert process.returncode == 1


def test_the_viewer_of_servers_that_do_not_serve_it_is_a_file():
    parts = urlsplit(binary.file_viewer(8501, {"a&b": "/m", "c": "/n"}))
    assert Path(unquote(parts.path)).is_file()
    assert parse_qs(parts.fragment) == {"server": ["http://localhost:8501"], "model": ["a&b"]}
