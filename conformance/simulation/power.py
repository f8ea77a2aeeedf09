"""Power loss at every effect: what stands afterwards is recovered by an ordinary start, and judged strictly.

A script is run once on a simulated host, and at every effect the disk is remembered, with what had been answered by
then. Afterwards each of these moments is a power cut: every disk that it may leave (`power_states`), as far as the
budget goes, is started from, and everything is asked that a client would ask. What must hold:

- what was acknowledged is there, unchanged; what was refused is not;
- what nobody was told of is wholly there or wholly absent, and its attempt's outcome says which, for ever: also when
  it is sent again, and after the power fails once more;
- no `<v>.json` is ever torn, or anything but the version it says;
- the log has no gap, and the table goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

from conformance.interface.messages import name_of
from conformance.simulation.jobs import Exchange, untold
from conformance.simulation.power_checks import Examination, Wrong, moment
from conformance.simulation.power_run import Asked, Cut, Host, recorded, recovery, troubled
from conformance.simulation.power_scopes import Scope
from conformance.simulation.power_states import PowerCut, identity
from conformance.simulation.storage import Disk, Tree


@dataclass(frozen=True, slots=True)
class Violation:
    """What was wrong after one power cut."""

    scope: str
    requirement: str
    problem: str
    at: int
    effect: str
    facts: tuple[str, ...]
    lost: tuple[str, ...] = ()
    """What the power took, of which nothing can be given back without hiding the problem."""


@dataclass(slots=True)
class Result:
    """What was explored of one scope."""

    scope: str
    effects: int = 0
    cuts: int = 0
    exhausted: int = 0
    """Cuts of which every possible disk was checked."""
    recoveries: int = 0
    """Recoveries that were interrupted, at each of their own effects."""
    states: int = 0
    """Distinct disks after a cut."""
    starts: int = 0
    """Ordinary starts on them: one for each answer that had been given by then."""
    judged: int = 0
    """Different states of the subject after its start, with what had been answered: each was examined as a whole."""
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much of what may happen is tried."""

    states: int
    """Disks of each cut; all of them, where there are no more."""
    deaths: bool = False
    """Whether the process alone dies at every effect too, starts again, and then the power is cut at every effect of
    that recovery."""
    recoveries: int = 0
    """So many disks of each cut are recovered with the power cut at every effect of that."""
    states_in_recovery: int = 1
    failing_syncs: bool = False
    """Whether each sync of the script fails, in a run of its own. Of every cut afterwards `states_in_recovery` disks
    are tried."""
    deaths_after_failing: int = 0
    """At so many moments after each of these failures the process dies (chosen by the seed, where there are more);
    another one starts, and the power is cut at every effect of that. Half as often a sync of the new one fails too."""


def explore(host: Host, scope: Scope, budget: Budget, *, seed: int, told: Exchange = untold) -> Result:
    """Cut the power at every moment of a scope. Ends with the first violation."""
    setup = None if scope.setup is None else partial(scope.setup, scope)
    script = partial(scope.script, scope)
    run = recorded(host, setup, script)
    exploration = _Exploration(host, scope, Examination(host, scope, run), seed, told)
    exploration.result.effects = run.effects
    try:
        for cut in run.cuts:
            exploration.cut(cut, budget.states)
        for cut in run.cuts:
            exploration.recover(cut, budget)
        if budget.failing_syncs and setup is not None:
            for sync in range(1, run.syncs + 1):
                cuts = troubled(host, setup, script, sync).cuts
                for cut in cuts:
                    exploration.cut(cut, budget.states_in_recovery, f"sync {sync} failed", may_halt=True)
                exploration.die_after(cuts, f"sync {sync} failed, and the process died", budget)
    except _Found as found:
        exploration.result.violations.append(found.violation)
    return exploration.finished()


MOST_SYNCS: Final = 8
"""The start of a process and what it is asked first have about so many syncs."""


class _Found(Exception):  # noqa: N818  # what was looked for
    def __init__(self, violation: Violation) -> None:
        super().__init__(violation)
        self.violation = violation


