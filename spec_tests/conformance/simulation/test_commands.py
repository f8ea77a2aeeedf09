"""`simulate`: its subcommands print what they explored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.command import simulating
from conformance.simulation import traces
from spec_tests.conformance.simulation import simulate
from spec_tests.conformance.simulation.test_python_subject import UnlockedOwner


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    assert simulate(*command, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_explore_prints_the_explored_space(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = printed(capsys, "explore", "two-writers[catalogManaged,inline")["scopes"]
    assert (found["scope"], found["finished"], found["bad"]) == ("two-writers[catalogManaged,inline]", True, 0)
    assert found["schedules"] == 6
    assert {each["by"] for each in found["switches"]} == {"alice", "bob"}
    assert 0 < len(found["switches"]) < found["switch_points"]
    assert simulate("explore", "two-writers[catalogManaged,inline") == 0
    assert "1 scope, 1 finished, 6 schedules, 0 bad schedules" in capsys.readouterr().out


def test_an_unfinished_space_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("explore", "creators-of-a-name[catalogManaged,inline", "--budget", "0") == 3
    assert "NOT finished, then 1 random schedules" in capsys.readouterr().out


def test_a_violation_is_written_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    (found,) = printed(capsys, "crash", "read/catalogManaged")["scopes"]
    assert set(found["interrupted"]) == {"before", "after", "answer-lost", "delayed"}
    assert simulate("crash", "read/catalogManaged", "--mode", "before", "--mode", "after") == 0
    assert f"{found['effects']} effects x 2 modes = {2 * found['effects']} interruptions" in capsys.readouterr().out
    assert simulate("crash", "--mode", "never") == 2


def test_power_prints_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "power", "resolve/managedCommit", "--seed", "3")
    assert [scope["scope"] for scope in found["scopes"]] == ["resolve/managedCommit/staged"]
    assert found["states"] == found["scopes"][0]["states"] > 10
    assert found["scopes"][0]["violations"] == []
    assert printed(capsys, "power", "resolve/managedCommit", "--seed", "3") == found


@pytest.mark.parametrize("command", ["explore", "crash", "power"])
def test_an_unknown_scope_is_a_usage_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(command, "no-such-scope") == 2
    assert "two-writers[managedCommit,staged]" if command == "explore" else "commit/" in capsys.readouterr().err


def test_two_processes_print_what_one_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("explore", "take-over[managed")
    assert printed(capsys, *command, "--jobs", "2") == printed(capsys, *command)


def test_progress_is_printed_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, simulating.SECONDS_BETWEEN_LINES, simulating.SECONDS_BETWEEN_LINES + 1])
    asked: list[str] = []

    def so_far() -> str:
        asked.append("3 cuts")
        return asked[-1]

    progress = simulating._Progress("commit", lambda: next(times))
    for _ in range(3):
        progress(so_far)
    assert capsys.readouterr().err == "commit: 3 cuts so far\n"
    assert len(asked) == 1
