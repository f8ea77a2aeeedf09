"""Processes that start at the same moment: first starts of an owner, creators of a table, writers of a version."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl.table_feature import CATALOG_MANAGED, CommitMode
from spec_tests.support.builders import create, owned

ROOT = Path(__file__).resolve().parents[2]
COUNT = 4

PREAMBLE = """
import json, sys
import refimpl
from refimpl.commit_owner import NameTaken, Registered
from refimpl.commits import Conflict, DirectProposal, InlineProposal, Ratified
from refimpl.errors import NameTakenError
from refimpl.table_feature import CATALOG_MANAGED, CommitMode
from spec_tests.support.builders import START, append, first_version, new_attempt, owned

def answer(value):
    print(json.dumps(value), flush=True)

def ready():
    answer("ready")
    sys.stdin.readline()

directory = sys.argv[1]
"""


@contextmanager
def racers(directory: Path, script: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that have imported everything and wait for a line."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + script, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(COUNT)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == "ready"
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def race(directory: Path, script: str) -> list[Any]:
    """What each of them answers when all were let go."""
    with racers(directory, script) as running:
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers: list[Any] = []
        for process in running:
            assert process.stdout is not None
            answers.append(json.loads(process.stdout.readline()))
            assert process.wait(60) == 0
        return answers


FIRST_START = """
ready()
warehouse = refimpl.open(directory, create=True)
answer(warehouse.tables())
"""


@pytest.mark.processes
def test_two_first_starts_at_once_make_one_owner(tmp_path: Path) -> None:
    """STORAGE.md#journal-mode: processes that set the journal mode at once used to fail."""
    place = tmp_path / "deep" / "warehouse"
    assert race(place, FIRST_START) == [[]] * COUNT
    with refimpl.open(place, create=True) as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
        assert warehouse.owner.ledger.integrity_errors() == []
    assert sorted(path.name for path in (place / "_owner").iterdir() if ".new" in path.name) == []


CREATE = """
warehouse = refimpl.open(directory, create=True)
staged = warehouse.owner.stage_table("orders", CATALOG_MANAGED, commit_mode=CommitMode.STAGED)
ready()
proposal = DirectProposal(attempt=new_attempt(), content=first_version(CATALOG_MANAGED))
outcome = warehouse.owner.register_table(staged.table_id, proposal)
table = outcome.winner if isinstance(outcome, NameTaken) else outcome.table
answer([isinstance(outcome, Registered), table.table_id])
"""


@pytest.mark.processes
def test_creators_race_for_a_name_and_the_losers_learn_who_won(tmp_path: Path) -> None:
    """catalog-managed, "Creating and Dropping"; the race for version 0 has exactly one winner."""
    answers = race(tmp_path / "w", CREATE)
    assert sorted(won for won, _ in answers) == [False] * (COUNT - 1) + [True]
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        winner = owned(warehouse, "orders")
        assert {table_id for _, table_id in answers} == {winner.table_id}
        winner.land(2)


COMMIT = """
warehouse = refimpl.open(directory, create=True)
table = owned(warehouse, "orders")
proposal = table.propose(1, append(START + 1))
ready()
outcome = table.owner.commit(table.table_id, 1, proposal)
won = isinstance(outcome, Ratified)
winner = outcome.commit if won else outcome.winners[0]
answer([won, proposal.attempt, winner.attempt])
"""


@pytest.mark.processes
@pytest.mark.parametrize("commit_mode", list(CommitMode))
def test_writers_race_for_a_version_and_the_losers_learn_who_won(tmp_path: Path, commit_mode: CommitMode) -> None:
    """managed-commits and catalog-managed, "Commit Protocol": version v is ratified at most once."""
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        create(warehouse, CATALOG_MANAGED, commit_mode)
    answers = race(tmp_path / "w", COMMIT)
    winners = [mine for won, mine, _ in answers if won]
    assert len(winners) == 1
    assert {winner for _, _, winner in answers} == set(winners)
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        assert owned(warehouse, "orders").latest == 1


HOLD = """
warehouse = refimpl.open(directory, create=True)
with warehouse.owner.context.lock():
    ready()
"""


@pytest.mark.processes
def test_answers_come_while_other_processes_hold_or_want_the_lock(tmp_path: Path) -> None:
    """`get_commits` takes no lock; a process that dies with the lock frees it."""
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=2)
        holder = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + HOLD, str(tmp_path / "w")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert holder.stdout is not None
        assert holder.stdin is not None
        try:
            assert json.loads(holder.stdout.readline()) == "ready"
            assert table.latest == 2
            assert list(table.history()) == [0, 1, 2]
        finally:
            holder.kill()
            holder.wait()
            holder.stdin.close()
            holder.stdout.close()
        table.land()
        assert table.latest == 3
