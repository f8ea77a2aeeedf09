"""Crashes and failing disks: an environment that counts every effect, and can crash or fail at each.

    recorder = Faults()                                # only counts
    crash = Faults(crash_after=3)                      # three effects happen, then the process is dead
    full = Faults(fail_from=3, error=disk_is_full)     # the third effect and all later ones fail

An effect is a change of a file, a commit of a ledger transaction, or a fold of the ledger's write-ahead log. Reads can
fail, too (`fail_reads`). A dead process has no effects: any further effect of the code (in `finally` or after
`suppress`) raises `Killed` again. Unless `durable`, no fsync reaches the disk: the files that a dead process
leaves do not depend on it, and thousands of runs take seconds.

`Watch` records whether effects that need a lock happen under the lock and in a transaction.
"""

import errno
import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw

import refimpl
from conformance.adapters.reference.host_effects import READS, EffectFiles, Killed, LedgerConnection, Result
from refimpl.owner.tables import LOCK_FILE
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.storage.environment import Environment, HostLock, host_lock
from refimpl.storage.files import Files, PosixFiles

OPENING = 1
"""The number of effects when an existing ledger is opened: the owner makes the names in the ledger's folder durable.
(It also makes durable what a dead process left in the write-ahead log, but by SQLite's own files, which do not
count.)"""


def disk_is_full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def read_only() -> OSError:
    return OSError(errno.EROFS, "Read-only file system")


def disk_is_broken() -> OSError:
    return OSError(errno.EIO, "Input/output error")


class Faults:
    """The plan of crashes and failures. `seen` has the names of the effects so far."""

    def __init__(
        self,
        *,
        crash_after: int | None = None,
        torn: bool = False,
        fail_from: int | None = None,
        fail_count: int | None = None,
        fail_reads: bool = False,
        error: Callable[[], OSError] = disk_is_full,
        durable: bool = False,
        below_sqlite: bool = False,
        die: Callable[[str], object] = lambda effect: None,
        failing: str | None = None,
    ) -> None:
        """`crash_after`: the number of effects before the crash. `torn`: a write at the crash leaves half of its bytes.
        `fail_from`: the number of the first effect that fails. `fail_count`: the number of effects that fail before
        the disk works again; None: it never works again. `below_sqlite`: each write and sync of the ledger's files
        is an effect, too. `die`: called at the crash; it may end the real process. `failing`: every effect of this
        name fails."""
        self.durable = durable
        self._file_system = _FileSystem(self) if below_sqlite else None
        self._die = die
        self.seen: list[str] = []
        self.failing = failing
        self.failed = 0
        self.dead = False
        self._crash_after = crash_after
        self._torn = torn
        self._fail_from = fail_from
        self._fail_count = fail_count
        self._fail_reads = fail_reads
        self._error = error
        self._connections: list[LedgerConnection] = []

    def arm(self, crash_after: int | None, *, torn: bool = False) -> None:
        """Crash after `crash_after` more effects; None: never."""
        self._crash_after = None if crash_after is None else len(self.seen) + crash_after
        self._torn = torn

    def fail(self, after: int | None, *, count: int | None = None, error: Callable[[], OSError] = disk_is_full) -> None:
        """Let `count` effects fail after `after` more effects; None: no effect fails."""
        self._fail_from = None if after is None else len(self.seen) + after + 1
        self._fail_count = count
        self._error = error

    def environment(self, **fields: Any) -> Environment:
        return Environment(files=FaultyFiles(self), connect=self._connect, **fields)

    def effect(self, name: str, act: Callable[[], Result], torn: Callable[[], object] | None = None) -> Result:
        if self.dead:
            raise Killed(name)
        if self._crash_after is not None and len(self.seen) >= self._crash_after:
            self.dead = True
            if self._torn and torn is not None:
                torn()
            self._die(name)
            raise Killed(name)
        self.seen.append(name)
        self._fail_if_due()
        return act()

    def read(self, act: Callable[[], Result]) -> Result:
        if self.dead:
            raise Killed("read")
        if self._fail_reads and self._due(len(self.seen) + 1):
            raise self._error()
        return act()

    def _fail_if_due(self) -> None:
        if self._due(len(self.seen)) or self.seen[-1] == self.failing:
            self.failed += 1
            raise self._error()

    def _due(self, number: int) -> bool:
        if self._fail_from is None or number < self._fail_from:
            return False
        return self._fail_count is None or number < self._fail_from + self._fail_count

    def _connect(self, path: Path) -> LedgerConnection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        vfs = None if self._file_system is None else self._file_system.vfs_name
        self._connections.append(FaultyConnection(self, apsw.Connection(str(path), flags=flags, vfs=vfs)))
        return self._connections[-1]

    def abandon(self) -> None:
        """Do what the kernel does after a process dies: close its connections, which rolls back their transactions."""
        self.dead = True
        for connection in self._connections:
            connection.kill()


