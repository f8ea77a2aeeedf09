"""The reference as processes of one simulated host: its ordinary code, on a disk that can lose its power.

Files, database, clock and identifiers are simulated. Either a scheduler chooses the next effect of several processes or
threads; or one process may die or stall at an effect, while another process runs. The beginning and the end of a
transaction are effects too; SQLite's effects on its files happen between them.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import greenlet
import msgspec

import refimpl
from conformance.adapters.log_folder import LogFolder
from conformance.adapters.reference.client import ReferenceClient
from conformance.adapters.reference.host_effects import LedgerConnection, Life
from conformance.adapters.reference.owner import FILESYSTEM_TABLES, OwnerProcess, ReferenceOwner
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.simulation.disk import Disk, SimulatedFiles
from conformance.simulation.effects import Effect, Hook, Kind, Moment, happening, unobserved
from conformance.simulation.host import Host, Prepared, Process
from conformance.simulation.schedule import WRITER
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from refimpl.owner.ledger import FOLD_PAGES
from refimpl.protocol.commit_owner import Maintenance
from refimpl.protocol.errors import OwnerUnavailableError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.storage.environment import Environment, HostLock, ThreadTurn
from refimpl.storage.files import Files
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.warehouse import HostOwner

START_MS: Final = 1_700_000_000_000
"""The simulated time of a host's first start, in ms since the epoch."""
SKEW_MS: Final = 3_600_000
"""In a schedule, each client's clock is this much behind the previous client's. So code that orders commits by clocks
fails."""
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


class _Switched:
    """The hook of one process. The kit's own requests are not effects of a client; it is off during these."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._off = False

    def __call__(self, effect: Effect) -> None:
        if not self._off:
            self._hook(effect)

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        self._off = True
        try:
            yield
        finally:
            self._off = False


class SimulatedOwner(ReferenceOwner):
    """The reference as a subject on a simulated host. Raises the reference's errors if it cannot start."""

    def __init__(self, disk: Disk, environment: Environment, hook: _Switched, *, quickly: bool) -> None:
        """`quickly`: do not read the host's mounts like `refimpl.open`, which would take a third of the time of a
        schedule."""
        self.directory = WAREHOUSE
        self._disk = disk
        self._environment = environment
        self._hook = hook
        self._temporary = None
        self._process = None
        self._client: ReferenceClient | None = None
        if quickly:
            self.opened = _opened_quickly  # type: ignore[method-assign]
        self._start()

    def _start(self) -> None:
        self._process = OwnerProcess(self.directory, _NeverDying(self._environment), self.opened)

    @property
    def warehouse(self) -> refimpl.Warehouse:
        return self._running().warehouse

    # An external observer or writer uses only the file system; each access is one effect

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        with happening(self._hook, Kind.LIST, self._folder(request.table)):
            return super().observe(client, request)

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        with happening(self._hook, Kind.LINK, self._folder(request.table) / request.file):
            return super().plant(client, request)

    def log_of(self, table: m.TableRef) -> LogFolder:
        with self._hook.off():
            return _SimulatedLog(self._location(self.warehouse, table), self._disk)

    def _folder(self, table: m.TableRef) -> Path:
        return Path(table) / LOG_FOLDER if "/" in table else self.log_of(table).folder

    # The same process as a client: its reader and its maintenance ask the owner in this process

    def _as_client(self, client: str, request: Any) -> m.Answer:
        if self._client is None:
            self._client = _Client(lambda name, asked: getattr(self, name_of(asked))(name, asked))
            self._client._environment = self._environment
        answer: m.Answer = getattr(self._client, name_of(request))(client, request)
        return answer

    snapshot = transact = checkpoint = cleanup = _as_client

    def allow_cleanup(self) -> None:
        """Allow the cleanup of all tables, like an operator. Without this no client may clean up."""
        owner = self.warehouse.owner
        for table in owner.tables():
            allowed = table.policy.allowed | {Maintenance.METADATA_CLEANUP}
            owner.set_policy(table.table_id, msgspec.structs.replace(table.policy, allowed=allowed))

    def begin_threads(self, number: int) -> None:
        """Make each client a thread, with a connection of its own. The threads share waiting proposals without an
        effect on the host; here each access to these is an effect."""
        owner = self.warehouse.owner
        spaces = []
        for _ in range(number):
            spaces.append(SimpleNamespace())
            owner.ledger.local = spaces[-1]  # type: ignore[assignment]
            owner.ledger.open()
        owner.ledger.local = _ThreadLocal(spaces)  # type: ignore[assignment]
        owner.groups._waiting = _Waiting(self._hook)
        owner.groups._turn = _ScheduledTurn(self._hook)


def _opened_quickly(directory: Path, environment: Environment) -> refimpl.Warehouse:
    if not environment.files.exists(str(directory / OWNER_FOLDER)):
        return ReferenceOwner.opened(directory, environment)
    owner = HostOwner(directory, environment)
    owner.ledger.open()
    return refimpl.Warehouse(directory, owner, environment)


class _Client(ReferenceClient):
    """Writes no data files, because nothing reads them."""

    def write_data_file(self, path: Path) -> None:
        """Does nothing."""


class _SimulatedLog(LogFolder):
    """The log of a table on a simulated disk."""

    def __init__(self, location: Path, disk: Disk) -> None:
        super().__init__(location)
        self._disk = disk
        self._files = SimulatedFiles(disk)

    def files(self, *, contents: bool) -> tuple[m.LogFile, ...]:  # noqa: ARG002  # always with contents
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


