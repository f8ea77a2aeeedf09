"""The verdicts on requirements and profiles from the results of cases, and the violations that a list of known failures
accepts.
"""

from pathlib import Path

import msgspec
import pytest

from conformance.interface.messages import Identity
from conformance.interface.results import (
    CaseResult,
    KnownFailure,
    Layer,
    RequirementResult,
    RequirementVerdict,
    UnusableError,
    Verdict,
    Violation,
)
from conformance.requirements.catalogue import Level, load
from conformance.running import verdicts
from conformance.scenario.formatting import NO_SUCH_JOB
from spec_tests.conformance.running.cases import MAY, MUST, OTHER_MUST, SHOULD, UNTESTABLE, case, identity

RETRY = identity("idempotent-retry")


def verdict_of(requirement: str, *cases: CaseResult, who: Identity = RETRY) -> RequirementResult:
    (result,) = [entry for entry in verdicts.requirement_results(cases, who) if entry.requirement == requirement]
    return result


def test_every_requirement_has_a_verdict_in_order() -> None:
    results = verdicts.requirement_results([case()], RETRY)
    assert [result.requirement for result in results] == [requirement.id for requirement in load().requirements]
    assert all(result.paraphrase and result.source for result in results)


def test_a_promise_is_cited_from_a_contract_if_there_is_one() -> None:
    """Unity Catalog's API requires what the profile promises. For other subjects it stays a promise. A violation fails
    both.
    """
    failed = case("limits/a[x/y]", Verdict.FAILED, ("PROFILE-RETRY-01",), requirements=("PROFILE-RETRY-01",))
    signed = msgspec.structs.replace(RETRY, promises=("uc-delta-api",))
    promise, contract = (verdict_of("PROFILE-RETRY-01", failed, who=who) for who in (RETRY, signed))
    assert promise.verdict is contract.verdict is RequirementVerdict.VIOLATED
    assert (promise.level, promise.source, promise.links) == (Level.PROMISE, "PROFILES.md", ())
    assert (contract.level, contract.source) == (Level.MUST, "unity-catalog-delta-api")
    assert contract.links[0].url.endswith("/api/delta.yaml")
    assert verdicts.failing([failed]) == [failed]


def test_changed_files_elsewhere_do_not_affect_other_verdicts() -> None:
    """They are found after the last step. But a scenario that did not finish is no evidence."""
    strayed = case("limits/a[x/y]", Verdict.FAILED, ("PROFILE-CLIENT-03",))
    broken = case("limits/b[x/y]", Verdict.FAILED, ("PROFILE-CLIENT-03",), (OTHER_MUST,))
    stopped = case("limits/c[x/y]", Verdict.FAILED, ("PROFILE-CLIENT-03",), reason="refused")
    assert (strayed.held, broken.held, stopped.held) == (True, False, False)
    assert verdict_of(MUST, strayed).verdict is RequirementVerdict.HELD
    assert verdict_of(MUST, broken).verdict is RequirementVerdict.INCONCLUSIVE
    assert verdict_of(MUST, stopped).verdict is RequirementVerdict.INCONCLUSIVE
    assert verdict_of("PROFILE-CLIENT-03", strayed).verdict is RequirementVerdict.WARNED


A, B = "limits/a[x/y]", "limits/b[x/y]"
BOTH = (MUST, OTHER_MUST)
HELD, VIOLATED, OPEN = RequirementVerdict.HELD, RequirementVerdict.VIOLATED, RequirementVerdict.INCONCLUSIVE
WITHOUT = RequirementVerdict.NOT_CHECKED
FAILED_FOR_MUST = case(A, Verdict.FAILED, (MUST,), requirements=BOTH)
ADVISED = case(A, Verdict.FAILED, (SHOULD, MAY), requirements=(SHOULD, MAY))


