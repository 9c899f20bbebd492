"""`TensorProto` for the client: arrays in and out without a Python object for each number."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from serving.client import inputs

FIXED = {tf.float32.as_datatype_enum: ("float_val", "<f4"), tf.float64.as_datatype_enum: ("double_val", "<f8")}


def encode(value):
    """A `TensorProto`; strings are object arrays of bytes or of str."""
    value = np.asarray(value)
    if value.dtype.kind in "OSU":
        value = inputs.as_bytes(value.tolist())
    dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    proto.tensor_shape.SetInParent()
    for size in value.shape:
        proto.tensor_shape.dim.add(size=size)
    if dtype == tf.string:
        proto.string_val.extend(value.ravel().tolist())
    else:
        proto.tensor_content = value.tobytes()
    return proto


def decode(proto):
    """Array of a `TensorProto`; strings are an object array of bytes.

    A server sends maps as `float_val` unless it runs with --enable_serialization_as_tensor_content. On the wire that
    field is the memory of the array, and it is the last one of the message; it is taken from there in one piece rather
    than number by number.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    field, order = FIXED.get(proto.dtype, (None, None))
    size = int(np.prod(shape))
    if field is None or proto.tensor_content or not size or len(getattr(proto, field)) != size:
        return tf.make_ndarray(proto)
    data = proto.SerializeToString()
    values = np.frombuffer(data, order, offset=len(data) - size * np.dtype(order).itemsize)
    return values.copy().reshape(shape)  # aligned, and the caller's own


def describe(info):
    """`(dtype, shape)` of a `TensorInfo`; -1 is a free dimension, and the shape `None` if its rank is unknown."""
    shape = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
    if not info.dtype:  # of operations that load a model
        return None, shape
    kind = tf.as_dtype(info.dtype)
    return ("object" if kind == tf.string else kind.name), shape
