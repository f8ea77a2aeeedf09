"""Storage that fails under a writer, and writers so late that a cleanup took the commits to be checked against."""

from pathlib import Path

import pyarrow as pa
import pytest

from refimpl import log_path
from refimpl.client.create import create_filesystem_table
from refimpl.client.maintenance import clean_up, write_checkpoint
from refimpl.client.ownership import take_over
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.errors import ConcurrentModificationError, LocationError, OutcomeUnknown, OwnerUnavailableError
from refimpl.log_path import LAST_CHECKPOINT, LOG_FOLDER
from refimpl.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, TableFeature
from spec_tests.client.conftest import GENEROUS, SCHEMA, Setting, adding, appending, backfill, every_kind, hide, names
from spec_tests.support.faults import FailingFiles


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "fsync_directory"])
def test_a_staged_file_that_cannot_be_made_durable_is_not_proposed(
    setting: Setting, storage: FailingFiles, operation: str
) -> None:
    """A full disk: nothing is changed, and the same work lands once there is room."""
    table = setting.table()
    transaction = appending(table, "mine")
    staging = table.log.folder / CATALOG_MANAGED.staging_folder
    storage.fail_when = lambda name, path: name == operation and staging in (path, path.parent)
    setting.owner.proposals.clear()
    with pytest.raises(OwnerUnavailableError):
        transaction.commit()
    assert setting.owner.proposals == []
    storage.fail_when = lambda name, path: False
    assert setting.again(table).snapshot().version == 0
    assert appending(table, "mine").commit().version == 1


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "link"])
def test_a_filesystem_commit_without_its_link_did_not_land(
    setting: Setting, storage: FailingFiles, operation: str
) -> None:
    table = setting.table(None)
    transaction = appending(table, "mine")
    storage.fail_when = lambda name, path: name == operation
    with pytest.raises(OwnerUnavailableError):
        transaction.commit()
    storage.fail_when = lambda name, path: False
    assert setting.again(table).snapshot().version == 0
    assert appending(table, "mine").commit().version == 1


def test_a_visible_commit_with_a_failed_fsync_is_unknown(setting: Setting, storage: FailingFiles) -> None:
    """After a failed fsync the outcome is unknown; the commit is not repeated."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    storage.fail_when = lambda name, path: name == "fsync_directory" and path.name == LOG_FOLDER
    with pytest.raises(OutcomeUnknown) as caught:
        transaction.commit()
    assert caught.value.version == 1
    storage.fail_when = lambda name, path: False
    assert setting.paths(table) == {"mine"}


def test_a_commit_that_cannot_be_read_back_keeps_its_data(setting: Setting, storage: FailingFiles) -> None:
    """The disk fails right after the link: the commit is visible, so the rows that it names must stay."""
    table = setting.table(None)
    table.snapshot()
    storage.fail_when = lambda name, path: (
        ("link", table.log.folder / log_path.commit(1)) in storage.done and (name in ("fsync_directory", "read"))
    )
    with pytest.raises(OutcomeUnknown):
        table.append(pa.table({"id": [1], "month": ["01"]}))
    storage.fail_when = lambda name, path: False
    assert setting.again(table).snapshot().to_arrow().num_rows == 1


def test_a_staged_commit_that_cannot_be_read_is_an_error(setting: Setting, storage: FailingFiles) -> None:
    """Only one that is gone is looked for among the published ones."""
    table = setting.table()
    setting.append(table, "a")
    storage.fail_when = lambda name, path: name == "read" and path.parent.name == CATALOG_MANAGED.staging_folder
    with pytest.raises(OSError, match="injected"):
        setting.again(table).snapshot()


def test_a_filesystem_commit_recognises_its_own_bytes(setting: Setting, storage: FailingFiles) -> None:
    """FB24: the link succeeded, its answer did not arrive; the file that is there is this commit's."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    linked: list[str] = []

    def lie_once(name: str, path: object) -> bool:
        if name == "link" and not linked:
            linked.append(name)
            return True
        return False

    storage.after, storage.error, storage.fail_when = True, 17, lie_once
    assert transaction.commit().version == 1
    assert setting.again(table).snapshot().version == 1
    assert ("replace", table.log.folder / log_path.commit(1)) in storage.done, "the fsync of it may have failed"
    transaction = appending(table, "more")
    storage.fail_when = lambda name, path: name in ("link", "replace")
    with pytest.raises(OutcomeUnknown):
        transaction.commit()


def late(setting: Setting, table: Table, path: str = "late") -> Transaction:
    transaction = setting.again(table).transaction()
    transaction.add(adding(path))
    return transaction


def move_on(setting: Setting, table: Table, *, commits: int = 3) -> int:
    """Others commit, and clean everything up that the newest version does not need; that version."""
    for number in range(commits):
        setting.append(table, f"other-{setting.environment.new_id()}-{number}")
    backfill(setting, table)
    newest = setting.again(table).snapshot().version
    write_checkpoint(setting.again(table))
    assert clean_up(setting.again(table), older_than=-(10**15)).cut_off == newest
    return newest


@every_kind
def test_a_writer_whose_base_was_cleaned_up_must_redo_its_work(setting: Setting, feature: TableFeature | None) -> None:
    """The name of its version is free again: a commit there would be acknowledged, and lost."""
    table = setting.table(feature, policy=GENEROUS)
    setting.append(table, "first")
    transaction = late(setting, table)
    newest = move_on(setting, table)
    before = setting.again(table).snapshot()
    with pytest.raises(ConcurrentModificationError) as caught:
        transaction.commit()
    assert (caught.value.version, caught.value.latest) == (2, newest)
    assert not table.log.published(2)
    assert setting.again(table).snapshot().files == before.files
    assert late(setting, table).commit().version == newest + 1


