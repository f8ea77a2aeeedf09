"""Checksums and metadata cleanup: the files they write and delete, and the permission that every job needs
from the owner."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from conformance.adapters.reference.host_effects import Killed
from refimpl.care.verify import Severity, verify
from refimpl.client.create import create_filesystem_table
from refimpl.client.maintenance import CleanedUp, clean_up, write_checkpoint, write_checksum
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.actions import Metadata
from refimpl.protocol.commit_owner import Backfilled
from refimpl.protocol.commits import CommitsAnswer
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, InvalidTableError, MaintenanceRefusedError
from refimpl.protocol.log_path import LAST_CHECKPOINT, FileKind
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TableFeature
from refimpl.schema.properties import DELETED_FILES, LOG, retention
from refimpl.storage.environment import random_uuid
from refimpl.storage.log_store import LogStore
from spec_tests.client.conftest import (
    DAY,
    GENEROUS,
    SCHEMA,
    Setting,
    appending,
    backfill,
    both,
    busy,
    every_kind,
    failing,
    names,
    state,
)
from spec_tests.storage.test_log_store import LOCATION, left
from spec_tests.storage.test_log_store import host as simulated
from spec_tests.support.faults import HOST_START as START
from spec_tests.support.faults import FailingFiles
from spec_tests.support.written_log import classic_content, lines, parquet, row, uuid


@both
def test_a_commit_published_during_a_look_at_the_history_is_found(
    setting: Setting, feature: TableFeature, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks the owner before it lists the log. In the other order, such a commit would be in
    neither answer.
    """
    table = setting.table(feature, policy=GENEROUS)
    busy(setting, table, 5)
    backfill(setting, table, 2)
    snapshot = table.snapshot()
    ask, published = setting.owner.get_commits, iter((5,))

    def publish_then_answer(table_id: str, start: int | None = None, end: int | None = None) -> CommitsAnswer:
        backfill(setting, table, next(published))
        return ask(table_id, start, end)

    monkeypatch.setattr(setting.owner, "get_commits", publish_then_answer)
    times = snapshot.commit_times()
    assert (times.first, times.last) == (0, 5)
    assert next(published, None) is None, "version 5 must be published meanwhile"


@both
def test_a_checksum_may_be_written_before_the_publication(setting: Setting, feature: TableFeature) -> None:
    """catalog-managed, "Maintenance Operations"; DELTA.md#checksum-any-version."""
    table = setting.table(feature)
    busy(setting, table, 3)
    assert not table.log.published(3)
    name = write_checksum(table)
    assert name == log_path.checksum(3)
    snapshot = setting.again(table).snapshot()
    assert snapshot.loaded.segment.checksum is not None
    assert snapshot.warnings == ()
    checksum = json.loads(table.log.read(name))
    assert (checksum["numFiles"], checksum["tableSizeBytes"]) == (len(snapshot.files), snapshot.size_in_bytes)
    assert (checksum["numMetadata"], checksum["numProtocol"]) == (1, 1)
    assert checksum["inCommitTimestampOpt"] == snapshot.in_commit_timestamp
    assert checksum["setTransactions"] == [{"appId": "job", "version": 2, "lastUpdated": START}]


@pytest.mark.parametrize(("job", "name"), [(write_checkpoint, LAST_CHECKPOINT), (write_checksum, log_path.checksum(2))])
def test_a_file_that_cannot_be_written_is_an_error(
    setting: Setting, storage: FailingFiles, job: Callable[[Table], object], name: str
) -> None:
    table = setting.table(None)
    busy(setting, table, 2)
    with failing(storage, "link replace", name), pytest.raises(OSError, match="injected"):
        job(table)
    assert setting.again(table).snapshot().version == 2


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
def test_deltas_spellings_of_a_duration_are_read(text: str, expected: int) -> None:
    assert retention(Metadata(id="t", schema_string=SCHEMA, configuration={LOG: text}), LOG) == expected


@pytest.mark.parametrize("text", ["", "interval", "interval 1 month", "7", "interval 1 day and more"])
def test_an_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(InvalidTableError):
        retention(Metadata(id="t", schema_string=SCHEMA, configuration={LOG: text}), LOG)
    plain = Metadata(id="t", schema_string=SCHEMA)
    assert (retention(plain, LOG), retention(plain, DELETED_FILES)) == (30 * DAY, 7 * DAY)


# Publishing by a client: DELTA.md#publish