class FaultyConnection(LedgerConnection):
    """A connection to the ledger whose commits are effects. A failing disk is `SQLITE_FULL` or `SQLITE_IOERR`."""

    def __init__(self, faults: Faults, database: apsw.Connection) -> None:
        super().__init__(database)
        self.faults = faults

    def execute(self, statement: str, *values: Any, **more: Any) -> Any:
        if statement != "COMMIT":
            if not self.faults.durable:
                statement = statement.replace("synchronous=FULL", "synchronous=OFF")
            return self.database.execute(statement, *values, **more)
        try:
            return self.faults.effect("commit", lambda: self.database.execute(statement, *values, **more))
        except OSError as error:
            raise _as_sqlite(error) from error

    def wal_checkpoint(self, *values: Any, **more: Any) -> Any:
        fold = self.database.wal_checkpoint
        if more.get("mode") == apsw.SQLITE_CHECKPOINT_NOOP:
            return fold(*values, **more)
        try:
            return self.faults.effect("fold", lambda: fold(*values, **more))
        except OSError as error:
            raise _as_sqlite(error) from error


class _FileSystem(apsw.VFS):
    """The host's files for SQLite. Each write and sync of a file is an effect of `Faults`."""

    def __init__(self, faults: Faults) -> None:
        self.vfs_name = f"faults-{id(faults)}"
        self._faults = faults
        super().__init__(self.vfs_name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _SqliteFile(name, flags, self._faults)


class _SqliteFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], faults: Faults) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._kind = "temporary file of SQLite" if path is None else Path(path).name
        self._faults = faults
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        write = super().xWrite
        self._effect("write", lambda: write(data, offset), lambda: write(data[: len(data) // 2], offset))

    def xSync(self, flags: int) -> None:  # noqa: N802
        sync = super().xSync
        self._effect("fsync", lambda: sync(flags) if self._faults.durable else None)

    def _effect(self, what: str, act: Callable[[], None], torn: Callable[[], object] | None = None) -> None:
        try:
            self._faults.effect(f"{what} {self._kind}", act, torn)
        except OSError as error:
            raise _as_sqlite(error) from error


def _as_sqlite(error: OSError) -> apsw.Error:
    kind = apsw.FullError if error.errno == errno.ENOSPC else apsw.IOError
    return kind(str(error))


_VERBS: Final = {"make_directory": "mkdir", "remove_directory": "rmdir", "fsync_directory": "fsync"}


class FaultyFiles(EffectFiles):
    """The host's files; every effect asks `Faults` first."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(synced=faults.durable)
        self._faults = faults

    def effect(
        self, operation: str, path: Path | str, act: Callable[[], Result], torn: Callable[[], object] | None = None
    ) -> Result:
        if operation in READS:
            return self._faults.read(act)
        folder = "/" if operation in _VERBS else ""
        return self._faults.effect(f"{_VERBS.get(operation, operation)} {_kind(Path(path))}{folder}", act, torn)


def _kind(path: Path) -> str:
    """A name without the parts that differ between runs."""
    if path.name.startswith(".tmp-"):
        return "temporary"
    if path.parent.name in ("_commits", "_staged_commits"):
        return "staged"
    if path.suffix == ".json" and path.stem.isdigit():
        return f"{int(path.stem)}.json"
    if path.parent.name == LOG_FOLDER:
        return ".".join(part for part in path.name.split(".") if not part.isdigit())
    return path.name.split("-")[0]


def dies_after(effect: str) -> Faults:
    """The process dies just after this effect."""

    class Dies(Faults):
        def effect(self, name, act, torn=None):  # type: ignore[no-untyped-def]
            result = super().effect(name, act, torn)
            if name == effect:
                self.arm(0)
            return result

    return Dies()


def opened(directory: Path) -> refimpl.Warehouse:
    """The warehouse without faults, and without waiting for the disk."""
    return refimpl.open(directory, environment=Faults().environment(), create=True)


def crashed(directory: Path, faults: Faults, act: Callable[[refimpl.Warehouse], Result]) -> Result | None:
    """Open the warehouse and act, with these faults, then abandon it. Returns None if the process died."""
    try:
        return act(refimpl.open(directory, environment=faults.environment(), create=True))
    except Killed:
        return None
    finally:
        faults.abandon()


class FailingFiles(EffectFiles):
    """Real files. `fail_when(operation, path)` decides whether an operation fails; `stat` never fails.

    `after`: the operation is carried out, and then reported as failed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fail_when: Callable[[str, Path], bool] = lambda operation, path: False
        self.after = False
        self.error = errno.ENOSPC
        self.done: list[tuple[str, Path]] = []

    def effect(
        self, operation: str, path: Path | str, act: Callable[[], Result], torn: Callable[[], object] | None = None
    ) -> Result:
        fails = operation != "stat" and self.fail_when(operation, Path(path))
        injected = OSError(self.error, "injected", str(path))
        if fails and (not self.after or operation in READS):
            raise injected
        result = act()
        if operation not in READS:
            self.done.append((operation, Path(path)))
        if fails:
            raise injected
        return result


HOST_START = 1_700_000_000_000
"""In ms since the epoch; far enough in the past that no file of a test is older."""


@dataclass
class ScriptedHost:
    """`now` returns `clock`, in ms, and then adds `tick` to it. `pauses` are only recorded.

    Hosts with different names never make the same id.
    """

    name: str = "host"
    clock: int = HOST_START
    tick: int = 0
    files: Files = field(default_factory=PosixFiles)
    pauses: list[float] = field(default_factory=list)
    on_pause: Callable[[], object] | None = None
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def environment(self) -> Environment:
        return Environment(files=self.files, now=self._now, new_id=self._new_id, random=lambda: 0.5, pause=self._pause)

    def _now(self) -> int:
        self.clock += self.tick
        return self.clock - self.tick

    def _new_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.name}-{next(self._ids)}"))

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self.on_pause is not None:
            self.on_pause()


def watched_lock(hold: Callable[[Path, HostLock], Iterator[None]]) -> Callable[[Path], HostLock]:
    """The locks of an `Environment`. Each time a lock is taken, `hold` runs, with the lock's path and the real lock.
    `hold` is a generator, as for a context manager."""
    held = contextmanager(hold)

    def lock(path: Path) -> HostLock:
        real = host_lock(path)
        return lambda: held(path, real)

    return lock


class Watch(Faults):
    """Records every effect that needs a lock, and whether the lock is held. Effects on the ledger need the owner's
    lock; effects on a log need the owner's lock or the table's publishing lock."""

    def __init__(self) -> None:
        super().__init__(error=disk_is_broken)
        self.held = 0
        self.publishing = 0
        self.inside: set[str] = set()
        self.outside: list[str] = []
        self._opened: list[refimpl.Warehouse] = []
        self.lock = watched_lock(self._hold)

    def opened(self, directory: Path) -> refimpl.Warehouse:
        """Open the warehouse, and watch every change of it."""
        self._opened.append(refimpl.open(directory, environment=self.environment(host_lock=self.lock), create=True))
        return self._opened[-1]

    def close(self) -> None:
        """Close the warehouse. Idempotent."""
        for warehouse in self._opened:
            warehouse.owner.close()

    def _hold(self, path: Path, real: HostLock) -> Iterator[None]:
        counter = "held" if path.name == LOCK_FILE else "publishing"
        with real():
            setattr(self, counter, getattr(self, counter) + 1)
            try:
                yield
            finally:
                setattr(self, counter, getattr(self, counter) - 1)

    def note(self, name: str, *, allowed: bool) -> None:
        if allowed:
            self.inside.add(name)
        else:
            self.outside.append(name)

    def effect(self, name: str, act: Callable[[], Result], torn: Callable[[], object] | None = None) -> Result:
        if name in ("commit", "fold"):
            self.note(name, allowed=self.held > 0)
        elif name == "unlink staged" or name.startswith(("link ", "replace ")):
            self.note(name.partition(" ")[0], allowed=self.held + self.publishing > 0)
        return super().effect(name, act, torn)

    def _connect(self, path: Path) -> LedgerConnection:
        self._connections.append(WatchedConnection(self, apsw.Connection(str(path))))
        return self._connections[-1]


class Others:
    """Another process acts once: just before the owner gets the lock for the `at`-th time, not counting publishing
    locks, or just after it has released a lock."""

    def __init__(
        self, *, before: Callable[[], object] | None = None, after: Callable[[], object] | None = None, at: int = 1
    ) -> None:
        self._before = before
        self._after = after
        self._left = at
        self.lock = watched_lock(self._hold)

    @property
    def acted(self) -> bool:
        return self._before is None and self._after is None

    def _hold(self, path: Path, real: HostLock) -> Iterator[None]:
        self._left -= not path.name.startswith("publishing")
        if self._before is not None and self._left == 0:
            act, self._before = self._before, None
            act()
        with real():
            yield
        after, self._after = self._after, None
        if after is not None:
            after()


class WatchedConnection(FaultyConnection):
    faults: Watch

    def execute(self, statement: str, *values: Any, **more: Any) -> Any:
        kind = statement.split(maxsplit=1)[0]
        if statement.startswith("BEGIN IMMEDIATE"):
            self.faults.note("begin", allowed=self.faults.held > 0)
        if kind in ("INSERT", "UPDATE", "DELETE"):
            self.faults.note(kind.lower(), allowed=self.faults.held > 0 and self.in_transaction)
        return super().execute(statement, *values, **more)

    def pragma(self, name: str, *values: Any, **more: Any) -> Any:
        if name == "journal_mode" and values:
            self.faults.note("journal", allowed=self.faults.held > 0)
            self.faults.seen.append("journal")
        return self.database.pragma(name, *values, **more)
