"""Checkpoints, compactions, checksums and metadata cleanup: where they are allowed, and what they leave readable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl import actions, log_path
from refimpl.actions import Add, CommitInfo, DomainMetadata, Metadata, Remove
from refimpl.client.checkpoint import Checkpointed, write_checkpoint
from refimpl.client.checksum import write_checksum
from refimpl.client.cleanup import CleanedUp, clean_up
from refimpl.client.compaction import compact
from refimpl.client.data_files import DataFileWriter
from refimpl.client.retention import DELETED_FILES, LOG, retention
from refimpl.client.schema import parse
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.commit_owner import ALWAYS_ALLOWED, Maintenance, MaintenancePolicy
from refimpl.errors import (
    InvalidRequestError,
    InvalidTableError,
    MaintenanceRefusedError,
    NotFoundInHistoryError,
)
from refimpl.log_path import LAST_CHECKPOINT
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TABLE_FEATURES, TableFeature, Way
from spec_tests.client.conftest import ON_REQUEST, SCHEMA, Setting
from spec_tests.support.failing_files import FailingFiles
from spec_tests.support.other_readers import Rows, by_delta_rs, by_duckdb
from spec_tests.support.scripted_host import START, ScriptedHost

DAY = 86_400_000
GENEROUS = MaintenancePolicy(backfill_every=None, allowed=ALWAYS_ALLOWED | {Maintenance.METADATA_CLEANUP})
EVERY_COMMIT = MaintenancePolicy(backfill_every=1, allowed=ALWAYS_ALLOWED | {Maintenance.METADATA_CLEANUP})

every_kind = pytest.mark.parametrize(
    "feature", [None, *TABLE_FEATURES.values()], ids=lambda feature: feature.name if feature else "filesystem"
)
both = pytest.mark.parametrize("feature", TABLE_FEATURES.values(), ids=lambda feature: feature.name)


@pytest.fixture
def storage() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def host(storage: FailingFiles) -> ScriptedHost:
    return ScriptedHost(files=storage)


def backfill(setting: Setting, table: Table, version: int | None = None) -> None:
    if table.owner is not None and table.table_id is not None:
        setting.owner.backfill_to_version(table.table_id, version)


def written(setting: Setting, table: Table, rows: Rows) -> list[Add]:
    writer = DataFileWriter(table.location, parse(SCHEMA), ["month"], new_id=setting.environment.new_id)
    writer.write(pa.table({"id": [row[0] for row in rows], "month": [row[1] for row in rows]}))
    return [action for action in writer.finish() if isinstance(action, Add)]


def busy(setting: Setting, table: Table, commits: int) -> Rows:
    """So many commits with rows, the later ones replacing those of the first month; the rows that are left."""
    rows: Rows = []
    for number in range(commits):
        transaction = setting.again(table).transaction()
        new: Rows = [(number, f"{number % 3:02d}"), (number + 100, "ü/=%")]
        if number == commits - 1:
            gone = transaction.read_files("month = '00'")
            transaction.remove(*gone)
            rows = [row for row in rows if row[1] != "00"]
        transaction.add(*written(setting, table, new))
        transaction.claim("job", number)
        transaction.commit()
        rows += new
    return sorted(rows)


def state(snapshot: Snapshot) -> tuple[object, ...]:
    """What a snapshot holds, `dataChange` aside: a checkpoint does not keep it."""
    return (
        snapshot.version,
        snapshot.protocol,
        snapshot.metadata,
        {key: msgspec.structs.replace(add, data_change=True) for key, add in snapshot.files.items()},
        {key: msgspec.structs.replace(remove, data_change=True) for key, remove in snapshot.tombstones.items()},
        dict(snapshot.transactions),
        dict(snapshot.domains),
        snapshot.in_commit_timestamp,
    )


def names(table: Table) -> list[str]:
    return [path.name for path in table.log.listing()]


def hide(table: Table, *versions: int) -> None:
    for version in versions:
        table.log.delete(log_path.commit(version))


# Checkpoints


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
    assert write_checkpoint(table).version in (3, 4)
    assert table.log.published(write_checkpoint(table).version)


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


# Compactions


@every_kind
def test_a_compaction_stands_for_its_commits(setting: Setting, feature: TableFeature | None) -> None:
    """Delta's protocol, "Log Compaction Files"."""
    table = setting.table(feature, policy=EVERY_COMMIT if feature else None)
    rows = busy(setting, table, 5)
    before = table.snapshot()
    name = compact(table, 2, 5)
    assert name == log_path.compaction(2, 5)
    after = setting.again(table).snapshot()
    assert [path.name for path in after.segment.compactions] == [name]
    assert state(after) == state(before)
    found = actions.decode(table.log.read(name), source=name)
    assert not any(isinstance(action, CommitInfo) for action in found)
    keys = [action.key for action in found if isinstance(action, Add | Remove)]
    assert len(keys) == len(set(keys))
    assert any(isinstance(action, Remove) for action in found), "it hides a file that was added before it"
    if feature is None or feature.path_access:
        assert by_delta_rs(table.location) == rows


