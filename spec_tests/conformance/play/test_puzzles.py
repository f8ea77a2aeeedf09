"""Every puzzle has one solution, which the checker found; the score stays on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import html5lib
import pytest
from typer.testing import CliRunner

from conformance.command.application import application
from conformance.play import puzzles

EVERY = range(1, len(puzzles.NAMES) + 1)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def command(*words: object, typed: str = "") -> Any:
    return CliRunner().invoke(
        application, ["puzzle", *map(str, words)], input=typed, prog_name="delta-commit-conformance"
    )


@pytest.mark.parametrize("number", EVERY)
def test_a_puzzle_has_one_rule_and_operations_that_are_shown(number: int) -> None:
    found = puzzles.puzzle(number)
    assert len(set(found.rules)) == puzzles.CHOICES
    assert 1 <= found.rule <= puzzles.CHOICES
    assert found.suspects <= {line.number for line in found.lines}
    assert found.suspects


@pytest.mark.parametrize("number", EVERY)
def test_the_solution_is_not_in_the_question(number: int) -> None:
    shown = command(number).stdout
    assert puzzles.puzzle(number).message not in shown
    assert puzzles.puzzle(number).name not in shown
    assert puzzles.puzzle(number).message in command(number, "--solution").stdout


def test_the_right_answer_is_recorded_on_this_machine(state: Path) -> None:
    found = puzzles.puzzle(3)
    answer = command(3, "--operation", max(found.suspects), "--rule", found.rule)
    assert (answer.exit_code, answer.stdout.splitlines()[0]) == (0, "right")
    assert json.loads((state / "delta-commit-conformance/puzzles.json").read_text()) == [3]
    assert re.search(r"^3 +3 +true$", command().stdout, re.MULTILINE)


def test_a_wrong_answer_says_which_half_is_wrong(state: Path) -> None:
    found = puzzles.puzzle(3)
    answer = command(3, "--operation", min(found.suspects), "--rule", found.rule % puzzles.CHOICES + 1)
    assert answer.exit_code == 1
    assert "the operation is right, the rule is wrong" in answer.stderr
    assert not state.exists()


@pytest.mark.parametrize("number", [0, 21])
def test_a_puzzle_that_is_not_there_is_named(number: int) -> None:
    answer = command(number)
    assert answer.exit_code == 2
    assert f"no puzzle {number}; expected 1 to 20" in answer.stderr


def test_a_damaged_score_is_an_empty_one(state: Path) -> None:
    (state / "delta-commit-conformance").mkdir(parents=True)
    (state / "delta-commit-conformance/puzzles.json").write_text("{")
    assert "true" not in command().stdout


def test_the_page_holds_all_puzzles_and_loads_nothing(tmp_path: Path) -> None:
    assert command("--html", tmp_path / "a/puzzles.html").exit_code == 0
    text = (tmp_path / "a/puzzles.html").read_text()
    root = html5lib.HTMLParser(tree=html5lib.getTreeBuilder("etree"), strict=True).parse(text)
    assert not [each for each in root.iter() if "src" in each.attrib or "href" in each.attrib]
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data
    assert [each["number"] for each in json.loads(data[1])] == [*EVERY]
