"""The effects of one owner process that dies at a chosen point.

All effects of the reference pass through its `Environment`; here they pass through a `Life` first. A life that ended
has no effects: each effect that its code still tries (`finally`, `suppress`) raises `Killed` again, locks are freed and
open transactions rolled back, as the kernel does for a process that was killed. Written bytes stay,
synced or not: this is the death of a process, not a power cut. So the kit cannot see whether bytes reached the disk,
and by default nothing waits for a sync, which would take two thirds of the time of a run.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from conformance.adapters.reference.host_effects import READS, EffectFiles, LedgerConnection, Result
from refimpl.environment import Environment
from refimpl.log_path import LOG_FOLDER, FileKind, parse
from refimpl.owner import ledger
from refimpl.table_feature import TABLE_FEATURES

CRASH_POINTS: Final = {
    "during-stage": "half of a staged file is written",
    "after-stage": "the staged file is durable, and not proposed",
    "before-ratify": "the transaction that records a staged or inline commit is open: the commit point is next",
    "after-ratify": "it is committed: the commit is ratified, and no answer was sent",
    "before-promise": "the promise of a commit by put-if-absent is not stored",
    "after-promise": "it is stored, and its file does not exist yet",
    "before-link": "the promised bytes are durable under a temporary name",
    "after-link": "the promised `<v>.json` is visible, and the ledger does not have it yet",
    "before-record": "the transaction that records a kept promise is open",
    "after-record": "it is committed, and no answer was sent",
    "before-publish": "a backfill is about to make a `<v>.json` visible",
    "after-publish": "that file is visible, and the owner does not know",
    "before-forget": "all requested commits are published, and the owner still keeps its copies",
    "after-forget": "the copies are deleted, and no answer was sent",
    "before-tombstone": "an attempt is about to be recorded as never landing",
    "after-tombstone": "it is recorded, and no answer was sent",
    "before-drop": "a table is about to lose its name",
    "after-drop": "it has lost it, and no answer was sent",
}
"""The points at which an owner can die, and its state there."""

STAGING_FOLDERS: Final = frozenset(feature.staging_folder for feature in TABLE_FEATURES.values())

_DOES: Final = (
    ("INSERT INTO promises", "promise"),
    ("DELETE FROM promises", "keep"),
    ("INSERT INTO commits", "ratify"),
    ("UPDATE commits SET published_at", "forget"),
    ("INSERT OR IGNORE INTO tombstones", "tombstone"),
    ("UPDATE tables SET state", "drop"),
)
"""By how a statement of the ledger begins, what its transaction decides."""


class Killed(BaseException):
    """The process died here. Not an `Exception`, so that no handler catches it on the way out."""


class Life:
    """One process of the owner, from its start to its death. `synced`: whether fsync reaches the disk."""

    def __init__(self, *, synced: bool) -> None:
        self.synced = synced
        self.dead = False
        self.deadly: str | None = None
        """The point at which it dies."""
        self._connections: list[_Connection] = []
        self._of_thread = threading.local()

    def environment(self) -> Environment:
        return Environment(files=_Files(self), connect=self._connect)

    def alive(self) -> None:
        """Raises `Killed` if it is not."""
        if self.dead:
            raise Killed

    def reach(self, point: str) -> None:
        """Die if this is the deadly point. Raises `Killed`."""
        self.alive()
        if point == self.deadly:
            self.dead = True
            raise Killed(point)

    def end(self) -> None:
        """End without cleaning up: connections close, and open transactions are rolled back. Idempotent.

        Only the calling thread's own connections are sure to be idle; the others follow when their threads notice.
        """
        self.dead = True
        for connection in self._connections:
            with contextlib.suppress(Exception):  # another thread is inside of it, and dies at its next effect
                connection.kill()

    def _connect(self, path: Path) -> _Connection:
        self.alive()
        connection = _Connection(self, ledger.connect(path))
        self._connections.append(connection)
        return connection

    # What the thread is doing, by the statements of its transaction

    def begins(self) -> None:
        self._of_thread.does = set()

    def does(self, statement: str) -> None:
        text = statement.lstrip()
        for beginning, what in _DOES:
            if text.startswith(beginning):
                self._of_thread.does.add(what)

    def commit_point(self) -> str | None:
        """What the open transaction decides; None for one without a crash point."""
        found: set[str] = getattr(self._of_thread, "does", set())
        if "promise" in found:
            return "promise"
        if "ratify" in found:
            return "record" if "keep" in found else "ratify"
        return next((what for what in ("forget", "tombstone", "drop") if what in found), None)

    def committed(self, what: str | None) -> None:
        self._of_thread.promised = what == "promise"
        self._of_thread.does = set()

    def visibly(self) -> str:
        """What it means when this thread makes a `<v>.json` visible."""
        return "link" if getattr(self._of_thread, "promised", False) else "publish"


class _Connection(LedgerConnection):
    """A connection to the ledger whose commits are effects."""

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
        found = self.database.execute(statement, *values)
        self.life.committed(what)
        if what is not None:
            self.life.reach(f"after-{what}")
        return found


class _Files(EffectFiles):
    """The host's files, for a process that is alive."""

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
            what = life.visibly()
            life.reach(f"before-{what}")
            found = act()
            life.reach(f"after-{what}")
            return found
        if torn is not None and path.parent.name in STAGING_FOLDERS and life.deadly == "during-stage":
            torn()
            life.reach("during-stage")
        found = act()
        if operation == "fsync_directory" and path.name in STAGING_FOLDERS:
            life.reach("after-stage")
        return found

    def hold_shared(self, path: str, start: int, length: int) -> object:
        self._life.alive()
        return super().hold_shared(path, start, length)


def _is_commit(path: Path) -> bool:
    if path.parent.name != LOG_FOLDER:
        return False
    found = parse(path.name)
    return found is not None and found.kind is FileKind.COMMIT
