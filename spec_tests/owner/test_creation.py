"""catalog-managed, "Creating and Dropping"; managed-commits, "Creating a new managed-commit table"."""

from pathlib import Path
from unittest.mock import patch

import pytest

import refimpl
from refimpl.owner.tables import Tables
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import Registered
from refimpl.protocol.commits import DirectProposal, Ratified
from refimpl.protocol.errors import (
    InvalidRequestError,
    LocationError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore
from spec_tests.support import builders
from spec_tests.support.faults import FailingFiles


def proposal_of(feature: TableFeature) -> DirectProposal:
    return DirectProposal(attempt=builders.new_attempt(), content=builders.first_version(feature, builders.START))


# The three phases


def test_registration_that_cannot_be_described_is_unknown(warehouse: refimpl.Warehouse) -> None:
    """Another error would say that nothing happened."""
    staged, proposal = warehouse.owner.stage_table("orders", CATALOG_MANAGED), proposal_of(CATALOG_MANAGED)
    with patch.object(Tables, "resolve_id", side_effect=OwnerUnavailableError("busy")), pytest.raises(OutcomeUnknown):
        warehouse.owner.register_table(staged.table_id, proposal)
    assert isinstance(warehouse.owner.register_table(staged.table_id, proposal), Registered)


# Names


def test_table_with_a_failing_backfill_is_not_dropped(warehouse: refimpl.Warehouse) -> None:
    """The disk fails. Only the owner has the last commits, and after a drop they would never be published."""
    table = builders.create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=3)
    storage = FailingFiles()
    storage.fail_when = lambda effect, path: effect == "link"
    failing = refimpl.open(warehouse.directory, environment=Environment(files=storage), create=True)
    with pytest.raises(OwnerUnavailableError):
        failing.owner.drop_table(table.table_id)
    failing.close()
    assert warehouse.owner.resolve("orders").table_id == table.table_id
    warehouse.owner.drop_table(table.table_id)
    assert table.published() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", "a.b.c.d", "a/b", "../x", "a b", "a\n", "1a", "a-b", "é", "a\0", "x" * 256, "`a`", "a;b"],
)
def test_invalid_table_name_is_rejected(warehouse: refimpl.Warehouse, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        warehouse.owner.stage_table(name, CATALOG_MANAGED)
    assert [path.name for path in warehouse.directory.iterdir()] == ["_owner"]


# Locations


def stage_at(warehouse: refimpl.Warehouse, location: Path, name: str = "orders") -> Path:
    return warehouse.owner.stage_table(name, CATALOG_MANAGED, location=location).location


def test_a_location_elsewhere_is_refused(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = warehouse.directory / "link"
    link.symlink_to(outside)
    loop = warehouse.directory / "loop"
    loop.symlink_to(loop)
    inside = warehouse.directory / "inside"
    inside.mkdir()
    (warehouse.directory / "alias").symlink_to(inside)
    for location in (
        outside,
        warehouse.directory,
        warehouse.directory.parent,
        tmp_path / "warehouse2",
        warehouse.directory / ".." / "warehouse" / "orders",
        warehouse.directory / "a" / ".." / "orders",
        Path("orders"),
        link,
        link / "orders",
        loop / "orders",
        warehouse.directory / "alias",
        warehouse.directory / "_owner",
        warehouse.directory / "_owner" / "orders",
        warehouse.directory / "x" / "_delta_log",
        warehouse.directory / "bad\udcff",
        warehouse.directory / "nul\0",
        warehouse.directory / ("x" * 300),
    ):
        with pytest.raises(LocationError):
            stage_at(warehouse, location)
    assert list(outside.iterdir()) == []
    assert warehouse.owner.tables() == []
    assert stage_at(warehouse, inside) == inside


def test_a_location_with_files_is_refused(warehouse: refimpl.Warehouse) -> None:
    chosen = warehouse.directory / "place"
    (chosen / "data").mkdir(parents=True)
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen)
    (chosen / "data").rmdir()
    chosen.rmdir()
    chosen.write_text("a file")
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen)
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen / "below")
    chosen.unlink()
    stage_at(warehouse, chosen)


