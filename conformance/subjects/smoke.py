"""The smoke test: the first requests to a subject, which separate a broken adapter from a broken owner.

An adapter is broken if it does not answer, or if an answer is invalid: `hello` contradicts itself, or a file name is
not relative to the log. No verdict is possible until it is repaired. An owner is broken if an answer is valid but of
the wrong kind, or an operation is missing. Whether the answers are right is left to the checks of a run.
"""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final, NoReturn, TypeVar

from conformance.adapters import wire
from conformance.adapters.identity import contradictions
from conformance.adapters.in_process import RAISED
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM
from conformance.interface.messages import name_of
from conformance.interface.subject import GONE, LONG_PAUSES, AdapterError, Subject, patiently
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import TRIES, Scenario, TableHandle

PAGE: Final = "conformance/TEST_YOUR_OWNER.md"
LOG_FOLDER: Final = "_delta_log/"
MISSING: Final = "every owner needs this operation"
CLIENT_SECTION: Final = "a-client-instead-of-an-owner"
LATE: Final = "no answer within"
"""The beginning of the transports' reason for an answer that did not come in time."""

A = TypeVar("A", bound=m.Answer)


class Outcome(StrEnum):
    """The outcome of a step."""

    OK = "ok"
    ADAPTER = "adapter"
    """The adapter is broken."""
    OWNER = "owner"
    """The adapter works, but the answer of the owner, or of the client under test, is wrong."""
    SKIPPED = "skipped"
    """An earlier step failed, or the client does not implement the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the smoke test."""

    name: str
    outcome: Outcome
    request: str = ""
    """The last request, as JSON."""
    answer: str = ""
    """Its answer, as JSON."""
    detail: str = ""
    """What the interface expects, or why the step was skipped."""
    see: str = ""
    """The section about it on the page TEST_YOUR_OWNER.md."""

    def __str__(self) -> str:
        if not self.detail:
            return f"{self.outcome:<8} {self.name}"
        facts = {"request": self.request, "answer": self.answer, "see": self.see}
        lines = [f"{name}: {fact}" for name, fact in facts.items() if fact]
        return "\n           ".join([f"{self.outcome:<8} {self.name}: {self.detail}", *lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeReport:
    """All steps, in order."""

    identity: m.Identity
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Whether at least one step after those of `hello` succeeded, and none failed."""
        return not self.adapter and not self.owner and any(step.outcome is Outcome.OK for step in self.steps[1:])

    @property
    def adapter(self) -> str:
        """The failed steps of the adapter, as text."""
        return "\n".join(str(step) for step in self.steps if step.outcome is Outcome.ADAPTER)

    @property
    def owner(self) -> str:
        """The failed steps of the owner, as text."""
        return "\n".join(str(step) for step in self.steps if step.outcome is Outcome.OWNER)

    def __str__(self) -> str:
        if self.adapter:
            verdict = "the adapter is broken; fix it to get a verdict"
        elif self.owner:
            missing = all(MISSING in step.detail for step in self.steps if step.outcome is Outcome.OWNER)
            wrong = "operations are missing" if missing else f"the {self.identity.side}'s answers are wrong"
            verdict = f"the adapter works; {wrong}"
        else:
            verdict = "the adapter works" if self.ok else "only `hello` was answered; nothing else was tested"
        who = f"{self.identity.name} {self.identity.version} ({self.identity.side})"
        return "\n".join([f"{who}: {verdict}", *map(str, self.steps)])


def first_hello(received: str, expected: str) -> Step:
    """The failed step for an invalid answer to the first `hello`. No other request is sent after it."""
    request = wire.shown(wire.encode(m.Hello()))
    return Step(
        name="hello", outcome=Outcome.ADAPTER, detail=expected, request=request, answer=received, see=f"{PAGE}#hello"
    )


def smoke(subject: Subject, host: ClientHost | None = None, reopen: Callable[[], Subject] | None = None) -> SmokeReport:
    """Send the first requests. `host`: serves the kit's own owner to a client under test. `reopen`: closes the subject
    and starts it again with another, empty folder. An invalid answer is a failed step; this function raises no
    error."""
    started = _Smoke(subject)
    if started.step("hello", started.hello):
        if subject.identity.side == "owner":
            started.owner(reopen)
        elif host is not None:
            started.client(host)
    return SmokeReport(identity=subject.identity, steps=tuple(started.steps))


class _NotOkError(Exception):
    def __init__(self, outcome: Outcome, detail: str, see: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.see = see


class _Smoke:
    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.steps: list[Step] = []
        self.salt = uuid.uuid4().hex[:8]
        self.request: m.Request = m.Hello()
        self.answer: m.Answer | None = None
        self.table: TableHandle | None = None
        """The last one."""

    def step(self, name: str, action: Callable[[], None]) -> bool:
        """Run a step. Returns whether it succeeded."""
        self.request, self.answer = m.Hello(), None
        outcome, detail, answer, see = Outcome.OK, "", "", ""
        try:
            action()
        except _NotOkError as failed:
            outcome, detail, see = failed.outcome, str(failed), failed.see
            answer = "" if self.answer is None else wire.shown(wire.encode(self.answer))
        except AdapterError as error:
            outcome, detail, answer = Outcome.ADAPTER, error.expected or error.problem, error.received
            see = name_of(self.request)
        step = Step(name=name, outcome=outcome)
        if outcome is not Outcome.OK:
            request = wire.shown(wire.encode(self.request))
            step = replace(step, detail=detail, request=request, answer=answer, see=f"{PAGE}#{see}")
        self.steps.append(step)
        return outcome is Outcome.OK

    def _ask(self, request: m.Request) -> m.Answer:
        """The answer. A request with a retryable rejection is repeated; so is, if that is harmless, a request that the
        subject itself answered `unknown`."""
        self.request, self.answer = request, None
        proposal = isinstance(request, m.CreateTable | m.Commit)
        repeatable = not proposal or "idempotent-retry" in self.subject.identity.profiles
        for _ in range(TRIES):
            self.answer = answer = patiently(partial(self.subject.ask, "smoke", request), LONG_PAUSES)
            lost = isinstance(answer, m.Unknown) and not answer.reason.startswith((RAISED, GONE, LATE))
            if not (lost and repeatable):
                break
        return answer

    def _expect(self, requests: Iterable[m.Request], kind: type[A], expected: str) -> A:
        """The answer, which must be of that kind, to one of the requests: an owner may reject some because of a policy.
        A missing answer is the adapter's error. An exception in this process, or a missing operation, is the owner's.
        """
        for request in requests:
            answer = self._ask(request)
            if not isinstance(answer, m.Rejected) or answer.retryable:
                break
        if isinstance(answer, kind):
            return answer
        see = name_of(request) if self.subject.identity.side == "owner" else CLIENT_SECTION
        if isinstance(answer, m.Unknown) and not answer.reason.startswith(RAISED):
            self._broken(f"{answer.reason or 'the outcome is `unknown`'}; expected {expected}", see)
        if isinstance(answer, m.Unsupported) and self.subject.identity.side == "client":
            raise _NotOkError(Outcome.SKIPPED, f"the client does not implement `{name_of(request)}`", see)
        missing = f"{MISSING}; " if isinstance(answer, m.Unsupported) else ""
        raise _NotOkError(Outcome.OWNER, f"{missing}expected {expected}", see)

    def _broken(self, detail: str, see: str) -> NoReturn:
        raise _NotOkError(Outcome.ADAPTER, detail, see)

    def hello(self) -> None:
        identity = self._ask(m.Hello())
        problems = contradictions(self.subject.identity)
        if identity != self.subject.identity:
            problems = ["`hello` must always be answered by the same `identity`"]
        if problems:
            self._broken("; ".join(problems), "hello")

    # An owner

    def owner(self, reopen: Callable[[], Subject] | None) -> None:
        modes = self.subject.identity.commit_modes
        actions: list[tuple[str, Callable[[], None]]] = [
            (f"{feature}/{mode}", partial(self._first_requests, feature, mode))
            for feature in modes
            for mode in modes[feature]
        ]
        if reopen is not None:
            actions.append(("empty folder", partial(self._forget, reopen)))
        works = True
        for name, action in actions:
            if works:
                works = self.step(name, action)
            else:
                self.steps.append(Step(name=name, outcome=Outcome.SKIPPED, detail="an earlier step failed"))

    def _first_requests(self, feature: str, mode: str) -> None:
        variant = Variant(feature=feature, commit_mode=mode)
        s = Scenario(self.subject, variant, name=f"smoke {feature} {mode}", salt=self.salt)
        creations = (s.creation() for _ in range(TRIES))
        created = self._expect(creations, m.Ratified, "`ratified` for the only creator of a new name")
        if not created.table:
            self._broken("`ratified` must name the table, in `table`, as the answer to `create_table`", "create_table")
        table = self.table = TableHandle(name="orders", reference=created.table, versions=1)
        appends = (s.proposal(table) for _ in range(TRIES))
        self._expect(appends, m.Ratified, "`ratified`: version 1 follows version 0")
        self._expect([m.GetCommits(table=created.table)], m.Commits, "the commits and the latest version")
        self._expect([s.proposal(table)], m.Conflict, "`conflict`: another attempt is version 1")
        backfill = m.BackfillToVersion(table=created.table, version=1)
        self._expect([backfill], m.Done, "`done` after version 1 is published")
        observe = m.Observe(table=created.table)
        seen = self._expect([observe], m.Observation, "the files of the log, with contents")
        if problems := [problem for file in seen.files if (problem := _problem_of(file))]:
            self._broken(f"`observe` returned {problems[0]}", "observe")

    def _forget(self, reopen: Callable[[], Subject]) -> None:
        """With another, empty folder the subject must not know a table that its earlier process created. Otherwise runs
        and workers would see each other's tables, and the kit would take that for wrong answers."""
        assert self.table is not None
        self.subject = reopen()
        answer = self._ask(m.GetCommits(table=self.table.reference))
        if isinstance(answer, m.Commits) and (answer.commits or answer.latest == 1):
            self._broken(
                "it has state outside $CONFORMANCE_DIRECTORY: started again with an empty folder, it knows a table of "
                "its earlier process. Keep all state below that folder, or separate the runs by its name: in a "
                "database, one schema or key prefix for each",
                "2-connect-it-to-the-kit-3-minutes",
            )

    # A client

    def client(self, host: ClientHost) -> None:
        """A client reads and changes a table of the kit's own owner."""
        for feature, modes in self.subject.identity.commit_modes.items():
            variant = Variant(feature=feature, commit_mode=modes[0])
            scenario = ClientScenario(self.subject, variant, host, name=f"smoke {feature}", salt=self.salt)
            try:
                self.step(f"{feature}: a snapshot", partial(self._read, scenario))
                self.step(f"{feature}: a transaction", partial(self._write, scenario))
            finally:
                scenario.close()

    def _read(self, s: ClientScenario) -> None:
        self.table = s.filesystem_table("orders") if s.feature == FILESYSTEM else s.create()
        self._expect([m.Snapshot(table=s.name_of(self.table))], m.SnapshotRead, "`snapshot_read` of version 0")

    def _write(self, s: ClientScenario) -> None:
        added = m.DataFile(path="part-00001-smoke.snappy.parquet")
        request = m.Transact(table=s.name_of(self.table), marker=s.attempt(), adds=(added,))
        self._expect([request], m.Committed, "`committed` as version 1")


def _problem_of(file: m.LogFile) -> str:
    """What makes the file of an observation invalid; empty: nothing."""
    if file.name.startswith(("/", "./")) or LOG_FOLDER in file.name:
        right = file.name.rpartition(LOG_FOLDER)[2].lstrip("./")
        return f"{wire.shown(file.name)}; expected a name relative to the log folder: {right!r}"
    if file.content is None and file.name.endswith(".json"):
        return f"no content of {file.name!r}, though `contents` was true"
    return ""
