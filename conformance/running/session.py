"""One worker, asked for one case after the other by somebody who decides himself what comes next: a test runner."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import Self

from conformance.adapters.smoke_report import SmokeReport
from conformance.interface.messages import Identity
from conformance.interface.subject import AdapterError
from conformance.results import CaseResult, Verdict
from conformance.running.crew import SILENCE_SECONDS, Crew, Died, WorkerProcess
from conformance.running.driving import is_remote
from conformance.running.errors import UnusableError
from conformance.running.plan import PlannedCase
from conformance.running.tasks import Alive, Defect, Open, Opened, Ran, Report, RunCase, Smoke, Smoked, Task, Unusable


class Session:
    """An open subject, in a process of its own. Raises `UnusableError` if it cannot be opened."""

    def __init__(self, subject: str, *, timeout: float) -> None:
        self.subject = subject
        self._timeout = timeout
        self._salt = f"-{secrets.token_hex(3)}" if is_remote(subject) else ""
        self._scratch = tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True)
        self._crew = Crew(Path(self._scratch.name))
        self._worker: WorkerProcess | None = None
        try:
            self.identity: Identity = self._open()
        except BaseException:
            self.close()
            raise

    def smoke(self) -> SmokeReport:
        """The first requests. Raises `AdapterError` for a subject that does not speak the interface at all."""
        report = self._ask(Smoke())
        if not isinstance(report, Smoked):
            raise AdapterError(_why(report))
        return report.report

    def run(self, case: PlannedCase) -> CaseResult:
        """Raises `AdapterError` if the subject does not speak the interface. A subject that takes the process with it,
        or never ends, leaves the case inconclusive."""
        report = self._ask(
            RunCase(
                check=case.check.name,
                feature=case.variant.feature,
                commit_mode=case.variant.commit_mode,
                seed=case.seed,
                count=case.count,
            )
        )
        if isinstance(report, Ran):
            return report.result
        if isinstance(report, Unusable):
            raise AdapterError(report.problem)
        return case.without_verdict(Verdict.INCONCLUSIVE, _why(report))

    def _open(self) -> Identity:
        worker = self._worker = self._crew.hire()
        task = Open(subject=self.subject, timeout=self._timeout, directory=str(worker.directory), salt=self._salt)
        report = self._ask(task)
        if isinstance(report, Unusable):
            raise UnusableError(report.problem, report.came, report.says)
        if not isinstance(report, Opened):
            raise UnusableError(_why(report))
        return report.identity

    def _ask(self, task: Task) -> Report | Died | None:
        """None: for too long there was no sign of life."""
        if self._worker is None:
            self._open()
        assert self._worker is not None
        self._worker.give(task)
        while (news := self._crew.news(SILENCE_SECONDS + self._timeout)) is not None and isinstance(news[1], Alive):
            pass
        if news is None or isinstance(news[1], Died):
            self._crew.release(self._worker)
            self._worker = None
        return None if news is None else news[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._crew.__exit__(None, None, None)
        self._scratch.cleanup()


def _why(report: Report | Died | None) -> str:
    match report:
        case None:
            return "the subject hangs: it answers nothing"
        case Unusable(problem=problem):
            return problem
        case Died(how=how):
            return f"the process that ran it died: {how}"
        case Defect(problem=problem, where=where):
            return f"a defect of the kit: {problem}\n{where}"
    return f"unexpectedly {report}"