def test_a_writer_of_a_table_taken_over_and_cleaned_up_is_refused(setting: Setting) -> None:
    table = setting.table(None)
    transaction = late(setting, table)
    owned = take_over(table, setting.owner, "owned", MANAGED_COMMIT, policy=GENEROUS)
    newest = move_on(setting, owned)
    with pytest.raises(ConcurrentModificationError):
        transaction.commit()
    assert not table.log.published(1)
    assert late(setting, owned).commit().version == newest + 1


def test_no_second_version_0_is_made_below_a_history(setting: Setting) -> None:
    table = setting.table(None)
    move_on(setting, table)
    before = names(table)
    with pytest.raises(LocationError):
        create_filesystem_table(table.location, setting.environment, SCHEMA)
    assert names(table) == before


@pytest.mark.parametrize("newest", [4, 2])
@pytest.mark.parametrize("pointer", [True, False], ids=["hint", "no-hint"])
def test_commits_deleted_newest_first_do_not_free_their_versions(setting: Setting, pointer: bool, newest: int) -> None:
    """A cleanup of another program that died halfway: version 1 is there, 2 to 3 are gone, 4 is the newest; or version
    2 is the newest, and only in a checkpoint."""
    table = setting.table(None)
    setting.append(table, "first")
    transaction = late(setting, table)
    for number in range(newest - 1):
        setting.append(table, f"other-{number}")
    write_checkpoint(table, newest)
    hide(table, *range(2, max(newest, 3)))
    if not pointer:
        hide(table, 1)
        table.log.delete(LAST_CHECKPOINT)
    with pytest.raises(ConcurrentModificationError):
        transaction.commit()
    assert not table.log.published(2)


def test_a_writer_of_a_table_made_anew_at_its_place_is_refused(setting: Setting) -> None:
    """Its version would follow a gap."""
    table = setting.table(None)
    for number in range(3):
        setting.append(table, f"old-{number}")
    transaction = late(setting, table)
    hide(table, 0, 1, 2, 3)
    create_filesystem_table(table.location, setting.environment, SCHEMA, partition_columns=["month"])
    with pytest.raises(ConcurrentModificationError):
        transaction.commit()
    assert setting.again(table).snapshot().version == 0
    assert not table.log.published(4)


def test_a_base_that_only_a_checkpoint_holds_is_committed_on(setting: Setting) -> None:
    """Other programs delete the commit of the checkpoint too."""
    table = setting.table(None)
    setting.append(table, "first")
    write_checkpoint(table, 1)
    hide(table, 0, 1)
    table.log.overwrite(LAST_CHECKPOINT, b'{"version": 7, "size": 1}')
    assert late(setting, table).commit().version == 2
    assert {path for path, _ in setting.again(table).snapshot().files} == {"first", "late"}


@pytest.mark.parametrize("landed", [False, True], ids=["before-the-link", "after-the-link"])
def test_a_cleanup_during_the_link_leaves_the_outcome_unknown(
    setting: Setting, storage: FailingFiles, landed: bool
) -> None:
    """Both look the same afterwards, and only one of them landed."""
    table = setting.table(None)
    setting.append(table, "first")
    transaction = late(setting, table)
    target = table.log.folder / log_path.commit(2)
    interfered: list[bool] = []

    def interfere(operation: str, path: Path) -> bool:
        moment = ("fsync_directory", target.parent) if landed else ("link", target)
        if not interfered and (operation, path) == moment and table.log.published(2) is landed:
            interfered.append(True)
            move_on(setting, table)
        return False

    storage.fail_when = interfere
    with pytest.raises(OutcomeUnknown) as caught:
        transaction.commit()
    assert interfered
    assert caught.value.version == 2
    assert ("late" in {path for path, _ in setting.again(table).snapshot().files}) is landed


def test_a_cleanup_up_to_the_new_commit_leaves_no_doubt(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(None)
    setting.append(table, "first")
    transaction = late(setting, table)
    interfered: list[bool] = []

    def interfere(operation: str, path: Path) -> bool:
        if not interfered and (operation, path) == ("fsync_directory", table.log.folder) and table.log.published(2):
            interfered.append(True)
            assert move_on(setting, table, commits=0) == 2
        return False

    storage.fail_when = interfere
    assert transaction.commit().version == 2
    assert interfered


def test_a_winner_that_was_cleaned_up_is_reported(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(None)
    setting.append(table, "first")
    transaction = late(setting, table)
    setting.append(table, "winner")
    target = table.log.folder / log_path.commit(2)
    reads: list[Path] = []

    def interfere(operation: str, path: Path) -> bool:
        if (operation, path) == ("read", target):
            reads.append(path)
            if len(reads) == 2:  # after the one that finds that the winner is another commit
                move_on(setting, table)
        return False

    storage.fail_when = interfere
    with pytest.raises(ConcurrentModificationError):
        transaction.commit()
    assert not table.log.published(2)


def test_writers_right_behind_a_creation_do_not_cast_doubt_on_it(setting: Setting, storage: FailingFiles) -> None:
    folder = setting.folder / "new"
    seen: list[bool] = []

    def follow(operation: str, path: Path) -> bool:
        if operation == "fsync_directory" and path == folder / "_delta_log" and not seen:
            table = Table.by_path(folder, setting.environment)
            if table.log.published(0):
                seen.append(True)
                setting.append(table, "second")
        return False

    storage.fail_when = follow
    table = create_filesystem_table(folder, setting.environment, SCHEMA, partition_columns=["month"])
    assert seen
    assert table.snapshot().version == 1
