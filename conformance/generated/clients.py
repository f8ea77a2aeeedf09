"""Real clients: threads that ask at the same time, each its own connection or process, each after a plan of its own.

They do what careful clients do: they rebase after a conflict, look again after a gap, resolve or repeat what stayed
unknown. What is right is not decided here: whatever happens under any schedule is recorded, and judged at the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from threading import Event, Timer
from typing import Final

from conformance.adapters.stdio import StdioSubject
from conformance.interface import messages as m
from conformance.models import proposals
from conformance.scenario import ownership
from conformance.scenario.scenario import Exchange, Inconclusive, Scenario, TableHandle

COMMITS: Final = 6
"""Of a writer, if it loses every other race."""
READS: Final = 14
BACKFILLS: Final = 5
SILENT: Final = 3
"""Requests in a row without an answer, after which a client gives up: nobody is there."""
RESTART_WITHIN: Final = 30.0
"""Seconds."""
KILL_WITHIN: Final = 0.004
"""Seconds after a request was sent in which its process is killed: in the middle of it, or just before or after."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """What the clients of one round have in common."""

    s: Scenario
    table: TableHandle
    stop: Event = field(default_factory=Event)
    """Somebody found something: there is no need to go on."""
    down: Event = field(default_factory=Event)
    """The subject was told to die, and is not told to start again yet."""
    up: Event = field(default_factory=Event)
    """It was started again."""

    def resolvable(self) -> bool:
        return "attempt-outcome" in self.s.identity.profiles


class Client:
    """One of them."""

    def __init__(self, shared: Shared, name: str, seed: int) -> None:
        self.shared = shared
        self.s = shared.s
        self.name = name
        self.random = Random(f"{seed}/{name}")
        self.next = 1
        """The version to propose."""
        self._silent = 0

    def over(self) -> bool:
        return self.shared.stop.is_set() or self._silent >= SILENT

    def ask(self, request: m.Request) -> m.Answer:
        answer = self.s.ask(self.name, request, self.shared.table).answer
        if isinstance(answer, m.Unknown):
            self._unanswered()
        else:
            self._silent = 0
        return answer

    def look(self) -> None:
        """At the files."""
        try:
            self.s.observe(self.shared.table, self.name)
        except Inconclusive:
            self._unanswered()

    def _unanswered(self) -> None:
        if self.shared.down.is_set():
            self.shared.up.wait(RESTART_WITHIN)
        else:
            self._silent += 1

    def attempt(self) -> m.AttemptId:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def read(self, start: int | None = None) -> None:
        answer = self.ask(m.GetCommits(table=self.shared.table.reference, start=start))
        if isinstance(answer, m.Commits) and answer.latest is not None:
            self.next = max(self.next, answer.latest + 1)


class Writer(Client):
    """Commits, one version after the other. With `killed`, its process is killed in the middle of one of them."""

    def __init__(self, shared: Shared, name: str, seed: int, killed: StdioSubject | None = None) -> None:
        super().__init__(shared, name, seed)
        self._killed = killed

    def run(self) -> None:
        victim = self.random.randrange(COMMITS)
        for number in range(COMMITS * 2):  # some tries are lost
            if self.over():
                return
            self._try(kill=self._killed is not None and number == victim)

    def _try(self, *, kill: bool) -> None:
        version, attempt = self.next, self.attempt()
        request = m.Commit(
            table=self.shared.table.reference, version=version, attempt=attempt,
            actions=proposals.append(attempt, self.s.timestamp(version)),
        )  # fmt: skip
        answer = self._killed_while(lambda: self.ask(request)) if kill else self.ask(request)
        if isinstance(answer, m.Unknown):
            answer = self._find_out(request)
        self._go_on(version, answer)

    def _go_on(self, version: int, answer: m.Answer) -> None:
        match answer:
            case m.Ratified():
                self.next = version + 1
                self.shared.table.versions = max(self.shared.table.versions, self.next)
            case m.Conflict(latest=latest):
                self.next = max(version, -1 if latest is None else latest) + 1
            case m.Rejected(retryable=True):
                self.ask(m.BackfillToVersion(table=self.shared.table.reference, version=version - 1))
            case _:
                self.read()

    def _find_out(self, request: m.Commit) -> m.Answer:
        """What became of it: by asking, by sending it again, or not at all."""
        choice = self.random.randrange(3)
        if choice == 0 and self.shared.resolvable():
            answer = self.ask(m.AttemptOutcome(table=request.table, attempt=request.attempt))
            return m.Ratified(version=answer.version) if isinstance(answer, m.Landed) else answer
        return self.ask(request) if choice <= 1 else m.Unknown()

    def _killed_while(self, ask: Callable[[], m.Answer]) -> m.Answer:
        assert self._killed is not None
        self.s.recording.fault("SIGKILL", self.name)
        timer = Timer(self.random.uniform(0, KILL_WITHIN), self._killed.kill, [self.name])
        timer.start()
        answer = ask()
        timer.join()
        return answer


class Reader(Client):
    """Asks, resolves, and looks at the files."""

    def run(self) -> None:
        for _ in range(READS):
            if self.over():
                return
            match self.random.randrange(4):
                case 0:
                    self.look()
                case 1 if "discovery" in self.s.identity.profiles:
                    self.ask(m.LoadTable(name=self.s.physical(self.shared.table.name)))
                case 2:
                    self.read(start=max(0, self.next - self.random.randrange(4)))
                case _:
                    self.read()


class Publisher(Client):
    """Has commits backfilled, and looks whether they are."""

    def run(self) -> None:
        for _ in range(BACKFILLS):
            if self.over():
                return
            self.read()
            behind = self.random.randrange(2)
            self.ask(m.BackfillToVersion(table=self.shared.table.reference, version=max(0, self.next - 1 - behind)))
            self.look()


class Operator(Client):
    """Lets the whole subject die once, in the middle of everything, and starts it again."""

    def run(self) -> None:
        for _ in range(self.random.randrange(2, READS)):
            self.read()
        self.shared.down.set()
        try:
            ownership.crash(self.s)
            ownership.restart(self.s)
        finally:
            self.shared.up.set()
            self.shared.down.clear()


class Creator(Client):
    """Wants to have created the table. `told` is what it heard."""

    def __init__(self, shared: Shared, name: str, seed: int, request: m.CreateTable) -> None:
        super().__init__(shared, name, seed)
        self.request = request
        self.told: Exchange | None = None

    def run(self) -> None:
        self.told = self.s.ask(self.name, self.request, self.shared.table)
        if isinstance(self.told.answer, m.Unknown):
            self.told = self.s.ask(self.name, self.request, self.shared.table)

    @property
    def reference(self) -> m.TableRef | None:
        """How the subject calls the table, if this one was told."""
        match self.told:
            case Exchange(answer=m.Ratified(table=found)) | Exchange(answer=m.Conflict(winner_table=found)):
                return found
        return None
