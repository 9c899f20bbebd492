"""The flags of `tensorflow_model_server`, and what the embedded server does with each.

Names, types and defaults are those of `model_servers/main.cc` and `server.h` of TensorFlow Serving.
"""

from typing import NamedTuple

from absl import flags

# What the embedded server does with a flag that differs from its default.
HONOURED, IGNORED, REFUSED = "honoured", "ignored", "refused"
VERSION = "version"


class Flag(NamedTuple):
    """
    Args:
        name: of the flag.
        default: TF-Serving's; its type is the type of the flag.
        help: one line.
        embedded: `HONOURED`, `IGNORED` (nothing a client could notice), or `REFUSED` (it would serve something else).
        note: why it is ignored or refused.
    """

    name: str
    default: bool | int | float | str
    help: str
    embedded: str = HONOURED
    note: str = ""


_NO_TFLITE = "it runs no TensorFlow Lite models"
_FIXED_SESSION = "it makes its sessions by itself, from the other flags"

TABLE = (
    # gRPC and REST
    Flag("port", 8500, "TCP port of gRPC; 0 is none."),
    Flag("grpc_socket_path", "", "UNIX socket of gRPC."),
    Flag("grpc_channel_arguments", "", "Arguments of the gRPC server: name=value,name=value."),
    Flag("grpc_max_threads", 0, "Threads of gRPC; 0 is four for each core."),
    Flag("rest_api_port", 0, "Port of REST; 0 is none."),
    Flag("rest_api_num_threads", 0, "Threads of REST; 0 for a number that fits the cores."),
    Flag("rest_api_timeout_in_ms", 30000, "Time that a request over REST may take."),
    Flag("rest_api_enable_cors_support", False, "Lets pages of other origins (an attention viewer) use REST."),
    Flag("ssl_config_file", "", "Text file with an SSLConfig, for the port of gRPC."),
    Flag("use_alts_credentials", False, "Google's ALTS for gRPC.", REFUSED, "it has no ALTS credentials"),
    Flag(
        "enable_grpc_healthcheck_service",
        False,
        "The standard gRPC health service.",
        REFUSED,
        "it does not have that service; ask for the status of a model instead",
    ),
    # Models and versions
    Flag("model_name", "default", "Name of the model; not used with --model_config_file."),
    Flag("model_base_path", "", "Folder of the model's version folders; not used with --model_config_file."),
    Flag("model_config_file", "", "Text file with a ModelServerConfig: several models, version policies, labels."),
    Flag("model_config_file_poll_wait_seconds", 0, "How often to read that file again; 0 is never."),
    Flag("file_system_poll_wait_seconds", 1, "How often to look for new versions; 0 is once."),
    Flag("max_num_load_retries", 5, "Attempts to load a version after one that failed."),
    Flag("load_retry_interval_micros", 60_000_000, "Time between attempts; negative is none."),
    Flag("num_load_threads", 0, "Versions that are loaded at one time; 0 is one after the other."),
    Flag(
        "num_unload_threads", 0, "The same for unloading.", IGNORED, "each version is unloaded in a thread of its own"
    ),
    Flag("allow_version_labels_for_unavailable_models", False, "Lets a new label name a version not loaded yet."),
    Flag("saved_model_tags", "serve", "Tags of the graph to load.", REFUSED, 'it loads the graph with the tag "serve"'),
    Flag("prefer_tflite_model", False, "Serves model.tflite of a folder that has one.", REFUSED, _NO_TFLITE),
    Flag("num_tflite_pools", 0, "Pools of interpreters; 0 is one for each core.", IGNORED, _NO_TFLITE),
    Flag("num_tflite_interpreters_per_pool", 1, "Interpreters in a pool.", IGNORED, _NO_TFLITE),
    Flag(
        "flush_filesystem_caches", True, "Flushes file caches after loading.", IGNORED, "it leaves them to the system"
    ),
    Flag(
        "remove_unused_fields_from_bundle_metagraph",
        True,
        "Saves memory of loaded graphs.",
        IGNORED,
        "it keeps what TensorFlow keeps",
    ),
    # Batching and warm-up
    Flag("enable_batching", False, "Runs requests of several clients as one batch."),
    Flag("batching_parameters_file", "", "Text file with BatchingParameters."),
    Flag("enable_per_model_batching_parameters", False, "Reads batching_params.pbtxt of each version folder."),
    Flag("enable_model_warmup", True, "Replays a version's stored requests before it is served."),
    Flag("num_request_iterations_for_warmup", 0, "How often each is replayed; 0 is once."),
    # Answers
    Flag("enable_serialization_as_tensor_content", False, "Sends tensors as bytes over gRPC, not value by value."),
    Flag("enable_signature_method_name_check", False, "Asks method names of TensorFlow 1 of signatures."),
    Flag("monitoring_config_file", "", "Text file with a MonitoringConfig: metrics for Prometheus."),
    # TensorFlow
    Flag("tensorflow_session_parallelism", 0, "Threads of TensorFlow, both pools; 0 fits the cores."),
    Flag("tensorflow_intra_op_parallelism", 0, "Threads of one operation; 0 fits the cores."),
    Flag("tensorflow_inter_op_parallelism", 0, "Operations at one time; 0 fits the cores."),
    Flag("tensorflow_session_config_file", "", "Text file with a ConfigProto.", REFUSED, _FIXED_SESSION),
    Flag("platform_config_file", "", "Text file with a PlatformConfigMap.", REFUSED, _FIXED_SESSION),
    Flag("mixed_precision", "", "Precision to run in.", REFUSED, "it runs a model in the precision it was exported in"),
    Flag("thread_pool_factory_config_file", "", "Text file with a ThreadPoolConfig.", IGNORED, _FIXED_SESSION),
    Flag(
        "per_process_gpu_memory_fraction",
        0.0,
        "Part of a GPU's memory to take.",
        IGNORED,
        "TensorFlow takes what it needs",
    ),
    Flag("xla_cpu_compilation_enabled", False, "Runs compiled functions.", IGNORED, "it always runs them"),
    Flag("xla_gpu_compilation_enabled", False, "Runs compiled functions.", IGNORED, "it always runs them"),
    Flag("enable_profiler", True, "TensorFlow's profiler over gRPC.", IGNORED, "it has no profiler service"),
    Flag("skip_initialize_tpu", False, "Leaves TPUs alone.", IGNORED, "it does not look for TPUs"),
)
BY_NAME = {flag.name: flag for flag in TABLE}


def define(values):
    """Defines them in `values`, usually `absl.flags.FLAGS`."""
    kinds = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
    for flag in TABLE:
        kinds[type(flag.default)](flag.name, flag.default, flag.help, flag_values=values)
    flags.DEFINE_bool(
        VERSION, False, "Prints versions and the servers that are at hand, and exits.", flag_values=values
    )


def given(values):
    """Dict of TF-Serving's flags that the command line sets, by name, in the order of the table."""
    return {flag.name: values[flag.name].value for flag in TABLE if values[flag.name].present}


def spelled(name, value):
    """`--name=value` as `tensorflow_model_server` reads it, which knows no `--noname` and no `--name value`."""
    return f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
