"""What is shown at a shell of a run that came to no verdict, or that fails for its list of known failures."""

from __future__ import annotations

import msgspec
import pytest

from conformance import reports
from conformance.command.summary import show_result
from conformance.requirements.catalogue import Level
from conformance.results import KnownFailure, RequirementVerdict, RunResult, Verdict
from spec_tests.conformance.reports import runs

STORY = (
    "the adapter is broken:\nadapter  commit: `ratified` was expected\n           asked: commit\n           came: [1]"
)


def shown(result: RunResult, capsys: pytest.CaptureFixture[str]) -> str:
    show_result(result, None)
    return capsys.readouterr().out


def test_a_rejected_subject_is_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [runs.without_verdict(Verdict.NOT_RUN, STORY, number) for number in range(4)]
    text = shown(runs.run(*cases, complete=False, stopped=STORY, exit_code=2), capsys)
    assert text.count("the adapter is broken") == text.count("asked: commit") == 1
    assert STORY in text
    assert "not run: 4 cases: limits/nothing-to-see-0" in text
    assert "No verdict: " in text
    assert "no case was about" not in text


def test_an_expired_budget_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "the budget of 60 s expired"
    text = shown(runs.run(runs.without_verdict(Verdict.NOT_RUN, why), complete=False, stopped=why, exit_code=3), capsys)
    assert text.count(why) == 1


def test_other_reasons_are_reported_with_their_cases(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(runs.run(runs.without_verdict(Verdict.INCONCLUSIVE, "it refused: busy"), exit_code=3), capsys)
    assert "inconclusive: it refused: busy: 1 case: limits/" in text


@pytest.mark.parametrize(
    ("stale", "failing", "meaning"),
    [
        (False, True, "exit code 1: a requirement is violated"),
        (True, True, "exit code 1: a requirement is violated, and a known failure is no longer true"),
        (True, False, "exit code 1: a known failure is no longer true"),
    ],
)
def test_the_exit_code_mentions_stale_known_failures(
    stale: bool, failing: bool, meaning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = runs.failed(runs.histories("bad")[0]) if failing else runs.passed(runs.histories("good")[0])
    entry = KnownFailure(case="limits/gone*", reason="ticket 3")
    result = msgspec.structs.replace(runs.run(case), exit_code=1, stale=(entry,) if stale else ())
    assert f"{meaning}\n" in shown(result, capsys)


def test_a_strict_run_fails_for_advice_without_calling_it_violated(capsys: pytest.CaptureFixture[str]) -> None:
    failed = runs.run(runs.failed(runs.histories("bad")[0]))
    advice = tuple(
        msgspec.structs.replace(each, level=Level.SHOULD, verdict=RequirementVerdict.WARNED)
        if each.verdict is RequirementVerdict.VIOLATED
        else each
        for each in failed.requirements
    )
    text = shown(msgspec.structs.replace(failed, exit_code=1, strict=True, requirements=advice), capsys)
    assert "exit code 1: advice is not followed, and the run is strict\n" in text


def test_the_page_explains_not_applicable_and_shortened() -> None:
    case = runs.failed(runs.histories("bad")[0])
    page = reports.to_html(runs.run(case))
    assert "mostly readers&#39; and writers&#39; requirements, other table features, and permissions" in page
    assert "the history that is shown is shortened" not in page
    generated = msgspec.structs.replace(case, reproduction='{"seed":1}')
    assert "the history that is shown is shortened" in reports.to_html(runs.run(generated))
