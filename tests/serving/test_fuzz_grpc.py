"""Thousands of malformed requests over gRPC: each is refused as the client's mistake, and nothing stays behind."""

import random

import grpc
import numpy as np
import pytest
import tensorflow as tf
from serving_memory import growth, needs_counters
from serving_models import ROW, add_version, example
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
)

from serving.server.embedded import EmbeddedServer
from serving.server.options import Options

pytestmark = pytest.mark.integration
WARM, COUNT = 1000, 3000
REFUSED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED", "OUT_OF_RANGE"}
PREDICTION, MODEL = "/tensorflow.serving.PredictionService/", "/tensorflow.serving.ModelService/"
NAMES = ["m", "m", "m", "m", "", "none", "../../m", "m\x00", "é\n😀", "a" * 3000, "😀" * 3000]
SIGNATURES = ["", "seen", "fragile", "twice", "classify", "regress", "nothing", "__saved_model_init_op", "😀" * 2000]
KEYS = ["x", "ids", "weight", "index", "text", "inputs", "", "y", "\x00", "😀" * 2000]
OUTPUTS = ["y", "rows", "echo", "value", "text", "", "\n", "é" * 5000]
VALID = {
    "": {"x": ROW},
    "seen": {"ids": np.ones((2, 3), np.int32), "weight": np.ones(2, np.float32)},
    "fragile": {"index": np.array([0, 2], np.int32)},
    "twice": {"text": np.array([b"a", b"\xff"], object)},
}
SIZES = [0, 1, 2, 3, -1, -(2**63), 2**20, 2**31, 2**40, 2**62, 2**63 - 1]
DTYPES = [*types_pb2.DataType.values(), 99, 2**31 - 1, -1]


def tensor(chance):
    """A `TensorProto` whose type, shape and content have nothing to do with each other."""
    found = tensor_pb2.TensorProto(dtype=chance.choice(DTYPES), version_number=chance.choice([0, 0, 5]))
    for _ in range(chance.choice([0, 1, 1, 2, 2, 3, 300])):
        found.tensor_shape.dim.add(size=chance.choice(SIZES))
    found.tensor_shape.unknown_rank = chance.random() < 0.05
    if chance.random() < 0.5:
        found.tensor_content = chance.randbytes(chance.randrange(40))
    for field in chance.sample(["float_val", "int_val", "int64_val", "half_val", "string_val", "bool_val"], 2):
        value = {"string_val": b"\xff", "float_val": float("nan")}.get(field, 1)
        getattr(found, field).extend([value] * chance.randrange(4))
    return found


def spec(chance, message):
    message.name, message.signature_name = chance.choice(NAMES), chance.choice(SIGNATURES)
    kind = chance.randrange(8)
    if kind == 0:
        message.version.value = chance.choice([0, 1, -1, 2**63 - 1])
    elif kind == 1:
        message.version_label = chance.choice(["", "stable", "é" * 3000])


def predict(chance):
    """A valid request with one thing wrong, or none of it right."""
    request = predict_pb2.PredictRequest()
    signature = chance.choice(list(VALID))
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    for key, value in VALID[signature].items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    key = chance.choice(sorted(request.inputs))
    kind = chance.randrange(7)
    if kind == 0:
        request.inputs[key].CopyFrom(tensor(chance))
    elif kind == 1:
        request.inputs[key].dtype = chance.choice(DTYPES)
    elif kind == 2:
        request.inputs[key].tensor_shape.dim[0].size = chance.choice(SIZES)
    elif kind == 3:
        request.inputs[key].tensor_content = request.inputs[key].tensor_content[:-3]
    elif kind == 4:
        del request.inputs[key]
        request.inputs[chance.choice(KEYS)].CopyFrom(tensor(chance))
    elif kind == 5:
        request.output_filter.extend(chance.choices(OUTPUTS, k=chance.choice([1, 2, 50])))
    else:
        spec(chance, request.model_spec)
    return request


def classify(chance):
    request = classification_pb2.ClassificationRequest()
    spec(chance, request.model_spec)
    examples = getattr(request.input, chance.choice(["example_list", "example_list_with_context"])).examples
    if chance.random() < 0.7:
        examples.append(chance.choice([example(1.0), example(1.0, other=2.0), tf.train.Example()]))
        if chance.random() < 0.5:
            examples[0].features.feature["x"].bytes_list.value.append(b"\xff")
    return request


