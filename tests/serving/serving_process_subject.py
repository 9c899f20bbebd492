"""`python -m serving.model_server` in a process of its own, to be killed and to be looked at."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

from serving_models import until

import serving
from serving.client import Client

CONFIG = 'model_config_list {{ config {{ name: "m" base_path: "{}" model_platform: "tensorflow" {} }} }}'
ALL = "model_version_policy { all {} }"


class Process:
    """The server of a model "m", started by the same command each time.

    Args:
        folder: for its files.
        base_path: of the model.
        policy: text of a version policy.
        *flags: further ones.
    """

    def __init__(self, folder, base_path, *flags, policy=""):
        with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as two:
            ports = one.getsockname()[1], two.getsockname()[1]
        self.addresses = {"grpc": f"grpc://localhost:{ports[0]}", "rest": f"localhost:{ports[1]}"}
        self.folder = Path(folder)
        (self.folder / "config").write_text(CONFIG.format(base_path, policy))
        self.command = [sys.executable, "-m", "serving.model_server", "--backend=embedded", f"--port={ports[0]}"]
        self.command += [f"--rest_api_port={ports[1]}", f"--model_config_file={self.folder / 'config'}", *flags]

    @contextlib.contextmanager
    def started(self):
        """The process; it is killed at the end if it still runs."""
        environment = {**os.environ, "PYTHONPATH": str(Path(serving.__file__).parents[1]), "TF_CPP_MIN_LOG_LEVEL": "3"}
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    @contextlib.contextmanager
    def running(self, *versions):
        """As `started`, once these versions are available."""
        with self.started() as process:
            for line in process.stdout:
                if line == "Ready.\n":
                    break
            assert process.poll() is None, (self.folder / "log").read_text(errors="replace")
            until(lambda: set(versions) <= set(self.available()), 120)
            yield process

    def available(self):
        """Versions that are served."""
        with Client(self.addresses["rest"], "m") as client:
            return [version for version, (state, _) in client.status().items() if state == "AVAILABLE"]


def resident(pid="self"):
    """Mebibytes of memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
