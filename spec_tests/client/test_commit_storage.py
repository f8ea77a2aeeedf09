"""Storage that fails during a commit, and slow writers whose intervening commits were cleaned up."""

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
def test_a_staged_file_that_is_not_durable_is_not_proposed(
    setting: Setting, storage: FailingFiles, operation: str
) -> None:
    """The disk is full: the table does not change. The same commit lands when there is space again."""
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
def test_a_filesystem_commit_whose_link_failed_did_not_land(
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
    """After a failed fsync the outcome is unknown, and the client does not repeat the commit."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    storage.fail_when = lambda name, path: name == "fsync_directory" and path.name == LOG_FOLDER
    with pytest.raises(OutcomeUnknown) as caught:
        transaction.commit()
    assert caught.value.version == 1
    storage.fail_when = lambda name, path: False
    assert setting.paths(table) == {"mine"}


def test_an_unreadable_new_commit_keeps_its_data_files(setting: Setting, storage: FailingFiles) -> None:
    """The disk fails right after the link. The commit is visible, so its data files must stay."""
    table = setting.table(None)
    table.snapshot()
    storage.fail_when = lambda name, path: (
        ("link", table.log.folder / log_path.commit(1)) in storage.done and (name in ("fsync_directory", "read"))
    )
    with pytest.raises(OutcomeUnknown):
        table.append(pa.table({"id": [1], "month": ["01"]}))
    storage.fail_when = lambda name, path: False
    assert setting.again(table).snapshot().to_arrow().num_rows == 1


def test_an_unreadable_staged_commit_is_an_error(setting: Setting, storage: FailingFiles) -> None:
    """The client looks for the published file only if the staged file is missing."""
    table = setting.table()
    setting.append(table, "a")
    storage.fail_when = lambda name, path: name == "read" and path.parent.name == CATALOG_MANAGED.staging_folder
    with pytest.raises(OSError, match="injected"):
        setting.again(table).snapshot()


def test_a_filesystem_commit_recognises_its_own_bytes(setting: Setting, storage: FailingFiles) -> None:
    """FB24: the link succeeded but raised an error. The file at the version is this commit's."""
    table = setting.table(None)
    transaction = appending(table, "mine")
    linked: list[str] = []

    def fail_after_the_link(name: str, path: object) -> bool:
        if name == "link" and not linked:
            linked.append(name)
            return True
        return False

    storage.after, storage.error, storage.fail_when = True, 17, fail_after_the_link
    assert transaction.commit().version == 1
    assert setting.again(table).snapshot().version == 1
    assert ("replace", table.log.folder / log_path.commit(1)) in storage.done, "its fsync may have failed"
    transaction = appending(table, "more")
    storage.fail_when = lambda name, path: name in ("link", "replace")
    with pytest.raises(OutcomeUnknown):
        transaction.commit()


def late(setting: Setting, table: Table, path: str = "late") -> Transaction:
    transaction = setting.again(table).transaction()
    transaction.add(adding(path))
    return transaction


def move_on(setting: Setting, table: Table, *, commits: int = 3) -> int:
    """Other writers commit and clean up everything before the newest version; return that version."""
    for number in range(commits):
        setting.append(table, f"other-{setting.environment.new_id()}-{number}")
    backfill(setting, table)
    newest = setting.again(table).snapshot().version
    write_checkpoint(setting.again(table))
    assert clean_up(setting.again(table), older_than=-(10**15)).cut_off == newest
    return newest


@every_kind
def test_a_writer_whose_base_was_cleaned_up_must_start_again(setting: Setting, feature: TableFeature | None) -> None:
    """The file name of its version is free again. A commit there would be acknowledged and then lost."""
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


def test_a_writer_is_rejected_after_a_take_over_and_a_cleanup(setting: Setting) -> None:
    table = setting.table(None)
    transaction = late(setting, table)
    owned = take_over(table, setting.owner, "owned", MANAGED_COMMIT, policy=GENEROUS)
    newest = move_on(setting, owned)
    with pytest.raises(ConcurrentModificationError):
        transaction.commit()
    assert not table.log.published(1)
    assert late(setting, owned).commit().version == newest + 1


def test_no_second_version_0_is_created_below_a_history(setting: Setting) -> None:
    table = setting.table(None)
    move_on(setting, table)
    before = names(table)
    with pytest.raises(LocationError):
        create_filesystem_table(table.location, setting.environment, SCHEMA)
    assert names(table) == before


@pytest.mark.parametrize("newest", [4, 2])
@pytest.mark.parametrize("pointer", [True, False], ids=["hint", "no-hint"])
def test_commits_deleted_newest_first_do_not_free_their_versions(setting: Setting, pointer: bool, newest: int) -> None:
    """A cleanup by another program deleted newer commits first and died halfway. The newest version is 4,
    and 2 and 3 are missing; or the newest version is 2, which only a checkpoint holds.
    """
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


def test_a_writer_is_rejected_if_the_table_was_created_anew(setting: Setting) -> None:
    """A commit at the writer's version would leave a gap before it."""
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


def test_a_commit_can_follow_a_version_that_only_a_checkpoint_holds(setting: Setting) -> None:
    """Other programs may also delete the commit at the checkpoint's version."""
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
    """The commit landed in one of the two cases only, but both leave the same files in the log."""
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


def test_a_cleanup_up_to_the_new_commit_leaves_its_outcome_known(setting: Setting, storage: FailingFiles) -> None:
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


def test_a_cleaned_up_winner_is_reported(setting: Setting, storage: FailingFiles) -> None:
    table = setting.table(None)
    setting.append(table, "first")
    transaction = late(setting, table)
    setting.append(table, "winner")
    target = table.log.folder / log_path.commit(2)
    reads: list[Path] = []

    def interfere(operation: str, path: Path) -> bool:
        if (operation, path) == ("read", target):
            reads.append(path)
            if len(reads) == 2:  # after the read that shows that the winner is another commit
                move_on(setting, table)
        return False

    storage.fail_when = interfere
    with pytest.raises(ConcurrentModificationError):
        transaction.commit()
    assert not table.log.published(2)


def test_writers_right_after_a_creation_leave_its_outcome_known(setting: Setting, storage: FailingFiles) -> None:
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
