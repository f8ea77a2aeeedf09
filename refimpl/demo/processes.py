"""The processes of the demonstration: their tasks, their events, and the pool that starts and kills them.

A process reads its task from its argument, then commands from its standard input, one in each line. A command is `GO`;
a writer that has committed all its parts gets a list of further parts. The process exits at the end of the input. It
reports events on its standard output, one JSON object in each line.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

import msgspec

from refimpl.errors import OwnerUnavailableError

GO: Final = "go"
ENDED: Final = "ended"
"""The event that the pool adds when a process has ended. Its fact `code` is the exit code; negative: a signal."""


class Task(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The task of a process on a table of a warehouse."""

    warehouse: str
    table: str
    partition_column: str


class Create(Task, frozen=True, kw_only=True, tag=True):
    """Wait for `GO`, create the table, then append the outcome to the table `journal`."""

    schema_string: str
    backfill_every: int | None
    journal: str


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Pause at the first proposal of part number `part`, until a command or SIGKILL arrives.

    `ratified` false: after the staged file is durable, before the proposal is sent. True: after the owner has ratified
    the commit, before the writer sees the answer.
    """

    part: int
    ratified: bool


class Ingest(Task, frozen=True, kw_only=True, tag=True):
    """Append the parts of a file to the table through Spark, one commit for each part; then ask for more parts."""

    path: str
    is_csv: bool
    parts: list[str]
    holds: list[Hold] = []


class Watch(Task, frozen=True, kw_only=True, tag=True):
    """Keep reading the table until `GO`; check each snapshot against the parts' row counts."""

    rows: dict[str, int]


class ReadBack(Task, frozen=True, kw_only=True, tag=True):
    """Start Spark, wait for `GO`, then compute the totals of each part from the table."""

    counted: list[str]
    summed: list[str]
    earlier_version: int


class Event(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    facts: dict[str, Any] = {}


@dataclass(slots=True)
class Worker:
    name: str
    process: subprocess.Popen[bytes]
    errors: Path
    """The file with its standard error."""
    killed: bool = False
    events: list[Event] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, command: str | list[str]) -> None:
        """Send a command, or further parts. Does nothing if the process is dead."""
        assert self.process.stdin is not None
        text = command if isinstance(command, str) else msgspec.json.encode(command).decode()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL to the process and its children, so that a Spark writer's Java process dies, too."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class WorkerPool:
    """All processes of one demonstration. The end of the `with` block kills those that still run."""

    def __init__(self, scratch: Path, *, timeout: float) -> None:
        """`timeout`: maximum seconds without an event of any process."""
        self._scratch = scratch
        self._timeout = timeout
        self._events: queue.Queue[tuple[Worker, Event]] = queue.Queue()
        self._workers: list[Worker] = []
        self._listeners: list[threading.Thread] = []

    def start(self, name: str, task: Task) -> Worker:
        errors = self._scratch / f"{name.replace(' ', '-')}.err"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "refimpl.demo.worker", msgspec.json.encode(task).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        worker = Worker(name, process, errors)
        assert process.stdout is not None
        listener = threading.Thread(target=self._listen, args=(worker, process.stdout), daemon=True)
        self._workers.append(worker)
        self._listeners.append(listener)
        listener.start()
        return worker

    def _listen(self, worker: Worker, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                with contextlib.suppress(msgspec.DecodeError):  # an incomplete line of a killed process
                    self._events.put((worker, msgspec.json.decode(line, type=Event)))
        self._events.put((worker, Event(kind=ENDED, facts={"code": worker.process.wait()})))

    def events(self) -> Iterator[tuple[Worker, Event]]:
        """The events of all processes in the order of arrival, without an end.

        Raises `OwnerUnavailableError` if a process fails that was not killed (with the last line of its output), or if
        no event arrives before the timeout.
        """
        while True:
            try:
                worker, event = self._events.get(timeout=self._timeout)
            except queue.Empty:
                raise OwnerUnavailableError(
                    f"no process of the demo reported anything for {self._timeout:g} s; try again on a less busy host"
                ) from None
            worker.events.append(event)
            if event.kind == ENDED and event.facts["code"] != 0 and not worker.killed:
                raise _failed(worker, event.facts["code"])
            yield worker, event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.kill()
            if worker.process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    worker.process.stdin.close()
        for listener in self._listeners:
            listener.join()


def _failed(worker: Worker, code: int) -> OwnerUnavailableError:
    reported = [event.facts["error"] for event in worker.events if event.kind == "failed"]
    lines = [line.strip() for line in worker.errors.read_text(errors="replace").splitlines() if line.strip()]
    reason = (reported or lines or ["it printed nothing"])[-1]
    return OwnerUnavailableError(
        f"{worker.name} (process {worker.pid}) ended with code {code}: {reason}", pid=worker.pid
    )
