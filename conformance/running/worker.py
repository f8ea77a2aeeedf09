"""A worker process: opens a subject of its own, and runs cases for the coordinator. Messages are lines of JSON.

It reads tasks from the standard input, and writes answers to the original standard output. What a subject in this
process prints goes to the standard error. When the input ends, the worker closes the subject and ends, even in the
middle of a case.
"""

import contextlib
import itertools
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final

import msgspec

from conformance.adapters.in_process import InProcessSubject
from conformance.adapters.wire import same_identity
from conformance.checks import all_checks
from conformance.history.times import times_of
from conformance.interface import safe_text
from conformance.interface.messages import Answer, Hello, Identity, Request
from conformance.interface.results import CaseResult, UnusableError, Verdict
from conformance.interface.subject import AdapterError, Subject, UsageError
from conformance.programs.cases import run_case
from conformance.programs.running import MOST_VIOLATIONS
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant
from conformance.scenario.running import BrokenInCaseError
from conformance.subjects.names import open_subject
from conformance.subjects.smoke import SmokeReport, smoke


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Open(_Message, frozen=True, kw_only=True):
    """Open the subject. Answered by `Opened`."""

    subject: str
    timeout: float
    """Seconds that one answer may take."""
    directory: str
    """The folder of the worker's subject."""
    salt: str
    """A part of table names, if several workers and runs share one subject; otherwise empty."""


class Smoke(_Message, frozen=True, kw_only=True):
    """Test whether the subject speaks the interface. Answered by `Smoked`."""


class RunCase(_Message, frozen=True, kw_only=True):
    """Run a case. Answered by `Ran`."""

    check: str
    feature: str
    commit_mode: str
    seed: int
    count: int
    most: int = MOST_VIOLATIONS
    """The number of distinct violations after which a generated case ends."""
    seconds: float | None = None
    """The time that the programs of a generated case may take; None: as long as they need."""
    reproduction: str | None = None
    """The failed scenario of a generated case, to run only that again."""


Task = Open | Smoke | RunCase


class Opened(_Message, frozen=True, kw_only=True):
    identity: Identity


class Smoked(_Message, frozen=True, kw_only=True):
    report: SmokeReport


class Ran(_Message, frozen=True, kw_only=True):
    result: CaseResult


class Unusable(_Message, frozen=True, kw_only=True):
    """Replaces any other answer: the task is invalid, or the subject does not speak the interface."""

    problem: str
    received: str = ""
    expected: str = ""
    result: CaseResult | None = None
    """The result of the case in which this happened, if its history shows a violation nevertheless."""


class Defect(_Message, frozen=True, kw_only=True):
    """Replaces any other answer: the kit itself failed."""

    problem: str
    where: str
    """The traceback."""


class Alive(_Message, frozen=True, kw_only=True):
    """A sign of life between a task and its answer: the subject has answered a request since the last sign."""

    found: CaseResult | None = None
    """The result so far, if a program of a generated case has just shown a new violation."""


Report = Opened | Smoked | Ran | Unusable | Defect | Alive


def encode(message: Task | Report) -> bytes:
    """The message as one line."""
    return safe_text.to_json(message) + b"\n"


