"""The worker processes of a run, on the coordinator's side; and a session with one worker, for `smoke`."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import msgspec

from conformance.interface.messages import Identity
from conformance.interface.results import UnusableError
from conformance.interface.subject import AdapterError, Closing
from conformance.programs.running import MOST_VIOLATIONS, STEP_SECONDS
from conformance.running.plan import PlannedCase
from conformance.running.worker import (
    CLOSING_SECONDS,
    Alive,
    Defect,
    Open,
    Opened,
    Report,
    RunCase,
    Smoke,
    Smoked,
    Task,
    Unusable,
    encode,
    is_remote,
)
from conformance.subjects.names import answer_seconds
from conformance.subjects.smoke import SmokeReport

SILENCE_SECONDS: Final = STEP_SECONDS + 10.0
"""A worker is given up after so many seconds without an answer of its subject, plus the timeout of one answer."""

LAST_LINES: Final = 5
_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from conformance.running.worker import main; main()"
)
_GRACE_SECONDS: Final = CLOSING_SECONDS + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """The process ended unexpectedly."""

    how: str
    """The exit code or signal, and the last lines that the process wrote."""


class WorkerProcess:
    """One worker. It has a process group of its own, so that Ctrl-C reaches only the coordinator."""

    def __init__(self, number: int, directory: Path, news: "SimpleQueue[tuple[WorkerProcess, Report | Died]]") -> None:
        self.number = number
        self.directory = directory
        """The folder for the files of its subject."""
        self.silent_since: float | None = None
        """The time (`time.monotonic`) of the last sign of life of a worker with a task; None: it has no task."""
        directory.mkdir(parents=True)
        self._errors = directory.with_suffix(".stderr")
        self._ended = False
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, json.dumps([str(Path(folder).absolute()) for folder in sys.path])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(news,), daemon=True).start()

    def give(self, task: Task) -> None:
        self.silent_since = time.monotonic()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the worker died; the reading thread reports that
            self._process.stdin.write(encode(task))
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Ask the worker to close its subject and end, even in the middle of a case. Does not wait."""
        self._ended = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def reap(self) -> None:
        """After `dismiss`: wait until the worker has ended, and kill it if it does not end in time."""
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self, news: "SimpleQueue[tuple[WorkerProcess, Report | Died]]") -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with contextlib.suppress(msgspec.DecodeError):  # a line that the worker's death cut off
                    news.put((self, msgspec.json.decode(line, type=Report)))
        code = self._process.wait()
        if not self._ended:
            news.put((self, Died(how=self._how_it_ended(code))))

    def _how_it_ended(self, code: int) -> str:
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        with contextlib.suppress(OSError):
            lines = self._errors.read_text("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
            if lines:
                return f"{how}; it wrote: {' / '.join(line.strip() for line in lines)}"
        return how


class WorkerPool(Closing):
    """All workers of a run. Leaving the context ends them all."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._news: SimpleQueue[tuple[WorkerProcess, Report | Died]] = SimpleQueue()
        self._started = 0
        self.workers: list[WorkerProcess] = []

    def close(self) -> None:
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.reap()
        self.workers.clear()

    def start(self) -> WorkerProcess:
        self._started += 1
        worker = WorkerProcess(self._started, self._scratch / f"worker-{self._started}", self._news)
        self.workers.append(worker)
        return worker

    def reap(self, worker: WorkerProcess) -> None:
        worker.dismiss()
        worker.reap()
        self.workers.remove(worker)

    def news(self, timeout: float) -> tuple[WorkerProcess, Report | Died] | None:
        """The next report or death of a worker; None if nothing comes within the timeout. Reports of reaped workers are
        left out."""
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


def run_case_of(
    case: PlannedCase, reproduction: str | None = None, most: int = MOST_VIOLATIONS, seconds: float | None = None
) -> RunCase:
    """The case as a task for a worker."""
    variant = case.variant
    return RunCase(
        check=case.check.name, feature=variant.feature, commit_mode=variant.commit_mode, seed=case.seed,
        count=case.count, most=most, seconds=seconds, reproduction=reproduction,
    )  # fmt: skip


class Session(Closing):
    """An open subject, in a process of its own. Raises `UnusableError` if it cannot be opened."""

    def __init__(self, subject: str, *, timeout: float) -> None:
        self.subject = subject
        self._timeout = timeout
        self._answer_seconds = answer_seconds(subject, timeout)
        self._salt = f"_{secrets.token_hex(3)}" if is_remote(subject) else ""
        self._scratch = tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True)
        self._pool = WorkerPool(Path(self._scratch.name))
        self._worker: WorkerProcess | None = None
        try:
            self.identity: Identity = self._open()
        except BaseException:
            self.close()
            raise

    def smoke(self) -> SmokeReport:
        """Send the first requests. Raises `AdapterError` for a subject that does not implement the interface."""
        report = self._ask(Smoke())
        if not isinstance(report, Smoked):
            raise AdapterError(why(report))
        return report.report

    def _open(self) -> Identity:
        worker = self._worker = self._pool.start()
        task = Open(subject=self.subject, timeout=self._timeout, directory=str(worker.directory), salt=self._salt)
        report = self._ask(task)
        if isinstance(report, Unusable):
            raise UnusableError(report.problem, report.received, report.expected)
        if not isinstance(report, Opened):
            raise UnusableError(why(report))
        return report.identity

    def _ask(self, task: Task) -> Report | Died | None:
        """The answer to a task; None: there was no sign of life for too long."""
        if self._worker is None:
            self._open()
        assert self._worker is not None
        self._worker.give(task)
        limit = SILENCE_SECONDS + self._answer_seconds
        while (news := self._pool.news(limit)) is not None and isinstance(news[1], Alive):
            pass
        if news is None or isinstance(news[1], Died):
            self._pool.reap(self._worker)
            self._worker = None
        return None if news is None else news[1]

    def close(self) -> None:
        self._pool.close()
        self._scratch.cleanup()


def why(report: Report | Died | None) -> str:
    """Why there is no result."""
    match report:
        case None:
            return "the subject hangs: it does not answer"
        case Unusable(problem=problem):
            return problem
        case Died(how=how):
            return f"the process that ran it died: {how}"
        case Defect(problem=problem):
            return f"a defect of the kit: {problem}"
    return f"unexpectedly {report}"
