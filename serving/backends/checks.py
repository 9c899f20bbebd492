"""Mistakes in flags, found before anything is loaded: each error names the flag, what it was given, and what to do."""

import errno
import os
import socket
import stat
from typing import NamedTuple

from tensorflow_serving.config import model_server_config_pb2

from serving.backends.flags import BY_NAME
from serving.server import protos

LARGEST_PORT = 65535
LONGEST_SOCKET_PATH = 107  # bytes, of the kernel's sockaddr_un
# Flags of numbers that may be below zero, with a meaning.
SIGNED = ("load_retry_interval_micros", "file_system_poll_wait_seconds", "model_config_file_poll_wait_seconds")


class Checked(NamedTuple):
    """
    Args:
        models: dict of base paths by model name.
        metrics_path: where metrics are under the REST port, `None` if nowhere.
        warnings: sentences.
    """

    models: dict
    metrics_path: str | None
    warnings: list


def check(values):
    """Looks at the values of TF-Serving's flags.

    Args:
        values: parsed `absl.flags.FlagValues`.

    Returns:
        `Checked`.

    Raises:
        ValueError: on the first mistake; for a text file with its line.
    """
    for flag in BY_NAME.values():
        value = values[flag.name].value
        if isinstance(value, int | float) and value < 0 and flag.name not in SIGNED:
            raise ValueError(f"--{flag.name}={value} is negative.")
    _addresses(values)
    _threads(values)
    _channel_arguments(values.grpc_channel_arguments)
    models = _models(values)
    warnings = [warning for name, path in models.items() if (warning := _base_path(name, path))]
    if values.batching_parameters_file and not values.enable_batching:
        raise ValueError("--batching_parameters_file needs --enable_batching.")
    _read(values, "batching_parameters_file", protos.BatchingParameters())
    _read(values, "ssl_config_file", protos.SSLConfig())
    monitoring = _read(values, "monitoring_config_file", protos.MonitoringConfig()).prometheus_config
    if monitoring.enable and not values.rest_api_port:
        warnings.append("Metrics are served on the port of REST, which is off: set --rest_api_port.")
    path = monitoring.path or "/monitoring/prometheus/metrics"
    return Checked(models, path if monitoring.enable and values.rest_api_port else None, warnings)


def _addresses(values):
    if not values.port and not values.grpc_socket_path:
        raise ValueError(
            "--port=0 leaves gRPC without an address: give a port or --grpc_socket_path, as TF-Serving asks."
        )
    if values.port and values.port == values.rest_api_port:
        raise ValueError(f"--port and --rest_api_port are both {values.port}: they have to differ.")
    for name in ("port", "rest_api_port"):
        number = values[name].value
        if number > LARGEST_PORT:
            raise ValueError(f"--{name}={number} is no port: those go up to {LARGEST_PORT}.")
        if number:
            _free_port(name, number)
    if values.grpc_socket_path:
        _free_socket(values.grpc_socket_path)


def _free_port(name, number):
    try:
        socket.create_server(("", number)).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"--{name}={number}: another program listens on port {number}.") from error
        raise ValueError(f"--{name}={number}: cannot listen on port {number}: {error.strerror}.") from error


def _free_socket(path):
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise ValueError(
            f"--grpc_socket_path={path} is longer than the {LONGEST_SOCKET_PATH} bytes of a socket's path."
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"--grpc_socket_path={path}: there is no folder {folder}.")
    if not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise ValueError(f"--grpc_socket_path={path} is there and is no socket.")
    with socket.socket(socket.AF_UNIX) as client:
        if client.connect_ex(path) == 0:
            raise ValueError(f"--grpc_socket_path={path}: another program listens there.")


def _threads(values):
    names = ("tensorflow_session_parallelism", "tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism")
    if all(values[name].value for name in names):
        raise ValueError(f"--{names[0]} sets what --{names[1]} and --{names[2]} set: give it, or those two.")


def _channel_arguments(text):
    for pair in filter(None, text.split(",")):
        if not all(pair.partition("=")):
            raise ValueError(f"--grpc_channel_arguments has {pair!r}; each is name=value, with commas between them.")


def _models(values):
    """Dict of base paths by model name."""
    if not values.model_config_file:
        if not values.model_base_path:
            raise ValueError("Nothing to serve: give --model_base_path (and --model_name), or --model_config_file.")
        if not values.model_name or set("/:") & set(values.model_name):
            raise ValueError(f"--model_name={values.model_name!r}: a name is not empty and has no '/' and no ':'.")
        return {values.model_name: values.model_base_path}
    config = _read(values, "model_config_file", model_server_config_pb2.ModelServerConfig())
    kind = config.WhichOneof("config")
    if kind != "model_config_list":
        found = f"a {kind}" if kind else "nothing"
        raise ValueError(f"--model_config_file={values.model_config_file} has {found}; it needs a model_config_list.")
    return {model.name: model.base_path for model in config.model_config_list.config}


def _base_path(name, path):
    """A warning, or `None`. Stores behind a URI are left to the server."""
    if "://" in path:
        return None
    if not os.path.isdir(path):
        raise ValueError(f"The base path of model {name} is no folder: {path!r}.")
    if os.path.exists(os.path.join(path, "saved_model.pb")):
        raise ValueError(
            f"The base path of model {name}, {path!r}, is itself a SavedModel. Give the folder above it, and name this "
            "one with a number: its version."
        )
    if not any(child.isdigit() for child in os.listdir(path)):
        return (
            f"There is no version of model {name} in {path} yet (a folder with a number for its name): waiting for one."
        )
    return None


def _read(values, name, message):
    path = values[name].value
    if not path:
        return message
    try:
        return protos.read_text(path, message)
    except OSError as error:
        raise ValueError(f"--{name}={path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # names file, line and column
        raise ValueError(f"--{name}: {error}") from error
