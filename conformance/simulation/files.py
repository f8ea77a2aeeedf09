"""The files of a simulated host, as a subject uses them: effects on a `Disk`, each with its hook before and after.

Its methods are the file-system calls that a log is made of. A subject whose own port for files has other names wraps
this one; nothing here knows a subject.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zlib import crc32

from conformance.simulation.effects import Effect, Hook, Kind, Moment, unobserved
from conformance.simulation.storage import Disk, Number, Write


@dataclass(frozen=True, slots=True)
class Status:
    """One directory entry: `size` in bytes, `modified` in ms since the epoch."""

    name: str
    size: int
    modified: int
    is_directory: bool


class SimulatedFiles:
    """`now` gives ms since the epoch, and is no effect here. Errors are `OSError`s with their usual kinds."""

    def __init__(self, disk: Disk, *, hook: Hook = unobserved, now: Callable[[], int] = lambda: 0) -> None:
        self.disk = disk
        self._hook = hook
        self._now = now

    def _before(self, kind: Kind, target: Path | str) -> None:
        self._hook(Effect(kind=kind, target=str(target), moment=Moment.BEFORE))

    def _after(self, kind: Kind, target: Path | str) -> None:
        self._hook(Effect(kind=kind, target=str(target), moment=Moment.AFTER))

    # Changing

    def create(self, path: Path) -> SimulatedNewFile:
        """Create exclusively; `FileExistsError` if the name is taken."""
        self._before(Kind.CREATE, path)
        number = self.disk.create(path, now=self._now())
        self._after(Kind.CREATE, path)
        return SimulatedNewFile(self, path, number)

    def write(self, path: Path, number: Number, content: bytes) -> None:
        """Append to an open file, whatever its name is by now."""
        self._before(Kind.WRITE, path)
        offset = len(self.disk.numbered(number).content)
        self.disk.change(number, Write(offset, bytes(content)), now=self._now())
        self._after(Kind.WRITE, path)

    def sync(self, path: Path, number: Number) -> None:
        """Make the content of an open file durable."""
        self._before(Kind.FSYNC, path)
        self.disk.sync(number)
        self._after(Kind.FSYNC, path)

    def fsync(self, path: Path) -> None:
        """Make the content of an existing file durable."""
        self._before(Kind.FSYNC, path)
        self.disk.file(path)
        number = self.disk.find(path)
        assert number is not None
        self.disk.sync(number)
        self._after(Kind.FSYNC, path)

    def fsync_directory(self, path: Path) -> None:
        """Make the entries of a directory durable."""
        self._before(Kind.FSYNC_DIRECTORY, path)
        self.disk.sync_directory(path)
        self._after(Kind.FSYNC_DIRECTORY, path)

    def make_directory(self, path: Path, mode: int = 0o777) -> None:  # noqa: ARG002 - nobody else is here
        """Create one directory; `FileExistsError` if the name is taken, by anything."""
        self._before(Kind.MAKE_DIRECTORY, path)
        self.disk.make_directory(path, now=self._now())
        self._after(Kind.MAKE_DIRECTORY, path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; `OSError` for one that is not empty, or not there."""
        self._before(Kind.REMOVE_DIRECTORY, path)
        self.disk.remove_directory(path, now=self._now())
        self._after(Kind.REMOVE_DIRECTORY, path)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, atomically; `FileExistsError` if the name is taken."""
        self._before(Kind.LINK, target)
        self.disk.link(source, target, now=self._now())
        self._after(Kind.LINK, target)

    def replace(self, source: Path, target: Path) -> None:
        """Rename atomically over whatever `target` was."""
        self._before(Kind.REPLACE, target)
        self.disk.replace(source, target, now=self._now())
        self._after(Kind.REPLACE, target)

    def unlink(self, path: Path) -> None:
        self._before(Kind.UNLINK, path)
        self.disk.unlink(path, now=self._now())
        self._after(Kind.UNLINK, path)

    # Looking

    def list_directory(self, directory: Path) -> list[Status]:
        """The entries in no order that means anything, as POSIX and object stores promise no more, and always the same
        one; `FileNotFoundError` for no such directory."""
        self._before(Kind.LIST, directory)
        names = sorted(self.disk.names(directory).items(), key=lambda entry: crc32(entry[0].encode()))
        found = [self._status(name, number) for name, number in names]
        self._after(Kind.LIST, directory)
        return found

    def read(self, path: Path) -> bytes:
        self._before(Kind.READ, path)
        found = bytes(self.disk.file(path).content)
        self._after(Kind.READ, path)
        return found

    def stat(self, path: Path) -> Status | None:
        """None if nothing has this name."""
        self._before(Kind.STAT, path)
        number = self.disk.find(path)
        found = None if number is None else self._status(path.name, number)
        self._after(Kind.STAT, path)
        return found

    def exists(self, path: str) -> bool:
        """Whether anything has this name. Takes text, because it is asked often."""
        self._before(Kind.STAT, path)
        found = self.disk.find(path) is not None
        self._after(Kind.STAT, path)
        return found

    def identity(self, path: str) -> object:
        """Of the file that has this name, None if nothing has. No effect here: a subject asks it all the time."""
        return self.disk.find(path)

    def hold_shared(self, path: str, start: int, length: int) -> None:
        """The simulated host has no process with two SQLite libraries."""

    def _status(self, name: str, number: Number) -> Status:
        size, modified = self.disk.size_and_time(number)
        return Status(name, size, modified, self.disk.is_directory(number))


class SimulatedNewFile:
    """A file that did not exist before; a context manager that closes it. Closing makes nothing durable."""

    __slots__ = ("_files", "_number", "_path")

    def __init__(self, files: SimulatedFiles, path: Path, number: Number) -> None:
        self._files = files
        self._path = path
        self._number = number

    def write(self, content: bytes) -> None:
        self._files.write(self._path, self._number, content)

    def fsync(self) -> None:
        self._files.sync(self._path, self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """A file closed; its number stays its own."""
