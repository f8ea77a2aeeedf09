"""The effects that a log is made of, and their POSIX implementation.

Every byte of a log goes through `Files`: no other code of this project opens, links or lists a
file of a log. So tests can replace it with a storage model, a fault or a power cut.
Only the two `fsync` calls make anything durable.
"""

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One directory entry: `size` in bytes, `modified` in ms since the epoch."""

    name: str
    size: int
    modified: int
    is_directory: bool


class UncertainError(OSError):
    """The storage did not confirm an operation; its effect may still become visible later."""


UNCERTAIN: Final = (errno.EIO, errno.ETIMEDOUT, errno.ESTALE)
"""Errors of a network file system after which the outcome is unknown: the server may have created the name, and this
host may not see it yet."""


class NewFile(Protocol):
    """A file that did not exist before; a context manager that closes it."""

    def write(self, content: bytes) -> None: ...
    def fsync(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class Files(Protocol):
    """File-system effects. Errors are `OSError`s with their usual kinds."""

    def create(self, path: Path) -> NewFile:
        """Create exclusively; `FileExistsError` if the name is taken."""
        ...

    def fsync(self, path: Path) -> None:
        """Make the content of an existing file durable."""
        ...

    def fsync_directory(self, path: Path) -> None:
        """Make the entries of a directory durable."""
        ...

    def make_directory(self, path: Path, mode: int = 0o777) -> None:
        """Create one directory; `FileExistsError` if the name is taken by any kind of entry."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, atomically; `FileExistsError` if the name is taken."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename atomically, replacing `target` if it exists."""
        ...

    def unlink(self, path: Path) -> None: ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; `OSError` for one that is missing or not empty."""
        ...

    def list_directory(self, directory: Path) -> list[FileStatus]:
        """The entries, in no order; `FileNotFoundError` for a missing directory."""
        ...

    def read(self, path: Path) -> bytes: ...

    def stat(self, path: Path) -> FileStatus | None:
        """None if nothing has this name. Symbolic links are followed."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file, a directory or a link (also a dangling one) has this name. Takes text: every commit calls
        this, and a `Path` costs more. Raises the `OSError` of a failing disk."""
        ...

    def identity(self, path: str) -> object:
        """A value that stays equal while the name means the same file and a process keeps that file open; None if
        nothing has the name."""
        ...

    def hold_shared(self, path: str, start: int, length: int) -> object:
        """A shared lock on these bytes of a database's file until the returned value is freed, where the host has such
        locks. Every call for one file asks for the same bytes."""
        ...

    def opening(self) -> AbstractContextManager[None]:
        """A context manager in which the caller opens a database, up to `hold_shared`, or closes it."""
        ...


FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""The call of macOS that empties the drive's cache, too; there `fsync` does not."""


def sync(descriptor: int) -> None:
    """Make a file or a directory durable."""
    if FULL_SYNC is not None:
        with contextlib.suppress(OSError):  # a file system without it
            fcntl.fcntl(descriptor, FULL_SYNC)
            return
    os.fsync(descriptor)


class _PosixNewFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self._fd, view) :]

    def fsync(self) -> None:
        sync(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)


_NO_WAITING: Final = os.O_CLOEXEC | os.O_NONBLOCK
"""A writer of the log may have created a named pipe there: opening it must not block, above all not under the owner's
lock. Regular files are not affected."""


class PosixFiles:
    """The host's file system, by plain system calls."""

    def create(self, path: Path) -> NewFile:
        return _PosixNewFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def fsync(self, path: Path) -> None:
        self._fsync(path, os.O_RDONLY)

    def fsync_directory(self, path: Path) -> None:
        self._fsync(path, os.O_RDONLY | os.O_DIRECTORY)

    def _fsync(self, path: Path, flags: int) -> None:
        fd = os.open(path, flags | _NO_WAITING)
        try:
            sync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path, mode: int = 0o777) -> None:
        path.mkdir(mode)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def list_directory(self, directory: Path) -> list[FileStatus]:
        entries: list[FileStatus] = []
        with os.scandir(directory) as scan:
            for entry in scan:
                try:
                    entries.append(_status(entry.name, entry.stat()))
                except FileNotFoundError:  # removed since it was listed
                    continue
        return entries

    def read(self, path: Path) -> bytes:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAITING), "rb", buffering=0) as file:
            return file.read() or b""

    def stat(self, path: Path) -> FileStatus | None:
        try:
            return _status(path.name, path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path: str) -> bool:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def identity(self, path: str) -> object:
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_ino, status.st_dev

    def opening(self) -> AbstractContextManager[None]:
        return _SHARED_LOCKS.opening()

    def hold_shared(self, path: str, start: int, length: int) -> object:
        return _SHARED_LOCKS.hold(path, start, length)


