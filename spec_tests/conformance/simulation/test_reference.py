"""Small scopes of the reference owner, explored completely. `simulate explore` and `simulate power` run all of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from conformance.interface import messages as m
from conformance.simulation import power
from conformance.simulation.effects import Kind
from conformance.simulation.explore import Report, depth_first, follow
from conformance.simulation.operations import COMMIT_MODES, operations
from conformance.simulation.power import Budget
from conformance.simulation.reference import STORAGE, SimulatedReference
from conformance.simulation.schedule_scopes import NAMES, Outcome, Scope, ScopeRun, prepare, scopes
from refimpl.served.group import Groups, Waiting
from spec_tests.conformance.simulation.mutants import operation_named
from spec_tests.support.sampling import sampled


def the_scope(name: str, feature: str, commit_mode: str) -> Scope:
    (scope,) = scopes(lambda scope: (scope.name, scope.feature, scope.commit_mode) == (name, feature, commit_mode))
    return scope


@pytest.fixture
def host() -> Iterator[SimulatedReference]:
    with SimulatedReference() as clients:
        yield clients


def explored(scope: Scope, host: SimulatedReference, *, pruned: bool = True) -> tuple[list[Outcome], Report]:
    start, report = prepare(scope, host), Report()
    outcomes = list(depth_first(lambda: ScopeRun(scope, host, start), report, pruned=pruned))
    return outcomes, report  # type: ignore[return-value]


def kinds(outcome: Outcome) -> dict[str, list[str]]:
    return {client: [type(answer).__name__ for answer in answers] for client, answers in outcome.answers}


@pytest.mark.parametrize(("feature", "commit_mode"), [("managedCommit", "staged"), ("catalogManaged", "inline")])
def test_one_of_two_writers_wins_in_every_schedule(host: SimulatedReference, feature: str, commit_mode: str) -> None:
    outcomes, report = explored(the_scope("two-writers", feature, commit_mode), host)
    assert report.finished
    assert [outcome.violations for outcome in outcomes if outcome.violations] == []
    assert {tuple(sorted(answer for (answer,) in kinds(outcome).values())) for outcome in outcomes} == {
        ("Conflict", "Ratified")
    }
    assert {"alice", "bob"} == {
        client for outcome in outcomes for client, answers in outcome.answers if isinstance(answers[0], m.Ratified)
    }


@pytest.mark.longer
def test_threads_of_one_process_form_groups(host: SimulatedReference, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: set[int] = set()
    decide = Groups._decide

    def seen(groups: Groups, group: Sequence[Waiting]) -> None:
        sizes.add(len(group))
        decide(groups, group)

    monkeypatch.setattr(Groups, "_decide", seen)
    outcomes, report = explored(the_scope("threads", "catalogManaged", "inline"), host)
    assert report.finished
    assert [outcome.violations for outcome in outcomes if outcome.violations] == []
    assert sizes == {2, 3}
    answers = {tuple(type(answer[0]).__name__ for _, answer in outcome.answers) for outcome in outcomes}
    assert answers == {
        (*pair, last) for pair in (("Ratified", "Conflict"), ("Conflict", "Ratified")) for last in ("Ratified", "Gap")
    }


def test_a_cleanup_does_not_disturb_a_reader(host: SimulatedReference) -> None:
    outcomes, report = explored(the_scope("cleanup", "managedCommit", "staged"), host)
    assert report.finished
    assert [outcome.violations for outcome in outcomes if outcome.violations] == []
    assert all(kinds(outcome) == {"cleaner": ["Done"], "reader": ["SnapshotRead"]} for outcome in outcomes)
    assert report.schedules > 1
    start = prepare(the_scope("cleanup", "managedCommit", "staged"), host)
    run = ScopeRun(the_scope("cleanup", "managedCommit", "staged"), host, start)
    while enabled := run.scheduler.enabled():
        run.scheduler.step(min(enabled))
    removed = {step.target.rpartition("/")[2] for step in run.scheduler.steps if step.kind is Kind.UNLINK}
    run.close()
    assert {f"{version:020}.json" for version in (0, 1)} <= removed


def test_every_scope_has_all_commit_modes(host: SimulatedReference) -> None:
    for name in NAMES:
        scopes_of_name = scopes(lambda scope, name=name: scope.name == name)  # type: ignore[misc]
        assert tuple((scope.feature, scope.commit_mode) for scope in scopes_of_name) == COMMIT_MODES
        start = prepare(scopes_of_name[0], host)
        outcome, steps = follow(lambda: ScopeRun(scopes_of_name[0], host, start), [])  # noqa: B023
        assert isinstance(outcome, Outcome)
        assert outcome.violations == ()
        assert {step.client for step in steps} == set(scopes_of_name[0].requests(start))


def test_pruning_loses_no_outcome_of_two_writers(host: SimulatedReference) -> None:
    scope = the_scope("two-writers", "catalogManaged", "inline")
    everything, complete = explored(scope, host, pruned=False)
    outcomes, report = explored(scope, host)
    assert {outcome.answers for outcome in outcomes} == {outcome.answers for outcome in everything}
    assert complete.schedules == 16  # 2 for the first critical section, times 8 for the other's first request
    assert report.schedules < complete.schedules
    assert complete.finished
    assert report.finished


OPERATIONS = {
    "first-start", "create", "commit", "group", "backfill", "take-over", "hand-back", "drop", "resolve", "read", "fold",
}  # fmt: skip


def test_every_operation_of_the_owner_is_a_scope() -> None:
    assert {operation.kind for operation in operations(STORAGE)} == OPERATIONS


# The reference loses nothing to a power cut at any effect


def cut(name: str, states: int, *, checkpointing: bool = False, **more: Any) -> power.Result:
    with SimulatedReference(checkpointing=checkpointing) as host:
        return power.explore(host, operation_named(name), Budget(states=states, states_in_recovery=2, **more), seed=1)


@pytest.mark.parametrize("name", sampled([
    "commit/managedCommit/direct", "create/catalogManaged/staged", "group/catalogManaged/inline",
    "take-over/managedCommit/staged", "hand-back/managedCommit/staged", "hand-back/catalogManaged/staged",
    "drop/catalogManaged/staged",
], 3))  # fmt: skip
def test_a_lost_answer_of_the_disk_leaves_an_operation_complete_or_absent(name: str) -> None:
    """The last effects of a take-over, and of a creation, read the new table. That read may fail."""
    result = cut(name, 1, lost_answers=True)
    assert result.violations == []
    assert result.states > cut(name, 1).states


def test_a_death_before_the_cut_loses_nothing() -> None:
    """The next process sees written data that was never synced. No answer may rely on it."""
    result = cut("commit/catalogManaged/inline", 4, deaths=True)
    assert result.violations == []
    assert result.recoveries > 10
    assert result.cuts > 5 * result.recoveries


def test_a_repeated_sync_after_a_failure_is_not_believed() -> None:
    """STORAGE.md#failed-fsync: stop after a failed fsync; a repeated fsync reports success without an effect."""
    whole = cut("commit/catalogManaged/inline", 2)
    result = cut("commit/catalogManaged/inline", 2, failing_syncs=True)
    assert result.violations == []
    assert result.cuts > 2 * whole.cuts
