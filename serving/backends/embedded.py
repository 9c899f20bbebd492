"""TF-Serving's flags as options of the embedded server, and what it cannot do."""

import dataclasses

from serving.backends.flags import BY_NAME, IGNORED, REFUSED
from serving.server import protos


def refused(given):
    """Sentences on flags with which the embedded server would serve something else than they say."""
    return [f"--{flag.name}: {flag.note}." for flag in _changed(given, REFUSED)]


def ignored(given):
    """Sentences on flags that make no difference to it."""
    return [f"--{flag.name} makes no difference here: {flag.note}." for flag in _changed(given, IGNORED)]


def _changed(given, kind):
    found = (BY_NAME[name] for name, value in given.items() if value != BY_NAME[name].default)
    return [flag for flag in found if flag.embedded == kind]


def options(values):
    """`serving.server.options.Options` of parsed flags."""
    from serving.server.options import Options  # imports TensorFlow, which the other servers can do without

    fields = {field.name for field in dataclasses.fields(Options)}
    same = {name: values[name].value for name in BY_NAME if name in fields}
    intra, inter = values.tensorflow_intra_op_parallelism, values.tensorflow_inter_op_parallelism
    if not (intra or inter):
        intra = inter = values.tensorflow_session_parallelism
    same.update(
        port=values.port or None,
        rest_api_port=values.rest_api_port or None,
        num_request_iterations_for_warmup=max(1, values.num_request_iterations_for_warmup),
        load_retry_interval_micros=max(0, values.load_retry_interval_micros),
        tensorflow_intra_op_parallelism=intra,
        tensorflow_inter_op_parallelism=inter,
    )
    if values.monitoring_config_file:
        same["monitoring_config"] = protos.read_text(values.monitoring_config_file, protos.MonitoringConfig())
    return Options(**same)
