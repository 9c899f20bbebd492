"""The model server, in a process of its own."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from serving.client import Client, ClientError, Retry

ROOT = Path(__file__).resolve().parents[2]
HOST = "localhost"
PATIENCE = 900.0  # seconds for loading, on a machine that does much else
LINES = 15  # of the log that an error shows


class ModelServer:
    """The embedded server, up while the context is; it ends with this process, however that ends.

    Args:
        config: path of a `ModelServerConfig` as text.
        names: of its models.
        log: file that the server's messages are added to.
        flags: further flags of `serving.model_server`.
        ports: of gRPC and REST; free ones by default.

    `addresses` has those of both protocols, as `serving.client` takes them.
    """

    def __init__(self, config, names, log, flags=(), ports=None):
        self.config, self.names, self.log, self.flags = config, list(names), Path(log), list(flags)
        self.ports = free_ports(2) if ports is None else ports
        self.addresses = {"grpc": f"grpc://{HOST}:{self.ports[0]}", "rest": f"{HOST}:{self.ports[1]}"}
        self._process = None

    def __enter__(self):
        command = [sys.executable, "-m", "serving.measuring.process", "--backend=embedded"]
        command += [f"--port={self.ports[0]}", f"--rest_api_port={self.ports[1]}", f"--model_config_file={self.config}"]
        command += ["--max_num_load_retries=0", *self.flags]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
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
        self._process.stdin.close()

    def wait(self):
        """Until the server ends. Returns its exit code."""
        return self._process.wait()

    def _wait(self):
        """Until all models answer."""
        waiting, end = list(self.names), time.monotonic() + PATIENCE
        while waiting:
            if self._process.poll() is not None or time.monotonic() > end:
                lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES:]
                what = "ended" if self._process.poll() is not None else f"did not load {waiting[0]} in {PATIENCE:.0f} s"
                raise RuntimeError(f"The model server {what}. The end of {self.log}:\n" + "\n".join(lines))
            if available(self.addresses["rest"], waiting[0]):
                waiting.pop(0)
            else:
                time.sleep(0.2)


class MeasuredServer(ModelServer):
    """One that is measured: with room for many requests at a time, and without polling.

    Args:
        base_paths: dict from names of models to their folders.
        folder: for its configuration and its log.
        batching: text of `BatchingParameters`, or `None`.
        pools: threads of TensorFlow within an operation and between operations, 0 for one a core.
        in_flight: requests at one time that it must be able to take up.
    """

    def __init__(self, base_paths, folder, batching=None, pools=(0, 0), in_flight=64):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        entry = '  config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}\n'
        entries = "".join(entry.format(name, Path(path).resolve()) for name, path in base_paths.items())
        (folder / "models.config").write_text(f"model_config_list {{\n{entries}}}\n")
        flags = [f"--grpc_max_threads={in_flight}", f"--rest_api_num_threads={in_flight}"]
        flags += ["--file_system_poll_wait_seconds=0"]
        for name, threads in zip(("intra", "inter"), pools):
            flags += [f"--tensorflow_{name}_op_parallelism={threads}"] if threads else []
        if batching is not None:
            (folder / "batching.config").write_text(batching)
            flags += ["--enable_batching", f"--batching_parameters_file={folder / 'batching.config'}"]
        super().__init__(folder / "models.config", base_paths, folder / "server.log", flags)


def available(address, name, timeout=10.0, absent=("NOT_FOUND", "UNAVAILABLE")):
    """Whether a server has a version of a model to answer with. `absent`: codes of errors that say that it has none."""
    with Client(address, name, retry=Retry(1), timeout=timeout) as client:
        try:
            return any(state == "AVAILABLE" for state, _ in client.status().values())
        except ClientError as error:
            if error.code in absent:
                return False
            raise


def free_ports(count):
    """Ports that nobody listens on."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