HAS_DESCRIPTION_LOCKS: Final = sys.platform == "linux"
"""Whether this host has locks that belong to an open file description and end when its descriptors are closed."""

_FLOCK: Final = struct.Struct("hhqqi")
"""`struct flock` of Linux: type, whence, start, length, pid."""


def lock_description(descriptor: int, kind: int, start: int, length: int) -> None:
    """Lock bytes of a file for its open file description, without waiting; `kind`: `F_RDLCK`, `F_WRLCK`, `F_UNLCK`."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


class _SharedFile:
    """A file of a database that this process has open: its descriptors, and the holders of the lock."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.holders: set[int] = set()

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class _Holder:
    """Holds a lock until it is garbage-collected, by any thread at any time."""

    def __init__(self, file: _SharedFile) -> None:
        self._file = file
        file.holders.add(id(self))

    def __del__(self) -> None:
        self._file.holders.discard(id(self))


class _SharedLocks:
    """Locks of open file descriptions, which last until their descriptor is closed: STORAGE.md#second-library.

    Closing such a descriptor releases the locks that SQLite has in this process. So it is closed only while no
    connection to that file is open or being opened; `opening` guarantees this between threads.
    """

    def __init__(self) -> None:
        self._files: dict[object, _SharedFile] = {}
        self._lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def opening(self) -> Iterator[None]:
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._close_unused()

    def hold(self, path: str, start: int, length: int) -> object:
        with self._lock:
            status = Path(path).stat()
            file = self._files.get((status.st_dev, status.st_ino))
            return _Holder(self._locked(path, start, length) if file is None else file)

    def _locked(self, path: str, start: int, length: int) -> _SharedFile:
        descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
        status = os.fstat(descriptor)
        file = self._files.setdefault((status.st_dev, status.st_ino), _SharedFile())
        file.descriptors.append(descriptor)
        if HAS_DESCRIPTION_LOCKS:
            try:
                lock_description(descriptor, fcntl.F_RDLCK, start, length)
            except OSError as error:
                if error.errno not in _NO_SUCH_LOCKS:
                    raise
        return file

    def _close_unused(self) -> None:
        for identity, file in list(self._files.items()):
            if not file.holders:
                del self._files[identity]
                file.close()

    def forget(self) -> None:
        """Start afresh in a forked child. It has copies of the descriptors, no connection, and perhaps a lock that
        another thread of its parent held. The parent's locks stay held."""
        for file in self._files.values():
            file.close()
        self._files, self._lock, self._depth = {}, threading.RLock(), 0


_NO_SUCH_LOCKS: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Errors of a file system without locks of open file descriptions: only SQLite's own locks are held there."""

_SHARED_LOCKS: Final = _SharedLocks()
os.register_at_fork(after_in_child=_SHARED_LOCKS.forget)


def reserve_private(path: Path) -> None:
    """Create an empty file that only its user may read, unless something has this name."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def may_write(path: Path) -> bool:
    """Whether this process may write this file, or create it."""
    return os.access(path if path.exists() else path.parent, os.W_OK)


def cannot_exist(path: Path) -> bool:
    """Whether this file is missing, and this process may not create it."""
    return not path.exists() and not may_write(path)


def _status(name: str, status: os.stat_result) -> FileStatus:
    return FileStatus(name, status.st_size, status.st_mtime_ns // 1_000_000, stat.S_ISDIR(status.st_mode))
