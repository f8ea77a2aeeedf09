"""The score of one layer alone: it finds a mutant by what it does wrong, and tells that from another accusation."""

from dataclasses import replace
from typing import Final

import pytest

from conformance.mutants import Mutant, all_mutants
from spec_tests.conformance import kills, layers, mutation_score
from spec_tests.conformance.layers import Row, Seen

GUILTY: Final = all_mutants()["last-writer-wins"]


def searched(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, seconds: float = 2) -> Row:
    monkeypatch.setitem(all_mutants(), mutant.id, mutant)
    return layers.search(mutant, "programs", seconds=seconds, seed=0)


def test_programs_find_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    row = searched(GUILTY, monkeypatch)
    assert row.seen is Seen.FOUND
    assert set(row.requirements) & set(GUILTY.violates)
    assert 0 < row.steps <= row.operations
    assert row.programs > 0


def test_another_accusation_is_not_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    row = searched(replace(GUILTY, id="misnamed", violates=("MC-ENABLE-05",)), monkeypatch, seconds=0.1)
    assert row.seen is Seen.ACCUSED
    assert row.requirements


def test_a_third_is_held_out() -> None:
    others, held_out = layers.chosen(), layers.chosen(holdout=True)
    everyone = {mutant.id for mutant in all_mutants().values() if mutant.violates}
    assert {mutant.id for mutant in others} | {mutant.id for mutant in held_out} == everyone
    assert len(others) + len(held_out) == len(everyone)
    assert 0.25 < len(held_out) / len(everyone) < 0.4


def test_the_held_out_third_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    held_out = layers.chosen(holdout=True)[0].id
    assert mutation_score.main(["--layers", "programs", "--mutants", held_out]) == 1
    assert "--holdout" in capsys.readouterr().out


def test_a_mutant_of_programs_is_searched_again_if_one_is_remembered() -> None:
    of_programs = {mutant.id for mutant in layers.chosen() if mutant.found_by}
    assert of_programs & {mutant.id for mutant in kills.bad()} == of_programs & kills.REMEMBERED.keys()


def test_a_remembered_case_is_read_again() -> None:
    program = "conflicts/any-transaction-against-any-winners[managedCommit/staged] seed 7"
    example = "concurrent-writers/a-lost-race-is-a-conflict[managedCommit/staged]"
    assert [str(kills.case_of(text)) for text in (program, example, "conflicts/unknown[managedCommit/staged]")] == [
        program, example, "None",
    ]  # fmt: skip
