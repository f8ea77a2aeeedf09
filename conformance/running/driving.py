"""A subject that is asked by one case after the other, in this process."""

from __future__ import annotations

import itertools
from pathlib import Path

from conformance.adapters.http_server import HttpServer
from conformance.adapters.named import UsageError, open_subject
from conformance.adapters.smoke import smoke
from conformance.adapters.subject import AdapterError, Subject
from conformance.checks.registry import Check, Variant, all_checks
from conformance.generated.running import run_case
from conformance.interface.messages import Identity
from conformance.results import CaseResult, Verdict
from conformance.running.errors import UnusableError
from conformance.running.tasks import Open, RunCase, Smoked
from conformance.scenario.adversary import ClientHost


class Driven:
    """An open subject. After a case that did not pass it is opened anew, where that is possible: one case must not
    decide what becomes of the next one."""

    def __init__(self, task: Open) -> None:
        """Raises `UnusableError` for a name that cannot be opened, `AdapterError` for a subject that does not speak."""
        self._task = task
        self._numbers = itertools.count(1)
        self._host = ClientHost()
        """Where a client under test finds the kit's owner."""
        self._server = HttpServer(self._host.ask) if is_elsewhere(task.subject) else None
        self._subject = self._open()
        self.identity: Identity = self._subject.identity

    def _open(self) -> Subject:
        directory = Path(self._task.directory) / str(next(self._numbers))
        directory.mkdir()
        try:
            return open_subject(
                self._task.subject,
                timeout=self._task.timeout,
                directory=directory,
                owner=self._host.ask,
                owner_url=None if self._server is None else self._server.url,
            )
        except UsageError as error:
            raise UnusableError(error.problem) from error

    def smoke(self) -> Smoked:
        """The first requests, before any case."""
        report = smoke(self._subject)
        return Smoked(adapter="", owner=str(report))

    def run(self, task: RunCase) -> CaseResult:
        """Raises `AdapterError` if the subject does not speak the interface."""
        result = run_case(
            check_named(task.check),
            Variant(dialect=task.dialect, way=task.way),
            self._subject,
            seed=task.seed,
            count=task.count,
            salt=self._task.salt,
            reproduction=task.reproduction,
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
        if self._server is not None:
            self._server.close()


def is_remote(subject: str) -> bool:
    """Whether all workers, and all runs, ask one and the same process, which is not the kit's to start."""
    return subject.startswith(("http:", "https:"))


def is_elsewhere(subject: str) -> bool:
    """Whether it is in a process of its own."""
    return is_remote(subject) or subject.startswith("stdio:")


def check_named(name: str) -> Check:
    """Raises `KeyError`."""
    return {check.name: check for check in all_checks()}[name]
