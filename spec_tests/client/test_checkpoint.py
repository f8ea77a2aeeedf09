"""Checkpoints: what they hold, where they are allowed, and the pointer to the last one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl import log_path
from refimpl.actions import DeletionVector
from refimpl.client import checkpoint
from refimpl.client.maintenance import Checkpointed, write_checkpoint
from refimpl.commit_owner import Maintenance
from refimpl.errors import (
    MaintenanceRefusedError,
)
from refimpl.log_path import LAST_CHECKPOINT
from refimpl.table_feature import TableFeature
from spec_tests.client.conftest import Setting
from spec_tests.support.busy_table import (
    DAY,
    EVERY_COMMIT,
    backfill,
    both,
    busy,
    every_kind,
    hide,
    names,
    state,
)
from spec_tests.support.faults import HOST_START as START
from spec_tests.support.faults import FailingFiles
from spec_tests.support.written_log import WrittenLog, add, remove


@every_kind
def test_a_checkpoint_holds_the_whole_state(setting: Setting, feature: TableFeature | None) -> None:
    """Delta's protocol, "Checkpoints": with it, older commits are not needed."""
    table = setting.table(feature, policy=EVERY_COMMIT if feature else None)
    rows = busy(setting, table, 5)
    transaction = table.transaction()
    transaction.set_domain("some", '{"a":1}')
    transaction.commit()
    before = table.snapshot()
    made = write_checkpoint(table)
    assert (made.version, made.name) == (6, log_path.classic_checkpoint(6))
    assert json.loads(table.log.read(LAST_CHECKPOINT)) == {
        "version": 6,
        "size": made.actions,
        "sizeInBytes": made.size,
        "numOfAddFiles": len(before.files),
    }
    assert made.actions == 2 + 1 + 1 + len(before.tombstones) + len(before.files)
    hide(table, *range(6))
    after = setting.again(table).snapshot()
    assert after.segment.checkpoint_version == 6
    assert state(after) == state(before)
    found = after.to_arrow()
    assert sorted(zip(found["id"].to_pylist(), found["month"].to_pylist(), strict=True)) == rows


@pytest.mark.parametrize("files", [0, 1, 2, 3, 4, 7])
def test_a_checkpoint_of_any_length_holds_every_action(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """A checkpoint is written in row groups, and read in batches."""
    monkeypatch.setattr(checkpoint, "ROWS_AT_ONCE", 3)
    table = setting.table(None)
    for kind in ("gone", "kept"):
        setting.append(table, *(f"{kind}-{number}" for number in range(files)))
    transaction = table.transaction()
    transaction.remove(*(add for add in transaction.read_whole_table() if add.path.startswith("gone")))
    for number in range(files):
        transaction.claim(f"application-{number}", number)
    transaction.commit()
    before = setting.again(table).snapshot()
    assert write_checkpoint(table).actions == 2 + 3 * files
    for version in range(4):
        table.log.delete(log_path.commit(version))
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda file, **options: batches(file, 2, **options))
    after = setting.again(table).snapshot()
    assert len(after.files) == files
    assert set(after.files) == set(before.files)
    assert set(after.tombstones) == set(before.tombstones)
    assert set(after.transactions) == set(before.transactions)


def test_a_checkpoint_keeps_deletion_vectors(tmp_path: Path) -> None:
    """`DELTA.md#file-identity`: a removed file is identified by its path with its deletion vector."""
    vector = DeletionVector(storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=9, cardinality=3)
    log = WrittenLog(tmp_path / "t").create()
    log.publish(1, remove("a", deletion_timestamp=10**15, deletion_vector=vector), add("a"))
    before = log.table().snapshot()
    write_checkpoint(log.table())
    for version in (0, 1):
        log.delete(log_path.commit(version))
    after = log.table().snapshot()
    assert [gone.deletion_vector for gone in after.tombstones.values()] == [vector]
    assert (set(after.files), set(after.tombstones)) == (set(before.files), set(before.tombstones))


