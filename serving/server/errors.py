"""One exception for everything a request can run into, with its code in both protocols.

TF-Serving's errors are `absl::Status`: a canonical code and a message. gRPC carries both as they are; REST maps the
code to an HTTP status and sends the message as `{"error": ...}`.
"""

import re

import grpc

# Canonical code: number on the wire, HTTP status of TF-Serving's REST server. What it does not list is 500.
CODES = {
    "CANCELLED": (1, 500),
    "UNKNOWN": (2, 500),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "ALREADY_EXISTS": (6, 409),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "ABORTED": (10, 409),
    "OUT_OF_RANGE": (11, 400),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "DATA_LOSS": (15, 500),
    "UNAUTHENTICATED": (16, 401),
}
NAMES = {number: name for name, (number, _) in CODES.items()}


class ServingError(Exception):
    """A canonical code such as `INVALID_ARGUMENT`, and a message."""

    def __init__(self, code, message):
        if code not in CODES:
            raise ValueError(f"{code!r} is not a canonical code; those are {', '.join(CODES)}.")
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def number(self):
        return CODES[self.code][0]

    @property
    def http_status(self):
        return CODES[self.code][1]

    @property
    def grpc_code(self):
        return getattr(grpc.StatusCode, self.code)


def invalid(message):
    return ServingError("INVALID_ARGUMENT", message)


def not_found(message):
    return ServingError("NOT_FOUND", message)


def failed_precondition(message):
    return ServingError("FAILED_PRECONDITION", message)


def from_tensorflow(error):
    """The `ServingError` of an exception that TensorFlow raised; `tf.errors.OpError` keeps its code."""
    number = getattr(error, "error_code", None)
    if number in NAMES:
        return ServingError(NAMES[number], clean(error.message))
    return ServingError("INTERNAL", f"{type(error).__name__}: {error}")


def clean(message):
    """TensorFlow's message with the node that failed, without its callers and the exporter's stack (it shows paths)."""
    lines = _FUNCTION.sub("", message).split("\n")
    while len(lines) > 1 and (not lines[0].strip() or _TRACE.match(lines[0])):
        del lines[0]
    return "\n".join(line for line in lines if not _CALL.fullmatch(line)).rstrip()


_FUNCTION = re.compile(r"{{function_node \S+}} ?")
_CALL = re.compile(r"\t \[\[[^{}]*\]\]")
_TRACE = re.compile(r"Graph execution error:|Detected at node |<stack traces unavailable>|  |\d+ root error\(s\) found")
