"""A simulated disk that records what is durable, and the files of a simulated host on it.

The content of a file and the entries of a directory exist twice: as all processes see them, and as they are durable.
The difference is the list of changes that were not synced yet, in their order. The disk promises no more than POSIX: an
fsync of a file makes its writes durable, an fsync of a directory makes its names durable, and neither does the other's
work. This module does not call the real host. `PowerCut` enumerates the disks that a power cut may leave.
"""

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
from typing import Final, Self, TypeVar
from zlib import crc32

from conformance.simulation.effects import Hook, Kind, happening, unobserved

ROOT: Final = 0
"""The number of the root directory."""

SECTOR: Final = 512
"""How many bytes a disk writes atomically."""

Result = TypeVar("Result")
Number = int
"""The number of a file or a directory, which never changes."""


@dataclass(frozen=True, slots=True)
class Write:
    """Writes bytes at an offset of a file."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """Sets the size of a file."""

    size: int


Change = Write | Truncate


@dataclass(frozen=True, slots=True)
class Renaming:
    """One atomic change of names. Each (directory, name) gets a file or a directory, or becomes free."""

    names: tuple[tuple[Number, str, Number | None], ...]

    def touches(self, other: "Renaming") -> bool:
        mine = {(directory, name) for directory, name, _ in self.names}
        return any((directory, name) in mine for directory, name, _ in other.names)

    def is_in(self, directory: Number) -> bool:
        return any(parent == directory for parent, _, _ in self.names)


def applied(content: bytes | bytearray, changes: tuple[Change, ...] | list[Change]) -> bytes:
    """The content after these changes. A gap before the offset of a write is filled with zeros."""
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
    """A file. Its names are in the directories."""

    content: bytearray
    """The content that all processes read."""
    durable: bytes
    """The content that survives any power cut."""
    unsynced: list[Change] = field(default_factory=list)
    modified: int = 0
    """ms since the epoch."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The part of a disk's state that decides what a power cut may leave. It is cheap to take, and does not change."""

    files: dict[Number, tuple[bytes, tuple[Change, ...]]]
    """For each file, its durable content and the unsynced changes after it."""
    directories: dict[Number, dict[str, Number]]
    """For each directory, its durable names."""
    renamings: tuple[Renaming, ...]
    """The unsynced changes of names, in their order."""


class Disk:
    """All files of one simulated host, by absolute path. Errors are `OSError`s with their usual kinds.

    Not safe for threads: only one client at a time may use it.
    """

    def __init__(self) -> None:
        self._files: dict[Number, File] = {}
        self._directories: dict[Number, dict[str, Number]] = {ROOT: {}}
        self._durable: dict[Number, dict[str, Number]] = {ROOT: {}}
        self._modified: dict[Number, int] = {ROOT: 0}
        self._renamings: list[Renaming] = []
        self._next: Number = ROOT + 1
        self.revision = 0
        """Increases with every change of the disks that a power cut may leave."""
        self.syncs = 0
        """The number of syncs requested."""
        self.failing_sync: int | None = None
        """The number of the only sync that fails. Its changes never become durable, although they can be read: a later
        sync finds nothing to do, and succeeds. Real kernels do the same."""

    # Looking

    def find(self, path: PurePath | str) -> Number | None:
        """The file or directory with this name; None if the name is free, or if a part of the path is a file."""
        at = ROOT
        for part in str(path).split("/"):  # the hottest call; parsing a path costs more
            if not part:
                continue
            entries = self._directories.get(at)
            if entries is None:
                return None
            number = entries.get(part)
            if number is None:
                return None
            at = number
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
        """The size in bytes, and the time of the last modification in ms since the epoch."""
        file = self._files.get(number)
        return (0, self._modified[number]) if file is None else (len(file.content), file.modified)

    def walk(self) -> Iterator[tuple[str, Number]]:
        """All files with their paths, in no particular order."""
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
        """Create an empty file with a new name. Raises `FileExistsError`, `FileNotFoundError`."""
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
        """Make the content of a file durable. Raises `OSError` if this is the sync that fails."""
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
        """Rename a file, and replace the file `target` if it exists."""
        number = self._required(source)
        if number in self._directories:
            raise _error(errno.EISDIR, source)
        old_directory, old_name = self._name(source)
        directory, name = self._name(target)
        there = self._entries(directory, target).get(name)
        if there is not None and there in self._directories:
            raise _error(errno.EISDIR, target)
        if there == number:  # POSIX: if both are names of one file, nothing changes
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
        """Make the names in a directory durable. A rename out of it or into it becomes durable as a whole. Raises
        `OSError` if this is the sync that fails."""
        number = self._required(path)
        self._entries(number, path)
        fails = self._sync_fails()
        chosen = settled(self._renamings, {at for at, renaming in enumerate(self._renamings) if renaming.is_in(number)})
        for at in sorted(chosen) if not fails else ():
            for directory, name, target in self._renamings[at].names:
                put(self._durable[directory], name, target)
        if chosen:
            self._renamings = [renaming for at, renaming in enumerate(self._renamings) if at not in chosen]
            self.revision += 1
        if fails:
            raise _error(errno.EIO, path)

    def sync_everything(self) -> None:
        """Make all changes durable, as after a long time without changes."""
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

    def copy(self) -> "Disk":
        """An independent copy of the disk, with the same unsynced changes."""
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
        """A hash that is equal for disks with the same history and the same content, synced or not. Valid in one
        process."""
        files = (
            (number, bytes(file.content), file.durable, len(file.unsynced))
            for number, file in sorted(self._files.items())
        )
        names = (tuple(sorted(entries.items())) for entries in (*self._directories.values(), *self._durable.values()))
        return hash((tuple(files), tuple(names), len(self._renamings)))

    @classmethod
    def holding(cls, tree: "Tree", *, now: int) -> "Disk":
        """A disk on which exactly this tree is durable, without unsynced changes."""
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
        """The directory of a path, which must exist, and the name in it."""
        pure_path = PurePath(path)
        directory = self._required(pure_path.parent)
        self._entries(directory, path)
        return directory, pure_path.name

    def _entries(self, number: Number, path: PurePath | str) -> dict[str, Number]:
        entries = self._directories.get(number)
        if entries is None:
            raise _error(errno.ENOTDIR, path)
        return entries

    def _required(self, path: PurePath | str) -> Number:
        number = self.find(path)
        if number is None:
            raise _error(errno.ENOENT, path)
        return number

    def _number(self) -> Number:
        self._next += 1
        return self._next - 1


