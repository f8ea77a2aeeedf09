"""Metadata cleanup: which files it deletes, which it keeps, and which versions stay readable."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from refimpl import log_path
from refimpl.client.maintenance import CleanedUp, clean_up, compact, write_checkpoint, write_checksum
from refimpl.client.table import Table
from refimpl.errors import NotFoundInHistoryError
from refimpl.log_path import LAST_CHECKPOINT, FileKind
from refimpl.table_feature import CATALOG_MANAGED, TableFeature
from spec_tests.client.conftest import DAY, GENEROUS, Setting, backfill, busy, every_kind, names, state
from spec_tests.support.faults import HOST_START as START
from spec_tests.support.faults import FailingFiles
from spec_tests.support.written_log import classic_content, lines, parquet, row, uuid


def old(setting: Setting, table: Table, *, checkpoint: int | None = 4, compaction: bool = True) -> dict[str, object]:
    """Six commits from forty days ago, with a checkpoint, checksums and compactions."""
    busy(setting, table, 6)
    backfill(setting, table)
    for version in (2, 3, 4, 5):
        write_checksum(table, version)
    if compaction:
        compact(table, 1, 2)
        compact(table, 4, 6)
        compact(table, 5, 6)
    if checkpoint is not None:
        write_checkpoint(table, 1)
        write_checkpoint(table, checkpoint)
    setting.host.clock = START + 40 * DAY
    return {"newest": state(table.snapshot())}


def cleaned(setting: Setting, table: Table) -> CleanedUp:
    return clean_up(setting.again(table), older_than=30 * DAY)


def test_deletions_are_durable_when_they_are_reported(
    setting: Setting, storage: FailingFiles, stamped: Callable[[TableFeature | None], Table]
) -> None:
    """A power cut must not bring some of the files back: the log would have a gap."""
    table = stamped(None)
    old(setting, table)
    storage.done.clear()
    storage.fail_when = lambda operation, path: operation == "fsync_directory"
    with pytest.raises(OSError, match="injected"):
        cleaned(setting, table)
    storage.fail_when = lambda operation, path: False
    table.log.put_if_absent(log_path.commit(0), b"{}")
    assert cleaned(setting, table).deleted
    assert storage.done[-1] == ("fsync_directory", table.log.folder)


@pytest.fixture
def stamped(setting: Setting) -> Callable[[TableFeature | None], Table]:
    """Tables whose commits carry the host's time, so that a file's modification time does not matter."""

    def make(feature: TableFeature | None) -> Table:
        if feature is None:
            return setting.table(None, in_commit_timestamps=True)
        return setting.table(feature, policy=GENEROUS)

    return make


@every_kind
def test_cleanup_keeps_everything_from_the_cut_off_checkpoint(
    setting: Setting, stamped: Callable[[TableFeature | None], Table], feature: TableFeature | None
) -> None:
    """managed-commits and catalog-managed, "Metadata Cleanup"; FB29, FB30: the kept versions stay readable."""
    table = stamped(feature)
    before = old(setting, table)
    kept = {version: state(table.snapshot(version=version)) for version in (4, 5, 6)}
    orphan = None
    if feature is not None:
        orphan = table.log.stage(feature.staging_folder, 4, setting.environment.new_id(), b"{}")
        later = table.log.stage(feature.staging_folder, 5, setting.environment.new_id(), b"{}")
    done = cleaned(setting, table)
    assert done.cut_off == 4
    kept_checksums = (4, 5) if feature is None or feature.cleanup_deletes_checksums else (2, 3, 4, 5)
    checksums = {log_path.checksum(version) for version in kept_checksums}
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


def test_an_unreadable_checkpoint_is_no_cut_off(
    setting: Setting, stamped: Callable[[TableFeature | None], Table]
) -> None:
    """FB29: the kept versions must be readable, so the cut-off is the older checkpoint."""
    table = stamped(None)
    old(setting, table)
    table.log.overwrite(log_path.classic_checkpoint(4), b"not Parquet")
    assert cleaned(setting, table).cut_off == 1
    assert state(setting.again(table).snapshot(version=2))
    assert setting.again(table).snapshot().version == 6


def test_young_commits_stay(setting: Setting, stamped: Callable[[TableFeature | None], Table]) -> None:
    """Cleanup deletes only files older than the retention: the table's property, or thirty days by default."""
    table = stamped(CATALOG_MANAGED)
    old(setting, table)
    before = names(table)
    setting.host.clock = START + 30 * DAY - 1
    assert clean_up(setting.again(table)) == CleanedUp(cut_off=None, deleted=())
    assert names(table) == before
    setting.host.clock = START + 30 * DAY + 10
    assert clean_up(setting.again(table)).cut_off == 4


