"""What tests of the embedded server over gRPC share."""

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)


class Client:
    """Calls a server with the stubs that clients of TF-Serving use."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def predict(self, inputs, name="m", signature="", version=None, label=None, outputs=()):
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name, request.model_spec.signature_name = name, signature
        if version is not None:
            request.model_spec.version.value = version
        if label is not None:
            request.model_spec.version_label = label
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        return self.prediction.Predict(request, timeout=60)

    def status(self, name="m"):
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = name
        found = self.model.GetModelStatus(request, timeout=60).model_version_status
        return {s.version: get_model_status_pb2.ModelVersionStatus.State.Name(s.state) for s in found}


def refused(code, call, *arguments, **keywords):
    """Details of the error that the call ends with, whose code is `code`."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **keywords)
    assert caught.value.code() == getattr(grpc.StatusCode, code), caught.value
    return caught.value.details()