def test_a_checkpoint_has_the_columns_that_other_readers_expect(setting: Setting) -> None:
    """Delta's protocol, "Checkpoint Schema": maps are maps, versions of the protocol are 32 bits wide."""
    table = setting.table(None)
    busy(setting, table, 2)
    made = write_checkpoint(table)
    file = pq.ParquetFile(pa.BufferReader(table.log.read(made.name)))
    schema = file.schema_arrow
    assert set(schema.names) == {"protocol", "metaData", "txn", "domainMetadata", "remove", "add"}
    assert schema.field("add").type.field("partitionValues").type == pa.map_(pa.string(), pa.string())
    assert schema.field("metaData").type.field("configuration").type == pa.map_(pa.string(), pa.string())
    assert schema.field("protocol").type.field("minReaderVersion").type == pa.int32()
    assert file.metadata.num_rows == made.actions
    rows = pq.read_table(pa.BufferReader(table.log.read(made.name))).to_pylist()
    assert all(sum(value is not None for value in row.values()) == 1 for row in rows)
    assert not any(row["add"] and row["add"]["dataChange"] for row in rows)


@both
def test_a_version_that_is_not_published_is_not_checkpointed(setting: Setting, feature: TableFeature) -> None:
    """managed-commits and catalog-managed, on checkpoints; FB16, FB17."""
    table = setting.table(feature)
    busy(setting, table, 3)
    before = names(table)
    with pytest.raises(MaintenanceRefusedError) as caught:
        write_checkpoint(table, 2)
    assert (caught.value.version, caught.value.job) == (2, Maintenance.CHECKPOINT)
    assert names(table) == before
    backfill(setting, table, 2)
    assert write_checkpoint(table, 2).version == 2
    assert setting.again(table).snapshot().version == 3


def test_the_newest_published_version_is_checkpointed_by_default(setting: Setting) -> None:
    table = setting.table()
    busy(setting, table, 4)
    backfill(setting, table, 3)
    newest = max(version for version in range(5) if table.log.published(version))
    assert write_checkpoint(table).version == newest >= 3


@pytest.mark.parametrize(("age", "kept"), [(7 * DAY - 1, True), (7 * DAY, False)])
def test_tombstones_stay_as_long_as_the_table_says(setting: Setting, age: int, kept: bool) -> None:
    """Delta's protocol: a removed file's tombstone stays until VACUUM may delete the file."""
    table = setting.table(None)
    busy(setting, table, 4)
    removed = set(table.snapshot().tombstones)
    assert removed
    setting.host.clock = START + age
    write_checkpoint(table)
    hide(table, *range(4))
    assert set(setting.again(table).snapshot().tombstones) == (removed if kept else set())


def test_the_pointer_moves_forward_only(setting: Setting) -> None:
    """FB31: an older checkpoint does not replace the pointer to a newer one."""
    table = setting.table(None)
    busy(setting, table, 4)
    write_checkpoint(table, 3)
    newer = table.log.read(LAST_CHECKPOINT)
    assert write_checkpoint(table, 1).version == 1
    assert table.log.read(LAST_CHECKPOINT) == newer
    write_checkpoint(table, 4)
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 4


def test_a_pointer_to_a_checkpoint_that_is_gone_is_replaced(setting: Setting) -> None:
    table = setting.table(None)
    busy(setting, table, 4)
    write_checkpoint(table, 3)
    table.log.delete(log_path.classic_checkpoint(3))
    write_checkpoint(table, 1)
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 1


def test_of_two_checkpoints_at_once_the_newer_is_pointed_to(setting: Setting, storage: FailingFiles) -> None:
    """FB31: the slower writer of the older checkpoint looks again after its own write."""
    table = setting.table(None)
    busy(setting, table, 4)
    waiting = [4]
    others: list[Checkpointed] = []

    def be_faster(operation: str, path: Path) -> bool:
        if operation == "replace" and path.name == LAST_CHECKPOINT and waiting:
            others.append(write_checkpoint(setting.again(table), waiting.pop()))
        return False

    storage.fail_when = be_faster  # runs before the replacement: the older pointer goes over the newer one
    write_checkpoint(table, 2)
    assert [made.version for made in others] == [4]
    pointer = json.loads(table.log.read(LAST_CHECKPOINT))
    assert (pointer["version"], pointer["size"]) == (4, others[0].actions)


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "replace"])
def test_a_checkpoint_that_fails_leaves_the_table_as_it_was(
    setting: Setting, storage: FailingFiles, operation: str
) -> None:
    table = setting.table(None)
    busy(setting, table, 3)
    before, files = state(table.snapshot()), sorted(path.name for path in table.log.folder.iterdir())
    storage.fail_when = lambda name, path: name == operation
    with pytest.raises(OSError, match="injected"):
        write_checkpoint(table)
    storage.fail_when = lambda name, path: False
    assert sorted(path.name for path in table.log.folder.iterdir()) == files
    assert state(setting.again(table).snapshot()) == before