class DrivenSubject:
    """An open subject. After a case that did not pass, the subject is opened again if possible, so that the case does
    not affect the next one."""

    def __init__(self, task: Open) -> None:
        """Raises `UnusableError` for a name that cannot be opened, `AdapterError` for a subject that does not speak the
        interface."""
        self._task = task
        self.activity = ActivityMonitor()
        self._folders = SubjectFolders(Path(task.directory))
        self._host = ClientHost()
        """Serves the kit's owner to a client under test."""
        self._subject = self._open()
        self.identity: Identity = self._subject.identity

    def _open(self) -> Subject:
        directory = self._folders.subject()
        try:
            opened = open_subject(
                self._task.subject, timeout=self._task.timeout, directory=directory, owner=self._host.ask
            )
        except UsageError as error:
            raise UnusableError(error.problem) from error
        return self.activity.watch(opened)

    def smoke(self) -> Smoked:
        """Send the first requests, before any case. A subject that the kit starts gets another folder for the cases."""
        again = None if is_remote(self._task.subject) else self._reopen
        return Smoked(report=smoke(self._subject, self._host, again))

    def run(self, task: RunCase, found: Callable[[CaseResult], None] | None = None) -> CaseResult:
        """Call `found` with the result so far after each new violation. Raises `AdapterError` if the subject does not
        speak the interface."""
        try:
            result = self._run_case(task, found and (lambda so_far: found(self._readable(so_far))))
        except BrokenInCaseError as error:
            raise BrokenInCaseError(error, self._readable(error.result)) from error
        if result.verdict is not Verdict.PASSED and not is_remote(self._task.subject) and not self._is_idle_engine():
            try:
                self._reopen()
            except AdapterError as error:
                if result.verdict is Verdict.FAILED:
                    raise BrokenInCaseError(error, self._readable(result)) from error
                raise
        return self._readable(result)

    def _is_idle_engine(self) -> bool:
        """Whether the subject is an engine that answers. Such a subject is not opened again, because an engine takes
        long to start, and keeps no state of a case."""
        return self._task.subject.startswith("engine:") and isinstance(self._subject.ask("kit", Hello()), Identity)

    def _readable(self, result: CaseResult) -> CaseResult:
        return with_readable_times(self._folders.hidden_in(result))

    def _run_case(self, task: RunCase, found: Callable[[CaseResult], None] | None) -> CaseResult:
        return run_case(
            check_named(task.check),
            Variant(feature=task.feature, commit_mode=task.commit_mode),
            self._subject,
            seed=task.seed,
            count=task.count,
            salt=self._task.salt,
            most=task.most,
            seconds=task.seconds,
            reproduction=task.reproduction,
            host=self._host,
            found=found,
        )

    def _reopen(self) -> Subject:
        self._subject.close()
        self._subject = self._open()
        same_identity(self.identity, self._subject.identity, f"the subject {self._task.subject!r}")
        return self._subject

    def close(self) -> None:
        self._subject.close()


class ActivityMonitor:
    """Counts the answers of the subject, for the thread that reports signs of life."""

    def __init__(self) -> None:
        self.answers = 0

    def watch(self, subject: Subject) -> Subject:
        """The same subject, whose answers are counted, also those of its processes for concurrent clients."""
        original = subject.ask

        def ask(client: str, request: Request) -> Answer:
            answer = original(client, request)
            self.answers += 1
            return answer

        subject.ask = ask  # type: ignore[method-assign]
        if isinstance(subject, InProcessSubject):
            beside = cache(lambda: self.watch(started()))
            started, subject.beside = subject.beside, beside  # type: ignore[method-assign,assignment]
        return subject


class SubjectFolders:
    """The folders for the files of a worker's subjects, and for all temporary files of its process. Their names differ
    from run to run, so they are removed from results."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        temporary = directory / "temporary"
        temporary.mkdir()
        tempfile.tempdir = str(temporary)
        folder = rf"{re.escape(str(directory))}/(?:\d+|temporary/[\w-]+)"
        self._pattern = re.compile(folder)

    def subject(self) -> Path:
        """A new folder."""
        folder = self._directory / str(next(self._numbers))
        folder.mkdir()
        return folder

    def hidden_in(self, result: CaseResult) -> CaseResult:
        """The result, with a word instead of each folder's name."""
        history = None if result.history is None else self._hidden(result.history)
        others = tuple(
            msgspec.structs.replace(other, history=None if other.history is None else self._hidden(other.history))
            for other in result.others
        )
        reason = self._hidden(result.reason)
        result = msgspec.structs.replace(result, reason=reason, history=history, others=others)
        return _with_explanations(result, lambda _, text: self._hidden(text))

    def _hidden(self, text: str) -> str:
        return self._pattern.sub("DIRECTORY", text)


def is_remote(subject: str) -> bool:
    """Whether all workers and runs use the same process, which the kit does not start."""
    return subject.startswith(("http:", "https:", "uc:"))


