"""Serves the interface at a URL: a subject of this process to the kit, or the kit's own owner to a client under test.

Every POST is one call, whatever its path; the response is the reply. There is no authentication.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext

import msgspec

from conformance.adapters import wire
from conformance.interface.messages import Answer, Call, Reply, Request
from conformance.interface.subject import AdapterError
from conformance.proxy.listener import BodyError, Handler, Listener, is_loopback


class HttpServer(Listener):
    """Asks `ask(client, request)` in its own threads: one at a time, unless `serialised` is false.

    Raises `OSError` if it cannot listen there, and `ValueError` for a host that other machines can reach, unless
    `public`.
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
            raise ValueError(f"{host!r} can be reached by other machines, and there is no authentication")
        turn = threading.Lock() if serialised else nullcontext()

        def reply(call: Call) -> Reply:
            with turn:
                return Reply(id=call.id, answer=ask(call.client, call.request))

        super().__init__(host, port, _handler_for(reply))
        self.url = f"{self.url}/"


def _handler_for(reply: Callable[[Call], Reply]) -> type[Handler]:
    class Calls(Handler):
        def do_POST(self) -> None:  # noqa: N802  # the name is the base class's
            try:
                self._send(200, wire.encode(reply(wire.decode(self.body(wire.LONGEST), Call))))
            except BodyError as error:
                self.close_connection = True
                self._send(error.status, f"{error}; a call is a body of at most {wire.LONGEST:,} bytes".encode())
            except msgspec.DecodeError as error:
                self._send(400, f"invalid call: {error}".encode())
            except AdapterError as error:
                self._send(400, error.problem.encode())
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001  # a subject that raises has not answered
                self._send(500, f"{type(error).__name__}: {error}".encode())

        def do_GET(self) -> None:  # noqa: N802
            self._send(405, b"POST a call here; its schema: delta-commit-conformance schema interface\n")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

    return Calls
