"""Small scopes of the reference owner, explored to their end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.adapters.reference.simulated_clients import SimulatedReference
from conformance.interface import messages as m
from conformance.simulation.explore import Report, depth_first, follow
from conformance.simulation.scopes import Outcome, Scope, ScopeRun, prepare, two_writers

WAYS = [
    ("managedCommit", "staged"),
    ("managedCommit", "direct"),
    ("catalogManaged", "staged"),
    ("catalogManaged", "inline"),
    ("catalogManaged", "direct"),
]


@pytest.fixture
def host() -> Iterator[SimulatedReference]:
    with SimulatedReference() as found:
        yield found


def explored(scope: Scope, host: SimulatedReference, *, pruned: bool = True) -> tuple[list[Outcome], Report]:
    start, report = prepare(scope, host), Report()
    found = list(depth_first(lambda: ScopeRun(scope, host, start), report, pruned=pruned))
    return found, report  # type: ignore[return-value]


def kinds(outcome: Outcome) -> dict[str, list[str]]:
    return {client: [type(answer).__name__ for answer in answers] for client, answers in outcome.answers}


@pytest.mark.parametrize(("dialect", "way"), WAYS)
def test_of_two_writers_exactly_one_wins_in_every_schedule(host: SimulatedReference, dialect: str, way: str) -> None:
    found, report = explored(two_writers(dialect, way), host)
    assert report.finished
    assert [outcome.violations for outcome in found if outcome.violations] == []
    assert {tuple(sorted(told for (told,) in kinds(each).values())) for each in found} == {("Conflict", "Ratified")}
    assert {"alice", "bob"} == {
        client for each in found for client, told in each.answers if isinstance(told[0], m.Ratified)
    }


def test_pruning_loses_no_outcome_of_two_writers(host: SimulatedReference) -> None:
    scope = two_writers("catalogManaged", "inline")
    everything, complete = explored(scope, host, pruned=False)
    found, report = explored(scope, host)
    assert {each.answers for each in found} == {each.answers for each in everything}
    assert complete.schedules == 16  # whose critical section is first: 2; where the other one's first question is: 8
    assert report.schedules < complete.schedules
    assert complete.finished
    assert report.finished


def test_the_same_choices_give_the_same_trace_and_history(host: SimulatedReference) -> None:
    scope = two_writers("managedCommit", "staged")
    start = prepare(scope, host)
    runs = [follow(lambda: ScopeRun(scope, host, start), ["bob", "alice"] * 8) for _ in range(2)]
    (one, steps), (other, same) = runs
    assert steps == same
    assert one == other
    assert {step.client for step in steps} == {"alice", "bob"}
