"""Recovery on a failing disk: a visible file that may not be durable halts the table until it is rewritten."""

import errno
from pathlib import Path

import msgspec
import pytest

import refimpl
from refimpl.care.repair import repair
from refimpl.care.verify import verify
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import TableState
from refimpl.protocol.commits import AttemptId, Conflict, DirectProposal, Landed, NotLanded, Outcome, Ratified
from refimpl.protocol.errors import CorruptionError, OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.table_feature import MANAGED_COMMIT, CommitMode
from refimpl.storage.environment import Environment
from spec_tests.support.builders import (
    START,
    append,
    create,
    filesystem_table,
    hand_back_commit,
    new_attempt,
    owned,
    ownership_change,
    replace_ledger,
)
from spec_tests.support.faults import (
    OPENING,
    FailingFiles,
    Faults,
    crashed,
    dies_after,
    disk_is_broken,
    disk_is_full,
    opened,
)

CONTENT = append(START + 1)


def interrupted(directory: Path) -> AttemptId:
    """Create a table, and interrupt a direct commit just after its file became visible."""
    with opened(directory) as warehouse:
        create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
    attempt = new_attempt()

    died = crashed(
        directory, dies_after("link 1.json"), lambda dying: owned(dying, "orders").commit(1, CONTENT, attempt=attempt)
    )
    assert died is None
    return attempt


def test_a_promise_is_kept_while_its_file_may_be_visible(tmp_path: Path) -> None:
    """The disk fails after the link, and cannot say whether the file exists."""
    directory = tmp_path / "warehouse"
    storage = FailingFiles()
    with refimpl.open(directory, environment=Environment(files=storage), create=True) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
        attempt = new_attempt()
        storage.fail_when = lambda effect, path: (
            (effect == "fsync_directory" and path == table.log.folder)
            or (effect == "exists" and ("link", table.log.folder / log_path.commit(1)) in storage.done)
        )
        with pytest.raises(OutcomeUnknown) as caught:
            table.commit(1, CONTENT, attempt=attempt)
        assert caught.value.attempt == attempt
        storage.fail_when = lambda effect, path: False
        assert isinstance(warehouse.owner.attempt_outcome(table.table_id, attempt), Landed)
        assert table.latest == 1


def test_unknown_outcome_names_the_attempt(tmp_path: Path) -> None:
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
    proposal = DirectProposal(attempt=new_attempt(), content=append(START + 1))
    faults = Faults(fail_from=OPENING + 6, error=disk_is_broken)
    with pytest.raises(OutcomeUnknown) as caught:
        crashed(tmp_path / "w", faults, lambda w: w.owner.commit(table.table_id, 1, proposal))
    assert (caught.value.table_id, caught.value.version, caught.value.attempt) == (table.table_id, 1, proposal.attempt)


def no_room() -> Faults:
    """A disk without room for a temporary file. Existing files can be synced."""
    return Faults(failing="write temporary", error=disk_is_full)


def test_a_full_disk_after_the_link_halts_nothing(tmp_path: Path) -> None:
    """No fsync failed, so the visible file is as durable as before. It is recorded as soon as the disk has room."""
    directory = tmp_path / "warehouse"
    attempt = interrupted(directory)
    full = no_room()
    troubled = refimpl.open(directory, environment=full.environment(), create=True)
    table_id = owned(troubled, "orders").table_id
    with pytest.raises(OwnerUnavailableError):
        troubled.owner.attempt_outcome(table_id, attempt)
    assert "write temporary" in full.seen
    full.abandon()
    with opened(directory) as warehouse:
        assert warehouse.owner.resolve("orders").halted is None
        assert isinstance(warehouse.owner.attempt_outcome(table_id, attempt), Landed)
        owned(warehouse, "orders").land()


def test_a_full_disk_after_a_backfills_link_halts_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "warehouse"
    with opened(directory) as warehouse:
        create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=2)
    died = crashed(directory, dies_after("link 1.json"), lambda dying: owned(dying, "orders").backfill())
    assert died is None
    full = no_room()
    troubled = refimpl.open(directory, environment=full.environment(), create=True)
    with pytest.raises(OwnerUnavailableError):
        owned(troubled, "orders").backfill()
    full.abandon()
    with opened(directory) as warehouse:
        table = owned(warehouse, "orders")
        assert warehouse.owner.resolve("orders").halted is None
        table.backfill()
        assert table.published() == [0, 1, 2]
        table.land()


