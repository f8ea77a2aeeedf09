"""Interrupts every effect of every operation in four modes. Acknowledged commits must stay; other commits must exist
completely or not at all.

- `before`: the process dies just before the effect;
- `after`: the process dies just after the effect;
- `answer-lost`: the effect happens, but the process gets an I/O error; the failed request is sent once more, and then
the process dies;
- `delayed`: the process stalls before the effect, and a concurrent actor starts another process and sends requests;
then the first process continues. The effects within one database transaction stall together.

After the interruption the subject starts normally, and the `examination` judges it.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import Final

import greenlet

from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.models import proposals
from conformance.simulation import operations
from conformance.simulation.disk import Disk
from conformance.simulation.effects import Effect, Kind, Moment, unobserved
from conformance.simulation.examination import Examination, Flaw, FoundError, Violation, log_of
from conformance.simulation.host import Ask, Host


class Mode(StrEnum):
    """How an effect is interrupted."""

    BEFORE = "before"
    AFTER = "after"
    ANSWER_LOST = "answer-lost"
    DELAYED = "delayed"


TRANSACTIONS: Final = frozenset({Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK, Kind.QUERY})
"""Effects on transactions. The database's effects on its files happen within a transaction."""
_NO_DISK: Final = TRANSACTIONS | {Kind.ACQUIRE, Kind.RELEASE, Kind.CLOCK, Kind.PAUSE}
"""Effects without an answer of the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashViolation(Violation):
    """A violation after one interruption."""

    mode: Mode
    actor: str = ""
    """The concurrent actor; only with `delayed`."""

    def __str__(self) -> str:
        meanwhile = f", and {self.actor} meanwhile" if self.actor else ""
        return f"effect {self.at}, {self.effect}: {self.mode.value}{meanwhile}"


@dataclass(slots=True)
class Result:
    """The result of the exploration of one operation."""

    scope: str
    effects: int = 0
    """The number of effects of the uninterrupted operation."""
    interrupted: dict[str, int] = field(default_factory=lambda: dict.fromkeys((mode.value for mode in Mode), 0))
    """The number of runs in each mode. An effect without an answer of the disk has no `answer-lost` run. A transaction
    is delayed as a whole, once for each actor."""
    states: int = 0
    """The number of starts: one for each different disk with the answers before it."""
    judged: int = 0
    """The number of different states of the subject after these starts. Each state was examined once."""
    violations: list[CrashViolation] = field(default_factory=list)

    @property
    def runs(self) -> int:
        return sum(self.interrupted.values())


# Concurrent actors

RIVAL: Final = 950
"""The number of the rival's attempt at the creation of the table. For version v it is this number plus v."""
MOST_VERSIONS: Final = 8


def _resolves(_operation: operations.Operation, ask: Ask, stalled: m.Request | None) -> None:
    _resolve(ask, stalled)
    if stalled is not None:
        ask(stalled)


def _resends(_operation: operations.Operation, ask: Ask, stalled: m.Request | None) -> None:
    if stalled is not None:
        ask(stalled)
    _resolve(ask, stalled)


def _resolve(ask: Ask, stalled: m.Request | None) -> None:
    table = ask(m.LoadTable(name=operations.TABLE))
    own = getattr(stalled, "attempt", None)
    if isinstance(table, m.Table) and own is not None:
        ask(m.AttemptOutcome(table=table.table, attempt=own))


def _commits(operation: operations.Operation, ask: Ask, stalled: m.Request | None) -> None:
    """An actor that proposes the version of the stalled request, or the next one, and publishes all commits."""
    table = ask(m.LoadTable(name=operations.TABLE))
    if not isinstance(table, m.Table):
        if isinstance(stalled, m.CreateTable | m.TakeOver):
            ask(operation.creation(operations.attempt(RIVAL)))
        return
    late = isinstance(stalled, m.AttemptOutcome)
    latest = -1 if table.latest is None else table.latest
    version = stalled.version if isinstance(stalled, m.Commit | m.HandBack) else latest + 1
    ask(operations.append(table.table, version, stalled.attempt if late else operations.attempt(RIVAL + version)))  # type: ignore[union-attr]
    ask(m.BackfillToVersion(table=table.table, version=version))


ACTORS: Final[tuple[tuple[str, Callable[[operations.Operation, Ask, m.Request | None], None]], ...]] = (
    ("another client resolves", _resolves),
    ("another client resends", _resends),
    ("a rival commits", _commits),
)
"""The concurrent actors, by title. Each sends its requests to another process. It gets the request that the stalled
process is serving, if there is one."""


# One run


Moments = Callable[[int, Moment], None]
"""Called with the number of an effect, from 1, before and after it."""

State = tuple[Disk, tuple[operations.Exchange, ...]]
"""A disk, and all exchanges before that moment."""


