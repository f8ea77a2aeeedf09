"""The worker processes of a run, from the coordinator's side."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import msgspec

from conformance.running.tasks import Alive, Report, Task, encode
from conformance.running.worker import CLOSING_SECONDS

SILENCE_SECONDS: Final = 60.0
"""Without an answer of its subject, beyond the time that an answer may take, after which a worker is given up."""

LAST_LINES: Final = 5
_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from conformance.running.worker import main; main()"
)
_GRACE_SECONDS: Final = CLOSING_SECONDS + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """The process ended although nobody told it to."""

    how: str
    """Its exit code or signal, and the last that it wrote."""


class WorkerProcess:
    """One worker, in a process group of its own: Ctrl-C reaches the coordinator alone."""

    def __init__(self, number: int, directory: Path, news: SimpleQueue[tuple[WorkerProcess, Report | Died]]) -> None:
        self.number = number
        self.directory = directory
        """For the files of its subject."""
        self.silent_since: float | None = None
        """Since when it has shown no sign of life (`time.monotonic`) although it has something to do; None: idle."""
        directory.mkdir(parents=True)
        self._errors = directory.with_suffix(".stderr")
        self._ended = False
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, json.dumps([str(Path(each).absolute()) for each in sys.path])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(news,), daemon=True).start()

    def give(self, task: Task) -> None:
        self.silent_since = time.monotonic()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it died: the other thread says so
            self._process.stdin.write(encode(task))
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Let it close its subject and end, whatever it is doing. Does not wait."""
        self._ended = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def bury(self) -> None:
        """After `dismiss`: wait until it is gone, and kill it if it does not go."""
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self, news: SimpleQueue[tuple[WorkerProcess, Report | Died]]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with contextlib.suppress(msgspec.DecodeError):  # cut off by its death
                    news.put((self, msgspec.json.decode(line, type=Report)))
        code = self._process.wait()
        if not self._ended:
            news.put((self, Died(how=self._obituary(code))))

    def _obituary(self, code: int) -> str:
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        with contextlib.suppress(OSError):
            lines = self._errors.read_text("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
            if lines:
                return f"{how}; it wrote: {' / '.join(line.strip() for line in lines)}"
        return how


class Crew:
    """All workers of a run. Leaving the context ends them all."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._news: SimpleQueue[tuple[WorkerProcess, Report | Died]] = SimpleQueue()
        self._hired = 0
        self.workers: list[WorkerProcess] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.bury()
        self.workers.clear()

    def hire(self) -> WorkerProcess:
        self._hired += 1
        worker = WorkerProcess(self._hired, self._scratch / f"worker-{self._hired}", self._news)
        self.workers.append(worker)
        return worker

    def release(self, worker: WorkerProcess) -> None:
        worker.dismiss()
        worker.bury()
        self.workers.remove(worker)

    def news(self, timeout: float) -> tuple[WorkerProcess, Report | Died] | None:
        """What happens next; None if nothing does in that many seconds. News of released workers are left out."""
        until = time.monotonic() + timeout
        while True:
            try:
                worker, report = self._news.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return None
            if isinstance(report, Alive):
                worker.silent_since = None if worker.silent_since is None else time.monotonic()
            if worker in self.workers:
                return worker, report
