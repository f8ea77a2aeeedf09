"""`simulate`: its subcommands print the number of explored states."""

import json
from typing import Any

import pytest

from conformance.command import simulating
from conformance.command.application import application
from spec_tests.conformance.simulation.__main__ import MUTANTS


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


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Simulate this bad owner instead of the reference. Returns the scope that finds it."""
    (bad,) = (mutant for mutant in MUTANTS if mutant.id == name)
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
    first = printed(capsys, "power", "resolve/managedCommit", "--seed", "3")
    assert [scope["scope"] for scope in first["scopes"]] == ["resolve/managedCommit/staged"]
    assert first["states"] == first["scopes"][0]["states"] > 10
    assert first["scopes"][0]["violations"] == []
    assert printed(capsys, "power", "resolve/managedCommit", "--seed", "3") == first


@pytest.mark.parametrize("command", ["explore", "power"])
def test_an_unknown_scope_is_a_usage_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(command, "no-such-scope") == 2
    first = "two-writers" if command == "explore" else "first-start"
    assert f"the scopes begin with {first}, " in capsys.readouterr().err
