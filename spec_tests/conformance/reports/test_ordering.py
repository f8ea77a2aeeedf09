"""The order in which all reports tell what is wrong, and what they tell once."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from conformance import reports
from conformance.command.summary import show_result
from conformance.reports.summary import direct_first, evidence, in_order, twins_in_words
from conformance.results import CaseResult, Layer, RunResult, Verdict, Violation
from spec_tests.conformance.reports import runs

ASKED, CONCLUDED = "the list is [1, 3]", "a conclusion from the whole history"


def violation(name: str, message: str = ASKED, **more: Any) -> Violation:
    return Violation(requirements=(name,), message=message, **more)


def case(check: str, *violations: Violation, feature: str = "managedCommit", **more: Any) -> CaseResult:
    fields: dict[str, Any] = {"layer": Layer.EXAMPLE, "operations": 5, **more}
    return CaseResult(
        case=f"limits/{check}[{feature}/staged]", check=check, title=f"{check}.", family="limits", feature=feature,
        commit_mode="staged", requirements=(), verdict=Verdict.FAILED, violations=violations, **fields,
    )  # fmt: skip


def test_direct_evidence_comes_before_conclusions() -> None:
    concluded = violation("LOG-05", CONCLUDED, rule="a-rule")
    asked = violation("LOG-05")
    assert direct_first((concluded, asked)) == [asked, concluded]
    result = runs.run(case("short", concluded, operations=1), case("long", concluded, asked, operations=9))
    (found,) = evidence(result)
    assert [each.message for _, each in found.findings] == [ASKED, CONCLUDED]
    for text in (reports.to_markdown(result), reports.to_html(result)):
        assert text.index(ASKED) < text.index(CONCLUDED)


def test_direct_evidence_comes_before_many_histories() -> None:
    concluded = violation("MC-COMMIT-02", CONCLUDED, rule="a-rule")
    result = runs.run(*(case(f"c{number}", concluded) for number in range(5)), case("one", violation("LOG-05")))
    assert in_order(result) == ["LOG-05", "MC-COMMIT-02"]


def test_the_shortest_case_comes_first_then_the_commonest() -> None:
    """An owner that is badly broken fails most cases: conclusions from many histories do not make a story plainer."""
    told = [case(f"m{number}", violation("MC-COMMIT-02"), operations=6) for number in range(5)]
    short = [case("s", violation("LOG-05"), operations=3), case("t", violation("LOG-07"), operations=3)]
    once_more = case("u", violation("LOG-07"), operations=9)
    concluded = [case(f"h{number}", violation("LOG-05", CONCLUDED, rule="a-rule")) for number in range(9)]
    assert in_order(runs.run(*told, *short, once_more, *concluded)) == ["LOG-07", "LOG-05", "MC-COMMIT-02"]
    assert in_order(runs.run(*told, *short, *concluded)) == ["LOG-05", "LOG-07", "MC-COMMIT-02"]


def test_the_console_the_summary_and_the_page_have_one_order(capsys: pytest.CaptureFixture[str]) -> None:
    result = runs.everything()
    names = in_order(result)
    assert len(names) > 10
    show_result(result, None)
    shown = r"^(\S+) \((?:MUST; |SHOULD; |promised by ).*: (?:violated|recommendation not followed)$"
    console = re.findall(shown, capsys.readouterr().out, re.M)
    summary = re.findall(r"^### (\S+) \(", reports.to_markdown(result), re.M)
    page = re.findall(r"</span> (?:violated|not followed)</b> ([A-Z0-9-]+)</h3>", reports.to_html(result))
    first = [each.requirement.requirement for each in evidence(result)]
    assert console == first[: len(console)] and len(console) == 20
    assert summary == first
    assert page == names


def pair(message: str = ASKED, check: str = "a") -> RunResult:
    """The same check fails on both table features; `message` and `check`: of the second."""
    one = case("a", violation("MC-LOG-05", f"{ASKED} of managedCommit 0a1b2c3d-0000-4000-8000-000000000001"))
    other = violation("CM-LOG-02", f"{message} of catalogManaged 0a1b2c3d-1111-4111-8111-11")
    return runs.run(one, case(check, other, feature="catalogManaged"))


def test_a_finding_of_both_features_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = evidence(pair())
    words = twins_in_words(found)
    kept, folded = in_order(pair())
    assert {kept, folded} == {"MC-LOG-05", "CM-LOG-02"}
    assert words.startswith("The same for ") and words.endswith(f": {folded}")
    text = reports.to_markdown(pair())
    assert words in text and "Violated (2)" in text
    show_result(pair(), None)
    told = capsys.readouterr().out
    assert words in told and told.count(ASKED) == 1


@pytest.mark.parametrize("other", [pair(message="the list is [1, 2]"), pair(check="b")])
def test_different_findings_are_shown_separately(other: RunResult) -> None:
    assert [each.twins for each in evidence(other)] == [(), ()]


def test_mutants_that_violate_the_same_are_named_for_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    result = runs.run(case("one", violation("LOG-05")))
    show_result(result, None)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "compare: " in line]
    assert 0 < line.count("mutant:") <= 3
    itself = re.search(r"mutant:\S+?(?=,|$)", line)
    assert itself is not None
    subject = msgspec.structs.replace(result.subject, named=itself[0])
    show_result(msgspec.structs.replace(result, subject=subject), None)
    assert f"compare: {itself[0]}" not in capsys.readouterr().out
