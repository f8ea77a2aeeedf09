"""Every scenario of `play` has the expected end, and every sentence is true of its step."""

import json
import re
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import html5lib
import pytest
from typer.testing import CliRunner

from conformance.command.application import application
from conformance.story import Step, Story, page
from conformance.teaching.play import puzzles
from conformance.teaching.play.narration import ScenarioForks, steps_of, story_of
from conformance.teaching.play.scenarios import SCENARIOS, appends, filesystem_table, reads_by_path
from conformance.teaching.play.world import CRASH, DROP, POWER, Scenario
from spec_tests.support.sampling import sampled

ENDS = {
    "lost-write": (None, "version 1: b.parquet"),
    "commit": ("version 1: a.parquet", None),
    "version-0": ("version 0: no files", None),
    "lost-race": ("version 2: a.parquet, b.parquet", None),
    "conflict": ("version 2: x-updated.parquet", None),
    "lost-answer": ("version 1: a.parquet", None),
    "dies-before-the-decision": ("version 1: b.parquet", None),
    "dies-after-the-decision": ("version 2: a.parquet, b.parquet", None),
    "stale-reader": ("version 1: a.parquet", "version 1: a.parquet"),
    "lists-before-it-asks": ("version 1: a.parquet", None),
    "two-backfillers": ("version 3: a.parquet, b.parquet, c.parquet", None),
    "checkpoint-too-early": ("version 2: a.parquet, b.parquet", None),
    "cleanup-under-a-reader": ("version 2: a.parquet, b.parquet", None),
    "take-over": ("version 1: no files", None),
    "hand-back": (None, "version 3: a.parquet, w.parquet"),
    "clock-goes-back": ("version 2: a.parquet, b.parquet", None),
    "time-travel-across-enablement": ("version 3: a.parquet, b.parquet", None),
    "power-before-the-sync": ("version 0: no files", None),
    "power-after-the-decision": ("version 1: a.parquet", None),
    "delayed-commit": ("version 1: part-00000-….zstd.parquet, part-00001-….zstd.parquet", None),
    "transfer": ("version 1: h.parquet", None),
}
"""The last version that a reader sees through the owner, and by path. None: the read is rejected, or the table does not
exist.
"""

RESULTS = {
    "lost-write": ["A: a.parquet is in version 1", "B: b.parquet is in version 1"],
    "dies-before-the-decision": ["R: the attempt of A: NotLanded", "B: b.parquet is in version 1"],
    "dies-after-the-decision": ["R: the attempt of A: Landed", "B: b.parquet is in version 2"],
    "stale-reader": [
        "A: a.parquet is in version 1", "P: sees version 0 with no file", "R: sees version 1 with a.parquet",
        "M: published through version 1, 1 of them now", "Q: sees version 1 with a.parquet",
    ],
    "lists-before-it-asks": [
        "A: a.parquet is in version 1", "L: knows of versions [0]; missing: [1]", "R: sees version 1 with a.parquet",
    ],
    "two-backfillers": [
        "A: published through version 3, 3 of them now", "B: published through version 3, 0 of them now",
    ],
    "cleanup-under-a-reader": [
        "C: checkpoint 2.checkpoint.parquet",
        "D: deleted 0.json, 1.json, _staged_commits/1.setup2.json, _staged_commits/2.setup3.json",
        "R: sees version 2 with a.parquet, b.parquet",
    ],
    "power-before-the-sync": ["R: sees version 0 with no file"],
    "power-after-the-decision": ["R: sees version 1 with a.parquet"],
    "transfer": [
        "A: a.parquet is in version 1 of stock", "R: stock has a.parquet; orders has no file",
        "Q: stock has a.parquet; orders has no file", "S: stock has a.parquet, h.parquet; orders has h.parquet",
    ],
}  # fmt: skip
"""What the clients report, in scenarios that are about these reports."""

ERRORS = {
    "version-0": ["NameTakenError"],
    "conflict": ["ConcurrentAppendError"],
    "checkpoint-too-early": ["MaintenanceRefusedError"],
    "take-over": ["ProtocolChangedError"],
}
"""The ends of clients that do not succeed."""

every_scenario = pytest.mark.parametrize("name", sampled(SCENARIOS, 2))


@cache
def story(name: str) -> tuple[Step, ...]:
    return tuple(steps_of(SCENARIOS[name]))


@every_scenario
def test_a_scenario_has_its_expected_end(name: str) -> None:
    steps = story(name)
    for (_, sees), expected in zip(steps[-1].view.readers, ENDS[name], strict=True):
        assert sees == expected if expected else "Error" in sees
    if name in RESULTS:
        assert [step.text for step in steps if step.happening.kind == "result"] == RESULTS[name]
    assert [step.happening.target for step in steps if step.happening.kind == "error"] == ERRORS.get(name, [])


def test_a_reader_by_path_sees_a_published_take_over() -> None:
    """A reader through the owner may complete the take-over. A reader by path never does."""
    for step in story("take-over"):
        published = "1.json" in [name for name, _, _ in step.view.log]
        assert ("catalogManaged" in step.view.readers[1][1]) == published


@every_scenario
def test_every_sentence_is_true_of_its_step(name: str) -> None:
    """The sentence is compared with the disk and the ledger before and after the step."""
    checked = 0
    for before, step in pairwise(story(name)):
        checked += _checks(before, step)
        assert "{" not in step.text
        assert step.text[0].isupper()
    assert checked


