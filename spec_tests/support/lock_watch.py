"""Records whether effects that need a lock happen under the lock and in a transaction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

import refimpl
from conformance.adapters.reference.host_effects import Result
from refimpl.owner.tables import LOCK_FILE
from refimpl.storage.environment import HostLock, host_lock
from spec_tests.support.faults import Faults, FaultyConnection, disk_is_broken


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

    def _connect(self, path: Path) -> apsw.Connection:
        connection = WatchedConnection(str(path))
        connection.faults = connection.watch = self
        self._connections.append(connection)
        return connection


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
    watch: Watch | None = None

    def execute(self, statement: str, *values: Any, **more: Any) -> Any:  # type: ignore[override]
        kind = statement.split(maxsplit=1)[0]
        if self.watch is not None and statement.startswith("BEGIN IMMEDIATE"):
            self.watch.note("begin", allowed=self.watch.held > 0)
        if self.watch is not None and kind in ("INSERT", "UPDATE", "DELETE"):
            self.watch.note(kind.lower(), allowed=self.watch.held > 0 and self.in_transaction)
        return super().execute(statement, *values, **more)

    def pragma(self, name: str, *values: Any, **more: Any) -> Any:
        if self.watch is not None and name == "journal_mode" and values:
            self.watch.note("journal", allowed=self.watch.held > 0)
            self.watch.seen.append("journal")
        return super().pragma(name, *values, **more)
