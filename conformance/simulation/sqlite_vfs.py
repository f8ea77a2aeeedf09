"""The real SQLite on a simulated disk: its database, its write-ahead log and its journals are files of a `Disk`.

SQLite's own code runs on a replaced operating system. The model holds contents, names and syncs, so a power cut affects
a database like any other file, at the same moment. The real host keeps two things: the locks between connections of
this process, and the index of the write-ahead log, which is in shared memory and never on a disk. Both use an empty
file of the host, which is never written.

This file system promises the same about the disk as SQLite's Unix port: a write changes no byte beside it, even when it
is torn (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`), and a sector has `SECTOR` bytes.
"""

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import apsw

from conformance.interface.subject import Closing
from conformance.simulation.disk import SECTOR, Change, Disk, File, Number, Truncate, Write
from conformance.simulation.effects import Hook, Kind, happening, unobserved

_BASE: Final = "unix-excl"
"""This base keeps the index of the write-ahead log on the heap, which connections of one process share; it needs no
file."""

_JOURNALS: Final = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_numbers = count(1)
"""Makes the names of registered file systems unique in the process."""


@contextlib.contextmanager
def _as_sqlite(code: int) -> Iterator[None]:
    """Turn the error of a failing disk into SQLite's error."""
    try:
        yield
    except OSError as error:
        failed = apsw.IOError(str(error))
        failed.extendedresult = code  # type: ignore[attr-defined]
        raise failed from error


@dataclass(frozen=True, slots=True)
class _Host:
    """One mounted disk: its effects, and the host's empty file that holds its locks."""

    disk: Disk
    hook: Hook
    anchors: Path
    mount: int

    def sync_directory_of(self, path: str) -> None:
        folder = str(Path(path).parent)
        with _as_sqlite(apsw.SQLITE_IOERR_DIR_FSYNC), happening(self.hook, Kind.FSYNC_DIRECTORY, folder):
            self.disk.sync_directory(folder)


class SimulatedSqlite(Closing):
    """Opens databases on simulated disks. A context manager, whose end removes the host's empty files.

        with SimulatedSqlite() as sqlite:
            connect = sqlite.mounted(disk)
            database = connect(Path("/warehouse/ledger.sqlite"))

    A disk is mounted once for each start of a host. Connections of two mounts do not affect each other, like
    connections before and after a reboot.
    """

    def __init__(self) -> None:
        memory = Path("/dev/shm")  # the place for a private temporary directory
        self._anchors = tempfile.TemporaryDirectory(
            prefix="simulated-sqlite-", dir=memory if os.access(memory, os.W_OK) else None
        )
        self._hosts: dict[int, _Host] = {}
        self._mounts = count(1)
        self._name = f"simulated-{next(_numbers)}"
        self._vfs = _FileSystem(self._name, self._hosts)

    def mounted(self, disk: Disk, *, hook: Hook = unobserved) -> Callable[[Path], apsw.Connection]:
        """A function that opens a database on this disk. `hook` is called for writes, truncations, syncs and removals
        of SQLite's files, within SQLite: it may only read, and must not run other code of the subject."""
        mount = next(self._mounts)
        self._hosts[mount] = _Host(disk, hook, Path(self._anchors.name), mount)

        def connect(path: Path) -> apsw.Connection:
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
            return apsw.Connection(f"{mount}:{path}", flags=flags, vfs=self._name)

        return connect

    def unmount(self) -> None:
        """Unmount all disks, and free their memory, because a run starts on very many disks. The caller closes the
        connections first."""
        self._hosts.clear()
        for anchor in Path(self._anchors.name).iterdir():
            anchor.unlink()

    def close(self) -> None:
        """The caller closes the connections first."""
        self._hosts.clear()
        self._vfs.unregister()
        self._anchors.cleanup()


class _FileSystem(apsw.VFS):
    """Names are `<mount>:<absolute path>`."""

    def __init__(self, name: str, hosts: dict[int, _Host]) -> None:
        self._hosts = hosts
        super().__init__(name, base=_BASE, maxpathname=4096)

    def _place(self, name: str) -> tuple[_Host, str]:
        mount, _, path = name.partition(":")
        return self._hosts[int(mount)], path

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: ARG002, N802
        host, path = self._place(pathname)
        return host.disk.find(path) is not None

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        host, path = self._place(filename)
        if host.disk.find(path) is None:
            missing = apsw.IOError(f"{path} does not exist")
            missing.extendedresult = apsw.SQLITE_IOERR_DELETE_NOENT  # type: ignore[attr-defined]
            raise missing
        with _as_sqlite(apsw.SQLITE_IOERR_DELETE), happening(host.hook, Kind.UNLINK, path):
            host.disk.unlink(path, now=0)
        if syncdir:
            host.sync_directory_of(path)

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        if name is None:  # a temporary file of SQLite, which does not survive a restart
            return super().xOpen(name, flags)
        host, path = self._place(name if isinstance(name, str) else name.filename())
        number = host.disk.find(path)
        created = number is None
        if number is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(f"{path} does not exist")
            with _as_sqlite(apsw.SQLITE_IOERR_ACCESS), happening(host.hook, Kind.CREATE, path):
                number = host.disk.create(path, now=0)
        flags[1] = flags[0]
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _Database(host, path, number)
        return _Journal(host, path, number, unsynced_name=created and bool(flags[0] & _JOURNALS))


class _Content:
    """The content of one open file, on the simulated disk."""

    def __init__(self, host: _Host, path: str, number: Number, *, unsynced_name: bool = False) -> None:
        self.host = host
        self.path = path
        self.number = number
        self.file: File = host.disk.numbered(number)
        self._unsynced_name = unsynced_name

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self.file.content[offset : offset + amount])

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._change(Kind.WRITE, Write(offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._change(Kind.WRITE, Truncate(newsize))

    def _change(self, kind: Kind, change: Change) -> None:
        with _as_sqlite(apsw.SQLITE_IOERR_WRITE), happening(self.host.hook, kind, self.path):
            self.host.disk.change(self.number, change, now=0)

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802
        """The first sync of a new journal makes its name durable too, as in SQLite's Unix port."""
        with _as_sqlite(apsw.SQLITE_IOERR_FSYNC), happening(self.host.hook, Kind.FSYNC, self.path):
            self.host.disk.sync(self.number)
        if self._unsynced_name:
            self.host.sync_directory_of(self.path)
            self._unsynced_name = False

    def xFileSize(self) -> int:  # noqa: N802
        return len(self.file.content)

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        if op != apsw.SQLITE_FCNTL_HAS_MOVED:
            return False
        moved = self.host.disk.find(self.path) != self.number
        ctypes.c_int.from_address(pointer).value = moved
        return True

    def xSectorSize(self) -> int:  # noqa: N802
        return SECTOR

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class _Journal(_Content):
    """A journal or a write-ahead log. Only databases are locked."""

    def xClose(self) -> None:  # noqa: N802
        """This makes nothing durable."""

    def xLock(self, level: int) -> None:  # noqa: N802
        """Does nothing."""

    xUnlock = xLock  # noqa: N815

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False


class _Database(_Content, apsw.VFSFile):
    """A database: the model has its content; the host has its locks and shared memory, on its empty file."""

    def __init__(self, host: _Host, path: str, number: Number) -> None:
        _Content.__init__(self, host, path, number)
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        apsw.VFSFile.__init__(self, _BASE, str(host.anchors / f"{host.mount}-{number}"), [flags, 0])
