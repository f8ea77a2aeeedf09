"""Drawings of histories, and times in reports. A drawing has a lane for each client, no overlaps, and marks the
contradiction. Real times are shown as milliseconds since the first event, ticks unchanged.
"""

import io
import re

import msgspec
import pytest

from conformance import reports
from conformance.history.events import (
    Commit,
    Commits,
    Conflict,
    Fault,
    GetCommits,
    InvalidHistoryError,
    Ratified,
    Unknown,
)
from conformance.history.files import write_events
from conformance.history.times import Times, times_of
from conformance.reports.lanes import Drawing, draw
from conformance.reports.recorded import MOST_DRAWN, Recorded, contradicts_the_log, read_history
from conformance.results import CaseResult, Violation
from conformance.running.worker import with_readable_times
from spec_tests.conformance.drafts import Draft, DraftListing, Version
from spec_tests.conformance.reports import runs

BAD = runs.histories("bad")
NOTHING = Violation(requirements=("CM-GET-04",), message="")


def recorded(draft: Draft) -> Recorded:
    stream = io.BytesIO()
    write_events(stream, draft.events())
    return read_history(stream.getvalue().decode("utf-8"))


def long_draft(commits: int = 100) -> Draft:
    """A history of many writers, some of whose commits have an unknown outcome."""
    draft = Draft(before=1, log=[Version("old")])
    for version in range(1, commits):
        at, attempt = version * 10, f"attempt-{version:032d}"
        draft.ask(
            f"writer-{version % 4}", at, at + 5, Commit(version=version, attempt=attempt), Ratified(version=version)
        )
        if version % 2:
            rival = Commit(version=version, attempt=f"{attempt}-lost")
            answer = Unknown(reason="timed out") if version % 4 == 1 else Conflict(latest=version)
            draft.ask("rival", at + 1, at + 6, rival, answer)
        draft.log.append(Version(attempt))
    draft.looked.append(DraftListing(since=42, at=47, published=[0, 1], absent=[2]))
    draft.faults.append(Fault(at=503, kind="crash", client="writer-2"))
    draft.faults.append(Fault(at=33, kind="lost answer"))
    draft.ask("reader", 504, 508, GetCommits(), Commits(latest=12))
    return draft


def boxes(drawing: Drawing) -> list:
    return [box for lane in (*drawing.lanes, drawing.flags, drawing.log) for box in lane.boxes]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_contradicting_steps_are_marked_and_connected(path) -> None:
    case = runs.failed(path)
    assert case.history is not None
    for violation in case.violations:
        drawing = draw(read_history(case.history), violation)
        marks = sorted(box.mark for box in boxes(drawing) if box.mark)
        two = violation.contradicting == 2 and len(violation.operations) > 1
        if two or (contradicts_the_log(violation) and violation.operations):
            assert marks == [1, 2]
            assert drawing.join.startswith("M")
        else:
            assert marks == [1]
            assert drawing.join == ""


def test_a_version_missing_from_the_final_log_is_drawn_as_missing() -> None:
    draft = Draft(before=1, log=[Version("old")])
    draft.ask("writer", 1, 2, Commit(version=1, attempt="a"), Ratified(version=1))
    violation = Violation(
        requirements=("CM-COMMIT-08",), message="", operations=(0,), contradicting=1, rule="ratified-but-lost",
        table="orders", version=1,
    )  # fmt: skip
    drawing = draw(recorded(draft), violation)
    assert [(box.lines, box.kind, box.mark) for box in drawing.log.boxes] == [
        (("v0 old", "before the history"), "version", 0),
        (("v1", "not there"), "missing", 2),
    ]


def test_an_unknown_outcome_is_open_ended() -> None:
    draft = Draft(before=1, log=[Version("old")])
    draft.ask("left", 1, 3, Commit(version=1, attempt="a"), Unknown(reason="timed out"))
    draft.ask("left", 4, None, Commit(version=1, attempt="b"), None)
    draft.ask("left", 5, 6, GetCommits(), Commits(latest=0))
    drawing = draw(recorded(draft), NOTHING)
    lost, silent, answered = drawing.lanes[0].boxes
    assert lost.endless and silent.endless and not answered.endless
    assert lost.tail == silent.tail > lost.x + lost.width and answered.tail == 0
    assert len({lost.row, silent.row, answered.row}) == 3
    assert silent.lines[1] == "→ no answer"


