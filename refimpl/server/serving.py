"""One server process: uvicorn around the application, from its first line of output to a graceful stop."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

import refimpl
from refimpl.catalog_messages import SERVER_PUBLISHES_AFTER
from refimpl.commit_owner import MaintenancePolicy
from refimpl.errors import InvalidRequestError
from refimpl.server.access import is_loopback
from refimpl.server.application import Limits, Server, line
from refimpl.server.names import Names
from refimpl.server.scheduling import Publisher, shared_environment

logger = logging.getLogger("refimpl.server")

BACKLOG: Final = 2048

LAST_SECONDS: Final = 2.0
"""For calls whose clients were not answered in `Serving.stop_seconds`."""

LEAST_READ: Final = 16_384
"""Bytes of an answer that a client has to read in `Serving.header_seconds` to get the rest."""

FILES_BESIDE: Final = 200
"""Open files that a server needs besides its connections: the ledger's and the lock's of each thread, and logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How one server shall run."""

    warehouse: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0: one that is free."""
    catalog: str = "unity"
    schemas: tuple[str, ...] = ()
    policy: MaintenancePolicy = field(default_factory=lambda: MaintenancePolicy(backfill_every=SERVER_PUBLISHES_AFTER))
    """Of tables that are created over HTTP."""
    limits: Limits = field(default_factory=Limits)
    header_seconds: float = 10.0
    """For a connection to send a request's headers, and for a client to read a part of a long answer."""
    connections: int = 1000
    """At once, as far as the process may have so many files open; beyond that the one that has been idle for longest
    is closed."""
    stop_seconds: int = 20
    """For requests to end once the server shall stop."""
    log_level: str = "info"


def serve(wanted: Serving) -> None:
    """Serve until the process gets SIGINT or SIGTERM.

    The first line on the standard output is one JSON object with `url`, `catalog` and `warehouse`: from then on the
    server answers. Raises `InvalidRequestError` where it would be open to other machines without any token.

    It stops within `stop_seconds` and `LAST_SECONDS`. Where a call does not end by then, because the disk hangs, the
    process ends all the same, with status 1: that is a crash, which loses nothing that was acknowledged.
    """
    names = Names(wanted.catalog, wanted.schemas)
    publisher = Publisher(wanted.limits.threads)
    warehouse = refimpl.open(wanted.warehouse, environment=shared_environment(publisher))
    server = Server(
        warehouse, names, policy=wanted.policy, limits=wanted.limits, always_token=not is_loopback(wanted.host)
    )
    try:
        if not is_loopback(wanted.host) and not server.tokens.all():
            raise InvalidRequestError(
                f"{wanted.host} can be reached from other machines and {wanted.warehouse} has no token; "
                f"make one first: commit-owner token add NAME -w {wanted.warehouse}"
            )
        listener = bound(wanted.host, wanted.port)
        configure_logs(wanted.log_level)
        if not is_loopback(wanted.host):
            message = f"{wanted.host}: tokens and data are sent as plain HTTP; put a TLS proxy in front of this server"
            logger.warning("%s", line({"message": message}))
        port = listener.getsockname()[1]
        shown = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        facts = {"url": f"http://{shown}:{port}", "catalog": wanted.catalog, "warehouse": str(warehouse.directory)}
        process = _Process(configuration(server.application, wanted), line(facts))
        process.run(sockets=[listener])
    finally:
        deadline = time.monotonic() + LAST_SECONDS
        ended = server.close(LAST_SECONDS)
        published = publisher.close(max(0.0, deadline - time.monotonic()))
    if not ended:
        logger.error("%s", line({"message": "open requests did not finish in time; the process exits without them"}))
        os._exit(1)
    if not published:  # no answer waits for it: another process may hold a publishing lock
        message = "not all ratified commits were published in time; a later commit or commit-owner backfill does it"
        logger.warning("%s", line({"message": message}))
        os._exit(0)


