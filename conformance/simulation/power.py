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

from dataclasses import dataclass, field
from functools import partial
from random import Random

from conformance.interface.answers import name_of
from conformance.simulation.power_checks import Examination
from conformance.simulation.power_run import Asked, Cut, Host, recorded
from conformance.simulation.power_scopes import Scope
from conformance.simulation.power_states import PowerCut, identity


@dataclass(frozen=True, slots=True)
class Violation:
    """What was wrong after one power cut."""

    scope: str
    problem: str
    at: int
    effect: str
    facts: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """What was explored of one scope."""

    scope: str
    effects: int = 0
    cuts: int = 0
    exhausted: int = 0
    """Cuts of which every possible disk was checked."""
    states: int = 0
    """Distinct disks after a cut."""
    starts: int = 0
    """Ordinary starts on them: one for each answer that had been given by then."""
    judged: int = 0
    """Different states of the subject after its start, with what had been answered: each was examined as a whole."""
    violations: list[Violation] = field(default_factory=list)


def explore(host: Host, scope: Scope, *, states_per_cut: int, seed: int, stop_at: int = 1) -> Result:
    """Cut the power at every moment of a scope. Of each cut every disk is checked that it may leave, or
    `states_per_cut` of them, which the seed draws. Ends early after `stop_at` violations."""
    run = recorded(host, partial(scope.setup, scope), partial(scope.script, scope))
    examine = Examination(host, scope, run)
    result = Result(scope=scope.name, effects=run.effects, cuts=len(run.cuts))
    seen: set[tuple[int, int, bool]] = set()
    for cut in run.cuts:
        power = PowerCut(cut.snapshot)
        result.exhausted += power.choices <= states_per_cut
        pending = bool(cut.facts) and cut.facts[-1].answer is None
        for tree in power.disks(Random(f"{seed}/{scope.name}/{cut.at}"), limit=states_per_cut):
            state = identity(tree), len(cut.facts), pending
            if state in seen:
                continue
            seen.add(state)
            problem = examine(tree, cut.facts)
            if problem is not None:
                result.violations.append(_violation(scope, problem, cut))
                if len(result.violations) >= stop_at:
                    break
        if len(result.violations) >= stop_at:
            break
    result.states = len({disk for disk, _, _ in seen})
    result.starts = len(seen)
    result.judged = examine.judged
    return result


def _violation(scope: Scope, problem: str, cut: Cut) -> Violation:
    return Violation(
        scope=scope.name,
        problem=problem,
        at=cut.at,
        effect=f"{cut.effect.moment.value} {cut.effect.kind.value} {cut.effect.target}",
        facts=tuple(_in_words(each) for each in cut.facts),
    )


def _in_words(asked: Asked) -> str:
    answer = "no answer" if asked.answer is None else name_of(asked.answer)
    return f"{name_of(asked.request)}: {answer}"
