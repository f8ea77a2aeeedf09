"""Small scopes: a table, a few clients, and what each of them asks, one request after the other.

Every schedule of a scope is recorded as a history and judged by the checkers; besides, nobody may wait for ever and
every request must be answered. What a scope runs on is a `Host`: the reference, or any owner whose effects can be
given to a scheduler (`Scheduler.hook`).
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from conformance.checkers.check import check_events
from conformance.history import events
from conformance.history.reading import read_events
from conformance.interface import messages as m
from conformance.scenario import proposals
from conformance.scenario.recording import Recording, witnesses
from conformance.scenario.rules import REQUIREMENTS
from conformance.simulation.effects import Hook
from conformance.simulation.schedule import Scheduler

TABLE: Final = "orders"


class Asked(Protocol):
    """A subject as one client reaches it."""

    @property
    def identity(self) -> m.Identity: ...

    def ask(self, client: str, request: m.Request) -> m.Answer: ...


class Host(Protocol):
    """Where runs take place, each from the same start."""

    def prepare(self, ask: Callable[[Any], Any]) -> Any:
        """Let `ask` make what every run starts from, with one client and without a scheduler."""
        ...

    def start(self, clients: Iterable[str], hook: Hook) -> Mapping[str, Asked]:
        """Begin a run: who serves each client. `hook` hears of every effect of theirs."""
        ...

    def stop(self) -> None:
        """End it; nothing of it is left."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The table before the clients begin."""

    table: str
    told: tuple[tuple[m.Request, m.Answer], ...]
    identity: m.Identity
    dialect: str
    way: str


