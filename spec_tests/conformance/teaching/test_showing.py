"""The commands `play` and `puzzle`: text and page. Every puzzle has one solution, which the
checker found.
"""

import json
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

import html5lib
import pytest
from typer.testing import CliRunner

from conformance.command.application import application
from conformance.story import Story, page
from conformance.teaching.play import puzzles
from conformance.teaching.play.narration import story_of
from conformance.teaching.play.scenarios import SCENARIOS

pytestmark = pytest.mark.xdist_group("stories")
"""The simulator runs each story once."""


def command(*words: object, name: str = "play") -> Any:
    return CliRunner().invoke(application, [name, *map(str, words)], prog_name="delta-commit-conformance")


puzzle_command = partial(command, name="puzzle")


# The command


def test_play_without_a_scenario_lists_the_scenarios() -> None:
    lines = command().stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *SCENARIOS]


def test_the_text_output_has_every_step_and_its_rule() -> None:
    text = command("lost-answer").stdout
    assert "The owner commits its transaction: version 1 is attempt A1. This is the decision. [CM-COMMIT-02]" in text
    assert "A reader through the owner sees: version 1: a.parquet" in text
    assert len(re.findall(r"^ *\d+\. ", text, re.MULTILINE)) == 27


def test_the_option_decisions_omits_the_steps_between_decisions() -> None:
    text = command("lost-answer", "--decisions").stdout
    assert "The answer to A is lost." in text
    assert "creates a temporary file" not in text


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("play", ["no-such"], "unknown scenario 'no-such'; expected one of lost-write, "),
        ("play", ["--html", "x.html"], "no scenario given; name one, or use --all"),
        ("play", ["--all"], "--all needs --html FOLDER"),
        ("play", ["--all", "--html", __file__], "is a file; expected a folder"),
        ("play", ["commit", "--html", str(Path(__file__).parent)], "is a folder; expected a file to write, or --all"),
        ("puzzle", ["0"], "no puzzle 0; expected 1 to 21"),
        ("puzzle", ["22"], "no puzzle 22; expected 1 to 21"),
    ],
)
def test_an_error_says_what_was_expected(name: str, words: list[str], message: str) -> None:
    answer = command(*words, name=name)
    assert answer.exit_code == 2
    assert message in answer.stderr


@cache
def lost_answer() -> Story:
    return story_of(SCENARIOS["lost-answer"])


# The page


def data_of(text: str) -> Any:
    """The data in a page, which is valid and loads nothing."""
    root = html5lib.HTMLParser(tree=html5lib.getTreeBuilder("etree"), strict=True).parse(text)
    assert not [element for element in root.iter() if {"src", "href", "data"} & set(element.attrib)]
    assert "url(" not in text
    (data,) = (element for element in root.iter() if element.attrib.get("id") == "data")
    return json.loads(data.text or "")


def test_the_page_has_the_steps_and_their_alternatives() -> None:
    data = data_of(page([lost_answer()], title="One story"))
    (scenario,) = data["stories"]
    texts = [data["texts"][step[1]] for step in scenario["steps"]]
    assert "The answer to A is lost" in " ".join(texts)
    for at, forks in scenario["forks"].items():
        assert int(at) < len(texts)
        assert {"crash A", "cut the power"} <= {option for option, _ in forks}
        assert all(steps for _, steps in forks)


@pytest.mark.longer
def test_pages_are_written_to_the_given_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.teaching.play.scenarios.SCENARIOS", {"commit": SCENARIOS["commit"]})
    assert command("commit", "--html", tmp_path / "one.html").exit_code == 0
    assert command("--all", "--html", tmp_path / "course").exit_code == 0
    assert (tmp_path / "one.html").read_text() == (tmp_path / "course/index.html").read_text()


# Puzzles


EVERY = range(1, len(puzzles.NAMES) + 1)


@pytest.mark.parametrize("number", EVERY)
def test_a_puzzle_has_one_rule_and_hides_its_solution(number: int) -> None:
    puzzle = puzzles.puzzle(number)
    assert len(set(puzzle.rules)) == puzzles.CHOICES
    assert 1 <= puzzle.rule <= puzzles.CHOICES
    assert puzzle.suspects and puzzle.suspects <= {line.number for line in puzzle.lines}
    shown = puzzle_command(number).stdout
    assert puzzle.message not in shown and puzzle.name not in shown
    assert puzzle.message in puzzle_command(number, "--solution").stdout


def test_the_right_answer_is_accepted() -> None:
    puzzle = puzzles.puzzle(3)
    answer = puzzle_command(3, "--operation", max(puzzle.suspects), "--rule", puzzle.rule)
    assert (answer.exit_code, answer.stdout.splitlines()[0]) == (0, "right")


def test_a_wrong_answer_says_which_half_is_wrong() -> None:
    puzzle = puzzles.puzzle(3)
    answer = puzzle_command(3, "--operation", min(puzzle.suspects), "--rule", puzzle.rule % puzzles.CHOICES + 1)
    assert answer.exit_code == 1
    assert "the operation is right, the rule is wrong" in answer.stderr


def test_the_page_has_all_puzzles_and_loads_nothing(tmp_path: Path) -> None:
    assert puzzle_command("--html", tmp_path / "a/puzzles.html").exit_code == 0
    assert [puzzle["number"] for puzzle in data_of((tmp_path / "a/puzzles.html").read_text())] == [*EVERY]
