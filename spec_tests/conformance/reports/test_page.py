"""The HTML pages of one run and of several subjects: content, charts, valid markup, escaped input, accessibility."""

import re
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import html5lib
import msgspec
import pytest
from typer.testing import CliRunner

from conformance import reports
from conformance.command.application import application
from conformance.history import events
from conformance.history.times import Times, times_of
from conformance.interface.results import CaseResult, Violation
from conformance.reports.page import HERE, chart
from conformance.reports.recorded import MOST_DRAWN, Recorded, contradicts_the_log, read_history
from conformance.running.worker import with_readable_times
from spec_tests.conformance.reports import runs
from spec_tests.conformance.reports.test_data_reports import HOSTILE, SAMPLES
from spec_tests.conformance.running.cases import budget_ends_soon
from spec_tests.conformance.simulated_histories import Draft, DraftListing, Version
from spec_tests.support.sampling import sampled

pytestmark = pytest.mark.xdist_group("page")
"""Each page is rendered once."""

HTML = "{http://www.w3.org/1999/xhtml}"
FOLDER = Path("a folder/report")
SOURCES = {link.url for requirement in runs.requirements(()) for link in requirement.links}
"""The public addresses of the documents. The page may link to them, but loads none of them."""


@cache
def page(name: str = "everything") -> ElementTree.Element:
    """Parse the page strictly: invalid markup is an error."""
    return parsed(runs.matrix() if name == "matrix" else reports.to_html(SAMPLES[name](), FOLDER))


