"""PredictionService and ModelService over gRPC.

Predict has its own encoder (`tensors.predict_response`): generated code would copy a large output three times.
"""

import errno
import logging
import socket
from concurrent import futures
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from serving.server import inference, tensors, waiting
from serving.server.errors import ServingError, invalid
from serving.server.handlers import Target

INT32_MAX = 2**31 - 1
MAX_DETAILS = 1024  # characters of an error; it travels in a header, which has to stay small
MAX_ENCODED = 6144  # bytes of it there: percent-encoded, up to 12 a character, and gRPC refuses headers of 8 KiB
QUEUED_PER_THREAD = 32  # requests that wait for a thread before new ones get RESOURCE_EXHAUSTED
PREDICTION, MODEL = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"
log = logging.getLogger(__name__)


class Services:
    """The methods of both services: a request message in, a response message or its bytes out.

    Args:
        handlers: `Handlers`.
        metrics: `Metrics`, or `None`.
        tensor_content: numbers go into `tensor_content`; TF-Serving does so with
            --enable_serialization_as_tensor_content, and fills `float_val` and its like by default.
    """

    def __init__(self, handlers, metrics=None, tensor_content=False):
        self.handlers, self.metrics, self.tensor_content = handlers, metrics, tensor_content

    def predict(self, request):
        _need_spec(request)
        inputs = {name: tensors.decode(proto, name) for name, proto in request.inputs.items()}
        signature = request.model_spec.signature_name
        outputs, *found = self.handlers.predict(_target(request.model_spec), signature, inputs, request.output_filter)
        return tensors.predict_response(outputs, _spec(request.model_spec.name, *found), self.tensor_content)

    def classify(self, request):
        result, *found = self._infer(request, self.handlers.classify)
        return classification_pb2.ClassificationResponse(
            result=result, model_spec=_spec(request.model_spec.name, *found)
        )

    def regress(self, request):
        result, *found = self._infer(request, self.handlers.regress)
        return regression_pb2.RegressionResponse(result=result, model_spec=_spec(request.model_spec.name, *found))

    def multi_inference(self, request):
        if not request.tasks:
            raise invalid("Inference request must contain at least one task.")
        names = [task.model_spec.name for task in request.tasks]
        if not all(names):
            raise invalid("Found ModelSpec with an empty model name.")
        if len(set(names)) > 1:
            raise invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        target = _target(request.tasks[0].model_spec)
        examples = inference.serialized(request.input)
        results, version = self.handlers.multi_inference(target, request.tasks, examples)
        for task, result in zip(request.tasks, results):
            signature = task.model_spec.signature_name or inference.DEFAULT_SIGNATURE
            result.model_spec.CopyFrom(_spec(target.name, version, signature))
        return inference_pb2.MultiInferenceResponse(results=results)

    def metadata(self, request):
        _need_spec(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        return self.handlers.metadata(_target(request.model_spec))

    def status(self, request):
        _need_spec(request)
        return self.handlers.status(_target(request.model_spec))

    def reload(self, request):
        self.handlers.reload(request.config)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response

    def _infer(self, request, handler):
        _need_spec(request)
        target, signature = _target(request.model_spec), request.model_spec.signature_name
        return handler(target, signature, inference.serialized(request.input))

    def handler(self, method, request_class, api=None):
        """gRPC's handler for `method`; requests of an `api` are counted and timed."""

        def answer(data, context):
            if not context.is_active():  # it waited for a thread until its client gave up
                return b""
            try:
                request = _parse(request_class, data)
                with waiting.asked(context.is_active):
                    return self._metered(method, request, api)
            except ServingError as error:
                code, message = error.grpc_code, error.message
            except Exception as error:
                log.exception("A gRPC request failed")
                code, message = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
            context.abort(code, _details(message))

        return grpc.unary_unary_rpc_method_handler(answer, None, _serialize)

    def _metered(self, method, request, api):
        if api is None or self.metrics is None:
            return method(request)
        spec = request.tasks[0].model_spec if api == "MultiInference" and request.tasks else None
        name = (spec or getattr(request, "model_spec", None) or model_pb2.ModelSpec()).name
        with self.metrics.request(name, api, "GRPC"):
            return method(request)

    def generic_handlers(self):
        """Both services, for `grpc.Server.add_generic_rpc_handlers`."""
        prediction = {
            "Predict": self.handler(self.predict, predict_pb2.PredictRequest, "Predict"),
            "Classify": self.handler(self.classify, classification_pb2.ClassificationRequest, "Classify"),
            "Regress": self.handler(self.regress, regression_pb2.RegressionRequest, "Regress"),
            "MultiInference": self.handler(self.multi_inference, inference_pb2.MultiInferenceRequest, "MultiInference"),
            "GetModelMetadata": self.handler(self.metadata, get_model_metadata_pb2.GetModelMetadataRequest),
        }
        model = {
            "GetModelStatus": self.handler(self.status, get_model_status_pb2.GetModelStatusRequest),
            "HandleReloadConfigRequest": self.handler(self.reload, model_management_pb2.ReloadConfigRequest),
        }
        return [
            grpc.method_handlers_generic_handler(PREDICTION, prediction),
            grpc.method_handlers_generic_handler(MODEL, model),
        ]


def start_grpc(services, port=None, socket_path=None, channel_arguments="", max_threads=8, credentials=None):
    """Starts a gRPC server.

    Args:
        services: `Services`.
        port: TCP port, 0 for any that is free, `None` for no TCP.
        socket_path: path of a UNIX socket, or `None`.
        channel_arguments: "name=value,...", as in --grpc_channel_arguments.
        max_threads: requests worked on at once.
        credentials: `grpc.ServerCredentials` for the TCP port, or `None`.

    Returns:
        `grpc.Server`, port.
    """
    options = [
        ("grpc.max_receive_message_length", INT32_MAX),
        ("grpc.max_send_message_length", INT32_MAX),
        ("grpc.so_reuseport", 0),  # a second server on the port is a mistake to hear about
        *_channel_arguments(channel_arguments),
    ]
    server = grpc.server(
        futures.ThreadPoolExecutor(max_threads, thread_name_prefix="grpc"),
        options=options,
        maximum_concurrent_rpcs=max_threads * (1 + QUEUED_PER_THREAD),
    )
    server.add_generic_rpc_handlers(services.generic_handlers())
    if port is not None:
        address = f"0.0.0.0:{port}"
        try:
            port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {address}: is another server there?") from error
    if socket_path:
        _check_socket(socket_path)
        server.add_insecure_port(f"unix:{socket_path}")
    server.start()
    return server, port


def _check_socket(path):
    """gRPC would take the path away from a server that listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)  # a server that has no time to accept is one all the same
        if client.connect_ex(path) in (0, errno.EAGAIN):
            raise OSError(f"gRPC cannot listen on unix:{path}: another server is there. Stop it, or give another path.")


def _channel_arguments(text):
    for pair in filter(None, (text or "").split(",")):
        name, separator, value = pair.partition("=")
        if not separator:
            raise ValueError(f"--grpc_channel_arguments has {pair!r}; each is name=value, with commas between them.")
        try:
            yield name, int(value)
        except ValueError:
            yield name, value


def _parse(request_class, data):
    """gRPC's own deserializer would answer INTERNAL to what is the client's mistake."""
    try:
        return request_class.FromString(data)
    except DecodeError as error:
        raise invalid(f"The body of the request is not a {request_class.DESCRIPTOR.name}.") from error


def _details(message):
    kept = message[:MAX_DETAILS]
    while len(quote(kept, errors="replace")) > MAX_ENCODED:
        kept = kept[: len(kept) // 2]
    return message if len(kept) == len(message) else kept + "...TRUNCATED"


def _serialize(response):
    return response if isinstance(response, bytes) else response.SerializeToString()


def _target(spec):
    choice = spec.WhichOneof("version_choice")
    if choice == "version":
        return Target(spec.name, spec.version.value)
    return Target(spec.name, None, spec.version_label if choice else None)


def _spec(name, version, signature_name):
    spec = model_pb2.ModelSpec(name=name, signature_name=signature_name)
    spec.version.value = version
    return spec


def _need_spec(request):
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
