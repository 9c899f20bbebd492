"""Configuration messages of TF-Serving that its Python package does not carry, and how to read them from text.

The messages are described here field by field, with the numbers of the original files, so that `text_format` reads them
and names the line of a mistake.
"""

import errno

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

PACKAGE = "tensorflow.serving"
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL, "int64": _FIELD.TYPE_INT64}

# Message: fields as (name, number, type). Types in capitals are messages, `*` marks a repeated field.
MESSAGES = {
    "BatchingParameters": [
        ("max_batch_size", 1, "google.protobuf.Int64Value"),
        ("batch_timeout_micros", 2, "google.protobuf.Int64Value"),
        ("max_enqueued_batches", 3, "google.protobuf.Int64Value"),
        ("num_batch_threads", 4, "google.protobuf.Int64Value"),
        ("thread_pool_name", 5, "google.protobuf.StringValue"),
        ("allowed_batch_sizes", 6, "int64*"),
        ("pad_variable_length_inputs", 7, "bool"),
        ("enable_large_batch_splitting", 8, "google.protobuf.BoolValue"),
        ("max_execution_batch_size", 9, "google.protobuf.Int64Value"),
    ],
    "PrometheusConfig": [("enable", 1, "bool"), ("path", 2, "string")],
    "MonitoringConfig": [("prometheus_config", 1, f"{PACKAGE}.PrometheusConfig")],
    "SSLConfig": [
        ("server_key", 1, "string"),
        ("server_cert", 2, "string"),
        ("custom_ca", 3, "string"),
        ("client_verify", 4, "bool"),
    ],
}


def _build():
    file = descriptor_pb2.FileDescriptorProto(name="keras_posenc/serving.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            label = _FIELD.LABEL_REPEATED if kind.endswith("*") else _FIELD.LABEL_OPTIONAL
            field = described.field.add(name=name, number=number, label=label)
            scalar = _SCALARS.get(kind.rstrip("*"))
            if scalar is None:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{kind}"
            else:
                field.type = scalar
    pool = descriptor_pool.DescriptorPool()  # its own: another package may define the same names in the common one
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in MESSAGES)
    return [message_factory.GetMessageClass(descriptor) for descriptor in found]


BatchingParameters, PrometheusConfig, MonitoringConfig, SSLConfig = _build()


def read_text(path, message):
    """Fills `message` from a text-format file, which a path or a URI names.

    `ValueError` names file, line and column of a mistake. What cannot be read is an `OSError`.
    """
    text = _read(str(path))
    try:
        return text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise ValueError(f"{path} is no {type(message).DESCRIPTOR.name}: {error}") from error


def _read(path):
    if "://" not in path:
        with open(path, encoding="utf-8") as file:
            return file.read()
    import tensorflow as tf  # flags are checked without it

    try:
        with tf.io.gfile.GFile(path) as file:
            return file.read()
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message, path) from error
