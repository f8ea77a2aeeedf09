"""`commit-owner demo`, from its first process to its last check, on a small file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from refimpl.cli import demonstration
from refimpl.cli.application import application
from refimpl.cli.output import ExitCode
from refimpl.demo import story
from refimpl.demo.stage import Stage, Timeline
from refimpl.errors import InvalidRequestError

SCRIPT = Path(sys.executable).with_name("commit-owner")
CHECKS = [
    "one process creates the table",
    "losers report the winner's table",
    "inline commits race and all land",
    "killed before proposing",
    "killed after ratification",
    "every part lands once",
    "attempts that did not land stay invisible",
    "every snapshot holds whole parts",
    "stale by path, fresh through the owner",
    "backfill on request",
    "catalog-managed tables reject path access",
    "row counts equal the input's",
    "sums equal the input's",
    "time travel",
    "no invariant is violated",
]


def _run(*words: object) -> Any:
    return CliRunner().invoke(application, ["demo", "--no-conformance", *map(str, words)], prog_name="commit-owner")


@pytest.mark.engines
@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.xdist_group("demo")
def test_every_check_of_the_demo_holds(small_file: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    words = [SCRIPT, "demo", "--input", small_file, "--warehouse", kept, "--no-conformance", "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == ExitCode.OK, done.stderr
    result = json.loads(done.stdout)
    assert sorted(check["name"] for check in result["checks"]) == sorted(CHECKS)
    assert [check["name"] for check in result["checks"] if not check["ok"]] == []
    assert (result["ok"], result["rows"], result["parts"], result["kept"]) == (True, 6, 3, True)
    assert all(check["name"] in done.stderr for check in result["checks"])
    _check_timelines({timeline["table"]: timeline for timeline in result["timelines"]})
    shown = subprocess.run([SCRIPT, "show", "-w", kept, "--json"], capture_output=True, text=True, check=True)
    assert sorted(table["name"] for table in json.loads(shown.stdout)) == ["ingested", "race", "totals"]


def _check_timelines(timelines: dict[str, Any]) -> None:
    ingested = timelines["ingested"]["rows"]
    assert [row["version"] for row in ingested] == [0, 1, 2, 3]
    assert sorted(row["operation"] for row in ingested[1:]) == ["month 1", "month 2", "month 3"]
    assert {row["commit_mode"] for row in ingested[1:]} == {"staged"}
    assert "writer 3" in ingested[1]["lost"]
    assert len(ingested[1]["lost"]) == 2
    assert {row["writer"] for row in ingested[1:]} == {"writer 1", "writer 2"}
    assert {row["commit_mode"] for row in timelines["race"]["rows"][1:]} == {"inline"}
    assert {row["writer"] for row in timelines["race"]["rows"][1:]} == {f"creator {number}" for number in range(1, 9)}
    assert all(row["published_at"] is None for row in timelines["race"]["rows"][1:])
    for timeline in timelines.values():
        times = [row["in_commit_timestamp"] for row in timeline["rows"]]
        assert times == sorted(set(times))


def test_a_failed_check_is_shown_and_exits_with_1(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(stage: Stage) -> list[Timeline]:
        stage.check("the earth is round", "40,075 km around", ok=True)
        stage.check("the earth is flat", "0 corners were found", ok=False)
        return []

    monkeypatch.setattr(story, "_play", play)
    answer = _run("--input", small_file)
    assert answer.exit_code == ExitCode.REFUSED
    assert " FAIL   the earth is flat: 0 corners were found" in answer.stdout
    assert "1 of 2 checks passed" in answer.stdout
    assert "FAILED: the earth is flat" in answer.stdout
    as_json = _run("--input", small_file, "--json")
    assert as_json.exit_code == ExitCode.REFUSED
    assert [check["ok"] for check in json.loads(as_json.stdout)["checks"]] == [True, False]


def test_a_directory_that_is_not_empty_is_unchanged(small_file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("the only copy")
    answer = _run("--input", small_file, "--warehouse", tmp_path / "mine")
    assert answer.exit_code == ExitCode.USAGE
    assert "empty" in answer.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_an_invalid_input_file_starts_nothing(tmp_path: Path) -> None:
    answer = _run("--input", tmp_path / "nowhere.csv", "--warehouse", tmp_path / "new")
    assert answer.exit_code == ExitCode.USAGE
    assert "nowhere.csv" in answer.stderr
    assert not (tmp_path / "new").exists()


def test_without_java_nothing_is_started(small_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_java() -> Path:
        raise InvalidRequestError("Spark needs Java 17 or newer")

    monkeypatch.setattr(story, "find_java", find_java)
    answer = _run("--input", small_file, "--warehouse", tmp_path / "new")
    assert (answer.exit_code, answer.stderr) == (ExitCode.USAGE, "error: Spark needs Java 17 or newer\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("script", "expected"), [("", True), ("raise SystemExit(1)", False)])
def test_the_verdict_of_the_kit_is_part_of_the_demo(
    script: str, expected: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a process of its own, whose output is shown as it is: beside the JSON, if that was asked for."""
    monkeypatch.setattr(demonstration, "_KIT_COMMAND", ("-c", f"print('the verdict', flush=True); {script}"))
    for to_stderr in (False, True):
        assert demonstration._conforms(to_stderr=to_stderr) is expected
        captured = capfd.readouterr()
        shown, empty = (captured.err, captured.out) if to_stderr else (captured.out, captured.err)
        assert "against the reference owner" in shown
        assert shown.endswith("the verdict\n")
        assert empty == ""


def test_without_the_kit_the_demo_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demonstration, "_KIT", ("conformance", "no_such_library"))
    monkeypatch.setattr(demonstration, "_KIT_COMMAND", ("-c", "raise SystemExit(1)"))
    assert demonstration._conforms(to_stderr=False)
    assert "no_such_library is missing: pip install 'delta-commit-owner[conformance]'" in capfd.readouterr().out