@pytest.mark.parametrize(
    ("requirement", "cases", "verdict", "shown"),
    [
        (MUST, [case(A), case(B, Verdict.INCONCLUSIVE)], HELD, (A, B)),
        (MUST, [case(A), case(B, Verdict.FAILED, (MUST,))], VIOLATED, (B, A)),
        # A checker of histories finds violations of other requirements than those of the check.
        (OTHER_MUST, [case(A, Verdict.FAILED, BOTH, requirements=(MUST,))], VIOLATED, (A,)),
        (OTHER_MUST, [FAILED_FOR_MUST], OPEN, (A,)),
        (OTHER_MUST, [FAILED_FOR_MUST, case(B, requirements=(OTHER_MUST,))], OPEN, (A, B)),
        *(
            (OTHER_MUST, [msgspec.structs.replace(FAILED_FOR_MUST, layer=layer), case(B, requirements=(OTHER_MUST,))],
             HELD, (A, B))
            for layer in (Layer.MODEL, Layer.PROCESSES)
        ),
        (SHOULD, [ADVISED], RequirementVerdict.WARNED, (A,)),
        (MAY, [ADVISED], OPEN, (A,)),
        (MAY, [ADVISED, case(B, requirements=(MAY,))], OPEN, (A, B)),
        (MAY, [case(B, requirements=(MAY,))], HELD, (B,)),
        (MUST, [case(A, Verdict.SKIPPED)], WITHOUT, ()),
        (MUST, [case(A, Verdict.NOT_RUN)], WITHOUT, ()),
        (MUST, [case(A, Verdict.INCONCLUSIVE)], OPEN, (A,)),
    ],
)  # fmt: skip
def test_the_verdict_on_a_requirement_follows_from_its_cases(
    requirement: str, cases: list[CaseResult], verdict: RequirementVerdict, shown: tuple[str, ...]
) -> None:
    result = verdict_of(requirement, *cases)
    assert (result.verdict, result.cases) == (verdict, shown)


@pytest.mark.parametrize(
    ("requirement", "who", "verdict", "words"),
    [
        (MUST, identity(), RequirementVerdict.NOT_APPLICABLE, "idempotent-retry, which the subject does not declare"),
        (MUST, RETRY, RequirementVerdict.NOT_CHECKED, "no case of this run"),
        (UNTESTABLE, RETRY, RequirementVerdict.NOT_CHECKED, "nothing that can be observed"),
        ("MC-COMMIT-02", identity(side="client"), RequirementVerdict.NOT_APPLICABLE, "binds another side (owner)"),
        (
            "MC-COMMIT-02",
            identity(commit_modes={"catalogManaged": ("inline",)}),
            RequirementVerdict.NOT_APPLICABLE,
            "offers catalogManaged only",
        ),
        ("MC-COMMIT-02", RETRY, RequirementVerdict.NOT_CHECKED, "no case of this run"),
    ],
)
def test_a_requirement_without_cases_has_a_reason(
    requirement: str, who: Identity, verdict: RequirementVerdict, words: str
) -> None:
    result = verdict_of(requirement, who=who)
    assert result.verdict is verdict
    assert words in result.note


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


def opened(reason: str = "it refused", name: str = "limits/a[x/y]") -> CaseResult:
    return case(name, Verdict.INCONCLUSIVE, reason=reason)


def test_a_run_needs_verdicts_in_at_least_half_of_its_cases() -> None:
    assert verdicts.too_little([case(), opened(), opened()]) == (
        "only 1 of 3 cases came to a verdict, fewer than half",
    )
    assert verdicts.too_little([case(), opened()]) == ()
    assert verdicts.too_little([case(), case("limits/b[x/y]", Verdict.FAILED, (MUST,)), opened(), opened()]) == ()


def test_missing_operations_of_a_client_do_not_count() -> None:
    """Most cases are about operations that a reader does not have."""
    others = [opened(f"{NO_SUCH_JOB}: it is a reader")] * 3
    assert verdicts.too_little([case(), *others]) == ()
    assert verdicts.too_little([case(), *others, opened(), opened()]) == (
        "only 1 of 3 cases came to a verdict, fewer than half",
    )


@pytest.mark.parametrize(
    "reason",
    [
        "operation 3: the outcome stayed unknown: not running: it ended with exit code 7",
        "operation 3: the outcome stayed unknown: no answer within 5 s",
        "operation 3: the outcome stayed unknown: HTTP status 503: b''",
    ],
)
def test_a_case_without_an_answer_is_reported(reason: str) -> None:
    (problem,) = verdicts.too_little([case(), case("limits/b[x/y]"), opened(reason)])
    assert reason in problem
    assert "1 case ended because no answer came" in problem


# Lists of known failures: what they accept, when an entry is stale, and how a list is written


FAILED = case("limits/a-check[managedCommit/staged]", Verdict.FAILED, (MUST,))
PASSED = case("limits/a-check[managedCommit/staged]")


def entry(pattern: str = FAILED.case, requirement: str | None = MUST, *, flaky: bool = False) -> KnownFailure:
    return KnownFailure(case=pattern, reason="ticket 17", requirement=requirement, flaky=flaky)


