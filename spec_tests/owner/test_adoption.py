"""DELTA_SPARK.md#registering: tables that an engine announces, then creates or converts by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import refimpl
from refimpl import log_path
from refimpl.commit_owner import ResolvedTable, TableState
from refimpl.commits import Conflict, Outcome, Ratified, Rejected, RejectionReason, VersionGap
from refimpl.environment import Environment
from refimpl.errors import InvalidRequestError, LocationError, TableNotFoundError
from refimpl.log_store import LogStore
from refimpl.table_feature import COORDINATED_COMMITS, MANAGED_COMMIT, CommitMode
from spec_tests.support.builders import (
    START,
    append,
    create,
    filesystem_table,
    first_version,
    owned,
    ownership_change,
)
from spec_tests.support.lock_watch import Others


def announced(
    warehouse: refimpl.Warehouse, place: str = "orders", latest: int | None = None, name: str | None = "orders"
) -> ResolvedTable:
    return warehouse.owner.announce(warehouse.directory / place, name, COORDINATED_COMMITS, latest)


def log_of(warehouse: refimpl.Warehouse, table: ResolvedTable) -> LogStore:
    return LogStore(table.location, warehouse.environment)


def put(log: LogStore, version: int, content: bytes) -> None:
    assert log.put_if_absent(log_path.commit(version), content)


def refused(outcome: Outcome, reason: RejectionReason) -> None:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason is reason


def test_a_new_table_is_owned_from_its_first_contact_on(warehouse: refimpl.Warehouse) -> None:
    table = announced(warehouse)
    assert table.state is TableState.STAGING
    assert warehouse.owner.adopt(table.table_id) == VersionGap(latest_ratified_version=None)
    content = first_version(COORDINATED_COMMITS)
    put(log_of(warehouse, table), 0, content)
    outcome = warehouse.owner.adopt(table.table_id)
    assert isinstance(outcome, Ratified)
    assert outcome.commit.size == len(content)
    mine = owned(warehouse, "orders")
    assert mine.table_id == table.table_id
    assert isinstance(mine.commit(1), Ratified)
    assert mine.published() == [0, 1]


def test_what_lands_while_the_lock_is_waited_for_is_adopted(tmp_path: Path) -> None:
    """The log is looked at under the lock: what was there before may be older than what is there now."""
    place = tmp_path / "warehouse"
    with refimpl.open(place, create=True) as others:
        table = announced(others)
        log = log_of(others, table)
        late = Others(before=lambda: put(log, 0, first_version(COORDINATED_COMMITS)))
        with refimpl.open(place, environment=Environment(host_lock=late.lock), create=True) as warehouse:
            assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
        assert late.acted
        assert others.owner.resolve("orders").commits.latest_ratified_version == 0


def test_a_table_that_exists_is_owned_from_the_version_that_names_the_owner(warehouse: refimpl.Warehouse) -> None:
    """Others may have committed between the announcement and that version."""
    log = filesystem_table(warehouse.directory / "orders", versions=3, environment=warehouse.environment)
    table = announced(warehouse, latest=2)
    put(log, 3, append(START + 3))
    put(log, 4, ownership_change(COORDINATED_COMMITS, START + 4))
    assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
    assert warehouse.owner.resolve("orders").commits.latest_ratified_version == 4
    assert isinstance(owned(warehouse, "orders").commit(5), Ratified)


def test_a_table_that_was_announced_and_created_is_found_by_its_name(warehouse: refimpl.Warehouse) -> None:
    """Its engine may never come back; the others need not wait for that."""
    for name in ("orders", "sales"):
        table = announced(warehouse, name, name=name)
        with pytest.raises(TableNotFoundError):
            warehouse.owner.resolve(name)
        put(log_of(warehouse, table), 0, first_version(COORDINATED_COMMITS))
    assert warehouse.owner.resolve("orders").state is TableState.ACTIVE
    assert warehouse.tables() == ["orders", "sales"]
    staged = warehouse.owner.stage_table("ours", MANAGED_COMMIT)
    put(log_of(warehouse, staged), 0, first_version(MANAGED_COMMIT))
    assert warehouse.tables() == ["orders", "sales"]  # its creator is still to register it


def test_a_table_that_names_another_owner_is_not_adopted(warehouse: refimpl.Warehouse) -> None:
    table = announced(warehouse)
    put(log_of(warehouse, table), 0, first_version(None))
    version = log_of(warehouse, table).folder / log_path.commit(0)
    before = version.stat().st_mtime_ns
    refused(warehouse.owner.adopt(table.table_id), RejectionReason.INCONSISTENT_TABLE)
    assert warehouse.owner.resolve(table.location).state is TableState.STAGING
    assert warehouse.tables() == []
    assert version.stat().st_mtime_ns == before, (
        "the time of a file is that of a commit, in a table without in-commit timestamps"
    )


def test_what_was_adopted_is_not_adopted_again(warehouse: refimpl.Warehouse) -> None:
    table = announced(warehouse)
    put(log_of(warehouse, table), 0, first_version(COORDINATED_COMMITS))
    assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
    owned(warehouse, "orders").land(2)
    assert warehouse.owner.adopt(table.table_id) == Conflict(latest_ratified_version=2)
    warehouse.owner.drop_table(table.table_id)
    refused(warehouse.owner.adopt(table.table_id), RejectionReason.NOT_ACTIVE)


def test_two_engines_that_announce_one_place_get_one_table(warehouse: refimpl.Warehouse) -> None:
    first, second = announced(warehouse), announced(warehouse, name="other")
    assert first.table_id == second.table_id
    put(log_of(warehouse, first), 0, first_version(COORDINATED_COMMITS))
    assert isinstance(warehouse.owner.adopt(first.table_id), Ratified)
    with pytest.raises(LocationError):
        announced(warehouse)
    with pytest.raises(LocationError):
        announced(warehouse, latest=0)
    assert warehouse.tables() == ["orders"]


@pytest.mark.parametrize("name", ["orders", None, "no name here", "9"])
def test_every_table_gets_a_name_of_its_own(warehouse: refimpl.Warehouse, name: str | None) -> None:
    """A taken or invalid name is no reason to reject what the log says already."""
    create(warehouse, COORDINATED_COMMITS, CommitMode.STAGED)
    table = announced(warehouse, "2024/orders", name=name)
    put(log_of(warehouse, table), 0, first_version(COORDINATED_COMMITS))
    assert isinstance(warehouse.owner.adopt(table.table_id), Ratified)
    assert sorted(warehouse.tables()) == ["orders", f"orders_{table.table_id[:8]}"]


def test_a_table_is_announced_where_the_owner_may_write(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "orders"
    for place in (outside, warehouse.directory, warehouse.directory / "_owner" / "orders"):
        with pytest.raises(LocationError):
            warehouse.owner.announce(place, "orders", COORDINATED_COMMITS, None)
    assert not outside.exists()
    outside.parent.mkdir()
    warehouse.owner.add_roots([outside.parent])
    assert warehouse.owner.announce(outside, "orders", COORDINATED_COMMITS, None).location == outside


def test_an_announcement_fits_the_log_that_is_there(warehouse: refimpl.Warehouse) -> None:
    filesystem_table(warehouse.directory / "orders", versions=2, environment=warehouse.environment)
    with pytest.raises(LocationError):
        announced(warehouse)
    with pytest.raises(InvalidRequestError):
        announced(warehouse, latest=2)
    assert announced(warehouse, latest=1).state is TableState.STAGING


def test_a_secret_is_refused_before_it_stands_in_the_log(warehouse: refimpl.Warehouse) -> None:
    place = warehouse.directory / "orders"
    with pytest.raises(InvalidRequestError):
        warehouse.owner.announce(place, "orders", COORDINATED_COMMITS, None, owner_conf='{"aws.secret.key": "x"}')
    assert not place.exists()
    warehouse.owner.announce(place, "orders", COORDINATED_COMMITS, None, owner_conf='{"region": "x"}')
    assert place.exists()
