"""Any owner in Python is explored, interrupted and power-cut by the same commands; the example shows how."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.interface import messages as m
from conformance.simulation import disk, example_owner
from conformance.simulation.explore import follow
from conformance.simulation.python_subject import PythonClients, PythonProcesses
from conformance.simulation.schedule_scopes import Outcome, ScopeRun, prepare, scopes
from spec_tests.conformance.simulation import simulate
from spec_tests.conformance.simulation.hunting import operation_named

EXAMPLE = "python:conformance.simulation.example_owner:ExampleOwner"


class UnlockedOwner(example_owner.ExampleOwner):
    """Reads and replaces its ledger without the lock. `explore` finds it."""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        yield


class UnsyncedOwner(example_owner.ExampleOwner):
    """Does not wait until its ledger is on the disk. `power` finds it."""

    def _write(self, path: Path, content: str) -> None:
        with self._files.create(path) as file:
            file.write(content.encode())


class OrderedOwner(example_owner.ExampleOwner):
    """Takes the entry that is listed last for the latest version. `explore` finds it: a listing has no order."""

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


def test_scopes_that_need_a_missing_operation_are_left_out() -> None:
    assert not hasattr(example_owner.ExampleOwner, "hand_back")
    clients, processes = PythonClients.named(EXAMPLE), PythonProcesses.named(EXAMPLE)
    (without, able) = (
        scopes(lambda each, name=name: each.id == f"{name}[catalogManaged,inline]") for name in ("hand-back", "looker")
    )
    assert [clients.can(scope) for scope in (*without, *able)] == [False, True]
    assert not processes.can_do(operation_named("hand-back/catalogManaged/staged"))
    assert processes.can_do(operation_named("commit/catalogManaged/inline"))


def test_a_missing_subject_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("explore", "--subject", "python:nothing") == 2
    assert "python:MODULE:CLASS" in capsys.readouterr().err
    assert simulate("power", "--subject", "python:no_such_module_at_all:Owner") == 2


def in_turn(owner: type[example_owner.ExampleOwner]) -> Outcome:
    """A writer, a backfiller and a reader, one after the other."""
    (scope,) = scopes(lambda each: each.id == "backfiller[catalogManaged,inline]")
    with PythonClients(owner) as host:
        start = prepare(scope, host)
        choices = [client for client in ("writer", "backfiller", "reader") for _ in range(100)]
        outcome, _ = follow(lambda: ScopeRun(scope, host, start), choices)
    assert isinstance(outcome, Outcome)
    return outcome


def test_an_owner_that_relies_on_listing_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_turn(example_owner.ExampleOwner).requirements == frozenset()
    assert in_turn(OrderedOwner).requirements == {"CM-GET-04"}
    monkeypatch.setattr(disk, "crc32", lambda _name: 0)
    assert in_turn(OrderedOwner).requirements == frozenset(), "in the order in which they were made"
