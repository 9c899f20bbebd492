"""Options of the embedded server: TF-Serving's flags, by name and with its defaults, unless said otherwise."""

import os
from dataclasses import dataclass, field

from google.protobuf.message import Message
from tensorflow_serving.config import model_server_config_pb2

from serving.server import batching, protos
from serving.server.errors import invalid


@dataclass
class Options:
    """
    Args:
        port: of gRPC; 0 is any that is free, `None` is off (TF-Serving's flag has 0 for off).
        rest_api_port: likewise.
        model_config_file: text file with a `ModelServerConfig`; else `model_name` and `model_base_path` are served.
        model_config_file_poll_wait_seconds: how often to look at that file again; 0 never.
        batching_parameters_file: text file with `BatchingParameters`, used if `enable_batching`.
        monitoring_config: `MonitoringConfig`.
        ssl_config_file: text file with an `SSLConfig`, for the gRPC port.
        grpc_max_threads, rest_api_num_threads: 0 for a default by the number of cores.
        num_load_threads: versions that are loaded at one time; 0 is one.
        stop_grace_seconds: how long requests under way may take when the server is stopped.
        load_timeout_seconds: how long `start` waits for models; `None` as long as it takes, as TF-Serving.
    """

    port: int | None = 8500
    rest_api_port: int | None = None
    grpc_socket_path: str = ""
    grpc_channel_arguments: str = ""
    grpc_max_threads: int = 0
    ssl_config_file: str = ""
    rest_api_num_threads: int = 0
    rest_api_timeout_in_ms: int = 30000
    rest_api_enable_cors_support: bool = False
    model_name: str = "default"
    model_base_path: str = ""
    model_config_file: str = ""
    model_config_file_poll_wait_seconds: float = 0
    file_system_poll_wait_seconds: float = 1
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60 * 1000 * 1000
    num_load_threads: int = 0
    allow_version_labels_for_unavailable_models: bool = False
    enable_reload_servables_with_error: bool = False
    fail_if_no_model_versions_found: bool = False
    enable_batching: bool = False
    batching_parameters_file: str = ""
    enable_per_model_batching_parameters: bool = False
    enable_model_warmup: bool = True
    num_request_iterations_for_warmup: int = 1
    enable_signature_method_name_check: bool = False
    enable_serialization_as_tensor_content: bool = False
    tensorflow_intra_op_parallelism: int = 0
    tensorflow_inter_op_parallelism: int = 0
    monitoring_config: Message = field(default_factory=protos.MonitoringConfig)
    stop_grace_seconds: float = 30
    load_timeout_seconds: float | None = None

    def model_config(self):
        """The `ModelServerConfig`, read anew."""
        config = model_server_config_pb2.ModelServerConfig()
        if self.model_config_file:
            return protos.read_text(self.model_config_file, config)
        if not self.model_base_path:
            raise ValueError("Name what to serve: model_base_path, or model_config_file.")
        base_path = self.model_base_path
        if "://" not in base_path:
            base_path = os.path.abspath(base_path)
        config.model_config_list.config.add(name=self.model_name, base_path=base_path, model_platform="tensorflow")
        return config

    def batching(self):
        """`batching.Parameters`, or `None`."""
        if not self.enable_batching:
            if self.batching_parameters_file:
                raise invalid("--batching_parameters_file is set without setting --enable_batching to true.")
            return None
        proto = protos.BatchingParameters()
        if self.batching_parameters_file:
            protos.read_text(self.batching_parameters_file, proto)
        return batching.parameters(proto)

    def threads(self):
        """Threads of gRPC."""
        return self.grpc_max_threads or 4 * (os.cpu_count() or 1)