def test_commits_are_durable_and_in_order_before_they_are_reported(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(CATALOG_MANAGED)
    busy(setting, table, 3)
    storage.done.clear()
    reported: list[list[tuple[str, object]]] = []
    report = setting.owner.owner.report_published

    def watched(table_id: str, through: int) -> None:
        reported.append(list(storage.done))
        report(table_id, through)

    setting.owner.owner.report_published = watched  # type: ignore[method-assign]
    table.publish()
    steps = [
        step
        for version in (1, 2, 3)
        for step in (("link", table.log.folder / log_path.commit(version)), ("fsync_directory", table.log.folder))
    ]
    assert [step for step in reported[0] if step in steps] == steps


def test_nothing_is_published_above_a_missing_version(setting: Setting) -> None:
    """The owner's list begins above the missing version, which must be published first."""
    table = setting.table(CATALOG_MANAGED)
    busy(setting, table, 3)
    table.publish(1)
    table.log.delete(log_path.commit(1))
    with pytest.raises(CorruptLogError) as caught:
        table.publish()
    assert caught.value.missing_version == 1
    assert table.log.published_versions() == {0}


@pytest.mark.parametrize("staged", ["kept", "removed", "removed before the cleanup"])
@pytest.mark.parametrize("by_client", [True, False], ids=["client", "owner"])
def test_commits_are_published_again_after_a_cleanup(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, staged: str, by_client: bool
) -> None:
    """A client published its commits and died before it reported that. A cleanup deleted all log files but the newest:
    the checkpoint proves that the versions before it were published, also those whose staged files another client
    removed."""
    table = setting.table(CATALOG_MANAGED, policy=GENEROUS)
    rows = busy(setting, table, 3)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(setting.owner.owner, "report_published", Mock(side_effect=Killed))
        table.publish()
    write_checkpoint(table)
    setting.host.clock += DAY
    assert clean_up(table, older_than=0).cut_off == 3
    assert table.log.published_versions() == {3}
    if staged != "kept":
        for path in table.log.staged_listing(CATALOG_MANAGED.staging_folder):
            table.log.delete(f"{CATALOG_MANAGED.staging_folder}/{path.name}")
    assert {finding.severity for finding in verify(setting.owner.owner)} <= {Severity.NOTE}
    if staged == "removed before the cleanup":  # which begins after this process has seen the published files
        monkeypatch.setattr(LogStore, "published", lambda log, version: version <= 3)
    if by_client:
        assert setting.again(table).publish() == Backfilled(through=3, published=3)
    else:
        backfill(setting, table, 3)
    assert setting.owner.get_commits(table.table_id or "").commits == ()
    read = setting.again(table).snapshot().to_arrow(["id", "month"]).to_pylist()
    assert sorted((row["id"], row["month"]) for row in read) == rows


def test_a_report_of_unpublished_commits_is_rejected(setting: Setting) -> None:
    table = setting.table(CATALOG_MANAGED)
    busy(setting, table, 2)
    with pytest.raises(InvalidRequestError, match="not published"):
        setting.owner.report_published(table.table_id or "", 2)
    assert len(setting.owner.get_commits(table.table_id or "").commits) == 2


def test_publishing_is_refused_if_clients_may_not_publish(setting: Setting) -> None:
    """managed-commits: only the owner backfills."""
    managed, plain = setting.table(MANAGED_COMMIT, name="managed"), setting.table(None, name="plain")
    busy(setting, managed, 2)
    catalog = setting.table(CATALOG_MANAGED, name="catalog")
    for table, version in ((managed, None), (plain, None), (catalog, 7)):
        with pytest.raises(InvalidRequestError):
            table.publish(version)
        assert table.log.published_versions() == {0}


# Metadata cleanup


def old(setting: Setting, table: Table, *, checkpoint: int | None = 4, compaction: bool = True) -> dict[str, object]:
    """Six commits from forty days ago, with a checkpoint, checksums and compactions."""
    busy(setting, table, 6)
    backfill(setting, table)
    for version in (2, 3, 4, 5):
        write_checksum(table, version)
    if compaction:
        for start, end in ((1, 2), (4, 6), (5, 6)):  # of another writer; this client does not read them
            table.log.overwrite(f"{start:020d}.{end:020d}.compacted.json", b"{")
    if checkpoint is not None:
        write_checkpoint(table, 1)
        write_checkpoint(table, checkpoint)
    setting.host.clock = START + 40 * DAY
    return {"newest": state(table.snapshot())}


def stamped(setting: Setting, feature: TableFeature | None = None) -> Table:
    """A table whose commits carry the host's time, so that a file's modification time does not matter."""
    options: dict[str, Any] = {"policy": GENEROUS} if feature else {"in_commit_timestamps": True}
    return setting.table(feature, **options)


def cleaned(setting: Setting, table: Table) -> CleanedUp:
    return clean_up(setting.again(table), older_than=30 * DAY)


def test_deletions_are_durable_when_they_are_reported(setting: Setting, storage: FailingFiles) -> None:
    """A power cut must not bring some of the files back: the log would have a gap."""
    table = stamped(setting)
    old(setting, table)
    storage.done.clear()
    with failing(storage, "fsync_directory"), pytest.raises(OSError, match="injected"):
        cleaned(setting, table)
    table.log.put_if_absent(log_path.commit(0), b"{}")
    assert cleaned(setting, table).deleted
    assert storage.done[-1] == ("fsync_directory", table.log.folder)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_checkpoint_is_durable_before_its_commits_are_deleted(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer synced nothing, or one of its syncs failed. After a power cut, the table must still have its files."""
    cleanups = 0
    for failed in range(8):
        at = simulated()
        environment = dataclasses.replace(at.log.environment, new_id=random_uuid)
        properties = {"delta.checkpointPolicy": policy}
        table = create_filesystem_table(
            LOCATION, environment, SCHEMA, partition_columns=["month"], properties=properties
        )
        for name in "ab":
            appending(table, name).commit()
        at.files.make_directory(at.folder / "_sidecars")
        at.disk.sync_everything()
        with monkeypatch.context() as patched, contextlib.suppress(OSError):
            at.disk.failing_sync = at.disk.syncs + failed
            for sync in ("sync", "sync_directory") if not failed else ():
                patched.setattr(at.disk, sync, lambda _: None)
            write_checkpoint(table)
        at.disk.failing_sync = None
        cleanups += bool(clean_up(Table.by_path(LOCATION, environment), older_than=-DAY).deleted)
        for disk in left(at.disk):
            assert len(Table.by_path(LOCATION, simulated(disk).log.environment).snapshot().files) == 2, failed
    assert cleanups > 3


def test_an_unreadable_checkpoint_is_no_cut_off(setting: Setting) -> None:
    """FB29: the kept versions must be readable, so the cut-off is the older checkpoint."""
    table = stamped(setting)
    old(setting, table)
    table.log.overwrite(log_path.classic_checkpoint(4), b"not Parquet")
    assert cleaned(setting, table).cut_off == 1
    assert state(setting.again(table).snapshot(version=2))
    assert setting.again(table).snapshot().version == 6


def test_young_commits_stay(setting: Setting) -> None:
    """Cleanup deletes only files older than the retention: the table's property, or thirty days by default."""
    table = stamped(setting, CATALOG_MANAGED)
    old(setting, table)
    before = names(table)
    setting.host.clock = START + 30 * DAY - 1
    assert clean_up(setting.again(table)) == CleanedUp(cut_off=None, deleted=())
    assert names(table) == before
    setting.host.clock = START + 30 * DAY + 10
    assert clean_up(setting.again(table)).cut_off == 4


@pytest.mark.parametrize("v2", [False, True])
def test_nothing_is_deleted_until_the_pointer_is_moved(setting: Setting, storage: FailingFiles, v2: bool) -> None:
    table = stamped(setting)
    old(setting, table, checkpoint=3 if v2 else 4)
    if v2:
        v2_checkpoint(table, 4, "json", age=2 * DAY)
    table.log.overwrite(LAST_CHECKPOINT, json.dumps({"version": 1, "size": 5}).encode())
    before = names(table)
    with failing(storage, "replace", LAST_CHECKPOINT), pytest.raises(OSError, match="injected"):
        cleaned(setting, table)
    assert names(table) == before
    assert cleaned(setting, table).cut_off == 4
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 4


def test_the_pointer_is_moved_to_a_readable_checkpoint(setting: Setting) -> None:
    table = stamped(setting)
    old(setting, table)
    write_checkpoint(table, 6)
    table.log.overwrite(log_path.classic_checkpoint(6), b"not Parquet")
    table.log.overwrite(LAST_CHECKPOINT, json.dumps({"version": 1, "size": 5}).encode())
    assert cleaned(setting, table).cut_off == 4
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 4
    assert setting.again(table).snapshot().version == 6


@pytest.mark.parametrize("crash", range(0, 12, 3))
def test_an_interrupted_cleanup_is_completed_later(setting: Setting, storage: FailingFiles, crash: int) -> None:
    table = stamped(setting)
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
        left_over = [path.version for path in table.log.listing() if path.kind is FileKind.COMMIT]
        assert left_over == list(range(left_over[0], 7)), "the deleted commits must be the oldest ones"
        assert state(setting.again(table).snapshot()) == before["newest"]
        for version in (4, 5, 6):
            assert setting.again(table).snapshot(version=version).version == version
        assert cleaned(setting, table).cut_off == 4
    left_over = [(path.kind, path.start_version or path.version) for path in table.log.listing()]
    assert [first for kind, first in left_over if kind is FileKind.CHECKSUM] == [4, 5], (
        "a reader compares with the first"
    )
    assert [first for kind, first in left_over if kind is FileKind.COMPACTION] == [5]
    assert min(first for _, first in left_over) == 4


def test_a_cleanup_that_another_one_overtakes_deletes_nothing(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = stamped(setting)
    old(setting, table)
    before = table.log.listing()
    monkeypatch.setattr(LogStore, "overwrite", Mock(side_effect=FileNotFoundError("deleted")))
    with pytest.raises(MaintenanceRefusedError, match="another cleanup"):
        cleaned(setting, table)
    assert table.log.listing() == before


@both
def test_staged_files_up_to_the_cut_off_are_deleted(setting: Setting, feature: TableFeature) -> None:
    """managed-commits and catalog-managed, "Metadata Cleanup"; FB29, FB30."""
    table = stamped(setting, feature)
    old(setting, table)
    orphan, later = (
        table.log.stage(feature.staging_folder, version, setting.environment.new_id(), b"{}") for version in (4, 5)
    )
    assert cleaned(setting, table).cut_off == 4
    staged = {path.name for path in table.log.staged_listing(feature.staging_folder)}
    assert (orphan in staged, later in staged) == (False, True)
    assert cleaned(setting, table).deleted == ()


def v2_checkpoint(table: Table, version: int, extension: str, *, age: int) -> str:
    """Write a checkpoint whose files are in a sidecar of this age in ms; return the sidecar's name."""
    snapshot = table.snapshot(version=version)
    sidecar = f"_sidecars/{version}-{age}.parquet"
    (table.log.folder / "_sidecars").mkdir(exist_ok=True)
    content = classic_content(list(snapshot.files.values()))
    table.log.overwrite(sidecar, content)
    modified = table.environment.now() - age
    os.utime(table.log.folder / sidecar, ns=(modified * 1_000_000, modified * 1_000_000))
    named = {"path": sidecar.rpartition("/")[2], "sizeInBytes": len(content), "modificationTime": modified}
    rows = [{"checkpointMetadata": {"version": version}}, {"sidecar": named}, row(snapshot.protocol)]
    rows.append(row(snapshot.metadata))
    name = f"{version:020d}.checkpoint.{uuid(version)}.{extension}"
    table.log.overwrite(name, lines(rows) if extension == "json" else parquet(rows))
    return sidecar


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_sidecars_are_deleted_with_the_last_checkpoint_that_names_them(setting: Setting, extension: str) -> None:
    """Young sidecars stay: they may belong to a checkpoint that another process is writing."""
    table = stamped(setting)
    busy(setting, table, 6)
    setting.host.clock = START + 40 * DAY
    gone = {v2_checkpoint(table, version, extension, age=2 * DAY) for version in (2, 4)}
    young = v2_checkpoint(table, 1, extension, age=DAY - 1)
    newest = v2_checkpoint(table, 6, extension, age=2 * DAY)
    done = cleaned(setting, table)
    assert done.cut_off == 6
    assert gone < set(done.deleted)
    assert {f"_sidecars/{file.name}" for file in table.log.sidecars()} == {young, newest}
    assert setting.again(table).snapshot().version == 6


@every_kind
def test_old_temporary_files_are_deleted(setting: Setting, feature: TableFeature | None) -> None:
    """A writer died before it deleted them. A young one stays, because a running write may need it."""
    table = stamped(setting, feature)
    old(setting, table)
    for name, age in ((".tmp-dead", 2 * DAY), (".tmp-alive", 0)):
        (table.log.folder / name).write_bytes(b"half")
        time = (setting.host.clock - age) / 1000
        os.utime(table.log.folder / name, (time, time))
    assert ".tmp-dead" in cleaned(setting, table).deleted
    assert [name for name, _ in table.log.temporaries()] == [".tmp-alive"]


def test_sidecars_stay_while_a_checkpoint_is_unreadable(setting: Setting) -> None:
    """The unreadable checkpoint may name any of the sidecars."""
    table = stamped(setting)
    busy(setting, table, 6)
    setting.host.clock = START + 40 * DAY
    sidecars = {v2_checkpoint(table, version, "json", age=2 * DAY) for version in (2, 4)}
    table.log.overwrite(log_path.classic_checkpoint(6), b"not Parquet")
    assert cleaned(setting, table).cut_off == 4
    assert {f"_sidecars/{file.name}" for file in table.log.sidecars()} == sidecars
