"""A subject behind a URL: `http:URL` or `https:URL`. The body of a POST is a call, that of its response the reply.

On the standard library's `http.client`, because a verdict depends on what is sent: no proxy from the environment, no
redirect, and above all nothing sent twice. The kit itself decides what a client sends again.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
import time
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from conformance.adapters import wire
from conformance.adapters.subject import TIMEOUT, AdapterError, gone
from conformance.interface.answers import name_of
from conformance.interface.messages import Answer, Call, Crash, Done, Hello, Identity, Request, Restart, Unknown

IDLE: Final = 2.0
"""Seconds after which a connection is not used again: its server may be about to close it."""

BUSY: Final = (408, 425, 429)
"""Statuses below 500 that say nothing of the call, but something of the network or the load."""


class _NoConnectionError(Exception):
    """Nobody is there: the call was not sent."""


class _BrokenError(Exception):
    """The call was sent, perhaps, and no whole answer came."""


class HttpSubject:
    """Safe for threads: each call has a connection for itself. `at_close`: called last. Raises `AdapterError` if nobody
    answers `hello`."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT,
        owner_url: str | None = None,
        at_close: Callable[[], object] = lambda: None,
    ) -> None:
        self._url = url
        self._name = f"the subject at {url}"
        self._timeout = timeout
        self._owner_url = owner_url
        self._at_close = at_close
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port)
        self._secure = parts.scheme == "https"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._open: set[http.client.HTTPConnection] = set()
        self._busy: dict[http.client.HTTPConnection, float] = {}
        """Until when each may take."""
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"deadlines of {url}", daemon=True).start()
        try:
            self.identity: Identity = self._opened()
        except AdapterError:
            self.close()
            raise

    def _opened(self) -> Identity:
        try:
            answer = self._exchange("kit", Hello(owner_url=self._owner_url))
        except _NoConnectionError as error:
            raise AdapterError(f"nobody is there at {self._url}: {error}. Start the subject before the kit") from error
        if isinstance(answer, Unknown):
            raise AdapterError(f"{self._name} does not answer `hello`: {answer.reason}")
        return wire.identity_of(answer, self._name)

    def ask(self, client: str, request: Request) -> Answer:
        if self._closed.is_set():
            return gone("it was closed")
        if isinstance(request, Hello) and request.owner_url is None:
            request = Hello(owner_url=self._owner_url)
        try:
            answer = self._exchange(client, request)
        except _NoConnectionError as error:
            return gone(str(error))
        if isinstance(request, Hello):
            self._same(answer)
        elif isinstance(request, Restart) and isinstance(answer, Done):
            self._same(self.ask("kit", Hello(owner_url=self._owner_url)))
        return answer

    def _same(self, answer: Answer) -> None:
        if not isinstance(answer, Unknown):
            wire.same_identity(self.identity, wire.identity_of(answer, self._name), self._name)

    def _exchange(self, client: str, request: Request) -> Answer:
        with self._lock:
            call = Call(id=next(self._numbers), client=client, request=request)
        try:
            status, body = self._post(wire.encode(call))
        except TimeoutError:
            return Unknown(reason=f"no answer within {self._timeout:g} s")
        except _BrokenError as error:
            return Done() if isinstance(request, Crash) else gone(str(error))
        if status >= 500 or status in BUSY:
            return Unknown(reason=f"HTTP status {status}: {wire.shown(body)}")
        problem = ""
        if status != 200:
            problem = (
                f"with HTTP status {status} and {wire.shown(body)}. A reply comes with status 200; calls are POSTed "
                f"to exactly this URL, and a refusal is an answer such as `rejected`"
            )
        elif len(body) > wire.LONGEST:
            problem = f"by more than {wire.LONGEST:,} bytes, which begin {wire.shown(body[:200])}"
        if problem:
            raise AdapterError(f"{self._name}: {wire.asked(call)}, was answered {problem}")
        reply = wire.reply_of(body, f"{self._name} answered `{name_of(request)}` by")
        if reply.id != call.id:
            raise AdapterError(
                f"{self._name}: {wire.asked(call)}, was answered by a reply to call {reply.id}. "
                f'"id" is the one of the call, given back'
            )
        return wire.checked(call, reply.answer, self._name)

    # Connections

    def _post(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of the response. Raises `TimeoutError`, `_NoConnectionError`, `_BrokenError`."""
        deadline = time.monotonic() + self._timeout
        connection = self._connected()
        self._busy[connection] = deadline
        try:
            connection.request(
                "POST", self._target, body, {"Content-Type": "application/json", "Accept": "application/json"}
            )
            response = connection.getresponse()
            received = response.read(wire.LONGEST + 1)
            if response.length and len(received) <= wire.LONGEST:
                raise http.client.IncompleteRead(received, response.length)
            reusable = response.isclosed() and not response.will_close
        except (OSError, http.client.HTTPException) as error:
            self._drop(connection)
            if time.monotonic() >= deadline:
                raise TimeoutError from error
            raise _BrokenError(f"the connection broke: {_words(error)}") from error
        finally:
            self._busy.pop(connection, None)
        self._release(connection, reusable=reusable)
        return response.status, received

    def _watch(self) -> None:
        """A socket's own timeout is for each read alone: a server that sends a byte a second would never reach it."""
        while not self._closed.wait(min(0.2, self._timeout / 4)):
            now = time.monotonic()
            for connection, deadline in list(self._busy.items()):
                if now >= deadline:
                    _hang_up(connection)

    def _connected(self) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < IDLE and not _hung_up(connection):
                    return connection
                self._open.discard(connection)
                connection.close()
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        host, port = self._address
        connection = kind(host, port, timeout=self._timeout)
        try:
            connection.connect()
        except TimeoutError:
            raise
        except OSError as error:
            raise _NoConnectionError(_words(error)) from error
        with self._lock:
            self._open.add(connection)
        return connection

    def _release(self, connection: http.client.HTTPConnection, *, reusable: bool) -> None:
        if not reusable or self._closed.is_set():
            self._drop(connection)
            return
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Hang up. Whoever waits for an answer does not get it. Idempotent; the subject itself goes on."""
        self._closed.set()
        with self._lock:
            connections, self._open, self._idle = self._open, set(), []
        for connection in connections:
            _hang_up(connection)
            connection.close()
        self._at_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _hung_up(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed an idle connection, or sent what nobody asked for."""
    if connection.sock is None:
        return True
    ready = select.poll()
    ready.register(connection.sock, select.POLLIN)
    return bool(ready.poll(0))


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Wakes whoever reads from it."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _words(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower() if isinstance(error, ConnectionError) else str(text)
