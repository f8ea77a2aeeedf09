"""Lists of known failures: what they accept, when they are no longer true, and how they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.results import CaseResult, KnownFailure, UnusableError, Verdict
from conformance.running import known_failures
from spec_tests.conformance.running.cases import MUST, OTHER_MUST, SHOULD, case

FAILED = case("limits/a-check[managedCommit/staged]", Verdict.FAILED, (MUST,))
PASSED = case("limits/a-check[managedCommit/staged]")


def entry(pattern: str = FAILED.case, requirement: str | None = MUST) -> KnownFailure:
    return KnownFailure(case=pattern, reason="ticket 17", requirement=requirement)


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
    assert known_failures.is_known(FAILED, [known]) is covered


def test_everything_that_fails_a_case_has_to_be_known() -> None:
    twice = case(FAILED.case, Verdict.FAILED, (MUST,), (OTHER_MUST,))
    assert not known_failures.is_known(twice, [entry()])
    assert known_failures.is_known(twice, [entry(), entry(requirement=OTHER_MUST)])


def test_advice_has_to_be_known_only_where_it_fails_the_run() -> None:
    also_advice = case(FAILED.case, Verdict.FAILED, (MUST,), (SHOULD,))
    assert known_failures.is_known(also_advice, [entry()])
    assert not known_failures.is_known(also_advice, [entry()], strict=True)


def test_a_case_that_passed_is_no_known_failure() -> None:
    assert not known_failures.is_known(PASSED, [entry()])


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
    ],
)
def test_an_entry_is_stale_once_its_cases_say_something_else(
    known: KnownFailure, cases: list[CaseResult], stale: bool
) -> None:
    assert known_failures.stale([known], cases, ALL) == ((known,) if stale else ())


def test_a_generated_list_needs_reasons(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text(known_failures.generate("my owner", [FAILED], []), "utf-8")
    with pytest.raises(UnusableError) as refused:
        known_failures.read(file)
    assert "reason is empty" in refused.value.problem
    file.write_text(file.read_text("utf-8").replace('reason = ""', 'reason = "ticket 17"'), "utf-8")
    known = known_failures.read(file)
    assert known_failures.is_known(FAILED, known)
    assert known_failures.stale(known, [FAILED], []) == ()


def test_a_generated_list_keeps_the_reasons_that_are_known(tmp_path: Path) -> None:
    other = case("limits/b[x/y]", Verdict.FAILED, (OTHER_MUST,))
    text = known_failures.generate("my owner", [FAILED, other, PASSED], [entry()])
    assert text.count("[[known-failure]]") == 2
    assert text.count('reason = "ticket 17"') == 1
    assert text.count('reason = ""') == 1


def test_variants_that_fail_alike_are_one_entry(tmp_path: Path) -> None:
    alike = [
        case(f"limits/a-check[managedCommit/{commit_mode}]", Verdict.FAILED, (MUST,))
        for commit_mode in ("staged", "direct")
    ]
    assert 'case = "limits/a-check[*]"' in known_failures.generate("my owner", alike, [])
    one = known_failures.generate("my owner", [alike[0], case("limits/a-check[managedCommit/direct]")], [])
    assert 'case = "limits/a-check[managedCommit/staged]"' in one
    assert "[*]" not in one


def test_a_hostile_name_and_message_stay_in_their_places(tmp_path: Path) -> None:
    hostile = 'x"\n[[known-failure]]\ncase = "*"\nreason = "mine"\n#'
    failed = case(f"limits/a{hostile}[x/y]", Verdict.FAILED, (MUST,))
    file = tmp_path / "known.toml"
    text = known_failures.generate(hostile, [failed], [KnownFailure(case="*", reason=hostile)])
    file.write_text(text, "utf-8")
    (read,) = known_failures.read(file)
    assert (read.case, read.reason) == (failed.case, hostile)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[[known-failure]]\ncase = 'a'\nreason = ' '\n", "reason is empty"),
        ("[[known-failure]]\ncase = ''\nreason = 'x'\n", "names no case"),
        ("[[known-failure]]\ncase = 'a'\nreason = 'x'\nrequirement = 'MC-NO-01'\n", "no requirement 'MC-NO-01'"),
        ("[[known-failure]]\ncase = 'a'\n", "reason"),
        ("[[known-failures]]\ncase = 'a'\nreason = 'x'\n", "known-failures"),
        ("[[known-failure]]\ncase = 'a'\nreason = 'x'\nreasons = 'x'\n", "reasons"),
        ("[[known-failure]\n", "not valid TOML"),
        ("\xff", "not valid TOML"),
        (None, "cannot read"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused_with_the_entry(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "known.toml"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    with pytest.raises(UnusableError) as refused:
        known_failures.read(file)
    assert words in refused.value.problem
    assert str(file) in refused.value.problem


def test_a_list_may_be_empty(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text(known_failures.generate("my owner", [PASSED], []), "utf-8")
    assert known_failures.read(file) == ()