@dataclass(frozen=True, slots=True)
class Tree:
    """A disk after a power cut: directories and files, which are all durable."""

    directories: dict[Number, dict[str, Number]]
    files: dict[Number, bytes]


def settled(renamings: list[Renaming] | tuple[Renaming, ...], wanted: set[int]) -> set[int]:
    """The positions in `wanted`, and all earlier changes of the names that they change, because the changes of one name
    keep their order."""
    chosen = set(wanted)
    for at in range(len(renamings) - 1, -1, -1):
        if at in chosen:
            chosen |= {before for before in range(at) if renamings[before].touches(renamings[at])}
    return chosen


def put(entries: dict[str, Number], name: str, number: Number | None) -> None:
    """Give a name to a file or directory, or make it free."""
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
    """The file-system calls that a log needs, on a `Disk`. Each call is an effect, with its hook before and after. A
    subject whose own interface for files has other names wraps this class.

    `now` returns ms since the epoch, and is not an effect here. Errors are `OSError`s with their usual kinds.
    """

    def __init__(self, disk: Disk, *, hook: Hook = unobserved, now: Callable[[], int] = lambda: 0) -> None:
        self.disk = disk
        self._hook = hook
        self._now = now

    def _effect(self, kind: Kind, target: Path | str, act: Callable[[], Result]) -> Result:
        with happening(self._hook, kind, target):
            return act()

    # Changing

    def create(self, path: Path) -> "SimulatedNewFile":
        """Create exclusively; `FileExistsError` if the name is taken."""
        number = self._effect(Kind.CREATE, path, lambda: self.disk.create(path, now=self._now()))
        return SimulatedNewFile(self, path, number)

    def write(self, path: Path, number: Number, content: bytes) -> None:
        """Append to an open file, even if its name has changed."""
        with happening(self._hook, Kind.WRITE, path):
            offset = len(self.disk.numbered(number).content)
            self.disk.change(number, Write(offset, bytes(content)), now=self._now())

    def sync(self, path: Path, number: Number) -> None:
        """Make the content of an open file durable."""
        self._effect(Kind.FSYNC, path, lambda: self.disk.sync(number))

    def fsync(self, path: Path) -> None:
        """Make the content of an existing file durable."""
        with happening(self._hook, Kind.FSYNC, path):
            self.disk.file(path)
            number = self.disk.find(path)
            assert number is not None
            self.disk.sync(number)

    def fsync_directory(self, path: Path) -> None:
        """Make the entries of a directory durable."""
        self._effect(Kind.FSYNC_DIRECTORY, path, lambda: self.disk.sync_directory(path))

    def make_directory(self, path: Path, mode: int = 0o777) -> None:  # noqa: ARG002 - one user
        """Create one directory; `FileExistsError` if the name is taken by a file or a directory."""
        self._effect(Kind.MAKE_DIRECTORY, path, lambda: self.disk.make_directory(path, now=self._now()))

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; `OSError` if it is not empty or does not exist."""
        self._effect(Kind.REMOVE_DIRECTORY, path, lambda: self.disk.remove_directory(path, now=self._now()))

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, atomically; `FileExistsError` if the name is taken."""
        self._effect(Kind.LINK, target, lambda: self.disk.link(source, target, now=self._now()))

    def replace(self, source: Path, target: Path) -> None:
        """Rename atomically, and replace the file `target` if it exists."""
        self._effect(Kind.REPLACE, target, lambda: self.disk.replace(source, target, now=self._now()))

    def unlink(self, path: Path) -> None:
        self._effect(Kind.UNLINK, path, lambda: self.disk.unlink(path, now=self._now()))

    # Looking

    def list_directory(self, directory: Path) -> list[Status]:
        """The entries, in an order without a meaning, because POSIX and object stores promise none. The order is always
        the same. `FileNotFoundError` if the directory does not exist."""
        with happening(self._hook, Kind.LIST, directory):
            names = sorted(self.disk.names(directory).items(), key=lambda entry: crc32(entry[0].encode()))
            return [self._status(name, number) for name, number in names]

    def read(self, path: Path) -> bytes:
        return self._effect(Kind.READ, path, lambda: bytes(self.disk.file(path).content))

    def stat(self, path: Path) -> Status | None:
        """The status of the file or directory; None if the name is free."""
        number = self._effect(Kind.STAT, path, lambda: self.disk.find(path))
        return None if number is None else self._status(path.name, number)

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name. It takes text, because it is called often."""
        return self._effect(Kind.STAT, path, lambda: self.disk.find(path)) is not None

    def identity(self, path: str) -> object:
        """The identity of the file with this name; None if the name is free. It is not an effect here, because subjects
        call it all the time."""
        return self.disk.find(path)

    def opening(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def hold_shared(self, path: str, start: int, length: int) -> None:
        """Does nothing: no process of the simulated host has two SQLite libraries."""

    def _status(self, name: str, number: Number) -> Status:
        size, modified = self.disk.size_and_time(number)
        return Status(name, size, modified, self.disk.is_directory(number))


class SimulatedNewFile:
    """A new file; a context manager that closes it. Closing does not make it durable."""

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
"""The surviving part of one change of a content: nothing, all of it, or parts."""

MOST_NAMES = 12
"""With more unsynced changes of names than this, their subsets are drawn at random instead of enumerated."""


class PowerCut:
    """All disks that a power cut at one moment may leave. All synced changes stay, and any part of the other changes.

    Names: each unsynced change of a name is kept or lost, but changes of one name keep their order, and a rename is one
    change. Contents: each unsynced write to a file is kept, lost or torn at a sector's boundary, independently of the
    others; if it makes its file longer, only the length may be kept. No single real file system allows all of these
    disks. A disk that lies about its syncs allows more.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._names = names_kept(snapshot.renamings)
        self._options: dict[Number, tuple[tuple[Option, ...], ...]] = {
            number: options_of(durable, changes) for number, (durable, changes) in snapshot.files.items() if changes
        }
        self.choices = len(self._names) * math.prod(
            len(option) for options in self._options.values() for option in options
        )
        """The number of combinations of choices. Several combinations may lead to the same disk."""

    def disks(self, random: Random, *, limit: int) -> Iterator[Tree]:
        """All disks, if there are at most `limit` combinations. Otherwise `limit` disks: first the typical ones
        (nothing kept, everything kept, a first part with and without a torn end, all but one, only one), then random
        ones."""
        if self.choices <= limit:
            for kept in self._names:
                yield from self._all_with(kept)
            return
        count = len(self._names)
        for at in range(limit):
            kept = self._names[at % count] if at < (limit + 1) // 2 else random.choice(self._names)
            yield self._drawn(kept, at // min(count, limit), random)

    def _all_with(self, kept: frozenset[int]) -> Iterator[Tree]:
        directories, files = self._reachable(kept)
        unsynced = [number for number in files if number in self._options]
        for chosen in product(*(product(*self._options[number]) for number in unsynced)):
            contents = dict(zip(unsynced, chosen, strict=True))
            yield Tree(directories, {number: self._content(number, contents.get(number, ())) for number in files})

    def least_lost(self, tree: Tree, shows: Callable[[Tree], bool]) -> tuple[Tree, tuple[str, ...]]:
        """Minimize a disk that shows a problem. Returns a disk that still shows it, and the names of what that disk
        lost. With any one of these restored, the problem would disappear."""
        whole = frozenset(range(len(self._snapshot.renamings)))
        kept = next(kept for kept in self._names if self._reachable(kept)[0] == tree.directories)
        files = {number: content for number, content in tree.files.items() if content != self._whole(number)}

        def standing(names: frozenset[int], lost: dict[Number, bytes]) -> Tree:
            directories, reached = self._reachable(names)
            return Tree(directories, {number: lost.get(number, self._whole(number)) for number in reached})

        again = True
        while again:
            again = False
            for number in sorted(files):
                fewer = {other: content for other, content in files.items() if other != number}
                if shows(standing(kept, fewer)):
                    files, again = fewer, True
            for at in sorted(whole - kept):
                more = kept | frozenset(settled(self._snapshot.renamings, {at}))
                if more in self._names and shows(standing(more, files)):
                    kept, again = more, True
        names = [f"the name {name}" for at in sorted(whole - kept) for _, name, _ in self._snapshot.renamings[at].names]
        return standing(kept, files), (
            *names,
            *(self._lost_of(number, content) for number, content in sorted(files.items())),
        )

    def _whole(self, number: Number) -> bytes:
        durable, changes = self._snapshot.files[number]
        return applied(durable, changes)

    def _lost_of(self, number: Number, left: bytes) -> str:
        entries = (directory.items() for directory in self._snapshot.directories.values())
        names = [name for entry in entries for name, other in entry if other == number]
        names += [name for renaming in self._snapshot.renamings for _, name, other in renaming.names if other == number]
        whole = self._whole(number)
        right = sum(mine == yours for mine, yours in zip(left, whole, strict=False))
        return f"content of {names[0] if names else number}: {right} of {len(whole)} bytes are right"

    def _drawn(self, kept: frozenset[int], at: int, random: Random) -> Tree:
        directories, files = self._reachable(kept)
        return Tree(
            directories,
            {number: self._content(number, drawn(self._options.get(number, ()), at, random)) for number in files},
        )

    def _content(self, number: Number, chosen: Sequence[Option]) -> bytes:
        durable, _ = self._snapshot.files[number]
        return applied(durable, [change for option in chosen for change in option])

    def _reachable(self, kept: frozenset[int]) -> tuple[dict[Number, dict[str, Number]], list[Number]]:
        """The reachable directories, and the files in them."""
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
            for child in entries[number].values():
                if child in entries:
                    waiting.append(child)
                else:
                    files[child] = None
        return reached, list(files)


def names_kept(renamings: Sequence[Renaming]) -> list[frozenset[int]]:
    """All sets of name changes that may survive, as positions. For very many changes, only all first parts."""
    if len(renamings) > MOST_NAMES:
        return [frozenset(range(kept)) for kept in range(len(renamings) + 1)]
    subsets = {frozenset[int]()}
    for at in range(len(renamings)):
        needed = frozenset(settled(tuple(renamings[: at + 1]), {at}))
        subsets |= {kept | needed for kept in subsets}
    return sorted(subsets, key=lambda kept: (len(kept), sorted(kept)))


def options_of(durable: bytes, changes: Sequence[Change]) -> tuple[tuple[Option, ...], ...]:
    """For each unsynced change of one file, the parts that may survive: first nothing, second all of it."""
    size = len(durable)
    options: list[tuple[Option, ...]] = []
    for change in changes:
        if isinstance(change, Truncate):
            options.append(((), (change,)))
            size = change.size
        else:
            options.append(((), (change,), *torn(change, size)))
            size = max(size, change.offset + len(change.data))
    return tuple(options)


def torn(write: Write, size: int) -> Iterator[Option]:
    """The parts of one write that may survive: its first sectors, its last sectors, and, for a write beyond `size`,
    only the file's new length."""
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
    """The choice with the number `at`: first the typical ones, then random ones."""
    count = len(options)
    if not count:
        return []
    patterns: tuple[Callable[[int, int], int], ...] = (
        lambda index, n: int(index < n),  # a first part
        lambda index, n: int(index != n),  # all but one
        lambda index, n: 1 if index < n else -1 if index == n else 0,  # a first part with a torn end
        lambda index, n: -1 if index == n else 1,  # one torn, all others whole
        lambda index, n: int(index == n),  # only one
    )
    number, pattern = divmod(at - 1, len(patterns))
    if at == 0 or number > count:
        weight = random.random()
        wanted = [1 if random.random() < weight else random.randrange(len(option)) for option in options]
    else:
        wanted = [patterns[pattern](position, count - number) for position in range(count)]
    if at == 0:
        wanted = [0] * count
    return [
        option[which] if which >= 0 else random.choice(option[1:])
        for option, which in zip(options, wanted, strict=True)
    ]


def identity(tree: Tree) -> int:
    """A 64-bit hash that is equal for equal disks. Valid in one process."""
    parts: list[object] = []
    names: dict[Number, str] = {}
    waiting = [(ROOT, "")]
    while waiting:
        number, path = waiting.pop()
        for name, child in sorted(tree.directories[number].items()):
            child_path = f"{path}/{name}"
            if child in tree.directories:
                parts.append(child_path)
                waiting.append((child, child_path))
            else:
                parts.append((child_path, hash(tree.files[child]), names.setdefault(child, child_path)))
    return hash(tuple(parts))
