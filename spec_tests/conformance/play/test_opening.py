"""The player opens a finding, a history or a trace, and goes to the violation. Before it, only what the clients know is
shown.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conformance import reports
from conformance.command.application import application
from conformance.play.opening import open_story
from conformance.player.story import Step, Story
from conformance.reports.history_story import AROUND
from conformance.results import UnusableError
from spec_tests.conformance.reports import runs
from spec_tests.conformance.simulation.test_commands import UnlockedOwner, simulate

FOUND = sorted((Path(reports.__file__).parents[1] / "findings/found").iterdir())


def bad(name: str) -> Path:
    return runs.HISTORIES / "bad" / f"{name}.jsonl"


def before_violation(story: Story) -> Step:
    return story.steps[[step.violates for step in story.steps].index(True) - 1]


@pytest.mark.parametrize("path", runs.histories("bad"), ids=lambda path: path.stem)
def test_a_bad_history_shows_its_violation_and_the_rule(path: Path) -> None:
    story = open_story(path)
    violations = [step for step in story.steps if step.violates]
    assert violations and all(step.rule for step in violations)
    assert {step.happening.lane for step in story.steps} <= {*story.lanes, ""}
    assert violations[0].rule in story.ends


@pytest.mark.parametrize("path", runs.histories("good"), ids=lambda path: path.stem)
def test_a_good_history_is_played_without_a_violation(path: Path) -> None:
    story = open_story(path)
    assert not any(step.violates for step in story.steps)
    assert story.ends == "No violation."


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("lost-on-restart", "other gets the answer to operation 1: ratified, version 1"),
        ("failed-and-yet-there", "In the final log: version 0 from before the history; version 1 by attempt first"),
        ("published-out-of-order", "An external observer lists the files"),
    ],
)
def test_a_violation_is_visible_when_its_last_operation_ends(name: str, last: str) -> None:
    assert before_violation(open_story(bad(name))).text.startswith(last)


def test_the_player_knows_an_owner_only_by_its_answers() -> None:
    """Two attempts were answered `ratified` for one version. The player shows both, each with its operation."""
    story = open_story(bad("two-winners-of-one-version"))
    assert story.forks is None and "no other choice can be tried" in story.about
    rows = [row[:2] for row in before_violation(story).view.ledger if row[0] == "version 1:"]
    assert len({attempt for _, attempt in rows}) == 2
    assert all("operation" in row[-1] for row in story.steps[-1].view.ledger)


def test_the_files_are_those_that_an_observer_listed() -> None:
    seen = [[name for name, *_ in step.view.log] for step in open_story(bad("published-then-gone")).steps]
    assert ["0.json", "1.json"] in seen and seen[-1] == ["0.json"]


def test_a_reports_finding_opens_by_its_file_or_folder(tmp_path: Path) -> None:
    case = runs.failed(bad("lost-on-restart"))
    (file,) = (path for path in reports.write_bundle(runs.run(case), case, tmp_path) if path.name == "finding.json")
    story = open_story(file)
    assert story.title == case.title
    assert story.steps == open_story(tmp_path).steps == open_story(bad("lost-on-restart")).steps


@pytest.mark.parametrize("folder", FOUND, ids=lambda folder: folder.name)
def test_a_stored_finding_is_played_with_its_violations(folder: Path) -> None:
    story = open_story(folder / "finding.json")
    finding = reports.read_finding(folder / "finding.json")
    assert sum(step.violates for step in story.steps) == len(finding.violations)


# Long histories


def long_history(path: Path, pairs: int, wrong_at: int) -> None:
    """Write a history of commits and reads. The read after version `wrong_at` returns the version before it as the
    latest.
    """

    def lines() -> Iterable[dict[str, Any]]:
        yield {"event": "header", "schema": 1, "clock": {"unit": "tick"}, "subject": {"name": "x"},
               "feature": "catalogManaged"}  # fmt: skip
        for version in range(1, pairs + 1):
            at = 4 * version
            commit = {"op": "commit", "attempt": f"a{version}", "version": version}
            yield {"event": "invoke", "at": at, "id": 2 * version, "client": "w", "table": "t", "request": commit}
            yield {
                "event": "ok",
                "at": at + 1,
                "id": 2 * version,
                "answer": {"outcome": "ratified", "version": version},
            }
            read = {"event": "invoke", "at": at + 2, "id": 2 * version + 1, "client": "r", "table": "t"}
            yield {**read, "request": {"op": "get_commits"}}
            answer = {"outcome": "commits", "latest": version - (version == wrong_at)}
            yield {"event": "ok", "at": at + 3, "id": 2 * version + 1, "answer": answer}
        yield {"event": "witness", "table": "t", "version": 0, "before": True}
        for version in range(1, pairs + 1):
            yield {"event": "witness", "table": "t", "version": version, "attempt": f"a{version}"}
        counts = {"invoke": 2 * pairs, "ok": 2 * pairs, "fail": 0, "info": 0, "fault": 0, "fs": 0, "witness": pairs + 1}
        yield {"event": "footer", "counts": counts, "tables": {"t": pairs + 1}, "complete": True}

    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines()))


def test_a_long_history_shows_the_events_around_its_violation(tmp_path: Path) -> None:
    long_history(tmp_path / "long.jsonl", pairs=2000, wrong_at=1500)
    story = open_story(tmp_path / "long.jsonl")
    assert before_violation(story).text == "r gets the answer to operation 3001: commits, latest 1499"
    assert len(story.steps) < 4 * AROUND
    left_out = [int(step.text.split()[0].replace(",", "")) for step in story.steps if step.happening.kind == "left out"]
    assert left_out[0] == 4 * 1499 - AROUND
    assert "events are not shown and not counted" in story.about


def test_a_long_good_history_shows_its_beginning(tmp_path: Path) -> None:
    long_history(tmp_path / "long.jsonl", pairs=2000, wrong_at=-1)
    story = open_story(tmp_path / "long.jsonl")
    assert story.steps[0].text == "w sends operation 2: commit of version 1 as attempt a1"
    assert story.ends == "No violation."


# Traces


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trace") / "trace.json"
    subject = f"python:{UnlockedOwner.__module__}:UnlockedOwner"
    assert simulate("explore", "two-writers", "--subject", subject, "--trace", str(file)) == 1
    return file


def test_a_trace_is_replayed_effect_by_effect(trace: Path) -> None:
    story = open_story(trace)
    effects = [step.text for step in story.steps if step.happening.kind in ("read", "write", "replace")]
    assert effects[-2:] == ["bob replaces ledger.json", "alice replaces ledger.json"]
    assert before_violation(story).text.startswith("alice gets the answer")
    assert story.ends == "1 violation of CM-COMMIT-08."


def test_a_trace_with_another_order_gives_another_run(trace: Path) -> None:
    story = open_story(trace)
    assert story.forks is not None
    first = next(step for step in story.steps if step.choices)
    assert [name for name, _ in story.forks.options(first.choices)] == ["alice", "bob"]
    steps = story.forks.follow(first.choices, "alice")
    assert not any(step.violates for step in steps), "without a race, no write may be lost"


# Files that cannot be played


HEADER, *EVENTS = bad("lost-on-restart").read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a finding"),
        ("hello\n", "line 1: 'hello'; expected a finding (finding.json), a history (JSON Lines), or a trace"),
        ("{}", "line 1: '{}'; expected"),
        ("[" * 100_000, "line 1: '[["),
        (EVENTS[0], "line 1: this history cannot be played: a history begins with its header, not with `invoke`"),
        (HEADER, "it ends after line 1 without a footer"),
        (HEADER + EVENTS[0] + "x\n", "line 3: this history cannot be played: not an event of a history"),
        ("".join([HEADER, *EVENTS])[:-20], "line 9: this history cannot be played: cut off after"),
        ('{"turns": 1}', "cannot be run again here"),
        ('{"violations": 1}', "is no finding of a run"),
    ],
    ids=["empty", "text", "object", "nested", "headless", "header-only", "line", "truncated", "trace", "finding"],
)  # fmt: skip
def test_the_error_for_a_file_that_cannot_be_played_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "file.json").write_text(text)
    answer = CliRunner().invoke(application, ["play", str(tmp_path / "file.json")])
    assert answer.exit_code == 2
    assert str(tmp_path / "file.json") in answer.stderr and message in answer.stderr


def test_the_error_for_a_finding_without_its_history_names_the_file(tmp_path: Path) -> None:
    case = runs.failed(bad("lost-on-restart"))
    reports.write_bundle(runs.run(case), case, tmp_path)
    (tmp_path / "history.jsonl").unlink()
    with pytest.raises(UnusableError, match=r"history\.jsonl cannot be read"):
        open_story(tmp_path)
