"""OPTIMIZE, VACUUM and automatic checkpoints: what they change, and what they keep."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pyarrow as pa
import pytest

from refimpl.client import checkpoint_writing, data_maintenance
from refimpl.client.create import create_filesystem_table
from refimpl.client.data_maintenance import optimize, vacuum
from refimpl.client.table import Table
from refimpl.log.log_reading import LogReader
from refimpl.log.log_segment import Commit
from refimpl.protocol import errors, log_path
from refimpl.protocol.commit_owner import ALLOWED_BY_DEFAULT, Maintenance, MaintenancePolicy
from refimpl.protocol.log_path import FileKind, LogPath
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse
from spec_tests.client.conftest import DAY, Setting, adding, failing
from spec_tests.support.builders import commit
from spec_tests.support.faults import FailingFiles

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.string())])
UNDECIDED = "00000000-0000-4000-8000-000000000000"
"""The attempt of a staged commit that was never proposed to the owner."""
ALL = MaintenancePolicy(allowed=ALLOWED_BY_DEFAULT | {Maintenance.OPTIMIZE, Maintenance.VACUUM})
POLICY = msgspec.structs.replace(ALL, backfill_every=None)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "month": [f"{i % 2:02d}" for i in ids]}, schema=SCHEMA)


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    """Three unpublished appends: three files in each of two partitions."""
    table = warehouse.create_table(
        "sales", SCHEMA, partition_columns=["month"], policy=POLICY, commit_mode=CommitMode.STAGED
    )
    for number in range(3):
        table.append(rows(2 * number, 2 * number + 1))
    return table


def content(table: Table) -> list[tuple[int, str]]:
    read = table.snapshot().to_arrow()
    return sorted(zip(read["id"].to_pylist(), read["month"].to_pylist(), strict=True))


def files(table: Table) -> set[str]:
    return {path for path, _ in table.snapshot().files}


def on_disk(table: Table) -> set[str]:
    return {str(path.relative_to(table.location)) for path in table.location.rglob("*.parquet")}


def replaced_long_ago(location: Path, **properties: str) -> Table:
    """A filesystem table with a checkpoint of version 2, which replaced the file of version 1 60 days ago."""
    table = create_filesystem_table(location, Environment(), SCHEMA, properties=properties)
    table.append(rows(1))
    table.overwrite(rows(2))
    make_old(table, 60)
    checkpoint_writing.write(table.snapshot())
    return table


NO_RETENTION = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}


def make_old(table: Table, days: int = 30) -> None:
    """Set the times of all data files and removals back by `days`."""
    for path in table.location.rglob("*.parquet"):
        status = path.stat()
        os.utime(path, (status.st_atime, status.st_mtime - days * 86_400))


# OPTIMIZE


def test_optimize_combines_the_files_of_each_partition(table: Table) -> None:
    """OPTIMIZE sets `dataChange` to false, so streams and change feeds skip the commit."""
    before, rows_before = table.snapshot(), content(table)
    done = optimize(table)
    assert (done.version, done.removed, done.added) == (4, 6, 2)
    assert len(files(table)) == 2
    assert content(table) == rows_before
    after = table.snapshot()
    added = [add for key, add in after.files.items() if key not in before.files]
    assert added
    assert not any(action.data_change for action in [*added, *after.tombstones.values()])
    newest = table.history(1)[0]
    assert newest.operation == "OPTIMIZE"
    assert newest.info is not None
    assert newest.info.fields["operationMetrics"] == {
        "numRemovedFiles": "6",
        "numRemovedBytes": str(done.removed_bytes),
        "numAddedFiles": "2",
        "numAddedBytes": str(done.added_bytes),
    }


def test_optimize_rewrites_only_the_partitions_of_its_condition(table: Table) -> None:
    assert optimize(table, "month = '01'").removed == 3
    assert len(files(table)) == 4


def test_new_files_keep_to_the_target_size(table: Table) -> None:
    size = max(add.size for add in table.snapshot().files.values())
    assert optimize(table, target_size=2 * size + 1).removed == 4, "two of the three files of each partition"


def test_an_append_is_no_conflict_for_optimize(warehouse: Warehouse, table: Table) -> None:
    before_the_proposal(table, lambda: warehouse.table("sales").append(rows(100)))
    assert optimize(table).version == 5
    assert len(content(table)) == 7


def test_optimize_loses_against_a_commit_that_removes_its_files(warehouse: Warehouse, table: Table) -> None:
    """The loser deletes its new files."""
    before_the_proposal(table, lambda: warehouse.table("sales").overwrite(rows(7)))
    with pytest.raises(errors.ConcurrentDeleteDeleteError):
        optimize(table)
    assert content(table) == [(7, "01")]
    assert vacuum(table, older_than=-DAY, force=True).files == tuple(sorted(on_disk(table) - files(table)))
    assert len(on_disk(table)) == 7, "the six overwritten files, and the new one"


def before_the_proposal(table: Table, act: Callable[[], object]) -> None:
    """Act just before the next proposal of this table reaches its owner."""
    owner = table.owner
    assert owner is not None

    def beaten(*arguments: Any) -> Any:
        del owner.commit, owner.turn  # type: ignore[method-assign]
        act()
        return owner.commit(*arguments)

    owner.commit = beaten  # type: ignore[method-assign]
    owner.turn = lambda _table_id: contextlib.nullcontext(False)  # type: ignore[method-assign]  # `act` does not queue


def test_new_files_stay_after_an_unknown_outcome(setting: Setting) -> None:
    """If the commit landed, only the new files hold the rows."""
    table = setting.table(policy=POLICY)
    for number in range(3):
        table.append(rows(2 * number))
    setting.owner.faults.lose_answers, setting.owner.faults.unresolvable = 1, 100
    with pytest.raises(errors.OutcomeUnknown):
        optimize(table)
    assert len(content(setting.again(table))) == 3
    assert len(files(setting.again(table))) == 1


@pytest.mark.parametrize("job", [optimize, vacuum])
def test_maintenance_that_the_owner_forbids_is_refused(warehouse: Warehouse, job: Callable[[Table], object]) -> None:
    """catalog-managed, "Maintenance Operations"."""
    table = warehouse.create_table("strict", SCHEMA)
    table.append(rows(1, 2))
    table.append(rows(3, 4))
    with pytest.raises(errors.MaintenanceRefusedError, match=r"does not allow.* policy 'strict' --allow") as caught:
        job(table)
    assert caught.value.job is Maintenance[job.__name__.upper()]
    assert table.snapshot().version == 2


# VACUUM


def vacuumed(table: Table, **options: object) -> set[str]:
    done = vacuum(table, dry_run=False, **options)  # type: ignore[arg-type]
    assert not any((table.location / path).exists() for path in done.files)
    return set(done.files)


def test_vacuum_keeps_removed_files_after_the_retention_was_made_longer(tmp_path: Path) -> None:
    """A checkpoint has dropped their tombstones already; the commits have them."""
    table = replaced_long_ago(tmp_path / "t", **NO_RETENTION)
    table.alter(properties={"delta.deletedFileRetentionDuration": "interval 7 days"})
    make_old(table, 60)
    assert vacuumed(Table.by_path(table.location)) == set()
    assert table.snapshot(version=1).to_arrow()["id"].to_pylist() == [1]


def test_vacuum_beside_a_cleanup_deletes_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleanup removes a commit after VACUUM has listed the log. The commit may have removed files."""
    orphan = table.location / "orphan.parquet"
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))
    table.snapshot()
    read = LogReader.content

    def cleaned_up(reader: LogReader, commit: Commit) -> bytes:
        if commit.version == 2:
            raise FileNotFoundError(log_path.commit(2))
        return read(reader, commit)

    monkeypatch.setattr(LogReader, "content", cleaned_up)
    with pytest.raises(errors.NotFoundInHistoryError, match="version 2 was cleaned up"):
        vacuum(table, dry_run=False)
    assert orphan.exists()


