"""Whatever changes the ledger or makes a version visible happens under the owner's lock, and inside a transaction.

SQLite's own lock would let most of these pass unnoticed: what it does not cover is the log, and the fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import refimpl
from refimpl.commits import Conflict, DirectProposal, Ratified
from refimpl.errors import NameTakenError
from refimpl.owner.repair import repair
from spec_tests.support.builders import (
    FEATURES_AND_COMMIT_MODES,
    ON_REQUEST,
    START,
    OwnedTable,
    create,
    filesystem_table,
    hand_back_commit,
    name_of,
    new_attempt,
    ownership_change,
)
from spec_tests.support.lock_watch import Watch


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def watched(tmp_path: Path, watch: Watch) -> Iterator[refimpl.Warehouse]:
    warehouse = watch.opened(tmp_path / "warehouse")
    yield warehouse
    warehouse.owner.close()
    assert watch.outside == []
    assert {"begin", "commit", "insert", "update"} <= watch.inside


@pytest.fixture(params=FEATURES_AND_COMMIT_MODES, ids=lambda pair: name_of(*pair))
def table(request: pytest.FixtureRequest, watched: refimpl.Warehouse) -> OwnedTable:
    return create(watched, *request.param, commits=2)


def test_commits_and_lost_races_and_backfills(table: OwnedTable, watch: Watch) -> None:
    attempt = new_attempt()
    assert isinstance(table.commit(3, attempt=attempt), Ratified)
    assert isinstance(table.commit(3), Conflict)
    table.backfill(2)
    table.backfill()
    assert table.published() == [0, 1, 2, 3]
    assert "link" in watch.inside


def test_outcomes_that_are_resolved_and_policies(table: OwnedTable, watch: Watch) -> None:
    table.owner.attempt_outcome(table.table_id, new_attempt())
    table.owner.set_policy(table.table_id, ON_REQUEST)
    table.owner.add_roots([Path("/elsewhere")])
    assert table.latest == 2


def test_a_hand_back_and_a_drop(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    other = create(watched, table.feature, table.commit_mode, name="others", commits=1)
    proposal = DirectProposal(attempt=new_attempt(), content=hand_back_commit(START + 100))
    assert isinstance(table.owner.hand_back(table.table_id, 3, proposal), Ratified)
    other.owner.drop_table(other.table_id)
    assert table.published() == [0, 1, 2, 3]


def test_a_take_over(table: OwnedTable, watched: refimpl.Warehouse, tmp_path: Path) -> None:
    place = tmp_path / "warehouse" / "imports"
    filesystem_table(place)
    proposal = DirectProposal(attempt=new_attempt(), content=ownership_change(table.feature, START + 100))
    outcome = watched.owner.take_over(place, "imports", table.feature, 2, proposal)
    assert isinstance(outcome, Ratified)
    assert watched.owner.resolve("imports").commits.latest_ratified_version == 2
    assert (place / "_delta_log" / table.feature.staging_folder).is_dir()


def test_a_creation_that_finds_its_name_taken(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    with pytest.raises(NameTakenError):
        watched.owner.stage_table("orders", table.feature, commit_mode=table.commit_mode)
    assert [each.name for each in watched.owner.tables()] == ["orders"]


def test_a_repair(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    with watched.owner.context.lock(), watched.owner.context.changing(table.table_id) as (writer, record):
        writer.halt(record, "a disk failed once")
    assert [each.done for each in repair(watched.owner)] == [True]
    assert isinstance(table.commit(3), Ratified)


def test_a_repair_of_an_abandoned_creation(table: OwnedTable, watched: refimpl.Warehouse) -> None:
    staged = watched.owner.stage_table("late", table.feature)
    assert "forget-abandoned" in {action.code for action in repair(watched.owner, orphan_age_ms=0)}
    assert not staged.location.exists()


def test_what_is_done_without_the_lock_is_seen(tmp_path: Path) -> None:
    """The watch is no check that cannot fail."""
    watch = Watch()
    warehouse = watch.opened(tmp_path / "warehouse")
    table = create(warehouse, *FEATURES_AND_COMMIT_MODES[0])
    assert watch.outside == []
    with warehouse.owner.context.changing(table.table_id) as (writer, record):
        writer.halt(record, "why")
    writer.halt(record, None)
    assert watch.outside == ["begin", "update", "commit", "update"]
    warehouse.owner.close()
