"""Tensors on the wire, against protobuf's and TensorFlow's own reading of them."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2

from serving.server import tensors
from serving.server.errors import ServingError

VALUES = [
    np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    np.linspace(-1, 1, 4),
    np.array([1.5, -2], np.float16),
    np.array([[1.5], [-2]], ml_dtypes.bfloat16),
    *(np.array([0, 1, np.iinfo(t).max], t) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)),
    np.array([-(2**63), 2**63 - 1]),
    np.array([2**64 - 1], np.uint64),
    np.array([True, False]),
    np.array([1 + 2j, -3j], np.complex64),
    np.array([[b"a", b"\xff\x00"]], object),
    np.float32(3.0) * np.ones(()),
    np.zeros((0, 3), np.float32),
    np.arange(12, dtype=np.float32).reshape(3, 4).T,
]


@pytest.mark.parametrize("as_content", [False, True])
def test_responses_are_what_protobuf_reads(as_content):
    outputs = {f"v{i}": np.asarray(value) for i, value in enumerate(VALUES)}
    spec = model_pb2.ModelSpec(name="m", signature_name="s")
    response = predict_pb2.PredictResponse.FromString(tensors.predict_response(outputs, spec, as_content))
    assert response.model_spec == spec and set(response.outputs) == set(outputs)
    for name, value in outputs.items():
        proto = response.outputs[name]
        found = tf.make_ndarray(proto)
        assert found.shape == value.shape and proto.dtype == tensors.data_type(value)
        np.testing.assert_array_equal(found, value)
    assert bool(response.outputs["v0"].tensor_content) == as_content
    assert len(response.outputs["v0"].float_val) == (0 if as_content else 6)
    assert len(response.outputs["v10"].int64_val) == (0 if as_content else 2)


@pytest.mark.parametrize("value", VALUES[:-2], ids=lambda v: f"{v.dtype}{v.shape}")
def test_requests_are_read_as_tensorflow_reads_them(value):
    for proto in (tf.make_tensor_proto(value), b"".join(tensors.encode(value, False))):
        if isinstance(proto, bytes):
            proto = tensor_pb2.TensorProto.FromString(proto)
        found = tensors.decode(proto, "x")
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value)


def test_one_value_fills_a_shape():
    proto = tensor_pb2.TensorProto(dtype=1, float_val=[2.0])
    proto.tensor_shape.dim.add(size=3)
    assert tensors.decode(proto, "x").tolist() == [2.0, 2.0, 2.0]


def test_malformed_tensors_are_refused():
    def proto(*shape, **fields):
        found = tensor_pb2.TensorProto(**{"dtype": 1, **fields})
        for size in shape:
            found.tensor_shape.dim.add(size=size)
        return found

    unknown = proto(float_val=[1.0])
    unknown.tensor_shape.unknown_rank = True
    for bad in (
        proto(2, tensor_content=b"abc"),
        proto(2, tensor_content=b"abcd"),
        proto(-1, float_val=[1.0]),
        proto(2**40, 2**40, float_val=[1.0]),
        proto(2**33, float_val=[1.0]),
        proto(1, dtype=0),
        proto(1, dtype=99),
        proto(1, dtype=20),
        proto(2, dtype=7, string_val=[b"a", b"b", b"c"]),
        unknown,
    ):
        with pytest.raises(ServingError, match="tensor parsing error: x") as caught:
            tensors.decode(bad, "x")
        assert caught.value.code == "INVALID_ARGUMENT"
