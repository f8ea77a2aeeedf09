"""The ledger with what it needs where other programs and failing disks touch its files.

- A write-ahead log that belongs to another ledger, is damaged, or was removed while the owner ran, is an error.
- A ledger that was replaced, as by a restore, is used from then on.
- After a sync that failed, the end of the write-ahead log is written again before anybody acts on it.
- Another SQLite library in the process drops no lock of the owner, and a fork carries no connection into the child.
- A ledger in a folder that cannot be written can be shown.
- Backups, and SQLite's own check of the file.
"""

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from refimpl.care.write_ahead_log import WriteAheadLog
from refimpl.owner.ledger import Ledger, connect, roll_back, sqlite_errors
from refimpl.owner.statements import FORGET_PROMISES, View
from refimpl.protocol.errors import CorruptLedgerError, InvalidRequestError, OutcomeUnknown, OwnerUnavailableError
from refimpl.storage.environment import Environment, HostLock
from refimpl.storage.files import cannot_exist, may_write

SHM_IN_USE: Final = 128
"""The byte of the `-shm` file that SQLite locks while the file is open; a process that finds it unlocked may empty
the file."""

DATABASE_IN_USE: Final = (0x40000002, 510)
"""The bytes of the database that SQLite locks while it is open; a process that finds them unlocked may remove the
write-ahead log."""

_UNFINISHED: Final = ".commit-owner-backup-"
"""Of the names of unfinished backups."""
_ABANDONED_MS: Final = 24 * 3600 * 1000
"""No backup takes that long: the process that made an older one has died."""


def connect_to_any(path: Path) -> apsw.Connection:
    """A connection as `connect` makes it. Where a file cannot be written, the connection is read-only. Where the `-shm`
    file cannot be created either, SQLite keeps the index of the write-ahead log in memory, without locks; `immutable=1`
    would ignore that log.
    """
    wal, shm = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
    if all(map(may_write, (path, wal, shm))):
        return connect(path)
    alone = cannot_exist(shm)
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix-none" if alone else None)
    if alone:
        database.pragma("locking_mode", "exclusive")
    return database