class _Exploration:
    def __init__(self, host: Host, scope: Scope, examine: Examination, seed: int, told: Exchange) -> None:
        self._host = host
        self._told = told
        self._scope = scope
        self._examine = examine
        self._seed = seed
        self._seen: set[tuple[int, int]] = set()
        self.result = Result(scope=scope.name)

    def finished(self) -> Result:
        self.result.states = len({disk for disk, _ in self._seen})
        self.result.starts = len(self._seen)
        self.result.judged = self._examine.judged
        return self.result

    def _random(self, cut: Cut, after: str = "") -> Random:
        return Random(f"{self._seed}/{self._scope.name}/{after}/{cut.at}/{cut.effect.moment}")

    def cut(self, cut: Cut, states: int, after: str = "", *, may_halt: bool = False) -> None:
        """The power goes; `after`: what went before it."""
        told = moment(cut.facts)
        self._told(lambda: f"{self.result.cuts:,} cuts, {len(self._seen):,} starts")
        power = PowerCut(cut.disk.snapshot())
        self.result.cuts += 1
        self.result.exhausted += power.choices <= states
        for tree in power.disks(self._random(cut, after), limit=states):
            state = identity(tree), told
            if state not in self._seen:
                self._seen.add(state)
                wrong = self._examine(tree, cut.facts, told, may_halt=may_halt)
                if wrong is not None:

                    def shows(smaller: Tree, wanted: str = wrong.requirement) -> bool:
                        found = self._examine(smaller, cut.facts, told, may_halt=may_halt)
                        return found is not None and found.requirement == wanted

                    _, lost = power.least_lost(tree, shows)
                    raise _Found(replace(_violation(self._scope, wrong, cut, after), lost=lost))

    def recover(self, cut: Cut, budget: Budget) -> None:
        """The process dies, or the power goes, and goes again while the subject recovers."""
        if budget.deaths:
            self._interrupted(cut, cut.disk.copy(), f"the process died {_place(cut)}", budget)
        trees = PowerCut(cut.disk.snapshot()).disks(self._random(cut, "first"), limit=budget.recoveries)
        for number, tree in enumerate(trees if budget.recoveries else ()):
            after = f"the power went {_place(cut)}, and left disk {number}"
            self._interrupted(cut, Disk.holding(tree, now=0), after, budget)

    def die_after(self, cuts: Sequence[Cut], after: str, budget: Budget) -> None:
        """The process dies at some of these moments; of the next one a sync may fail, too."""
        random = self._random(cuts[0], after)
        for number, cut in enumerate(random.sample(cuts, min(budget.deaths_after_failing, len(cuts)))):
            sync = random.randint(1, MOST_SYNCS) if number % 2 else None
            too = "" if sync is None else f", and sync {sync} of the next one failed"
            self._interrupted(cut, cut.disk.copy(), f"{after} {_place(cut)}{too}", budget, sync)

    def _interrupted(self, cut: Cut, disk: Disk, after: str, budget: Budget, failing_sync: int | None = None) -> None:
        self.result.recoveries += 1
        start = self._examine.start_number
        for second in recovery(self._host, disk, cut.facts, start, failing_sync).cuts:
            self.cut(second, budget.states_in_recovery, after, may_halt=failing_sync is not None)


def _violation(scope: Scope, wrong: Wrong, cut: Cut, after: str) -> Violation:
    return Violation(
        scope=scope.name,
        requirement=wrong.requirement,
        problem=wrong.problem,
        at=cut.at,
        effect=f"{after}; then {_place(cut)}" if after else _place(cut),
        facts=tuple(_in_words(each) for each in cut.facts),
    )


def _place(cut: Cut) -> str:
    return f"{cut.effect.moment.value} {cut.effect.kind.value} {cut.effect.target}"


def _in_words(asked: Asked) -> str:
    answer = "no answer" if asked.answer is None else name_of(asked.answer)
    return f"{name_of(asked.request)}: {answer}"
