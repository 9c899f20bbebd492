"""`TensorProto` to arrays and back, with as few copies as the wire format allows."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from serving.server.errors import invalid

MAX_FILLED = 1 << 28  # bytes that one repeated value may be blown up to; a few bytes could otherwise ask for terabytes
_FIXED = {1: (5, "<f4"), 2: (6, "<f8")}  # DT_FLOAT, DT_DOUBLE: field of TensorProto whose packed form is the raw data
_STRING = 7


def decode(proto, name):
    """Array of a `TensorProto`; strings are an object array of bytes."""
    try:
        dtype = tf.dtypes.as_dtype(proto.dtype)
        shape = [dim.size for dim in proto.tensor_shape.dim]
        if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
            raise ValueError("shape")
        if proto.tensor_content and dtype != tf.string:
            return np.frombuffer(proto.tensor_content, dtype.as_numpy_dtype).reshape(shape)
        size = 1
        for dim in shape:
            size *= dim
        width = 8 if dtype == tf.string else np.dtype(dtype.as_numpy_dtype).itemsize
        if size * width > max(MAX_FILLED, proto.ByteSize() * width):
            raise ValueError("size")
        return np.asarray(tf.make_ndarray(proto))
    except (TypeError, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise invalid(f"tensor parsing error: {name}") from error


def array(value):
    """Array of what a session returns, which is a scalar for a tensor without dimensions."""
    return np.asarray(value, object if isinstance(value, bytes) else None)


def data_type(value):
    """Number of the `DataType` of an array."""
    return _STRING if value.dtype == object else tf.dtypes.as_dtype(value.dtype).as_datatype_enum


def encode(value, as_content):
    """Wire format of a `TensorProto`, as a list of buffers to be joined.

    Floating-point data are not copied: both `tensor_content` and the packed `float_val` are the memory of the array.

    Args:
        value: array.
        as_content: fills `tensor_content`; else the field of the type, as TF-Serving does unless told otherwise.
    """
    number = data_type(value)
    head = tensor_pb2.TensorProto(dtype=number)
    head.tensor_shape.SetInParent()
    for size in value.shape:
        head.tensor_shape.dim.add(size=size)
    if number == _STRING:
        head.string_val.extend(value.ravel().tolist())
        return [head.SerializeToString()]
    field, order = _FIXED.get(number, (None, None))
    if not as_content and field is None:
        filled = tf.make_tensor_proto(np.array([0], value.dtype), shape=[1])  # tells the field of the type
        for found, _ in filled.ListFields():
            if found.name.endswith("_val"):
                getattr(head, found.name).extend(_plain(value, found.name))
                return [head.SerializeToString()]
    if as_content:
        field, order = 4, value.dtype
    if not value.size:
        return [head.SerializeToString()]
    data = np.ascontiguousarray(value, order)
    return [head.SerializeToString(), tag(field, data.nbytes), memoryview(data.reshape(-1).view(np.uint8))]


def _plain(value, field):
    flat = value.ravel()
    if field == "half_val":
        return flat.view(np.uint16).tolist()
    if field in ("scomplex_val", "dcomplex_val"):
        return flat.view(flat.real.dtype).tolist()
    return flat.tolist()


def varint(number):
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def tag(field, size):
    """Head of a length-delimited field."""
    return varint(field << 3 | 2) + varint(size)


def predict_response(outputs, model_spec, as_content):
    """Wire format of a `PredictResponse`: its one copy of the data is made here."""
    parts = []
    for name, value in outputs.items():
        key = name.encode()
        tensor = encode(value, as_content)
        size = sum(map(len, tensor))
        entry = tag(1, len(key)) + key + tag(2, size)
        parts += [tag(1, len(entry) + size), entry, *tensor]
    spec = model_spec.SerializeToString()
    return b"".join([*parts, tag(2, len(spec)), spec])