class WatchedLedger(Ledger):
    """The ledger of an owner that `refimpl.open` opens.

    Connections are never carried across `fork`. SQLite remembers per process which locks it holds, and
    a child inherits that memory without the locks: so the forking thread closes its connection first,
    Python drops those of other threads in the child, and both sides open new ones. A child that was forked
    inside a transaction gets an error.
    """

    def __init__(self, folder: Path, lock: HostLock, environment: Environment) -> None:
        super().__init__(folder, lock, environment)
        self.connect = environment.connect or connect_to_any
        self._log_name = str(self.log_path)
        self._shm_name = str(self.path.with_name(f"{self.path.name}-shm"))
        self._connections: weakref.WeakKeyDictionary[apsw.Connection, object] = weakref.WeakKeyDictionary()
        """The connections of this process, each with the identity of its write-ahead log."""
        self._forked_inside = False
        key = id(self)
        _ledgers[key] = weakref.ref(self, lambda _: _ledgers.pop(key, None))

    @contextmanager
    def read(self) -> Iterator[View]:
        with super().read() as view:
            yield view
        if self.local.unlocked is not None and self.local.unlocked != self._identities():
            raise OwnerUnavailableError(f"another process opened {self.path} during an unlocked read; try again")

    def commit(self, database: apsw.Connection) -> None:
        super().commit(database)
        if self._log_is_another():
            raise OutcomeUnknown(
                f"{self._log_was_removed()}; call attempt_outcome to find out whether this transaction landed"
            )

    def current_database(self) -> apsw.Connection:
        """The connection to the files that have the names of the ledger and of its write-ahead log now.

        SQLite would continue with the old files, and two processes could ratify the same version. After a restore the
        ledger is another file: this opens that one. A write-ahead log that was removed or replaced is an error:
        SQLite shares the index of the old one between all connections of a process. If the ledger had no write-ahead
        log (a backup) and has one now, the connection is older than that log: this opens a new connection, too.
        """
        database = super().current_database()
        moved: ctypes.c_int = self.local.moved
        database.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
        if moved.value or self.local.log is None:
            self.close()
            self.open()
            return self.database()
        if self._log_is_another():
            raise OwnerUnavailableError(self._log_was_removed(), path=str(self.path))
        return database

    def database(self) -> apsw.Connection:
        if self._forked_inside and getattr(self.local, "process", None) != os.getpid():
            raise OwnerUnavailableError(
                f"this process was forked inside a transaction on {self.path}, and SQLite does not work after "
                f"that; start the process with spawn, or fork outside of the transaction",
                path=str(self.path),
            )
        return super().database()

    def opened(self, database: apsw.Connection) -> None:
        self._refuse_foreign_log(database)
        super().opened(database)

    def _refuse_foreign_log(self, database: apsw.Connection) -> None:
        """A backup has no write-ahead log. One beside it belongs to the ledger that the backup replaced, and
        SQLite would apply it; from an empty one it concludes that the ledger is locked."""
        if self.environment.files.stat(self.log_path) is None:
            return
        with _file(database, database.filename, apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY) as file:
            header = file.xRead(20, 0) if file.xFileSize() >= 20 else b""
        if header[18:] == b"\x01\x01":  # the file format: without a write-ahead log
            raise CorruptLedgerError(
                f"{self.path} is a backup, but {self.log_path.name} belongs to the ledger that it replaced; "
                f"remove {self.log_path.name} and {self.path.name}-shm, then run verify",
                path=str(self.path),
            )

    def _log_is_another(self) -> bool:
        known: object = self.local.log
        try:
            return self.environment.files.identity(self._log_name) != known
        except OSError:  # unknown: that does not prove that the log is the same
            return True

    def _identities(self) -> tuple[object, object]:
        files = self.environment.files
        return files.identity(self._log_name), files.identity(self._shm_name)

    def _log_was_removed(self) -> str:
        return (
            f"{self.log_path} was removed or replaced while this process had it open, by hand or by an SQLite client "
            f"that ignores SQLite's locks; end every process of this owner, then run verify"
        )

    def watch_log(self, database: apsw.Connection) -> None:
        """Remember the write-ahead log of this connection. No SQLite client removes it while SQLite's locks hold.

        These locks belong to the process, and another SQLite library in it, such as Python's own, drops them. So the
        bytes that a connection keeps locked between its transactions are locked a second time, until the connection
        ends: STORAGE.md#second-library. The caller has read the database: SQLite has taken its own locks.
        """
        files = self.environment.files
        unlocked = database.readonly("main") and files.identity(self._shm_name) is None
        self.local.moved = ctypes.c_int()
        self.local.unlocked = self._identities() if unlocked else None  # then each read opens the files again
        self.local.log = self._connections[database] = None if unlocked else files.identity(self._log_name)
        if self.local.log is None:
            return
        try:
            self.local.locks = (
                files.hold_shared(self._shm_name, SHM_IN_USE, 1),
                files.hold_shared(str(self.path), *DATABASE_IN_USE),
            )
        except OSError as error:
            raise OwnerUnavailableError(f"cannot lock {self.path}: {error}", path=str(self.path)) from error

    def closed(self, database: apsw.Connection) -> None:
        self._connections.pop(database, None)
        self.local.locks = None

    def before_fork(self) -> None:
        database: apsw.Connection | None = getattr(self.local, "database", None)
        if database is not None and not database.in_transaction:
            self.close()

    def after_fork(self) -> None:
        self._forked_inside = len(self._connections) > 0

    def sync_log(self, database: apsw.Connection) -> None:
        log = self.environment.files.identity(self._log_name)
        if log is None or log not in self._connections.values():  # otherwise the visible data was made durable before
            self._write_last_transaction_again(database)

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
                    roll_back(database)
                before, frames = frames, _frames(database)
                if frames == before:  # no process appended between the two reads
                    raise CorruptLedgerError(
                        f"{self.log_path} is damaged after frame {frames}, and SQLite would drop the transactions "
                        f"after it; restore the ledger from a backup, then run verify",
                        path=str(self.path),
                    )

    def integrity_errors(self) -> list[str]:
        """The errors that SQLite's own integrity check reports."""
        with sqlite_errors(self.path):
            problems = [row[0] for row in self.current_database().execute("PRAGMA integrity_check")]
        return [] if problems == ["ok"] else problems

    def back_up(self, target: Path) -> None:
        """Copy the ledger, consistently and durably, while others use it. `target` must not exist.

        The copy has no open promises: it is the state before them. A restored promise would be kept, although the owner
        may have denied the commit since, and forgotten the promise.

        Order: remove the copies that processes left unfinished a day ago, copy under another name, delete the promises,
        fsync, link to the name, fsync the directory.
        """
        files = self.environment.files
        if files.stat(target) is not None:
            raise InvalidRequestError(f"{target} exists; choose a new file", path=str(target))
        if files.stat(target.parent) is None:
            raise InvalidRequestError(f"{target.parent} does not exist; create it first", path=str(target))
        with contextlib.suppress(OSError):
            for entry in files.list_directory(target.parent):
                if entry.name.startswith(_UNFINISHED) and entry.modified < self.environment.now() - _ABANDONED_MS:
                    files.unlink(target.with_name(entry.name))
        unfinished = target.with_name(f"{_UNFINISHED}{self.environment.new_id()}")
        try:
            with sqlite_errors(self.path):
                copy = self.connect(unfinished)
                with copy.backup("main", self.current_database(), "main") as backup:
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


_ledgers: Final[dict[int, weakref.ref[WatchedLedger]]] = {}
"""The ledgers of this process. (A function that is registered for forks is kept until the process ends.)"""


def before_fork() -> None:
    """Close the connections of the thread that forks."""
    _each(WatchedLedger.before_fork)


def after_fork_in_child() -> None:
    """Find out whether another thread of the parent was inside a transaction."""
    _each(WatchedLedger.after_fork)


def _each(act: Callable[[WatchedLedger], None]) -> None:
    for reference in list(_ledgers.values()):
        ledger = reference()
        if ledger is not None:
            with contextlib.suppress(apsw.Error):
                act(ledger)


os.register_at_fork(before=before_fork, after_in_child=after_fork_in_child)