def test_vacuum_reads_each_commit_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the times of a few, to find the first one that is young enough."""
    table = setting.table(None, in_commit_timestamps=True)
    for number in range(15):
        setting.append(table, f"{number}.parquet")
    table.snapshot()
    read: list[int] = []
    content = LogReader.content

    def recorded(reader: LogReader, commit: Commit) -> bytes:
        read.append(commit.version)
        return content(reader, commit)

    monkeypatch.setattr(LogReader, "content", recorded)
    vacuum(table)
    assert set(read) == set(range(16))
    assert len(read) <= 16 + 5


def test_vacuum_works_on_a_log_without_commits(tmp_path: Path) -> None:
    """Another client's cleanup has left only a checkpoint, which has the tombstones."""
    table = replaced_long_ago(tmp_path / "t")
    for path in table.log.folder.glob("*.json"):
        path.unlink()
    assert vacuumed(Table.by_path(table.location)) == set()
    assert content(Table.by_path(table.location)) == [(2, "00")]


@pytest.mark.parametrize("tombstones", ["in the log", "only in a commit", "only in a checkpoint"])
def test_vacuum_keeps_files_whose_retention_ends_now(setting: Setting, tombstones: str) -> None:
    """The newest commit removed them. A checkpoint may have dropped the tombstones, and a cleanup the commit."""
    dropped = tombstones == "only in a commit"
    properties = {"delta.deletedFileRetentionDuration": "interval 0 seconds"} if dropped else {}
    table = setting.table(feature=None, properties=properties)
    table.append(rows(1))
    table.overwrite(rows(3))
    for path in table.location.rglob("*.*"):
        os.utime(path, (0, 0))
    clock = setting.host.clock
    os.utime(table.log.folder / log_path.commit(2), (clock / 1000, clock / 1000))
    if tombstones != "in the log":
        checkpoint_writing.write(table.snapshot())
    if tombstones == "only in a checkpoint":
        for path in table.log.folder.glob("*.json"):
            path.unlink()
    setting.host.clock += 7 * DAY
    assert vacuum(setting.again(table), older_than=7 * DAY).files == ()
    setting.host.clock += 1
    assert len(vacuum(setting.again(table), older_than=7 * DAY).files) == 1


