"""Every requirement has a check and a bad subject that violates it, every check a requirement and a bad subject that
it finds, every field bug a bad subject, every freedom a good one.

There is no list of exceptions: what nothing can show says so in the catalogue, where reports show it."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from conformance.checks.registry import all_checks
from conformance.requirements.catalogue import Level, Requirement, load
from conformance.results import Layer
from conformance.scenario.check import Check
from spec_tests.conformance import kills

pytestmark = pytest.mark.xdist_group("kills")
"""They ask for many of the same runs."""

FIELD_BUGS_PAGE = Path(str(resources.files("conformance.requirements") / "FIELD_BUGS.md")).read_text("utf-8")
FIELD_BUGS = tuple(sorted(anchor.upper() for anchor in re.findall(r'<a id="(fb\d\d)"></a>', FIELD_BUGS_PAGE)))

BINDING = [each for each in load().requirements if each.level is not Level.MAY and not each.untestable]
MUSTS = [each for each in BINDING if each.level is Level.MUST]
FREEDOMS = load().freedoms
PERMISSIONS = [each for each in load().requirements if each.level is Level.MAY and not each.untestable]
FOUND_BY_MUTANTS = [each for each in all_checks() if each.layer in kills.DETERMINISTIC]


def by_id(value: object) -> str:
    return str(getattr(value, "id", None) or getattr(value, "name", value))


def test_a_check_is_evidence_for_each_requirement() -> None:
    evidence = {requirement for check in all_checks() for requirement in check.requirements}
    assert [each.id for each in BINDING if each.id not in evidence] == []


@pytest.mark.parametrize("requirement", MUSTS, ids=by_id)
def test_a_mutant_violates_it_and_a_check_says_so(requirement: Requirement) -> None:
    guilty = [each for each in kills.bad() if requirement.id in each.violates]
    assert guilty, f"no mutant violates {requirement.id}: {requirement.paraphrase}"
    assert kills.shown_by(requirement.id, guilty), (
        f"no check names {requirement.id} for {', '.join(each.id for each in guilty)}"
    )


@pytest.mark.parametrize("check", FOUND_BY_MUTANTS, ids=by_id)
def test_a_check_finds_a_bad_subject(check: Check) -> None:
    """One that it is meant to find."""
    assert check.requirements
    guilty = kills.meant_for(check)
    assert kills.found_by(check, guilty), f"not one of {', '.join(each.id for each in guilty)}"


def test_a_good_subject_uses_each_freedom() -> None:
    used = {freedom for each in kills.good() for freedom in each.freedoms}
    assert {each.id: each.paraphrase for each in [*FREEDOMS, *PERMISSIONS] if each.id not in used} == {}


@pytest.mark.parametrize("bug", FIELD_BUGS)
def test_the_page_names_the_mutants_of_the_field_bug(bug: str) -> None:
    """There is at least one. If this fails after a change of the mutants, correct the two lines of the page."""
    mutants = sorted((each for each in kills.bad() if bug in each.bugs), key=by_id)
    assert mutants
    part = FIELD_BUGS_PAGE.partition(f'<a id="{bug.lower()}"></a>')[2].partition("\n\n<a id")[0].partition("\n## ")[0]
    requirements, _, names = part.partition("- Requirements: ")[2].partition("- Mutants: ")
    assert set(requirements.replace(",", "").split()) == {each for mutant in mutants for each in mutant.violates}
    assert re.findall(r"`(.+?)`", names) == [mutant.id for mutant in mutants]


def test_every_cited_field_bug_exists() -> None:
    assert {bug for each in kills.bad() for bug in each.bugs} <= set(FIELD_BUGS)


def test_permissions_are_never_required() -> None:
    """A MAY cannot be violated: it is for good subjects to use."""
    permissions = {each.id for each in load().requirements if each.level is Level.MAY}
    assert {each.id: sorted(set(each.violates) & permissions) for each in kills.bad()
            if set(each.violates) & permissions} == {}  # fmt: skip


def test_the_kit_has_mutants_and_generated_checks() -> None:
    assert len(kills.bad()) >= 60
    assert len([check for check in all_checks() if check.layer is Layer.MODEL]) >= 1
