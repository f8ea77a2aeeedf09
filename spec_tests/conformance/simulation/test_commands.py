"""`simulate`: its subcommands print the number of explored states."""

import contextlib
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from conformance.command import simulating
from conformance.command.application import application
from conformance.interface import messages as m
from conformance.simulation import disk, example_owner, traces
from conformance.simulation.explore import follow
from conformance.simulation.operations import recorded
from conformance.simulation.python_subject import Effects, LockTakenError, PythonHost
from conformance.simulation.schedule_scopes import Outcome, ScopeRun, prepare, scopes
from spec_tests.conformance.simulation.hunting import operation_named


def simulate(*arguments: str) -> int:
    """Run `delta-commit-conformance simulate`; return the exit code."""
    code: int = application(["simulate", *arguments], standalone_mode=False)
    return code


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    assert simulate(*command, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_explore_prints_the_explored_space(capsys: pytest.CaptureFixture[str]) -> None:
    (scope,) = printed(capsys, "explore", "two-writers[catalogManaged,inline")["scopes"]
    assert (scope["scope"], scope["finished"], scope["bad"]) == ("two-writers[catalogManaged,inline]", True, 0)
    assert scope["schedules"] == 6
    assert {switch["by"] for switch in scope["switches"]} == {"alice", "bob"}
    assert 0 < len(scope["switches"]) < scope["switch_points"]
    assert simulate("explore", "two-writers[catalogManaged,inline") == 0
    assert "1 scope, 1 finished, 6 schedules, 0 bad schedules" in capsys.readouterr().out


def test_an_unfinished_space_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("explore", "creators-of-a-name[catalogManaged,inline", "--budget", "0.001ms") == 3
    assert "NOT finished, then 1 random schedule;" in capsys.readouterr().out


def test_a_violation_is_written_to_a_file_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject, file = f"python:{UnlockedOwner.__module__}:UnlockedOwner", tmp_path / "trace.json"
    assert simulate("explore", "two-writers", "--subject", subject, "--trace", str(file)) == 1
    trace = traces.from_json(file.read_bytes())
    assert (trace.requirement, len(trace.requests), trace.switches) == ("CM-COMMIT-08", 2, 2)
    capsys.readouterr()
    assert simulate("replay", str(file)) == 1
    assert trace.requirement in capsys.readouterr().out
    file.write_text(json.dumps({**json.loads(file.read_text()), "subject": "reference"}))
    assert simulate("replay", str(file)) == 0
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 99}))
    assert simulate("replay", str(file)) == 2
    assert "schema 99" in capsys.readouterr().err


def test_crash_prints_the_explored_space(capsys: pytest.CaptureFixture[str]) -> None:
    (scope,) = printed(capsys, "crash", "read/catalogManaged")["scopes"]
    assert set(scope["interrupted"]) == {"before", "after", "answer-lost", "delayed"}
    assert simulate("crash", "read/catalogManaged", "--mode", "before", "--mode", "after") == 0
    assert f"{scope['effects']} effects, 2 modes, {2 * scope['effects']} interruptions" in capsys.readouterr().out
    assert simulate("crash", "--mode", "never") == 2


def test_power_prints_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, "power", "resolve/managedCommit", "--seed", "3")
    assert [scope["scope"] for scope in first["scopes"]] == ["resolve/managedCommit/staged"]
    assert first["states"] == first["scopes"][0]["states"] > 10
    assert first["scopes"][0]["violations"] == []
    assert printed(capsys, "power", "resolve/managedCommit", "--seed", "3") == first


@pytest.mark.parametrize("command", ["explore", "crash", "power"])
def test_an_unknown_scope_is_a_usage_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(command, "no-such-scope") == 2
    first = "two-writers" if command == "explore" else "first-start"
    assert f"the scopes begin with {first}, " in capsys.readouterr().err


@pytest.mark.longer
def test_two_processes_print_the_same_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("explore", "two-writers[managed")
    assert printed(capsys, *command, "--workers", "2") == printed(capsys, *command)


def test_progress_is_printed_at_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, simulating.SECONDS_BETWEEN_LINES, simulating.SECONDS_BETWEEN_LINES + 1])
    calls: list[str] = []

    def so_far() -> str:
        calls.append("3 cuts")
        return calls[-1]

    progress = simulating._Progress("commit", lambda: next(times))
    for _ in range(3):
        progress(so_far)
    assert capsys.readouterr().err == "commit: 3 cuts so far\n"
    assert len(calls) == 1


# A subject in Python

