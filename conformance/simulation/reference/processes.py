"""The reference as processes of one simulated host: its ordinary code, on a disk that can lose its power.

Files, database, clock and identifiers are simulated. One process may die or stall at an effect while another process
runs. A process that needs a held lock gets the error of an expired timeout at once. The beginning and the end of a
transaction are effects too; SQLite's effects on its files happen between them.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

import greenlet

from conformance.adapters.in_process import InProcess
from conformance.adapters.log_folder import LogFolder
from conformance.adapters.reference.host_effects import LedgerConnection, Life
from conformance.adapters.reference.owner import FILESYSTEM_TABLES, OwnerProcess, ReferenceOwner
from conformance.interface import messages as m
from conformance.interface.subject import Closing
from conformance.simulation.disk import Disk, SimulatedFiles
from conformance.simulation.effects import Effect, Hook, Kind, Moment, happening, unobserved
from conformance.simulation.schedule import WRITER
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from refimpl.owner.ledger import FOLD_PAGES
from refimpl.owner.local import OWNER_FOLDER
from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.storage.environment import Environment, HostLock, ThreadTurn
from refimpl.storage.files import Files

START_MS: Final = 1_700_000_000_000
"""The simulated time of a host's first start, in ms since the epoch."""
WAREHOUSE: Final = Path("/warehouse")
STORAGE: Final = str(WAREHOUSE / FILESYSTEM_TABLES)

Change = Callable[[Environment], Environment]
"""Changes the effects of a process, to make a known-bad variant of the reference."""

Patch = Callable[[], contextlib.AbstractContextManager[Any]]
"""Changes the code of the reference while its processes run, to make a known-bad variant."""


def unchanged(environment: Environment) -> Environment:
    return environment


def identifiers(start: int) -> Callable[[], str]:
    """A function that returns lower-case uuids. Each start of a host needs another `start`."""
    numbers = count(1)

    def new() -> str:
        number = (start << 12) + next(numbers)
        return f"{number % 2**32:08x}-0000-4000-8000-{number:012x}"

    return new


class SimulatedOwner(ReferenceOwner):
    """The reference as a subject on a simulated host. Raises the reference's errors if it cannot start."""

    def __init__(self, disk: Disk, environment: Environment) -> None:
        self.directory = WAREHOUSE
        self._disk = disk
        self._environment = environment
        self._temporary = None
        self._process = None
        self._start()

    def _start(self) -> None:
        self._process = OwnerProcess(self.directory, _NeverDying(self._environment), self.opened)

    def log_of(self, table: m.TableRef) -> LogFolder:
        return _SimulatedLog(self._location(self._running().warehouse, table), self._disk)


class _SimulatedLog(LogFolder):
    """The log of a table on a simulated disk."""

    def __init__(self, location: Path, disk: Disk) -> None:
        super().__init__(location)
        self._disk = disk
        self._files = SimulatedFiles(disk)

    def files(self, *, contents: bool) -> tuple[m.LogFile, ...]:  # always with contents
        return tuple(_files(self._disk, self.folder))

    def plant(self, request: m.Plant) -> m.Done | m.Conflict:
        """Plant a file like the finished write of an external writer: the file and its folders are durable."""
        target, files = self.path(request.file), self._files
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

    def remove(self, file: str) -> m.Done:
        target = self.path(file)
        if self._files.exists(str(target)):
            self._files.unlink(target)
            self._files.fsync_directory(target.parent)
        return m.Done()


