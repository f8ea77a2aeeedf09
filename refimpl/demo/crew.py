"""The processes of the demonstration: started, heard, killed, and never left behind."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from refimpl.demo.tasks import Task, Told
from refimpl.errors import OwnerUnavailableError

ENDED = "ended"
"""Told by the crew when a process is gone; its fact `code` is the exit code, negative for a signal."""


@dataclass(slots=True)
class Worker:
    """One process, with the name that people know it by."""

    name: str
    process: subprocess.Popen[bytes]
    errors: Path
    """What it wrote to its standard error."""
    killed: bool = False
    heard: list[Told] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, word: str) -> None:
        """A word for the process; lost if it is dead."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL to the process and whatever it started: a Spark writer dies with its Java process at once."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Crew:
    """All processes of one demonstration. At the end of the `with` none is left."""

    def __init__(self, scratch: Path, *, patience: float) -> None:
        """`patience`: so many seconds without a word from anybody are a failure."""
        self._scratch = scratch
        self._patience = patience
        self._told: queue.Queue[tuple[Worker, Told]] = queue.Queue()
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
                with contextlib.suppress(msgspec.DecodeError):  # a line that a kill cut off
                    self._told.put((worker, msgspec.json.decode(line, type=Told)))
        code = worker.process.wait()
        self._told.put((worker, Told(what=ENDED, at=time.time_ns() // 1_000_000, facts={"code": code})))

    def events(self) -> Iterator[tuple[Worker, Told]]:
        """What the processes tell, as it comes; the caller knows when it has heard enough.

        Raises `OwnerUnavailableError` with the process's last words if one fails that nobody killed, or if
        all are silent for too long.
        """
        while True:
            try:
                worker, told = self._told.get(timeout=self._patience)
            except queue.Empty:
                raise OwnerUnavailableError(
                    f"no process of the demo said a word for {self._patience:g} s; is this host very busy? Try again"
                ) from None
            worker.heard.append(told)
            if told.what == ENDED and told.facts["code"] != 0 and not worker.killed:
                raise _failed(worker, told.facts["code"])
            yield worker, told

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.kill()
            if worker.process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    worker.process.stdin.close()
        for listener in self._listeners:
            listener.join()


def _failed(worker: Worker, code: int) -> OwnerUnavailableError:
    said = [told for told in worker.heard if told.what == "failed"]
    why: Any = said[-1].facts["error"] if said else _last_line(worker.errors)
    return OwnerUnavailableError(f"{worker.name} (process {worker.pid}) ended with code {code}: {why}", pid=worker.pid)


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
