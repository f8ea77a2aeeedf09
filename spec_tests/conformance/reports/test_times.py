"""Times in explanations: of real time as milliseconds since the first event, of ticks as they are."""

from __future__ import annotations

import re

import msgspec
import pytest

from conformance import reports
from conformance.history.times import Times, times_of
from conformance.reports.recorded import read_history
from conformance.results import CaseResult
from conformance.running.worker import with_readable_times
from spec_tests.conformance.reports import runs

START = 7_024_625_000_000


def in_real_time(case: CaseResult) -> CaseResult:
    """The same failure as if it had been recorded with a clock: a tick is 1.5 ms."""

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
    told = with_readable_times(case)
    assert re.search(r"operation \d+, \d{1,3}\.\d{3}\.\.\d{1,3}\.\d{3} ms", told.violations[0].message)
    assert not re.search(r"\d{13}", told.violations[0].message)
    assert told.history == case.history


def test_the_page_shows_no_clock_of_a_machine() -> None:
    case = with_readable_times(in_real_time(of_ticks()))
    page = reports.to_html(runs.run(case))
    assert "Times are ms since the first event." in page
    assert not re.search(r"\b70246\d{8}\b", page)
    assert read_history(case.history or "").times == times_of(case.history)


def test_ticks_stay_as_they_are() -> None:
    assert with_readable_times(of_ticks()) == of_ticks()
    assert "Times are events, counted." in reports.to_html(runs.run(of_ticks()))


@pytest.mark.parametrize("history", [None, "", "garbage\n{}", '{"event":"header"}\n', "\ud800\n\n"])
def test_an_unreadable_history_has_no_times(history: str | None) -> None:
    assert times_of(history) == Times()


def test_every_notation_of_a_time_is_understood() -> None:
    times = Times(unit="us", first=1000)
    assert times.in_words("a look at the files (operation 3, 1500..2500: no version 1)") == (
        "a look at the files (operation 3, 0.500..1.500 ms: no version 1)"
    )
    assert (
        times.in_words("w's commit (operation 4, 1000..: no answer)")
        == "w's commit (operation 4, 0.000.. ms: no answer)"
    )
    assert times.in_words("X was answered by 3000 that attempt a1 never lands") == (
        "X was answered by 2.000 ms that attempt a1 never lands"
    )