# A take-over that was interrupted


CHANGE = ownership_change(MANAGED_COMMIT, START + 2)


def taken_over(warehouse: refimpl.Warehouse, attempt: AttemptId) -> Outcome:
    proposal = DirectProposal(attempt=attempt, content=CHANGE)
    return warehouse.owner.take_over(warehouse.directory / "plain", "plain", MANAGED_COMMIT, 2, proposal)


def test_file_that_appears_after_a_failed_link_is_the_commit(tmp_path: Path) -> None:
    """After some errors of a network or a disk, the link may be made later."""
    storage = FailingFiles()
    with refimpl.open(tmp_path, environment=Environment(files=storage), create=True) as warehouse:
        table, attempt = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT), new_attempt()
        storage.error = errno.EIO
        storage.fail_when = lambda operation, path: operation == "link" and path.name == log_path.commit(1)
        with pytest.raises(OutcomeUnknown):
            table.commit(1, CONTENT, attempt=attempt)
        storage.fail_when = lambda operation, path: False
        table.log.put_if_absent(log_path.commit(1), CONTENT)
        assert isinstance(table.owner.attempt_outcome(table.table_id, attempt), Landed)
        assert isinstance(table.commit(2), Ratified)


# A lock whose file was unlinked


def test_only_its_own_promise_is_forgotten(tmp_path: Path) -> None:
    """Another process may have ended it, and promised another commit."""
    attempt = interrupted(tmp_path)
    with opened(tmp_path) as warehouse, warehouse.owner.ledger.write() as writer:
        table = writer.table_named("orders")
        assert table is not None
        promise = writer.promise(table.key)
        assert promise is not None
        warehouse.owner.forget(writer, table, msgspec.structs.replace(promise, attempt=new_attempt()))
        assert writer.promise(table.key) == promise
        assert promise.attempt == attempt


@pytest.mark.parametrize("point", ["create temporary", "link 1.json", "fsync _delta_log/"])
def test_promise_settled_by_another_process_is_kept_once(tmp_path: Path, point: str) -> None:
    """After the lock's file is unlinked, another process gets its own lock, and takes the promise for that of a dead
    process."""
    directory = tmp_path / "warehouse"
    with opened(directory) as warehouse:
        create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
    mine = new_attempt()

    class Unlinks(Faults):
        def effect(self, name, act, torn=None):  # type: ignore[no-untyped-def]
            if name == point and not self.seen.count("unlinked"):
                self.seen.append("unlinked")
                (directory / "_owner" / "lock").unlink()
                with opened(directory) as other:
                    assert isinstance(owned(other, "orders").commit(2), Ratified)
            return super().effect(name, act, torn)

    faults = Unlinks()
    warehouse = refimpl.open(directory, environment=faults.environment(), create=True)
    outcome = owned(warehouse, "orders").commit(1, CONTENT, attempt=mine)
    assert isinstance(outcome, Ratified)
    assert (outcome.commit.version, outcome.commit.attempt) == (1, mine)
    assert "unlinked" in faults.seen
    assert owned(warehouse, "orders").latest == 2
    assert owned(warehouse, "orders").log.read(log_path.commit(1)) == CONTENT
    assert verify(warehouse.owner) == []
    warehouse.close()


