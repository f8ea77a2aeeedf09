"""The kit's control of the model owner: it lists and changes files, and crashes and restarts the owner."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, commit_file
from conformance.interface.subject import ProcessDied
from conformance.models.storage import MemoryStorage, OwnedTable, Storage

CRASH_POINTS: Final = ("before-commit-point", "after-commit-point", "after-promise", "after-publish")


class FaultControl:
    """Tables in memory, durable state in `saved`, files in `storage`."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage: Storage = MemoryStorage() if storage is None else storage
        self.saved: MutableMapping[str, bytes] = {}
        """The state that a restart finds, by table."""
        self._tables: dict[str, OwnedTable] | None = {}
        self.deadly: str | None = None
        """The crash point that the kit chose, if any."""

    @property
    def tables(self) -> dict[str, OwnedTable]:
        """The tables in memory. Raises `ProcessDied` between a crash and the restart."""
        if self._tables is None:
            raise ProcessDied("it crashed as requested")
        return self._tables

    # The storage

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        folder = f"{self._location(request.table)}/{LOG}"
        found = []
        for name in self.storage.list(folder):
            file = self.storage.read(f"{folder}/{name}")
            if file is not None:
                content = file.content if request.contents else None
                found.append(m.LogFile(name=name, size=len(file.content), content=content, modified=file.modified))
        return m.Observation(files=tuple(found))

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        path = f"{self._location(request.table)}/{LOG}/{request.file}"
        modified = 0 if request.modified is None else request.modified
        if not request.if_absent:
            self.storage.put(path, request.content, modified)
            return m.Done()
        return m.Done() if self.storage.put_if_absent(path, request.content, modified) else m.Conflict()

    def remove(self, client: str, request: m.Remove) -> m.Answer:
        self.storage.remove(f"{self._location(request.table)}/{LOG}/{request.file}")
        return m.Done()

    def _location(self, table: str) -> str:
        """The log folder of a table. The kit can write filesystem tables while the owner is down."""
        tables = self.tables if self._tables is not None or not table.startswith(self.storage.root) else {}
        return tables[table].location if table in tables else table

    def _path(self, table: OwnedTable, version: int) -> str:
        return f"{table.location}/{LOG}/{commit_file(version)}"

    def _staged_path(self, table: OwnedTable, name: str) -> str:
        return f"{table.location}/{LOG}/{STAGING[table.feature]}/{name}"

    # Crash and restart

    def crash(self, client: str, request: m.Crash) -> m.Answer:
        if request.point is not None and request.point not in CRASH_POINTS:
            return m.Unsupported(reason=f"crash points are {', '.join(CRASH_POINTS)}")
        self.deadly = request.point
        if request.point is None:
            self._tables = None
        return m.Done()

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        self.deadly = None
        self._tables = {name: msgspec.json.decode(saved, type=OwnedTable) for name, saved in self.saved.items()}
        for table in list(self._tables.values()):
            self._restarted(table)
        return m.Done()

    def _restarted(self, table: OwnedTable) -> None:
        """Restore one table in a restart."""
        self._recover(table)

    def _recover(self, table: OwnedTable) -> None:
        """Recover a table after a crash."""
        raise NotImplementedError

    def _reach(self, point: str) -> None:
        """A crash point: raise `ProcessDied` if it is the chosen one."""
        if self.deadly == point:
            self._tables = None
            raise ProcessDied(point)

    def _save(self, table: OwnedTable) -> None:
        self.saved[table.reference] = msgspec.json.encode(table)

    def _forget(self, table: OwnedTable) -> None:
        self.tables.pop(table.reference, None)
        self.saved.pop(table.reference, None)