@pytest.mark.parametrize("commits", [2, 25, 134])
def test_a_long_history_is_drawn_around_the_contradiction(commits: int) -> None:
    history = recorded(long_draft(commits))
    reader = next(step.id for step in history.steps if getattr(step, "client", "") == "reader")
    violation = Violation(
        requirements=("CM-GET-04",), message="", operations=(reader, 0), rule="stale-read", table="orders", version=1
    )
    drawing = draw(history, violation)
    assert drawing.of == len(history.steps)
    assert drawing.drawn == min(drawing.of, MOST_DRAWN)
    assert {box.number for box in boxes(drawing) if box.mark} == {0, reader}
    left_out = [box.lines[0] for box in drawing.flags.boxes if box.kind == "break"]
    missing = sum(int(text.split()[0]) for text in left_out)
    assert missing == drawing.of - drawing.drawn
    assert f"{drawing.drawn} of {drawing.of}" in drawing.description or missing == 0


def test_distant_steps_are_omitted_first() -> None:
    history = recorded(long_draft())
    middle = history.steps[80].id
    violation = Violation(requirements=("CM-GET-04",), message="", operations=(middle,), table="orders")
    numbers = [box.number for box in boxes(draw(history, violation)) if box.number is not None]
    assert min(numbers) >= middle - MOST_DRAWN and max(numbers) <= middle + MOST_DRAWN


def test_faults_of_omitted_steps_are_omitted() -> None:
    history = recorded(long_draft())
    violation = Violation(requirements=("CM-GET-04",), message="", operations=(0,), table="orders")
    flags = [box.lines[0] for box in draw(history, violation).flags.boxes if box.kind == "fault"]
    assert flags == ["lost answer"]


@pytest.mark.parametrize("text", ["", "x", "{}", '{"event":"header"', "\x00", "\ud800", "[]\n[]\n"])
def test_text_that_is_no_history_is_refused(text: str) -> None:
    with pytest.raises(InvalidHistoryError):
        read_history(text)


# Times in explanations


START = 7_024_625_000_000


def in_real_time(case: CaseResult) -> CaseResult:
    """The same failure with recorded times instead of ticks: a tick is 1.5 ms."""

    def moment(tick: str) -> str:
        return str(START + int(tick) * 1_500_000)

    assert case.history is not None
    history = re.sub(r'"(at|since)":(\d+)', lambda found: f'"{found[1]}":{moment(found[2])}', case.history)
    history = history.replace('"unit":"tick"', '"unit":"ns"')
    violations = tuple(
        msgspec.structs.replace(
            each,
            message=re.sub(
                r"(operation \d+, )(\d+)\.\.(\d+)", lambda f: f"{f[1]}{moment(f[2])}..{moment(f[3])}", each.message
            ),
        )
        for each in case.violations
    )
    return msgspec.structs.replace(case, history=history, violations=violations)


def of_ticks() -> CaseResult:
    """A failure whose explanation names an operation with its times."""
    span = re.compile(r"operation \d+, \d+\.\.\d")
    cases = [runs.failed(path) for path in runs.histories("bad")]
    return next(case for case in cases if '"tick"' in (case.history or "") and span.search(case.violations[0].message))


def test_real_times_are_milliseconds_since_the_first_event() -> None:
    case = in_real_time(of_ticks())
    assert re.search(r"operation \d+, 7\d{12}\.\.7\d{12}", case.violations[0].message)
    readable = with_readable_times(case)
    assert re.search(r"operation \d+, \d{1,3}\.\d{3}\.\.\d{1,3}\.\d{3} ms", readable.violations[0].message)
    assert not re.search(r"\d{13}", readable.violations[0].message)
    assert readable.history == case.history


def test_the_page_shows_no_absolute_time() -> None:
    case = with_readable_times(in_real_time(of_ticks()))
    page = reports.to_html(runs.run(case))
    assert "Times are ms since the first event." in page
    assert not re.search(r"\b70246\d{8}\b", page)
    assert read_history(case.history or "").times == times_of(case.history)


def test_ticks_are_shown_unchanged() -> None:
    assert with_readable_times(of_ticks()) == of_ticks()
    assert "Times are events, counted." in reports.to_html(runs.run(of_ticks()))


@pytest.mark.parametrize("history", [None, "", "garbage\n{}", '{"event":"header"}\n', "\ud800\n\n"])
def test_an_unreadable_history_has_no_times(history: str | None) -> None:
    assert times_of(history) == Times()


def test_every_notation_of_a_time_is_parsed() -> None:
    times = Times(unit="us", first=1000)
    assert times.in_words("a listing (operation 3, 1500..2500: no version 1)") == (
        "a listing (operation 3, 0.500..1.500 ms: no version 1)"
    )
    assert (
        times.in_words("w's commit (operation 4, 1000..: no answer)")
        == "w's commit (operation 4, 0.000.. ms: no answer)"
    )
    assert times.in_words("X was answered by 3000 that attempt a1 never lands") == (
        "X was answered by 2.000 ms that attempt a1 never lands"
    )
