"""What cases say of requirements and of profiles."""

from __future__ import annotations

import msgspec
import pytest

from conformance.interface.messages import Identity
from conformance.requirements import Level, load
from conformance.results import CaseResult, Layer, RequirementResult, RequirementVerdict, Verdict, Violation
from conformance.running import verdicts
from conformance.scenario.formatting import NO_SUCH_JOB
from spec_tests.conformance.running.cases import MAY, MUST, OTHER_MUST, SHOULD, UNTESTABLE, case, identity

RETRY = identity("idempotent-retry")


def verdict_of(requirement: str, *cases: CaseResult, who: Identity = RETRY) -> RequirementResult:
    (found,) = [each for each in verdicts.requirement_results(cases, who) if each.requirement == requirement]
    return found


def test_every_requirement_has_a_verdict_in_order() -> None:
    found = verdicts.requirement_results([case()], RETRY)
    assert [each.requirement for each in found] == [each.id for each in load().requirements]
    assert all(each.paraphrase and each.source for each in found)


def test_a_promise_is_cited_from_a_contract() -> None:
    """Unity Catalog's API demands what the profile promises; of other subjects it stays a promise, and both fail."""
    failed = case("limits/a[x/y]", Verdict.FAILED, ("PROFILE-RETRY-01",), requirements=("PROFILE-RETRY-01",))
    signed = msgspec.structs.replace(RETRY, promises=("uc-delta-api",))
    promise, contract = (verdict_of("PROFILE-RETRY-01", failed, who=who) for who in (RETRY, signed))
    assert promise.verdict is contract.verdict is RequirementVerdict.VIOLATED
    assert (promise.level, promise.source, promise.links) == (Level.PROMISE, "PROFILES.md", ())
    assert (contract.level, contract.source) == (Level.MUST, "unity-catalog-delta-api")
    assert contract.links[0].url.endswith("/api/delta.yaml")
    assert verdicts.failing([failed]) == [failed]


def test_one_passed_case_is_enough_to_hold() -> None:
    found = verdict_of(MUST, case("limits/a[x/y]"), case("limits/b[x/y]", Verdict.INCONCLUSIVE, reason="refused"))
    assert (found.verdict, found.cases) == (RequirementVerdict.HELD, ("limits/a[x/y]", "limits/b[x/y]"))


def test_one_violation_outweighs_every_passed_case_and_stands_first() -> None:
    found = verdict_of(MUST, case("limits/a[x/y]"), case("limits/b[x/y]", Verdict.FAILED, (MUST,)))
    assert (found.verdict, found.cases) == (RequirementVerdict.VIOLATED, ("limits/b[x/y]", "limits/a[x/y]"))


def test_a_violation_counts_for_unnamed_requirements() -> None:
    """A checker of histories finds what no check had in mind."""
    found = verdict_of(OTHER_MUST, case("limits/a[x/y]", Verdict.FAILED, (MUST, OTHER_MUST), requirements=(MUST,)))
    assert found.verdict is RequirementVerdict.VIOLATED


def test_files_in_other_folders_leave_the_verdict_on_all_else() -> None:
    """They are found after the last step; a scenario that did not get to its end is no evidence all the same."""
    strayed = case("limits/a[x/y]", Verdict.FAILED, ("PROFILE-CLIENT-03",))
    broken = case("limits/b[x/y]", Verdict.FAILED, ("PROFILE-CLIENT-03",), (OTHER_MUST,))
    stopped = case("limits/c[x/y]", Verdict.FAILED, ("PROFILE-CLIENT-03",), reason="refused")
    assert (strayed.held, broken.held, stopped.held) == (True, False, False)
    assert verdict_of(MUST, strayed).verdict is RequirementVerdict.HELD
    assert verdict_of(MUST, broken).verdict is RequirementVerdict.INCONCLUSIVE
    assert verdict_of(MUST, stopped).verdict is RequirementVerdict.INCONCLUSIVE
    assert verdict_of("PROFILE-CLIENT-03", strayed).verdict is RequirementVerdict.WARNED


def test_a_case_that_failed_for_another_reason_is_no_evidence() -> None:
    failed = case("limits/a[x/y]", Verdict.FAILED, (MUST,), requirements=(MUST, OTHER_MUST))
    assert verdict_of(OTHER_MUST, failed).verdict is RequirementVerdict.INCONCLUSIVE


def test_a_failed_example_leaves_its_requirement_open() -> None:
    failed = case("limits/a[x/y]", Verdict.FAILED, (MUST,), requirements=(MUST, OTHER_MUST))
    passed = case("limits/b[x/y]", requirements=(OTHER_MUST,))
    found = verdict_of(OTHER_MUST, failed, passed)
    assert (found.verdict, found.note) == (RequirementVerdict.INCONCLUSIVE, verdicts.FAILED_OTHERWISE)
    assert verdict_of(OTHER_MUST, passed).verdict is RequirementVerdict.HELD


@pytest.mark.parametrize("layer", [Layer.MODEL, Layer.PROCESSES, Layer.SIMULATION])
def test_a_failed_generated_case_leaves_other_verdicts(layer: Layer) -> None:
    failed = case("limits/a[x/y]", Verdict.FAILED, (MUST,), requirements=(MUST, OTHER_MUST))
    failed = msgspec.structs.replace(failed, layer=layer)
    assert verdict_of(OTHER_MUST, failed, case(requirements=(OTHER_MUST,))).verdict is RequirementVerdict.HELD


