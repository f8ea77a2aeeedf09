"""A disk that tells what was made durable from what was only written: the model under every simulated file.

A file has content, a directory has entries, and both exist twice: as every process sees them now, and as they are on
the disk. In between stand the changes that nobody has synced yet, in their order. A write to a file becomes durable by
an fsync of that file, a name by an fsync of its directory, and neither by the other: that is what POSIX promises, and
no more. Nothing here calls the host: a disk lives in memory.

What a power cut leaves of a disk is the business of `power_states`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

ROOT: Final = 0
"""The number of the root directory."""

SECTOR: Final = 512
"""Bytes that a disk writes whole or not at all."""

Number = int
"""Of a file or a directory, for the life of the disk."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes at a place of a file."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A file gets this size."""

    size: int


Change = Write | Truncate


@dataclass(frozen=True, slots=True)
class Renaming:
    """One atomic change of names: each (directory, name) gets a file or directory, or nothing."""

    names: tuple[tuple[Number, str, Number | None], ...]

    def touches(self, other: Renaming) -> bool:
        mine = {(directory, name) for directory, name, _ in self.names}
        return any((directory, name) in mine for directory, name, _ in other.names)

    def is_in(self, directory: Number) -> bool:
        return any(each == directory for each, _, _ in self.names)


def applied(content: bytes | bytearray, changes: tuple[Change, ...] | list[Change]) -> bytes:
    """The content after these changes. What a write leaves out before its offset is zero."""
    if not changes:
        return bytes(content)
    found = bytearray(content)
    for change in changes:
        apply(found, change)
    return bytes(found)


def apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Truncate):
        _resize(content, change.size)
        return
    if change.offset > len(content):
        _resize(content, change.offset)
    content[change.offset : change.offset + len(change.data)] = change.data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


@dataclass(slots=True)
class File:
    """A file by its number; names are elsewhere."""

    content: bytearray
    """As every process reads it."""
    durable: bytes
    """As it is on the disk, whatever happens."""
    unsynced: list[Change] = field(default_factory=list)
    modified: int = 0
    """ms since the epoch."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything about a disk that decides what a power cut may leave of it. Cheap to take, and never changes."""

    files: dict[Number, tuple[bytes, tuple[Change, ...]]]
    """By number: durable content, and the unsynced changes after it."""
    directories: dict[Number, dict[str, Number]]
    """By number: the durable names."""
    renamings: tuple[Renaming, ...]
    """The unsynced changes of names, in their order."""


