"""The ledger: SQLite through apsw, its transactions, its durability and its errors.

Durability: WAL with synchronous=FULL, so that a committed transaction survives a power cut. Every
write and every checkpoint happens under the owner's lock; reads take no lock and see one snapshot.
The owner checkpoints ("folds") the write-ahead log into the database explicitly, also under the lock.

The database file is opened by SQLite alone: POSIX drops a process's locks on a file when any descriptor of it is
closed, and without these locks another SQLite client would remove the write-ahead log of a running owner.
"""

import contextlib
import ctypes
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from refimpl.owner.statements import APPLICATION_ID, FORGET_PROMISES, MIGRATIONS, SCHEMA_VERSION, View, Writer
from refimpl.owner.write_ahead_log import WriteAheadLog
from refimpl.protocol.errors import (
    CorruptLedgerError,
    DeltaError,
    InvalidRequestError,
    OutcomeUnknown,
    OwnerUnavailableError,
)
from refimpl.storage.environment import Environment, HostLock
from refimpl.storage.files import cannot_exist, may_write, reserve_private

logger = logging.getLogger(__name__)

FILE_NAME: Final = "ledger.sqlite"
FOLD_PAGES: Final = 2000
"""Fold the write-ahead log into the database when it has more pages than this: about 8 MB."""

SHM_IN_USE: Final = 128
"""The byte of the `-shm` file that SQLite locks while the file is open; a process that finds it unlocked may empty
the file."""

DATABASE_IN_USE: Final = (0x40000002, 510)
"""The bytes of the database that SQLite locks while it is open; a process that finds them unlocked may remove the
write-ahead log."""


DURABLE: Final = "PRAGMA synchronous=FULL; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON"
"""`fullfsync` makes SQLite empty the drive's cache on macOS; on other systems `fsync` does that."""


def connect(path: Path) -> apsw.Connection:
    """A connection to an existing or new database on this host. Only its user may read a new one, and the files that
    SQLite creates beside it. An existing file is not opened as a file: closing it would drop SQLite's locks.

    Where a file cannot be written, the connection is read-only. Where the `-shm` file cannot be created either, SQLite
    keeps the index of the write-ahead log in memory, without locks; `immutable=1` would ignore that log.
    """
    reserve_private(path)
    wal, shm = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
    if all(map(may_write, (path, wal, shm))):
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    alone = cannot_exist(shm)
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix-none" if alone else None)
    if alone:
        database.pragma("locking_mode", "exclusive")
    return database


_UNFINISHED: Final = ".commit-owner-backup-"
"""Of the names of unfinished backups."""
_ABANDONED_MS: Final = 24 * 3600 * 1000
"""No backup takes that long: the process that made an older one has died."""


