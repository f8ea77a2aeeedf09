"""Owners that use a freedom: each is another owner than the model, no check accuses it, and no freedom is left out.

That nobody accuses them on any variant, of any family, in thousands of generated scenarios, is held to by
`test_teeth.py`; here every owner meets a third of the checks, each on one variant.
"""

from __future__ import annotations

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import Variant, all_checks
from conformance.interface import messages as m
from conformance.models.owner import ModelOwner
from conformance.mutants.good_owners import PlainModel
from conformance.mutants.good_owners_tables import NoServer, StateInFiles
from conformance.mutants.registry import Mutant
from conformance.requirements.catalogue import Level, load
from conformance.results import Layer, Verdict
from conformance.scenario import ownership, proposals
from conformance.scenario.scenario import Scenario, Stopped
from spec_tests.conformance.checks.families import mutants_of, results

GOOD = [each for each in mutants_of(("good_owners", "good_owners_tables")) if each.freedoms]
CHECKS = [each for each in all_checks() if each.side == "owner" and each.layer is Layer.EXAMPLE]
INSIDE = {PlainModel, StateInFiles, NoServer}
"""Those whose freedom is how they are made: asked, they answer as the model does."""


@pytest.mark.parametrize("owner", GOOD, ids=lambda owner: owner.id)
def test_no_check_accuses_it(owner: Mutant) -> None:
    outcomes = list(results(CHECKS[GOOD.index(owner) % 3 :: 3], owner.make, all_variants=False))
    accused = [(each.case, each.violations) for each in outcomes if each.verdict is Verdict.FAILED]
    assert accused == []
    judged = sum(each.verdict is Verdict.PASSED for each in outcomes)
    assert judged > 0.8 * len(outcomes), f"only {judged} of {len(outcomes)} cases come to a verdict"


def told(make: type[ModelOwner], variant: Variant) -> str:
    """What such an owner answers in a scenario with a little of everything, and the files that are there then."""
    subject = InProcess(make())
    s = Scenario(subject, variant, name="a little of everything")
    answers = [str(subject.identity)]
    try:
        table = s.create(backfill="subject")
        for request in (*(s.proposal(table, version) for version in (1, 2, 1, 5, 3, 4, 5, 6, 7)), s.proposal(table, 1)):
            answers.append(str(s.ask("writer", request).answer))
            answers.append(str(s.ask("writer", request).answer))
            answers.append(str(s.ask("reader", m.GetCommits(table=table.reference)).answer))
            answers.append(str(s.observe(table)))
        answers.append(str(s.ask("reader", m.LoadTable(name=s.physical("orders"))).answer))
        for version in (6, 70):
            answers.append(str(s.ask("anybody", m.BackfillToVersion(table=table.reference, version=version)).answer))
            answers.append(str(s.observe(table)))
        table.versions = 8
        imported = ownership.filesystem_table(s, versions=2)
        answers.append(str(s.ask("migrator", ownership.taking_over(s, imported), imported).answer))
        answers.append(str(s.ask("migrator", ownership.giving_back(s, table)).answer))
        answers.append(str(s.observe(table)))
        answers.append(str(s.ask("operator", m.DropTable(table=s.create("items").reference)).answer))
        answers.append(str(s.observe(s.tables[-1])))
        late = s.create("late")
        wrong = proposals.append(attempt := s.attempt(), 0)
        answers.append(str(s.commit(late, attempt=attempt, actions=wrong).answer))
    except Stopped as stopped:
        answers.append(str(stopped))
    return "\n".join(answers)


@pytest.mark.parametrize("owner", [each for each in GOOD if each.make not in INSIDE], ids=lambda owner: owner.id)
def test_it_is_another_owner_than_the_model(owner: Mutant) -> None:
    """Otherwise nothing is said by nobody accusing it."""
    variants = [
        Variant(feature=feature, commit_mode=commit_mode)
        for feature, commit_mode in (
            ("managedCommit", "staged"), ("managedCommit", "direct"), ("catalogManaged", "staged"),
            ("catalogManaged", "inline"),
        )
    ]  # fmt: skip
    assert any(told(owner.make, variant) != told(ModelOwner, variant) for variant in variants)


def test_what_two_of_them_know_is_in_files_or_with_nobody() -> None:
    """They answer as the model does, and forget everything in between."""
    variant = Variant(feature="managedCommit", commit_mode="staged")
    assert told(StateInFiles, variant) == told(NoServer, variant) == told(ModelOwner, variant)
    kept = StateInFiles()
    s = Scenario(InProcess(kept), variant, name="kept")
    table = s.create()
    s.land(table)
    assert len(kept.saved) == 1
    assert kept.storage.list(f"{kept.storage.root}/.owner")
    nobody = NoServer()
    first = Scenario(InProcess(nobody), variant, name="nobody").create()
    assert nobody.tables[first.reference] is not nobody.tables[first.reference]


def test_every_freedom_of_an_owner_is_used() -> None:
    """The documents' list of what is never flagged, and everything that an owner may do."""
    used = {freedom for owner in GOOD for freedom in owner.freedoms}
    free = [each.id for each in load().freedoms if each.side.value == "owner"]
    may = [each.id for each in load().requirements if each.side.value == "owner" and each.level is Level.MAY]
    assert len(free) > 20
    assert len(may) > 20
    assert sorted({*free, *may} - used) == []
