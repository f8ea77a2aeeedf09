"""A server's processes: each runs the application in uvicorn, from the first line of output to a graceful stop."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import signal
import socket
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

import refimpl
from refimpl.catalog.messages import is_loopback
from refimpl.protocol.commit_owner import SERVER_PUBLISHES_AFTER, MaintenancePolicy, checked_policy
from refimpl.protocol.errors import InvalidRequestError
from refimpl.server.access import Tokens
from refimpl.server.application import Limits, Server, line
from refimpl.server.names import Names
from refimpl.server.scheduling import Publisher, shared_environment

logger = logging.getLogger("refimpl.server")

BACKLOG: Final = 2048

LAST_SECONDS: Final = 2.0
"""Further time for calls that were not answered within `Serving.stop_seconds`."""

LEAST_READ: Final = 16_384
"""Bytes of an answer that a client must read within `Serving.header_seconds` to get the rest."""

MOST_ENDS: Final = 10
"""Workers that may end within a minute before the server gives up."""

FILES_BESIDE: Final = 200
"""Open files that a server needs in addition to its connections: each thread's ledger and lock, and logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The configuration of one server."""

    warehouse: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0: choose a free port."""
    catalog: str = "unity"
    schemas: tuple[str, ...] = ()
    policy: MaintenancePolicy = field(default_factory=lambda: MaintenancePolicy(backfill_every=SERVER_PUBLISHES_AFTER))
    """The policy of tables that are created over HTTP."""
    limits: Limits = field(default_factory=Limits)
    header_seconds: float = 10.0
    """Time for a client to send a request's headers, and to read a part of a long answer."""
    connections: int = 1000
    """Maximum concurrent connections, limited by the process's open files; beyond that the longest idle one is
    closed."""
    stop_seconds: int = 20
    """Time for requests to end after a signal to stop."""
    log_level: str = "info"
    workers: int = 1
    """Processes that share the address and the ledger. Each has its own limits and queues of writers."""


def serve(wanted: Serving) -> None:
    """Serve until the process gets SIGINT or SIGTERM.

    The first line on the standard output is one JSON object with `url`, `catalog` and `warehouse`: from then on
    clients can connect. Raises `InvalidRequestError` for an invalid name or policy, and if the server would be open to
    other machines without a token.

    It stops within `stop_seconds` and `LAST_SECONDS`. If a call does not end by then, because the disk hangs, the
    process exits with status 1: that is a crash, which loses no acknowledged commit.
    """
    names = Names(wanted.catalog, wanted.schemas)
    checked_policy(wanted.policy)
    local = is_loopback(wanted.host)
    with refimpl.open(wanted.warehouse) as warehouse:
        directory = warehouse.directory
        if not local and not Tokens(warehouse).all():
            raise InvalidRequestError(
                f"{wanted.host} can be reached from other machines and {wanted.warehouse} has no token; "
                f"create one first: commit-owner token add NAME -w {wanted.warehouse}"
            )
    listener = open_listener(wanted.host, wanted.port)
    configure_logs(wanted.log_level)
    if not local:
        message = f"{wanted.host}: tokens and data are sent as plain HTTP; put a TLS proxy in front of this server"
        logger.warning("%s", line({"message": message}))
    port = listener.getsockname()[1]
    shown = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    announcement = line({"url": f"http://{shown}:{port}", "catalog": names.catalog, "warehouse": str(directory)})
    if wanted.workers == 1:
        _serve(wanted, listener, announcement)
        return
    listener.close()  # the address is free; the kernel distributes the connections over sockets that share a port
    listeners = [open_listener(wanted.host, port, shared=True) for _ in range(wanted.workers)]
    _serve_together(wanted, listeners, announcement)


def _serve_together(wanted: Serving, listeners: list[socket.socket], announcement: str) -> None:
    """Serve with a process for each listener. A worker that ends without an error, for example because it was killed
    for lack of memory, is replaced: its listener keeps the new connections until then."""
    stop, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    spawn = multiprocessing.get_context("spawn")

    def started(listener: socket.socket) -> SpawnProcess:
        worker = spawn.Process(target=_work, args=(wanted, listener))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a worker inherits that: Ctrl-C in a terminal is for its parent
        worker.start()
        signal.signal(signal.SIGINT, lambda *_: None)
        return worker

    workers: list[SpawnProcess] = []
    ends: list[float] = []
    try:
        workers += [started(listener) for listener in listeners]
        print(announcement, flush=True)
        while stop not in wait_for([stop, *(worker.sentinel for worker in workers)]):
            for index, worker in enumerate(workers):
                if worker.exitcode is None:
                    continue
                ends.append(time.monotonic())
                often = len(ends) > MOST_ENDS and ends[-1] - ends[-1 - MOST_ENDS] <= 60
                failed = worker.exitcode > 0 or often
                consequence = "the server ends" if failed else "another one takes its place"
                logger.error("%s", line({"message": f"a worker ended with status {worker.exitcode}; {consequence}"}))
                if failed:
                    raise SystemExit(1)
                workers[index] = started(listeners[index])
    finally:
        for listener in listeners:
            listener.close()
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
    if any(worker.exitcode not in (0, -signal.SIGTERM) for worker in workers):  # SIGTERM came before its handler
        raise SystemExit(1)