def configuration(application: Any, wanted: Serving) -> uvicorn.Config:
    """How uvicorn runs an ASGI application. uvicorn's own logs stay quiet: Java's client asks for `h2c`, and would be
    warned of with every request."""
    return uvicorn.Config(
        application,
        http=_protocol(wanted.header_seconds, affordable(wanted.connections)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who a client is, is not for the client to say
        timeout_keep_alive=60,
        timeout_graceful_shutdown=wanted.stop_seconds,
        backlog=BACKLOG,
    )


class _Process(uvicorn.Server):
    """uvicorn, saying when it listens."""

    def __init__(self, config: uvicorn.Config, announcement: str) -> None:
        super().__init__(config)
        self._announcement = announcement

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print(self._announcement, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what is being answered. The signal is obeyed by that: it need not kill the process, too."""
        await super().shutdown(sockets=sockets)
        self._captured_signals.clear()


def _protocol(seconds: float, most: int) -> type[H11Protocol]:
    """uvicorn's HTTP protocol, that also ends connections which do not send a request's headers in time or do not read
    their answer, and keeps their number below a limit.

    Without it a half-open connection is never closed: uvicorn's own timer starts after an answer, and stops with the
    first byte that follows. So is one whose body goes on after it was refused.
    """
    open_now: set[H11Protocol] = set()
    idle: dict[Protocol, None] = {}
    """Open connections that wait for their client, in the order since when."""

    class Protocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._due: asyncio.TimerHandle | None = None
            self._unread: asyncio.TimerHandle | None = None
            self._ended = False
            open_now.add(self)
            self._note()
            self._watch()
            if len(open_now) > most:
                next(iter(idle))._close()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._note()
            self._watch()

        def eof_received(self) -> bool:  # type: ignore[override] # as asyncio has it
            """The client sends nothing more. It gets the answer to a request that is whole."""
            self._ended = True
            return self._is_asked()

        def on_response_complete(self) -> None:
            idle.pop(self, None)
            super().on_response_complete()
            self._note()
            if self.conn.their_state is h11.SEND_BODY:  # refused before the body was there
                self._watch()
            elif self._ended and not self._is_asked():
                self._close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            self._stop_watching()
            self._stop_waiting_for_reader()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            idle[self] = None
            self._wait_for_reader()

        def resume_writing(self) -> None:
            self._stop_waiting_for_reader()
            self._note()
            super().resume_writing()

        def _wait_for_reader(self) -> None:
            """A long answer takes its time; who reads nothing of it is cut off."""
            left = self.transport.get_write_buffer_size()

            def look() -> None:
                if left - self.transport.get_write_buffer_size() < LEAST_READ:
                    self.transport.abort()
                else:
                    self._wait_for_reader()

            self._unread = self.loop.call_later(seconds, look)

        def _stop_waiting_for_reader(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def _is_asked(self) -> bool:
            """Whether a request is whole, and its answer is not."""
            answering: Any = self.cycle  # none before the first request's headers are there
            return (
                answering is not None and not answering.response_complete and self.conn.their_state is not h11.SEND_BODY
            )

        def _note(self) -> None:
            """Who waits now: the client for us, or this connection for the client."""
            if self._is_asked():
                idle.pop(self, None)
            elif self in open_now:
                idle.setdefault(self)

        def _watch(self) -> None:
            """A request's headers, and what is left of a body that was refused, come in time or not at all. A body
            that is wanted has a time limit of its own."""
            answering: Any = self.cycle
            if answering is not None and not answering.response_complete:
                self._stop_watching()
            elif self._due is None:
                self._due = self.loop.call_later(seconds, self._close)

        def _stop_watching(self) -> None:
            if self._due is not None:
                self._due.cancel()
                self._due = None

        def _close(self) -> None:
            self._forget()
            if not self.transport.is_closing():
                self.transport.close()

        def _forget(self) -> None:
            open_now.discard(self)
            idle.pop(self, None)

    return Protocol


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on this address; clients that connect are answered once uvicorn is up.

    It listens from here on, because until then a second server could be given the same address. Of the protocol TCP
    by name: asyncio switches off Nagle's algorithm for such sockets only, and with it an answer's body waits for the
    client's delayed acknowledgement of its head, for 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:  # the last one: no name of a host
        listener.close()
        raise InvalidRequestError(f"cannot listen on {host}:{port}: {error}; choose another address or port") from error
    return listener


def affordable(connections: int) -> int:
    """How many of so many connections the process has open files for; its limit is raised as far as it may be.

    Without that, clients which only connect would take the files away that the others' commits need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + FILES_BESIDE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    if soft != hard:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(connections, soft - FILES_BESIDE))


def configure_logs(level: str) -> None:
    """One JSON line for each event, on the standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logger = logging.getLogger("refimpl")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


class _Lines(logging.Formatter):
    """`{"at": ..., "level": ..., ...}`; an event that is JSON itself is put in as it is."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        facts: dict[str, Any] = {"at": round(record.created, 3), "level": record.levelname.lower()}
        event = message[1:-1] if message.startswith("{") and message.endswith("}") else line({"message": message})[1:-1]
        head = line(facts)[:-1]
        trace = "," + line({"trace": self.formatException(record.exc_info)})[1:-1] if record.exc_info else ""
        return f"{head},{event}{trace}}}"
