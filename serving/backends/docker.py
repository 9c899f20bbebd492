"""The real TensorFlow Serving in its Docker image.

Files and folders are mounted under the paths they have outside, so that flags and the paths inside a model config hold
in the container as they are.
"""

import csv
import io
import os
import shutil
import subprocess

from serving.backends import native
from serving.backends.flags import spelled

IMAGE = "tensorflow/serving:2.19.1"
SERVER = "/usr/bin/tensorflow_model_server"
ENGINE_SECONDS = 10  # an engine on another machine that is switched off would be waited for much longer
# Files that are read once. The folder of --model_config_file is mounted instead: a file replaced by renaming another
# onto it, as editors and Kubernetes do, would not be seen through a mount of the file.
FILES = (
    "batching_parameters_file",
    "monitoring_config_file",
    "ssl_config_file",
    "platform_config_file",
    "tensorflow_session_config_file",
    "thread_pool_factory_config_file",
)


def find(image=IMAGE, pull=True):
    """Whether an engine answers that has the image, or can get it if `pull`.

    Returns:
        Path of the client and what was found, or `None` and why not.
    """
    program = shutil.which("docker")
    if program is None:
        return None, "docker is not on the PATH"
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix:"):
        return None, f"the Docker engine at {host} does not see the files of this machine"
    try:
        engine = _run(program, "version", "--format", "{{.Server.Version}}", timeout=ENGINE_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"no Docker engine answered within {ENGINE_SECONDS} s"
    if engine.returncode:
        return None, f"no Docker engine answers ({_last_line(engine.stderr)})"
    version = engine.stdout.strip()
    if _run(program, "image", "inspect", image).returncode == 0:
        return program, f"Docker engine {version} has {image}"
    if not pull:
        return None, f"Docker engine {version} has no {image}"
    print(f"Docker engine {version} has no {image}; pulling it.", flush=True)
    pulled = _run(program, "pull", "--quiet", image)
    if pulled.returncode:
        return None, f"Docker cannot get {image} ({_last_line(pulled.stderr)})"
    return program, f"Docker engine {version} pulled {image}"


def command(program, given, base_paths=(), image=IMAGE, extra=()):
    """Command line of `docker run`.

    Args:
        program: path of the Docker client.
        given: dict of TF-Serving's flags on the command line.
        base_paths: folders of the models that a `--model_config_file` names.
        image: Docker image.
        extra: more arguments of `docker run`.
    """
    given = {"port": 8500, **native.absolute(given)}
    for name in ("grpc_socket_path", "model_config_file", *FILES):
        if _is_local(given.get(name)):
            given[name] = os.path.abspath(given[name])
    # Without --init the server would be process 1 of the container, which the kernel spares every signal it does not
    # handle: it could only be killed.
    line = [program, "run", "--rm", "--init"]
    for port in filter(None, (given["port"], given.get("rest_api_port"))):
        line += ["--publish", f"{port}:{port}"]
    for path in _outermost(_read_only(given, base_paths)):
        line += ["--mount", _mount(path, "readonly")]
    if given.get("grpc_socket_path"):
        line += ["--mount", _mount(os.path.dirname(given["grpc_socket_path"]))]
    # The image's own entry point sets a model name, a path and ports of its own.
    line += [*extra, "--entrypoint", SERVER, image]
    return line + [spelled(name, value) for name, value in given.items()]


def _read_only(given, base_paths):
    config = given.get("model_config_file")
    if _is_local(config):
        yield os.path.dirname(config)
    paths = base_paths if config else [given.get("model_base_path", "")]
    yield from (os.path.abspath(path) for path in paths if _is_local(path))
    yield from (given[name] for name in FILES if _is_local(given.get(name)))


def _is_local(path):
    """Whether a path is that of a file of this machine, and not a URI, or nothing."""
    return bool(path) and "://" not in path


def _outermost(paths):
    """Paths in order, without repetitions and without those inside another."""
    paths = list(dict.fromkeys(paths))
    return [path for path in paths if not any(path.startswith(os.path.join(other, "")) for other in paths)]


def _mount(path, *options):
    """Value of `--mount`, which is a line of CSV: a path may have commas and quotes in it, and colons as well."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(["type=bind", f"source={path}", f"target={path}", *options])
    return text.getvalue()


def _run(*line, timeout=None):
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, check=False)


def _last_line(text):
    return (text.strip().splitlines() or ["it does not say why"])[-1].rstrip(".")