def test_ignored_advice_is_a_warning() -> None:
    broken = case("limits/a[x/y]", Verdict.FAILED, (SHOULD, MAY), requirements=(SHOULD, MAY))
    assert verdict_of(SHOULD, broken).verdict is RequirementVerdict.WARNED
    assert verdict_of(MAY, broken).verdict is RequirementVerdict.INCONCLUSIVE
    elsewhere = case(requirements=(MAY,))
    assert verdict_of(MAY, broken, elsewhere).verdict is RequirementVerdict.INCONCLUSIVE
    assert verdict_of(MAY, elsewhere).verdict is RequirementVerdict.HELD


@pytest.mark.parametrize("verdict", [Verdict.SKIPPED, Verdict.NOT_RUN])
def test_a_skipped_case_is_no_evidence(verdict: Verdict) -> None:
    found = verdict_of(MUST, case("limits/a[x/y]", verdict))
    assert (found.verdict, found.cases) == (RequirementVerdict.NOT_CHECKED, ())


def test_a_requirement_without_judged_cases_is_inconclusive() -> None:
    found = verdict_of(MUST, case("limits/a[x/y]", Verdict.INCONCLUSIVE, reason="it refused"))
    assert (found.verdict, found.note) == (RequirementVerdict.INCONCLUSIVE, "it refused")


@pytest.mark.parametrize(
    ("requirement", "who", "verdict", "words"),
    [
        (MUST, identity(), RequirementVerdict.NOT_APPLICABLE, "idempotent-retry, which the subject does not declare"),
        (MUST, RETRY, RequirementVerdict.NOT_CHECKED, "no case of this run"),
        (UNTESTABLE, RETRY, RequirementVerdict.NOT_CHECKED, "nothing that can be observed"),
        ("MC-COMMIT-02", identity(side="client"), RequirementVerdict.NOT_APPLICABLE, "binds a owner"),
        (
            "MC-COMMIT-02",
            identity(commit_modes={"catalogManaged": ("inline",)}),
            RequirementVerdict.NOT_APPLICABLE,
            "offers catalogManaged only",
        ),
        ("MC-COMMIT-02", RETRY, RequirementVerdict.NOT_CHECKED, "no case of this run"),
    ],
)
def test_a_verdict_without_cases_gives_the_reason(
    requirement: str, who: Identity, verdict: RequirementVerdict, words: str
) -> None:
    found = verdict_of(requirement, who=who)
    assert found.verdict is verdict
    assert words in found.note


@pytest.mark.parametrize(
    ("requirements", "plain", "strict"),
    [((MUST,), True, True), ((SHOULD,), False, True), ((SHOULD, MUST), True, True), ((MAY,), False, False)],
)
def test_a_must_fails_a_run_and_a_should_only_a_strict_one(
    requirements: tuple[str, ...], plain: bool, strict: bool
) -> None:
    violation = Violation(requirements=requirements, message="it was so")
    assert verdicts.fails(violation) is plain
    assert verdicts.fails(violation, strict=True) is strict


def test_a_declared_profile_without_any_verdict_is_named() -> None:
    who = identity("idempotent-retry", "attempt-outcome")
    open_ = case("limits/a[x/y]", Verdict.INCONCLUSIVE, requirements=(MUST,))
    core = case("limits/b[x/y]", requirements=(OTHER_MUST,))
    assert verdicts.profiles_without_verdict([open_, core], who) == ("idempotent-retry",)
    assert "idempotent-retry" in verdicts.without_verdict_in_words(("idempotent-retry",))


@pytest.mark.parametrize("other", [case(), case("limits/c[x/y]", Verdict.FAILED, (MUST,))])
def test_one_case_with_a_verdict_is_enough_for_a_profile(other: CaseResult) -> None:
    open_ = case("limits/a[x/y]", Verdict.INCONCLUSIVE)
    assert verdicts.profiles_without_verdict([open_, other], RETRY) == ()


def test_a_profile_that_no_case_was_about_is_not_missed() -> None:
    """A selection leaves most of them out."""
    skipped = case("limits/a[x/y]", Verdict.SKIPPED, requirements=(MUST,))
    assert verdicts.profiles_without_verdict([skipped, case(requirements=(OTHER_MUST,))], RETRY) == ()


def opened(reason: str = "it refused", name: str = "limits/a[x/y]") -> CaseResult:
    return case(name, Verdict.INCONCLUSIVE, reason=reason)


def test_a_run_of_which_most_came_to_no_verdict_is_too_little() -> None:
    assert verdicts.too_little([case(), opened(), opened()]) == (
        "only 1 of 3 cases came to a verdict, fewer than half",
    )
    assert verdicts.too_little([case(), opened()]) == ()
    assert verdicts.too_little([case(), case("limits/b[x/y]", Verdict.FAILED, (MUST,)), opened(), opened()]) == ()


def test_a_client_need_not_do_everything() -> None:
    """Of one that only reads most cases are about what it does not do."""
    others = [opened(f"{NO_SUCH_JOB}: it is a reader")] * 3
    assert verdicts.too_little([case(), *others]) == ()
    assert verdicts.too_little([case(), *others, opened(), opened()]) == (
        "only 1 of 3 cases came to a verdict, fewer than half",
    )


@pytest.mark.parametrize(
    "reason",
    [
        "operation 3: the outcome stayed unknown: gone: it ended with exit code 7",
        "operation 3: the outcome stayed unknown: no answer within 5 s",
        "operation 3: the outcome stayed unknown: HTTP status 503: b''",
    ],
)
def test_a_case_to_which_no_answer_came_is_not_passed_over(reason: str) -> None:
    (problem,) = verdicts.too_little([case(), case("limits/b[x/y]"), opened(reason)])
    assert reason in problem
    assert "1 case ended because no answer came" in problem


def test_unknown_answers_are_left_out_of_the_verdict() -> None:
    reason = "operation 3: the outcome stayed unknown: my database was slow"
    assert verdicts.too_little([case(), case("limits/b[x/y]"), opened(reason)]) == ()
