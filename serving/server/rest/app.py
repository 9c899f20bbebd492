"""Starts and stops the REST server: uvicorn (uvloop, httptools) in a thread of its own."""

import errno
import os
import socket
import threading
from dataclasses import dataclass

import uvicorn
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from serving.server.errors import ServingError
from serving.server.handlers import Target
from serving.server.metrics import DEFAULT_PATH
from serving.server.rest.asgi import PATIENCE, App
from serving.server.rest.connection import Connection
from serving.server.rest.static import Viewer

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
STATES = ModelVersionStatus.State


@dataclass(frozen=True)
class Settings:
    """What the application asks of the options.

    Args:
        timeout: seconds for a prediction, None for as long as it takes.
        threads: worker threads.
        cors: whether pages of other origins may call the API.
        metrics_path: where the page for Prometheus is, None for nowhere.
        max_body_bytes: size of a request, also after decompression.
        max_upload_bytes: size of all requests that are in memory at one time, after decompression.
        max_download_bytes: size of the arrays of all large answers that are being sent at one time.
        max_in_work: predictions at one time, waiting or running.
    """

    timeout: float | None = 30.0
    threads: int = 32
    cors: bool = False
    metrics_path: str | None = None
    max_body_bytes: int = 64 << 20
    max_upload_bytes: int = 512 << 20
    max_download_bytes: int = 1 << 30
    max_in_work: int = 256

    @classmethod
    def from_options(cls, options):
        """From the options of the embedded server, which have the names of TF-Serving's flags."""
        prometheus = options.monitoring_config.prometheus_config
        return cls(
            timeout=options.rest_api_timeout_in_ms / 1000 if options.rest_api_timeout_in_ms > 0 else None,
            threads=options.rest_api_num_threads or max(32, 4 * (os.cpu_count() or 1)),
            cors=options.rest_api_enable_cors_support,
            metrics_path=(prometheus.path or DEFAULT_PATH) if prometheus.enable else None,
        )


class RestServer:
    """A REST server that is running.

    Args:
        handlers: `handlers.Handlers`.
        metrics: `metrics.Metrics`.
        settings: `Settings`.
        port: port to listen on at all addresses; 0 for any free one.

    Raises:
        OSError: if the port is taken.
    """

    def __init__(self, handlers, metrics, settings, port=0):
        listener = _listen(port)
        self.port = listener.getsockname()[1]
        self._app = App(handlers, metrics, settings, Viewer(lambda: models_of(handlers)))
        self._config = uvicorn.Config(
            self._app,
            loop="uvloop",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._server = uvicorn.Server(self._config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="rest-loop", daemon=True)
        self._thread.start()

    @property
    def connections(self):
        """Connections that are open."""
        return len(self._server.server_state.connections)

    @property
    def requests_in_work(self):
        """Predictions that are waiting or running."""
        return self._app.in_work

    @property
    def bytes_uploaded(self):
        """Bytes of requests in memory."""
        return self._app.uploaded

    @property
    def bytes_sending(self):
        """Bytes of arrays of large answers that are being sent."""
        return self._app.sending

    def stop(self, grace=5.0):
        """Takes no more requests, gives those in work `grace` seconds, and closes."""
        self._app.is_stopping = True
        self._config.timeout_graceful_shutdown = max(0.0, grace)
        self._server.should_exit = True
        self._thread.join(grace + PATIENCE)
        self._app.close()


def start(handlers, options, metrics):
    """Starts the REST server.

    Args:
        handlers: `handlers.Handlers`.
        options: options of the embedded server, with the names of TF-Serving's flags.
        metrics: `metrics.Metrics`.

    Returns:
        An object with `port` and `stop(grace)`.
    """
    return RestServer(handlers, metrics, Settings.from_options(options), options.rest_api_port)


def models_of(handlers):
    """Names of the models, their versions, states, and what the exporter wrote of them, for the viewer."""
    models = []
    for name in handlers.models():
        try:
            found = handlers.status(Target(name)).model_version_status
        except ServingError:  # no version was seen yet
            found = []
        versions = [
            {
                "version": str(each.version),
                "state": STATES.Name(each.state),
                "description": _description(handlers, Target(name, each.version)),
            }
            for each in found
        ]
        models.append({"name": name, "versions": versions})
    return models


def _description(handlers, target):
    try:
        return handlers.description(target)
    except ServingError:  # not loaded, or not any more
        return None


def _listen(port):
    """IPv6 and IPv4 at once where the machine can, as TF-Serving."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return socket.create_server(("", port), backlog=BACKLOG)