def test_a_compaction_keeps_removed_domains_and_the_latest_metadata(setting: Setting) -> None:
    table = setting.table(None)
    for work in ("set", "remove"):
        transaction = table.transaction()
        transaction.set_domain("some", "{}" if work == "set" else None)
        transaction.set_properties({"step": work})
        transaction.commit()
    found = actions.decode(table.log.read(compact(table, 1, 2)), source="compaction")
    assert [a.removed for a in found if isinstance(a, DomainMetadata)] == [True]
    assert [a.configuration["step"] for a in found if isinstance(a, Metadata)] == ["remove"]
    assert not setting.again(table).snapshot().domains


@both
def test_a_range_whose_end_is_not_published_is_not_compacted(setting: Setting, feature: TableFeature) -> None:
    """managed-commits and catalog-managed: `<y>.json` must exist. FB16."""
    table = setting.table(feature)
    busy(setting, table, 3)
    before = names(table)
    with pytest.raises(MaintenanceRefusedError):
        compact(table, 1, 3)
    assert names(table) == before
    backfill(setting, table)
    assert compact(table, 1, 3) == log_path.compaction(1, 3)


@pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 2), (-1, 2)])
def test_a_range_of_fewer_than_two_versions_is_no_compaction(setting: Setting, start: int, end: int) -> None:
    table = setting.table(None)
    busy(setting, table, 3)
    with pytest.raises(InvalidRequestError):
        compact(table, start, end)
    assert compact(table, 2, 3)


def test_commits_that_are_gone_are_not_compacted(setting: Setting) -> None:
    table = setting.table(None)
    busy(setting, table, 4)
    write_checkpoint(table, 2)
    hide(table, 0, 1)
    with pytest.raises(MaintenanceRefusedError) as caught:
        compact(table, 1, 3)
    assert caught.value.version == 1
    assert compact(table, 2, 3)


# Checksums


@both
def test_a_checksum_may_come_before_the_publication(setting: Setting, feature: TableFeature) -> None:
    """catalog-managed, "Maintenance Operations"; delta-facts 1."""
    table = setting.table(feature)
    busy(setting, table, 3)
    assert not table.log.published(3)
    name = write_checksum(table)
    assert name == log_path.checksum(3)
    snapshot = setting.again(table).snapshot()
    assert snapshot.segment.checksum is not None
    assert snapshot.warnings == ()
    found = json.loads(table.log.read(name))
    assert (found["numFiles"], found["tableSizeBytes"]) == (len(snapshot.files), snapshot.size_in_bytes)
    assert (found["numMetadata"], found["numProtocol"]) == (1, 1)
    assert found["inCommitTimestampOpt"] == snapshot.in_commit_timestamp
    assert found["setTransactions"] == [{"appId": "job", "version": 2, "lastUpdated": START}]


def test_a_checksum_that_is_there_stays(setting: Setting) -> None:
    table = setting.table(None)
    busy(setting, table, 1)
    table.log.put_if_absent(log_path.checksum(1), b"{}")
    assert write_checksum(table, 1) == log_path.checksum(1)
    assert table.log.read(log_path.checksum(1)) == b"{}"


# Metadata cleanup


