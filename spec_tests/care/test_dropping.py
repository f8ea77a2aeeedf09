"""Drop, undrop and purge: the tables that come back, the files that are deleted, and the files that stay."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import refimpl
from refimpl.care import dropping
from refimpl.care.verify import Severity, verify
from refimpl.client.ownership import hand_back
from refimpl.owner.tables import LOCK_FILE
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import Ratified, RejectionReason
from refimpl.protocol.errors import (
    InvalidRequestError,
    LocationError,
    NameTakenError,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.storage.environment import Environment, HostLock, host_lock
from refimpl.storage.files import PosixFiles
from spec_tests.support.builders import START, OwnedTable, append, create, dropped, filesystem_table, owned, refused
from spec_tests.support.faults import FailingFiles, Faults
from spec_tests.support.lock_watch import Others, watched_lock

DAY = 86_400_000


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


def test_table_dropped_before_a_hand_back_at_its_location_stays(tmp_path: Path) -> None:
    """Another table was created at the location of the dropped one, and handed back: it is a filesystem table."""
    pa = pytest.importorskip("pyarrow")
    with refimpl.open(tmp_path / "lake", create=True) as lake:
        first = lake.create_table("sales", pa.schema([("id", pa.int64())]))
        lake.owner.drop_table(first.table_id or "")
        first.location.rename(tmp_path / "moved")
        second = lake.create_table("sales", pa.schema([("id", pa.int64())]), location=first.location)
        hand_back(second)
        before = tree(second.location)
        with pytest.raises(LocationError, match="'sales' \\(handed-back\\) uses it"):
            dropping.purge_table(lake.owner, first.table_id or "", older_than=0)
        assert tree(second.location) == before


def test_undrop_by_name_restores_the_table_dropped_last(warehouse: refimpl.Warehouse) -> None:
    first, second = dropped(warehouse), dropped(warehouse)
    with pytest.raises(InvalidRequestError, match=first.table_id):
        dropping.purge_table(warehouse.owner, "orders", older_than=0)
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


@pytest.mark.parametrize("job", ["undrop", "purge"])
def test_undrop_and_purge_leave_another_table_alone(warehouse: refimpl.Warehouse, tmp_path: Path, job: str) -> None:
    """Nothing changes if the location has another table of this owner, a filesystem table, or no table."""
    act = {
        "undrop": lambda reference: dropping.undrop_table(warehouse.owner, reference),
        "purge": lambda reference: dropping.purge_table(warehouse.owner, reference, older_than=0),
    }[job]
    table = dropped(warehouse)
    moved = table.location.rename(tmp_path / "elsewhere")
    with pytest.raises(LocationError, match="does not hold"):
        act(table.table_id)
    filesystem_table(table.location)
    before = tree(table.location)
    with pytest.raises(LocationError, match="does not hold"):
        act(table.table_id)
    assert tree(table.location) == before
    table.location.rename(tmp_path / "other")
    other = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, location=table.location)
    with pytest.raises((LocationError, NameTakenError)):
        act(table.table_id)
    assert other.history()
    assert moved.is_dir()


@pytest.mark.parametrize("job", ["undrop", "purge"])
def test_table_undropped_by_another_process_is_not_found(warehouse: refimpl.Warehouse, job: str) -> None:
    table = dropped(warehouse)
    meanwhile = Others(before=lambda: dropping.undrop_table(warehouse.owner, "orders"))
    environment = Faults().environment(host_lock=meanwhile.lock)
    with refimpl.open(warehouse.directory, environment=environment) as late, pytest.raises(TableNotFoundError):
        dropping.undrop_table(late.owner, "orders") if job == "undrop" else dropping.purge_table(
            late.owner, "orders", older_than=0
        )
    table.land()


def test_table_created_at_the_location_during_a_purge_stays(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    table = dropped(warehouse)

    def replace() -> None:
        table.location.rename(tmp_path / "elsewhere")
        create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name="other", location=table.location, commits=2)

    meanwhile = Others(before=replace, at=2)
    environment = Faults().environment(host_lock=meanwhile.lock)
    with refimpl.open(warehouse.directory, environment=environment) as late, pytest.raises(LocationError):
        dropping.purge_table(late.owner, "orders", older_than=0)
    assert len(owned(warehouse, "other").history()) == 3


def test_table_with_a_later_version_stays_dropped_with_its_files(warehouse: refimpl.Warehouse) -> None:
    """Another catalog may have registered the location."""
    table = dropped(warehouse)
    table.log.put_if_absent(log_path.commit(3), b"{}")
    before = tree(table.location)
    with pytest.raises(LocationError, match="version 3"):
        dropping.undrop_table(warehouse.owner, "orders")
    with pytest.raises(LocationError, match="version 3"):
        dropping.purge_table(warehouse.owner, "orders", older_than=0)
    assert warehouse.owner.tables() == []
    assert tree(table.location) == before


def lock_files(warehouse: refimpl.Warehouse) -> list[str]:
    return sorted(path.name for path in warehouse.owner.ledger.path.parent.glob("publishing-*"))


def test_a_drop_that_cannot_remove_a_lock_file_is_not_denied(tmp_path: Path) -> None:
    storage = FailingFiles()
    with refimpl.open(tmp_path / "lake", create=True, environment=Environment(files=storage)) as lake:
        staged = lake.owner.stage_table("late", CATALOG_MANAGED)
        storage.fail_when = lambda operation, path: operation == "unlink"
        lake.owner.drop_table(staged.table_id)
        with pytest.raises(TableNotFoundError):
            lake.owner.resolve("late")


def test_purge_waits_for_the_publishing_lock(warehouse: refimpl.Warehouse) -> None:
    """Otherwise the purge removes a held lock's file, and another process could hold a new lock at the same time."""
    table = dropped(warehouse)
    path = warehouse.owner.ledger.path.parent / f"publishing-{table.table_id}"
    held = host_lock(path)
    impatient = Environment(host_lock=lambda folder: host_lock(folder, timeout=lambda: 0.0))
    with held(), refimpl.open(warehouse.directory, environment=impatient) as other:
        with pytest.raises(OwnerUnavailableError, match="publishing"):
            dropping.purge_table(other.owner, table.table_id, older_than=0)
        assert path.exists()
        assert (table.location / "b.parquet").exists()
    assert not dropping.purge_table(warehouse.owner, table.table_id, older_than=0).left
    assert lock_files(warehouse) == []


