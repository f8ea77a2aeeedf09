"""The model owner's storage of a table: the files of its log, in memory or in a folder, and its state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec


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
