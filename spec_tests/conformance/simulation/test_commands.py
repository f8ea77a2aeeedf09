"""`simulate`: its subcommands print the number of explored states."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.command import simulating
from conformance.command.application import application
from conformance.simulation import traces
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


def test_a_violation_is_written_to_a_file_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace.json"
    with monkeypatch.context() as patched:
        scope = plant(patched, "lock-not-taken")
        assert simulate("explore", scope, "--trace", str(file)) == 1
        trace = traces.from_json(file.read_bytes())
        assert (trace.requirement, len(trace.requests)) == ("PROFILE-CORE-03", 2)
        capsys.readouterr()
        assert simulate("replay", str(file)) == 1
        assert trace.requirement in capsys.readouterr().out
    assert simulate("replay", str(file)) == 0
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 99}))
    assert simulate("replay", str(file)) == 2
    assert "schema 99" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "requirement"),
    [("direct-recorded-first", "PROFILE-DURABLE-01"), ("linked-before-synced", "MC-BACKFILL-01")],
)
def test_a_violation_is_printed(
    bad: str, requirement: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert simulate("power", plant(monkeypatch, bad)) == 1
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
