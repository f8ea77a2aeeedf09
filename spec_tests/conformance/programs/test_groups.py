"""Programs with groups of several tables. Each bad owner is found by the shortest program that shows its bug."""

from typing import Final

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface import messages as m
from conformance.interface.results import CaseResult, Verdict
from conformance.models.groups import GroupOwner
from conformance.models.owner import ModelOwner
from conformance.mutants import all_mutants
from conformance.programs import program
from conformance.programs.cases import run_case
from conformance.programs.owner_words import GROUPED, WEIGHTS, OwnerFamily
from conformance.programs.steps import (
    Again,
    Backfill,
    Commit,
    Crash,
    Create,
    Deliver,
    Drop,
    Fate,
    Group,
    Land,
    LoadAll,
    Look,
    OwnerProgram,
    Regroup,
    Resend,
    Resolve,
    Restart,
    Step,
    Together,
)  # fmt: skip
from conformance.scenario.check import Variant

CHECK = next(check for check in all_checks() if check.name == "any-sequence-of-groups")
STAGED = Variant(feature="managedCommit", commit_mode="staged")
TABLES: Final = (Create(), Create(table=1))
BACK: Final = Group(members=(1, 0), client=1)
RACE: Final = Together(lanes=((Group(),), (BACK,)))


def run(owner: ModelOwner, *program_steps: Step) -> CaseResult:
    text = program.encode(OwnerProgram(format=2, side="owner", family="x", seed=1, steps=(*TABLES, *program_steps)))
    return run_case(CHECK, STAGED, InProcess(owner), reproduction=text)


FOUND: Final[dict[str, tuple[Step, ...]]] = {
    "answers-a-group-before-all-is-durable": (Group(), Restart(), LoadAll()),
    "deadlocks-in-opposite-order": (RACE, Land(), Land(table=1)),
    "forgets-members-that-are-published": (Group(), Backfill(), Resolve()),
    "knows-groups-by-the-order-of-their-members": (Group(), Regroup(again=Again.TURNED)),
    "leaves-resolved-members-out": (Group(fate=Fate.DELAYED), Resolve(table=1), Deliver()),
    "leaves-tables-that-are-gone-out": (Group(fate=Fate.DELAYED), Drop(table=1), Deliver()),
    "names-a-member-that-did-not-lose": (Group(which=1, ahead=-1),),
    "names-one-of-several-that-lost": (Group(which=-1, ahead=-1),),
    "ratifies-a-group-one-by-one": (Group(which=1, ahead=-1), LoadAll()),
    "ratifies-no-group": (Group(surely=True),),
    "rejects-a-group-later-than-it-ratifies": (Group(fate=Fate.DELAYED), Resolve(table=1), Deliver(), LoadAll()),
    "replay-of-a-group-is-a-conflict": (Group(), Regroup()),
    "replays-of-members-land-the-rest": (Group(), Regroup(again=Again.MORE)),
    "saves-the-tables-of-a-group-one-by-one": (Crash(point=3), Group(), LoadAll()),
    "shows-groups-one-table-late": (LoadAll(), Group(), LoadAll()),
    "shows-half-of-a-group": (Together(lanes=((LoadAll(),), (Group(),)), gap_ms=5),),
}


MIXED: Final = "leaves-tables-of-other-kinds-out"
"""A program has tables of one kind, so an example finds this one."""


def subjects(*, bad: bool) -> list[str]:
    module = "conformance.mutants.groups"
    every = [one for one in all_mutants().values() if one.make.__module__ == module and one.id != MIXED]
    return [one.id for one in every if bool(one.violates) is bad]


def test_each_bad_owner_has_its_program() -> None:
    assert sorted(FOUND) == subjects(bad=True)


@pytest.mark.parametrize("name", FOUND)
def test_a_bad_owner_is_found_by_its_shortest_program(name: str) -> None:
    mutant = all_mutants()[name]
    result = run(mutant.make(), *FOUND[name])
    assert result.verdict is Verdict.FAILED
    assert set(result.violations[0].requirements) & set(mutant.violates)
    assert run(GroupOwner(), *FOUND[name]).violations == ()


@pytest.mark.parametrize("name", subjects(bad=False))
def test_a_good_owner_is_accused_by_none_of_them(name: str) -> None:
    alone = (Group(fate=Fate.LOST), Resend(unsettled=True), Regroup(), Regroup(again=Again.PART), Look(), LoadAll())
    for steps in (*FOUND.values(), alone, (RACE, Commit(), BACK, LoadAll())):
        result = run(all_mutants()[name].make(), *steps, Look(table=1), Land(), Land(table=1))
        assert (result.verdict, result.violations) == (Verdict.PASSED, ()), steps


def test_other_families_draw_no_groups() -> None:
    """So the programs of a seed are the same for owners with and without the profile."""
    plain, grouped = ModelOwner().hello("", m.Hello()), GroupOwner().hello("", m.Hello())
    family, groups = OwnerFamily(name="x"), OwnerFamily(name="x", groups=True)
    assert all(family.draw(3, number, plain, STAGED) == family.draw(3, number, grouped, STAGED) for number in range(60))
    words = {word for number in range(60) for word in groups.draw(3, number, grouped, STAGED).words}
    assert set(GROUPED) < words < {*GROUPED, *WEIGHTS}


def test_an_owner_without_the_profile_gets_no_group() -> None:
    assert CHECK.variants(ModelOwner().hello("", m.Hello())) == []
    assert run(ModelOwner(), Group(), LoadAll(), Regroup(), Land()).violations == ()
