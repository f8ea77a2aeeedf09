"""A simulated disk that knows what is durable, and the files of a simulated host on it.

A file has content and a directory has entries, and both exist twice: as every process sees them, and as they are on the
disk. In between are the changes that were not synced yet, in their order. As POSIX promises, and no more, a write
becomes durable by an fsync of its file, a name by an fsync of its directory, and neither by the other. Nothing here
calls the host. `PowerCut` has the disks that a power cut may leave.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePath
from random import Random
from typing import Final, Self
from zlib import crc32

from conformance.simulation.effects import Effect, Hook, Kind, Moment, unobserved

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
    result = bytearray(content)
    for change in changes:
        apply(result, change)
    return bytes(result)


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
        """Increases with every change of what a power cut may leave."""
        self.syncs = 0
        """The number of syncs requested."""
        self.failing_sync: int | None = None
        """The number of the sync that fails, once. What it should have made durable never becomes so, although it can
        be read: a later sync finds nothing to do, and succeeds. That is what kernels do."""

    # Looking

    def find(self, path: PurePath | str) -> Number | None:
        """What has this name now; None if nothing has, or a file is on the way."""
        at = ROOT
        for part in str(path).split("/"):  # the hottest call; parsing a path costs more
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
        """As after a long time without changes."""
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
    """A disk after a power cut: directories and files, all of them durable."""

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


@dataclass(frozen=True, slots=True)
class Status:
    """One directory entry: `size` in bytes, `modified` in ms since the epoch."""

    name: str
    size: int
    modified: int
    is_directory: bool


class SimulatedFiles:
    """The file-system calls that a log is made of: effects on a `Disk`, each with its hook before and after. A subject
    whose own port for files has other names wraps this one.

    `now` gives ms since the epoch, and is no effect here. Errors are `OSError`s with their usual kinds.
    """

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

    def make_directory(self, path: Path, mode: int = 0o777) -> None:  # noqa: ARG002 - one user
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

    def opening(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

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
        """Closing makes nothing durable."""


Option = tuple[Change, ...]
"""What may become of one change of a content: nothing, all of it, or parts."""

MOST_NAMES = 12
"""Beyond so many unsynced changes of names, their subsets are drawn instead of listed."""


class PowerCut:
    """All disks that a power cut at one moment may leave: everything that was synced, and any part of the rest.

    Names: each unsynced change of a name is kept or lost, but changes of one name keep their order, and a rename is one
    change. Contents: each unsynced write to a file is kept, lost or torn at a sector's boundary, independently of the
    others; if it makes its file longer, the length alone may be kept. That is more than one real file system would do,
    and less than a disk that lies about its syncs.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._names = names_kept(snapshot.renamings)
        self._options: dict[Number, tuple[tuple[Option, ...], ...]] = {
            number: options_of(durable, changes) for number, (durable, changes) in snapshot.files.items() if changes
        }
        self.choices = len(self._names) * math.prod(len(one) for each in self._options.values() for one in each)
        """The number of choices. Several may lead to the same disk."""

    def disks(self, random: Random, *, limit: int) -> Iterator[Tree]:
        """All of them, if there are no more choices than `limit`. Otherwise that many: the typical ones first (nothing
        kept, everything kept, a first part with and without a torn end, all but one, one alone), then random ones."""
        if self.choices <= limit:
            for kept in self._names:
                yield from self._all_with(kept)
            return
        count = len(self._names)
        for at in range(limit):
            kept = self._names[at % count] if at < (limit + 1) // 2 else random.choice(self._names)
            yield self._drawn(kept, at // min(count, limit), random)

    def _all_with(self, kept: frozenset[int]) -> Iterator[Tree]:
        directories, files = self._standing(kept)
        unsynced = [number for number in files if number in self._options]
        for chosen in product(*(product(*self._options[number]) for number in unsynced)):
            contents = dict(zip(unsynced, chosen, strict=True))
            yield Tree(directories, {number: self._content(number, contents.get(number, ())) for number in files})

    def least_lost(self, tree: Tree, shows: Callable[[Tree], bool]) -> tuple[Tree, tuple[str, ...]]:
        """From a disk that shows something: one that still does, and lost no more than it must for that. Giving back
        any one of the things that it lost, which are named, would hide it."""
        whole = frozenset(range(len(self._snapshot.renamings)))
        kept = next(each for each in self._names if self._standing(each)[0] == tree.directories)
        files = {number: content for number, content in tree.files.items() if content != self._whole(number)}

        def standing(names: frozenset[int], lost: dict[Number, bytes]) -> Tree:
            directories, reached = self._standing(names)
            return Tree(directories, {number: lost.get(number, self._whole(number)) for number in reached})

        again = True
        while again:
            again = False
            for number in sorted(files):
                fewer = {each: content for each, content in files.items() if each != number}
                if shows(standing(kept, fewer)):
                    files, again = fewer, True
            for at in sorted(whole - kept):
                more = kept | frozenset(settled(self._snapshot.renamings, {at}))
                if more in self._names and shows(standing(more, files)):
                    kept, again = more, True
        names = [f"the name {name}" for at in sorted(whole - kept) for _, name, _ in self._snapshot.renamings[at].names]
        return standing(kept, files), (*names, *(self._lost_of(number, each) for number, each in sorted(files.items())))

    def _whole(self, number: Number) -> bytes:
        durable, changes = self._snapshot.files[number]
        return applied(durable, changes)

    def _lost_of(self, number: Number, left: bytes) -> str:
        entries = (each.items() for each in self._snapshot.directories.values())
        names = [name for each in entries for name, found in each if found == number]
        names += [name for each in self._snapshot.renamings for _, name, found in each.names if found == number]
        whole = self._whole(number)
        right = sum(mine == yours for mine, yours in zip(left, whole, strict=False))
        return f"content of {names[0] if names else number}: {right} of {len(whole)} bytes are right"

    def _drawn(self, kept: frozenset[int], at: int, random: Random) -> Tree:
        directories, files = self._standing(kept)
        return Tree(
            directories,
            {number: self._content(number, drawn(self._options.get(number, ()), at, random)) for number in files},
        )

    def _content(self, number: Number, chosen: Sequence[Option]) -> bytes:
        durable, _ = self._snapshot.files[number]
        return applied(durable, [change for option in chosen for change in option])

    def _standing(self, kept: frozenset[int]) -> tuple[dict[Number, dict[str, Number]], list[Number]]:
        """The directories that can be reached, and the files in them."""
        entries = {number: dict(names) for number, names in self._snapshot.directories.items()}
        for at in sorted(kept):
            for directory, name, number in self._snapshot.renamings[at].names:
                put(entries[directory], name, number)
        reached: dict[Number, dict[str, Number]] = {}
        files: dict[Number, None] = {}
        waiting = [ROOT]
        while waiting:
            number = waiting.pop()
            reached[number] = entries[number]
            for found in entries[number].values():
                if found in entries:
                    waiting.append(found)
                else:
                    files[found] = None
        return reached, list(files)


def names_kept(renamings: Sequence[Renaming]) -> list[frozenset[int]]:
    """Every set of changes of names that may survive, by their positions. Of very many changes: every first part."""
    if len(renamings) > MOST_NAMES:
        return [frozenset(range(kept)) for kept in range(len(renamings) + 1)]
    found = {frozenset[int]()}
    for at in range(len(renamings)):
        needed = frozenset(settled(tuple(renamings[: at + 1]), {at}))
        found |= {kept | needed for kept in found}
    return sorted(found, key=lambda kept: (len(kept), sorted(kept)))


def options_of(durable: bytes, changes: Sequence[Change]) -> tuple[tuple[Option, ...], ...]:
    """For every unsynced change of one file: what may have become of it; nothing first, all of it second."""
    size = len(durable)
    found: list[tuple[Option, ...]] = []
    for change in changes:
        if isinstance(change, Truncate):
            found.append(((), (change,)))
            size = change.size
        else:
            found.append(((), (change,), *torn(change, size)))
            size = max(size, change.offset + len(change.data))
    return tuple(found)


def torn(write: Write, size: int) -> Iterator[Option]:
    """The parts of one write that may be there: its first sectors, its last sectors, and, of a write beyond `size`,
    the file's new length alone."""
    end = write.offset + len(write.data)
    first, last = write.offset // SECTOR, (end - 1) // SECTOR
    if last > first:
        middle = (first + last + 1) // 2 * SECTOR
        cut = middle - write.offset
        yield (Write(write.offset, write.data[:cut]),)
        yield (Write(middle, write.data[cut:]),)
    if end > size:
        yield (Truncate(end),)


def drawn(options: Sequence[Sequence[Option]], at: int, random: Random) -> list[Option]:
    """The typical choices by their number, then random ones."""
    count = len(options)
    if not count:
        return []
    patterns: tuple[Callable[[int, int], int], ...] = (
        lambda each, n: int(each < n),  # a first part
        lambda each, n: int(each != n),  # all but one
        lambda each, n: 1 if each < n else -1 if each == n else 0,  # a first part with a torn end
        lambda each, n: -1 if each == n else 1,  # one torn, all the others whole
        lambda each, n: int(each == n),  # one alone
    )
    number, pattern = divmod(at - 1, len(patterns))
    if at == 0 or number > count:
        weight = random.random()
        wanted = [1 if random.random() < weight else random.randrange(len(each)) for each in options]
    else:
        wanted = [patterns[pattern](each, count - number) for each in range(count)]
    if at == 0:
        wanted = [0] * count
    return [each[which] if which >= 0 else random.choice(each[1:]) for each, which in zip(options, wanted, strict=True)]


def identity(tree: Tree) -> int:
    """Equal for equal disks; 64 bits, the same within one process."""
    parts: list[object] = []
    names: dict[Number, str] = {}
    waiting = [(ROOT, "")]
    while waiting:
        number, path = waiting.pop()
        for name, found in sorted(tree.directories[number].items()):
            place = f"{path}/{name}"
            if found in tree.directories:
                parts.append(place)
                waiting.append((found, place))
            else:
                parts.append((place, hash(tree.files[found]), names.setdefault(found, place)))
    return hash(tuple(parts))