class SimulatedReference(Host):
    """Runs the reference on simulated disks. A context manager.

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
        super().__init__()
        self._sqlite = SimulatedSqlite()
        self._checkpointing = checkpointing
        self._change = change
        self._patch = patch
        self._make_files = make_files
        self._change_database = change_database
        self._patched = contextlib.ExitStack()
        self._connections: list[Transactions] = []
        self._holders: dict[Path, list[int]] = {}
        self._connect: Callable[[Path], Any] | None = None

    def boot(self, disk: Disk, hook: Hook = unobserved) -> None:
        self.stop()
        self.disk = disk
        self._holders.clear()
        self._patched.enter_context(self._patch())
        self._connect = self._sqlite.mounted(disk, hook=hook)

    def process(self, number: int, hook: Hook, *, waits: bool = False) -> "ReferenceProcess":
        connect = self._connect
        assert connect is not None, "`boot` comes first"
        hook = _Switched(hook)

        def connected(path: Path) -> Any:
            database = connect(path)
            database = _Checkpointing(database) if self._checkpointing else database
            self._connections.append(Transactions(self._change_database(database), hook))
            return self._connections[-1]

        threads = Threads()
        ticks = count(START_MS - number * SKEW_MS if waits else START_MS + number * 1_000_000)
        waited = 0

        def pause(seconds: float) -> None:
            nonlocal waited
            if waits:
                waited += round(seconds * 1000)
                hook(Effect(kind=Kind.PAUSE, target=str(number), moment=Moment.BEFORE))

        environment = Environment(
            files=cast(Files, self._make_files(self.disk, hook=hook, now=lambda: START_MS)),
            host_lock=lambda path: self._lock(path, number, hook, threads, waits=waits),
            thread_turn=lambda: threads,
            host_queue=lambda _path: lambda: contextlib.nullcontext(False),
            now=lambda: next(ticks) + waited,
            new_id=identifiers(number),
            random=lambda: 0.5,
            pause=pause,
            connect=connected,
        )
        return ReferenceProcess(SimulatedOwner(self.disk, self._change(environment), hook, quickly=waits), threads)

    def _lock(self, path: Path, number: int, hook: Hook, threads: "Threads", *, waits: bool) -> HostLock:
        @contextlib.contextmanager
        def held() -> Iterator[None]:
            threads.let_others_come()
            with happening(hook, Kind.ACQUIRE, path):
                holders = self._holders.setdefault(path, [])
                if holders and holders[-1] != number and not waits:
                    raise OwnerUnavailableError(f"{path} was held by another process all the time; try again")
                holders.append(number)
            try:
                yield
            finally:
                with happening(hook, Kind.RELEASE, path):
                    holders.remove(number)

        return held

    def threads(self, number: int, hook: Hook) -> "ReferenceProcess":
        process = self.process(1, hook, waits=True)
        process.owner.begin_threads(number)
        return process

    def prepare(self, ask: Callable[[Process], Prepared]) -> Prepared:
        """The unchanged reference creates the start state, which a known-bad variant need not be able to do."""
        variant = self._change, self._patch
        self._change, self._patch = unchanged, contextlib.nullcontext
        try:
            return super().prepare(ask)
        finally:
            self._change, self._patch = variant

    def settle(self, process: Process) -> None:
        cast(ReferenceProcess, process).owner.allow_cleanup()
        self._connections[-1].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

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


class ReferenceProcess(Process):
    """One process of the reference, with its threads."""

    def __init__(self, owner: SimulatedOwner, threads: "Threads") -> None:
        super().__init__(owner)
        self.owner = owner
        self._threads = threads

    def together(self, requests: Sequence[m.Request], answered: Callable[[int, m.Answer], None]) -> None:
        def sending(number: int, request: m.Request) -> Callable[[], None]:
            return lambda: answered(number, self(request))

        self._threads.together([sending(number, request) for number, request in enumerate(requests)])


class Threads(ThreadTurn):
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


# Threads whose effects a scheduler orders


class _ThreadLocal:
    """`threading.local` for simulated threads: a namespace for each greenlet."""

    def __init__(self, spaces: list[SimpleNamespace]) -> None:
        self.__dict__.update(spaces=spaces, of={})

    def _space(self) -> SimpleNamespace:
        current = greenlet.getcurrent()
        if current not in self.of:
            self.of[current] = self.spaces.pop() if self.spaces else SimpleNamespace()
        namespace: SimpleNamespace = self.of[current]
        return namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._space(), name, value)


class _ScheduledTurn(ThreadTurn):
    """The turn of simulated threads, which the leader holds like a lock."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._leader: greenlet.greenlet | None = None

    def take(self, done: Callable[[], bool]) -> bool:
        if done():
            return False
        self._hook(Effect(kind=Kind.ACQUIRE, target="threads", moment=Moment.BEFORE))
        self._leader = greenlet.getcurrent()
        if done():
            self.pass_on()
        return not done()

    def pass_on(self) -> None:
        if self._leader is greenlet.getcurrent():
            self._leader = None
            self._hook(Effect(kind=Kind.RELEASE, target="threads", moment=Moment.BEFORE))


class _Waiting(list[Any]):
    """The proposals that wait in a process. Adding and reading them are effects, because their order matters."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook = hook

    def append(self, item: Any) -> None:
        self._hook(Effect(kind=Kind.WRITE, target="waiting", moment=Moment.BEFORE))
        super().append(item)

    def copy(self) -> list[Any]:
        self._hook(Effect(kind=Kind.READ, target="waiting", moment=Moment.BEFORE))
        return super().copy()


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