def check_named(name: str) -> Check:
    """Raises `KeyError`."""
    return {check.name: check for check in all_checks()}[name]


def with_readable_times(case: CaseResult) -> CaseResult:
    """The case, with readable times in its explanations. Its history does not change."""
    times = [times_of(history) for history in (case.history, *(other.history for other in case.others))]
    return _with_explanations(case, lambda program, text: times[program].in_words(text))


def _with_explanations(case: CaseResult, change: Callable[[int, str], str]) -> CaseResult:
    """The case, with `change` applied to the texts of its violations, each with the number of its program."""
    changed = tuple(
        msgspec.structs.replace(
            violation,
            message=change(violation.program, violation.message),
            expected=change(violation.program, violation.expected),
            observed=change(violation.program, violation.observed),
        )
        for violation in case.violations
    )
    return msgspec.structs.replace(case, violations=changed)


CLOSING_SECONDS: Final = 5.0
"""Seconds that a subject may take to close."""

SIGN_OF_LIFE_SECONDS: Final = 1.0
"""Seconds between two signs of life."""


class Worker:
    """Does one task after the other. `put`: sends what it finds before its answer."""

    def __init__(self, put: Callable[[Report], None]) -> None:
        self._put = put
        self._driven: DrivenSubject | None = None

    def do(self, task: Task) -> Report:
        """Do one task; every failure becomes an answer."""
        try:
            return self._do(task)
        except (AdapterError, UnusableError) as error:
            result = error.result if isinstance(error, BrokenInCaseError) else None
            return Unusable(problem=error.problem, received=error.received, expected=error.expected, result=result)
        except Exception as error:  # noqa: BLE001  # the coordinator says it, and the run goes no further
            return Defect(problem=f"{type(error).__name__}: {error}", where=traceback.format_exc())

    def _do(self, task: Task) -> Report:
        match task:
            case Open():
                self._driven = DrivenSubject(task)
                return Opened(identity=self._driven.identity)
            case Smoke():
                return self._opened().smoke()
            case RunCase():
                return Ran(result=self._opened().run(task, lambda result: self._put(Alive(found=result))))

    @property
    def answers(self) -> int:
        """The number of the subject's answers so far."""
        return 0 if self._driven is None else self._driven.activity.answers

    def _opened(self) -> DrivenSubject:
        if self._driven is None:
            raise RuntimeError("a worker was given work before a subject")
        return self._driven

    def close(self) -> None:
        """Close the subject. Can be called from any thread, while a case runs."""
        if self._driven is not None:
            with contextlib.suppress(Exception):
                self._driven.close()


def main() -> None:
    """Run tasks until the standard input ends."""
    signal.signal(signal.SIGINT, lambda *_: None)  # the coordinator handles it; a subject gets the default
    reports = _Reports(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    worker = Worker(reports.put)
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks, worker.close), daemon=True).start()
    threading.Thread(target=_report_activity, args=(worker, reports), daemon=True).start()
    while True:
        task: Task = msgspec.json.decode(tasks.get(), type=Task)
        reports.put(worker.do(task))


class _Reports:
    """Writes reports to the coordinator, one line each, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def put(self, report: Report) -> None:
        line = encode(report)
        with self._lock, contextlib.suppress(OSError):  # the coordinator has ended, so the input ends too
            self._stream.write(line)
            self._stream.flush()


def _report_activity(worker: Worker, reports: _Reports) -> None:
    """Send signs of life, so that the coordinator can distinguish a slow subject from a hanging one."""
    before = 0
    while True:
        time.sleep(SIGN_OF_LIFE_SECONDS)
        now = worker.answers
        if now != before:
            before = now
            reports.put(Alive())


def _listen(stream: BinaryIO, tasks: SimpleQueue[bytes], close: Callable[[], None]) -> None:
    for line in stream:
        tasks.put(line)
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(CLOSING_SECONDS)
    os._exit(0)  # the main thread may run a case that never returns
