"""An HTTP server that is closed at once: subjects that are served at a URL, and the kit's own owner, use it.

One thread serves each connection of a client, on the standard library, because the kit controls when a connection ends.
"""

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class BodyError(Exception):
    """The body of a request cannot be read; the connection must be closed. `status`: that of the response."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, and reads complete bodies."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body are sent together

    def body(self, longest: int | None = None) -> bytes:
        """The body of the request; without a length it is empty. Raises `BodyError` for an incomplete body,
        invalid framing, or more than `longest` bytes."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks(longest)
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal():
            raise BodyError(411, f"invalid Content-Length {length!r}")
        return self._read(int(length), longest)

    def _chunks(self, longest: int | None) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(100).split(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                raise BodyError(400, "invalid chunk of the body") from None
            body += self._read(size, None if longest is None else longest - len(body))
            if size == 0:
                while self.rfile.readline(65_536).strip():  # trailers
                    pass
                return bytes(body)
            self.rfile.readline(10)

    def _read(self, size: int, longest: int | None) -> bytes:
        if size < 0 or (longest is not None and size > longest):
            raise BodyError(413, "the body is too long")
        body = self.rfile.read(size)
        if len(body) != size:
            raise BodyError(400, "the body is incomplete")
        return body

    def reply(self, status: int, content: bytes, kind: str) -> None:
        """Send a response with this content of that type; after HEAD without it."""
        shown = b"" if self.command == "HEAD" else content
        self.send_response(status)
        if shown:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(shown)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the base class's
        """Write no line to stderr for a request."""


class Listener(ThreadingHTTPServer):
    """Listens on any free port of the loopback interface, a thread for each connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, handler: type[Handler]) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and close every connection. Idempotent."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._connections):
            self.shutdown_request(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that closed their connection."""

    def __exit__(self, *error: object) -> None:
        self.close()
