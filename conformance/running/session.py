"""One worker, asked for one case after the other by somebody who decides himself what comes next: a test runner."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from conformance.adapters.subject import AdapterError
from conformance.interface.messages import Identity
from conformance.results import CaseResult, Verdict
from conformance.running.crew import Crew, Died, WorkerProcess
from conformance.running.driving import is_remote
from conformance.running.errors import UnusableError
from conformance.running.plan import PlannedCase
from conformance.running.profiles import RunProfile
from conformance.running.tasks import Defect, Open, Opened, Ran, Report, RunCase, Smoke, Smoked, Task, Unusable

_OPENING_SECONDS = 60.0


class Session:
    """An open subject, in a process of its own. Raises `UnusableError` if it cannot be opened."""

    def __init__(self, subject: str, profile: RunProfile, *, timeout: float) -> None:
        self.subject = subject
        self.profile = profile
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

    def smoke(self) -> str:
        """What the owner does wrong in the first requests, or nothing. Raises `AdapterError` for a subject that does
        not speak the interface."""
        report = self._ask(Smoke(), _OPENING_SECONDS)
        if not isinstance(report, Smoked) or report.adapter:
            raise AdapterError(report.adapter if isinstance(report, Smoked) else _why(report))
        return report.owner

    def run(self, case: PlannedCase) -> CaseResult:
        """Raises `AdapterError` if the subject does not speak the interface. A subject that takes the process with it,
        or never ends, leaves the case inconclusive."""
        report = self._ask(
            RunCase(
                check=case.check.name,
                dialect=case.variant.dialect,
                way=case.variant.way,
                seed=case.seed,
                count=case.count,
            ),
            self.profile.case_seconds,
        )
        if isinstance(report, Ran):
            return report.result
        if isinstance(report, Unusable):
            raise AdapterError(report.problem)
        return case.without_verdict(Verdict.INCONCLUSIVE, _why(report))

    def _open(self) -> Identity:
        worker = self._worker = self._crew.hire()
        task = Open(subject=self.subject, timeout=self._timeout, directory=str(worker.directory), salt=self._salt)
        report = self._ask(task, _OPENING_SECONDS)
        if not isinstance(report, Opened):
            raise UnusableError(_why(report))
        return report.identity

    def _ask(self, task: Task, seconds: float) -> Report | Died | None:
        if self._worker is None:
            self._open()
        assert self._worker is not None
        self._worker.give(task)
        news = self._crew.news(seconds)
        if news is None or isinstance(news[1], Died):
            self._crew.release(self._worker)
            self._worker = None
        return None if news is None else news[1]

    def close(self) -> None:
        self._crew.__exit__(None, None, None)
        self._scratch.cleanup()


def _why(report: Report | Died | None) -> str:
    match report:
        case None:
            return "no end in time: the subject hangs, or is too slow"
        case Unusable(problem=problem):
            return problem
        case Died(how=how):
            return f"the process that ran it died: {how}"
        case Defect(problem=problem, where=where):
            return f"a defect of the kit: {problem}\n{where}"
    return f"unexpectedly {report}"
