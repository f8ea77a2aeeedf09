"""Programs with transactions of a client over several tables. Each bad client is found by the shortest program that
shows its bug."""

from typing import Final

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface import messages as m
from conformance.interface.results import CaseResult, Verdict
from conformance.models.client import ModelClient
from conformance.models.group_client import GroupClient
from conformance.mutants import all_mutants
from conformance.programs import program
from conformance.programs.cases import run_case
from conformance.programs.client_steps import (
    Again,
    Backfill,
    Change,
    Checkpoint,
    ClientProgram,
    Free,
    Freedom,
    Land,
    Make,
    Read,
    ReadAll,
    Step,
    Transact,
    TransactAll,
    Win,
)
from conformance.programs.client_words import ClientFamily
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Variant
from spec_tests.support.sampling import sampled

CHECK = next(check for check in all_checks() if check.name == "any-client-of-several-tables")
STAGED = Variant(feature="catalogManaged", commit_mode="staged")
EXAMPLE: Final = "commits-to-no-two-tables"
"""A client may reject some transactions, so an example finds this one."""


def run(client: type[ModelClient], *steps: Step) -> CaseResult:
    host = ClientHost()
    text = program.encode(ClientProgram(format=2, side="client", family="x", seed=1, steps=steps))
    return run_case(CHECK, STAGED, InProcess(client(host.ask)), host=host, reproduction=text)


METADATA: Final = (
    Win(table=1, change=Change.PROPERTIES), TransactAll(members=(Transact(), Transact(table=1, properties=1))),
)  # fmt: skip
LOST: Final = (Free(what=Freedom.LOSE_ANSWER, on="commit"), TransactAll())
FOUND: Final[dict[str, tuple[Step, ...]]] = {
    "checks-only-the-first-table": METADATA,
    "commits-table-by-table": (TransactAll(),),
    "commits-the-last-table-alone": (TransactAll(members=(Transact(), Transact(table=1), Transact(table=2))),),
    "leaves-out-what-conflicts": METADATA,
    "leaves-out-what-is-gone": (Free(what=Freedom.DROP, table=1), TransactAll()),
    "proposes-a-lost-group-again": LOST,
    "proposes-only-what-lost-again": (Win(table=1), TransactAll()),
    "reads-no-two-tables": (ReadAll(),),
    "reads-table-by-table": (Free(what=Freedom.LAND_GROUP, after=True), ReadAll()),
    "reads-the-newest-of-each": (Free(what=Freedom.LAND_GROUP, after=True), ReadAll()),
}


def subjects(*, bad: bool) -> list[str]:
    module = "conformance.mutants.group_clients"
    every = [one for one in all_mutants().values() if one.make.__module__ == module and one.id != EXAMPLE]
    return [one.id for one in every if bool(one.violates) is bad]


def test_each_bad_client_has_its_program() -> None:
    assert sorted(FOUND) == sorted(subjects(bad=True))


@pytest.mark.parametrize("name", FOUND)
def test_a_bad_client_is_found_by_its_shortest_program(name: str) -> None:
    mutant = all_mutants()[name]
    result = run(mutant.make, *FOUND[name])
    assert result.verdict is Verdict.FAILED
    assert set(result.violations[0].requirements) & set(mutant.violates)
    assert run(GroupClient, *FOUND[name]).violations == ()


OTHERS: Final[tuple[tuple[Step, ...], ...]] = (
    (Free(what=Freedom.DELAY, on="commit"), TransactAll(), ReadAll()),
    (Free(what=Freedom.REPEAT, on="commit"), TransactAll(), ReadAll(fresh=True)),
    (Free(what=Freedom.PUBLISH, on="commit", after=True, table=1), TransactAll(), ReadAll()),
    (Free(what=Freedom.LOSE_REQUEST, on="commit"), Win(races=3), TransactAll(), ReadAll(tables=(0, 1, 2))),
    (Free(what=Freedom.SILENT, on="commit"), TransactAll(), ReadAll()),
    (Free(what=Freedom.BARE_CONFLICT, on="commit"), Win(times=2), Win(table=1), TransactAll(), ReadAll()),
    (Free(what=Freedom.REFUSE, on="commit"), TransactAll(), ReadAll()),
    (Make(limit=1), Land(), TransactAll(), TransactAll(), ReadAll()),
    (Again(table=1, empty=True), TransactAll(), ReadAll(), Read(table=1)),
)  # fmt: skip


@pytest.mark.parametrize("name", sampled(subjects(bad=False), 3))
def test_a_good_client_is_accused_by_none_of_them(name: str) -> None:
    after = (Land(table=1), Backfill(table=1), Checkpoint(table=1), TransactAll(), ReadAll(), Transact(), Read())
    for steps in (*FOUND.values(), *OTHERS):
        result = run(all_mutants()[name].make, *steps, *after)
        assert (result.verdict, result.violations) == (Verdict.PASSED, ()), steps


def test_a_client_without_the_profile_gets_no_such_request() -> None:
    asked: list[str] = []

    class Overheard(ModelClient):
        def lacks(self, name: str) -> str:
            asked.append(name)
            return name

    assert CHECK.variants(ModelClient(ClientHost().ask).hello("", m.Hello())) == []
    assert run(Overheard, TransactAll(), ReadAll(), Transact()).violations == ()
    assert asked == []


def test_other_families_draw_no_such_steps() -> None:
    plain, grouped = ClientFamily(name="x"), ClientFamily(name="x", groups=True)
    identity = GroupClient(ClientHost().ask).hello("", m.Hello())
    several = {"transactall", "readall"}
    drawn = [{word for n in range(60) for word in one.draw(3, n, identity, STAGED).words} for one in (plain, grouped)]
    assert (drawn[0] & several, drawn[1] & several) == (set(), several)
