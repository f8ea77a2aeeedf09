"""Each mutant is found by the requirement that it violates, and is correct while nothing
disturbs it. The command `simulate` finds them too.

By default these tests hunt some of the mutants, with `-m ""` all.
"""

import re
from pathlib import Path
from typing import Final, cast

import msgspec
import pytest

from conformance.command import simulating
from conformance.command.application import application
from conformance.requirements.catalogue import load
from conformance.simulation.explore import follow
from conformance.simulation.reference import SimulatedReference
from conformance.simulation.schedule_scopes import Outcome, ScopeRun, prepare
from spec_tests.conformance.simulation import mutants
from spec_tests.conformance.simulation.mutants import POWER_MUTANTS, SCHEDULE_MUTANTS
from spec_tests.support.sampling import sampled

SLOW = {
    "asks-then-replaces", "latest-by-a-second-look", "publishes-in-place",
    "forgets-before-it-publishes", "recorded-before-it-is-visible", "publishes-the-newest-first",
    "resolves-from-an-old-look", "decided-outside-the-transaction",
    "description-decides",
}  # fmt: skip
"""Mutants whose hunt takes more than half a second of processor time."""


MUTANTS: Final[tuple[mutants.Mutant, ...]] = (*SCHEDULE_MUTANTS, *POWER_MUTANTS)


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
def test_a_schedule_exposes_a_mutant_and_not_the_reference(mutant: mutants.ScheduleMutant) -> None:
    scope = mutants.scope_of(mutant)
    with mutant.host() as host:
        steps, _ = mutants.first_bad_schedule(host, scope, mutant.requirement)
        assert steps is not None
    with SimulatedReference() as good:
        start = prepare(scope, good)
        outcome, _ = follow(lambda: ScopeRun(scope, good, start), [step.client for step in steps])
        assert cast(Outcome, outcome).violations == ()


@pytest.mark.parametrize("mutant", sampled(SCHEDULE_MUTANTS, 5), ids=lambda mutant: mutant.id)
def test_a_schedule_mutant_conforms_without_switches(mutant: mutants.ScheduleMutant) -> None:
    """Otherwise an ordinary test could find it."""
    scope = mutants.scope_of(mutant)
    with mutant.host() as host:
        start = prepare(scope, host)
        for first in scope.requests(start):
            outcome, steps = follow(lambda: ScopeRun(scope, host, start), [first] * 500)
            assert cast(Outcome, outcome).violations == ()
            assert len(mutants.turns_of(steps)) == len(scope.requests(start))


INTERRUPTED = [bad for bad in POWER_MUTANTS if bad.id not in SLOW | {bug.subject for bug in BUGS.values()}]


@pytest.mark.parametrize("mutant", sampled(INTERRUPTED, 5), ids=lambda mutant: mutant.id)
def test_an_interruption_exposes_a_mutant(mutant: mutants.PowerMutant) -> None:
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


# The command `simulate`


def simulate(*arguments: str) -> int:
    """Run `delta-commit-conformance simulate`; return the exit code."""
    code: int = application(["simulate", *arguments], standalone_mode=False)
    return code


def test_explore_prints_the_explored_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("explore", "two-writers[catalogManaged,inline") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("two-writers[catalogManaged,inline]: 6 schedules of up to ")
    assert "1 scope, 1 finished, 6 schedules, 0 bad schedules" in printed


def test_an_unfinished_space_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("explore", "creators-of-a-name[catalogManaged,inline", "--budget", "0.001ms") == 3
    assert "NOT finished, then 1 random schedule;" in capsys.readouterr().out


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Simulate this bad owner instead of the reference. Returns the scope that finds it."""
    (bad,) = (mutant for mutant in (*SCHEDULE_MUTANTS, *POWER_MUTANTS) if mutant.id == name)
    monkeypatch.setattr(simulating, "_host", lambda _operation=None: bad.host())
    return bad.scope


@pytest.mark.parametrize(
    ("command", "bad", "requirement"),
    [
        ("explore", "lock-not-taken", "PROFILE-CORE-03"),
        ("power", "direct-recorded-first", "PROFILE-DURABLE-01"),
        ("power", "linked-before-synced", "MC-BACKFILL-01"),
    ],
)
def test_a_violation_is_printed(
    command: str, bad: str, requirement: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert simulate(command, plant(monkeypatch, bad)) == 1
    assert requirement in capsys.readouterr().out


def test_power_prints_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for _ in range(2):
        assert simulate("power", "resolve/managedCommit", "--seed", "3") == 0
        printed.append(capsys.readouterr().out.rpartition(", in ")[0])
    assert printed[0] == printed[1]
    assert printed[0].startswith("resolve/managedCommit/staged ")
    (states,) = re.findall(r"(\d+) distinct states after a cut, 0 violations", printed[0])
    assert int(states) > 10


@pytest.mark.parametrize("command", ["explore", "power"])
def test_an_unknown_scope_is_a_usage_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(command, "no-such-scope") == 2
    first = "two-writers" if command == "explore" else "first-start"
    assert f"the scopes begin with {first}, " in capsys.readouterr().err
