"""The ledger: SQLite through apsw, its transactions, its durability and its errors.

Durability: WAL with synchronous=FULL, so that a committed transaction survives a power cut. Every write and every
checkpoint happens under the owner's lock; reads take no lock and see one snapshot. The owner checkpoints ("folds") the
write-ahead log into the database explicitly, also under the lock.

The database file is opened by SQLite alone: POSIX drops a process's locks on a file when any descriptor of it is
closed, and without these locks another SQLite client would remove the write-ahead log of a running owner.

`refimpl.open` uses a subclass that also survives damage from outside: `care.watched_ledger`.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import apsw

from refimpl.owner.statements import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, View, Writer
from refimpl.protocol.errors import (
    CorruptLedgerError,
    DeltaError,
    InvalidRequestError,
    OutcomeUnknown,
    OwnerUnavailableError,
)
from refimpl.storage.environment import Environment, HostLock, before_release
from refimpl.storage.files import cannot_exist, reserve_private

logger = logging.getLogger(__name__)

FILE_NAME: Final = "ledger.sqlite"
FOLD_PAGES: Final = 2000
"""Fold the write-ahead log into the database when it has more pages than this: about 8 MB."""

DURABLE: Final = "PRAGMA synchronous=FULL; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON"
"""`fullfsync` makes SQLite empty the drive's cache on macOS; on other systems `fsync` does that."""


def connect(path: Path) -> apsw.Connection:
    """A connection to an existing or new database on this host. Only its user may read a new one, and the files that
    SQLite creates beside it. An existing file is not opened as a file: closing it would drop SQLite's locks."""
    reserve_private(path)
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)


