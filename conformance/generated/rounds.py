"""The real-process layer: rounds of real clients at the same time, recorded with a monotonic clock, and judged.

Nothing here is deterministic, and nothing is asserted that does not hold under every schedule: whatever is found, the
history shows it. It is shrunk by leaving observations out (`shrinking`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Any, Final

import msgspec

from conformance.adapters.http import HttpSubject
from conformance.adapters.named import InProcessSubject
from conformance.adapters.stdio import StdioSubject
from conformance.adapters.uc.subject import UcSubject
from conformance.generated import shrinking
from conformance.generated.clients import Client, Creator, Operator, Publisher, Reader, Shared, Writer
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError, Subject
from conformance.results import CaseResult, Verdict
from conformance.scenario.check import Check, Variant, applies
from conformance.scenario.running import finish
from conformance.scenario.scenario import Inconclusive, Scenario, Stopped, TableHandle

WRITERS: Final = 3
CREATORS: Final = 4
REPEATS: Final = 20
"""Rounds in which a replay looks for the failure again."""


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a round: with this seed it happened once."""

    seed: int


class Rounds:
    """Runs rounds on a subject. A check's function is given one, and calls `run`."""

    def __init__(
        self, check: Check, variant: Variant, subject: Subject, *, seed: int, count: int, salt: str = "",
        shrink: bool = True,
    ) -> None:  # fmt: skip
        self.check = check
        self.variant = variant
        self.subject = at_once(subject)
        self.own_identity = subject.identity
        self.seed = seed
        self.count = count
        self.salt = salt
        self.shrink = shrink
        self.results: list[CaseResult] = []

    def run(self, *, creators: int = 1, writers: int = WRITERS, kills: bool = False) -> None:
        """Rounds of so many clients, until one fails. `kills`: where the subject survives that."""
        for number in range(self.count):
            if self.results and self.results[-1].verdict is not Verdict.PASSED:
                return
            self.results.append(self._round(self.seed + number, number, creators, writers, kills=kills))

    def _round(self, seed: int, number: int, creators: int, writers: int, *, kills: bool) -> CaseResult:
        if self.subject is None:
            return self._without_verdict("its clients cannot ask at the same time: it was made in this process")
        scenario = Scenario(
            self.subject, self.variant, name=self.check.case(self.variant), seed=seed,
            salt=f"{self.salt}-{number}", clock=time.monotonic_ns,
        )  # fmt: skip
        ended: Stopped | None = None
        try:
            with _apart(self.subject):
                Round(scenario, seed).run(creators, writers, kills=kills)
        except Stopped as stopped:
            ended = stopped
        result = finish(self.check, self.variant, self.subject, scenario, ended)
        if result.verdict is not Verdict.FAILED:
            return result
        shrunk = shrinking.shrunk(result) if self.shrink else result
        again = msgspec.json.encode(Reproduction(seed=seed)).decode()
        return msgspec.structs.replace(shrunk, reproduction=again)

    def _without_verdict(self, reason: str) -> CaseResult:
        return CaseResult(
            case=self.check.case(self.variant), check=self.check.name, title=self.check.title,
            family=self.check.family, layer=self.check.layer, feature=self.variant.feature,
            commit_mode=self.variant.commit_mode,
            requirements=tuple(
                each for each in self.check.requirements if applies(each, self.own_identity, self.variant)
            ),
            verdict=Verdict.INCONCLUSIVE, reason=reason,
        )  # fmt: skip

    def result(self) -> CaseResult:
        """The first that did not pass, else the last; with the operations of all."""
        operations = sum(each.operations for each in self.results)
        last = self.results[-1]
        return msgspec.structs.replace(last, operations=last.operations if last.violations else operations)


def at_once(subject: Subject) -> Subject | None:
    """The subject as several clients can ask it at the same time; None if there is no way."""
    if isinstance(subject, InProcessSubject):
        return subject.beside()
    return subject if isinstance(subject, StdioSubject | HttpSubject | UcSubject) else None


@contextlib.contextmanager
def _apart(subject: Subject) -> Iterator[None]:
    """For the while no two clients share a process, where there are several."""
    if not isinstance(subject, StdioSubject):
        yield
        return
    before, subject.processes = subject.processes, 2**16
    try:
        yield
    finally:
        subject.processes = before


@dataclass
class _Crew:
    """Threads that start at the same time, and what they raised."""

    clients: Sequence[Client]
    stop: Event
    raised: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        barrier = Barrier(len(self.clients))
        threads = [Thread(target=self._one, args=(each, barrier), daemon=True) for each in self.clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in self.raised:
            if isinstance(error, AdapterError):
                raise error
        for error in self.raised:
            raise error

    def _one(self, client: Any, barrier: Barrier) -> None:
        try:
            client.s.subject.ask(client.name, m.Hello())  # its process is there before the race begins
            with contextlib.suppress(BrokenBarrierError):
                barrier.wait()
            client.run()
        except BaseException as error:  # noqa: BLE001  # raised again by whoever waits
            self.raised.append(error)
            self.stop.set()


class Round:
    """Creators race for a table; then writers, a reader and a publisher work on it, all at the same time."""

    def __init__(self, s: Scenario, seed: int) -> None:
        self.s = s
        self.seed = seed
        self.shared = Shared(s=s, table=TableHandle(name="orders", reference="", versions=0))

    def run(self, creators: int, writers: int, *, kills: bool) -> None:
        self._create(creators)
        subject = self._mortal() if kills else None
        one_by_one = subject is not None and self.s.identity.shared_state
        crew: list[Client] = [
            Writer(self.shared, f"client {number}", self.seed, killed=subject if one_by_one and number else None)
            for number in range(writers)
        ]
        crew += [Reader(self.shared, "reader", self.seed), Publisher(self.shared, "publisher", self.seed)]
        if subject is not None and not one_by_one:
            crew.append(Operator(self.shared, "operator", self.seed))
        _Crew(crew, self.shared.stop).run()
        self.s.get_commits(self.shared.table, client="reader")
        self.s.observe(self.shared.table)

    def _mortal(self) -> StdioSubject:
        """The subject, if its processes are the kit's to kill: that of one client, or, where all use one, that one."""
        if isinstance(self.s.subject, StdioSubject):
            return self.s.subject
        raise Inconclusive("its processes are not the kit's to kill")

    def _create(self, creators: int) -> None:
        crew = [
            Creator(self.shared, f"client {number}", self.seed, self.s.creation(self.shared.table.name))
            for number in range(creators)
        ]
        _Crew(crew, self.shared.stop).run()
        winners = [each for each in crew if each.told is not None and isinstance(each.told.answer, m.Ratified)]
        reference = next((each.reference for each in [*winners, *crew] if each.reference is not None), None)
        if reference is None and "discovery" in self.s.identity.profiles:
            name = self.s.physical(self.shared.table.name)
            found = self.s.ask("reader", m.LoadTable(name=name), self.shared.table).answer
            reference = found.table if isinstance(found, m.Table) else None
        if reference is None:
            answers = ", ".join(str(each.told.answer) for each in crew if each.told is not None)
            raise Inconclusive(f"no table was created: {answers}")
        self.shared.table.reference, self.shared.table.versions = reference, 1
        self.s.tables.append(self.shared.table)