def test_purge_waits_for_the_retention(tmp_path: Path) -> None:
    now = [1_000 * DAY]
    with refimpl.open(tmp_path / "lake", create=True, environment=Environment(now=lambda: now[0])) as lake:
        table = dropped(lake)
        now[0] += 7 * DAY - 1
        with pytest.raises(InvalidRequestError, match="at least 7 days"):
            dropping.purge_table(lake.owner, "orders")
        assert (table.location / "b.parquet").exists()
        now[0] += 1
        assert not dropping.purge_table(lake.owner, "orders").left


def test_only_dropped_tables_are_purged(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED)
    staged = warehouse.owner.stage_table("other", CATALOG_MANAGED)
    warehouse.owner.drop_table(staged.table_id)
    for reference in ("orders", table.table_id, "nothing", staged.table_id):
        with pytest.raises(TableNotFoundError):
            dropping.purge_table(warehouse.owner, reference, older_than=0)
        with pytest.raises(TableNotFoundError):
            dropping.undrop_table(warehouse.owner, reference)
    assert table.history()


def test_purge_spares_inner_tables_and_targets_of_links(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    table = dropped(warehouse)
    inside = table.location / "month=1" / "inside"
    filesystem_table(inside)
    (inside / "c.parquet").write_bytes(b"rows of another table")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "d.parquet").write_bytes(b"rows of another table")
    (table.location / "link").symlink_to(outside)
    (table.location / "file-link").symlink_to(outside / "d.parquet")
    before = tree(inside)
    assert dropping.purge_table(warehouse.owner, "orders", older_than=0).left
    assert tree(inside) == before
    assert (outside / "d.parquet").exists()
    assert tree(table.location) == {"month=1", "month=1/inside", *(f"month=1/inside/{name}" for name in before)}


