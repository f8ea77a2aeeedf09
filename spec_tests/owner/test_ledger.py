"""The owner's files: damage, schema versions, first starts, file systems, forks, backups, and opening a warehouse."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import apsw
import pytest

import refimpl
from refimpl import warehouse as warehouse_module
from refimpl.care import watched_ledger
from refimpl.care.verify import DEEPEST
from refimpl.care.watched_ledger import WatchedLedger
from refimpl.owner import decide
from refimpl.owner.ledger import FILE_NAME
from refimpl.owner.statements import APPLICATION_ID, SCHEMA, SCHEMA_VERSION
from refimpl.protocol import actions, log_path
from refimpl.protocol.commits import InlineProposal, Ratified
from refimpl.protocol.errors import CorruptLedgerError, InvalidRequestError, LocationError, OwnerUnavailableError
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode, TableFeature
from refimpl.storage.environment import Environment
from refimpl.storage.files import FileStatus, PosixFiles
from refimpl.storage.log_store import LogStore
from spec_tests.support.builders import (
    START,
    append,
    create,
    filesystem_table,
    info,
    metadata_of,
    new_attempt,
    owned,
    protocol_of,
    replace_ledger,
    sql,
)
from spec_tests.support.faults import (
    OPENING,
    FailingFiles,
    Faults,
    FaultyConnection,
    Watch,
    disk_is_broken,
    disk_is_full,
    opened,
)


def ledger_of(warehouse: refimpl.Warehouse) -> Path:
    return warehouse.directory / "_owner" / FILE_NAME


def folded(directory: Path) -> Path:
    """Create a warehouse with one table, and fold its ledger into the database file. Returns this file."""
    with opened(directory) as warehouse:
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=20)
        with warehouse.owner.lock():
            warehouse.owner.ledger.fold()
        path = ledger_of(warehouse)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return path


# Damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "one page": lambda content: content[:4096],
    "not a database": lambda content: b"garbage " * 1000,
    "another header": lambda content: b"x" * 100 + content[100:],
    "garbage in the middle": lambda content: content[:4096] + b"\xff" * 12288 + content[16384:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_ledger_is_rejected_and_not_changed(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folded(tmp_path / "w")
    content = path.read_bytes()
    path.write_bytes(damage(content))
    damaged = path.read_bytes()
    with pytest.raises(CorruptLedgerError) as caught:
        use(tmp_path / "w")
    assert caught.value.path == str(path)
    assert path.read_bytes() == damaged
    path.write_bytes(content)
    use(tmp_path / "w")


def use(directory: Path) -> None:
    """Open, read and commit."""
    with opened(directory) as warehouse:
        table = owned(warehouse, "orders")
        assert table.history()
        table.land()


def test_foreign_database_is_rejected(tmp_path: Path) -> None:
    path = folded(tmp_path / "w")
    path.unlink()
    sql(path, "CREATE TABLE t(x)")
    with pytest.raises(CorruptLedgerError):
        opened(tmp_path / "w")


def test_a_missing_ledger_with_a_write_ahead_log_is_not_replace_ledger(tmp_path: Path) -> None:
    """The tables may be in other folders than the warehouse's, where a first start does not look for them."""
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
        path, location = ledger_of(warehouse), Path(table.location)
    hidden, elsewhere = path.rename(path.with_name("hidden")), location.rename(tmp_path / "elsewhere")
    with pytest.raises(CorruptLedgerError):
        opened(tmp_path / "w")
    assert not path.exists()
    hidden.rename(path)
    elsewhere.rename(location)
    use(tmp_path / "w")