class Ledger:
    """The ledger in `folder`, of the warehouse around it. One connection per thread and process.

    Connections are never carried across `fork`. SQLite remembers per process which locks it holds, and
    a child inherits that memory without the locks: so the forking thread closes its connection first,
    Python drops those of other threads in the child, and both sides open new ones. A child that was forked
    inside a transaction gets an error.
    """

    def __init__(self, folder: Path, lock: HostLock, environment: Environment) -> None:
        self.path = folder / FILE_NAME
        self._wal = folder / f"{FILE_NAME}-wal"
        self._wal_name = str(self._wal)
        self._shm_name = str(folder / f"{FILE_NAME}-shm")
        self._warehouse = folder.parent
        self._lock = lock
        self._environment = environment
        self._connect = environment.connect or connect
        self._local = threading.local()
        self._connections: weakref.WeakKeyDictionary[apsw.Connection, object] = weakref.WeakKeyDictionary()
        """The connections of this process, each with the identity of its write-ahead log."""
        self._forked_inside = False
        self._wal_pages = 0
        key = id(self)
        _ledgers[key] = weakref.ref(self, lambda _: _ledgers.pop(key, None))

    def exists(self) -> bool:
        return self._environment.files.stat(self.path) is not None

    def create(self) -> None:
        """Create an empty ledger unless there is one. Safe if several processes call it at once.

        Order, under the lock: build it completely under another name, make it durable, rename it into
        place, make the name durable. So an empty or truncated ledger is always damage, never a new one. It
        has a write-ahead log from the start: a power cut could undo a later switch to one.
        """
        files = self._environment.files
        with self._lock():
            if self.exists():
                return
            if files.stat(self._wal) is not None:
                raise CorruptLedgerError(
                    f"{self.path} is missing, but {self._wal.name} exists; restore the ledger from a backup",
                    path=str(self.path),
                )
            unfinished = self.path.with_suffix(".new")
            for suffix in ("", "-wal", "-shm", "-journal"):
                with contextlib.suppress(FileNotFoundError):
                    files.unlink(unfinished.with_name(unfinished.name + suffix))
            with _errors(unfinished):
                database = self._connect(unfinished)
                database.execute(f"{DURABLE}; PRAGMA application_id={APPLICATION_ID}").fetchall()
                _migrate(database, 0)
                self._keep_write_ahead_log(database)
                database.close()
            files.fsync(unfinished)
            files.replace(unfinished, self.path)
            files.fsync_directory(self.path.parent)

    def open(self) -> None:
        """Check that the file is a ledger with a known schema; migrate an older schema."""
        with _errors(self.path):
            database = self._database()
            schema_version = database.pragma("user_version")
            if database.pragma("application_id") != APPLICATION_ID:
                raise CorruptLedgerError(
                    f"{self.path} is not the ledger of a commit owner; restore it from a backup", path=str(self.path)
                )
            if schema_version > SCHEMA_VERSION:
                raise InvalidRequestError(
                    f"{self.path} has schema version {schema_version}, this release knows up to {SCHEMA_VERSION}; "
                    f"use the release that wrote it, or a newer one",
                    found=schema_version,
                    known=SCHEMA_VERSION,
                )
            has_log = database.readonly("main") or database.pragma("journal_mode") == "wal"  # a backup can be shown
            if schema_version < SCHEMA_VERSION or not has_log:
                with self._lock():
                    self._keep_write_ahead_log(database)
                    # SQLite has deleted its rollback journal without a sync: if a power cut restored the journal, it
                    # would undo the switch, although the write-ahead log has commits by then.
                    self._environment.files.fsync_directory(self.path.parent)
                    _migrate(database, database.pragma("user_version"))
                self._remember_log(database)

    def _keep_write_ahead_log(self, database: apsw.Connection) -> None:
        if database.pragma("journal_mode", "wal") != "wal":
            raise OwnerUnavailableError(
                f"the file system of {self.path} does not let SQLite keep a write-ahead log", path=str(self.path)
            )

    def _refuse_foreign_log(self, database: apsw.Connection) -> None:
        """A backup has no write-ahead log. One beside it belongs to the ledger that the backup replaced, and
        SQLite would apply it; from an empty one it concludes that the ledger is locked."""
        if self._environment.files.stat(self._wal) is None:
            return
        with _file(database, database.filename, apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY) as file:
            header = file.xRead(20, 0) if file.xFileSize() >= 20 else b""
        if header[18:] == b"\x01\x01":  # the file format: without a write-ahead log
            raise CorruptLedgerError(
                f"{self.path} is a backup, but {self._wal.name} belongs to the ledger that it replaced; "
                f"remove {self._wal.name} and {self.path.name}-shm, then run verify",
                path=str(self.path),
            )

    @contextmanager
    def read(self) -> Iterator[View]:
        """One read snapshot. Takes no lock; a writer neither waits for it nor changes it."""
        try:
            database = self._current_database()
            try:
                database.execute("BEGIN")
                yield View(database, self._warehouse)
            finally:
                _roll_back(database)
            if self._local.unlocked is not None and self._local.unlocked != self._identities():
                raise OwnerUnavailableError(f"another process opened {self.path} during an unlocked read; try again")
        except apsw.Error as error:
            raise _translated(error, self.path) from error

    def write(self) -> "_WriteTransaction":
        """One write transaction; the caller holds the owner's lock. It commits durably, unless the block raises.

        Raises `OutcomeUnknown` if the disk failed during the commit: a later read of the ledger shows the outcome.
        """
        return _WriteTransaction(self)

    def _begin(self) -> Writer:
        database = self._current_database()
        try:
            database.execute("BEGIN IMMEDIATE")
        except BaseException:  # an interruption just after BEGIN
            _roll_back(database)
            raise
        return Writer(database, self._warehouse)

    def _end(self, *, keep: bool) -> None:
        database = self._database()
        if not keep:
            _roll_back(database)
            return
        self._commit(database)
        if self._wal_pages > FOLD_PAGES:
            self.fold()

    def _commit(self, database: apsw.Connection) -> None:
        try:
            database.execute("COMMIT")
        except apsw.FullError:  # SQLite could not write the whole commit record, so nothing is committed
            _roll_back(database)
            raise
        except apsw.Error as error:
            with contextlib.suppress(apsw.Error):
                _roll_back(database)
            raise OutcomeUnknown(
                f"the disk failed while {self.path} committed ({error}); call attempt_outcome once it works again"
            ) from error
        except BaseException:  # an interruption just before COMMIT
            _roll_back(database)
            raise
        if self._log_is_another():
            raise OutcomeUnknown(
                f"{self._log_was_removed()}; call attempt_outcome to find out whether this transaction landed"
            )

    def fold(self) -> None:
        """Move the write-ahead log into the database, as far as readers allow. The caller holds the lock.

        Never raises: committed transactions stay in the write-ahead log, and the next fold tries again.
        """
        try:
            self._database().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass
        except apsw.Error as error:
            logger.warning("SQLite's checkpoint of %s failed; the next one tries again: %s", self.path, error)
        self._wal_pages = 0

    def integrity_errors(self) -> list[str]:
        """The errors that SQLite's own integrity check reports."""
        with _errors(self.path):
            problems = [row[0] for row in self._current_database().execute("PRAGMA integrity_check")]
        return [] if problems == ["ok"] else problems

    def back_up(self, target: Path) -> None:
        """Copy the ledger, consistently and durably, while others use it. `target` must not exist.

        The copy has no open promises: it is the state before them. A restored promise would be kept, although the owner
        may have denied the commit since, and forgotten the promise.

        Order: remove the copies that processes left unfinished a day ago, copy under another name, delete the promises,
        fsync, link to the name, fsync the directory.
        """
        files = self._environment.files
        if files.stat(target) is not None:
            raise InvalidRequestError(f"{target} exists; choose a new file", path=str(target))
        if files.stat(target.parent) is None:
            raise InvalidRequestError(f"{target.parent} does not exist; create it first", path=str(target))
        with contextlib.suppress(OSError):
            for entry in files.list_directory(target.parent):
                if entry.name.startswith(_UNFINISHED) and entry.modified < self._environment.now() - _ABANDONED_MS:
                    files.unlink(target.with_name(entry.name))
        unfinished = target.with_name(f"{_UNFINISHED}{self._environment.new_id()}")
        try:
            with _errors(self.path):
                copy = self._connect(unfinished)
                with copy.backup("main", self._current_database(), "main") as backup:
                    backup.step(-1)
                copy.pragma("journal_mode", "delete")
                copy.execute(FORGET_PROMISES).fetchall()
                copy.close()
            files.fsync(unfinished)
            files.link(unfinished, target)
            files.fsync_directory(target.parent)
        finally:
            with contextlib.suppress(OSError):
                files.unlink(unfinished)

    def close(self) -> None:
        """Close this thread's connection."""
        database: apsw.Connection | None = getattr(self._local, "database", None)
        if database is not None and self._local.process == os.getpid():
            with self._environment.files.opening():
                database.close()
                self._connections.pop(database, None)
                self._local.locks = None
        self._local.database = None

    def _before_fork(self) -> None:
        database: apsw.Connection | None = getattr(self._local, "database", None)
        if database is not None and not database.in_transaction:
            self.close()

    def _after_fork(self) -> None:
        self._forked_inside = len(self._connections) > 0

    def _current_database(self) -> apsw.Connection:
        """The connection to the files that have the names of the ledger and of its write-ahead log now.

        SQLite would continue with the old files, and two processes could ratify the same version. After a restore the
        ledger is another file: this opens that one. A write-ahead log that was removed or replaced is an error:
        SQLite shares the index of the old one between all connections of a process. If the ledger had no write-ahead
        log (a backup) and has one now, the connection is older than that log: this opens a new connection, too.
        """
        database = self._database()
        _roll_back(database)  # a transaction that an interruption (Ctrl-C) left open; a thread never nests two
        moved: ctypes.c_int = self._local.moved
        database.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
        if moved.value or self._local.log is None:
            self.close()
            self.open()
            return self._database()
        if self._log_is_another():
            raise OwnerUnavailableError(self._log_was_removed(), path=str(self.path))
        return database

    def _log_is_another(self) -> bool:
        known: object = self._local.log
        try:
            return self._environment.files.identity(self._wal_name) != known
        except OSError:  # unknown: that does not prove that the log is the same
            return True

    def _identities(self) -> tuple[object, object]:
        files = self._environment.files
        return files.identity(self._wal_name), files.identity(self._shm_name)

    def _log_was_removed(self) -> str:
        return (
            f"{self._wal} was removed or replaced while this process had it open, by hand or by an SQLite client that "
            f"ignores SQLite's locks; end every process of this owner, then run verify"
        )

    def _remember_log(self, database: apsw.Connection) -> None:
        """Remember the write-ahead log of this connection. No SQLite client removes it while SQLite's locks hold.

        These locks belong to the process, and another SQLite library in it, such as Python's own, drops them. So the
        bytes that a connection keeps locked between its transactions are locked a second time, until the connection
        ends: STORAGE.md#second-library. The caller has read the database: SQLite has taken its own locks.
        """
        files = self._environment.files
        unlocked = database.readonly("main") and files.identity(self._shm_name) is None
        self._local.unlocked = self._identities() if unlocked else None  # then each read opens the files again
        self._local.log = self._connections[database] = None if unlocked else files.identity(self._wal_name)
        if self._local.log is None:
            return
        try:
            self._local.locks = (
                files.hold_shared(self._shm_name, SHM_IN_USE, 1),
                files.hold_shared(str(self.path), *DATABASE_IN_USE),
            )
        except OSError as error:
            raise OwnerUnavailableError(f"cannot lock {self.path}: {error}", path=str(self.path)) from error

    def _database(self) -> apsw.Connection:
        database: apsw.Connection | None = getattr(self._local, "database", None)
        if database is not None and self._local.process == os.getpid():
            return database
        if self._forked_inside:
            raise OwnerUnavailableError(
                f"this process was forked inside a transaction on {self.path}, and SQLite does not work after "
                f"that; start the process with spawn, or fork outside of the transaction",
                path=str(self.path),
            )
        if not self.exists():
            raise CorruptLedgerError(f"{self.path} is missing; restore it from a backup", path=str(self.path))
        self._make_name_durable()
        with self._environment.files.opening():
            database = self._connect(self.path)
            try:
                self._refuse_foreign_log(database)
                database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                database.set_busy_timeout(10_000)
                database.execute(f"{DURABLE}; PRAGMA wal_autocheckpoint=0").fetchall()
                database.set_wal_hook(self._on_commit)
                if not database.readonly("main"):  # a read-only folder can be shown
                    self._make_durable_what_is_seen(database)
                self._remember_log(database)
            except BaseException:
                database.close()
                raise
        self._local.database = database
        self._local.moved = ctypes.c_int()
        self._local.process = os.getpid()
        return database

    def _make_name_durable(self) -> None:
        """Make the ledger's name durable before SQLite creates a write-ahead log beside it: the process that renamed
        the ledger into place may have died before it synced the folder, and a log without its ledger is damage."""
        files = self._environment.files
        if files.stat(self._wal) is None:
            try:
                files.fsync_directory(self.path.parent)
            except OSError as error:
                raise OwnerUnavailableError(f"cannot make {self.path} durable: {error}", path=str(self.path)) from error

    def _make_durable_what_is_seen(self, database: apsw.Connection) -> None:
        """Make the visible transactions durable. A process that died before it synced a commit, or whose sync failed,
        leaves the commit in the write-ahead log, and the first connection afterwards reads it. No process may act on a
        commit that a power cut can still undo.

        Order: SQLite reads the log; its last transaction is written again and synced; then the folder is synced: the
        log's name, and the deletion of an earlier rollback journal. Other connections show no data before that.
        """
        database.pragma("user_version")
        log = self._environment.files.identity(self._wal_name)
        if log is None or log not in self._connections.values():  # otherwise the visible data was made durable before
            self._write_last_transaction_again(database)
        try:
            self._environment.files.fsync_directory(self.path.parent)
        except OSError as error:
            raise OwnerUnavailableError(f"cannot make {self._wal} durable: {error}", path=str(self.path)) from error

    def _write_last_transaction_again(self, database: apsw.Connection) -> None:
        """Make the end of the write-ahead log durable: write the same bytes at the same place, because after a failed
        sync a second one does nothing and succeeds. Everything before the last transaction was durable when that began.

        Raises `CorruptLedgerError` if the log is damaged at the place that SQLite takes for its end.
        """
        frames = _frames(database)
        if frames < 0:
            return
        with _file(database, database.filename_wal, apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE) as file:
            while True:
                try:
                    database.execute("BEGIN EXCLUSIVE")  # no writer appends to the log or restarts it now
                except apsw.BusyError:  # another process writes now; it has made durable what it read
                    file.xSync(apsw.SQLITE_SYNC_FULL)
                    return
                try:
                    log = WriteAheadLog(file)  # another process may have restarted it since the last look
                    damaged = log.is_damaged_after(frames)
                    if not damaged:
                        log.write_again(frames)
                        file.xSync(apsw.SQLITE_SYNC_FULL)
                        return
                finally:
                    _roll_back(database)
                before, frames = frames, _frames(database)
                if frames == before:  # no process appended between the two reads
                    raise CorruptLedgerError(
                        f"{self._wal} is damaged after frame {frames}, and SQLite would drop the transactions after "
                        f"it; restore the ledger from a backup, then run verify",
                        path=str(self.path),
                    )

    def _on_commit(self, _database: apsw.Connection, _schema: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


class _WriteTransaction:
    """The context manager of `Ledger.write`. A class: every commit uses it, and a generator costs more."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __enter__(self) -> Writer:
        try:
            return self._ledger._begin()
        except apsw.Error as error:
            raise _translated(error, self._ledger.path) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._ledger._end(keep=error is None)
        except apsw.Error as failure:
            raise _translated(failure, self._ledger.path) from failure
        if isinstance(error, apsw.Error):
            raise _translated(error, self._ledger.path) from error


def _frames(database: apsw.Connection) -> int:
    """How many valid frames the write-ahead log has; negative if there is no such log. Changes nothing."""
    frames: int = database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
    return frames


@contextmanager
def _file(database: apsw.Connection, name: str, flags: int) -> Iterator[apsw.VFSFile]:
    """A file of the ledger, opened through SQLite, which closes it only when no lock depends on it."""
    file = apsw.VFSFile(database.open_vfs, name, [flags, 0])
    try:
        yield file
    finally:
        file.xClose()


_ledgers: Final[dict[int, weakref.ref[Ledger]]] = {}
"""The ledgers of this process. (A function that is registered for forks is kept until the process ends.)"""


def before_fork() -> None:
    """Close the connections of the thread that forks."""
    _each(Ledger._before_fork)


def after_fork_in_child() -> None:
    """Find out whether another thread of the parent was inside a transaction."""
    _each(Ledger._after_fork)


def _each(act: Callable[[Ledger], None]) -> None:
    for reference in list(_ledgers.values()):
        ledger = reference()
        if ledger is not None:
            with contextlib.suppress(apsw.Error):
                act(ledger)


os.register_at_fork(before=before_fork, after_in_child=after_fork_in_child)


def _migrate(database: apsw.Connection, version: int) -> None:
    """Run the migrations that a ledger lacks, all or none."""
    database.execute("BEGIN IMMEDIATE")
    try:
        for migration in MIGRATIONS[version:]:
            database.execute(migration).fetchall()
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        database.execute("COMMIT")
    except BaseException:
        _roll_back(database)
        raise


def _roll_back(database: apsw.Connection) -> None:
    if database.in_transaction:
        database.execute("ROLLBACK")


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """SQLite's errors as the project's."""
    try:
        yield
    except apsw.Error as error:
        raise _translated(error, path) from error


def _translated(error: apsw.Error, path: Path) -> DeltaError:
    facts = {"path": str(path)}
    wal = path.with_name(f"{path.name}-wal")
    match error:
        case apsw.CantOpenError() | apsw.ReadOnlyError() if cannot_exist(wal):
            return InvalidRequestError(
                f"{wal} is missing and cannot be created, and it may have held the newest commits; copy that file as "
                f"well, or make {path.parent} writable",
                **facts,
            )
        case apsw.CorruptError() | apsw.NotADBError() | apsw.SQLError():
            message = f"the ledger {path} is damaged ({error}); restore it from a backup, then run verify"
            return CorruptLedgerError(message, **facts)
        case apsw.ConstraintError():
            message = f"the ledger {path} contradicts the state that was read before ({error}); run verify"
            return CorruptLedgerError(message, **facts)
        case apsw.CantOpenError():
            return OwnerUnavailableError(f"cannot open the ledger {path}: {error}", **facts)
        case apsw.ReadOnlyError():
            return OwnerUnavailableError(
                f"the ledger {path} or its -wal or -shm file cannot be written: {error}", **facts
            )
        case apsw.FullError():
            message = f"no space left for the ledger {path}; nothing was committed: make room, then try again"
            return OwnerUnavailableError(message, **facts)
        case _:
            return OwnerUnavailableError(f"the ledger {path} did not answer: {error}", **facts)