@pytest.mark.parametrize("take_over", [False, True], ids=["commit", "take-over"])
def test_restored_backup_publishes_no_commit_that_was_denied(tmp_path: Path, take_over: bool) -> None:
    """The ledger is backed up while a commit is promised. Then the disk is full, and the owner denies the commit."""
    directory, storage, attempt = tmp_path / "warehouse", FailingFiles(), new_attempt()
    with refimpl.open(directory, environment=Environment(files=storage), create=True) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        log = filesystem_table(directory / "plain", versions=2, environment=warehouse.environment)
        ledger = warehouse.owner.ledger

        def full(effect: str, path: Path) -> bool:
            if effect != "link" or path.parent == tmp_path:
                return False
            ledger.back_up(tmp_path / "copy")
            return True

        storage.fail_when = full
        with pytest.raises(OwnerUnavailableError, match="nothing was committed"):
            taken_over(warehouse, attempt) if take_over else table.commit(2, attempt=attempt)
    replace_ledger(ledger.path, tmp_path / "copy")
    with opened(directory) as warehouse:
        table = owned(warehouse, "orders")
        assert verify(warehouse.owner) == []
        assert repair(warehouse.owner, adopt_published=True) == []
        assert warehouse.owner.attempt_outcome(table.table_id, attempt) == NotLanded()
        assert isinstance(table.commit(2), Ratified)
        assert log.published_versions() == {0, 1}
        assert isinstance(taken_over(warehouse, new_attempt()), Ratified)


def test_old_promise_is_not_kept_below_the_history_of_its_table(tmp_path: Path) -> None:
    """Other writers continued the table, and a cleanup removed the promised version. The owner linked it again, and
    then committed below the table's history, where no reader looks."""
    with opened(tmp_path) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        log = table.log
    attempt = new_attempt()
    died = crashed(tmp_path, dies_after("commit"), lambda dying: owned(dying, "orders").commit(2, attempt=attempt))
    assert died is None
    for version in (2, 3, 4):
        assert log.put_if_absent(log_path.commit(version), append(START + 10 + version))
    for version in range(4):
        log.delete(log_path.commit(version))
    with opened(tmp_path) as warehouse:
        table = owned(warehouse, "orders")
        assert not isinstance(table.commit(2), Ratified)
        assert not isinstance(table.commit(3), Ratified)
        assert not log.published(2)
        with pytest.raises(CorruptionError):
            warehouse.owner.attempt_outcome(table.table_id, attempt)


def test_a_table_that_was_handed_back_stays_so_after_a_cleanup(tmp_path: Path) -> None:
    """The owner died after the link. Other writers continued the table, which was theirs, and a cleanup removed that
    version. The owner took it for another writer's, and kept the table."""
    with opened(tmp_path) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        log, last = table.log, DirectProposal(attempt=new_attempt(), content=hand_back_commit(START + 2))
    died = crashed(tmp_path, dies_after("link 2.json"), lambda dying: dying.owner.hand_back(table.table_id, 2, last))
    assert died is None
    for version in (3, 4):
        assert log.put_if_absent(log_path.commit(version), append(START + version))
    for version in range(4):
        log.delete(log_path.commit(version))
    with opened(tmp_path) as warehouse:
        assert isinstance(warehouse.owner.attempt_outcome(table.table_id, last.attempt), Landed)
        assert warehouse.owner.resolve(table.table_id).state is TableState.HANDED_BACK


def test_promise_does_not_replace_the_unfinished_file_of_another_writer(tmp_path: Path) -> None:
    """That writer created the file and has not written it yet. The owner replaced it, and the other commit was lost."""
    with opened(tmp_path) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
    died = crashed(tmp_path, dies_after("commit"), lambda dying: owned(dying, "orders").commit(2))
    assert died is None
    theirs = append(START + 50)
    with (table.log.folder / log_path.commit(2)).open("xb") as file, opened(tmp_path) as warehouse:
        assert not isinstance(owned(warehouse, "orders").commit(2), Ratified)
        file.write(theirs)
        file.flush()
        table = owned(warehouse, "orders")
        assert table.log.read(log_path.commit(2)) == theirs
        assert isinstance(table.commit(2), Conflict)
        assert isinstance(table.commit(3, append(START + 60)), Ratified)


def test_versions_before_a_take_over_are_durable_first(tmp_path: Path) -> None:
    """Their writer may not have synced them, and the owner's versions cannot be read without them."""
    faults = Faults()
    with refimpl.open(tmp_path / "w", environment=faults.environment(), create=True) as warehouse:
        filesystem_table(warehouse.directory / "plain", versions=2)
        faults.seen.clear()
        assert isinstance(taken_over(warehouse, new_attempt()), Ratified)
    assert {"fsync 0.json", "fsync 1.json"} <= {*faults.seen[: faults.seen.index("commit")]}
