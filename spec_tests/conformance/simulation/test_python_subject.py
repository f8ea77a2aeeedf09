"""Any owner in Python is explored, interrupted and power-cut by the same commands; the example shows how."""

from __future__ import annotations

import pytest

from conformance.simulation import example_owner, files
from conformance.simulation.__main__ import main
from conformance.simulation.explore import follow
from conformance.simulation.python_subject import PythonClients, split
from conformance.simulation.scopes import Outcome, ScopeRun, prepare
from conformance.simulation.scopes_catalogue import scopes

EXAMPLE = "python:conformance.simulation.example_owner:"


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
    assert main([command, EXAMPLE + "ExampleOwner", scope]) == 0
    assert main([command, EXAMPLE + bad, scope]) == 1
    assert requirement in capsys.readouterr().out


def test_scopes_that_need_what_a_subject_lacks_are_left_out() -> None:
    host, rest = split([EXAMPLE + "ExampleOwner", "two-writers"], PythonClients)
    assert rest == ["two-writers"]
    assert host is not None
    assert host.identity.name == "example"
    assert not hasattr(example_owner.ExampleOwner, "hand_back")


def test_a_subject_that_is_not_there_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "python:nothing"]) == 2
    assert "python:MODULE:CLASS" in capsys.readouterr().err
    assert main(["power", "python:no_such_module_at_all:Owner"]) == 2


def in_turn(owner: type[example_owner.ExampleOwner]) -> Outcome:
    """A writer, a backfiller and a reader, none of whom interrupts another."""
    (scope,) = scopes(lambda each: each.id == "backfiller[catalogManaged,inline]")
    with PythonClients(owner) as host:
        start = prepare(scope, host)
        choices = [client for client in ("writer", "backfiller", "reader") for _ in range(100)]
        outcome, _ = follow(lambda: ScopeRun(scope, host, start), choices)
    assert isinstance(outcome, Outcome)
    return outcome


def test_a_listing_is_in_no_order_and_only_an_owner_that_relies_on_one_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_turn(example_owner.ExampleOwner).requirements == frozenset()
    assert in_turn(example_owner.OrderedOwner).requirements == {"CM-GET-04"}
    monkeypatch.setattr(files, "crc32", lambda _name: 0)
    assert in_turn(example_owner.OrderedOwner).requirements == frozenset(), "in the order in which they were made"
