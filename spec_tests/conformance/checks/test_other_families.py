"""Replays, ownership, limits, life cycles, restarts, policies, times: each check of them finds something, and accuses
nobody."""

from __future__ import annotations

import pytest

from conformance.checks.registry import Check
from conformance.models.owner import ModelOwner
from conformance.mutants.registry import Mutant
from conformance.requirements.catalogue import Level, load
from conformance.results import Verdict
from spec_tests.conformance.checks.families import checks_of, found, mutants_of, results

CHECKS = checks_of(
    (
        "replays", "replays_outcomes", "ownership", "ownership_back", "ownership_crashes", "lifecycle", "limits",
        "restarts", "restarts_crashes", "policy", "timestamps_owner", "long_tables",
    )
)  # fmt: skip
MUTANTS = [
    each
    for each in mutants_of(
        ("replays", "ownership", "ownership_back", "lifecycle", "limits", "restarts", "policy", "timestamps_owner")
    )
    if each.violates
]
OWN = (
    "MC-CONVERT", "MC-RELEASE", "CM-DROP", "CM-DISCOVER", "CM-CATALOG-05", "CM-GET-05", "PROFILE-RETRY",
    "PROFILE-OUTCOME", "PROFILE-DURABLE", "PROFILE-BACKLOG", "PROFILE-DISCOVERY", "PROFILE-TRANSFER", "PROFILE-POLICY",
    "PROFILE-HARNESS",
)  # fmt: skip
"""What these families have to cover."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_model_passes_on_every_variant(check: Check) -> None:
    """And the check gets to its point."""
    verdicts = [(each.case, each.verdict, each.reason, each.violations) for each in results([check], ModelOwner)]
    assert verdicts
    assert [each for each in verdicts if each[1] is not Verdict.PASSED] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_bad_owner_is_found_by_what_it_violates(mutant: Mutant) -> None:
    case = found(mutant, CHECKS)
    assert case is not None, f"no check of these families finds {mutant.id}: {mutant.title}"
    named = [violation for violation in case.violations if set(violation.requirements) & set(mutant.violates)]
    assert named[0].message
    assert case.history is not None


def test_every_requirement_of_these_families_has_a_check_and_a_bad_owner() -> None:
    owned = [
        each for each in load().requirements
        if each.id.startswith(OWN) and each.side.value == "owner" and each.level is not Level.MAY
        and each.untestable is None
    ]  # fmt: skip
    checked = {requirement for check in CHECKS for requirement in check.requirements}
    violated = {requirement for mutant in MUTANTS for requirement in mutant.violates}
    assert len(owned) > 25
    assert [each.id for each in owned if each.id not in checked] == []
    assert [each.id for each in owned if each.id not in violated] == []


def test_every_check_finds_something() -> None:
    """A check that no bad owner fails is no check. Which ones fail it is for the mutants' own tests."""
    silent = [
        check.name for check in CHECKS if not any(set(check.requirements) & set(each.violates) for each in MUTANTS)
    ]
    assert silent == []