@pytest.mark.parametrize("v2", [False, True])
def test_nothing_is_deleted_until_the_pointer_is_moved(
    setting: Setting, storage: FailingFiles, stamped: Callable[[TableFeature | None], Table], v2: bool
) -> None:
    table = stamped(None)
    old(setting, table, checkpoint=3 if v2 else 4)
    if v2:
        v2_checkpoint(table, 4, "json", age=2 * DAY)
    table.log.overwrite(LAST_CHECKPOINT, json.dumps({"version": 1, "size": 5}).encode())
    before = names(table)
    storage.fail_when = lambda operation, path: operation == "replace" and path.name == LAST_CHECKPOINT
    with pytest.raises(OSError, match="injected"):
        cleaned(setting, table)
    assert names(table) == before
    storage.fail_when = lambda operation, path: False
    assert cleaned(setting, table).cut_off == 4
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 4


def test_the_pointer_is_moved_to_a_readable_checkpoint(
    setting: Setting, stamped: Callable[[TableFeature | None], Table]
) -> None:
    table = stamped(None)
    old(setting, table)
    write_checkpoint(table, 6)
    table.log.overwrite(log_path.classic_checkpoint(6), b"not Parquet")
    table.log.overwrite(LAST_CHECKPOINT, json.dumps({"version": 1, "size": 5}).encode())
    assert cleaned(setting, table).cut_off == 4
    assert json.loads(table.log.read(LAST_CHECKPOINT))["version"] == 4
    assert setting.again(table).snapshot().version == 6


@pytest.mark.parametrize("crash", range(0, 12, 3))
def test_an_interrupted_cleanup_is_completed_later(
    setting: Setting, storage: FailingFiles, stamped: Callable[[TableFeature | None], Table], crash: int
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
        left_over = [path.version for path in table.log.listing() if path.kind is FileKind.COMMIT]
        assert left_over == list(range(left_over[0], 7)), "the deleted commits must be the oldest ones"
        assert state(setting.again(table).snapshot()) == before["newest"]
        for version in (4, 5, 6):
            assert setting.again(table).snapshot(version=version).version == version
        assert cleaned(setting, table).cut_off == 4
    assert min(path.version for path in table.log.listing()) == 4


def v2_checkpoint(table: Table, version: int, extension: str, *, age: int) -> str:
    """Write a checkpoint whose files are in a sidecar of this age in ms; return the sidecar's name."""
    snapshot = table.snapshot(version=version)
    sidecar = f"_sidecars/{version}-{age}.parquet"
    (table.log.folder / "_sidecars").mkdir(exist_ok=True)
    table.log.overwrite(sidecar, classic_content(list(snapshot.files.values())))
    modified = table.environment.now() - age
    os.utime(table.log.folder / sidecar, ns=(modified * 1_000_000, modified * 1_000_000))
    named = {"path": sidecar.rpartition("/")[2], "sizeInBytes": 1, "modificationTime": modified}
    rows = [{"checkpointMetadata": {"version": version}}, {"sidecar": named}, row(snapshot.protocol)]
    rows.append(row(snapshot.metadata))
    name = f"{version:020d}.checkpoint.{uuid(version)}.{extension}"
    table.log.overwrite(name, lines(rows) if extension == "json" else parquet(rows))
    return sidecar


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_sidecars_are_deleted_with_the_last_checkpoint_that_names_them(
    setting: Setting, stamped: Callable[[TableFeature | None], Table], extension: str
) -> None:
    """Young sidecars stay: they may belong to a checkpoint that another process is writing."""
    table = stamped(None)
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


def test_our_own_sidecars_are_deleted_with_their_checkpoint(setting: Setting) -> None:
    table = setting.table(None, in_commit_timestamps=True, properties={"delta.checkpointPolicy": "v2"})
    busy(setting, table, 6)
    expected = state(table.snapshot())
    sidecars = {}
    for version in (2, 4):
        write_checkpoint(table, version)
        sidecars[version] = {file.name for file in table.log.sidecars()} - set().union(*sidecars.values())
    for file in table.log.sidecars():
        os.utime(table.log.folder / "_sidecars" / file.name, (START / 1000, START / 1000))
    setting.host.clock = START + 40 * DAY
    assert cleaned(setting, table).cut_off == 4
    assert {file.name for file in table.log.sidecars()} == sidecars[4]
    assert sidecars[2], "the deleted checkpoint must have had sidecars"
    assert state(setting.again(table).snapshot()) == expected


def test_sidecars_stay_while_a_checkpoint_is_unreadable(
    setting: Setting, stamped: Callable[[TableFeature | None], Table]
) -> None:
    """The unreadable checkpoint may name any of the sidecars."""
    table = stamped(None)
    busy(setting, table, 6)
    setting.host.clock = START + 40 * DAY
    sidecars = {v2_checkpoint(table, version, "json", age=2 * DAY) for version in (2, 4)}
    table.log.overwrite(log_path.classic_checkpoint(6), b"not Parquet")
    assert cleaned(setting, table).cut_off == 4
    assert {f"_sidecars/{file.name}" for file in table.log.sidecars()} == sidecars