class _NeverDying(Life):
    """The life of a process without crash points. The simulation stops the process."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(synced=False)
        self._environment = environment

    def environment(self) -> Environment:
        return self._environment


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


class SimulatedProcesses(Closing):
    """Starts the reference on simulated disks. `start` boots the host with one process; `beside` starts another process
    while the others run. A context manager.

    `checkpointing`: the database checkpoints its write-ahead log after every commit. `change`, `patch`, `make_files`
    and `change_database` make a known-bad variant.
    """

    def __init__(
        self,
        *,
        checkpointing: bool = False,
        change: Change = unchanged,
        patch: Patch = contextlib.nullcontext,
        make_files: Callable[..., SimulatedFiles] = SimulatedFiles,
        change_database: Callable[[Any], Any] = lambda database: database,
    ) -> None:
        self._sqlite = SimulatedSqlite()
        self._checkpointing = checkpointing
        self._change = change
        self._patch = patch
        self._make_files = make_files
        self._change_database = change_database
        self._patched = contextlib.ExitStack()
        self._connections: list[Transactions] = []
        self._holders: dict[Path, list[int]] = {}
        self._disk: Disk | None = None
        self._connect: Callable[[Path], Any] | None = None

    def start(self, disk: Disk, *, start: int, hook: Hook) -> Callable[[m.Request], m.Answer]:
        self._disk = disk
        self._holders.clear()
        self._patched.close()
        self._patched.enter_context(self._patch())
        self._connect = self._sqlite.mounted(disk, hook=hook)
        return self._process(start, hook)

    def beside(self, *, start: int) -> Callable[[m.Request], m.Answer]:
        """Start another process normally. It shares files, database and lock with the others."""
        return self._process(start, unobserved)

    def _process(self, number: int, hook: Hook) -> Callable[[m.Request], m.Answer]:
        connect = self._connect
        assert connect is not None, "`start` comes before `beside`"

        def connected(path: Path) -> Any:
            database = connect(path)
            database = _Checkpointing(database) if self._checkpointing else database
            self._connections.append(Transactions(self._change_database(database), hook))
            return self._connections[-1]

        threads = _Threads()
        ticks = count(START_MS + number * 1_000_000)
        environment = Environment(
            files=cast(Files, self._make_files(self.disk, hook=hook)),
            host_lock=lambda path: self._lock(path, number, hook, threads),
            thread_turn=lambda: threads,
            host_queue=lambda _path: lambda: contextlib.nullcontext(False),
            now=lambda: next(ticks),
            new_id=identifiers(number),
            random=lambda: 0.5,
            pause=lambda _seconds: None,
            connect=connected,
        )
        owner = InProcess(SimulatedOwner(self.disk, self._change(environment)))
        return _Asking(owner, threads)

    def _lock(self, path: Path, number: int, hook: Hook, threads: "_Threads") -> HostLock:
        @contextlib.contextmanager
        def held() -> Iterator[None]:
            threads.let_others_come()
            with happening(hook, Kind.ACQUIRE, path):
                holders = self._holders.setdefault(path, [])
                if holders and holders[-1] != number:
                    raise OwnerUnavailableError(f"{path} was held by another process all the time; try again")
                holders.append(number)
            try:
                yield
            finally:
                with happening(hook, Kind.RELEASE, path):
                    holders.remove(number)

        return held

    @property
    def disk(self) -> Disk:
        """The disk of the last start."""
        assert self._disk is not None
        return self._disk

    def state(self) -> object:
        """The ledger as SQLite reads it, and every other file. Uncommitted transactions in the write-ahead log do not
        count."""
        ledger = hash(self._connections[-1].serialize("main"))  # earlier connections are closed
        others = {
            path: hash(bytes(self.disk.numbered(number).content))
            for path, number in self.disk.walk()
            if Path(path).parent.name != OWNER_FOLDER
        }
        return ledger, tuple(sorted(others.items()))

    def stop(self) -> None:
        """Close the connections on the real host. The simulated host does not notice, because it has lost its power."""
        for database in self._connections:
            database.kill()
        self._connections.clear()
        self._sqlite.unmount()
        self._patched.close()

    def close(self) -> None:
        self.stop()
        self._sqlite.close()


class _Threads(ThreadTurn):
    """The threads of a process, and their turn. A thread runs until it waits."""

    def __init__(self) -> None:
        self._coming = False
        self._leader: greenlet.greenlet | None = None
        self._hub: greenlet.greenlet | None = None

    def together(self, works: Sequence[Callable[[], None]]) -> None:
        self._hub, self._coming = greenlet.getcurrent(), True
        threads = [greenlet.greenlet(work, parent=self._hub) for work in works]
        while left := [thread for thread in threads if not thread.dead]:
            for thread in left:
                thread.switch()
        self._hub = None

    def let_others_come(self) -> None:
        """Let the other threads run, because the first thread waits for the owner's lock."""
        if self._hub is not None and self._coming:
            self._coming = False
            self._hub.switch()

    def take(self, done: Callable[[], bool]) -> bool:
        while self._leader is not None and self._hub is not None and not done():
            self._hub.switch()
        if not done():
            self._leader = greenlet.getcurrent()
        return not done()

    def pass_on(self) -> None:
        if self._leader is greenlet.getcurrent():
            self._leader = None


@dataclass(frozen=True, slots=True)
class _Asking:
    """Sends requests to one process, from one thread of it or from several."""

    owner: InProcess
    threads: _Threads

    def __call__(self, request: m.Request) -> m.Answer:
        return self.owner.ask("client", request)

    def together(self, requests: Sequence[m.Request], answered: Callable[[int, m.Answer], None]) -> None:
        def sending(number: int, request: m.Request) -> Callable[[], None]:
            return lambda: answered(number, self(request))

        self.threads.together([sending(number, request) for number, request in enumerate(requests)])


class _Checkpointing(LedgerConnection):
    """A connection that treats every write-ahead log as too long."""

    def set_wal_hook(self, callback: Callable[[Any, str, int], int]) -> None:
        self.database.set_wal_hook(lambda database, schema, pages: callback(database, schema, pages + FOLD_PAGES))


class Transactions(LedgerConnection):
    """A connection with effects for its transactions: the beginning and the end of a writing transaction, and the first
    query of a reading transaction, which takes its snapshot."""

    def __init__(self, database: Any, hook: Hook) -> None:
        super().__init__(database)
        self._hook = hook
        self._begun: str | None = None

    def execute(self, statement: str, *values: Any) -> Any:
        kind = self._kind(statement)
        if kind is None:
            return self.database.execute(statement, *values)
        self._hook(Effect(kind=kind, target=WRITER, moment=Moment.BEFORE))
        try:
            return self.database.execute(statement, *values)
        finally:
            self._hook(Effect(kind=kind, target=WRITER, moment=Moment.AFTER))

    def _kind(self, statement: str) -> Kind | None:
        if statement == "BEGIN":
            self._begun = "read"
            return None
        if statement.startswith("BEGIN"):
            self._begun = "write"
            return Kind.BEGIN
        if statement in ("COMMIT", "ROLLBACK"):
            begun, self._begun = self._begun, None
            return Kind(statement.lower()) if begun == "write" else None
        if self._begun == "read":
            self._begun = "reading"
            return Kind.QUERY
        return None

    def set_busy_timeout(self, _milliseconds: int) -> None:
        """Do nothing: no other process runs while this one waits, so a held lock stays held."""
