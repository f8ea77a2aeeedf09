"""Processes that start at the same moment: first starts of an owner, creators of a table, writers of a version."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl.commit_owner import NameTaken, Registered
from refimpl.commits import Conflict, DirectProposal, Ratified
from refimpl.table_feature import CATALOG_MANAGED, CommitMode
from spec_tests.support.builders import START, append, create, first_version, new_attempt, owned

COUNT = 4
FORK = multiprocessing.get_context("fork")
at_once = FORK.Barrier(COUNT)


def race(act: Callable[[Path], Any], directory: Path) -> list[Any]:
    """The results of racers in processes of their own, each of which waits for the others (`at_once`)."""
    with ProcessPoolExecutor(COUNT, mp_context=FORK) as pool:
        return [racer.result(60) for racer in [pool.submit(act, directory) for _ in range(COUNT)]]


def start(directory: Path) -> int:
    at_once.wait(60)
    with refimpl.open(directory, create=True) as warehouse:
        return len(warehouse.tables())


@pytest.mark.processes
def test_first_starts_at_once_make_one_owner(tmp_path: Path) -> None:
    """STORAGE.md#journal-mode: processes that set the journal mode at once used to fail."""
    place = tmp_path / "deep" / "warehouse"
    assert race(start, place) == [0] * COUNT
    with refimpl.open(place, create=True) as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
        assert warehouse.owner.ledger.integrity_errors() == []
    assert sorted(path.name for path in (place / "_owner").iterdir() if ".new" in path.name) == []


def create_orders(directory: Path) -> tuple[bool, str]:
    """Whether it won, and the id of the table that has the name."""
    with refimpl.open(directory, create=True) as warehouse:
        staged = warehouse.owner.stage_table("orders", CATALOG_MANAGED, commit_mode=CommitMode.STAGED)
        at_once.wait(60)
        proposal = DirectProposal(attempt=new_attempt(), content=first_version(CATALOG_MANAGED))
        outcome = warehouse.owner.register_table(staged.table_id, proposal)
        assert isinstance(outcome, Registered | NameTaken), outcome
        table = outcome.winner if isinstance(outcome, NameTaken) else outcome.table
        return isinstance(outcome, Registered), table.table_id


@pytest.mark.processes
def test_one_creator_of_a_name_wins_and_losers_learn_which(tmp_path: Path) -> None:
    """catalog-managed, "Creating and Dropping"; the race for version 0 has exactly one winner."""
    answers = race(create_orders, tmp_path / "w")
    assert sorted(won for won, _ in answers) == [False] * (COUNT - 1) + [True]
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        winner = owned(warehouse, "orders")
        assert {table_id for _, table_id in answers} == {winner.table_id}
        winner.land(2)


def commit_1(directory: Path) -> tuple[bool, str, str]:
    """Whether it won version 1, its attempt, and that of the winner."""
    with refimpl.open(directory, create=True) as warehouse:
        table = owned(warehouse, "orders")
        proposal = table.propose(1, append(START + 1))
        at_once.wait(60)
        outcome = table.owner.commit(table.table_id, 1, proposal)
        assert isinstance(outcome, Ratified | Conflict), outcome
        winner = outcome.commit if isinstance(outcome, Ratified) else outcome.winners[0]
        return isinstance(outcome, Ratified), proposal.attempt, winner.attempt


@pytest.mark.processes
@pytest.mark.parametrize("commit_mode", list(CommitMode))
def test_one_writer_of_a_version_wins_and_losers_learn_which(tmp_path: Path, commit_mode: CommitMode) -> None:
    """managed-commits and catalog-managed, "Commit Protocol": version v is ratified at most once."""
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        create(warehouse, CATALOG_MANAGED, commit_mode)
    answers = race(commit_1, tmp_path / "w")
    winners = [mine for won, mine, _ in answers if won]
    assert len(winners) == 1
    assert {winner for _, _, winner in answers} == set(winners)
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        assert owned(warehouse, "orders").latest == 1


def hold_lock(directory: Path, pipe: Any) -> None:
    with refimpl.open(directory, create=True) as warehouse, warehouse.owner.context.lock():
        pipe.send("held")
        pipe.recv()


@pytest.mark.processes
def test_reads_need_no_lock_and_a_dead_holder_frees_it(tmp_path: Path) -> None:
    ours, theirs = FORK.Pipe()
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=2)
        holder = FORK.Process(target=hold_lock, args=(tmp_path / "w", theirs))
        holder.start()
        try:
            assert ours.recv() == "held"
            assert table.latest == 2
            assert list(table.history()) == [0, 1, 2]
        finally:
            holder.kill()
            holder.join()
        table.land()
        assert table.latest == 3
