"""Each mutant is found by the requirement that it violates, and is correct while nothing
disturbs it.

By default these tests hunt some of the mutants, with `-m ""` all.
"""

from pathlib import Path
from typing import Final, cast

import msgspec
import pytest

from conformance.requirements.catalogue import load
from conformance.simulation.explore import follow
from conformance.simulation.reference import SimulatedReference
from conformance.simulation.schedule_scopes import Outcome, ScopeRun, prepare
from spec_tests.conformance.simulation import hunting
from spec_tests.conformance.simulation.interruption_mutants import POWER_MUTANTS
from spec_tests.conformance.simulation.schedule_mutants import SCHEDULE_MUTANTS
from spec_tests.support.sampling import sampled

SLOW = {
    "asks-then-replaces", "latest-by-a-second-look", "publishes-in-place",
    "forgets-before-it-publishes", "recorded-before-it-is-visible", "publishes-the-newest-first",
    "resolves-from-an-old-look", "decided-outside-the-transaction",
    "description-decides",
}  # fmt: skip
"""Mutants whose hunt takes more than half a second of processor time."""


MUTANTS: Final[tuple[hunting.Mutant, ...]] = (*SCHEDULE_MUTANTS, *POWER_MUTANTS)


class Bug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bug of the reference that the simulator found. The mutant without the fix shows it again."""

    schema: int
    bug: str
    fix: str
    subject: str
    """The mutant without the fix."""
    family: str
    scope: str
    requirement: str
    size: str
    counterexample: tuple[str, ...]


BUGS = {
    file.stem: msgspec.json.decode(file.read_bytes(), type=Bug)
    for file in sorted((Path(__file__).parents[3] / "fixtures" / "simulation").glob("*.json"))
}


@pytest.mark.parametrize(
    "mutant", sampled((bad for bad in SCHEDULE_MUTANTS if bad.id not in SLOW), 5), ids=lambda bad: bad.id
)
def test_a_schedule_exposes_a_mutant_and_not_the_reference(mutant: hunting.ScheduleMutant) -> None:
    scope = hunting.scope_of(mutant)
    with mutant.host() as host:
        steps, _ = hunting.first_bad_schedule(host, scope, mutant.requirement)
        assert steps is not None
    with SimulatedReference() as good:
        start = prepare(scope, good)
        outcome, _ = follow(lambda: ScopeRun(scope, good, start), [step.client for step in steps])
        assert cast(Outcome, outcome).violations == ()


@pytest.mark.parametrize("mutant", sampled(SCHEDULE_MUTANTS, 5), ids=lambda mutant: mutant.id)
def test_a_schedule_mutant_conforms_without_switches(mutant: hunting.ScheduleMutant) -> None:
    """Otherwise an ordinary test could find it."""
    scope = hunting.scope_of(mutant)
    with mutant.host() as host:
        start = prepare(scope, host)
        for first in scope.requests(start):
            outcome, steps = follow(lambda: ScopeRun(scope, host, start), [first] * 500)
            assert cast(Outcome, outcome).violations == ()
            assert len(hunting.turns_of(steps)) == len(scope.requests(start))


INTERRUPTED = [bad for bad in POWER_MUTANTS if bad.id not in SLOW | {bug.subject for bug in BUGS.values()}]


@pytest.mark.parametrize("mutant", sampled(INTERRUPTED, 5), ids=lambda mutant: mutant.id)
def test_an_interruption_exposes_a_mutant(mutant: hunting.PowerMutant) -> None:
    hunt = mutant.hunt()
    assert hunt.found == mutant.requirement
    assert hunt.size.startswith("1 cut, ")


def test_each_mutant_violates_a_requirement_of_the_catalogue() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.requirement for mutant in MUTANTS} <= {requirement.id for requirement in load().requirements}
    assert {mutant.family for mutant in MUTANTS} == {"schedule", "power"}


@pytest.mark.parametrize("bug", sampled(BUGS.values(), 5), ids=BUGS)
def test_without_its_fix_a_bug_is_found_again(bug: Bug) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.id == bug.subject)
    hunt = mutant.hunt()
    assert (mutant.family, mutant.scope) == (bug.family, bug.scope)
    assert (hunt.found, hunt.size, hunt.counterexample) == (bug.requirement, bug.size, bug.counterexample)
