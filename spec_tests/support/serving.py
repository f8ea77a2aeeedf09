"""Servers of tests: Python programs in processes of their own that print their URL, such as `commit-owner serve`, and
an HTTP proxy that loses, repeats and delays requests and answers on demand.

    with FaultProxy("http://127.0.0.1:8080") as proxy:
        proxy.next(Fault.DROP_RESPONSE, match=Match(method="POST", body="add-commit"))
        client_of(proxy.url).commit(...)            # it lands, and the answer is lost

A proxy from a library would pool connections and retry, and so hide the faults.
"""

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

from conformance.adapters.listener import Handler, Listener
from conformance.interface.subject import Closing

SERVE: Final = ("-c", "from refimpl.cli import main; main()", "serve", "--port", "0", "--log-level", "error", "-w")
"""The arguments of Python that serve the warehouse whose directory follows."""


@contextmanager
def started(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run Python with these arguments; yield the process and its URL. At the end, the process is killed."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


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
    """It reaches the server after another request with the same method, path and query succeeded, for example after
    another client's commit, or after `patience` seconds. The client gets the answer."""
    BUSY = "429"
    """The server never sees it; the client is answered 429."""
    UNAVAILABLE = "503"
    """The server never sees it; the client is answered 503."""
    UNAVAILABLE_LANDED = "503-landed"
    """The server carries out the request; the client is answered 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A filter of requests. `path`: a regular expression, found anywhere in path and query; `body`: a text in it."""

    method: str | None = None
    path: str = ""
    body: str = ""

    def __call__(self, request: "_Request") -> bool:
        same = self.method is None or self.method == request.method
        return same and re.search(self.path, request.target) is not None and self.body.encode() in request.body


ANYTHING: Final = Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Random faults by seed, in these shares of the matching requests."""

    seed: int
    shares: Mapping[Fault, float]
    match: Match = field(default=ANYTHING)

    def fault_of(self, number: int) -> Fault | None:
        """The fault of the `number`-th matching request, from 0."""
        drawn = Random(f"{self.seed}/{number}").random()
        for fault, share in self.shares.items():
            if drawn < share:
                return fault
            drawn -= share
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


_HOP_BY_HOP: Final = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade", "http2-settings", "content-length", "host", "expect")
)  # fmt: skip
"""Headers of a single connection, which the proxy does not forward."""
_STATUS: Final = {Fault.BUSY: 429, Fault.UNAVAILABLE: 503, Fault.UNAVAILABLE_LANDED: 503}
_UNSEEN: Final = (Fault.DROP_REQUEST, Fault.BUSY, Fault.UNAVAILABLE)
"""Faults with which the request does not reach the server."""


class FaultProxy(Closing):
    """A proxy in front of `server`. Without a plan and without `next` it changes nothing. Safe for threads.

    `patience`: seconds that a delayed request waits to be overtaken."""

    def __init__(self, server: str, *, plan: Plan | None = None, patience: float = 5.0) -> None:
        parts = urlsplit(server)
        self._address = (str(parts.hostname), parts.port)
        self._plan, self._patience = plan, patience
        self._planned = 0
        self._next: list[tuple[Match, Fault]] = []
        self._changed = threading.Condition()
        self._successes: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[Fault] = Counter()
        self._closed = False
        self._listener = Listener(_handler_for(self._handle))
        self.url = f"{self._listener.url}{parts.path.rstrip('/')}"

    def next(self, *faults: Fault, match: Match = ANYTHING) -> None:
        """Give the next matching requests these faults, in this order; the plan applies to all others."""
        with self._changed:
            self._next.extend((match, fault) for fault in faults)

    def counts(self) -> Counter[Fault]:
        """The number of faults of each kind."""
        with self._changed:
            return Counter(self._counts)

    def close(self) -> None:
        """Stop listening, release delayed requests, and close all connections. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._listener.close()

    def _handle(self, request: _Request) -> _Answer | None:
        """The answer to the client; None to close its connection."""
        fault = self._fault_of(request)
        if fault is Fault.DELAY:
            self._hold_back(request)
        answer = None if fault in _UNSEEN else self._forward(request)
        if fault in (Fault.DUPLICATE, Fault.DUPLICATE_SECOND):
            again = self._forward(request)
            answer = again if fault is Fault.DUPLICATE_SECOND else answer
        if answer is not None and 200 <= answer.status < 300:
            with self._changed:
                self._successes[request.method, request.target] += 1
                self._changed.notify_all()
        if fault in _STATUS:
            return _refusal(_STATUS[fault])
        return None if fault is Fault.DROP_RESPONSE else answer

    def _fault_of(self, request: _Request) -> Fault | None:
        with self._changed:
            fault = None
            chosen = next((index for index, (match, _) in enumerate(self._next) if match(request)), None)
            if chosen is not None:
                _, fault = self._next.pop(chosen)
            elif self._plan is not None and self._plan.match(request):
                fault = self._plan.fault_of(self._planned)
                self._planned += 1
            if fault is not None:
                self._counts[fault] += 1
            return fault

    def _hold_back(self, request: _Request) -> None:
        """Wait until another request with the same method and target was answered with success."""
        kind = (request.method, request.target)
        with self._changed:
            before = self._successes[kind]
            self._changed.wait_for(lambda: self._closed or self._successes[kind] > before, self._patience)

    def _forward(self, request: _Request) -> _Answer | None:
        """The server's complete answer; None if it does not answer. Each request has its own connection: after an error
        on a used one, it is unknown whether the server saw the request."""
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.putrequest(request.method, request.target, skip_accept_encoding=True)
            for name, value in _passed_on(request.headers):
                connection.putheader(name, value)
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.putheader("Connection", "close")
            connection.endheaders(request.body or None)
            response = connection.getresponse()
            return _Answer(status=response.status, headers=tuple(response.getheaders()), body=response.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def _passed_on(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


def _refusal(status: int) -> _Answer:
    """An answer in the form of the Delta API; clients of other protocols need only the status."""
    kind = "ResourceExhaustedException" if status == 429 else "InternalServerErrorException"
    body = json.dumps({"error": {"type": kind, "code": status, "message": "the fault proxy answered this"}}).encode()
    return _Answer(status=status, headers=(("Content-Type", "application/json"),), body=body)


def _handler_for(handle: Callable[[_Request], _Answer | None]) -> type[Handler]:
    class Forwarding(Handler):
        def answer(self) -> None:
            headers = tuple(self.headers.items())
            answer = handle(_Request(method=self.command, target=self.path, headers=headers, body=self.body()))
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response_only(answer.status)
            for name, value in _passed_on(answer.headers):
                self.send_header(name, value)
            if answer.status not in (204, 304):
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.wfile.flush()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    return Forwarding
