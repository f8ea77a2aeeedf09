"""`simulate`: its subcommands print the number of explored states."""

import re

import pytest

from conformance.command import simulating
from conformance.command.application import application
from spec_tests.conformance.simulation.interruption_mutants import POWER_MUTANTS
from spec_tests.conformance.simulation.schedule_mutants import SCHEDULE_MUTANTS


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
