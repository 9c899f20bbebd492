"""The model server, in a process of its own."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from serving.client import Client, ClientError, Retry

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0  # seconds for loading
LINES = 15  # of the log that an error shows


class Server:
    """`python -m serving.model_server --backend=embedded`, up while the context is.

    Args:
        base_paths: dict from names of models to their folders.
        folder: for its configuration and its log.
        batching: text of `BatchingParameters`, or `None`.
        threads: of TensorFlow, 0 for one a core.
        in_flight: requests at one time that it must be able to take up.

    `addresses` has those of both protocols, as clients take them.
    """

    def __init__(self, base_paths, folder, batching=None, threads=0, in_flight=64):
        self.base_paths, self.folder, self.batching = base_paths, Path(folder), batching
        self.threads, self.in_flight = threads, in_flight
        self.addresses, self._process = {}, None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = _free_ports(2)
        entry = '  config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}\n'
        entries = "".join(entry.format(name, Path(path).resolve()) for name, path in self.base_paths.items())
        (self.folder / "models.config").write_text(f"model_config_list {{\n{entries}}}\n")
        command = [sys.executable, "-m", "serving.model_server", "--backend=embedded"]
        command += [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", f"--grpc_max_threads={self.in_flight}"]
        command += [f"--rest_api_num_threads={self.in_flight}", f"--model_config_file={self.folder / 'models.config'}"]
        command += ["--file_system_poll_wait_seconds=0", "--max_num_load_retries=0"]
        if self.threads:
            command += [f"--tensorflow_intra_op_parallelism={self.threads}"]
        if self.batching is not None:
            (self.folder / "batching.config").write_text(self.batching)
            command += ["--enable_batching", f"--batching_parameters_file={self.folder / 'batching.config'}"]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        self.addresses = {"grpc": f"grpc://localhost:{ports[0]}", "rest": f"localhost:{ports[1]}"}
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self):
        end = time.monotonic() + PATIENCE
        waiting = list(self.base_paths)
        while waiting:
            if self._process.poll() is not None or time.monotonic() > end:
                lines = (self.folder / "server.log").read_text(errors="replace").splitlines()[-LINES:]
                raise RuntimeError("The model server did not start. The end of its log:\n" + "\n".join(lines))
            if available(self.addresses["rest"], waiting[0]):
                waiting.pop(0)
            else:
                time.sleep(0.2)


def available(address, name, timeout=10.0):
    """Whether a server has a version of a model to answer with."""
    with Client(address, name, retry=Retry(1), timeout=timeout) as client:
        try:
            return any(state == "AVAILABLE" for state, _ in client.status().values())
        except ClientError as error:
            if error.code in ("NOT_FOUND", "UNAVAILABLE"):
                return False
            raise


def _free_ports(count):
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
