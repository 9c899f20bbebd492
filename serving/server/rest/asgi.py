"""The ASGI application: bodies in, chunks out, everything else in worker threads.

The event loop never waits for JSON or for a model. What clients can hold is bounded in every direction:

- a body has a size, and uploads share a budget; what is too large is read and dropped, then answered with 413;
- an upload that takes longer than `PATIENCE` seconds has to keep up `RATE` bytes per second, and so has a download;
- so many requests for predictions are in work at once, others get 429 (RESOURCE_EXHAUSTED) without waiting;
- a request that is not done in time gets 504 (DEADLINE_EXCEEDED), and one whose client has gone is not begun.

Questions about state (GET) have threads of their own, so that a probe of a busy server is answered.
"""

import asyncio
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from serving.server.rest import api
from serving.server.rest.api import Response, error_response

PATIENCE = 30.0
RATE = 1 << 16
HELPERS = 4
CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
]
CLOSE = (b"connection", b"close")
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
        self.in_work = 0
        self.lock = threading.Lock()  # of `in_work`, which worker threads change
        self.uploaded = 0  # bytes of bodies that are in memory
        self.is_stopping = False

    def close(self):
        """Forgets what has not been begun."""
        self.workers.shutdown(wait=False, cancel_futures=True)
        self.helpers.shutdown(wait=False, cancel_futures=True)

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
            response = await self._in_helper(self.viewer.answer, method, scope["path"], tag)
        else:
            response = error_response(404, f"There is no {path}.")
        if response is not None:
            await self._send(response, scope["connection"], send)

    async def _api(self, method, path, scope, receive):
        if method == "OPTIONS" and self.settings.cors:
            allowed = re.match(b"https?://", _header(scope, b"origin"))
            return Response(200 if allowed else 403, [], b"")
        body = await self._read(scope, receive)
        if not isinstance(body, bytes):
            return body
        self.uploaded += len(body)
        try:
            return await self._work(method, path, body, scope)
        finally:
            self.uploaded -= len(body)

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
                    refusal = refusal or error_response(429, "Too many bytes of requests are being received.", CLOSE)
                if refusal is None:
                    chunks.append(chunk)
                    kept += len(chunk)
                    self.uploaded += len(chunk)
                # The rest of a refused body is read, within reason: a client that is still writing would not see why.
                if not message["more_body"] or length > 4 * limit:
                    return b"".join(chunks) if refusal is None else refusal
        finally:
            self.uploaded -= kept

    def _too_large(self):
        return error_response(413, f"Request body is larger than {self.settings.max_body_bytes} bytes.", CLOSE)

    async def _receive(self, connection, receive, deadline):
        timer = connection.loop.call_later(max(0, deadline - time.monotonic()), connection.time_out)
        try:
            return await receive()
        finally:
            timer.cancel()

    async def _work(self, method, path, body, scope):
        if self.is_stopping:
            return error_response(503, "The server is being stopped.", CLOSE)
        if method == "GET":
            return await self._in_helper(self._answer, method, path, body, scope)
        if self.in_work >= self.settings.max_in_work:
            problem = f"{self.settings.max_in_work} requests are in work, as many as there may be."
            return error_response(429, problem, (b"retry-after", b"1"))
        self._count(1)
        job = self.workers.submit(self._answer, method, path, body, scope)
        job.add_done_callback(lambda _: self._count(-1))
        future = asyncio.wrap_future(job)
        await asyncio.wait([future], timeout=self.settings.timeout)
        if future.done():
            return future.result()
        job.cancel()  # if it has not begun; else the thread goes on, and its place stays taken until it is done
        return error_response(504, "Timed out waiting for notification")

    def _count(self, change):
        with self.lock:
            self.in_work += change

    def _answer(self, method, path, body, scope):
        if scope["connection"].gone:
            return None
        encoding = _header(scope, b"content-encoding").decode("latin-1")
        return api.answer(self.handlers, self.metrics, method, path, body, encoding, self.settings.max_body_bytes)

    async def _metrics(self, method):
        if method not in ("GET", "HEAD"):
            return error_response(405, f"{method} is not possible for the metrics.", (b"allow", b"GET, HEAD"))
        page = await self._in_helper(self.metrics.text)
        return Response(200, [TEXT], page.encode())

    async def _in_helper(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self.helpers, function, *arguments)

    async def _send(self, response, connection, send):
        status, headers, body, more = response
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
            body = await self._in_helper(next, more, None)
            if body is None:
                body, more = b"", None


def _header(scope, name):
    return next((value for key, value in scope["headers"] if key == name), b"")