def test_vacuum_keeps_files_that_a_running_transaction_may_have_written(table: Table) -> None:
    orphan = table.location / "month=01" / "part-00000-new.parquet"
    orphan.write_bytes(b"rows of a transaction that is not committed yet")
    assert vacuumed(table) == set()
    make_old(table, 8)
    assert vacuumed(table) == {"month=01/part-00000-new.parquet"}


@pytest.mark.parametrize("mode", [CommitMode.STAGED, CommitMode.INLINE], ids=lambda mode: mode.value)
def test_vacuum_keeps_the_files_of_unpublished_commits(warehouse: Warehouse, mode: CommitMode) -> None:
    table = warehouse.create_table("unpublished", SCHEMA, policy=POLICY, commit_mode=mode)
    table.append(rows(1, 2))
    before = content(table)
    assert not table.log.published(1)
    make_old(table)
    assert vacuumed(table, older_than=0, force=True) == set()
    assert content(table) == before


def test_vacuum_keeps_the_files_of_an_undecided_staged_commit(warehouse: Warehouse, table: Table) -> None:
    """The writer may still propose or rebase this commit."""
    deleted: list[str] = []

    def clean() -> None:
        make_old(table)
        deleted.extend(vacuumed(warehouse.table("sales"), older_than=-DAY, force=True))

    before_the_proposal(table, clean)
    table.append(rows(50))
    assert deleted == []
    assert len(content(table)) == 7


def test_vacuum_keeps_the_files_of_a_commit_that_lands_meanwhile(
    warehouse: Warehouse, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the moment at which VACUUM lists the staged files, one is ratified, published and removed."""
    transaction = warehouse.table("sales").transaction()
    transaction.add(*transaction.data_file_writer().write_all([rows(50)]))
    make_old(table)
    listing = data_maintenance._read_staged

    def landed(of: Table) -> dict[LogPath, bytes]:
        transaction.commit()
        table.publish()
        for path in (table.log.folder / "_staged_commits").iterdir():
            path.unlink()
        return listing(of)

    monkeypatch.setattr(data_maintenance, "_read_staged", landed)
    assert vacuumed(table) == set()
    assert len(content(table)) == 7


@pytest.mark.parametrize("path", ["month=00/../month=01/{}", "./month=01//{}", "file:{table}/month=00/../month=01/{}"])
def test_vacuum_keeps_a_file_with_an_unusual_path(warehouse: Warehouse, table: Table, path: str) -> None:
    """Delta's protocol: the path of a data file is a URI reference, which need not be normalized."""
    transaction = warehouse.table("sales").transaction()
    (add,) = transaction.data_file_writer().write_all([rows(51)])
    logged = path.format(add.path.rpartition("/")[2], table=table.location)
    transaction.add(msgspec.structs.replace(add, path=logged))
    transaction.commit()
    assert vacuumed(table, older_than=-DAY, force=True) == set()
    assert (51, "01") in content(table)


def test_vacuum_ignores_files_that_are_not_the_tables_data(warehouse: Warehouse, table: Table) -> None:
    kept = ["_hidden/a.parquet", ".b.parquet", "other/_delta_log/0.json", "other/c.parquet"]
    for name in [*kept, "_change_data/d.parquet", "e.parquet"]:
        path = table.location / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"-")
    outside = warehouse.directory / "outside"
    outside.mkdir()
    (outside / "f.parquet").write_bytes(b"-")
    (table.location / "link").symlink_to(outside)
    assert vacuumed(table, older_than=-DAY, force=True) == {"_change_data/d.parquet", "e.parquet"}
    assert all((table.location / name).exists() for name in kept)
    assert (outside / "f.parquet").exists()


