"""The effects of one owner process on the real host: files and connections whose operations can fail, stop or die.

The simulated hosts and the faults of tests are built on these; so are crash points.

All effects of the reference pass through its `Environment`; at a crash point they pass through a `Life` first. A `Life`
that has ended has no effects: if its code still tries one (in `finally` or `suppress`), that raises `Killed` again.
Locks are freed and open transactions are rolled back, as the operating system does for a killed process. Written bytes
stay, synced or not, because a process dies here and the power stays on. So the kit cannot see whether bytes reached the
disk. By default no write waits for a sync, which would take two thirds of the time of a run.
"""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from refimpl.owner import ledger
from refimpl.protocol.log_path import LOG_FOLDER, FileKind, parse
from refimpl.protocol.table_feature import TABLE_FEATURES
from refimpl.storage.environment import Environment
from refimpl.storage.files import NewFile, PosixFiles

Result = TypeVar("Result")


class LedgerConnection:
    """A connection to the ledger. It passes every call that it does not define on to `database`."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.killed = False

    @property
    def in_transaction(self) -> bool:
        """Works after `kill` too: the real process lives on, and reads this before it forks."""
        return not self.killed and bool(self.database.in_transaction)

    def kill(self) -> None:
        """Close the connection, and roll an open transaction back, as the operating system does for a dead process.
        Idempotent."""
        self.killed = True
        self.database.close(True)

    def backup(self, name: str, source: "LedgerConnection", source_name: str) -> Any:
        return self.database.backup(name, source.database, source_name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


class EffectFiles(PosixFiles):
    """The host's files. All calls except `identity` and the lock calls go through `effect`, which a subclass overrides.

    `synced`: whether an fsync reaches the disk. The files of a dead process do not depend on it, and syncs take two
    thirds of the time of a test.
    """

    def __init__(self, *, synced: bool = True) -> None:
        self.synced = synced

    def effect(
        self, operation: str, path: Path | str, act: Callable[[], Result], torn: Callable[[], object] | None = None
    ) -> Result:
        """Call `act`, or raise. `operation` is the name of the method, and `torn` writes half of the bytes.

        `path` is the target of a link or a replace. `exists` is called often, so it passes the path as text.
        """
        return act()

    def create(self, path: Path) -> NewFile:
        return _EffectNewFile(self, path, self.effect("create", path, lambda: PosixFiles.create(self, path)))

    def fsync(self, path: Path) -> None:
        self.effect("fsync", path, lambda: self._sync(PosixFiles.fsync, path))

    def fsync_directory(self, path: Path) -> None:
        self.effect("fsync_directory", path, lambda: self._sync(PosixFiles.fsync_directory, path))

    def _sync(self, sync: Callable[[PosixFiles, Path], None], path: Path) -> None:
        if self.synced:
            sync(self, path)
        else:
            path.stat()


def _through(name: str) -> Callable[..., Any]:
    """The method of that name, as an effect."""
    method = getattr(PosixFiles, name)

    def call(self: EffectFiles, path: Path | str, *more: Any) -> Any:
        target = more[0] if name in ("link", "replace") else path
        return self.effect(name, target, lambda: method(self, path, *more))

    return call


READS: Final = frozenset({"list_directory", "read", "stat", "exists"})
"""The operations that change nothing."""

for _name in ("make_directory", "remove_directory", "link", "replace", "unlink", *READS):
    setattr(EffectFiles, _name, _through(_name))


class _EffectNewFile:
    def __init__(self, files: EffectFiles, path: Path, file: NewFile) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write(self, content: bytes) -> None:
        half = content[: len(content) // 2]
        self._files.effect("write", self._path, lambda: self._file.write(content), torn=lambda: self._file.write(half))

    def fsync(self) -> None:
        self._files.effect("fsync", self._path, self._file.fsync if self._files.synced else lambda: None)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)


# Dying at a chosen point


CRASH_POINTS: Final = {
    "during-stage": "half of a staged file is written",
    "after-stage": "the staged file is durable, but not proposed yet",
    "before-ratify": "the transaction that records a staged or inline commit is open: the commit point is next",
    "after-ratify": "that transaction is committed: the commit is ratified, but no answer was sent",
    "before-promise": "the promise of a commit by put-if-absent is not stored yet",
    "after-promise": "the promise is stored, but its file does not exist yet",
    "before-link": "the promised bytes are durable under a temporary name",
    "after-link": "the promised `<v>.json` is visible, but the ledger does not have it yet",
    "before-record": "the transaction that records a kept promise is open",
    "after-record": "that transaction is committed, but no answer was sent",
    "before-publish": "a backfill is about to make a `<v>.json` visible",
    "after-publish": "that file is visible, but the owner has not recorded it",
    "before-forget": "all requested commits are published, but the owner still keeps its copies",
    "after-forget": "the copies are deleted, but no answer was sent",
    "before-tombstone": "an attempt is about to be recorded as never landing",
    "after-tombstone": "that is recorded, but no answer was sent",
    "before-drop": "a table is about to lose its name",
    "after-drop": "the table has lost its name, but no answer was sent",
}
"""The points at which an owner can die, and its state at each."""

STAGING_FOLDERS: Final = frozenset(feature.staging_folder for feature in TABLE_FEATURES.values())

_DOES: Final = (
    ("INSERT INTO promises", "promise"),
    ("DELETE FROM promises", "keep"),
    ("INSERT INTO commits", "ratify"),
    ("UPDATE commits SET published_at", "forget"),
    ("INSERT OR IGNORE INTO tombstones", "tombstone"),
    ("UPDATE tables SET state", "drop"),
)
"""The beginning of a ledger statement, and what its transaction decides."""


class Killed(BaseException):
    """The process died here. It is not an `Exception`, so that no handler catches it."""


class Life:
    """One process of the owner, from its start to its death. `synced`: whether fsync reaches the disk."""

    def __init__(self, *, synced: bool) -> None:
        self.synced = synced
        self.dead = False
        self.crash_point: str | None = None
        """The crash point at which the process dies."""
        self._connections: list[_Connection] = []
        self._of_thread = threading.local()

    def environment(self) -> Environment:
        return Environment(files=_Files(self), connect=self._connect)

    def alive(self) -> None:
        """Raises `Killed` if the process is dead."""
        if self.dead:
            raise Killed

    def reach(self, point: str) -> None:
        """Die if this is the crash point. Raises `Killed`."""
        self.alive()
        if point == self.crash_point:
            self.dead = True
            raise Killed(point)

    def end(self) -> None:
        """End without cleaning up: connections close, and open transactions are rolled back. Idempotent.

        Only the calling thread's own connections are certainly idle. Connections of other threads close at their next
        effect.
        """
        self.dead = True
        for connection in self._connections:
            with contextlib.suppress(Exception):  # another thread uses this connection, and dies at its next effect
                connection.kill()

    def _connect(self, path: Path) -> "_Connection":
        self.alive()
        connection = _Connection(self, ledger.connect(path))
        self._connections.append(connection)
        return connection

    # The statements of a thread's transaction tell what it decides

    def begins(self) -> None:
        self._of_thread.does = set()

    def does(self, statement: str) -> None:
        text = statement.lstrip()
        for beginning, what in _DOES:
            if text.startswith(beginning):
                self._of_thread.does.add(what)

    def commit_point(self) -> str | None:
        """What the open transaction decides; None for a transaction without a crash point."""
        decisions: set[str] = getattr(self._of_thread, "does", set())
        if "promise" in decisions:
            return "promise"
        if "ratify" in decisions:
            return "record" if "keep" in decisions else "ratify"
        return next((what for what in ("forget", "tombstone", "drop") if what in decisions), None)

    def committed(self, what: str | None) -> None:
        self._of_thread.promised = what == "promise"
        self._of_thread.does = set()

    def visible_effect(self) -> str:
        """The crash point for a `<v>.json` that this thread makes visible."""
        return "link" if getattr(self._of_thread, "promised", False) else "publish"


class _Connection(LedgerConnection):
    """A connection to the ledger; each of its commits is an effect."""

    def __init__(self, life: Life, database: Any) -> None:
        super().__init__(database)
        self.life = life

    def execute(self, statement: str, *values: Any) -> Any:
        self.life.alive()
        if statement.startswith("BEGIN"):
            self.life.begins()
        if statement != "COMMIT":
            self.life.does(statement)
            if not self.life.synced:
                statement = statement.replace("synchronous=FULL", "synchronous=OFF")
            return self.database.execute(statement, *values)
        what = self.life.commit_point()
        if what is not None:
            self.life.reach(f"before-{what}")
        cursor = self.database.execute(statement, *values)
        self.life.committed(what)
        if what is not None:
            self.life.reach(f"after-{what}")
        return cursor


class _Files(EffectFiles):
    """The host's files, as long as the process is alive."""

    def __init__(self, life: Life) -> None:
        super().__init__(synced=life.synced)
        self._life = life

    def effect(
        self, operation: str, path: Path | str, act: Callable[[], Result], torn: Callable[[], object] | None = None
    ) -> Result:
        life = self._life
        life.alive()
        if operation in READS:
            return act()
        path = Path(path)
        if operation == "link" and _is_commit(path):
            what = life.visible_effect()
            life.reach(f"before-{what}")
            result = act()
            life.reach(f"after-{what}")
            return result
        if torn is not None and path.parent.name in STAGING_FOLDERS and life.crash_point == "during-stage":
            torn()
            life.reach("during-stage")
        result = act()
        if operation == "fsync_directory" and path.name in STAGING_FOLDERS:
            life.reach("after-stage")
        return result

    def hold_shared(self, path: str, start: int, length: int) -> object:
        self._life.alive()
        return super().hold_shared(path, start, length)


def _is_commit(path: Path) -> bool:
    if path.parent.name != LOG_FOLDER:
        return False
    log_path = parse(path.name)
    return log_path is not None and log_path.kind is FileKind.COMMIT
