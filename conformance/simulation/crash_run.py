"""One process that runs an operation on a disk, and whoever looks in before and after each of its effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from conformance.interface import messages as m
from conformance.simulation.effects import Effect, Kind, Moment
from conformance.simulation.power_run import Ask, Asked, Host, Script, Unfit
from conformance.simulation.storage import Disk

TRANSACTIONS: Final = frozenset({Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK, Kind.QUERY})
"""What a database does to its files stands inside of these."""

Moments = Callable[[int, Moment], None]
"""Exchange the number of an effect, from 1."""

State = tuple[Disk, tuple[Asked, ...]]
"""A disk, and everything that had been asked by then."""


class Processes(Host, Protocol):
    """A host on which several processes of the subject may run."""

    def beside(self, *, start: int) -> Ask:
        """Another process next to those that run, on the same disk; `start` as for a start."""
        ...


def nothing(_number: int, _moment: Moment) -> None:
    """Nobody looks."""


class OneRun:
    """From the start of a process to the end of what it is asked."""

    def __init__(
        self, host: Processes, disk: Disk, start: int, before: Sequence[Asked], moments: Moments = nothing
    ) -> None:
        self.disk = disk
        self.facts = list(before)
        self.effects: list[tuple[Effect, bool]] = []
        """Each with whether it is inside a transaction's own."""
        self._host = host
        self._start = start
        self._moments = moments
        self._open: list[int] = []
        self._inside = False

    @property
    def state(self) -> State:
        return self.disk.copy(), tuple(self.facts)

    def go(self, script: Script, *, once_more: bool = False) -> list[State]:
        """Where it ended. A request that fails ends it early; with `once_more` that one is sent again, and where it
        ended first is an end too."""
        try:
            ask = self._remembered(self._host.start(self.disk, start=self._start, hook=self._seen))
        except Exception:  # noqa: BLE001  # it does not start, and says so; the next one may
            return [self.state]
        ends: list[State] = []
        try:
            script(ask)
        except Unfit:
            if once_more:
                ends.append(self.state)
                ask(self.facts[-1].request)
        return [*ends, self.state]

    def came(self, others: Sequence[Asked]) -> None:
        """Others asked this while the process stalled."""
        if self.facts and self.facts[-1].answer is None:
            self.facts[-1] = Asked(self.facts[-1].request, None, tuple(others))
        else:
            self.facts += others

    @property
    def stalled(self) -> m.Request | None:
        """What it is asked just now."""
        return self.facts[-1].request if self.facts and self.facts[-1].answer is None else None

    def _remembered(self, ask: Ask) -> Ask:
        def asked(request: m.Request) -> m.Answer:
            at = len(self.facts)
            self.facts.append(Asked(request, None))
            answer = ask(request)
            self.facts[at] = Asked(request, answer, self.facts[at].meanwhile)
            return answer

        return asked

    def _seen(self, effect: Effect) -> None:
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
        """The number of what is over. What began after it, and has no end, has failed."""
        while True:
            number = self._open.pop()
            begun = self.effects[number - 1][0]
            if (begun.kind, begun.target) == (effect.kind, effect.target):
                return number