@pytest.mark.parametrize(("operation", "suffix"), [("read", f"{UNDECIDED}.json"), ("unlink", ".parquet")])
def test_a_failing_disk_stops_vacuum(setting: Setting, storage: FailingFiles, operation: str, suffix: str) -> None:
    """A staged commit that cannot be read may need any file. A file that could not be deleted is not reported as
    deleted.
    """
    table = setting.table(policy=POLICY)
    table.append(rows(1))
    table.overwrite(rows(2))
    table.log.stage("_staged_commits", 3, UNDECIDED, b"")
    before = on_disk(table)
    with failing(storage, operation, suffix), pytest.raises(OSError, match="injected"):
        vacuum(table, older_than=-(10**13), force=True, dry_run=False)
    assert on_disk(table) == before


def test_newest_version_is_durable_before_vacuum_deletes(setting: Setting, storage: FailingFiles) -> None:
    """Its writer may not have synced it. After a power cut, the version before it would need the deleted files."""
    table = setting.table(None)
    table.append(rows(1))
    table.overwrite(rows(2))
    storage.done.clear()
    assert vacuum(table, older_than=-(10**13), force=True, dry_run=False).files
    done = [(operation, path.name) for operation, path in storage.done]
    synced = done.index(("fsync", log_path.commit(2))), done.index(("fsync_directory", "_delta_log"))
    assert synced[0] < synced[1] < [operation for operation, _ in done].index("unlink")


# Automatic checkpoints


def checkpoints(table: Table) -> list[int]:
    return [path.version for path in table.log.listing() if path.kind is FileKind.CLASSIC_CHECKPOINT]


@pytest.mark.parametrize(("properties", "expected"), [({}, [10]), ({"delta.checkpointInterval": "4"}, [4, 8])])
def test_a_checkpoint_is_written_after_every_interval(
    warehouse: Warehouse, properties: dict[str, str], expected: list[int]
) -> None:
    table = warehouse.create_table("often", SCHEMA, properties=properties)
    for number in range(11):
        table.append(rows(number))
    assert checkpoints(table) == expected
    assert len(content(warehouse.table("often"))) == 11


def test_a_commit_without_a_due_checkpoint_sends_no_more_requests(setting: Setting) -> None:
    table = setting.table()
    begun = table.snapshot()
    setting.owner.calls.clear()
    commit(table, lambda t: t.add(adding("a")), snapshot=begun, landed=table.checkpoint_if_due)
    assert set(setting.owner.calls) == {"commit"}


def test_an_automatic_checkpoint_is_of_the_newest_published_version(warehouse: Warehouse) -> None:
    """DELTA.md#checkpoint-published: an unpublished version gets no checkpoint."""
    properties = {"delta.checkpointInterval": "2"}
    table = warehouse.create_table("slow", SCHEMA, properties=properties, policy=POLICY)
    for number in range(5):
        table.append(rows(number))
        if number == 1:
            warehouse.owner.backfill_to_version(table.table_id or "", 1)
    assert checkpoints(table) == [1]


def test_a_commit_succeeds_although_its_checkpoint_fails(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = warehouse.create_table("full", SCHEMA, properties={"delta.checkpointInterval": "1"})
    monkeypatch.setattr(table.log, "overwrite", Mock(side_effect=OSError(28, "No space left on device")))
    assert table.append(rows(1)) is not None
    assert checkpoints(table) == []


# Missing data files
