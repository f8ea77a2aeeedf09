"""A subject that is asked by one case after the other, in this process."""

from __future__ import annotations

import itertools
from pathlib import Path

from conformance.adapters.named import UsageError, open_subject
from conformance.adapters.smoke import smoke
from conformance.adapters.subject import AdapterError, Subject
from conformance.checks.registry import Check, Variant, all_checks
from conformance.interface.messages import Identity
from conformance.results import CaseResult, Verdict
from conformance.running.errors import UnusableError
from conformance.running.tasks import Open, RunCase, Smoked
from conformance.scenario.adversary import ClientHost
from conformance.scenario.running import run_case


class Driven:
    """An open subject. After a case that did not pass it is opened anew, where that is possible: one case must not
    decide what becomes of the next one."""

    def __init__(self, task: Open) -> None:
        """Raises `UnusableError` for a name that cannot be opened, `AdapterError` for a subject that does not speak."""
        self._task = task
        self._numbers = itertools.count(1)
        self._host = ClientHost()
        """Where a client under test finds the kit's owner."""
        self._subject = self._open()
        self.identity: Identity = self._subject.identity

    def _open(self) -> Subject:
        directory = Path(self._task.directory) / str(next(self._numbers))
        directory.mkdir()
        try:
            return open_subject(
                self._task.subject, timeout=self._task.timeout, directory=directory, owner=self._host.ask
            )
        except UsageError as error:
            raise UnusableError(error.problem) from error

    def smoke(self) -> Smoked:
        report = smoke(self._subject)
        return Smoked(adapter="", owner=str(report))

    def run(self, task: RunCase) -> CaseResult:
        """Raises `AdapterError` if the subject does not speak the interface."""
        result = run_case(
            check_named(task.check),
            Variant(dialect=task.dialect, way=task.way),
            self._subject,
            seed=task.seed,
            salt=self._task.salt,
            host=self._host,
        )
        if result.verdict is not Verdict.PASSED and not is_remote(self._task.subject):
            self._reopen()
        return result

    def _reopen(self) -> None:
        self._subject.close()
        self._subject = self._open()
        if self._subject.identity != self.identity:
            raise AdapterError(
                f"the subject was opened again and changed its mind: `hello` was answered by {self._subject.identity}, "
                f"before by {self.identity}; it must be the same every time"
            )

    def close(self) -> None:
        self._subject.close()


def is_remote(subject: str) -> bool:
    """Whether all workers, and all runs, ask one and the same process, which is not the kit's to start."""
    return subject.startswith(("http:", "https:"))


def check_named(name: str) -> Check:
    """Raises `KeyError`."""
    return {check.name: check for check in all_checks()}[name]
