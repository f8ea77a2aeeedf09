"""Drop and undrop: the tables that come back, and the files that stay."""

from pathlib import Path

import pytest

import refimpl
from refimpl.care import dropping
from refimpl.care.verify import Severity, verify
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import Ratified, RejectionReason
from refimpl.protocol.errors import LocationError, NameTakenError, TableNotFoundError
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.storage.environment import Environment
from spec_tests.support.builders import START, OwnedTable, append, create, dropped, filesystem_table, refused
from spec_tests.support.faults import FailingFiles, Faults
from spec_tests.support.lock_watch import Others


def tree(location: Path) -> set[str]:
    return {str(path.relative_to(location)) for path in location.rglob("*")}


def test_undrop_restores_every_kind_of_table(warehouse: refimpl.Warehouse, table: OwnedTable) -> None:
    """The id, the history and the attempts are the same, and the table accepts commits again."""
    table.land(2)
    before = table.history()
    warehouse.owner.drop_table(table.table_id)
    back = dropping.undrop_table(warehouse.owner, "orders")
    assert (back.table_id, back.state, back.commits.latest_ratified_version) == (table.table_id, TableState.ACTIVE, 2)
    assert table.history() == before
    table.land()
    assert [finding for finding in verify(warehouse.owner) if finding.severity is Severity.ERROR] == []


def test_undrop_by_name_restores_the_table_dropped_last(warehouse: refimpl.Warehouse) -> None:
    first, second = dropped(warehouse), dropped(warehouse)
    assert dropping.undrop_table(warehouse.owner, "orders").table_id == second.table_id
    with pytest.raises(NameTakenError):
        dropping.undrop_table(warehouse.owner, first.table_id)
    assert warehouse.owner.resolve("orders").table_id == second.table_id


def test_rejected_attempt_never_lands_after_an_undrop(warehouse: refimpl.Warehouse) -> None:
    """A copy of the request may arrive late."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    late = table.propose(1, append(START + 1))
    warehouse.owner.drop_table(table.table_id)
    refused(warehouse.owner.commit(table.table_id, 1, late), RejectionReason.NOT_ACTIVE)
    dropping.undrop_table(warehouse.owner, "orders")
    refused(warehouse.owner.commit(table.table_id, 1, late), RejectionReason.ATTEMPT_RESOLVED)
    assert isinstance(warehouse.owner.commit(table.table_id, 1, table.propose(1, append(START + 1))), Ratified)


def test_undrop_leaves_another_table_alone(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    """Nothing changes if the location has another table of this owner, a filesystem table, or no table."""
    table = dropped(warehouse)
    moved = table.location.rename(tmp_path / "elsewhere")
    with pytest.raises(LocationError, match="does not hold"):
        dropping.undrop_table(warehouse.owner, table.table_id)
    filesystem_table(table.location)
    before = tree(table.location)
    with pytest.raises(LocationError, match="does not hold"):
        dropping.undrop_table(warehouse.owner, table.table_id)
    assert tree(table.location) == before
    table.location.rename(tmp_path / "other")
    other = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, location=table.location)
    with pytest.raises((LocationError, NameTakenError)):
        dropping.undrop_table(warehouse.owner, table.table_id)
    assert other.history()
    assert moved.is_dir()


def test_table_undropped_by_another_process_is_not_found(warehouse: refimpl.Warehouse) -> None:
    table = dropped(warehouse)
    meanwhile = Others(before=lambda: dropping.undrop_table(warehouse.owner, "orders"))
    environment = Faults().environment(host_lock=meanwhile.lock)
    with refimpl.open(warehouse.directory, environment=environment) as late, pytest.raises(TableNotFoundError):
        dropping.undrop_table(late.owner, "orders")
    table.land()


def test_table_with_a_later_version_stays_dropped_with_its_files(warehouse: refimpl.Warehouse) -> None:
    """Another catalog may have registered the location."""
    table = dropped(warehouse)
    table.log.put_if_absent(log_path.commit(3), b"{}")
    before = tree(table.location)
    with pytest.raises(LocationError, match="version 3"):
        dropping.undrop_table(warehouse.owner, "orders")
    assert warehouse.owner.tables() == []
    assert tree(table.location) == before


def test_a_drop_that_cannot_remove_a_lock_file_is_not_denied(tmp_path: Path) -> None:
    storage = FailingFiles()
    with refimpl.open(tmp_path / "lake", create=True, environment=Environment(files=storage)) as lake:
        staged = lake.owner.stage_table("late", CATALOG_MANAGED)
        storage.fail_when = lambda operation, path: operation == "unlink"
        lake.owner.drop_table(staged.table_id)
        with pytest.raises(TableNotFoundError):
            lake.owner.resolve("late")


def test_only_dropped_tables_are_undropped(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    staged = warehouse.owner.stage_table("other", CATALOG_MANAGED)
    warehouse.owner.drop_table(staged.table_id)
    for reference in ("orders", table.table_id, "nothing", staged.table_id):
        with pytest.raises(TableNotFoundError):
            dropping.undrop_table(warehouse.owner, reference)
    assert table.history()


@pytest.mark.parametrize("moved", ["", "_delta_log"])
def test_undrop_rejects_a_link_in_place_of_the_table_or_log(
    warehouse: refimpl.Warehouse, tmp_path: Path, moved: str
) -> None:
    table = dropped(warehouse)
    folder = (table.location / moved).rename(tmp_path / "moved")
    (table.location / moved).symlink_to(folder)
    before = tree(folder)
    with pytest.raises(LocationError, match="symbolic link"):
        dropping.undrop_table(warehouse.owner, "orders")
    assert tree(folder) == before
