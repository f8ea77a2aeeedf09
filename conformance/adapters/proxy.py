"""An HTTP proxy that loses, repeats and delays requests and answers on demand.

    with FaultProxy("http://127.0.0.1:8080") as proxy:
        proxy.next(Fault.DROP_RESPONSE, match=Match(method="POST", body="add-commit"))
        client_of(proxy.url).commit(...)            # it lands, and the answer is lost
        assert proxy.counts()[Fault.DROP_RESPONSE] == 1

It has every network fault of FIELD_BUGS.md#faults, and works in front of any HTTP server: a subject of the kit, a
catalog, the reference.

One thread serves each connection of a client, on the standard library. A proxy from a library would pool connections
and retry, and so hide the faults. This one controls the moment at which a connection breaks, and sends a request twice
only if a fault requires it. Subjects that are served at a URL use its `Listener` too.
"""

import http.client
import ipaddress
import json
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from conformance.interface.subject import Closing


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
    """Listens on a host and port (0: any free port), a thread for each connection. Raises `OSError` if it cannot."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, handler: type[Handler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._connections: set[socket.socket] = set()
        super().__init__((host, port), handler)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_address[1]}"
        self._thread = Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it is closed."""
        self._thread.join()

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


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Fault(StrEnum):
    """The fault of one request. Unless stated otherwise, its client sees a broken connection."""

    DROP_REQUEST = "drop-request"
    """The server never sees it."""
    DROP_RESPONSE = "drop-response"
    """The server carries out the request; the answer is lost."""
    DUPLICATE = "duplicate"
    """The server sees it twice, one after the other; the client gets the first answer."""
    DUPLICATE_SECOND = "duplicate-second"
    """The server sees it twice; the client gets the second answer. From an owner without the profile
    `idempotent-retry`, that may be a conflict with the client's own commit."""
    DELAY = "delay"
    """It reaches the server after another request with the same method and path succeeded, for example after another
    client's commit."""
    BUSY = "429"
    """The server never sees it; the client is answered 429."""
    UNAVAILABLE = "503"
    """The server never sees it; the client is answered 503."""
    UNAVAILABLE_LANDED = "503-landed"
    """The server carries out the request; the client is answered 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A filter of requests. Fields that are not given match everything."""

    method: str | None = None
    path: str | None = None
    """A regular expression, found anywhere in path and query."""
    body: str | None = None
    """A text that the body contains."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.path or "")
        except re.error as error:
            raise ValueError(f"invalid path {self.path!r}; expected a regular expression: {error}") from error

    def __call__(self, method: str, target: str, body: bytes) -> bool:
        return (
            (self.method is None or self.method == method)
            and (self.path is None or re.search(self.path, target) is not None)
            and (self.body is None or self.body.encode() in body)
        )


ANYTHING: Final = Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Random faults by seed: the n-th matching request has the same fault in every run, from any client. `shares`:
    shares of the matching requests, from 0 to 1, together at most 1. `once`: a byte-for-byte repetition passes without
    a fault, so that a client that retries gets an answer in the end."""

    seed: int
    shares: Mapping[Fault, float]
    match: Match = field(default=ANYTHING)
    once: bool = False

    def __post_init__(self) -> None:
        if any(share < 0 for share in self.shares.values()) or sum(self.shares.values()) > 1:
            given = ", ".join(f"{fault}={share:g}" for fault, share in self.shares.items())
            raise ValueError(f"invalid shares {given}; expected values from 0 to 1, together at most 1")

    def fault_of(self, number: int) -> Fault | None:
        """The fault of the `number`-th matching request, from 0."""
        drawn = Random(f"{self.seed}/{number}").random()
        for fault, share in self.shares.items():
            if drawn < share:
                return fault
            drawn -= share
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The outcome of one request. Headers are not stored, because they contain tokens."""

    number: int
    """The number of the request, from 1, in the order of arrival at the proxy."""
    method: str
    target: str
    """Path and query."""
    fault: Fault | None
    reached: int
    """The number of times that it reached the server."""
    status: int | None
    """The server's status; None if it did not answer or did not get the request."""
    lost: bytes | None = None
    """The body of the server's answer, if the client did not get it."""
    overtaken: bool = False
    """For a delayed request: whether another request overtook it. If none did before the timeout, it was sent
    anyway."""


