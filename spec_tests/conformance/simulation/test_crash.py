"""The reference survives every interruption of every effect."""

from __future__ import annotations

from conformance.simulated_reference.processes import STORAGE, SimulatedProcesses
from conformance.simulation.crash import Mode, OneRun, Result, explore
from conformance.simulation.disk import Disk
from conformance.simulation.effects import Kind, Moment
from conformance.simulation.operations import operations
from spec_tests.conformance.simulation.hunting import operation_named

OPERATIONS = {
    "first-start", "create", "commit", "backfill", "take-over", "hand-back", "drop", "resolve", "read", "fold",
}  # fmt: skip


def interrupted(name: str, *modes: Mode) -> Result:
    with SimulatedProcesses() as host:
        return explore(host, operation_named(name), modes or tuple(Mode))


def test_an_interrupted_operation_is_whole_or_absent() -> None:
    result = interrupted("commit/catalogManaged/inline")
    assert result.violations == []
    assert result.interrupted[Mode.BEFORE] == result.interrupted[Mode.AFTER] == result.effects > 20
    assert 0 < result.interrupted[Mode.ANSWER_LOST] < result.effects
    assert result.interrupted[Mode.DELAYED] % 3 == 0
    assert result.runs > result.states >= result.judged > 0


def test_a_landed_take_over_is_not_reported_as_failed() -> None:
    """The last effects of a take-over, and of a creation, look at the table that they made; that look may fail."""
    result = interrupted("take-over/catalogManaged/staged", Mode.ANSWER_LOST)
    assert result.violations == []
    assert result.interrupted[Mode.ANSWER_LOST] > 40


def test_every_operation_of_the_owner_is_a_scope() -> None:
    assert {each.kind for each in operations(STORAGE)} == OPERATIONS


def test_a_run_numbers_its_effects_and_marks_transactions() -> None:
    operation = operation_named("create/catalogManaged/staged")
    seen: list[tuple[int, Moment]] = []
    with SimulatedProcesses() as host:
        run = OneRun(host, Disk(), 1, (), lambda number, moment: seen.append((number, moment)))
        (end,) = run.go(lambda ask: operation.script(operation, ask))
    begun = [number for number, moment in seen if moment is Moment.BEFORE]
    assert begun == list(range(1, len(run.effects) + 1))
    inside = {effect.kind for effect, in_transaction in run.effects if in_transaction}
    assert {Kind.WRITE, Kind.FSYNC} <= inside, "what SQLite writes when it commits"
    assert not inside & {Kind.LINK, Kind.ACQUIRE, Kind.BEGIN}
    assert [each.answer is not None for each in end[1]] == [True]