Requests = Callable[[Start], Mapping[str, tuple[m.Request, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """`commits`: so many are ratified and unpublished when the clients begin. `requests`: what each client asks."""

    name: str
    dialect: str
    way: str
    requests: Requests
    commits: int = 0
    backfill: str = "request"
    title: str = ""

    @property
    def id(self) -> str:
        return f"{self.name}[{self.dialect},{self.way}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one schedule."""

    answers: tuple[tuple[str, tuple[m.Answer, ...]], ...]
    """By client."""
    history: str
    violations: tuple[str, ...]
    """Each as `<requirement>: <what happened>`; empty if all is well."""

    @property
    def requirements(self) -> frozenset[str]:
        """What is violated."""
        return frozenset(each.partition(":")[0] for each in self.violations)


def attempt(number: int) -> m.AttemptId:
    return str(uuid.UUID(int=number, version=4))


def proposal(start: Start, version: int, number: int) -> m.Commit:
    """A commit that adds one file; `number` makes it the attempt that it is."""
    own = attempt(number)
    actions = proposals.append(own, proposals.BASE_TIME + version * 1000)
    return m.Commit(table=start.table, version=version, attempt=own, actions=actions)


def prepare(scope: Scope, host: Host) -> Start:
    """Make the table that every run of the scope starts from."""

    def make(subject: Asked) -> Start:
        told: list[tuple[m.Request, m.Answer]] = []

        def ask(request: m.Request) -> m.Answer:
            answer = subject.ask("setup", request)
            told.append((request, answer))
            assert isinstance(answer, m.Ratified), f"{scope.id} cannot start: {request} was answered by {answer}"
            return answer

        first = attempt(1)
        actions = proposals.version_0(scope.dialect, first, attempt(2), timestamp=proposals.BASE_TIME)
        made = ask(
            m.CreateTable(
                name=TABLE,
                feature=scope.dialect,
                way=scope.way,
                attempt=first,
                actions=actions,
                backfill=scope.backfill,
            )
        )
        assert isinstance(made, m.Ratified)
        start = Start(table=made.table or "", told=(), identity=subject.identity, dialect=scope.dialect, way=scope.way)
        for version in range(1, scope.commits + 1):
            ask(proposal(start, version, 100 + version))
        return Start(
            table=start.table, told=tuple(told), identity=subject.identity, dialect=scope.dialect, way=scope.way
        )

    found: Start = host.prepare(make)
    return found


class ScopeRun:
    """One run of a scope; a `Run` for `explore`."""

    def __init__(self, scope: Scope, host: Host, start: Start) -> None:
        self._start = start
        self._way = scope.way
        self._host = host
        self._answers: dict[str, list[m.Answer]] = {}
        self._recording = Recording(
            events.Header(
                schema=events.SCHEMA_VERSION,
                clock=events.Clock(unit="tick"),
                subject=events.Subject(name=start.identity.name, version=start.identity.version),
                dialect=scope.dialect,  # type: ignore[arg-type]
                profiles=start.identity.profiles,
                promises=tuple(each for each in events.Promise if each.value in start.identity.promises),
                note=scope.id,
            )
        )
        for request, answer in start.told:
            self._recording.ended(self._recording.invoke("setup", TABLE, request), request, answer)
        self.scheduler = Scheduler()
        requests = scope.requests(start)
        self._subjects = host.start(requests, self.scheduler.hook)
        self.scheduler.start((client, self._client(client, todo)) for client, todo in requests.items())

    def _client(self, client: str, requests: tuple[m.Request, ...]) -> Callable[[], None]:
        answers = self._answers[client] = []
        subject, scheduler = self._subjects[client], self.scheduler

        def run() -> None:
            for request in requests:
                numbers: list[int] = []

                def record(request: m.Request = request, numbers: list[int] = numbers) -> None:
                    numbers.append(self._recording.invoke(client, TABLE, request))

                scheduler.invoking(record)
                answer = subject.ask(client, request)
                scheduler.returned()
                self._recording.ended(numbers[0], request, answer)
                answers.append(answer)

        return run

    def finish(self, deadlock: str | None) -> Outcome:
        """The verdict; the final log is looked at by one of the clients, after all of them."""
        problems: list[str] = []
        if deadlock is not None:
            problems.append(f"PROFILE-CORE-02: nobody gets on: {deadlock}")
        problems += [f"PROFILE-CORE-02: {name} ended by {error!r}" for name, error in self.scheduler.errors.items()]
        for client, answers in self._answers.items():
            problems += [f"PROFILE-CORE-03: {client} heard {each}" for each in answers if isinstance(each, m.Unknown)]
        if deadlock is None:
            self._look()
            problems += _judged(self._recording.text)
        return Outcome(
            answers=tuple((client, tuple(answers)) for client, answers in sorted(self._answers.items())),
            history=self._recording.text,
            violations=tuple(problems),
        )

    def _look(self) -> None:
        client, subject = next(iter(self._subjects.items()))
        listed = subject.ask(client, m.GetCommits(table=self._start.table))
        files = subject.ask(client, m.Observe(table=self._start.table))
        commits = (listed.commits or ()) if isinstance(listed, m.Commits) else ()
        found = files.files if isinstance(files, m.Observation) else ()
        self._recording.final_log(witnesses(TABLE, found, commits, way=self._way))
        self._recording.complete()

    def close(self) -> None:
        self.scheduler.close()
        self._host.stop()


@lru_cache(maxsize=4096)
def _judged(history: str) -> tuple[str, ...]:
    """What the checkers say. Many schedules have one history."""
    verdict = check_events(list(read_events(io.BytesIO(history.encode()))))
    foreign = "MC-" if verdict.header.dialect == "catalogManaged" else "CM-"
    return tuple(
        f"{next(name for name in REQUIREMENTS[each.rule] if not name.startswith(foreign))}: {each.message}"
        for each in verdict.violations
    )


def two_writers(dialect: str, way: str) -> Scope:
    def requests(start: Start) -> Mapping[str, tuple[m.Request, ...]]:
        return {"alice": (proposal(start, 1, 11),), "bob": (proposal(start, 1, 12),)}

    return Scope(
        name="two-writers", dialect=dialect, way=way, requests=requests, title="2 writers x 1 commit of one version"
    )
