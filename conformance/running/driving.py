"""A subject that is asked by one case after the other, in this process."""

from __future__ import annotations

import itertools
import re
import tempfile
from functools import cache
from pathlib import Path

import msgspec

from conformance.adapters.named import InProcessSubject, UsageError, open_subject
from conformance.adapters.smoke import smoke
from conformance.checks.registry import all_checks
from conformance.generated.running import run_case
from conformance.history.times import Times, times_of
from conformance.interface.messages import Answer, Identity, Request
from conformance.interface.subject import AdapterError, Subject
from conformance.results import CaseResult, Verdict, Violation
from conformance.running.errors import UnusableError
from conformance.running.tasks import Open, RunCase, Smoked
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant


class Driven:
    """An open subject. After a case that did not pass it is opened anew, where that is possible: one case must not
    decide what becomes of the next one."""

    def __init__(self, task: Open) -> None:
        """Raises `UnusableError` for a name that cannot be opened, `AdapterError` for a subject that does not speak."""
        self._task = task
        self.pulse = Pulse()
        self._places = Places(Path(task.directory))
        self._host = ClientHost()
        """Where a client under test finds the kit's owner."""
        self._subject = self._open()
        self.identity: Identity = self._subject.identity

    def _open(self) -> Subject:
        directory = self._places.subject()
        try:
            opened = open_subject(
                self._task.subject, timeout=self._task.timeout, directory=directory, owner=self._host.ask
            )
        except UsageError as error:
            raise UnusableError(error.problem) from error
        return self.pulse.watch(opened)

    def smoke(self) -> Smoked:
        """The first requests, before any case."""
        return Smoked(report=smoke(self._subject, self._host))

    def run(self, task: RunCase) -> CaseResult:
        """Raises `AdapterError` if the subject does not speak the interface."""
        result = run_case(
            check_named(task.check),
            Variant(feature=task.feature, commit_mode=task.commit_mode),
            self._subject,
            seed=task.seed,
            count=task.count,
            salt=self._task.salt,
            reproduction=task.reproduction,
            host=self._host,
        )
        if result.verdict is not Verdict.PASSED and not is_remote(self._task.subject):
            self._reopen()
        return with_readable_times(self._places.hidden_in(result))

    def _reopen(self) -> None:
        self._subject.close()
        self._subject = self._open()
        demand_same(self.identity, self._subject.identity)

    def close(self) -> None:
        self._subject.close()


class Pulse:
    """How many answers the subject gave: somebody in another thread looks whether it moves."""

    def __init__(self) -> None:
        self.answers = 0

    def watch(self, subject: Subject) -> Subject:
        """The same subject, whose answers are counted from now on; so are those of the processes that it is given
        beside itself, where real clients need them."""
        asked = subject.ask

        def ask(client: str, request: Request) -> Answer:
            answer = asked(client, request)
            self.answers += 1
            return answer

        subject.ask = ask  # type: ignore[method-assign]
        if isinstance(subject, InProcessSubject):
            beside = cache(lambda: self.watch(started()))
            started, subject.beside = subject.beside, beside  # type: ignore[method-assign,assignment]
        return subject


class Places:
    """Where a worker's subjects, and whatever else makes temporary files in its process, keep them. The names of these
    folders differ from run to run, so they are taken out of results."""

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
        """With a word in the place of each folder's name."""
        return msgspec.structs.replace(
            result,
            reason=self._hidden(result.reason),
            history=None if result.history is None else self._hidden(result.history),
            violations=tuple(
                msgspec.structs.replace(
                    each,
                    message=self._hidden(each.message),
                    expected=self._hidden(each.expected),
                    observed=self._hidden(each.observed),
                )
                for each in result.violations
            ),
        )

    def _hidden(self, text: str) -> str:
        return self._pattern.sub("DIRECTORY", text)


def demand_same(before: Identity, after: Identity) -> None:
    """A subject says the same of itself whenever it is opened; only where its storage is may differ. Raises
    `AdapterError`, which names the difference."""
    for field in msgspec.structs.fields(Identity):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new and field.name != "storage":
            raise AdapterError(
                f"the answer to `hello` changed between two starts: `{field.name}` was {old!r}, is {new!r}; "
                f"it must stay the same"
            )


def is_remote(subject: str) -> bool:
    """Whether all workers, and all runs, ask one and the same process, which is not the kit's to start."""
    return subject.startswith(("http:", "https:", "uc:"))


def check_named(name: str) -> Check:
    """Raises `KeyError`."""
    return {check.name: check for check in all_checks()}[name]


def with_readable_times(case: CaseResult) -> CaseResult:
    """The case, with the times in its explanations as people read them. Its history stays as it is."""
    times = times_of(case.history)
    if not times.real:
        return case
    return msgspec.structs.replace(case, violations=tuple(_readable(each, times) for each in case.violations))


def _readable(violation: Violation, times: Times) -> Violation:
    return msgspec.structs.replace(
        violation,
        message=times.in_words(violation.message),
        expected=times.in_words(violation.expected),
        observed=times.in_words(violation.observed),
    )