def old(setting: Setting, table: Table, *, checkpoint: int | None = 4, compaction: bool = True) -> dict[str, object]:
    """Six commits, forty days ago, with a checkpoint, checksums and compactions."""
    busy(setting, table, 6)
    backfill(setting, table)
    for version in (2, 3, 5):
        write_checksum(table, version)
    if compaction:
        compact(table, 1, 2)
        compact(table, 5, 6)
    if checkpoint is not None:
        write_checkpoint(table, 1)
        write_checkpoint(table, checkpoint)
    setting.host.clock = START + 40 * DAY
    return {"newest": state(table.snapshot())}


def cleaned(setting: Setting, table: Table) -> CleanedUp:
    return clean_up(setting.again(table), older_than=30 * DAY)


@pytest.fixture
def stamped(setting: Setting) -> Callable[[TableFeature | None], Table]:
    """Tables whose commits carry the host's time, so that no file's modification time matters."""

    def make(feature: TableFeature | None) -> Table:
        if feature is None:
            return setting.table(None, in_commit_timestamps=True)
        return setting.table(feature, policy=GENEROUS)

    return make


@every_kind
def test_cleanup_keeps_the_cut_off_checkpoint_and_everything_after_it(
    setting: Setting, stamped: Callable[[TableFeature | None], Table], feature: TableFeature | None
) -> None:
    """managed-commits and catalog-managed, "Metadata Cleanup"; FB29, FB30: kept versions can be rebuilt."""
    table = stamped(feature)
    before = old(setting, table)
    kept = {version: state(table.snapshot(version=version)) for version in (4, 5, 6)}
    orphan = None
    if feature is not None:
        orphan = table.log.stage(feature.staging_folder, 4, setting.environment.new_id(), b"{}")
        later = table.log.stage(feature.staging_folder, 5, setting.environment.new_id(), b"{}")
    done = cleaned(setting, table)
    assert done.cut_off == 4
    checksums = {log_path.checksum(2), log_path.checksum(3), log_path.checksum(5)}
    if feature is None or feature.cleanup_deletes_checksums:
        checksums = {log_path.checksum(5)}
    assert set(names(table)) == checksums | {
        log_path.classic_checkpoint(4),
        log_path.commit(4),
        log_path.commit(5),
        log_path.commit(6),
        log_path.compaction(5, 6),
    }
    assert state(setting.again(table).snapshot()) == before["newest"]
    for version, expected in kept.items():
        assert state(setting.again(table).snapshot(version=version)) == expected
    with pytest.raises(NotFoundInHistoryError):
        setting.again(table).snapshot(version=3)
    if feature is not None and orphan is not None:
        staged = {path.name for path in table.log.staged_listing(feature.staging_folder)}
        assert orphan not in staged
        assert later in staged
        assert {path.version for path in table.log.staged_listing(feature.staging_folder)} == {5, 6}
    assert cleaned(setting, table).deleted == ()


@every_kind
def test_without_a_checkpoint_nothing_is_deleted(
    setting: Setting, stamped: Callable[[TableFeature | None], Table], feature: TableFeature | None
) -> None:
    """managed-commits and catalog-managed, "Metadata Cleanup": no cut-off checkpoint, no cleanup."""
    table = stamped(feature)
    old(setting, table, checkpoint=None)
    before = names(table)
    assert cleaned(setting, table) == CleanedUp(cut_off=None, deleted=())
    assert names(table) == before


def test_a_checkpoint_that_cannot_be_read_cuts_nothing_off(
    setting: Setting, stamped: Callable[[TableFeature | None], Table]
) -> None:
    """FB29: what is kept must really be readable; the older checkpoint serves."""
    table = stamped(None)
    old(setting, table)
    table.log.overwrite(log_path.classic_checkpoint(4), b"not Parquet")
    assert cleaned(setting, table).cut_off == 1
    assert state(setting.again(table).snapshot(version=2))
    assert setting.again(table).snapshot().version == 6


def test_young_commits_stay(setting: Setting, stamped: Callable[[TableFeature | None], Table]) -> None:
    """Only what is older than the retention: the table's property, thirty days by default."""
    table = stamped(CATALOG_MANAGED)
    old(setting, table)
    before = names(table)
    setting.host.clock = START + 30 * DAY - 1
    assert clean_up(setting.again(table)) == CleanedUp(cut_off=None, deleted=())
    assert names(table) == before
    setting.host.clock = START + 30 * DAY + 10
    assert clean_up(setting.again(table)).cut_off == 4