def _checks(before: Step, step: Step) -> int:
    """Assert the claims of the sentence; return the number of claims."""
    text, then, now = step.text, before.view, step.view
    files = {path: durable for path, durable, _ in now.log}
    if match := re.search(r"commits its transaction: version (\d+) is attempt (\w+)", text):
        row = ("commit", f"version {match[1]}", match[2])
        assert row not in [entry[:3] for entry in then.ledger]
        assert row in [entry[:3] for entry in now.ledger]
    elif match := re.search(r"puts (\S+) in place\. The name was free", text):
        assert match[1] in files
        assert match[1] not in [path for path, _, _ in then.log]
    elif match := re.search(r"puts (\S+) in place\. The store overwrites", text):
        old, new = ({path: content for path, _, content in view.log} for view in (then, now))
        assert old[match[1]] != new[match[1]]
    elif match := re.search(r"tries to put (\S+) in place, but the file already exists", text):
        assert match[1] in [path for path, _, _ in then.log]
    elif match := re.search(r"creates the staged file of attempt (\w+), for version (\d+)", text):
        assert any(f"/{match[2]}.{match[1]}.json" in file for file in files)
    elif re.search("syncs the folder _staged_commits", text):
        assert all(durable for path, durable in files.items() if path.startswith("_staged_commits/"))
    elif match := re.search(r"deletes the staged file of attempt (\w+), which (has lost|is published)", text):
        landed = [row for row in now.ledger if row[0] == "commit" and row[2] == match[1]]
        assert [row[3] for row in landed] == (["published"] if match[2] == "is published" else [])
        assert not any(f".{match[1]}." in file for file in files)
    elif match := re.search(r"records: the table is ([\w-]+), published through (\d+)", text):
        assert ("table", match[1], now.ledger[0][2], f"published through {match[2]}") in now.ledger
    elif step.happening.kind == "power cut":
        assert all(files.values()), "every file that survives must have been synced"
    elif step.happening.kind in ("answer", "result", "error", "crash", "done", "list", "read"):
        assert (now.ledger, now.log) == (then.ledger, then.log)
    else:
        return 0
    return 1


def test_every_rule_is_in_the_catalogue() -> None:
    from conformance.requirements.catalogue import load

    rules = {step.rule for name in SCENARIOS for step in story(name) if step.rule}
    assert len(rules) > 20
    assert all(load().requirement(rule) for rule in rules)


# Forks


def fork(name: str, choices: Sequence[str], option: str) -> list[Step]:
    return ScenarioForks(SCENARIOS[name]).follow(choices, option)


def at_the_answer() -> tuple[str, ...]:
    return next(step for step in story("commit") if step.text.startswith("The owner records")).choices


def test_a_writer_whose_answer_is_lost_asks_for_the_outcome() -> None:
    steps = fork("commit", at_the_answer(), f"{DROP} A")
    assert any(step.happening.kind == "lost answer" for step in steps)
    assert "A: a.parquet is in version 1" in [step.text for step in steps]


def test_a_reader_whose_answer_is_lost_knows_that_nothing_changed() -> None:
    steps = fork("commit", ("A",), f"{DROP} A")
    assert [step.happening.target for step in steps if step.happening.kind == "error"] == ["OwnerUnavailableError"]


@pytest.mark.parametrize("fault", [f"{CRASH} A", POWER])
def test_a_fault_loses_no_ratified_commit(fault: str) -> None:
    assert fork("commit", at_the_answer(), fault)[-1].view.readers[0][1] == "version 1: a.parquet"


def test_a_crash_frees_the_lock() -> None:
    """A dies while it holds the owner's lock, which B's commit needs."""
    steps = story("lost-race")
    inside = next(step for step in steps if step.text.startswith("The owner reads the staged file of attempt A1"))
    assert fork("lost-race", inside.choices, f"{CRASH} A")[-1].view.readers[0][1] == "version 1: b.parquet"


def test_every_fork_of_a_race_keeps_acknowledged_commits() -> None:
    steps = story("lost-race")
    decision = next(at for at, step in enumerate(steps) if "This is the decision" in step.text)
    forks = ScenarioForks(SCENARIOS["lost-race"])
    options = forks.options(steps[decision].choices)
    assert {f"{CRASH} A", f"{CRASH} B", POWER} < set(options)
    for option in options:
        forked = forks.follow(steps[decision].choices, option)
        acknowledged = re.findall(r"(\w)\.parquet is in version", " ".join(step.text for step in forked))
        assert {"a", *acknowledged} == set(re.findall(r"(\w)\.parquet", forked[-1].view.readers[0][1])), option


def test_a_client_started_after_a_power_cut_sees_the_durable_state() -> None:
    scenario = Scenario(
        name="lost", title="", about="", ends="", setup=filesystem_table(),
        clients={"A": appends("a", by_path=True), "R": reads_by_path}, story=("A past ^link", POWER, "R"),
    )  # fmt: skip
    *_, last = steps_of(scenario)
    assert dict(last.view.readers)["by path"] == "version 0: no files"
    assert "R: sees version 0 with no file" in [step.text for step in steps_of(scenario)]


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
