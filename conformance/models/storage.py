"""The model owner's storage of a table: the files of its log, in memory or in a folder, and its state. The kit
lists and changes these files, and crashes and restarts the owner.
"""

import os
from collections.abc import Iterator, MutableMapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, commit_file
from conformance.interface.subject import ProcessDied


class StoredFile(NamedTuple):
    content: str
    modified: int
    """ms since the epoch."""


class Storage(Protocol):
    """Files by path. Every file is complete when it becomes visible."""

    root: str
    """The folder below which tables are created."""

    def put_if_absent(self, path: str, content: str, modified: int) -> bool:
        """Create a file. Returns False if it exists."""
        ...

    def put(self, path: str, content: str, modified: int) -> None: ...

    def read(self, path: str) -> StoredFile | None: ...

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        ...

    def list(self, folder: str) -> list[str]:
        """Paths of all files anywhere below the folder, relative to it, sorted."""
        ...


class MemoryStorage:
    """Files in a dictionary, for owners in the process of the kit."""

    def __init__(self) -> None:
        self.root = "memory:"
        self.files: dict[str, StoredFile] = {}

    def put_if_absent(self, path: str, content: str, modified: int) -> bool:
        if path in self.files:
            return False
        self.put(path, content, modified)
        return True

    def put(self, path: str, content: str, modified: int) -> None:
        self.files[path] = StoredFile(content, modified)

    def read(self, path: str) -> StoredFile | None:
        return self.files.get(path)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def list(self, folder: str) -> list[str]:
        prefix = f"{folder}/"
        return sorted(path.removeprefix(prefix) for path in self.files if path.startswith(prefix))


class FolderStorage:
    """A real folder. Files become visible whole, by link or rename; they are not made durable, because they are deleted
    after the run."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)

    def put_if_absent(self, path: str, content: str, modified: int) -> bool:
        temporary = self._write(path, content, modified)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def put(self, path: str, content: str, modified: int) -> None:
        self._write(path, content, modified).replace(path)

    def read(self, path: str) -> StoredFile | None:
        try:
            content = Path(path).read_bytes().decode("utf-8", "surrogateescape")
            return StoredFile(content, Path(path).stat().st_mtime_ns // 1_000_000)
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def list(self, folder: str) -> list[str]:
        base = Path(folder)
        return sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())

    def _write(self, path: str, content: str, modified: int) -> Path:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(self.root) / f".{target.name}.{os.getpid()}.{id(self)}.tmp"
        temporary.write_bytes(content.encode("utf-8", "surrogateescape"))
        os.utime(temporary, ns=(modified * 1_000_000, modified * 1_000_000))
        return temporary


class SavedFiles(MutableMapping[str, bytes]):
    """A dictionary of an owner's state in a storage: a file for each name, which is the file's first line."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._folder = f"{storage.root}/.owner"

    def _path(self, name: str) -> str:
        return f"{self._folder}/{sha256(name.encode()).hexdigest()}"

    def __getitem__(self, name: str) -> bytes:
        file = self._storage.read(self._path(name))
        if file is None:
            raise KeyError(name)
        return file.content.partition("\n")[2].encode()

    def __setitem__(self, name: str, value: bytes) -> None:
        self._storage.put(self._path(name), f"{quote(name)}\n{value.decode()}", 0)

    def __delitem__(self, name: str) -> None:
        self[name]
        self._storage.remove(self._path(name))

    def __iter__(self) -> Iterator[str]:
        for path in self._storage.list(self._folder):
            file = self._storage.read(f"{self._folder}/{path}")
            if file is not None:
                yield unquote(file.content.partition("\n")[0])

    def __len__(self) -> int:
        return len(self._storage.list(self._folder))


class Commit(msgspec.Struct, kw_only=True):
    """A ratified commit that the owner still stores: its file, or the content of an inline commit."""

    attempt: str
    staged_file: str | None = None
    actions: tuple[str, ...] | None = None


class OwnedTable(msgspec.Struct, kw_only=True):
    """The owner's state of a table."""

    reference: str
    name: str
    feature: str
    commit_mode: str
    location: str
    latest: int = -1
    """The latest ratified version."""
    backfilled: int = -1
    """Every version up to this one is published."""
    unbackfilled: dict[int, Commit] = {}
    landed: dict[str, int] = {}
    """The version of every landed attempt; never deleted."""
    never: set[str] = set()
    """Attempts that were resolved as not landed."""
    active: bool = True
    promised: tuple[int, str, str] | None = None
    """The version, attempt and content of the commit that gives the table to this owner; set from the promise until the
    commit is known to be visible."""
    leaving: str | None = None
    """The attempt that hands the table back, from the promise on."""
    backfill: str = "on-request"
    backlog_limit: int | None = None


# The kit's control of the model owner


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
        files = []
        for name in self.storage.list(folder):
            file = self.storage.read(f"{folder}/{name}")
            if file is not None:
                content = file.content if request.contents else None
                size = len(file.content.encode("utf-8", "surrogateescape"))
                files.append(m.LogFile(name=name, size=size, content=content, modified=file.modified))
        return m.Observation(files=tuple(files))

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