def test_tables_do_not_overlap(warehouse: refimpl.Warehouse) -> None:
    outer = warehouse.directory / "a" / "b"
    stage_at(warehouse, outer, "outer")
    for location in (outer, outer / "c", outer / "c" / "d", outer.parent):
        with pytest.raises(LocationError):
            stage_at(warehouse, location)
    stage_at(warehouse, warehouse.directory / "a" / "bc")
    for neighbour in ("b-", "b0", "b%", "b_", "B"):  # they sort before and after the separator, or are patterns
        stage_at(warehouse, warehouse.directory / "a" / neighbour)
    stage_at(warehouse, warehouse.directory / "%" / "b")
    with pytest.raises(LocationError):
        stage_at(warehouse, warehouse.directory / "%")


def test_a_table_around_the_warehouse_overlaps_every_table_in_it(tmp_path: Path) -> None:
    """A root may contain the warehouse itself."""
    with refimpl.open(tmp_path / "lake" / "warehouse", roots=[tmp_path], create=True) as warehouse:
        around = builders.filesystem_table(tmp_path / "lake", versions=3)
        beside = builders.filesystem_table(tmp_path / "lake2", versions=3)
        builders.create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)

        def take_over(log: LogStore) -> object:
            proposal = DirectProposal(
                attempt=builders.new_attempt(), content=builders.ownership_change(MANAGED_COMMIT, builders.START + 3)
            )
            return warehouse.owner.take_over(log.location, "plain", MANAGED_COMMIT, 3, proposal)

        with pytest.raises(LocationError):
            take_over(around)
        assert isinstance(take_over(beside), Ratified)


def test_unknown_name_is_answered_with_known_names(warehouse: refimpl.Warehouse) -> None:
    for number in range(30):
        builders.create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name=f"table_{number:02}")
    with pytest.raises(TableNotFoundError) as caught:
        warehouse.owner.resolve("table_x")
    assert "table_00" in caught.value.message
    assert "table_29" not in caught.value.message, "the message lists only some names"


def test_no_table_is_created_inside_another_table(warehouse: refimpl.Warehouse) -> None:
    builders.filesystem_table(warehouse.directory / "plain")
    table = builders.create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
    farewell = DirectProposal(attempt=builders.new_attempt(), content=builders.hand_back_commit(builders.START + 1))
    assert isinstance(warehouse.owner.hand_back(table.table_id, 1, farewell), Ratified)
    for chosen in (warehouse.directory / "plain", table.location):
        with pytest.raises(LocationError):
            stage_at(warehouse, chosen / "month=1" / "inner", "inner")
        with pytest.raises(LocationError):
            stage_at(warehouse, chosen, "inner")


def test_a_deleted_table_frees_its_location(warehouse: refimpl.Warehouse) -> None:
    """catalog-managed, "Creating and Dropping": a hard delete may follow the soft one."""
    chosen = warehouse.directory / "place"
    staged = warehouse.owner.stage_table("orders", CATALOG_MANAGED, location=chosen)
    warehouse.owner.register_table(staged.table_id, proposal_of(CATALOG_MANAGED))
    warehouse.owner.drop_table(staged.table_id)
    with pytest.raises(LocationError):
        stage_at(warehouse, chosen)
    (chosen / "_delta_log" / log_path.commit(0)).unlink()
    second = warehouse.owner.stage_table("orders", CATALOG_MANAGED, location=chosen)
    warehouse.owner.register_table(second.table_id, proposal_of(CATALOG_MANAGED))
    builders.owned(warehouse, "orders").land(3)
    with pytest.raises(TableNotFoundError):  # the versions there belong to another table
        warehouse.owner.get_commits(staged.table_id)
