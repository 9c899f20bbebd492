"""The ASGI application: bodies in, chunks out, everything else in worker threads.

The event loop never waits for JSON or for a model. What clients can hold is bounded in every direction:

- a body has a size, and uploads share a budget, both also after decompression; what is too large is read and dropped,
  then answered with 413;
- large answers that are being sent, whose arrays stay in memory until all is written, share a budget, others get 429;
- an upload that takes longer than `PATIENCE` seconds has to keep up `RATE` bytes per second, and so has a download;
- so many requests for predictions are in work at once, others get 429 (RESOURCE_EXHAUSTED) without waiting;
- a request that is not done in time gets 504 (DEADLINE_EXCEEDED), and one whose client has gone is not begun; neither
  is run if it still waits for its batch.

Questions about state (GET) have threads of their own, so that a probe of a busy server is answered; so have the writing
of large answers and decompression.
"""

import asyncio
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from serving.server import waiting
from serving.server.rest import api
from serving.server.rest.api import Response, error_response

PATIENCE = 30.0
RATE = 1 << 16
HELPERS = WRITERS = 4
CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
]
CLOSE = (b"connection", b"close")
LATER = (b"retry-after", b"1")
TEXT = (b"content-type", b"text/plain")


class App:
    """
    Args:
        handlers: `handlers.Handlers`.
        metrics: `metrics.Metrics`.
        settings: `app.Settings`.
        viewer: `static.Viewer`.
    """

    def __init__(self, handlers, metrics, settings, viewer):
        self.handlers = handlers
        self.metrics = metrics
        self.settings = settings
        self.viewer = viewer
        self.workers = ThreadPoolExecutor(settings.threads, thread_name_prefix="rest")
        self.helpers = ThreadPoolExecutor(HELPERS, thread_name_prefix="rest-helper")
        self.writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="rest-writer")
        self.lock = threading.Lock()  # of the next two, which worker threads change
        self.in_work = 0
        self.uploaded = 0  # bytes of bodies that are in memory
        self.sending = 0  # bytes of arrays of answers that are being sent
        self.is_stopping = False

    def close(self):
        """Forgets what has not been begun."""
        for executor in (self.workers, self.helpers, self.writers):
            executor.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope, receive, send):
        """ASGI entry. `scope["connection"]` is the `connection.Connection`."""
        method, path = scope["method"], scope["raw_path"].decode("latin-1")
        if re.match("/v1/", path, re.IGNORECASE):
            response = await self._api(method, path, scope, receive)
            if response is not None and self.settings.cors:
                response = response._replace(headers=[*response.headers, *CORS])
        elif path == self.settings.metrics_path:
            response = await self._metrics(method)
        elif scope["path"] == "/viewer" or scope["path"].startswith("/viewer/"):
            tag = _header(scope, b"if-none-match")
            response = await _in(self.helpers, self.viewer.answer, method, scope["path"], tag)
        else:
            response = error_response(404, f"There is no {path}.")
        if response is not None:
            self.sending += response.held
            try:
                await self._send(response, scope["connection"], send)
            finally:
                self.sending -= response.held

    async def _api(self, method, path, scope, receive):
        if method == "OPTIONS" and self.settings.cors:
            allowed = re.match(b"https?://", _header(scope, b"origin"))
            return Response(200 if allowed else 403, [], b"")
        body = await self._read(scope, receive)
        if not isinstance(body, bytes):
            return body
        request = _Request(method, path, body, scope["connection"])
        self._count(uploaded=len(body))
        del body
        try:
            refusal = None
            if b"gzip" in _header(scope, b"content-encoding"):
                refusal = self._refuse(method) or await self._unzip(request)
            return refusal or self._afford(await self._work(request))
        finally:
            if not request.is_submitted:
                self._count(uploaded=-len(request.body))

    async def _read(self, scope, receive):
        """The body; a `Response` if it is refused; None if the client has gone or was too slow."""
        connection, limit = scope["connection"], self.settings.max_body_bytes
        claimed = _header(scope, b"content-length")
        refusal = self._too_large() if claimed.isdigit() and int(claimed[:20]) > limit else None
        if refusal is not None and _header(scope, b"expect"):
            return refusal
        chunks, kept, length, begin = [], 0, 0, time.monotonic()
        try:
            while True:
                message = await self._receive(connection, receive, begin + PATIENCE + length / RATE)
                if message["type"] != "http.request":
                    return None
                chunk = message["body"]
                length += len(chunk)
                if length > limit:
                    refusal = refusal or self._too_large()
                elif self.uploaded + len(chunk) > self.settings.max_upload_bytes:
                    refusal = refusal or _too_many()
                if refusal is None:
                    chunks.append(chunk)
                    kept += len(chunk)
                    self._count(uploaded=len(chunk))
                # The rest of a refused body is read, within reason: a client that is still writing would not see why.
                if not message["more_body"] or length > 4 * limit:
                    return b"".join(chunks) if refusal is None else refusal
        finally:
            self._count(uploaded=-kept)

    async def _unzip(self, request):
        """Puts what is in a body into its place; a `Response` if it is refused."""
        limit = self.settings.max_body_bytes
        found = await _in(self.writers, api.unzip, request.body, limit)
        if found is None:
            return error_response(413, f"Request body is larger than {limit} bytes after decompression.")
        more = len(found) - len(request.body)
        if self.uploaded + more > self.settings.max_upload_bytes:
            return _too_many()
        self._count(uploaded=more)
        request.body = found
        return None

    def _too_large(self):
        return error_response(413, f"Request body is larger than {self.settings.max_body_bytes} bytes.", CLOSE)

    async def _receive(self, connection, receive, deadline):
        timer = connection.loop.call_later(max(0, deadline - time.monotonic()), connection.time_out)
        try:
            return await receive()
        finally:
            timer.cancel()

    def _refuse(self, method):
        """A `Response` if there is no place for a request, else None."""
        if self.is_stopping:
            return error_response(503, "The server is being stopped.", CLOSE)
        if method != "GET" and self.in_work >= self.settings.max_in_work:
            problem = f"{self.settings.max_in_work} requests are in work, as many as there may be."
            return error_response(429, problem, LATER)
        return None

    async def _work(self, request):
        refusal = self._refuse(request.method)
        if refusal is not None:
            return refusal
        if request.method == "GET":
            return await _in(self.helpers, self._answer, request)
        job = self._submit(request)
        future = asyncio.wrap_future(job)
        await asyncio.wait([future], timeout=self.settings.timeout)
        if future.done():
            return future.result()
        request.is_given_up = True
        if job.cancel():  # else a thread has begun; it goes on, and its place stays taken until it is done
            request.body = None  # the queue of the threads keeps what was cancelled until its turn
        return error_response(504, "Timed out waiting for notification")

    def _submit(self, request):
        """The job of a worker, which has the body in memory until it is done, whether or not anybody waits for it."""
        size = len(request.body)
        job = self.workers.submit(self._answer, request)
        request.is_submitted = True
        self._count(1)
        job.add_done_callback(lambda _: self._count(-1, -size))
        return job

    def _count(self, in_work=0, uploaded=0):
        with self.lock:
            self.in_work += in_work
            self.uploaded += uploaded

    def _answer(self, request):
        if not request.is_waiting():
            return None
        with waiting.asked(request.is_waiting):
            return api.answer(self.handlers, self.metrics, request.method, request.path, request.body)

    def _afford(self, response):
        """The response, unless too much is being sent. One is sent however large it is."""
        held = 0 if response is None else response.held
        if held and self.sending and self.sending + held > self.settings.max_download_bytes:
            return error_response(429, "Too many bytes of answers are being sent.", LATER)
        return response

    async def _metrics(self, method):
        if method not in ("GET", "HEAD"):
            return error_response(405, f"{method} is not possible for the metrics.", (b"allow", b"GET, HEAD"))
        page = await _in(self.helpers, self.metrics.text)
        return Response(200, [TEXT], page.encode())

    async def _send(self, response, connection, send):
        status, headers, body, more, _ = response
        if more is None and status != 304:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        begin, length = time.monotonic(), 0
        while not connection.gone:
            # The next chunk is written when this one is on its way: a slow reader holds memory, not a thread.
            length += len(body)
            patience = begin + PATIENCE + length / RATE - time.monotonic()
            timer = connection.loop.call_later(max(0, patience), connection.abort)
            try:
                await send({"type": "http.response.body", "body": body, "more_body": more is not None})
            finally:
                timer.cancel()
            if more is None:
                return
            body = await _in(self.writers, next, more, None)
            if body is None:
                body, more = b"", None


class _Request:
    """What a worker is given, and whether anybody waits for its answer.

    That it took too long is said by the event loop, which answers then: no other thread has a clock of its own.
    """

    def __init__(self, method, path, body, connection):
        self.method, self.path, self.body, self.connection = method, path, body, connection
        self.is_submitted = self.is_given_up = False

    def is_waiting(self):
        return not (self.is_given_up or self.connection.gone)


async def _in(executor, function, *arguments):
    return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)


def _too_many():
    return error_response(429, "Too many bytes of requests are being received.", CLOSE)


def _header(scope, name):
    return next((value for key, value in scope["headers"] if key == name), b"")
