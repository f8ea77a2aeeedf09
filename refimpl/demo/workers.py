"""Worker processes: the pool starts them, sends them messages, kills them, and collects what they reported.

A worker runs a function `act(connection, *arguments)`. It reports with `connection.send`, and gets the pool's messages
with `connection.recv`. What it reported before it died arrives in the pool. A worker whose pool is gone ends when it
reports or waits for a message.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Self

from refimpl.protocol.errors import OwnerUnavailableError

FORK, SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")
GO: Final = "go"


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message of each worker. `code`: the exit code; negative: a signal. `error`: the exception, if any."""

    code: int
    error: str


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    name: str
    process: BaseProcess
    connection: Connection
    killed: bool = False

    def send(self, message: object) -> None:
        """Send a message. Does nothing if the worker is dead."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def kill(self) -> None:
        """Send SIGKILL to the worker and its children, such as a Spark driver's Java process."""
        self.killed = True
        assert self.process.pid is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()


class WorkerPool:
    """The end of the `with` block kills the workers that still run."""

    def __init__(self, *, fork: bool = False) -> None:
        """`fork`: the workers are forks, which start at once; otherwise new interpreters, which may start Spark."""
        self._context = FORK if fork else SPAWN
        self.running: dict[Connection, Worker] = {}

    def start(self, name: str, act: Callable[..., None], *arguments: Any) -> Worker:
        ours, theirs = multiprocessing.Pipe()
        inherited = [*self.running, ours] if self._context is FORK else []
        arguments = (act, theirs, inherited, *arguments)
        process = self._context.Process(target=_run, args=arguments, name=name, daemon=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is the pool's, which kills the worker
        process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        worker = self.running[ours] = Worker(name=name, process=process, connection=ours)
        return worker

    def receive(self, timeout: float) -> Iterator[tuple[Worker, Any]]:
        """What arrives within `timeout` seconds; at most one message of each worker."""
        for connection in wait(list(self.running), timeout):
            worker = self.running[connection]  # type: ignore[index]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                message = None
            if message is None or isinstance(message, Ended):
                del self.running[worker.connection]
                worker.connection.close()
                worker.process.join()
                message = message or Ended(worker.process.exitcode or 0, "it reported no error")
            yield worker, message

    def messages(self, timeout: float) -> Iterator[tuple[Worker, Any]]:
        """The messages in the order of arrival, without an end.

        Raises `OwnerUnavailableError` if a worker fails that was not killed, or if `timeout` seconds pass without one.
        """
        while True:
            nothing = True
            for worker, message in self.receive(timeout):
                nothing = False
                if isinstance(message, Ended) and message.code != 0 and not worker.killed:
                    text = f"ended with code {message.code}: {message.error}"
                    pid = worker.process.pid
                    raise OwnerUnavailableError(f"{worker.name} (process {pid}) {text}", pid=pid)
                yield worker, message
            if nothing:
                text = f"no process reported anything for {timeout:g} s; try again on a less busy host"
                raise OwnerUnavailableError(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.running.values():
            worker.kill()
            worker.connection.close()


def _run(act: Callable[..., None], connection: Connection, inherited: list[Connection], *arguments: Any) -> None:
    """In the worker. The output of Spark, Java and libraries is discarded."""
    for other in inherited:
        other.close()
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    try:
        act(connection, *arguments)
    except Exception as error:  # noqa: BLE001 - the pool reports it
        with contextlib.suppress(OSError):
            connection.send(Ended(1, f"{type(error).__name__}: {error}"))
        sys.exit(1)
