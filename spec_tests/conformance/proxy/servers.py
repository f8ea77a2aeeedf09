"""A server for the proxy to stand in front of: it remembers every request that reached it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Remembering:
    """`url`, and the bodies of what arrived, in its order."""

    url: str = ""
    arrived: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    """Until it is set, a body that says `slow` is not answered."""


@contextmanager
def remembering() -> Iterator[Remembering]:
    """Answers 201 with the number of the request, but 409 to a body that says `taken`."""
    seen = Remembering()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                seen.arrived.append(body)
                seen.headers.append(dict(self.headers.items()))
                number = len(seen.arrived)
            if body == b"slow":
                seen.go_on.wait()
            answer = json.dumps({"number": number}).encode()
            self.send_response(409 if body == b"taken" else 201)
            self.send_header("ETag", f'"{number}"')
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nhello\r\n0\r\n\r\n")

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "4711")
            self.end_headers()

        def do_DELETE(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the base class's
            """It is not read."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
