"""Concurrent writers, race on version 0, backfill ordering, stale reads, and what a commit is: each check finds
something, each bad owner is found by every requirement that it violates, and nobody who is right is accused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import Check, all_checks, applies
from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.mutants.registry import Mutant
from conformance.requirements.catalogue import Level, load
from conformance.results import Layer, Verdict
from conformance.scenario.running import run_case
from conformance.scenario.scenario import Scenario
from spec_tests.conformance.checks.families import checks_of, mutants_of, results

MODULES = (
    "concurrent_writers", "concurrent_writers_order", "concurrent_writers_direct", "version_0", "version_0_content",
    "backfill_ordering", "backfill_ordering_storage", "stale_reads", "stale_reads_ranges", "content", "content_staged",
    "interface", "long_tables",
)  # fmt: skip
CHECKS = checks_of(MODULES)
MUTANTS = [
    mutant
    for mutant in mutants_of(("committing", "creating", "publishing", "listing", "content", "interface"))
    if mutant.violates
]
OTHER_CHECKS = [
    check for check in all_checks()
    if check.side == "owner" and check.layer is Layer.EXAMPLE and check not in CHECKS
]  # fmt: skip
"""Of families that these bad owners may be found by as well."""
OWN = (
    "MC-LOG", "MC-FEATURE", "MC-FILES", "MC-API", "MC-COMMIT", "MC-GET", "MC-BACKFILL", "MC-CREATE", "MC-READ-06",
    "MC-ENABLE", "CM-LOG", "CM-FEATURE", "CM-STORE", "CM-COMMIT", "CM-FILES", "CM-INLINE", "CM-GET-03", "CM-GET-04",
    "CM-CATALOG-03", "CM-CATALOG-04", "CM-PUBLISH", "LOG-", "PROFILE-CORE", "PROFILE-STAGED", "PROFILE-INLINE",
    "PROFILE-DIRECT", "PROFILE-VERSION0", "PROFILE-STORAGE",
)  # fmt: skip
"""What these families have to cover."""
BUGS = ("FB11", "FB13", "FB14", "FB23", "FB26", "FB28", "FB41", "FB42", "FB43", "FB44", "FB45", "FB47")


class Modest(ModelOwner):
    """The model, promising as little as it can."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        commit_modes = ("core", "staged", "inline", "direct-publish")
        return msgspec.structs.replace(
            super().hello(client, request), profiles=commit_modes, promises=(), crash_points=()
        )


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Demands that stand for no requirement which the subject is held to: a violation could not be named."""
    found: list[str] = []
    require, expect = Scenario.require, Scenario.expect

    def note(s: Scenario, requirements: tuple[str, ...]) -> None:
        if not any(applies(each, s.identity, s.variant) for each in requirements):
            found.append(f"{s.name}: {requirements}")

    def required(s: Scenario, condition: bool, *requirements: str, **options: Any) -> None:
        note(s, requirements)
        require(s, condition, *requirements, **options)

    def expected(s: Scenario, told: Any, kinds: Any, *requirements: str, **options: Any) -> Any:
        note(s, requirements)
        return expect(s, told, kinds, *requirements, **options)

    monkeypatch.setattr(Scenario, "require", required)
    monkeypatch.setattr(Scenario, "expect", expected)
    return found


@pytest.mark.parametrize("make", [ModelOwner, Modest], ids=lambda make: make.__name__)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_model_passes_on_every_variant(check: Check, make: type, unnamed: list[str]) -> None:
    """The check gets to its point, whatever is promised, and every demand on the way has a name."""
    verdicts = [(each.case, each.verdict, each.reason, each.violations) for each in results([check], make)]
    assert verdicts or make is Modest
    assert [each for each in verdicts if each[1] is not Verdict.PASSED] == []
    assert unnamed == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_bad_owner_is_found_by_every_requirement_that_it_violates(mutant: Mutant) -> None:
    """And somewhere one of them is what the verdict names first, in words, with the history."""
    wanted, named = set(mutant.violates), False
    for check in sorted(CHECKS, key=lambda each: -len(wanted & set(each.requirements))) + OTHER_CHECKS:
        for result in results([check], mutant.make):
            for violation in result.violations:
                wanted -= set(violation.requirements)
            if result.violations and result.violations[0].requirements[0] in mutant.violates:
                assert result.verdict is Verdict.FAILED
                assert result.violations[0].message
                assert result.violations[0].expected
                assert result.history
                named = True
        if named and not wanted:
            return
    assert not wanted, f"{mutant.id} ({mutant.title}) is not found by {sorted(wanted)}"
    assert named, f"no check names a requirement of {mutant.id} first: {mutant.violates}"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_fails_on_some_bad_owner(check: Check) -> None:
    """By a requirement that it says it is evidence for."""
    evidence = set(check.requirements)
    for mutant in sorted(MUTANTS, key=lambda each: -len(set(each.violates) & evidence)):
        for result in results([check], mutant.make):
            if any(evidence & set(violation.requirements) for violation in result.violations):
                return
    pytest.fail("it cannot fail")


def test_every_requirement_of_these_families_has_a_check_and_a_bad_owner() -> None:
    owned = [
        each for each in load().requirements
        if each.id.startswith(OWN) and each.side.value == "owner" and each.level is not Level.MAY
        and each.untestable is None
    ]  # fmt: skip
    checked = {requirement for check in CHECKS for requirement in check.requirements}
    violated = {requirement for mutant in MUTANTS for requirement in mutant.violates}
    assert len(owned) > 65
    assert [each.id for each in owned if each.id not in checked] == []
    assert [each.id for each in owned if each.id not in violated] == []


def test_every_field_bug_of_these_families_has_a_bad_owner() -> None:
    assert sorted(set(BUGS) - {bug for mutant in MUTANTS for bug in mutant.bugs}) == []


def test_the_four_core_families_are_pages_of_variations() -> None:
    families = [check.family.value for check in CHECKS]
    for family in ("concurrent-writers", "version-0", "backfill-ordering", "stale-reads"):
        assert families.count(family) >= 12, family


def test_a_case_is_the_same_twice() -> None:
    """The same seed and the same subject give the same history, byte for byte."""
    check = CHECKS[0]
    variant = check.variants(InProcess(ModelOwner()).identity)[0]
    mutant = next(each for each in MUTANTS if each.id == "last-writer-wins")
    first, second = (run_case(check, variant, InProcess(mutant.make()), seed=7) for _ in range(2))
    assert first.history is not None
    assert first == second