def _ignored(_number: int, _moment: Moment) -> None:
    """An actor that does nothing."""


class OneRun(operations.DiskRun):
    """One run, from the start of a process to the end of its script. It calls `moments` before and after each
    effect."""

    def __init__(
        self, host: Host, disk: Disk, start: int, before: Sequence[operations.Exchange], moments: Moments = _ignored
    ) -> None:
        super().__init__(disk, before)
        self.effects: list[tuple[Effect, bool]] = []
        """Each effect, and whether it is inside a transaction."""
        self._host = host
        self._start = start
        self._moments = moments
        self._open: list[int] = []
        self._inside = False

    @property
    def state(self) -> State:
        return self.disk.copy(), tuple(self.exchanges)

    def go(self, script: Callable[[Ask], object], *, once_more: bool = False) -> list[State]:
        """Run, and return the final states. A failed request ends the run early. With `once_more` the request is sent
        again; then the state before the second send is a final state too."""
        try:
            ask = self.start(self._host, self._start)
        except Exception:  # noqa: BLE001  # a failed start is a result; the next start may succeed
            return [self.state]
        ends: list[State] = []
        try:
            script(ask)
        except operations.UnexpectedAnswerError:
            if once_more:
                ends.append(self.state)
                ask(self.exchanges[-1].request)
        return [*ends, self.state]

    def meanwhile(self, others: Sequence[operations.Exchange]) -> None:
        """Record the requests to another process while this one stalled."""
        if self.stalled is not None:
            self.exchanges[-1] = operations.with_others(self.exchanges[-1], others)
        else:
            self.exchanges += others

    @property
    def stalled(self) -> m.Request | None:
        """The request that is being served."""
        return self.exchanges[-1].request if self.exchanges and self.exchanges[-1].answer is None else None

    def _see(self, effect: Effect) -> None:
        if effect.moment is Moment.BEFORE:
            self.effects.append((effect, self._inside))
            number = len(self.effects)
            self._open.append(number)
            self._moments(number, Moment.BEFORE)
            self._inside = self._inside or effect.kind in TRANSACTIONS
            return
        number = self._ended(effect)
        self._inside = self._inside and effect.kind not in TRANSACTIONS
        self._moments(number, Moment.AFTER)

    def _ended(self, effect: Effect) -> int:
        """The number of the effect that ended. An effect that began after it and has not ended has failed."""
        while True:
            number = self._open.pop()
            begun = self.effects[number - 1][0]
            if (begun.kind, begun.target) == (effect.kind, effect.target):
                return number


# Exploration


def explore(host: Host, operation: operations.Operation, modes: Sequence[Mode] = tuple(Mode)) -> Result:
    """Interrupt an operation at each of its effects. Before that, run it without interruption. Ends with the first
    violation."""
    exploration = _Exploration(host, operation)
    try:
        exploration.uninterrupted()
        for mode in modes:
            exploration.explore(mode)
    except FoundError as error:
        exploration.result.violations.append(error.violation)
    return exploration.finished()


