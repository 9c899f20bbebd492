"""The embedded server: models, gRPC, REST, and an orderly end."""

import logging
import signal
import threading
from concurrent import futures

import grpc
import tensorflow as tf

from serving.server import protos
from serving.server.grpc_services import Services, start_grpc
from serving.server.handlers import Handlers
from serving.server.loading import Loader
from serving.server.manager import Manager
from serving.server.metrics import Metrics
from serving.server.options import Options

log = logging.getLogger(__name__)


class EmbeddedServer:
    """Serves SavedModels as TF-Serving does.

        with EmbeddedServer(Options(model_name="m", model_base_path=folder, port=8500, rest_api_port=8501)) as server:
            server.wait()

    Args:
        options: `options.Options`.

    `port` and `rest_port` say where it listens once it is started.
    """

    def __init__(self, options: Options):
        self.options = options
        self.metrics = Metrics()
        self.port = self.rest_port = None
        self._manager = self._grpc = self._rest = self._config = None
        self._stopping = threading.Event()
        self._stop_lock = threading.Lock()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Loads the models, then listens. Raises `ServingError` if a model has no version that can be loaded."""
        options = self.options
        _set_threads(options.tensorflow_intra_op_parallelism, options.tensorflow_inter_op_parallelism)
        credentials = _credentials(options.ssl_config_file)
        loader = Loader(
            batching_parameters=options.batching(),
            per_model_batching=options.enable_per_model_batching_parameters,
            warm_up=options.enable_model_warmup,
            warmup_iterations=options.num_request_iterations_for_warmup,
            check_methods=options.enable_signature_method_name_check,
            retries=options.max_num_load_retries,
            retry_interval=options.load_retry_interval_micros / 1e6,
            threads=options.num_load_threads,
            metrics=self.metrics,
        )
        self._manager = Manager(
            loader,
            poll_seconds=options.file_system_poll_wait_seconds,
            labels_for_unavailable=options.allow_version_labels_for_unavailable_models,
            require_versions=options.fail_if_no_model_versions_found,
            retry_failed=options.enable_reload_servables_with_error,
        )
        try:
            self._config = options.model_config()
            self._manager.start(self._config, options.load_timeout_seconds)
            self._listen(credentials)
        except BaseException:
            self.stop(0)
            raise
        if options.model_config_file and options.model_config_file_poll_wait_seconds > 0:
            threading.Thread(target=self._poll_config, name="poll config", daemon=True).start()
        return self

    def _listen(self, credentials):
        options = self.options
        handlers = Handlers(self._manager, self.metrics)
        if options.port is not None or options.grpc_socket_path:
            services = Services(handlers, self.metrics, options.enable_serialization_as_tensor_content)
            self._grpc, self.port = start_grpc(
                services,
                options.port,
                options.grpc_socket_path,
                options.grpc_channel_arguments,
                options.threads(),
                credentials,
            )
            log.info("gRPC on port %s %s", self.port, options.grpc_socket_path)
        if options.rest_api_port is not None:
            from serving.server.rest import app

            self._rest = app.start(handlers, options, self.metrics)
            self.rest_port = self._rest.port
            log.info("REST on port %s", self.rest_port)

    def wait(self, handle_signals=True, loads=True):
        """Blocks until `stop` is called, or SIGTERM or SIGINT comes, which stop in good order. As `stop` otherwise."""
        if handle_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self._stopping.set())
        while not self._stopping.wait(1):  # a wait without an end would not see signals on every platform
            pass
        return self.stop(loads=loads)

    def stop(self, grace=None, loads=True):
        """Takes no new requests, finishes those under way within `grace` seconds, and unloads the models.

        With `loads=False` models that are being loaded are not waited for. Returns whether none are left; else the
        process has to end by `os._exit`, since TensorFlow crashes if Python is taken down under it.
        """
        grace = self.options.stop_grace_seconds if grace is None else grace
        self._stopping.set()
        with self._stop_lock:
            stopped = self._grpc.stop(grace) if self._grpc is not None else None
            if self._rest is not None:
                self._rest.stop(grace)
            if stopped is not None:
                stopped.wait()
            done = self._manager is None or self._manager.stop(loads)
            self._grpc = self._rest = self._manager = None
            return done

    def _poll_config(self):
        """Serves what the config file says now.

        A config that is refused changes nothing, and is tried again: a version that a label waits for may be there
        next time. One whose models fail to load is in force, and models no longer in it are unloaded.
        """
        file, told = self.options.model_config_file, None
        while not self._stopping.wait(self.options.model_config_file_poll_wait_seconds):
            try:
                config = self.options.model_config()
                if config != self._config:
                    self._config = None  # one that fails may be in force already: to go back is a change
                    self._manager.reload(config)
                    self._config = config
                    log.info("The config in %s is in force", file)
                told = None
            except Exception as error:  # file systems fail in their own ways, and the next look may go better
                if str(error) != told and not self._stopping.is_set():
                    told = str(error)
                    log.error("%s: %s", file, told)


def _set_threads(intra, inter):
    """Sizes of TensorFlow's thread pools, which cannot change once it has run something."""
    try:
        if intra:
            tf.config.threading.set_intra_op_parallelism_threads(intra)
        if inter:
            tf.config.threading.set_inter_op_parallelism_threads(inter)
    except RuntimeError as error:
        raise ValueError(
            "tensorflow_intra_op_parallelism and tensorflow_inter_op_parallelism have to be set before TensorFlow "
            "first runs in this process; start the server in a process of its own."
        ) from error


def _credentials(path):
    if not path:
        return None
    config = protos.read_text(path, protos.SSLConfig())
    pair = (config.server_key.encode(), config.server_cert.encode())
    ca = config.custom_ca.encode() or None
    found = grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=config.client_verify)
    probe = grpc.server(futures.ThreadPoolExecutor(1))
    try:  # gRPC reads them when it opens a port, which comes after the models
        probe.add_secure_port("localhost:0", found)
    except RuntimeError as error:
        raise ValueError(f"{path}: server_key and server_cert must be the text of PEM files, not paths.") from error
    finally:
        probe.stop(None)
    return found
