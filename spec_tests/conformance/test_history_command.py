"""The command `check`: its exit codes and messages, for people and for scripts, and no traceback."""

import json
from pathlib import Path

import pytest

from conformance.command.application import application
from conformance.history import events
from spec_tests.conformance.drafts import FOLDER

GOOD = FOLDER / "good" / "late-backfill.jsonl"
BAD = FOLDER / "bad" / "fresh-read-misses-a-commit.jsonl"


def main(arguments: list[str]) -> object:
    """Run the command; return the exit code."""
    with pytest.raises(SystemExit) as ended:
        application(arguments)
    return ended.value.code


def test_a_conformant_history_takes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(GOOD)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines() == [f"{GOOD}: conformant: 8 operations on orders (3 versions); a correct owner"]


def test_a_violation_shows_requirement_and_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(BAD)]) == 1
    printed = capsys.readouterr().out
    assert "1. stale-read: orders, version 1" in printed
    assert "Required: A request for the latest version returns every commit" in printed
    assert "reader's get_commits (operation 1, 3..4: commits, latest 0, listing 0)" in printed
    assert "writer's commit of version 1 as attempt first (operation 0, 1..2: ratified, version 1)" in printed


def test_real_times_are_shown_relative_to_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recorded times are ns since the epoch, which are hard to read."""
    began = 1_700_000_000_000_000_000
    events = [json.loads(line) for line in BAD.read_text("utf-8").splitlines()]
    events[0]["clock"] = {"unit": "ns"}
    first = events[1]["at"]
    for event in events[1:]:
        if "at" in event:
            event["at"] = began + (event["at"] - first) * 1_500_000
    file = tmp_path / "production.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events), "utf-8")
    assert main(["check", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "reader's get_commits (operation 1, 3.000..4.500 ms: commits" in printed
    assert "writer's commit of version 1 as attempt first (operation 0, 0.000..1.500 ms: ratified" in printed
    assert str(began)[:6] not in printed
    assert main(["check", str(file), "--json"]) == 1
    (violation,) = json.loads(capsys.readouterr().out)["violations"]
    assert "(operation 1, 3.000..4.500 ms: commits" in violation["message"]
    assert [each["invoked"] - began for each in violation["operations"]] == [3_000_000, 0]


def test_json_has_the_verdict_the_rule_and_the_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(BAD), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["operations"], printed["tables"]) == ("violation", 2, {"orders": 2})
    (violation,) = printed["violations"]
    assert (violation["rule"], violation["version"]) == ("stale-read", 1)
    assert [operation["id"] for operation in violation["operations"]] == [1, 0]
    assert main(["check", str(GOOD), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["violations"]) == ("conformant", [])


def test_an_invalid_history_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """conformance: a history without a footer is invalid, and never passes."""
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(GOOD.read_bytes().rpartition(b'{"event":"footer"')[0])
    assert main(["check", str(cut)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{cut}: invalid history: it ends after line 17 without a footer")
    assert main(["check", str(cut), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["line"]) == ("invalid", None)


@pytest.mark.parametrize(("file", "code", "verdict"), [(GOOD, 3, "incomplete"), (BAD, 1, "violation")])
def test_a_history_without_its_final_log_is_never_conformant(
    file: Path, code: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LOG_CHECKER.md#unseen: the recorded answers are judged."""
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    *rest, footer = [each for each in lines if each["event"] != "witness"]
    footer["counts"] |= {"witness": 0, "unseen": 1}
    footer["tables"] = {"orders": 0}
    before = sum(each.get("before", False) for each in lines)
    unseen = {"event": "unseen", "table": "orders", "reason": "status 500", "before": before, "commit_mode": "staged"}
    cut = tmp_path / "unseen.jsonl"
    cut.write_text("".join(f"{json.dumps(each)}\n" for each in [*rest, unseen, footer]), "utf-8")
    assert main(["check", str(cut), "--json"]) == code
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["unseen"], printed["tables"]) == (
        verdict,
        {"orders": "status 500"},
        {"orders": 0},
    )
    assert main(["check", str(cut)]) == code
    assert "orders: no final log, checked by the answers alone: status 500" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "line"), [(b"", None), (b"{", 1), (b"\x00\xff\n", 1), (b"[]\n", 1), (b'{"event":"footer"}\n', 1)]
)
def test_the_error_for_an_invalid_history_names_its_line(
    content: bytes, line: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "no-history"
    file.write_bytes(content)
    assert main(["check", str(file), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["line"] == line
    assert main(["check", str(file)]) == 2
    where = "" if line is None else f", line {line}"
    assert capsys.readouterr().err.startswith(f"{file}{where}: invalid history: ")


def test_the_schema_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "history"]) == 0
    assert capsys.readouterr().out == events.schema_text()