def test_a_log_that_cannot_be_looked_at_is_not_taken_for_the_same(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    with patch.object(PosixFiles, "identity", side_effect=OSError("no answer")), pytest.raises(OwnerUnavailableError):
        _ = table.latest
    table.land()


def test_a_ledger_that_vanishes_is_not_recreated(warehouse: refimpl.Warehouse) -> None:
    create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    warehouse.close()
    path = ledger_of(warehouse)
    hidden = path.rename(path.with_name("hidden"))
    with pytest.raises(CorruptLedgerError):
        warehouse.owner.resolve("orders")
    assert not path.exists()
    hidden.rename(path)
    owned(warehouse, "orders").land()


@pytest.mark.parametrize("empty", [False, True])
def test_a_backup_is_not_mixed_with_the_replaced_ledgers_log(tmp_path: Path, empty: bool) -> None:
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
        warehouse.owner.ledger.back_up(tmp_path / "backup")
        table.land(2)
        path = ledger_of(warehouse)
    shutil.copy(tmp_path / "backup", path)
    if empty:
        path.with_name(f"{path.name}-wal").write_bytes(b"")
    with pytest.raises(CorruptLedgerError):
        opened(tmp_path / "w")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with opened(tmp_path / "w") as warehouse:
        assert owned(warehouse, "orders").latest == 1


# The schema's version


def bare(path: Path) -> Path:
    """A ledger without tables and without a write-ahead log, like a backup."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sql(path, f"PRAGMA application_id={APPLICATION_ID}", SCHEMA, f"PRAGMA user_version={SCHEMA_VERSION}")
    return path


def test_ledger_with_another_schema_is_rejected_and_not_changed(tmp_path: Path) -> None:
    path = folded(tmp_path / "w")
    for version, fits in ((SCHEMA_VERSION + 1, False), (SCHEMA_VERSION - 1, False), (SCHEMA_VERSION, True)):
        sql(path, f"PRAGMA user_version={version}")
        if fits:
            use(tmp_path / "w")
        else:
            with pytest.raises(InvalidRequestError) as caught:
                opened(tmp_path / "w")
            assert (caught.value.found, caught.value.known) == (version, SCHEMA_VERSION)


# First starts


def test_a_warehouse_can_be_moved(tmp_path: Path) -> None:
    with opened(tmp_path / "here") as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED, commits=3)
        truth = table.history()
    shutil.move(tmp_path / "here", tmp_path / "there")
    with opened(tmp_path / "there") as warehouse:
        table = owned(warehouse, "orders")
        assert table.location.is_relative_to(tmp_path / "there")
        assert table.history() == truth
        table.land()
        table.backfill()
        assert table.published() == list(range(5))
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with opened(tmp_path / "link") as warehouse:
        assert owned(warehouse, "orders").location == table.location


# Network file systems


MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
server:/export /mnt/nfs nfs4 rw 0 0
server:/blank /mnt/with\040blank cifs rw 0 0
server:/umlaut /mnt/größe nfs rw 0 0
/dev/sdb1 /mnt/nfs/local xfs rw 0 0
s3 /mnt/s3 fuse.s3fs rw 0 0
short
over /mnt/s3 ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/data/w", None),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/deep/w", "nfs4"),
        ("/mnt/nfs2/w", None),
        ("/mnt/nfs/local/w", None),
        ("/mnt/with blank/w", "cifs"),
        ("/mnt/größe/w", "nfs"),
        ("/mnt/s3/w", None),
    ],
)
def test_innermost_newest_mount_decides_the_file_system(directory: str, kind: str | None) -> None:
    assert warehouse_module.network_file_system(Path(directory), MOUNTS) == kind


def test_a_warehouse_or_root_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/ / ext4 rw 0 0\nserver:/x {tmp_path}/shared nfs4 rw 0 0\n")
    monkeypatch.setattr(warehouse_module, "MOUNTS", mounts)
    (tmp_path / "shared").mkdir()
    with pytest.raises(LocationError) as caught:
        refimpl.open(tmp_path / "shared" / "w", create=True)
    assert caught.value.kind == "nfs4"
    assert list((tmp_path / "shared").iterdir()) == []
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "w", roots=[tmp_path / "shared"], create=True)
    with refimpl.open(tmp_path / "w", roots=[tmp_path], create=True):
        pass


# The disk below the ledger


def test_commit_on_a_full_disk_is_an_error_without_effect(warehouse: refimpl.Warehouse) -> None:
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
    before = table.history()
    faults = Faults(fail_from=OPENING + 1, error=disk_is_full)
    failing = refimpl.open(warehouse.directory, environment=faults.environment(), create=True)
    with pytest.raises(OwnerUnavailableError):
        table.through(failing).commit(2)
    assert table.history() == before
    table.land()  # by another connection, although the failed one has done nothing since
    assert table.through(failing).history() == table.history(), "the owner can still read"
    faults.abandon()


def test_ledger_records_a_version_only_once(warehouse: refimpl.Warehouse) -> None:
    """The ledger's primary key prevents a second record, even if `decide` is wrong."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    before = warehouse.owner.cached_record(table.table_id)
    table.land()
    content = append(START + 9)
    examined = decide.examine(table.feature, 1, InlineProposal(attempt=new_attempt(), content=content), content)
    with pytest.raises(CorruptLedgerError), warehouse.owner.lock(), warehouse.owner.ledger.write() as writer:
        writer.ratify(before, examined, CommitMode.INLINE, 0, published=False)
    assert table.history()[1] != content


def test_failed_fold_does_not_fail_the_commit(warehouse: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """FB43: a failure after the commit point must not be reported as a failed commit."""
    monkeypatch.setattr("refimpl.owner.ledger.FOLD_PAGES", 0)
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    faults = Faults(fail_from=OPENING + 2, fail_count=1, error=disk_is_broken)
    failing = refimpl.open(warehouse.directory, environment=faults.environment(), create=True)
    assert isinstance(table.through(failing).commit(1), Ratified)
    assert faults.seen[OPENING:] == ["commit", "fold"]
    assert isinstance(table.through(failing).commit(2), Ratified)
    faults.abandon()
    assert table.latest == 2


def test_a_full_disk_leaves_a_working_connection(warehouse: refimpl.Warehouse) -> None:
    """After this error, SQLite rolls back by itself, which is no damage."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
    database = warehouse.owner.ledger.database()
    pages = database.pragma("page_count")
    database.pragma("max_page_count", pages)
    with pytest.raises(OwnerUnavailableError):
        table.commit(1, append(START + 1, lines=2000))
    assert list(table.history()) == [0]
    database.pragma("max_page_count", pages + 10_000)
    assert isinstance(table.commit(1, append(START + 1, lines=2000)), Ratified)


# Forks and threads


FORK = """
import os, sys
import refimpl
from refimpl.protocol.commits import Conflict, InlineProposal, Ratified
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from spec_tests.support.builders import create

warehouse = refimpl.open(sys.argv[1], create=True)
table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)

def locked_by_me(path):
    inode = os.stat(path).st_ino
    lines = [line.split() for line in open("/proc/locks")]
    return any(line[5].endswith(f":{inode}") and line[4] == str(os.getpid()) for line in lines)

child = os.fork()
if child == 0:
    table.land(3)
    shm = sys.argv[1] + "/_owner/ledger.sqlite-shm"
    assert not os.path.exists("/proc/locks") or locked_by_me(shm), "others do not see the child"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
table.land(2)
child = os.fork()
if child == 0:
    table.land(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert table.latest == 7
"""


FORK_WITH_THREADS = """
import os, sys, threading
import refimpl
from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from spec_tests.support.builders import create

warehouse = refimpl.open(sys.argv[1], create=True)
table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
used, done = threading.Event(), threading.Event()

def use():
    assert table.latest == 1
    used.set()
    done.wait()
    warehouse.close()

def forked(act):
    child = os.fork()
    if child == 0:
        try:
            act()
        except OwnerUnavailableError:
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

thread = threading.Thread(target=use)
thread.start()
used.wait()
try:
    assert forked(lambda: table.land(2)) == 0, "while another thread has a connection"
finally:
    done.set()
thread.join()
with warehouse.owner.ledger.read() as view:
    assert view.tables()
    assert forked(lambda: table.land(1)) == 7, "inside a transaction"
table.land(1)
assert table.latest == 4
"""


@pytest.mark.processes
@pytest.mark.parametrize(("program", "versions"), [(FORK, 8), (FORK_WITH_THREADS, 5)], ids=["idle", "threads"])
def test_a_fork_with_an_open_owner_works_on_both_sides(tmp_path: Path, program: str, versions: int) -> None:
    """A child inherits SQLite's record of its locks, but not the locks: the child must take its own.
    Inside a transaction, it is rejected."""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "w")], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    with opened(tmp_path / "w") as warehouse:
        assert list(owned(warehouse, "orders").history()) == list(range(versions))
        assert warehouse.owner.ledger.integrity_errors() == []


# First start and backup of a ledger: under the lock, and with the right durability order


class Overtaken(Watch):
    """Another complete start runs before one of the steps that this start takes without the lock."""

    def __init__(self, before_step: int, start: Callable[[], object]) -> None:
        super().__init__()
        self.steps_left = before_step
        self._start = start

    def _step(self) -> None:
        if not self.held and self.steps_left >= 0:
            self.steps_left -= 1
            if self.steps_left < 0:
                self._start()

    def effect(self, name: str, act: Callable[[], Any], torn: Callable[[], object] | None = None) -> Any:
        self._step()
        return super().effect(name, act, torn)

    def read(self, act: Callable[[], Any]) -> Any:
        self._step()
        return super().read(act)


@pytest.mark.longer
def test_another_first_start_may_run_at_every_step(tmp_path: Path) -> None:
    for step in itertools.count():
        target = tmp_path / str(step) / "deep" / "warehouse"

        def start(target: Path = target) -> None:
            with opened(target) as other:
                create(other, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)

        overtaken = Overtaken(step, start)
        with overtaken.opened(target) as warehouse:
            if overtaken.steps_left >= 0:
                assert step > 10
                return
            assert owned(warehouse, "orders").latest == 1
            assert warehouse.owner.ledger.integrity_errors() == []


def test_a_ledger_is_renamed_into_place_when_durable(tmp_path: Path) -> None:
    watch = Watch()
    ledger = WatchedLedger(tmp_path, watch.lock(tmp_path / "lock"), watch.environment())
    ledger.create()
    assert watch.seen[-4:] == ["journal", "fsync ledger.new", "replace ledger.sqlite", "fsync " + tmp_path.name + "/"]
    assert watch.outside == []
    before = len(watch.seen)
    ledger.create()
    assert watch.seen[before:] == []
    assert version_of(ledger.path) == (SCHEMA_VERSION, "wal")


def test_unfinished_ledger_of_a_killed_first_start_is_replace_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "warehouse" / "_owner"
    folder.mkdir(parents=True)
    unfinished = (folder / FILE_NAME).with_suffix(".new")
    for suffix in ("", "-wal", "-shm", "-journal"):
        unfinished.with_name(unfinished.name + suffix).write_bytes(b"half of it" * 1000)
    with opened(tmp_path / "warehouse") as warehouse:
        create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        assert warehouse.owner.ledger.integrity_errors() == []
    assert not unfinished.exists()


@pytest.mark.parametrize("interrupted", ["BEGIN IMMEDIATE", "COMMIT"])
def test_interruption_leaves_no_open_transaction(tmp_path: Path, interrupted: str) -> None:
    """After BEGIN, or before COMMIT. Other processes could not write until this one did something again."""

    class Interrupted(FaultyConnection):
        armed = False

        def execute(self, statement: str, *values: Any, **more: Any) -> Any:
            interrupts = statement == interrupted and Interrupted.armed
            cursor = None if interrupts and statement == "COMMIT" else super().execute(statement, *values, **more)
            if interrupts:
                Interrupted.armed = False
                raise KeyboardInterrupt
            return cursor

    environment = Environment(connect=lambda path: Interrupted(Faults(), apsw.Connection(str(path))))
    with refimpl.open(tmp_path / "w", environment=environment, create=True) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
        Interrupted.armed = True
        with pytest.raises(KeyboardInterrupt):
            table.commit(1)
        assert not Interrupted.armed
        with opened(tmp_path / "w") as other:
            table.through(other).land(1)
        assert table.latest == 1


@pytest.mark.parametrize("following", ["a read", "a commit"])
def test_interruption_before_the_end_of_a_transaction_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, following: str
) -> None:
    """Ctrl-C may come at the call of the function that ends the transaction. It was reported as a damaged ledger, with
    the advice to restore a backup: that would have lost commits."""
    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(WatchedLedger, "end", Mock(side_effect=KeyboardInterrupt))
            table.commit(1)
        if following == "a commit":
            with opened(tmp_path / "w") as other:  # the lock is free, so the transaction is no longer open
                table.through(other).land(1)
        assert table.latest == (1 if following == "a commit" else 0)


def test_an_interrupted_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(database: apsw.Connection) -> None:
        """Ctrl-C comes at the end of the read."""
        if database.in_transaction:
            raise KeyboardInterrupt

    with refimpl.open(tmp_path / "w", create=True) as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.STAGED)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("refimpl.owner.ledger.roll_back", interrupted)
            table.latest  # noqa: B018
        assert table.latest == 0


def version_of(path: Path) -> tuple[int, str]:
    return sql(path, "PRAGMA user_version")[0][0], sql(path, "PRAGMA journal_mode")[0][0]


def test_write_ahead_log_is_switched_on_under_the_lock(tmp_path: Path) -> None:
    path = bare(tmp_path / "warehouse" / "_owner" / FILE_NAME)
    assert version_of(path) == (SCHEMA_VERSION, "delete")
    watch = Watch()
    watch.opened(tmp_path / "warehouse").close()
    assert watch.outside == []
    assert "journal" in watch.inside
    assert version_of(path) == (SCHEMA_VERSION, "wal")
    assert watch.seen[watch.seen.index("journal") + 1] == "fsync _owner/"


def test_backup_is_complete_and_durable_before_it_has_its_name(tmp_path: Path) -> None:
    """Also while other processes commit."""
    faults = Faults()
    with refimpl.open(tmp_path / "warehouse", environment=faults.environment(), create=True) as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=3)
        before, copy = len(faults.seen), tmp_path / "copy.sqlite"
        warehouse.owner.ledger.back_up(copy)
        assert [effect.split()[0] for effect in faults.seen[before:]] == ["fsync", "link", "fsync", "unlink"]
        table.land(2)
        with pytest.raises(InvalidRequestError):
            warehouse.owner.ledger.back_up(copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.sqlite", "warehouse"]
    assert version_of(copy) == (SCHEMA_VERSION, "delete")
    assert sql(copy, "PRAGMA integrity_check") == [("ok",)]
    assert sql(copy, "SELECT max(version) FROM commits") == [(3,)]


def test_commit_of_the_ledger_is_synced_before_it_is_answered(tmp_path: Path) -> None:
    made: list[apsw.Connection] = []

    def connect(path: Path) -> apsw.Connection:
        made.append(apsw.Connection(str(path)))
        made[-1].execute("PRAGMA synchronous=OFF").fetchall()  # as in an SQLite library built with this default
        return made[-1]

    with refimpl.open(tmp_path / "w", environment=Environment(connect=connect), create=True) as warehouse:
        create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
        (mine,) = made[1:]
        assert (mine.pragma("synchronous"), mine.pragma("journal_mode")) == (2, "wal")
        assert mine.pragma("busy_timeout") == 10_000
        assert mine.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1) == 1, "a fold needs the owner's lock"


def test_a_ledger_needs_a_write_ahead_log(tmp_path: Path) -> None:
    class Stubborn(apsw.Connection):
        def pragma(self, name, value=None, **more):  # type: ignore[no-untyped-def]
            values = () if name == "journal_mode" or value is None else (value,)
            return super().pragma(name, *values, **more)

    with pytest.raises(OwnerUnavailableError, match="write-ahead log"):
        refimpl.open(tmp_path / "w", environment=Environment(connect=lambda path: Stubborn(str(path))), create=True)
    assert not (tmp_path / "w" / "_owner" / FILE_NAME).exists()


def test_a_fork_closes_the_connection(tmp_path: Path) -> None:
    """Calls the fork hooks directly. Other tests here fork a process."""
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT)
        watched_ledger.before_fork()
        watched_ledger.after_fork_in_child()
        assert table.latest == 0
        with warehouse.owner.ledger.read():
            watched_ledger.before_fork()
            watched_ledger.after_fork_in_child()
            with (
                ThreadPoolExecutor(1) as other,
                pytest.raises(OwnerUnavailableError, match="forked inside a transaction"),
            ):
                other.submit(table.owner.get_commits, table.table_id).result()


def test_replacing_ledger_is_checked_as_at_a_start(tmp_path: Path) -> None:
    newer = bare(tmp_path / "other")
    sql(newer, f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    with opened(tmp_path / "w") as warehouse:
        table = create(warehouse, MANAGED_COMMIT, CommitMode.DIRECT, commits=1)
        replace_ledger(warehouse.owner.ledger.path, newer)
        with pytest.raises(InvalidRequestError) as refused:
            table.owner.get_commits(table.table_id)
        assert refused.value.found == SCHEMA_VERSION + 1


def test_all_threads_continue_with_a_restored_backup(tmp_path: Path) -> None:
    """The first connection finds a ledger without a write-ahead log. A later connection adds the log."""
    with opened(tmp_path / "w") as warehouse, ThreadPoolExecutor(1) as other:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, commits=1)
        warehouse.owner.ledger.back_up(tmp_path / "backup")
        replace_ledger(warehouse.owner.ledger.path, tmp_path / "backup")
        for version in (2, 4):
            assert isinstance(other.submit(table.commit, version).result(), Ratified)
            assert isinstance(table.commit(version + 1), Ratified)
        other.submit(warehouse.close).result()


def test_ledger_name_is_durable_before_its_log_exists(tmp_path: Path) -> None:
    """The process that renamed the ledger into place may have died before it synced the folder."""
    folded(tmp_path / "w")
    faults, before_connect = Faults(), list[list[str]]()

    def connect(path: Path) -> apsw.Connection:
        before_connect.append(list(faults.seen))
        return apsw.Connection(str(path))

    environment = Environment(files=faults.environment().files, connect=connect)
    with refimpl.open(tmp_path / "w", environment=environment, create=True) as warehouse:
        assert before_connect == [["fsync _owner/"]]
        assert owned(warehouse, "orders").latest == 20


# Opening a warehouse


def test_an_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "_owner").write_text("")
    with pytest.raises(OwnerUnavailableError, match=r"as a warehouse: .*_owner: Not a directory"):
        refimpl.open(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this host does not list a process's descriptors")
def test_a_closed_warehouse_has_no_file_open(tmp_path: Path) -> None:
    def held() -> list[str]:
        links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [link for link in links if link.startswith(str(tmp_path))]

    with refimpl.open(tmp_path / "lake", create=True) as warehouse:
        assert held()
    assert (held(), warehouse.directory) == ([], tmp_path / "lake")


def test_without_create_no_warehouse_is_created(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        refimpl.open(tmp_path / "lake")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lake" / "_owner").mkdir(parents=True)
    with pytest.raises(CorruptLedgerError):
        refimpl.open(tmp_path / "lake")
    opened(tmp_path / "lake").close()
    assert refimpl.open(tmp_path / "lake").tables() == []


def test_a_warehouse_inside_a_warehouse_is_refused(tmp_path: Path) -> None:
    refimpl.open(tmp_path / "lake", create=True)
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "lake" / "lake", create=True)
    assert not (tmp_path / "lake" / "lake").exists()

    class WarehouseAtTheRoot(PosixFiles):
        def stat(self, path: Path) -> FileStatus | None:
            return super().stat(Path("/") if path == Path("/_owner") else path)

    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "another", environment=Environment(files=WarehouseAtTheRoot()), create=True)


def test_an_invalid_root_is_rejected_before_any_change(tmp_path: Path) -> None:
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / "lake", roots=[tmp_path / "nowhere"], create=True)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("name", ["file", "file/below", "loop", os.fsdecode(b"not\xfftext")])
def test_invalid_directory_of_a_warehouse_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(LocationError):
        refimpl.open(tmp_path / name, create=True)


@pytest.mark.parametrize("feature", [CATALOG_MANAGED, MANAGED_COMMIT], ids=lambda feature: feature.name)
def test_no_new_owner_starts_beside_tables_of_a_lost_owner(tmp_path: Path, feature: TableFeature) -> None:
    """A new owner would know none of their commits."""
    with opened(tmp_path / "lake") as warehouse:
        create(warehouse, feature, CommitMode.STAGED)
    (tmp_path / "lake" / "_owner").rename(tmp_path / "moved")
    with pytest.raises(CorruptLedgerError):
        refimpl.open(tmp_path / "lake", create=True)
    assert not (tmp_path / "lake" / "_owner").exists()
    (tmp_path / "moved").rename(tmp_path / "lake" / "_owner")
    assert refimpl.open(tmp_path / "lake").tables() == ["orders"]


def test_tables_of_other_owners_do_not_block_a_first_start(tmp_path: Path) -> None:
    filesystem_table(tmp_path / "lake" / "2024" / "plain")
    (tmp_path / "lake" / "round").symlink_to(tmp_path / "lake")
    another = LogStore(tmp_path / "lake" / "another", Environment())
    another.create_folders()
    metadata = metadata_of(MANAGED_COMMIT, owner="another")
    another.put_if_absent(log_path.commit(0), actions.encode([info(START), protocol_of(MANAGED_COMMIT), metadata]))
    files, depths = FailingFiles(), [0]
    files.fail_when = lambda operation, path: bool(depths.append(path.parts.count("round")))
    with pytest.raises(CorruptLedgerError, match="under a name of its own"):  # it may be this owner's lost name
        refimpl.open(tmp_path / "lake", create=True)
    environment = Environment(files=files)
    assert refimpl.open(tmp_path / "lake", environment=environment, create=True, name="refimpl").tables() == []
    assert max(depths) <= DEEPEST, "with two such links in a folder, the search would not end"


def test_lock_does_not_create_the_folder_of_a_moved_owner(tmp_path: Path) -> None:
    """The owner would take an empty folder for a first start."""
    with opened(tmp_path / "lake") as warehouse:
        table = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE)
        (tmp_path / "lake" / "_owner").rename(tmp_path / "moved")
        with pytest.raises(OwnerUnavailableError):
            table.commit(1)
        assert not (tmp_path / "lake" / "_owner").exists()
        (tmp_path / "moved").rename(tmp_path / "lake" / "_owner")
        table.land()


def test_a_read_without_locks_is_refused_beside_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that cannot be written, without the `-shm` file."""
    with refimpl.open(tmp_path, create=True) as made:
        create(made, CATALOG_MANAGED, CommitMode.INLINE)
    index = tmp_path / "_owner" / "ledger.sqlite-shm"
    index.unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with refimpl.open(tmp_path) as shown:
        assert shown.tables() == ["orders"]
        with pytest.raises(OwnerUnavailableError, match="try again"), shown.owner.ledger.read():
            index.touch()