class Disk:
    """All files of one simulated host, by absolute path. Errors are `OSError`s with their usual kinds.

    Not safe for threads: one client at a time acts on it.
    """

    def __init__(self) -> None:
        self._files: dict[Number, File] = {}
        self._directories: dict[Number, dict[str, Number]] = {ROOT: {}}
        self._durable: dict[Number, dict[str, Number]] = {ROOT: {}}
        self._modified: dict[Number, int] = {ROOT: 0}
        self._renamings: list[Renaming] = []
        self._next: Number = ROOT + 1
        self.revision = 0
        """Goes up with everything that decides what a power cut may leave."""
        self.syncs = 0
        """So many syncs were asked for."""
        self.failing_sync: int | None = None
        """The one of them that fails, once. What it should have made durable never will be, though everybody still
        reads it: a later sync finds nothing to do, and says so. That is what kernels do."""

    # Looking

    def find(self, path: PurePath | str) -> Number | None:
        """What has this name now; None if nothing has, or a file is on the way."""
        at = ROOT
        for part in str(path).split("/"):  # this is asked most often of all, and parsing a path costs more
            if not part:
                continue
            entries = self._directories.get(at)
            if entries is None:
                return None
            found = entries.get(part)
            if found is None:
                return None
            at = found
        return at

    def is_directory(self, number: Number) -> bool:
        return number in self._directories

    def file(self, path: PurePath | str) -> File:
        """Raises `FileNotFoundError`, `IsADirectoryError`."""
        number = self._required(path)
        if number in self._directories:
            raise _error(errno.EISDIR, path)
        return self._files[number]

    def numbered(self, number: Number) -> File:
        return self._files[number]

    def names(self, path: PurePath | str) -> dict[str, Number]:
        """The entries of a directory. Raises `FileNotFoundError`, `NotADirectoryError`."""
        return dict(self._entries(self._required(path), path))

    def size_and_time(self, number: Number) -> tuple[int, int]:
        """Size in bytes, time of the last modification in ms since the epoch."""
        file = self._files.get(number)
        return (0, self._modified[number]) if file is None else (len(file.content), file.modified)

    def walk(self) -> Iterator[tuple[str, Number]]:
        """Every file by its path; in no order."""
        waiting = [("", ROOT)]
        while waiting:
            above, directory = waiting.pop()
            for name, number in self._directories[directory].items():
                if number in self._directories:
                    waiting.append((f"{above}/{name}", number))
                else:
                    yield f"{above}/{name}", number

    # Changing content

    def create(self, path: PurePath | str, *, now: int) -> Number:
        """An empty file with a new name. Raises `FileExistsError`, `FileNotFoundError`."""
        directory, name = self._new_name(path)
        number = self._number()
        self._files[number] = File(content=bytearray(), durable=b"", modified=now)
        self._rename((directory, name, number), now=now)
        return number

    def change(self, number: Number, change: Change, *, now: int) -> None:
        file = self._files[number]
        apply(file.content, change)
        file.unsynced.append(change)
        file.modified = now
        self.revision += 1

    def sync(self, number: Number) -> None:
        """The content of a file is durable from now on. Raises `OSError` where this is the sync that fails."""
        file = self._files[number]
        fails = self._sync_fails()
        if file.unsynced:
            if not fails:
                file.durable = applied(file.durable, file.unsynced)
            file.unsynced.clear()
            self.revision += 1
        if fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _sync_fails(self) -> bool:
        self.syncs += 1
        return self.syncs == self.failing_sync

    # Changing names

    def make_directory(self, path: PurePath | str, *, now: int) -> None:
        directory, name = self._new_name(path)
        number = self._number()
        self._directories[number] = {}
        self._durable[number] = {}
        self._modified[number] = now
        self._rename((directory, name, number), now=now)

    def link(self, source: PurePath | str, target: PurePath | str, *, now: int) -> None:
        number = self._required(source)
        if number in self._directories:
            raise _error(errno.EPERM, source)
        directory, name = self._new_name(target)
        self._rename((directory, name, number), now=now)

    def replace(self, source: PurePath | str, target: PurePath | str, *, now: int) -> None:
        """Rename a file over whatever file `target` was."""
        number = self._required(source)
        if number in self._directories:
            raise _error(errno.EISDIR, source)
        old_directory, old_name = self._name(source)
        directory, name = self._name(target)
        there = self._entries(directory, target).get(name)
        if there is not None and there in self._directories:
            raise _error(errno.EISDIR, target)
        if there == number:  # POSIX: two names of one file stay as they are
            return
        self._rename((old_directory, old_name, None), (directory, name, number), now=now)

    def unlink(self, path: PurePath | str, *, now: int) -> None:
        if self._required(path) in self._directories:
            raise _error(errno.EISDIR, path)
        self._rename((*self._name(path), None), now=now)

    def remove_directory(self, path: PurePath | str, *, now: int) -> None:
        if self._entries(self._required(path), path):
            raise _error(errno.ENOTEMPTY, path)
        self._rename((*self._name(path), None), now=now)

    def sync_directory(self, path: PurePath | str) -> None:
        """The names in a directory are durable from now on; a rename out of it or into it is so as a whole. Raises
        `OSError` where this is the sync that fails."""
        number = self._required(path)
        self._entries(number, path)
        fails = self._sync_fails()
        chosen = settled(self._renamings, {at for at, each in enumerate(self._renamings) if each.is_in(number)})
        for at in sorted(chosen) if not fails else ():
            for directory, name, found in self._renamings[at].names:
                put(self._durable[directory], name, found)
        if chosen:
            self._renamings = [each for at, each in enumerate(self._renamings) if at not in chosen]
            self.revision += 1
        if fails:
            raise _error(errno.EIO, path)

    def sync_everything(self) -> None:
        """As a disk stands that was left alone for long."""
        for file in self._files.values():
            file.durable = bytes(file.content)
            file.unsynced.clear()
        self._durable = {number: dict(entries) for number, entries in self._directories.items()}
        self._renamings.clear()
        self.revision += 1

    # Power

    def snapshot(self) -> Snapshot:
        return Snapshot(
            files={number: (file.durable, tuple(file.unsynced)) for number, file in self._files.items()},
            directories={number: dict(entries) for number, entries in self._durable.items()},
            renamings=tuple(self._renamings),
        )

    def copy(self) -> Disk:
        """The same disk, to go on with separately: what is not synced here is not synced there."""
        disk = Disk()
        disk._files = {
            number: File(bytearray(file.content), file.durable, list(file.unsynced), file.modified)
            for number, file in self._files.items()
        }
        disk._directories = {number: dict(entries) for number, entries in self._directories.items()}
        disk._durable = {number: dict(entries) for number, entries in self._durable.items()}
        disk._modified = dict(self._modified)
        disk._renamings = list(self._renamings)
        disk._next = self._next
        disk.syncs, disk.failing_sync = self.syncs, self.failing_sync
        return disk

    def fingerprint(self) -> int:
        """Equal for disks that were made in the same way, and hold the same, synced or not; within one process."""
        files = (
            (number, bytes(file.content), file.durable, len(file.unsynced))
            for number, file in sorted(self._files.items())
        )
        names = (tuple(sorted(each.items())) for each in (*self._directories.values(), *self._durable.values()))
        return hash((tuple(files), tuple(names), len(self._renamings)))

    @classmethod
    def holding(cls, tree: Tree, *, now: int) -> Disk:
        """A disk on which exactly this is durable, and nothing else is known."""
        disk = cls()
        disk._durable = {number: dict(entries) for number, entries in tree.directories.items()}
        disk._directories = {number: dict(entries) for number, entries in tree.directories.items()}
        disk._modified = dict.fromkeys(tree.directories, now)
        for number, content in tree.files.items():
            disk._files[number] = File(content=bytearray(content), durable=content, modified=now)
        disk._next = max((*tree.directories, *tree.files)) + 1
        return disk

    # Names

    def _rename(self, *names: tuple[Number, str, Number | None], now: int) -> None:
        for directory, name, number in names:
            put(self._directories[directory], name, number)
            self._modified[directory] = now
        self._renamings.append(Renaming(names))
        self.revision += 1

    def _new_name(self, path: PurePath | str) -> tuple[Number, str]:
        directory, name = self._name(path)
        if name in self._directories[directory]:
            raise _error(errno.EEXIST, path)
        return directory, name

    def _name(self, path: PurePath | str) -> tuple[Number, str]:
        """The directory of a path, which is there, and the name in it."""
        place = PurePath(path)
        directory = self._required(place.parent)
        self._entries(directory, path)
        return directory, place.name

    def _entries(self, number: Number, path: PurePath | str) -> dict[str, Number]:
        entries = self._directories.get(number)
        if entries is None:
            raise _error(errno.ENOTDIR, path)
        return entries

    def _required(self, path: PurePath | str) -> Number:
        found = self.find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        return found

    def _number(self) -> Number:
        self._next += 1
        return self._next - 1


@dataclass(frozen=True, slots=True)
class Tree:
    """What stands on a disk after a power cut: directories and files, all of them durable."""

    directories: dict[Number, dict[str, Number]]
    files: dict[Number, bytes]


def settled(renamings: list[Renaming] | tuple[Renaming, ...], wanted: set[int]) -> set[int]:
    """`wanted` (positions), and every earlier change of a name that one of them changes again: names go through their
    changes in order."""
    chosen = set(wanted)
    for at in range(len(renamings) - 1, -1, -1):
        if at in chosen:
            chosen |= {before for before in range(at) if renamings[before].touches(renamings[at])}
    return chosen


def put(entries: dict[str, Number], name: str, number: Number | None) -> None:
    """Give a name to a file or directory, or to nothing."""
    if number is None:
        entries.pop(name, None)
    else:
        entries[name] = number


def _error(code: int, path: PurePath | str) -> OSError:
    return OSError(code, os.strerror(code), str(path))
