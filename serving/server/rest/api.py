"""One request, from body to response, in a worker thread.

Nothing that a client sends makes an exception here: mistakes are `ServingError`s, which become `{"error": message}`
with TF-Serving's HTTP status. An exception of another kind is a fault of the server and is logged.
"""

import logging
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import orjson
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from serving.server.errors import ServingError
from serving.server.rest import encode, routes
from serving.server.rest.decode import decode_predict
from serving.server.rest.examples import decode_examples

JSON = (b"content-type", b"application/json")
log = logging.getLogger(__name__)


class Response(NamedTuple):
    """HTTP status, headers, and a body that is complete or goes on with the chunks of `more`.

    Until the last of them is written, arrays of `held` bytes stay in memory.
    """

    status: int
    headers: list
    body: bytes
    more: Iterator[bytes] | None = None
    held: int = 0


def error_response(status, message, *headers):
    body = orjson.dumps({"error": message.encode(errors="replace").decode()})
    return Response(status, [JSON, *headers], body)


def answer(handlers, metrics, method, path, body):
    """
    Args:
        handlers: `handlers.Handlers`.
        metrics: `metrics.Metrics`.
        method: HTTP method.
        path: path of the request, still escaped, without the query.
        body: bytes of the request.
    """
    try:
        action, target = routes.find(method, path)
        if action not in METERED:
            return ACTIONS[action](handlers, target, body)
        with metrics.request(target.name, action, "REST"):
            return ACTIONS[action](handlers, target, body)
    except ServingError as error:
        return error_response(error.http_status, error.message)
    except Exception as error:
        log.exception("%s %s failed", method, path)
        return error_response(500, f"{type(error).__name__}: {error}")


def unzip(body, limit):
    """The bytes in a gzip body, None if they are more than `limit`; what is no gzip is empty, as for TF-Serving."""
    stream = zlib.decompressobj(wbits=31)
    try:
        data = stream.decompress(body, limit + 1)
    except zlib.error:
        return b""
    if len(data) > limit:
        return None
    return data if stream.eof else b""


def _predict(handlers, target, body):
    request = decode_predict(body, lambda name: handlers.signature(target, name))
    outputs = handlers.predict(target, request.signature_name, request.inputs)[0]
    chunks = encode.encode_predictions(outputs, request.rows)
    first = next(chunks)
    if len(first) < encode.CHUNK:  # all chunks but the last have at least as many bytes
        return Response(200, [JSON], first)
    return Response(200, [JSON], first, chunks, sum(map(_size, outputs.values())))


def _size(array):
    """Bytes of an array with its strings."""
    return array.nbytes + (sum(map(len, array.flat)) if array.dtype == object else 0)


def _classify(handlers, target, body):
    return Response(200, [JSON], encode.encode_classifications(handlers.classify(target, *decode_examples(body))[0]))


def _regress(handlers, target, body):
    return Response(200, [JSON], encode.encode_regressions(handlers.regress(target, *decode_examples(body))[0]))


def _status(handlers, target, _):
    text = json_format.MessageToJson(handlers.status(target), always_print_fields_with_no_presence=True, indent=1)
    return Response(200, [JSON], text.encode() + b"\n")


def _metadata(handlers, target, _):
    response = handlers.metadata(target)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    if not response.metadata["signature_def"].Unpack(signatures):
        raise ServingError("INTERNAL", "Failed to unpack 'Any' object to 'SignatureDefMap'.")
    value = {"model_spec": _to_dict(response.model_spec), "metadata": {"signature_def": _to_dict(signatures)}}
    return Response(200, [JSON], orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _to_dict(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


ACTIONS = {"predict": _predict, "classify": _classify, "regress": _regress, "status": _status, "metadata": _metadata}
METERED = {"predict", "classify", "regress"}