def _work(wanted: Serving, listener: socket.socket) -> None:
    """One of several workers. It stops as on SIGTERM when its parent ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def stop_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=stop_with_parent, daemon=True).start()
    configure_logs(wanted.log_level)
    try:
        _serve(wanted, listener)
    except Exception:
        logger.exception("%s", line({"message": "the worker cannot serve"}))
        raise SystemExit(1) from None


def _serve(wanted: Serving, listener: socket.socket, announcement: str | None = None) -> None:
    """Serve in this process."""
    publisher = Publisher(wanted.limits.threads)
    warehouse = refimpl.open(wanted.warehouse, environment=shared_environment(publisher))
    names = Names(wanted.catalog, wanted.schemas)
    server = Server(
        warehouse, names, policy=wanted.policy, limits=wanted.limits, always_token=not is_loopback(wanted.host)
    )
    try:
        _Process(configuration(server.application, wanted), announcement).run(sockets=[listener])
    finally:
        deadline = time.monotonic() + LAST_SECONDS
        ended = server.close(LAST_SECONDS)
        published = publisher.close(max(0.0, deadline - time.monotonic()))
    if not ended:
        logger.error("%s", line({"message": "open requests did not finish in time; the process exits without them"}))
        os._exit(1)
    if not published:  # no answer depends on it: another process may hold a publishing lock
        message = "not all ratified commits were published in time; a later commit or commit-owner backfill does it"
        logger.warning("%s", line({"message": message}))
        os._exit(0)


def configuration(application: Any, wanted: Serving) -> uvicorn.Config:
    """uvicorn's configuration for an ASGI application. uvicorn's own logs are off: it would warn about every request of
    Java's client, which asks for `h2c`."""
    return uvicorn.Config(
        application,
        http=http_protocol(wanted.header_seconds, affordable(wanted.connections)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client must not choose its own address
        timeout_keep_alive=60,
        timeout_graceful_shutdown=wanted.stop_seconds,
        backlog=BACKLOG,
    )


class _Process(uvicorn.Server):
    """uvicorn that prints a line once it listens."""

    def __init__(self, config: uvicorn.Config, announcement: str | None) -> None:
        super().__init__(config)
        self._announcement = announcement

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self._announcement is not None:
            print(self._announcement, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the running requests. The signal is handled by this, so it must not kill the process as well."""
        await super().shutdown(sockets=sockets)
        self._captured_signals.clear()


def http_protocol(seconds: float, most: int) -> type[H11Protocol]:
    """uvicorn's HTTP protocol with two more rules: it closes connections whose client does not send a request's headers
    in time or does not read the answer, and it limits the number of connections.

    Without it a half-open connection is never closed: uvicorn's own timer starts after an answer, and stops with
    the next byte. Nor is a connection whose client continues to send a rejected body.
    """
    open_now: set[H11Protocol] = set()
    idle: dict[Protocol, None] = {}
    """Open connections that wait for their client, the longest waiting first."""

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
            """The client sends nothing more. It still gets the answer to a complete request."""
            self._ended = True
            return self._is_asked()

        def on_response_complete(self) -> None:
            idle.pop(self, None)
            super().on_response_complete()
            self._note()
            if self.conn.their_state is h11.SEND_BODY:  # rejected before the whole body arrived
                self._watch()
            elif self._ended and not self._is_asked():
                self._close()
            elif self.conn.trailing_data[0]:  # the next request's headers began before this answer
                self._watch()

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
            """Close the connection of a client that reads nothing of a long answer."""
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
            """Whether a request is complete and its answer is not."""
            answering: Any = self.cycle  # None before the first request's headers arrive
            return (
                answering is not None and not answering.response_complete and self.conn.their_state is not h11.SEND_BODY
            )

        def _note(self) -> None:
            """Record which side waits now: the client for the server, or this connection for its client."""
            if self._is_asked():
                idle.pop(self, None)
            elif self in open_now:
                idle.setdefault(self)

        def _watch(self) -> None:
            """Close the connection unless a request's headers, or the rest of a rejected body, arrive in time. An
            accepted body has its own timeout."""
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


def open_listener(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that listens on this address, alone or with others; clients that connect are answered once uvicorn is
    up.

    It listens at once, because otherwise a second server could get the same address. It names the protocol TCP
    explicitly: asyncio disables Nagle's algorithm only for such sockets, and with that algorithm an answer's body waits
    40 ms for the client's delayed acknowledgement of its head.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError: an invalid host name
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequestError(
            f"cannot listen on {host}:{port}: {reason}; choose another address or port"
        ) from error
    return listener


def affordable(connections: int) -> int:
    """How many of `connections` the process can have open; raises its limit of open files as far as allowed.

    Otherwise clients that only connect could use up the open files that other clients' commits need.
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
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("refimpl")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


class JsonLines(logging.Formatter):
    """`{"at": ..., "level": ..., ...}`; an event that is a JSON object is included as it is."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        facts: dict[str, Any] = {"at": round(record.created, 3), "level": record.levelname.lower()}
        event = message[1:-1] if message.startswith("{") and message.endswith("}") else line({"message": message})[1:-1]
        head = line(facts)[:-1]
        trace = "," + line({"trace": self.formatException(record.exc_info)})[1:-1] if record.exc_info else ""
        return f"{head},{event}{trace}}}"
