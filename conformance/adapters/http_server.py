"""Offers the interface at a URL: to the kit, a subject in this process; to a client under test, the kit's own owner.

Every POST is one call, whatever its path; the response is the reply. It listens on this machine only, unless told
otherwise: there is no authentication.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

from conformance.adapters import wire
from conformance.interface.messages import Answer, Call, Reply, Request
from conformance.interface.subject import AdapterError


class HttpServer:
    """Asks `ask(client, request)` in its own threads: one at a time, unless `serialised` is false.

    Port 0 is a free one; `url` tells which. Raises `OSError` if it cannot listen there, and `ValueError` for a host
    that other machines can reach, unless `public`.
    """

    def __init__(
        self,
        ask: Callable[[str, Request], Answer],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        serialised: bool = True,
        public: bool = False,
    ) -> None:
        if not public and not is_loopback(host):
            raise ValueError(f"{host!r} can be reached by other machines, and nothing here asks who calls")
        self._ask = ask
        self._turn = threading.Lock() if serialised else None
        self._server = Listener((host, port), _handler_for(self.reply), ipv6=":" in host)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def reply(self, call: Call) -> Reply:
        """The reply to a call."""
        if self._turn is None:
            return Reply(id=call.id, answer=self._ask(call.client, call.request))
        with self._turn:
            return Reply(id=call.id, answer=self._ask(call.client, call.request))

    def wait(self) -> None:
        """Until it is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop listening, and hang up. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can call there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Listener(ThreadingHTTPServer):
    """A thread for each connection; `server_close` hangs up on all of them."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], *, ipv6: bool) -> None:
        self.address_family = socket.AF_INET6 if ipv6 else socket.AF_INET
        self._connections: set[socket.socket] = set()
        super().__init__(address, handler)

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
        """A client that hung up is no event."""


def _handler_for(reply: Callable[[Call], Reply]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body leave together

        def do_POST(self) -> None:
            try:
                body = self._body()
                if body is not None:
                    self._send(200, wire.encode(reply(wire.decode(body, Call))))
            except msgspec.DecodeError as error:
                self._send(400, f"this is no call of the interface: {error}".encode())
            except AdapterError as error:
                self._send(400, error.problem.encode())
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever was asked raised: there is no answer
                self._send(500, f"{type(error).__name__}: {error}".encode())

        def do_GET(self) -> None:
            self._send(405, b"POST a call here; `python -m conformance.interface` prints the schema of calls\n")

        def _body(self) -> bytes | None:
            """None: there is none that can be read, and that has been said."""
            if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
                return self._chunks()
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal():
                self._send(411, b"a call needs the header Content-Length\n", close=True)
                return None
            if int(length) > wire.LONGEST:
                self._send(413, f"a call has at most {wire.LONGEST:,} bytes\n".encode(), close=True)
                return None
            return self.rfile.read(int(length))

        def _chunks(self) -> bytes | None:
            body = bytearray()
            while True:
                try:
                    size = int(self.rfile.readline(100).split(b";")[0], 16)
                except ValueError:
                    self._send(400, b"this is no chunked body\n", close=True)
                    return None
                if size < 0 or len(body) + size > wire.LONGEST:
                    self._send(413, f"a call has at most {wire.LONGEST:,} bytes\n".encode(), close=True)
                    return None
                body += self.rfile.read(size)
                self.rfile.readline(10)
                if size == 0:
                    return bytes(body)

        def _send(self, status: int, body: bytes, *, close: bool = False) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            if close:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the base class's
            """Nobody reads a line for every call."""

    return Handler