class Ledger:
    """The ledger in `folder`, of the warehouse around it. One connection per thread and process.

    A ledger that was used must not be used in a forked child: see `care.watched_ledger`.
    """

    def __init__(self, folder: Path, lock: HostLock, environment: Environment) -> None:
        self.path = folder / FILE_NAME
        self.log_path = folder / f"{FILE_NAME}-wal"
        self.lock = lock
        self.environment = environment
        self.connect = environment.connect or connect
        self.local = threading.local()
        """`database`: this thread's connection."""
        self._warehouse = folder.parent
        self._log_pages = 0

    def exists(self) -> bool:
        return self.environment.files.stat(self.path) is not None

    def create(self) -> None:
        """Create an empty ledger unless there is one. Safe if several processes call it at once.

        Order, under the lock: build it completely under another name, make it durable, rename it into
        place, make the name durable. So an empty or truncated ledger is always damage, never a new one. It
        has a write-ahead log from the start: a power cut could undo a later switch to one.
        """
        files = self.environment.files
        with self.lock():
            if self.exists():
                return
            if files.stat(self.log_path) is not None:
                raise CorruptLedgerError(
                    f"{self.path} is missing, but {self.log_path.name} exists; restore the ledger from a backup",
                    path=str(self.path),
                )
            unfinished = self.path.with_suffix(".new")
            for suffix in ("", "-wal", "-shm", "-journal"):
                with contextlib.suppress(FileNotFoundError):
                    files.unlink(unfinished.with_name(unfinished.name + suffix))
            with sqlite_errors(unfinished):
                database = self.connect(unfinished)
                database.execute(f"{DURABLE}; PRAGMA application_id={APPLICATION_ID}").fetchall()
                database.execute("BEGIN IMMEDIATE")
                database.execute(SCHEMA).fetchall()
                database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                database.execute("COMMIT")
                self._keep_write_ahead_log(database)
                database.close()
            files.fsync(unfinished)
            files.replace(unfinished, self.path)
            files.fsync_directory(self.path.parent)

    def open(self) -> None:
        """Check that the file is a ledger with a known schema, and that it has a write-ahead log."""
        with sqlite_errors(self.path):
            database = self.database()
            schema_version = database.pragma("user_version")
            if database.pragma("application_id") != APPLICATION_ID:
                raise CorruptLedgerError(
                    f"{self.path} is not the ledger of a commit owner; restore it from a backup", path=str(self.path)
                )
            if schema_version != SCHEMA_VERSION:
                raise InvalidRequestError(
                    f"{self.path} has schema version {schema_version}, this release reads {SCHEMA_VERSION}; "
                    f"use the release that wrote it, or hand its tables back with that release and take them over here",
                    found=schema_version,
                    known=SCHEMA_VERSION,
                )
            has_log = database.readonly("main") or database.pragma("journal_mode") == "wal"  # a backup can be shown
            if not has_log:
                with self.lock():
                    self._keep_write_ahead_log(database)
                    # SQLite has deleted its rollback journal without a sync: if a power cut restored the journal, it
                    # would undo the switch, although the write-ahead log has commits by then.
                    self.environment.files.fsync_directory(self.path.parent)
                    database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")  # a write, which creates the log
                self.watch_log(database)

    def _keep_write_ahead_log(self, database: apsw.Connection) -> None:
        if database.pragma("journal_mode", "wal") != "wal":
            raise OwnerUnavailableError(
                f"the file system of {self.path} does not let SQLite keep a write-ahead log", path=str(self.path)
            )

    # Transactions

    @contextmanager
    def read(self) -> Iterator[View]:
        """One read snapshot. Takes no lock; a writer neither waits for it nor changes it."""
        with sqlite_errors(self.path):
            database = self.current_database()
            try:
                database.execute("BEGIN")
                yield View(database, self._warehouse)
            finally:
                roll_back(database)

    def write(self) -> Self:
        """One write transaction, for a `with` statement; the caller holds the owner's lock. It commits durably, unless
        the block raises.

        Raises `OutcomeUnknown` if the disk failed during the commit: a later read of the ledger shows the outcome.

        Not a generator: one that an interruption (Ctrl-C) leaves suspended would roll back a later transaction of its
        thread, at the moment when it is freed.
        """
        return self

    def __enter__(self) -> Writer:
        return self.begin()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)

    def begin(self) -> Writer:
        try:
            database = self.current_database()
            before_release(lambda: roll_back(database))  # a failed COMMIT or an interruption leaves it open
            database.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise _translated(error, self.path) from error
        return Writer(database, self._warehouse)

    def end(self, error: BaseException | None) -> None:
        """Commit; or, after an error, roll back."""
        try:
            database = self.database()
            if error is not None:
                roll_back(database)
                if isinstance(error, apsw.Error):
                    raise error
                return
            self.commit(database)
            if self._log_pages > FOLD_PAGES:
                self.fold()
        except apsw.Error as failure:
            raise _translated(failure, self.path) from failure

    def commit(self, database: apsw.Connection) -> None:
        try:
            database.execute("COMMIT")
        except apsw.FullError:  # SQLite could not write the whole commit record, so nothing is committed
            raise
        except apsw.Error as error:
            raise OutcomeUnknown(
                f"the disk failed while {self.path} committed ({error}); call attempt_outcome once it works again"
            ) from error

    def fold(self) -> None:
        """Move the write-ahead log into the database, as far as readers allow. The caller holds the lock.

        Never raises: committed transactions stay in the write-ahead log, and the next fold tries again.
        """
        try:
            self.database().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass
        except apsw.Error as error:
            logger.warning("SQLite's checkpoint of %s failed; the next one tries again: %s", self.path, error)
        self._log_pages = 0

    # Connections

    def current_database(self) -> apsw.Connection:
        """This thread's connection, outside of a transaction."""
        database = self.database()
        roll_back(database)  # a transaction that an interruption (Ctrl-C) left open; a thread never nests two
        return database

    def database(self) -> apsw.Connection:
        """This thread's connection, which is opened on its first use."""
        database: apsw.Connection | None = getattr(self.local, "database", None)
        if database is not None and self.local.process == os.getpid():
            return database
        if not self.exists():
            raise CorruptLedgerError(f"{self.path} is missing; restore it from a backup", path=str(self.path))
        self._make_name_durable()
        with self.environment.files.opening():
            database = self.connect(self.path)
            try:
                self.opened(database)
                self.watch_log(database)
            except BaseException:
                database.close()
                raise
        self.local.database = database
        self.local.process = os.getpid()
        return database

    def opened(self, database: apsw.Connection) -> None:
        """Prepare a new connection, and make durable what it reads. A process that died before it synced a commit
        leaves the commit in the write-ahead log, and the first connection afterwards reads it. No process may act on a
        commit that a power cut can still undo.

        Order: SQLite reads the log; the log is synced; then the folder is synced: the log's name, and the deletion of
        an earlier rollback journal. Other connections show no data before that.
        """
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        database.set_busy_timeout(10_000)
        database.execute(f"{DURABLE}; PRAGMA wal_autocheckpoint=0").fetchall()
        database.set_wal_hook(self._on_commit)
        if database.readonly("main"):  # a read-only folder can be shown
            return
        database.pragma("user_version")
        try:
            self.sync_log(database)
            self.environment.files.fsync_directory(self.path.parent)
        except OSError as error:
            raise OwnerUnavailableError(f"cannot make {self.log_path} durable: {error}", path=str(self.path)) from error

    def sync_log(self, database: apsw.Connection) -> None:  # noqa: ARG002 - a subclass writes through SQLite
        """Make the write-ahead log durable. Not enough after an fsync that failed: the next one may report success."""
        if self.environment.files.stat(self.log_path) is not None:
            self.environment.files.fsync(self.log_path)

    def watch_log(self, database: apsw.Connection) -> None:
        """A subclass watches the write-ahead log that the connection has from now on."""

    def _make_name_durable(self) -> None:
        """Make the ledger's name durable before SQLite creates a write-ahead log beside it: the process that renamed
        the ledger into place may have died before it synced the folder, and a log without its ledger is damage."""
        files = self.environment.files
        if files.stat(self.log_path) is None:
            try:
                files.fsync_directory(self.path.parent)
            except OSError as error:
                raise OwnerUnavailableError(f"cannot make {self.path} durable: {error}", path=str(self.path)) from error

    def close(self) -> None:
        """Close this thread's connection."""
        database: apsw.Connection | None = getattr(self.local, "database", None)
        if database is not None and self.local.process == os.getpid():
            with self.environment.files.opening():
                database.close()
                self.closed(database)
        self.local.database = None

    def closed(self, database: apsw.Connection) -> None:
        """A subclass no longer watches the write-ahead log of this connection."""

    def _on_commit(self, _database: apsw.Connection, _schema: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK


def roll_back(database: apsw.Connection) -> None:
    if database.in_transaction:
        database.execute("ROLLBACK")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as the project's."""
    try:
        yield
    except apsw.Error as error:
        raise _translated(error, path) from error


def _translated(error: apsw.Error, path: Path) -> DeltaError:
    kind: type[DeltaError] = OwnerUnavailableError
    wal = path.with_name(f"{path.name}-wal")
    match error:
        case apsw.CantOpenError() | apsw.ReadOnlyError() if cannot_exist(wal):
            kind = InvalidRequestError
            message = (
                f"{wal} is missing and cannot be created; it may hold the newest commits: copy it together with the "
                f"ledger, or make {path.parent} writable"
            )
        case apsw.CorruptError() | apsw.NotADBError() | apsw.SQLError():
            kind = CorruptLedgerError
            message = f"the ledger {path} is damaged ({error}); restore it from a backup, then run verify"
        case apsw.ConstraintError():
            kind = CorruptLedgerError
            message = f"the ledger {path} contradicts the state that was read before ({error}); run verify"
        case apsw.CantOpenError():
            message = f"cannot open the ledger {path}: {error}; check that the file exists and can be read"
        case apsw.ReadOnlyError():
            message = f"the ledger {path} or its -wal or -shm cannot be written ({error}); check their permissions"
        case apsw.FullError():
            message = f"no space left for the ledger {path}; nothing was committed: make room, then try again"
        case _:
            message = f"SQLite failed on the ledger {path} ({error}); try again, and run verify if it fails again"
    return kind(message, path=str(path))
