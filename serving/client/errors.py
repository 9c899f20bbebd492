"""What went wrong, in the words of the server, and what to do about it."""

# HTTP statuses of TF-Serving's REST server. Two codes share 400, of which the more frequent one is named.
BY_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
ADVICE = {
    "INVALID_ARGUMENT": "Compare the inputs with what `metadata()` says that the signature takes.",
    "FAILED_PRECONDITION": "Compare the signature and the inputs with what `metadata()` says.",
    "NOT_FOUND": "Check the name and the version of the model; `status()` tells what is loaded.",
    "DEADLINE_EXCEEDED": "Give the call a longer `timeout`, or send smaller batches.",
    "RESOURCE_EXHAUSTED": "The server has more work than it can do: send less at once, or let more servers answer.",
    "UNAVAILABLE": "Check that a server is running there, with this protocol (8500 is usually gRPC and 8501 REST).",
    "UNIMPLEMENTED": "Check that this is the port of the protocol: 8500 is usually gRPC and 8501 REST.",
}


class ClientError(Exception):
    """A call that failed for good.

    Args:
        code: canonical name, such as `INVALID_ARGUMENT`.
        message: what the server said, or the network.
        address: of the server.
        attempts: how often it was tried.
    """

    def __init__(self, code, message, address, attempts=1):
        self.code, self.message, self.address, self.attempts = code, message, address, attempts
        tried = f" ({attempts} attempts)" if attempts > 1 else ""
        advice = ADVICE.get(code)
        super().__init__(f"{address}: {code}: {message}{tried}" + (f"\n{advice}" if advice else ""))


class Failure(Exception):
    """One attempt that failed.

    Args:
        code, message: as for `ClientError`.
        wait: seconds the server asked to wait before the next attempt, or `None`.
    """

    def __init__(self, code, message, wait=None):
        super().__init__(message)
        self.code, self.message, self.wait = code, message, wait
