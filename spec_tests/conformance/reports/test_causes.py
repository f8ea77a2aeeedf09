"""Findings are grouped by their probable cause, and all reports agree on the causes and their order."""

import json
import re
from typing import Any

import msgspec
import pytest

from conformance import reports
from conformance.history.events import Fault
from conformance.interface.results import CaseResult, Layer, RunResult, Verdict, Violation
from conformance.reports.causes import causes
from conformance.reports.text import to_text
from conformance.scenario.check import Family
from spec_tests.conformance import kills
from spec_tests.conformance.reports import runs
from spec_tests.conformance.running import cases
from spec_tests.conformance.simulated_histories import Draft, DraftOperation, commit

ASKED, CONCLUDED = "the list is [1, 3]", "a conclusion from the whole history"
LATE, LOST = "an answer that is out of date", "ratified-but-lost"


def violation(name: str, message: str = ASKED, **more: Any) -> Violation:
    return Violation(requirements=(name,), message=message, **more)


def case(check: str, *violations: Violation, feature: str = "managedCommit", **more: Any) -> CaseResult:
    fields = {"title": f"{check}.", "operations": 5, "requirements": (), "violations": violations, **more}
    return cases.case(f"limits/{check}[{feature}/staged]", Verdict.FAILED, **fields)


def history(*operations: DraftOperation, restart: int | None = None, footer: bool = True) -> str:
    """The history of one table, with a restart at this time."""
    faults = [] if restart is None else [Fault(at=restart, kind="restart")]
    text = Draft(feature="managedCommit", asked=list(operations), faults=faults).text()
    return text if footer else text[: text.rindex('{"event":"footer"')]


FIRST, SECOND = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


def of(result: RunResult) -> list[list[str]]:
    """The checks of each cause."""
    return [[evidence.case.check for evidence in cause.evidence] for cause in causes(result)]


def test_cases_with_the_same_violation_have_one_cause() -> None:
    lost = [violation(name, rule=LOST) for name in ("MC-COMMIT-02", "PROFILE-DURABLE-01")]
    result = runs.run(case("a", lost[0]), case("b", lost[1], operations=4), case("c", violation("MC-LOG-05", LATE)))
    assert of(result) == [["b", "a"], ["c"]]
    first, second = causes(result)
    assert first.headline == "A commit that was answered as ratified is not in the log"
    assert {requirement.requirement for requirement in first.requirements} == {"MC-COMMIT-02", "PROFILE-DURABLE-01"}
    assert second.headline == f"{LATE[0].upper()}{LATE[1:]}"


def test_the_cause_of_most_checks_comes_first_and_advice_last() -> None:
    should = next(entry.requirement for entry in runs.requirements(()) if entry.level == "SHOULD")
    advised = [case(f"s{number}", violation(should)) for number in range(3)]
    many = [case(f"m{number}", violation("LOG-05")) for number in range(2)]
    result = runs.run(*advised, case("one", violation("LOG-07", LATE)), *many)
    assert of(result) == [["m0", "m1"], ["one"], ["s0", "s1", "s2"]]
    assert [cause.warning for cause in causes(result)] == [False, False, True]


def test_direct_evidence_comes_before_conclusions() -> None:
    concluded, direct = violation("MC-READ-06", CONCLUDED, rule="stale-read"), violation("MC-READ-06")
    result = runs.run(case("short", concluded, operations=1), case("long", concluded, direct, operations=9))
    assert of(result) == [["long", "short"]]
    text = reports.to_html(result)
    assert text.index(ASKED) < text.index(CONCLUDED)


@pytest.mark.parametrize("restarted", [True, False])
def test_a_restart_is_part_of_a_cause_only_if_every_case_needs_it(restarted: bool) -> None:
    lost = violation("MC-COMMIT-02", rule=LOST, operations=(0,), contradicting=1)
    failed = [case("a", lost, history=history(commit(FIRST, 1, 1, 3), restart=2))]
    if not restarted:
        failed.append(case("b", lost, history=history(commit(FIRST, 1, 1, 3))))
    (cause,) = causes(runs.run(*failed))
    assert cause.headline.startswith("After a restart: a commit that") is restarted


def test_two_ratified_attempts_are_preferred_to_indirect_evidence() -> None:
    text = history(commit(FIRST, 1, 1, 2), commit(SECOND, 1, 3, 4))
    changed = violation("CM-FEATURE-01", f"answers differ for {FIRST}", rule="version-changed", operations=(7, 8))
    result = runs.run(case("a", changed, history=text))
    (cause,) = causes(result)
    assert cause.headline == "Two attempts are ratified as one version"
    assert "answers differ for A" in to_text(result, None) and FIRST not in to_text(result, None)
    assert "Operation 7, 8 is left out" in reports.to_html(result)