def parsed(text: str) -> ElementTree.Element:
    return html5lib.HTMLParser(tree=html5lib.getTreeBuilder("etree"), strict=True).parse(text)


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def of_class(root: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (element for element in root.iter() if name in element.attrib.get("class", "").split())


every_page = pytest.mark.parametrize("name", sampled([*SAMPLES, "matrix"], len(SAMPLES)))


@every_page
def test_the_page_is_valid_html(name: str) -> None:
    root = page(name)
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    for element in root.iter():
        for attribute in ("aria-labelledby", "aria-describedby", "data-copy"):
            assert set(element.attrib.get(attribute, "").split()) <= set(ids)
        target = element.attrib.get("href", "")
        assert not target.startswith("#") or target[1:] in ids


@every_page
def test_the_page_loads_nothing(name: str) -> None:
    root = page(name)
    loading = {"link", "img", "iframe", "object", "embed", "audio", "video", "source", "base", "image", "use"}
    assert not [element.tag for element in root.iter() if element.tag.rpartition("}")[2] in loading]
    for element in root.iter():
        assert not {"src", "srcset", "style", "action", "onclick", "onload"} & set(element.attrib)
        link = element.attrib.get("href", "")
        assert link in SOURCES or not re.match(r"[a-z]+:|//", link)
    assert not re.search(r"@import|url\(|https?:", (HERE / "page.css").read_text("utf-8"))
    assert not re.search(r"fetch|XMLHttp|import\(|https?:", (HERE / "page.js").read_text("utf-8"))


def test_text_of_a_hostile_subject_is_shown_escaped() -> None:
    root = page("hostile")
    assert [text_of(element)[:8] for element in root.iter(f"{HTML}script")] == ['"use str']
    heading = text_of(next(root.iter(f"{HTML}h1")))
    assert "<script>alert(1)</script>" in heading and "{{7*7}}" in heading
    assert r"\u202e" in heading and r"\x00" in heading and r"\ud800" in heading
    whole = "".join(root.itertext())
    assert not set("\x00\x1b\u202e") & set(whole)
    assert HOSTILE.count("`") == 2 and "ticks" in whole


def test_without_a_folder_the_command_runs_that_case_again() -> None:
    result = runs.run(runs.failed(runs.histories("bad")[0]))
    finding = next(of_class(parsed(reports.to_html(result)), "finding"))
    commands = [shlex.split(text_of(block[0])) for block in of_class(finding, "command")]
    assert commands == [
        ["delta-commit-conformance", "run", "--profile", "quick", "--seed", "7", "--check", result.cases[0].case,
         result.subject.named]
    ]  # fmt: skip
    assert not [link for link in finding.iter(f"{HTML}a") if "findings/" in link.attrib["href"]]


HISTORIES = [None, "", "x\n{}", "{}", '{"event":"header"', '{"event":"header"}\n', "\x00", "\ud800\n\n", "[]\n[]\n"]


@pytest.mark.parametrize("history", sampled(HISTORIES, 4))
def test_an_unreadable_history_has_no_chart_and_no_times(history: str | None) -> None:
    assert times_of(history) == Times()
    with pytest.raises(events.InvalidHistoryError):
        read_history(history or "")
    case = msgspec.structs.replace(runs.failed(runs.histories("bad")[0]), history=history)
    root = parsed(reports.to_html(runs.run(case)))
    finding = next(of_class(root, "finding"))
    assert case.violations[0].message in text_of(finding)
    assert "No chart: " in text_of(finding)
    assert not list(of_class(root, "chart"))


# The page of several subjects


def test_reports_are_combined_without_a_new_run(tmp_path: Path) -> None:
    """Exit code 3 says that the page lacks one subject."""
    for name, result in (("go", runs.everything()), ("other", runs.conformant())):
        reports.write(result, tmp_path / name)
    output = tmp_path / "matrix"
    words = [*(str(tmp_path / name) for name in ("go", "other")), "stdio:no-such-command", "-o", str(output)]
    ran = CliRunner().invoke(application, ["matrix", *words])
    assert ran.exit_code == 3
    go, other, missing, _ = ran.stdout.splitlines()
    assert go.startswith("go: Not conformant") and other.startswith("other: Conformant")
    assert missing.startswith("stdio:no-such-command: not run: ")
    assert (output / "index.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    again = reports.from_json((output / "go" / "result.json").read_bytes())
    assert msgspec.structs.replace(again, causes=()) == msgspec.structs.replace(runs.everything(), causes=())
    shutil.rmtree(tmp_path / "go")
    ran = CliRunner().invoke(application, ["matrix", str(output / "go"), "-o", str(tmp_path / "second")])
    assert (ran.exit_code, "page: " in ran.stdout) == (0, True)


@pytest.mark.longer
def test_each_subject_has_its_own_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget_ends_soon(monkeypatch)
    output = tmp_path / "matrix"
    words = ["matrix", "model", "-o", str(output), "-n", "1", "--budget", "1h", "--timeout", "2h"]
    ran = CliRunner().invoke(application, words)
    result = reports.from_json((output / "model" / "result.json").read_bytes())
    assert (result.complete, result.stopped) == (False, "the budget of 3600 s expired"), ran.stderr


# Charts of histories, and times


BAD = runs.histories("bad")
NOTHING = Violation(requirements=("CM-GET-04",), message="")


def recorded(draft: Draft) -> Recorded:
    return read_history(draft.text())


def long_draft(commits: int = 100) -> Draft:
    """A history of many writers, some of whose commits have an unknown outcome."""
    draft = Draft(before=1, log=[Version("old")])
    for version in range(1, commits):
        at, attempt = version * 10, f"attempt-{version:032d}"
        draft.ask(
            f"writer-{version % 4}",
            at,
            at + 5,
            events.Commit(version=version, attempt=attempt),
            events.Ratified(version=version),
        )
        if version % 2:
            rival = events.Commit(version=version, attempt=f"{attempt}-lost")
            answer = events.Unknown(reason="timed out") if version % 4 == 1 else events.Conflict(latest=version)
            draft.ask("rival", at + 1, at + 6, rival, answer)
        draft.log.append(Version(attempt))
    draft.looked.append(DraftListing(since=42, at=47, published=[0, 1], absent=[2]))
    draft.faults.append(events.Fault(at=503, kind="crash", client="writer-2"))
    draft.faults.append(events.Fault(at=33, kind="lost answer"))
    draft.ask("reader", 504, 508, events.GetCommits(), events.Commits(latest=12))
    return draft


def cells(drawn: dict) -> list[dict]:
    return [cell for row in drawn["rows"] for cell in row["cells"] if cell["number"] is not None]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_contradicting_steps_are_marked(path) -> None:
    case = runs.failed(path)
    assert case.history is not None
    for violation in case.violations:
        drawn = chart(read_history(case.history), violation)
        marks = sorted(shown["mark"] for shown in (*cells(drawn), *drawn["log"]) if shown["mark"])
        two = violation.contradicting == 2 and len(violation.operations) > 1
        assert marks == ([1, 2] if two or (contradicts_the_log(violation) and violation.operations) else [1])


def test_a_version_missing_from_the_final_log_is_shown_as_missing() -> None:
    draft = Draft(before=1, log=[Version("old")])
    draft.ask("writer", 1, 2, events.Commit(version=1, attempt="a"), events.Ratified(version=1))
    violation = Violation(
        requirements=("CM-COMMIT-08",), message="", operations=(0,), contradicting=1, rule="ratified-but-lost",
        table="orders", version=1,
    )  # fmt: skip
    log = chart(recorded(draft), violation)["log"]
    assert [(line["version"], line["how"], line["mark"]) for line in log] == [
        (0, "before the history", 0), (1, "not there", 2),
    ]  # fmt: skip


def test_a_step_without_an_answer_lasts_to_the_end_beside_later_ones() -> None:
    draft = Draft(before=1, log=[Version("old")])
    draft.ask("left", 1, 3, events.Commit(version=1, attempt="a"), events.Unknown(reason="timed out"))
    draft.ask("left", 4, None, events.Commit(version=1, attempt="b"), None)
    draft.ask("left", 5, 6, events.GetCommits(), events.Commits(latest=0))
    drawn = chart(recorded(draft), NOTHING)
    assert drawn["lanes"] == [("left", 2)]
    shown = [(cell["number"], cell["rows"], cell["kind"], cell["answer"]) for cell in cells(drawn)]
    assert shown == [
        (0, 2, "unknown", "unknown, timed out"), (1, 3, "unknown", "no answer"), (2, 2, "state", "commits, latest 0"),
    ]  # fmt: skip


@pytest.mark.parametrize("commits", [2, 25, 134])
def test_a_long_history_is_shown_around_the_contradiction(commits: int) -> None:
    history = recorded(long_draft(commits))
    reader = next(step.id for step in history.steps if getattr(step, "client", "") == "reader")
    violation = Violation(
        requirements=("CM-GET-04",), message="", operations=(reader, 0), rule="stale-read", table="orders", version=1
    )
    drawn = chart(history, violation)
    assert (drawn["of"], drawn["drawn"]) == (len(history.steps), min(len(history.steps), MOST_DRAWN))
    assert {cell["number"] for cell in cells(drawn) if cell["mark"]} == {0, reader}
    notes = [note for row in drawn["rows"] for note in row["notes"]]
    missing = sum(int(note.split()[0]) for note in notes if note.endswith("not drawn"))
    assert missing == drawn["of"] - drawn["drawn"]
    width = sum(tracks for _, tracks in drawn["lanes"])
    assert sum(cell["rows"] for row in drawn["rows"] for cell in row["cells"]) == width * len(drawn["rows"])


# Times in explanations


IN_TICKS = runs.HISTORIES / "bad" / "lost-on-restart.jsonl"


@pytest.fixture
def real(tmp_path: Path) -> CaseResult:
    """A failure with real times, in ns."""
    file = tmp_path / "real.jsonl"
    file.write_text(runs.in_nanoseconds(IN_TICKS), "utf-8")
    return runs.failed(file)


def test_real_times_are_milliseconds_since_the_first_event(real: CaseResult) -> None:
    assert re.search(r"operation \d+, events 7\d{12} to 7\d{12}", real.violations[0].message)
    readable = with_readable_times(real)
    assert re.search(r"operation \d+, \d{1,3}\.\d{3} to \d{1,3}\.\d{3} ms", readable.violations[0].message)
    assert not re.search(r"\d{13}", readable.violations[0].message)
    assert readable.history == real.history


def test_the_page_shows_no_absolute_time(real: CaseResult) -> None:
    page = reports.to_html(runs.run(with_readable_times(real)))
    assert "Times are ms since the first event." in page
    assert not re.search(r"\b70246\d{8}\b", page)
    assert read_history(real.history or "").times == times_of(real.history)