PATIENCE: Final = 5.0
"""Seconds that a delayed request waits to be overtaken."""
TIMEOUT: Final = 60.0
"""Seconds that the server may take for each read."""
KEPT: Final = 10_000
"""The maximum number of stored exchanges; older ones are only counted."""

_HOP_BY_HOP: Final = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade", "http2-settings", "content-length", "host", "expect")
)  # fmt: skip
"""Headers of a single connection, which the proxy does not forward."""
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_STATUS: Final = {Fault.BUSY: 429, Fault.UNAVAILABLE: 503, Fault.UNAVAILABLE_LANDED: 503}
_UNSEEN: Final = (Fault.DROP_REQUEST, Fault.BUSY, Fault.UNAVAILABLE)
"""Faults with which the request does not reach the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


_Kind = tuple[Match, str, str]
"""Requests that match, with one method and one target."""


class FaultProxy(Closing):
    """A proxy in front of `server`, an http or https URL; with port 0, `url` has the chosen port. Without a plan and
    without `next` it changes nothing. No other machine can reach it, because requests carry tokens. Safe for threads.

    Raises `ValueError` for a URL without a host.
    """

    def __init__(self, server: str, *, plan: Plan | None = None, port: int = 0, patience: float = PATIENCE) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"invalid URL {server!r} of a server; expected for example http://127.0.0.1:8080")
        self._secure, self._address = parts.scheme == "https", (parts.hostname, parts.port)
        self._plan, self._patience = plan, patience
        self._planned = 0
        self._seen: set[tuple[str, str, bytes]] = set()
        self._next: list[tuple[Match, Fault]] = []
        self._changed = threading.Condition()
        self._number = 0
        self._successes: Counter[_Kind] = Counter()
        self._watched: Counter[_Kind] = Counter()
        self._exchanges: deque[Exchange] = deque(maxlen=KEPT)
        self._counts: Counter[Fault] = Counter()
        self._closed = False
        self._listener = Listener("127.0.0.1", port, _handler_for(self._handle))
        self.url = f"{self._listener.url}{parts.path.rstrip('/')}"
        """The URL for clients instead of the server's, with the same path."""

    def next(self, *faults: Fault, match: Match = ANYTHING) -> None:
        """Give the next matching requests these faults, in this order; the plan applies to all others."""
        with self._changed:
            self._next.extend((match, fault) for fault in faults)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The outcomes of requests, in the order in which they became known."""
        with self._changed:
            return tuple(self._exchanges)

    def counts(self) -> Counter[Fault]:
        """The number of faults of each kind."""
        with self._changed:
            return Counter(self._counts)

    def await_delayed(self, count: int = 1, *, seconds: float = TIMEOUT) -> None:
        """Wait until this many delayed requests wait. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._watched.total() >= count, seconds):
                waiting = self._watched.total()
                raise TimeoutError(f"expected {count} delayed requests within {seconds:g} s; {waiting} wait")

    def await_exchange(self, seen: Callable[[Exchange], bool], *, seconds: float = TIMEOUT) -> Exchange:
        """Wait for the first exchange for which `seen` is true. Raises `TimeoutError`."""
        with self._changed:
            exchange = self._changed.wait_for(lambda: next(filter(seen, self._exchanges), None), seconds)
        if exchange is None:
            raise TimeoutError(f"no such exchange within {seconds:g} s")
        return exchange

    def close(self) -> None:
        """Stop listening, release delayed requests, and close all connections. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._listener.close()

    # One request

    def _handle(self, request: _Asked) -> _Answered | None:
        """The answer to the client; None to close its connection."""
        number, fault, match = self._arrived(request)
        overtaken = fault is Fault.DELAY and self._held_back((match, request.method, request.target))
        reached, answer = 0, None
        if fault not in _UNSEEN:
            reached, answer = 1, self._forwarded(request)
        if fault in (Fault.DUPLICATE, Fault.DUPLICATE_SECOND):
            again = self._forwarded(request)
            reached += again is not None
            answer = again if fault is Fault.DUPLICATE_SECOND else answer
        sent = answer if fault not in (*_STATUS, Fault.DROP_REQUEST, Fault.DROP_RESPONSE) else None
        if fault in _STATUS:
            sent = _refusal(_STATUS[fault])
        lost = answer.body if answer is not None and sent is not answer else None
        self._ended(
            request,
            Exchange(
                number=number, method=request.method, target=request.target, fault=fault, reached=reached,
                status=None if answer is None else answer.status, lost=lost, overtaken=overtaken,
            ),
        )  # fmt: skip
        return sent

    def _arrived(self, request: _Asked) -> tuple[int, Fault | None, Match]:
        """The request's number, its fault, and the filter that chose the fault."""
        with self._changed:
            self._number += 1
            for index, (match, fault) in enumerate(self._next):
                if match(request.method, request.target, request.body):
                    del self._next[index]
                    self._counts[fault] += 1
                    return self._number, fault, match
            plan = self._plan
            if plan is None or not plan.match(request.method, request.target, request.body):
                return self._number, None, ANYTHING
            same = (request.method, request.target, sha256(request.body).digest())
            if plan.once and same in self._seen:
                return self._number, None, plan.match
            self._seen.add(same)
            planned = plan.fault_of(self._planned)
            self._planned += 1
            if planned is not None:
                self._counts[planned] += 1
            return self._number, planned, plan.match

    def _held_back(self, kind: _Kind) -> bool:
        """Wait until another request of the kind was answered with success. False if none was."""
        with self._changed:
            before = self._successes[kind]
            self._watched[kind] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._successes[kind] > before, self._patience)
            overtaken = self._successes[kind] > before
            self._watched[kind] -= 1
            if not self._watched[kind]:
                del self._watched[kind], self._successes[kind]
            return overtaken

    def _ended(self, request: _Asked, exchange: Exchange) -> None:
        succeeded = exchange.status is not None and 200 <= exchange.status < 300
        with self._changed:
            self._exchanges.append(exchange)
            for kind in self._watched if succeeded else ():
                match, *where = kind
                if where == [request.method, request.target] and match(request.method, request.target, request.body):
                    self._successes[kind] += 1
            self._changed.notify_all()

    def _forwarded(self, request: _Asked) -> _Answered | None:
        """The server's complete answer; None if it does not answer. Each request has its own connection: after an error
        on a used one, it is unknown whether the server saw the request."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        host, port = self._address
        connection = kind(str(host), port, timeout=TIMEOUT)
        try:
            connection.putrequest(request.method, request.target, skip_accept_encoding=True)
            for name, value in _passed_on(request.headers):
                connection.putheader(name, value)
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.putheader("Connection", "close")
            connection.endheaders(request.body or None)
            response = connection.getresponse()
            body = response.read()
            return _Answered(status=response.status, headers=tuple(response.getheaders()), body=body)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def _passed_on(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


def _refusal(status: int) -> _Answered:
    """An answer in the shape of the Delta API; clients of other protocols need only the status."""
    kind = "ResourceExhaustedException" if status == 429 else "ServiceUnavailableException"
    error = {"type": kind, "code": status, "message": "the fault proxy answered this"}
    body = json.dumps({"error": error}).encode()
    return _Answered(status=status, headers=(("Content-Type", "application/json"),), body=body)


def _handler_for(handle: Callable[[_Asked], _Answered | None]) -> type[Handler]:
    class Forwarding(Handler):
        def pass_on(self) -> None:
            try:
                request = _Asked(
                    method=self.command, target=self.path, headers=tuple(self.headers.items()), body=self.body()
                )
            except BodyError:
                return self._hang_up()
            answer = handle(request)
            if answer is None:
                return self._hang_up()
            self.send_response_only(answer.status)
            for name, value in _passed_on(answer.headers):
                self.send_header(name, value)
            if answer.status >= 200 and answer.status not in (204, 304):
                self.send_header("Content-Length", str(self._length(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)
            self.wfile.flush()
            return None

        def _length(self, answer: _Answered) -> int:
            """The length of the body; after HEAD, the length that the server states."""
            stated = next((value for name, value in answer.headers if name.lower() == "content-length"), "")
            return int(stated) if self.command == "HEAD" and stated.isdecimal() else len(answer.body)

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    for method in _METHODS:
        setattr(Forwarding, f"do_{method}", Forwarding.pass_on)
    return Forwarding
