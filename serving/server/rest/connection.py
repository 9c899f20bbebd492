"""HTTP connections that cannot be held for ever.

uvicorn's protocol waits without end for the headers of a request, however long they are, and does not tell the
application that a client has gone. This one does: `scope["connection"]` has `gone`, `abort` and `time_out`.
"""

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEADER_SECONDS = 30.0
HEADER_BYTES = 1 << 16


class Connection(HttpToolsProtocol):
    """uvicorn's httptools protocol with limits on time and size of headers."""

    gone = False
    _header_timer = None
    _header_bytes = 0

    def connection_made(self, transport):
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc):
        self.gone = True
        self._headers_are_here()
        super().connection_lost(exc)

    def data_received(self, data):
        awaited = self._header_timer
        super().data_received(data)
        if awaited is not None and self._header_timer is awaited:  # all of `data` belongs to the same headers
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._refuse(431, b'{"error":"Request headers are too long."}')

    def on_message_begin(self):
        super().on_message_begin()
        self.scope["connection"] = self
        self._await_headers()

    def on_headers_complete(self):
        self._headers_are_here()
        super().on_headers_complete()

    def send_400_response(self, msg):
        self._refuse(400, b'{"error":"%b"}' % msg.encode())

    def timeout_keep_alive_handler(self):
        """Closing would wait for a client that does not read the end of its answer."""
        self.abort()

    def abort(self):
        """Closes at once, without waiting for a client that does not read."""
        self.transport.abort()

    def time_out(self):
        """Ends a request whose body does not arrive. No response may have been started."""
        self._refuse(408, b'{"error":"Timed out waiting for the body of the request."}')

    def _await_headers(self):
        self._headers_are_here()
        self._header_bytes = 0
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._headers_do_not_come)

    def _headers_do_not_come(self):
        if self.cycle is None or self.cycle.response_complete:
            self.abort()
        else:  # the answer to the request before is still under way
            self._await_headers()

    def _headers_are_here(self):
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, status, body):
        self._headers_are_here()
        if not self.transport.is_closing():
            headers = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + headers + body)
            self.transport.close()