class _Exploration:
    def __init__(self, host: Host, operation: operations.Operation) -> None:
        self._host = host
        self._operation = operation
        self._script = partial(operation.script, operation)
        self._before: tuple[operations.Exchange, ...] = ()
        self._settled = self._set_up()
        self._examine = Examination(host, operation, operations.recorded(host, operation))
        self._seen: set[tuple[int, int]] = set()
        self.result = Result(scope=operation.name)
        self._effects, _ = self._run()
        self.result.effects = len(self._effects)
        self._expect_rivals()

    def finished(self) -> Result:
        self.result.states = len(self._seen)
        self.result.judged = self._examine.judged
        return self.result

    def _set_up(self) -> Disk:
        """The disk just before the operation. If the first start is part of the operation, the disk is empty."""
        run = operations.Recorder(Disk())
        if self._operation.setup is not None:
            self._operation.setup(self._operation, run.start(self._host, 1))
            run.disk.sync_everything()
        self._before = tuple(run.exchanges)
        disk = run.disk.copy()
        self._host.stop()
        return disk

    def _expect_rivals(self) -> None:
        """Expect the commits that concurrent actors may land, with the content that the subject gives them."""
        creation = self._operation.creation(operations.attempt(RIVAL))
        ask = self._host.start(self._settled.copy(), start=self._examine.next_start(), hook=unobserved)
        answer, first = ask(creation), self._operation.versions_before
        landed = isinstance(answer, m.Ratified) and answer.table is not None
        content = log_of(ask, answer.table)[first][1] if landed else None  # type: ignore[union-attr,arg-type]
        self._host.stop()
        self._examine.expect(creation.attempt, first, content or "")
        numbered = [(version, RIVAL + version) for version in range(1, MOST_VERSIONS)]
        for version, number in [*numbered, (2, 900)]:
            actions = operations.append("", version, operations.attempt(number)).actions or ()
            self._examine.expect(operations.attempt(number), version, proposals.content(actions))

    def uninterrupted(self) -> None:
        """Run the operation without interruption; then end the process."""
        _, ends = self._run()
        self._judge(ends[-1], Mode.AFTER, len(self._effects))

    def explore(self, mode: Mode) -> None:
        for number, (effect, inside) in enumerate(self._effects, 1):
            if mode is Mode.ANSWER_LOST and effect.kind in _NO_DISK:
                continue
            if mode is Mode.DELAYED:
                for name, go in ACTORS if not inside else ():
                    self.result.interrupted[mode] += 1
                    self._judge(self._delayed(number, partial(go, self._operation)), mode, number, name)
                continue
            self.result.interrupted[mode] += 1
            if mode is Mode.ANSWER_LOST:
                for end in self._answer_lost(number):
                    self._judge(end, mode, number)
            else:
                self._judge(self._deaths[number, Moment(mode.value)], mode, number)

    # The four modes

    @cached_property
    def _deaths(self) -> dict[tuple[int, Moment], State]:
        """The states before and after every effect, from one run. An effect without an end has failed; the state after
        it is the state before the next effect."""
        states: dict[tuple[int, Moment], State] = {}
        disks: dict[int, Disk] = {}

        def keep(number: int, at: Moment) -> None:
            disk = disks.get(run.disk.revision)
            if disk is None:
                disk = disks[run.disk.revision] = run.disk.copy()
            states[number, at] = disk, tuple(run.exchanges)

        run = self._one_run(keep)
        last = run.go(self._script)[-1]
        self._host.stop()
        for number in range(len(run.effects), 0, -1):
            states.setdefault((number, Moment.AFTER), last)
            last = states[number, Moment.BEFORE]
        return states

    def _answer_lost(self, number: int) -> list[State]:
        def fail(at: int, when: Moment) -> None:
            if at == number and when is Moment.AFTER:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        return self._run(fail)[1]

    def _delayed(self, number: int, actor: Callable[[Ask, m.Request | None], None]) -> State:
        hub = greenlet.getcurrent()

        def stall(at: int, when: Moment) -> None:
            if at == number and when is Moment.BEFORE:
                hub.switch()

        run = self._one_run(stall)
        process = greenlet.greenlet(lambda: run.go(self._script), parent=hub)
        process.switch()
        if not process.dead:
            run.meanwhile(self._asked_by(actor, run.stalled))
            process.switch()
        end = run.state
        self._host.stop()
        return end

    def _asked_by(
        self, actor: Callable[[Ask, m.Request | None], None], stalled: m.Request | None
    ) -> list[operations.Exchange]:
        exchanges: list[operations.Exchange] = []
        try:
            ask = self._host.beside(start=self._examine.next_start())
        except Exception:  # noqa: BLE001  # while a first start stalls, no other process can start
            return exchanges

        def send(request: m.Request) -> m.Answer:
            answer = ask(request)
            exchanges.append(operations.Exchange(request, answer))
            return answer

        actor(send, stalled)
        return exchanges

    # Runs and verdicts

    def _one_run(self, moments: Moments = _ignored) -> OneRun:
        return OneRun(self._host, self._settled.copy(), self._examine.next_start(), self._before, moments)

    def _run(self, moments: Moments = _ignored) -> tuple[list[tuple[Effect, bool]], list[State]]:
        run = self._one_run(moments)
        ends = run.go(self._script, once_more=True)
        self._host.stop()
        return run.effects, ends

    def _judge(self, state: State, mode: Mode, number: int, actor: str = "") -> None:
        disk, exchanges = state
        answers = operations.answers_hash(exchanges)
        seen = disk.fingerprint(), answers
        if seen in self._seen:
            return
        self._seen.add(seen)
        flaw = self._examine(disk, exchanges, answers)
        if mode is Mode.DELAYED and flaw is None:
            flaw = _unanswered(exchanges)
        if flaw is not None:
            effect = self._effects[number - 1][0]
            raise FoundError(
                CrashViolation(
                    scope=self._operation.name,
                    requirement=flaw.requirement,
                    problem=flaw.problem,
                    mode=mode,
                    at=number,
                    effect=f"{effect.kind.value} {effect.target}",
                    actor=actor,
                    exchanges=operations.in_words(exchanges),
                )
            )


def _unanswered(exchanges: Sequence[operations.Exchange]) -> Flaw | None:
    """The flaw of an `unknown` answer, which is a violation as long as the disk works."""
    for exchange in operations.in_order_of_answers(exchanges):
        if isinstance(exchange.answer, m.Unknown):
            return Flaw(f"{name_of(exchange.request)} was answered by {exchange.answer}", "PROFILE-CORE-03")
    return None
