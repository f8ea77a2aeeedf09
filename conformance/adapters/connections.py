"""HTTP connections that send exactly the kit's requests, each once.

It uses the standard library's `http.client`, because a verdict depends on exactly what is sent: no proxy from the
environment, no redirect, no second attempt on another connection. The kit itself decides what a client sends again.
"""

import contextlib
import http.client
import select
import socket
import threading
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from conformance.adapters import wire

IDLE: Final = 2.0
"""Seconds after which a connection is not used again: its server may be about to close it."""


class NoConnectionError(Exception):
    """No connection: the request was not sent."""


class BrokenError(Exception):
    """The request may have been sent, and no complete answer arrived."""


class Connections:
    """Connections to the server of `url`; the path of the URL is ignored. Safe for threads: each request uses a
    connection of its own.

    `timeout`: seconds that one request may take, from the connection to the last byte of the answer. Without `reuse`,
    each connection is closed after its answer.
    """

    def __init__(self, url: str, *, timeout: float, reuse: bool = True) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port)
        self._secure = parts.scheme == "https"
        self._timeout, self._reuse = timeout, reuse
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._open: set[http.client.HTTPConnection] = set()
        self._busy: dict[http.client.HTTPConnection, float] = {}
        """The deadline of each connection in use."""
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"deadlines of {url}", daemon=True).start()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def send(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of the response. A body longer than `wire.LONGEST` is cut one byte after that length.
        Raises `TimeoutError`, `NoConnectionError`, `BrokenError`."""
        deadline = time.monotonic() + self._timeout
        connection = self._connect()
        self._busy[connection] = deadline
        try:
            connection.request(method, target, body, dict(headers or {}))
            response = connection.getresponse()
            received = response.read(wire.LONGEST + 1)
            if response.length and len(received) <= wire.LONGEST:
                raise http.client.IncompleteRead(received, response.length)
            reusable = self._reuse and response.isclosed() and not response.will_close
        except (OSError, http.client.HTTPException) as error:
            self._drop(connection)
            if time.monotonic() >= deadline:
                raise TimeoutError from error
            raise BrokenError(f"the connection broke: {_text_of(error)}") from error
        finally:
            self._busy.pop(connection, None)
        self._release(connection, reusable=reusable)
        return response.status, received

    def close(self) -> None:
        """Close every connection; requests that wait for an answer fail. Idempotent."""
        self._closed.set()
        with self._lock:
            connections, self._open, self._idle = self._open, set(), []
        for connection in connections:
            _hang_up(connection)
            connection.close()

    def _watch(self) -> None:
        """Enforce the deadlines. A socket's own timeout applies to each single read: a server that sends one byte per
        second would never exceed it."""
        while not self._closed.wait(min(0.2, self._timeout / 4)):
            now = time.monotonic()
            for connection, deadline in list(self._busy.items()):
                if now >= deadline:
                    _hang_up(connection)

    def _connect(self) -> http.client.HTTPConnection:
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
            raise NoConnectionError(_text_of(error)) from error
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


def _hung_up(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed an idle connection, or sent something without a request."""
    if connection.sock is None:
        return True
    ready = select.poll()
    ready.register(connection.sock, select.POLLIN)
    return bool(ready.poll(0))


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Shut the socket down, which wakes its reader."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _text_of(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower() if isinstance(error, ConnectionError) else str(text)