EXAMPLE = "python:conformance.simulation.example_owner:ExampleOwner"


class UnlockedOwner(example_owner.ExampleOwner):
    """Reads and replaces its ledger without the lock; `explore` finds this."""

    def __init__(self, effects: Effects) -> None:
        super().__init__(effects)
        self._lock = contextlib.nullcontext


class UnsyncedOwner(example_owner.ExampleOwner):
    """Does not wait until its ledger is on the disk; `power` finds this."""

    def _write(self, path: Path, content: str) -> None:
        with self._files.create(path) as file:
            file.write(content.encode())


class LonelyOwner(example_owner.ExampleOwner):
    """Only one process of it may run on a disk."""

    disk: ClassVar[object] = None

    def __init__(self, effects: Effects) -> None:
        super().__init__(effects)
        if effects.files.disk is LonelyOwner.disk:
            raise LockTakenError
        LonelyOwner.disk = effects.files.disk


class OrderedOwner(example_owner.ExampleOwner):
    """Treats the entry that is listed last as the latest version; `explore` finds this, because a listing has no
    order.
    """

    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        answer = super().get_commits(client, request)
        if not isinstance(answer, m.Commits) or answer.commits:
            return answer
        listed = self._files.list_directory(Path(self._ledger()[request.table]["place"]) / example_owner.LOG)
        last = [int(entry.name[:20]) for entry in listed if entry.name.endswith(".json")][-1]
        return m.Commits(commits=(), latest=last)


@pytest.mark.parametrize(
    ("command", "scope", "bad", "requirement"),
    [
        ("explore", "two-writers", "UnlockedOwner", "CM-COMMIT-08"),
        ("power", "commit", "UnsyncedOwner", "PROFILE-OUTCOME-01"),
        ("crash", "commit", "UnlockedOwner", "PROFILE-OUTCOME-02"),
    ],
)
def test_the_example_is_clean_and_a_planted_bug_is_found(
    command: str, scope: str, bad: str, requirement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(command, "--subject", EXAMPLE, scope) == 0
    assert simulate(command, "--subject", f"python:{__name__}:{bad}", scope) == 1
    assert requirement in capsys.readouterr().out


def test_a_failed_request_is_not_repeated_at_a_process_that_cannot_start() -> None:
    with PythonHost(LonelyOwner) as host:
        run = recorded(host, operation_named("commit/catalogManaged/inline"), failing_sync=1, elsewhere=True)
    assert [exchange.answer for exchange in run.exchanges if isinstance(exchange.answer, m.Unknown)]


def test_scopes_with_a_missing_operation_are_left_out() -> None:
    assert not hasattr(example_owner.ExampleOwner, "hand_back")
    clients, processes = PythonHost.named(EXAMPLE), PythonHost.named(EXAMPLE)
    names = [f"{name}[catalogManaged,inline]" for name in ("looker", "hand-back")]
    assert [clients.can(scope) for scope in scopes(lambda scope: scope.id in names)] == [True, False]
    assert not processes.can_do(operation_named("hand-back/catalogManaged/staged"))
    assert processes.can_do(operation_named("commit/catalogManaged/inline"))


def test_an_invalid_subject_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("explore", "--subject", "python:nothing") == 2
    assert "python:MODULE:CLASS" in capsys.readouterr().err
    assert simulate("power", "--subject", "python:no_such_module_at_all:Owner") == 2
    assert "invalid --subject 'python:no_such_module_at_all:Owner': No module" in capsys.readouterr().err
    assert simulate("crash", "--subject", "python:json:JSONDecoder") == 2
    assert "JSONDecoder does not take one argument, the environment" in capsys.readouterr().err


def in_turn(owner: type[example_owner.ExampleOwner]) -> Outcome:
    """Run a writer, a backfiller and a reader, one after the other."""
    (scope,) = scopes(lambda scope: scope.id == "backfiller[catalogManaged,inline]")
    with PythonHost(owner) as host:
        start = prepare(scope, host)
        choices = [client for client in ("writer", "backfiller", "reader") for _ in range(100)]
        outcome, _ = follow(lambda: ScopeRun(scope, host, start), choices)
    assert isinstance(outcome, Outcome)
    return outcome


def test_an_owner_that_relies_on_listing_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_turn(example_owner.ExampleOwner).requirements == frozenset()
    assert in_turn(OrderedOwner).requirements == {"CM-GET-04"}
    monkeypatch.setattr(disk, "crc32", lambda _name: 0)
    assert in_turn(OrderedOwner).requirements == frozenset(), "a listing in the order of creation must hide the fault"