@pytest.mark.parametrize(
    ("known", "covered"),
    [
        (entry(), True),
        (entry(requirement=None), True),
        (entry("limits/*"), True),
        (entry("limits/a-check[*]"), True),
        (entry("limits/a-check[managedCommit/*"), True),
        (entry(requirement=OTHER_MUST), False),
        (entry("limits/another*"), False),
        (entry("limits/a-check"), False),
        (entry("limits/a-check[a-z]"), False),
    ],
)
def test_an_entry_accepts_a_case_by_name_and_requirement(known: KnownFailure, covered: bool) -> None:
    assert verdicts.is_known(FAILED, [known]) is covered


def test_every_violation_of_a_failed_case_must_be_known() -> None:
    twice = case(FAILED.case, Verdict.FAILED, (MUST,), (OTHER_MUST,))
    assert not verdicts.is_known(twice, [entry()])
    assert verdicts.is_known(twice, [entry(), entry(requirement=OTHER_MUST)])


ALL = ("limits/a-check[managedCommit/staged]", "limits/never-selected[managedCommit/staged]")


@pytest.mark.parametrize(
    ("known", "cases", "stale"),
    [
        (entry(), [FAILED], False),
        (entry(), [PASSED], True),
        (entry("limits/*"), [PASSED, case("limits/b[x/y]", Verdict.FAILED, (MUST,))], False),
        (entry("limits/*"), [PASSED], True),
        (entry(requirement=OTHER_MUST), [FAILED], True),
        (entry(), [case(FAILED.case, Verdict.NOT_RUN)], False),
        (entry(), [case(FAILED.case, Verdict.INCONCLUSIVE)], False),
        (entry(), [case(FAILED.case, Verdict.SKIPPED)], True),
        (entry("limits/never-selected[*]"), [FAILED], False),
        (entry("limits/mistyped[*]"), [FAILED], True),
        (entry(flaky=True), [PASSED], False),
        (entry("limits/mistyped[*]", flaky=True), [PASSED], True),
    ],
)
def test_an_entry_is_stale_if_its_cases_give_another_result(
    known: KnownFailure, cases: list[CaseResult], stale: bool
) -> None:
    assert verdicts.stale([known], cases, ALL) == ((known,) if stale else ())


def test_a_regenerated_list_keeps_known_reasons(tmp_path: Path) -> None:
    other = case("limits/b[x/y]", Verdict.FAILED, (OTHER_MUST,))
    text = verdicts.generate("my owner", [FAILED, other, PASSED], [entry()])
    assert text.count("[[known-failure]]") == 2
    assert text.count('reason = "ticket 17"') == 1
    assert text.count('reason = ""') == 1


@pytest.mark.parametrize("now", [FAILED, PASSED])
def test_a_regenerated_list_keeps_flaky_entries(tmp_path: Path, now: CaseResult) -> None:
    file = tmp_path / "known.toml"
    file.write_text(verdicts.generate("my owner", [now], [entry(flaky=True, requirement=MUST)]), "utf-8")
    (kept,) = verdicts.read(file)
    assert (kept.case, kept.reason, kept.requirement, kept.flaky) == (FAILED.case, "ticket 17", MUST, True)


def test_a_hostile_name_or_message_is_escaped(tmp_path: Path) -> None:
    hostile = 'x"\n[[known-failure]]\ncase = "*"\nreason = "mine"\n#'
    failed = case(f"limits/a{hostile}[x/y]", Verdict.FAILED, (MUST,))
    file = tmp_path / "known.toml"
    text = verdicts.generate(hostile, [failed], [KnownFailure(case="*", reason=hostile)])
    file.write_text(text, "utf-8")
    (read,) = verdicts.read(file)
    assert (read.case, read.reason) == (failed.case, hostile)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[[known-failure]]\ncase = 'a'\nreason = ' '\n", "reason is empty"),
        ("[[known-failure]]\ncase = ''\nreason = 'x'\n", "names no case"),
        ("[[known-failure]]\ncase = 'a'\nreason = 'x'\nrequirement = 'MC-NO-01'\n", "unknown requirement 'MC-NO-01'"),
        ("[[known-failure]]\ncase = 'a'\n", "reason"),
        ("[[known-failures]]\ncase = 'a'\nreason = 'x'\n", "known-failures"),
        ("[[known-failure]]\ncase = 'a'\nreason = 'x'\nreasons = 'x'\n", "reasons"),
        ("[[known-failure]\n", "not valid TOML"),
        ("schema = 2\nlist = []\n", "has schema 2; this version of the kit reads 1"),
        ("\xff", "not valid TOML"),
        (None, "cannot read"),
    ],
)
def test_the_error_for_an_invalid_list_names_the_entry(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "known.toml"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    with pytest.raises(UnusableError) as refused:
        verdicts.read(file)
    assert words in refused.value.problem
    assert str(file) in refused.value.problem