def test_a_history_without_a_final_log_is_drawn() -> None:
    text = history(commit(FIRST, 1, 1, 2), commit(SECOND, 2, 3, None), footer=False)
    page = reports.to_html(runs.run(case("a", violation("LOG-05", operations=(1, 0)), history=text)))
    assert 'class="chart"' in page and "The final log could not be read" in page and "No chart" not in page


def test_a_finding_of_both_features_is_shown_once() -> None:
    managed = case("a", violation("MC-LOG-05", f"{ASKED} of managedCommit 0a1b2c3d-0000-4000-8000-000000000001"))
    other = violation("CM-LOG-02", f"{ASKED} of catalogManaged 0a1b2c3d-1111-4111-8111-11")
    result = runs.run(managed, case("a", other, feature="catalogManaged"))
    (cause,) = causes(result)
    (evidence,) = cause.evidence
    assert len(evidence.cases) == 2
    output = to_text(result, None)
    assert output.count(ASKED) == 1 and "both table features: " in output


def test_a_violation_in_only_one_commit_mode_gives_a_hint() -> None:
    passed = msgspec.structs.replace(
        case("a"), case="limits/a[managedCommit/direct]", commit_mode="direct", verdict=Verdict.PASSED
    )
    (cause,) = causes(runs.run(case("a", violation("LOG-05")), passed))
    assert cause.hints == ("only staged commits: the same checks pass on the others",)


def test_an_ignored_advice_is_not_called_violated() -> None:
    warned = case("a", Violation(requirements=("CM-PUBLISH-05", "MC-BACKFILL-04"), message=ASKED))
    text = to_text(runs.run(warned, exit_code=0), None)
    assert "also not followed: MC-BACKFILL-04\n" in text and "also violated" not in text


def test_all_reports_have_the_same_causes_in_one_order() -> None:
    result = runs.everything()
    names = [cause.headline for cause in causes(result)]
    assert len(names) > 5
    console = re.findall(r"^\d+\. (.*) \((?:violated|not followed)\)$", to_text(result, None), re.M)
    page = re.findall(r"</span> (?:violated|not followed)</b> (.*)</h3>", reports.to_html(result))
    assert console == names[: len(console)]
    assert [re.sub(r"<.*?>|\W", "", heading) for heading in page] == [re.sub(r"\W", "", name) for name in names]
    stored = json.loads(reports.to_json(result))["causes"]
    assert [cause["headline"] for cause in stored] == names
    assert {name for cause in stored for name in cause["cases"]} == {
        failed.case for failed in result.cases if failed.violations
    }


@pytest.mark.parametrize(
    ("mutant", "family", "headline"),
    [
        ("loser-is-answered-as-ratified", Family.CONCURRENT_WRITERS, "Two attempts are ratified as one version"),
        (
            "backfill-is-answered-early", Family.BACKFILL,
            "A request to backfill does not publish the commits",
        ),
        ("replaces-timestamps", Family.CONTENT, "A ratified commit has other content than its writer proposed"),
        (
            "replay-is-a-conflict", Family.REPLAYS,
            "A repeated request of a committed attempt is not answered `ratified`",
        ),
        (
            "references-are-names", Family.LIFECYCLE,
            "`commit` of version 1 was answered `ratified` as version 1. "
            "Expected: the table was dropped: nothing more is ratified",
        ),
        (
            "restart-undoes-drops", Family.LIFECYCLE,
            "After a restart: `load_table` was answered `table`, latest 3, commits 3. "
            "Expected: the table does not exist: `not_found`",
        ),
        (
            "saves-on-shutdown-only", Family.RESTARTS,
            "After a restart: an answer for the latest version is out of date",
        ),
    ],
)  # fmt: skip
def test_the_first_cause_of_a_mutant_is_its_defect(mutant: str, family: Family, headline: str) -> None:
    name = f"mutant:{mutant}"
    matching = [case for case in kills.cases(kills.identity(name)) if case.check.family is family]
    written = [case for case in matching if case.check.layer is Layer.EXAMPLE or "pinned" in case.check.name]
    found = (
        causes(runs.run(*(kills.run(case, name) for case in cases))) for cases in (written, kills.remembered(mutant))
    )
    assert next(filter(None, found))[0].headline == headline