def test_the_newest_checkpoint_below_the_cut_off_counts(
    setting: Setting, stamped: Callable[[TableFeature | None], Table]
) -> None:
    """FB30: versions between the cut-off commit and the next checkpoint stay readable."""
    table = stamped(None)
    busy(setting, table, 3)
    write_checkpoint(table, 2)
    setting.host.clock = START + 40 * DAY
    busy(setting, table, 3)
    write_checkpoint(table, 5)
    done = clean_up(table, older_than=30 * DAY)
    assert done.cut_off == 2
    assert log_path.classic_checkpoint(2) in names(table)
    for version in range(2, 7):
        assert setting.again(table).snapshot(version=version).version == version


def test_the_pointer_never_names_what_was_deleted(
    setting: Setting, stamped: Callable[[TableFeature | None], Table]
) -> None:
    """FB31."""
    table = stamped(None)
    old(setting, table)
    stale = json.dumps({"version": 1, "size": 5}).encode()
    table.log.overwrite(LAST_CHECKPOINT, stale)
    cleaned(setting, table)
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 4


def test_a_staged_file_that_the_owner_still_lists_is_spared(setting: Setting) -> None:
    """requirements-notes, "cleanup": the owner may not know yet that a commit is published."""
    table = setting.table(MANAGED_COMMIT, policy=GENEROUS)
    busy(setting, table, 3)
    assert table.table_id is not None
    listed = {commit.version: commit for commit in setting.owner.get_commits(table.table_id).commits}
    for version in (1, 2, 3):  # published by somebody who did not tell the owner
        content = table.log.read_staged(MANAGED_COMMIT.staging_folder, str(listed[version].file_name))
        table.log.publish(version, content)
    setting.host.clock = START + 40 * DAY
    write_checkpoint(table, 3)
    still = setting.owner.get_commits(table.table_id).commits
    orphan = table.log.stage(MANAGED_COMMIT.staging_folder, 2, setting.environment.new_id(), b"{}")
    assert clean_up(table, older_than=30 * DAY).cut_off == 3
    staged = {path.name for path in table.log.staged_listing(MANAGED_COMMIT.staging_folder)}
    assert {commit.file_name for commit in still} <= staged
    assert orphan not in staged
    assert setting.again(table).snapshot().version == 3


@pytest.mark.parametrize("crash", range(0, 12, 3))
def test_an_interrupted_cleanup_goes_on_later(
    setting: Setting,
    storage: FailingFiles,
    stamped: Callable[[TableFeature | None], Table],
    crash: int,
) -> None:
    table = stamped(None)
    before = old(setting, table)
    left = [crash]

    def crash_after(operation: str, path: Path) -> bool:
        if operation == "unlink" and not path.name.startswith(".tmp-"):
            left[0] -= 1
            return left[0] < 0
        return False

    storage.fail_when = crash_after
    try:
        cleaned(setting, table)
    except OSError:
        storage.fail_when = lambda operation, path: False
        assert state(setting.again(table).snapshot()) == before["newest"]
        for version in (4, 5, 6):
            assert setting.again(table).snapshot(version=version).version == version
        assert cleaned(setting, table).cut_off == 4
    assert min(path.version for path in table.log.listing()) == 4


# Permission


def job_of(name: str) -> Callable[[Table], object]:
    jobs: dict[str, Callable[[Table], object]] = {
        "checkpoint": lambda table: write_checkpoint(table, 2),
        "log-compaction": lambda table: compact(table, 0, 2),
        "checksum": lambda table: write_checksum(table, 2),
        "metadata-cleanup": clean_up,
    }
    return jobs[name]


@both
@pytest.mark.parametrize("name", ["checkpoint", "log-compaction", "checksum", "metadata-cleanup"])
def test_every_job_asks_the_owner_anew(setting: Setting, feature: TableFeature, name: str) -> None:
    """catalog-managed, "Maintenance Operations", as tightened: three jobs always, the rest where allowed. FB06."""
    table = setting.table(feature, policy=MaintenancePolicy(backfill_every=1))
    busy(setting, table, 2)
    job = job_of(name)
    setting.owner.calls.clear()
    if name == "metadata-cleanup":
        before = names(table)
        with pytest.raises(MaintenanceRefusedError) as caught:
            job(table)
        assert caught.value.job is Maintenance.METADATA_CLEANUP
        assert names(table) == before
        assert table.table_id is not None
        setting.owner.owner.set_policy(table.table_id, EVERY_COMMIT)  # type: ignore[attr-defined]
    job(table)
    asked = setting.owner.calls["resolve"]
    job(table)
    assert setting.owner.calls["resolve"] == asked + 1


