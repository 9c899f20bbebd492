"""gRPC: messages of tensorflow-serving-api over one channel."""

import grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.client import tensors
from serving.client.errors import Failure

OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # the default of 4 MiB is less than one layer-stacked map
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # the client has its own, with a deadline over all of them
    ("grpc.use_local_subchannel_pool", 1),  # a closed client leaves no connection behind, and clients share none
)


class Grpc:
    """
    Args:
        target: `host:port` or `unix:path`.
        model, version, label: which model.
        secure: TLS.
        metadata: dict, sent with each call.
        certificates: file with the certificates to trust, if `secure`.
    """

    def __init__(self, target, model, version=None, label=None, secure=False, metadata=None, certificates=None):
        self.model, self.version, self.label = model, version, label
        self.sent = tuple((metadata or {}).items())
        if secure:
            roots = None
            if certificates is not None:
                with open(certificates, "rb") as file:
                    roots = file.read()
            self.channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(roots), OPTIONS)
        else:
            self.channel = grpc.insecure_channel(target, OPTIONS)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self._model = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def close(self):
        self.channel.close()

    def prepare(self, given, signature, outputs=()):
        """A `PredictRequest`."""
        request = predict_pb2.PredictRequest(output_filter=list(outputs))
        self._choose(request.model_spec)
        request.model_spec.signature_name = signature
        for name, value in given.items():
            request.inputs[name].CopyFrom(tensors.encode(value))
        return request

    def send(self, request, timeout):
        """A `PredictResponse`."""
        return self._call(self._prediction.Predict, request, timeout)

    def decode(self, answer, signature, timeout):
        """Dict of arrays."""
        return {name: tensors.decode(proto) for name, proto in answer.outputs.items()}

    def status(self, timeout):
        """`{version: (state, error message)}`."""
        request = get_model_status_pb2.GetModelStatusRequest()
        self._choose(request.model_spec)
        found = self._call(self._model.GetModelStatus, request, timeout).model_version_status
        name = get_model_status_pb2.ModelVersionStatus.State.Name
        return {each.version: (name(each.state), each.status.error_message) for each in found}

    def metadata(self, timeout):
        """`{signature: {"inputs": {name: (dtype, shape)}, "outputs": ...}}`."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._choose(request.model_spec)
        answer = self._call(self._prediction.GetModelMetadata, request, timeout)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        return {
            name: {
                side: {key: tensors.describe(info) for key, info in getattr(each, side).items()}
                for side in ("inputs", "outputs")
            }
            for name, each in found.signature_def.items()
        }

    def _choose(self, spec):
        spec.name = self.model
        if self.version is not None:
            spec.version.value = self.version
        elif self.label is not None:
            spec.version_label = self.label

    def _call(self, method, request, timeout):
        try:
            return method(request, timeout=timeout, metadata=self.sent)
        except grpc.RpcError as error:
            raise Failure(error.code().name, error.details()) from error
