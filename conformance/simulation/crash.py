"""Every effect of every operation, interrupted in four ways: nothing acknowledged is lost, nothing is half there.

- `before`: the process dies just before the effect;
- `after`: it dies just after;
- `answer-lost`: the effect happens, and the process hears of an I/O error instead; it says to its clients what it makes
  of that, is asked once more, and dies;
- `delayed`: the process stalls before the effect, another one starts meanwhile, asks and recovers; then the first goes
  on as if nothing had been. What a database does inside one transaction stalls as a whole.

Then an ordinary start, and the strict examination of `power_checks`: what was acknowledged by anybody is there,
unchanged; anything else is there wholly or not at all, its attempt's outcome says which, and says so for ever.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import Final

import greenlet

from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.simulation.crash_company import Company, company, expected
from conformance.simulation.crash_run import TRANSACTIONS, Moments, OneRun, Processes, State, nothing
from conformance.simulation.effects import Effect, Kind, Moment, unobserved
from conformance.simulation.power_checks import Examination, Wrong, log_of, moment
from conformance.simulation.power_run import Asked, Recorder, in_order_of_answers, recorded
from conformance.simulation.power_scopes import Scope
from conformance.simulation.storage import Disk


class Mode(StrEnum):
    """How an effect is interrupted."""

    BEFORE = "before"
    AFTER = "after"
    ANSWER_LOST = "answer-lost"
    DELAYED = "delayed"


_NO_DISK: Final = TRANSACTIONS | {Kind.ACQUIRE, Kind.RELEASE, Kind.CLOCK, Kind.PAUSE}
"""Effects that have no answer of a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What was wrong after one interruption."""

    scope: str
    requirement: str
    problem: str
    mode: Mode
    at: int
    """The number of the effect in the operation, from 1."""
    effect: str
    company: str = ""
    """Who came meanwhile; only of `delayed`."""
    facts: tuple[str, ...] = ()
    """What had been asked, in the order of the answers."""


@dataclass(slots=True)
class Result:
    """What was explored of one operation."""

    scope: str
    effects: int = 0
    """Of the uninterrupted operation."""
    interrupted: dict[str, int] = field(default_factory=Counter)
    """Runs by mode. An effect without an answer of the disk has none to lose; only the whole of a transaction is
    delayed, once for each company."""
    states: int = 0
    """Different disks, each with what had been answered by then: so many starts."""
    judged: int = 0
    """Different states of the subject after these starts: each was examined as a whole."""
    violations: list[Violation] = field(default_factory=list)

    @property
    def runs(self) -> int:
        return sum(self.interrupted.values())


def explore(host: Processes, scope: Scope, modes: Sequence[Mode] = tuple(Mode)) -> Result:
    """Interrupt an operation at each of its effects; first of all, start again after it. Ends with the first
    violation."""
    exploration = _Exploration(host, scope)
    try:
        exploration.uninterrupted()
        for mode in modes:
            exploration.explore(mode)
    except _Found as found:
        exploration.result.violations.append(found.violation)
    return exploration.finished()


class _Found(Exception):  # noqa: N818  # what was looked for
    def __init__(self, violation: Violation) -> None:
        super().__init__(violation)
        self.violation = violation


class _Exploration:
    def __init__(self, host: Processes, scope: Scope) -> None:
        self._host = host
        self._scope = scope
        self._script = partial(scope.script, scope)
        self._before: tuple[Asked, ...] = ()
        self._settled = self._set_up()
        setup = None if scope.setup is None else partial(scope.setup, scope)
        self._examine = Examination(host, scope, recorded(host, setup, self._script))
        self._seen: set[tuple[int, int]] = set()
        self.result = Result(scope=scope.name)
        self._effects, _ = self._run()
        self.result.effects = len(self._effects)
        for each in expected(scope):
            content = self._made_of(each.request, each.version) if each.content is None else each.content
            self._examine.expect(each.request.attempt, each.version, content)

    def finished(self) -> Result:
        self.result.states = len(self._seen)
        self.result.judged = self._examine.judged
        return self.result

    def _set_up(self) -> Disk:
        """The disk just before the operation: an empty one, where the first start is part of it."""
        run = Recorder(Disk())
        if self._scope.setup is not None:
            self._scope.setup(self._scope, run.start(self._host, 1))
            run.disk.sync_everything()
        self._before = tuple(run.facts)
        disk = run.disk.copy()
        self._host.stop()
        return disk

    def _one_run(self, moments: Moments = nothing) -> OneRun:
        return OneRun(self._host, self._settled.copy(), self._examine.next_start, self._before, moments)

    def _made_of(self, request: m.Request, version: int) -> str:
        """The content of a version that the subject makes of a request, if nobody else is there."""
        ask = self._host.start(self._settled.copy(), start=self._examine.next_start, hook=unobserved)
        told = ask(request)
        named = isinstance(told, m.Ratified) and told.table is not None
        content = log_of(ask, told.table)[version][1] if named else None  # type: ignore[union-attr,arg-type]
        self._host.stop()
        return content or ""

    def uninterrupted(self) -> None:
        """The operation ends, and the process after it."""
        _, ends = self._run()
        self._judge(ends[-1], Mode.AFTER, len(self._effects), self._effects[-1][0])

    def explore(self, mode: Mode) -> None:
        for number, (effect, inside) in enumerate(self._effects, 1):
            if mode is Mode.ANSWER_LOST and effect.kind in _NO_DISK:
                continue
            if mode is Mode.DELAYED:
                for who in company(self._scope) if not inside else ():
                    self.result.interrupted[mode] += 1
                    self._judge(self._delayed(number, who), mode, number, effect, who.name)
                continue
            self.result.interrupted[mode] += 1
            if mode is Mode.ANSWER_LOST:
                for end in self._answer_lost(number):
                    self._judge(end, mode, number, effect)
            else:
                self._judge(self._deaths[number, Moment(mode.value)], mode, number, effect)

    # The four ways

    @cached_property
    def _deaths(self) -> dict[tuple[int, Moment], State]:
        """What is there before and after every effect, from one run. What has no end has failed: it left what the next
        one found."""
        found: dict[tuple[int, Moment], State] = {}
        disks: dict[int, Disk] = {}

        def keep(number: int, at: Moment) -> None:
            disk = disks.get(run.disk.revision)
            if disk is None:
                disk = disks[run.disk.revision] = run.disk.copy()
            found[number, at] = disk, tuple(run.facts)

        run = self._one_run(keep)
        last = run.go(self._script)[-1]
        self._host.stop()
        for number in range(len(run.effects), 0, -1):
            found.setdefault((number, Moment.AFTER), last)
            last = found[number, Moment.BEFORE]
        return found

    def _answer_lost(self, number: int) -> list[State]:
        def fail(at: int, when: Moment) -> None:
            if at == number and when is Moment.AFTER:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        return self._run(fail)[1]

    def _delayed(self, number: int, who: Company) -> State:
        hub = greenlet.getcurrent()

        def stall(at: int, when: Moment) -> None:
            if at == number and when is Moment.BEFORE:
                hub.switch()

        run = self._one_run(stall)
        process = greenlet.greenlet(lambda: run.go(self._script), parent=hub)
        process.switch()
        if not process.dead:
            run.came(self._asked_by(who, run.stalled))
            process.switch()
        end = run.state
        self._host.stop()
        return end

    def _asked_by(self, who: Company, stalled: m.Request | None) -> list[Asked]:
        facts: list[Asked] = []
        try:
            ask = self._host.beside(start=self._examine.next_start)
        except Exception:  # noqa: BLE001  # a first start that stalls: nobody else starts meanwhile
            return facts

        def asked(request: m.Request) -> m.Answer:
            answer = ask(request)
            facts.append(Asked(request, answer))
            return answer

        who.go(asked, stalled)
        return facts

    # Runs and verdicts

    def _run(self, moments: Moments = nothing) -> tuple[list[tuple[Effect, bool]], list[State]]:
        run = self._one_run(moments)
        ends = run.go(self._script, once_more=True)
        self._host.stop()
        return run.effects, ends

    def _judge(self, state: State, mode: Mode, number: int, effect: Effect, who: str = "") -> None:
        disk, facts = state
        told = moment(facts)
        seen = disk.fingerprint(), told
        if seen in self._seen:
            return
        self._seen.add(seen)
        wrong = self._examine(disk, facts, told, may_halt=mode is Mode.ANSWER_LOST)
        if mode is Mode.DELAYED and wrong is None:
            wrong = _unanswered(facts)
        if wrong is not None:
            raise _Found(
                Violation(
                    scope=self._scope.name,
                    requirement=wrong.requirement,
                    problem=wrong.problem,
                    mode=mode,
                    at=number,
                    effect=f"{effect.kind.value} {effect.target}",
                    company=who,
                    facts=tuple(_in_words(facts)),
                )
            )


def _unanswered(facts: Sequence[Asked]) -> Wrong | None:
    """With a disk that works there is no reason for it."""
    for each in in_order_of_answers(facts):
        if isinstance(each.answer, m.Unknown):
            return Wrong(f"{name_of(each.request)} was answered by {each.answer}", "PROFILE-CORE-03")
    return None


def _in_words(facts: Sequence[Asked]) -> Iterator[str]:
    for each in in_order_of_answers(facts):
        yield f"{name_of(each.request)}: {'no answer' if each.answer is None else name_of(each.answer)}"