def test_an_owned_table_is_not_maintained_by_its_path(setting: Setting) -> None:
    table = setting.table(MANAGED_COMMIT, policy=MaintenancePolicy(backfill_every=1))
    busy(setting, table, 2)
    by_path = Table.by_path(table.location, setting.environment)
    for name in ("checkpoint", "log-compaction", "checksum", "metadata-cleanup"):
        with pytest.raises(MaintenanceRefusedError):
            job_of(name)(by_path)


def test_a_table_that_was_dropped_is_not_maintained(setting: Setting) -> None:
    table = setting.table(policy=MaintenancePolicy(backfill_every=1))
    busy(setting, table, 2)
    assert table.table_id is not None
    setting.owner.drop_table(table.table_id)
    with pytest.raises(InvalidRequestError):
        write_checkpoint(table, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 1 week", 7 * DAY),
        ("interval 2 days 12 hours", 2 * DAY + DAY // 2),
        ("INTERVAL 90 MINUTES", 5_400_000),
        ("30 seconds", 30_000),
        ("interval 5 milliseconds", 5),
    ],
)
def test_durations_are_read_as_delta_spells_them(text: str, expected: int) -> None:
    assert retention(Metadata(id="t", schema_string=SCHEMA, configuration={LOG: text}), LOG) == expected


@pytest.mark.parametrize("text", ["", "interval", "interval 1 month", "7", "interval 1 day and more"])
def test_a_duration_that_is_none_is_told(text: str) -> None:
    with pytest.raises(InvalidTableError):
        retention(Metadata(id="t", schema_string=SCHEMA, configuration={LOG: text}), LOG)
    plain = Metadata(id="t", schema_string=SCHEMA)
    assert (retention(plain, LOG), retention(plain, DELETED_FILES)) == (30 * DAY, 7 * DAY)


# Other readers


@pytest.mark.parametrize("feature", [None, MANAGED_COMMIT], ids=lambda f: f.name if f else "filesystem")
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_other_readers_see_the_same_rows(setting: Setting, feature: TableFeature | None, with_checkpoint: bool) -> None:
    """delta-facts 6: plain and backfilled managedCommit tables, by delta-rs and by DuckDB."""
    table = setting.table(feature, policy=EVERY_COMMIT if feature else None)
    rows = busy(setting, table, 6)
    if with_checkpoint:
        compact(table, 1, 3)
        write_checkpoint(table, 4)
        compact(table, 5, 6)
        write_checksum(table, 6)
        hide(table, 0, 1, 2, 3)
    assert by_delta_rs(table.location) == rows
    assert by_duckdb(table.location) == rows


@pytest.mark.parametrize("backfilled", [0, 3])
def test_duckdb_reads_a_catalog_managed_table_with_what_its_owner_says(setting: Setting, backfilled: int) -> None:
    """delta-facts 6: staged commits given as the log's tail."""
    table = setting.table(CATALOG_MANAGED, Way.STAGED, policy=ON_REQUEST)
    rows = busy(setting, table, 6)
    backfill(setting, table, backfilled)
    if backfilled:
        write_checkpoint(table, backfilled)
    assert table.table_id is not None
    answer = setting.owner.get_commits(table.table_id)
    found = by_duckdb(
        table.location,
        staging_folder=CATALOG_MANAGED.staging_folder,
        latest=answer.latest_ratified_version,
        commits=answer.commits,
    )
    assert found == rows


def test_the_rows_written_here_are_the_rows_that_are_expected(setting: Setting) -> None:
    """The twin of the tests above: a file that is left out is missed."""
    table = setting.table(None)
    rows = busy(setting, table, 2)
    transaction = table.transaction()
    transaction.remove(*transaction.read_files("month = '01'"))
    transaction.commit()
    assert by_delta_rs(table.location) == [row for row in rows if row[1] != "01"] != rows
