"""The reference survives every interruption of every effect; what each way of interrupting means is checked too."""

from __future__ import annotations

import json

import pytest

from conformance.adapters.reference.simulated_processes import SimulatedProcesses
from conformance.simulation.__main__ import main
from conformance.simulation.crash import Mode, Result, explore
from conformance.simulation.crash_run import OneRun
from conformance.simulation.effects import Kind, Moment
from conformance.simulation.power_scopes import Scope, scopes
from conformance.simulation.storage import Disk

SCOPES = {scope.name: scope for scope in scopes(SimulatedProcesses.storage)}
OPERATIONS = {
    "first-start",
    "create",
    "commit",
    "backfill",
    "take-over",
    "hand-back",
    "drop",
    "resolve",
    "read",
    "fold",
}


def interrupted(name: str, *modes: Mode) -> Result:
    with SimulatedProcesses() as host:
        return explore(host, SCOPES[name], modes or tuple(Mode))


def test_every_interruption_of_an_operation_leaves_it_whole_or_absent() -> None:
    result = interrupted("commit/catalogManaged/inline")
    assert result.violations == []
    assert result.interrupted[Mode.BEFORE] == result.interrupted[Mode.AFTER] == result.effects > 20
    assert 0 < result.interrupted[Mode.ANSWER_LOST] < result.effects
    assert result.interrupted[Mode.DELAYED] % 3 == 0
    assert result.runs > result.states >= result.judged > 0


def test_what_landed_is_not_said_to_have_failed_when_it_cannot_be_described() -> None:
    """The last effects of a take-over, and of a creation, look at the table that they made; that look may fail."""
    result = interrupted("take-over/catalogManaged/staged", Mode.ANSWER_LOST)
    assert result.violations == []
    assert result.interrupted[Mode.ANSWER_LOST] > 40


def test_every_operation_of_the_owner_is_a_scope() -> None:
    assert {scope.operation for scope in SCOPES.values()} == OPERATIONS


def test_a_run_numbers_its_effects_and_tells_those_of_a_transaction() -> None:
    scope: Scope = SCOPES["create/catalogManaged/staged"]
    seen: list[tuple[int, Moment]] = []
    with SimulatedProcesses() as host:
        run = OneRun(host, Disk(), 1, (), lambda number, moment: seen.append((number, moment)))
        (end,) = run.go(lambda ask: scope.script(scope, ask))
    begun = [number for number, moment in seen if moment is Moment.BEFORE]
    assert begun == list(range(1, len(run.effects) + 1))
    inside = {effect.kind for effect, in_transaction in run.effects if in_transaction}
    assert {Kind.WRITE, Kind.FSYNC} <= inside, "what SQLite writes when it commits"
    assert not inside & {Kind.LINK, Kind.ACQUIRE, Kind.BEGIN}
    assert [fact.answer is not None for fact in end[1]] == [True]


def test_the_command_prints_the_explored_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crash", "read/catalogManaged", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["scopes"]
    assert set(found["interrupted"]) == {"before", "after", "answer-lost", "delayed"}
    assert main(["crash", "read/catalogManaged", "--mode", "before", "--mode", "after"]) == 0
    assert f"{found['effects']} effects x 2 ways = {2 * found['effects']} interruptions" in capsys.readouterr().out
    assert main(["crash", "nothing"]) == 2
    assert "commit/catalogManaged/inline" in capsys.readouterr().err
