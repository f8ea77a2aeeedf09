"""The reference owner on a simulated host: its ordinary code, on a disk that can lose its power.

Files, database, clock and identifiers are the simulation's; the lock is free, because one client acts at a time (a
scheduler gives it another one).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, Self, cast

import refimpl
from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.dying import Life
from conformance.adapters.reference.owner import FILESYSTEM_TABLES, ReferenceOwner, _Process
from conformance.interface import messages as m
from conformance.simulation.effects import Hook, unobserved
from conformance.simulation.files import SimulatedFiles
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from conformance.simulation.storage import Disk
from refimpl.environment import Environment, HostLock
from refimpl.files import Files
from refimpl.log_path import LOG_FOLDER
from refimpl.owner.ledger import FOLD_PAGES
from refimpl.owner.local import OWNER_FOLDER

START_MS = 1_700_000_000_000
"""The simulated clock when a host starts for the first time; ms since the epoch."""


def free_lock(_path: Path) -> HostLock:
    """Of a host on which nobody else runs."""
    return contextlib.nullcontext


def identifiers(start: int) -> Callable[[], str]:
    """Lower-case uuids, one after the other. Each start of a host needs a `start` of its own."""
    numbers = count(1)

    def new() -> str:
        number = (start << 12) + next(numbers)
        return f"{number % 2**32:08x}-0000-4000-8000-{number:012x}"

    return new


def environment(
    disk: Disk,
    sqlite: SimulatedSqlite,
    *,
    start: int = 1,
    hook: Hook = unobserved,
    now: Callable[[], int] | None = None,
    make_files: Callable[..., SimulatedFiles] = SimulatedFiles,
    change_database: Callable[[Any], Any] = lambda database: database,
) -> Environment:
    """All effects of one start of the host. `start`: which one it is; no two share identifiers.

    `hook` is called for files and for what SQLite does to its own. `make_files` and `change_database` put something
    between the reference and its host: a known-bad variant, or an observer.
    """
    ticks = count(START_MS + start * 1_000_000)
    clock = now or (lambda: next(ticks))
    connect = sqlite.mounted(disk, hook=hook)
    return Environment(
        files=cast(Files, make_files(disk, hook=hook)),
        host_lock=free_lock,
        host_queue=lambda _path: lambda: contextlib.nullcontext(False),
        now=clock,
        new_id=identifiers(start),
        random=lambda: 0.5,
        pause=lambda _seconds: None,
        connect=lambda path: change_database(connect(path)),
    )


WAREHOUSE: Final = Path("/warehouse")


class SimulatedOwner(ReferenceOwner):
    """The reference as a subject on a simulated host, from one start to its end. Raises the reference's errors where it
    cannot start."""

    def __init__(self, disk: Disk, environment: Environment) -> None:
        self.directory = WAREHOUSE
        self._disk = disk
        self._environment = environment
        self._temporary = None
        self._process = None
        self._start()

    def _start(self) -> None:
        self._process = _Process(self.directory, cast(Life, _Powered(self._environment)))

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            return m.Observation(files=tuple(_files(self._disk, self._location(warehouse, request.table) / LOG_FOLDER)))

        return self._answered(ask)

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        """As somebody else's finished write: durable, with its folders."""

        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            target = self._location(warehouse, request.table) / LOG_FOLDER / request.file
            files = SimulatedFiles(self._disk)
            if request.if_absent and files.exists(str(target)):
                return m.Conflict()
            for folder in reversed(target.parents):
                if self._disk.find(folder) is None:
                    files.make_directory(folder)
                    files.fsync_directory(folder.parent)
            temporary = target.with_name(f".planting-{target.name}")
            with files.create(temporary) as file:
                file.write(request.content.encode("utf-8", "surrogateescape"))
                file.fsync()
            files.replace(temporary, target)
            files.fsync_directory(target.parent)
            return m.Done()

        return self._answered(ask)

    def remove(self, client: str, request: m.Remove) -> m.Answer:
        def ask(warehouse: refimpl.Warehouse) -> m.Answer:
            target = self._location(warehouse, request.table) / LOG_FOLDER / request.file
            files = SimulatedFiles(self._disk)
            if files.exists(str(target)):
                files.unlink(target)
                files.fsync_directory(target.parent)
            return m.Done()

        return self._answered(ask)


class _Powered:
    """A process that nobody tells to die: the power goes instead."""

    dead = False

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def environment(self) -> Environment:
        return self._environment

    def end(self) -> None:
        """It ended in good order."""


def _files(disk: Disk, folder: Path, below: str = "") -> Iterator[m.LogFile]:
    if disk.find(folder) is None:
        return
    for name, number in sorted(disk.names(folder).items()):
        if disk.is_directory(number):
            yield from _files(disk, folder / name, f"{below}{name}/")
        else:
            content = bytes(disk.numbered(number).content)
            text = content.decode("utf-8", "surrogateescape")
            yield m.LogFile(name=below + name, size=len(content), content=text)


class SimulatedReference:
    """Starts the reference on simulated disks, one after the other. `folding`: its database moves the write-ahead log
    into itself after every commit. A context manager."""

    storage = str(WAREHOUSE / FILESYSTEM_TABLES)

    def __init__(self, *, folding: bool = False, **changes: Any) -> None:
        self._sqlite = SimulatedSqlite()
        self._changes = changes
        self._folding = folding
        self._connections: list[Any] = []
        self._disk: Disk | None = None

    def start(self, disk: Disk, *, start: int, hook: Hook) -> Callable[[m.Request], m.Answer]:
        self._disk = disk
        effects = environment(disk, self._sqlite, start=start, hook=hook, **self._changes)
        connect = effects.connect
        assert connect is not None

        def remembered(path: Path) -> Any:
            database = connect(path)
            self._connections.append(database)
            return _Folding(database) if self._folding else database

        owner = InProcess(SimulatedOwner(disk, dataclasses.replace(effects, connect=remembered)))
        return lambda request: owner.ask("client", request)

    @property
    def disk(self) -> Disk:
        """Of the last start."""
        assert self._disk is not None
        return self._disk

    def state(self) -> object:
        """The ledger as SQLite reads it, and every other file. What is left in the write-ahead log of transactions that
        never were does not count."""
        assert self._disk is not None
        ledger = hash(self._connections[-1].serialize("main"))  # those before it made the ledger, and are closed
        others = {
            path: hash(bytes(self._disk.numbered(number).content))
            for path, number in self._disk.walk()
            if Path(path).parent.name != OWNER_FOLDER
        }
        return ledger, tuple(sorted(others.items()))

    def stop(self) -> None:
        """Closes what is open on the real host: the simulated one has lost its power, and sees nothing of it."""
        for database in self._connections:
            database.close(True)
        self._connections.clear()
        self._sqlite.unmount()

    def close(self) -> None:
        self.stop()
        self._sqlite.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Folding:
    """A connection that takes every write-ahead log for a long one."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def set_wal_hook(self, callback: Callable[[Any, str, int], int]) -> None:
        self._database.set_wal_hook(lambda database, schema, pages: callback(database, schema, pages + FOLD_PAGES))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)