def multi(chance):
    request = inference_pb2.MultiInferenceRequest()
    for _ in range(chance.randrange(4)):
        method = chance.choice(["tensorflow/serving/classify", "tensorflow/serving/regress", "", "é"])
        spec(chance, request.tasks.add(method_name=method).model_spec)
    request.input.example_list.examples.append(example(1.0))
    return request


def metadata(chance):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=chance.choices(["signature_def", "é"], k=1))
    spec(chance, request.model_spec)
    return request


def status(chance):
    request = get_model_status_pb2.GetModelStatusRequest()
    spec(chance, request.model_spec)
    return request


def reload(chance):
    """A configuration that no server may take up."""
    request = model_management_pb2.ReloadConfigRequest()
    config = request.config.model_config_list.config.add(name=chance.choice(["", "m", "n"]), base_path="relative")
    if chance.random() < 0.5:
        config.base_path, config.model_platform = "/", chance.choice(["", "é"])
    return request


MAKERS = {
    PREDICTION + "Predict": predict,
    PREDICTION + "Classify": classify,
    PREDICTION + "Regress": classify,
    PREDICTION + "MultiInference": multi,
    PREDICTION + "GetModelMetadata": metadata,
    MODEL + "GetModelStatus": status,
    MODEL + "HandleReloadConfigRequest": reload,
    PREDICTION + "Nothing": predict,
}
METHODS = [PREDICTION + "Predict"] * 12 + list(MAKERS)


def damaged(chance, data):
    """Bytes of a message with some of them changed, missing or more."""
    data = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        where = chance.randrange(len(data) + 1)
        data[where : where + chance.randrange(6)] = chance.randbytes(chance.randrange(6))
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)


def send(channel, chance):
    """Code of the answer to one request."""
    method = chance.choice(METHODS)
    body = MAKERS[method](chance).SerializeToString()
    kind = chance.randrange(5)
    if kind == 0:
        body = chance.randbytes(chance.choice([0, 1, 10, 200]))
    elif kind == 1 and not method.endswith("ReloadConfigRequest"):  # which might come to name what is to be served
        body = damaged(chance, body)
    try:
        channel.unary_unary(method)(body, timeout=60)
        code = "OK"
    except grpc.RpcError as error:
        code = error.code().name
        assert code in REFUSED, (code, error.details(), method, body)
    return code


@pytest.fixture(scope="module")
def channel(saved_model, tmp_path_factory):
    """To a server of `serving_models.Model`."""
    base = tmp_path_factory.mktemp("fuzz_grpc")
    add_version(saved_model, base, 1)
    with EmbeddedServer(Options(model_name="m", model_base_path=str(base), port=0)) as server:
        # A few bytes may stand for many, since values that are left out repeat the last one.
        unlimited = [("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(f"localhost:{server.port}", unlimited) as channel:
            yield channel


def ask(channel, inputs, signature=""):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    answer = channel.unary_unary(PREDICTION + "Predict")(request.SerializeToString(), timeout=60)
    return predict_pb2.PredictResponse.FromString(answer)


@needs_counters
def test_malformed_requests(channel):
    chance = random.Random(0)
    seen = {send(channel, chance) for _ in range(WARM)}
    with growth() as grown:
        seen |= {send(channel, chance) for _ in range(COUNT)}
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"} <= seen
    assert tf.make_ndarray(ask(channel, {"x": ROW}).outputs["y"]).tolist() == [[2.0, 4.0, 6.0]]
    assert grown.bytes / COUNT < 2048 and grown.blocks / COUNT < 0.5  # less than a kept request would be


@pytest.mark.parametrize("body", [b"\xff" * 20, b"\x0a\x04\x0a\x02\xff\xfe"], ids=["no message", "name not UTF-8"])
def test_what_cannot_be_read_is_said(channel, body):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(PREDICTION + "Predict")(body, timeout=60)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "The body of the request is not a PredictRequest."


def test_a_long_message_fits_into_a_header(channel):
    """It travels percent-encoded, 12 bytes for each of these characters; gRPC refuses headers of 8 KiB."""
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel, {"x": ROW, "😀" * 2000: ROW})
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith("input size does not match signature")
    assert caught.value.details().endswith("...TRUNCATED")


def test_a_value_the_model_cannot_take(channel):
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel, {"index": np.array([7], np.int32)}, "fragile")  # of three
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