class Holds(PosixFiles):
    """Counts the files that are deleted each time the owner's lock is held."""

    def __init__(self) -> None:
        self.deleted = [0]
        self.lock = watched_lock(self._hold)

    def unlink(self, path: Path) -> None:
        self.deleted[-1] += 1
        super().unlink(path)

    def _hold(self, path: Path, real: HostLock) -> Iterator[None]:
        with real():
            if path.name == LOCK_FILE:
                self.deleted.append(0)
            yield


def test_purge_lets_others_commit_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's lock is held for a limited number of deletions."""
    monkeypatch.setattr(dropping, "BATCH", 3)
    files = Holds()
    with refimpl.open(
        tmp_path / "lake", create=True, environment=Environment(files=files, host_lock=files.lock)
    ) as lake:
        table = dropped(lake, commits=7)
        files.deleted = [0]
        purged = dropping.purge_table(lake.owner, table.table_id, older_than=0)
        assert not purged.left
        assert purged.files > 7
        assert max(files.deleted) == 3


class UnsyncedDeletions(PosixFiles):
    """Records, at each deletion of a file, which folders have deletions that are not durable."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()
        self.at: dict[Path, set[Path]] = {}

    def unlink(self, path: Path) -> None:
        self.at[path] = set(self.folders)
        super().unlink(path)
        self.folders.add(path.parent)

    def remove_directory(self, path: Path) -> None:
        super().remove_directory(path)
        self.folders = self.folders - {path} | {path.parent}

    def fsync_directory(self, path: Path) -> None:
        super().fsync_directory(path)
        self.folders.discard(path)


@pytest.mark.parametrize("inside", [False, True], ids=["nothing else", "a table"])
def test_purge_deletes_the_last_commit_after_durable_deletions(tmp_path: Path, inside: bool) -> None:
    files = UnsyncedDeletions()
    with refimpl.open(tmp_path / "lake", create=True, environment=Environment(files=files)) as lake:
        location = dropped(lake).location
        if inside:
            (location / "month=1" / "another" / "_delta_log").mkdir(parents=True)
        files.folders.clear()
        assert dropping.purge_table(lake.owner, "orders", older_than=0).left == inside
    last = [path for path in files.at if path.is_relative_to(location)][-1]
    assert last.name == log_path.commit(2)
    assert [path for path in files.at[last] if path.is_relative_to(location)] == []
    assert [path for path in (lake.directory, location, location / "month=1") if path in files.folders] == []


def test_interrupted_purge_continues_by_name(warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = dropped(warehouse)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(dropping, "_deleting", Mock(side_effect=KeyboardInterrupt))
        dropping.purge_table(warehouse.owner, "orders", older_than=0)
    assert [finding.message for finding in verify(warehouse.owner) if "commit-owner purge" in finding.message]
    assert not dropping.purge_table(warehouse.owner, "orders").left
    assert not table.location.exists()


@pytest.mark.parametrize("moved", ["", "_delta_log"])
def test_purge_rejects_a_link_in_place_of_the_table_or_log(
    warehouse: refimpl.Warehouse, tmp_path: Path, moved: str
) -> None:
    table = dropped(warehouse)
    folder = (table.location / moved).rename(tmp_path / "moved")
    (table.location / moved).symlink_to(folder)
    before = tree(folder)
    with pytest.raises(LocationError, match="symbolic link"):
        dropping.undrop_table(warehouse.owner, "orders")
    with pytest.raises(LocationError, match="symbolic link"):
        dropping.purge_table(warehouse.owner, "orders", older_than=0)
    assert tree(folder) == before


def test_empty_folders_are_removed_under_the_lock(
    warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they could belong to a table that another process creates at the location."""
    dropped(warehouse)
    remove, seen = dropping._remove_empty, []

    def removing(*values: Any) -> None:
        with pytest.raises(OwnerUnavailableError):
            ThreadPoolExecutor(1).submit(take).result()
        seen.append(remove(*values))

    def take() -> None:
        with host_lock(warehouse.owner.ledger.path.parent / LOCK_FILE, timeout=lambda: 0.0)():
            pass

    monkeypatch.setattr(dropping, "_remove_empty", removing)
    assert not dropping.purge_table(warehouse.owner, "orders", older_than=0).left
    assert seen
