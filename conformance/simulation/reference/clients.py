"""The reference as several processes of one simulated host. A scheduler orders their effects.

Every client is a complete `ReferenceOwner`, with its own connections and handles like a process. Only one runs at a
time. Files and ledger are real, in memory; lock, clock, identifiers and random numbers are simulated. Each run starts
from the same bytes in the same folder, so that the same choices give the same trace.
"""

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import greenlet
import msgspec

import refimpl
from conformance.adapters.in_process import InProcess
from conformance.adapters.reference.client import ReferenceClient
from conformance.adapters.reference.host_effects import EffectFiles, LedgerConnection, Life, Result
from conformance.adapters.reference.owner import FILESYSTEM_TABLES, OwnerProcess, ReferenceOwner
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.interface.subject import Closing
from conformance.simulation.effects import Effect, Hook, Kind, Moment, unobserved
from conformance.simulation.reference.processes import Change, Patch, unchanged
from conformance.simulation.schedule import WRITER, Stopped
from refimpl.owner import ledger
from refimpl.owner.local import OWNER_FOLDER
from refimpl.protocol.commit_owner import Maintenance
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.storage.environment import Environment, HostLock, ThreadTurn
from refimpl.storage.files import FileStatus
from refimpl.warehouse import HostOwner

START_MS: Final = 1_700_000_100_000
"""ms since the epoch, on the clock of the first client."""
SKEW_MS: Final = 3_600_000
"""Each client's clock is this much behind the previous client's. So code that orders commits by clocks fails."""


class SimulatedClients(Closing):
    """Processes of the reference owner on one directory in memory. A context manager: its end removes the directory."""

    def __init__(self, change: Change = unchanged, patch: Patch = contextlib.nullcontext) -> None:
        memory = Path("/dev/shm")  # the place for a private temporary directory
        where = memory if os.access(memory, os.W_OK) else None
        self._temporary = tempfile.mkdtemp(prefix="simulated-clients-", dir=where)
        self.root = Path(self._temporary).resolve() / "w"
        self._change = change
        self._patch = patch
        self._patched = contextlib.ExitStack()
        self._kept: dict[str, bytes | None] = {}
        self._processes: list[_Simulated] = []

    def prepare(self, ask: Callable[[InProcess], Any]) -> Any:
        """Create the start state of every run: `ask` changes an empty warehouse, with one client. Returns its
        result."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        with self._started("setup", 0, unobserved) as subject:
            result = ask(subject)
            subject.handler.allow_cleanup()
        with contextlib.closing(ledger.connect(self._ledger)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        found_files = sorted(self.root.rglob("*"))
        self._kept = {str(path): None if path.is_dir() else path.read_bytes() for path in found_files}
        return result

    @property
    def _ledger(self) -> Path:
        return self.root / "_owner" / ledger.FILE_NAME

    def start(self, clients: Iterable[str], hook: Hook, *, threads: bool = False) -> Mapping[str, InProcess]:
        """Start one process for each client, or one process with a thread for each, on the state from `prepare`."""
        self.stop()
        _clear(str(self.root))
        for path, content in self._kept.items():
            if content is None:
                os.mkdir(path)  # noqa: PTH102  # paths cost more than the calls
            else:
                _write(path, content)
        self._patched.enter_context(self._patch())
        started = {}
        if threads:
            process = _Simulated(self.root, "process", 1, hook, self._change)
            self._processes.append(process)
            process.begin_threads(len(list(clients)))
            return {name: InProcess(process) for name in clients}
        for number, name in enumerate(clients, 1):
            owner = _Simulated(self.root, name, number, hook, self._change)
            self._processes.append(owner)
            started[name] = InProcess(owner)
        return started

    def files(self) -> list[str]:
        return [str(path) for path in self.root.rglob("*") if path.is_file()]

    @contextlib.contextmanager
    def _started(self, name: str, number: int, hook: Hook) -> Iterator[InProcess]:
        owner = _Simulated(self.root, name, number, hook, unchanged)
        try:
            yield InProcess(owner)
        finally:
            owner.close()

    def stop(self) -> None:
        """Kill all processes of a run."""
        for owner in self._processes:
            owner.end()
        self._processes.clear()
        self._patched.close()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._temporary, ignore_errors=True)


def _clear(folder: str) -> None:
    """Empty a folder. Each run begins with this, and `shutil.rmtree` with paths takes twice as long."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _clear(entry.path)
                os.rmdir(entry.path)  # noqa: PTH106
            else:
                os.unlink(entry.path)  # noqa: PTH108


def _write(path: str, content: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(file, content)
    finally:
        os.close(file)


class _Simulated(ReferenceOwner):
    """One process of the reference owner with simulated effects."""

    def __init__(self, root: Path, name: str, number: int, hook: Hook, change: Change) -> None:
        self._life = _SimulatedLife(root, name, number, hook, change)
        self._client: ReferenceClient | None = None
        super().__init__(root)

    def _start(self) -> None:
        self._process = _SimulatedProcess(self.directory, self._life)
        with contextlib.suppress(FileExistsError):
            (self.directory / FILESYSTEM_TABLES).mkdir()

    def end(self) -> None:
        self._life.end()

    def begin_threads(self, number: int) -> None:
        """Make each client a thread, with a connection of its own. The threads share waiting proposals without an
        effect on the host; here each access to these is an effect."""
        assert self._process is not None
        owner = self._process.warehouse.owner
        spaces = []
        for _ in range(number):
            spaces.append(SimpleNamespace())
            owner.ledger._local = spaces[-1]  # type: ignore[assignment]
            owner.ledger.open()
        owner.ledger._local = _ThreadLocal(spaces)  # type: ignore[assignment]
        owner._groups._waiting = _Waiting(self._life)
        owner._groups._turn = _ThreadTurn(self._life)

    # The same process as a client: its reader and its maintenance ask the owner in this process

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        return self._as_client().snapshot(client, request)

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        return self._as_client().transact(client, request)

    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        return self._as_client().checkpoint(client, request)

    def cleanup(self, client: str, request: m.Cleanup) -> m.Answer:
        return self._as_client().cleanup(client, request)

    def allow_cleanup(self) -> None:
        """Allow the cleanup of all tables, like an operator. Without this no client may clean up."""
        assert self._process is not None
        owner = self._process.warehouse.owner
        for table in owner.tables():
            allowed = table.policy.allowed | {Maintenance.METADATA_CLEANUP}
            owner.set_policy(table.table_id, msgspec.structs.replace(table.policy, allowed=allowed))

    def _as_client(self) -> ReferenceClient:
        if self._client is None:
            assert self._process is not None
            self._client = ReferenceClient(lambda client, request: getattr(self, name_of(request))(client, request))
            self._client._environment = self._process.warehouse.environment
        return self._client

    # An external observer or writer uses only the file system; each access is one effect

    def observe(self, client: str, request: m.Observe) -> m.Answer:
        self._life.tell(Kind.LIST, self._log(request.table))
        return super().observe(client, request)

    def plant(self, client: str, request: m.Plant) -> m.Answer:
        self._life.tell(Kind.LINK, self._log(request.table) / request.file)
        return super().plant(client, request)

    def _log(self, table: str) -> Path:
        if "/" in table:
            return Path(table) / LOG_FOLDER
        assert self._process is not None
        with self._life.unnoticed():
            return self._process.warehouse.owner.context.cached_record(table).location / LOG_FOLDER


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


class _ThreadTurn(ThreadTurn):
    """The turn of simulated threads, which the leader holds like a lock."""

    def __init__(self, life: "_SimulatedLife") -> None:
        self._life = life
        self._leader: greenlet.greenlet | None = None

    def take(self, done: Callable[[], bool]) -> bool:
        if done():
            return False
        self._life.tell(Kind.ACQUIRE, "threads")
        self._leader = greenlet.getcurrent()
        if done():
            self.pass_on()
        return not done()

    def pass_on(self) -> None:
        if self._leader is greenlet.getcurrent():
            self._leader = None
            self._life.tell(Kind.RELEASE, "threads")


class _Waiting(list[Any]):
    """The proposals that wait in a process. Adding and reading them are effects, because their order matters."""

    def __init__(self, life: "_SimulatedLife") -> None:
        super().__init__()
        self._life = life

    def append(self, item: Any) -> None:
        self._life.tell(Kind.WRITE, "waiting")
        super().append(item)

    def copy(self) -> list[Any]:
        self._life.tell(Kind.READ, "waiting")
        return super().copy()


class _SimulatedProcess(OwnerProcess):
    """A process that already has its connection. It does not read the host's mounts like `refimpl.open`, which would
    take a third of the time of a run."""

    def __init__(self, directory: Path, life: "_SimulatedLife") -> None:
        self.life = life
        environment = life.environment()
        if (directory / OWNER_FOLDER).exists():
            owner = HostOwner(directory, environment)
            owner.ledger.open()
            self.warehouse = refimpl.Warehouse(directory, owner, environment)
        else:
            self.warehouse = refimpl.open(directory, environment=environment, create=True)


class _SimulatedLife(Life):
    """A life whose effects call a hook."""

    def __init__(self, root: Path, name: str, number: int, hook: Hook, change: Change) -> None:
        super().__init__(synced=False)
        self._root = f"{root}/"
        self._hook = hook
        self._number = number
        self._name = name
        self._change = change
        self._open: list[_Connection] = []

    @contextlib.contextmanager
    def unnoticed(self) -> Iterator[None]:
        """Do not call the hook in this context: the kit's own requests are not effects of a client."""
        hook, self._hook = self._hook, unobserved
        try:
            yield
        finally:
            self._hook = hook

    def tell(self, kind: Kind, target: str | Path) -> None:
        self._hook(Effect(kind=kind, target=str(target).removeprefix(self._root), moment=Moment.BEFORE))

    def environment(self) -> Environment:
        ticks, numbers = count(START_MS - self._number * SKEW_MS), count(1)
        chance = random.Random(self._name)  # for back-off, not for secrets
        waited = 0

        def now() -> int:
            return next(ticks) + waited

        def pause(seconds: float) -> None:
            nonlocal waited
            waited += round(seconds * 1000)
            self.tell(Kind.PAUSE, self._name)

        return self._change(
            Environment(
                files=_Files(self),
                host_lock=self._host_lock,
                host_queue=lambda _path: lambda: contextlib.nullcontext(False),
                now=now,
                new_id=lambda: f"{self._number:08x}-0000-4000-8000-{next(numbers):012x}",
                random=chance.random,
                pause=pause,
                connect=self._connected,
            )
        )

    def _host_lock(self, path: Path) -> HostLock:
        @contextlib.contextmanager
        def held() -> Iterator[None]:
            self.tell(Kind.ACQUIRE, path)
            try:
                yield
            finally:
                self.tell(Kind.RELEASE, path)

        return held

    def _connected(self, path: Path) -> "_Connection":
        connection = _Connection(self, ledger.connect(path))
        self._open.append(connection)
        return connection

    def end(self) -> None:
        for connection in self._open:
            with contextlib.suppress(Exception):
                connection.kill()
        self._open.clear()


class _Connection(LedgerConnection):
    """A connection to the ledger. Its effects are what others can notice: the beginning and the end of a write
    transaction, and the first query of a reader, which takes its snapshot."""

    def __init__(self, life: _SimulatedLife, database: Any) -> None:
        super().__init__(database)
        self.life = life
        self._writing = False
        self._reading = False

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "BEGIN":
            return self.database.execute(statement)
        if statement.startswith("BEGIN"):
            self.life.tell(Kind.BEGIN, WRITER)
            self._writing = True
        elif statement in ("COMMIT", "ROLLBACK"):
            return self._end(statement)
        elif not (self._writing or self._reading):
            self.life.tell(Kind.QUERY, WRITER)
            self._reading = bool(self.database.in_transaction)
            statement = statement.replace("synchronous=FULL", "synchronous=OFF")
        return self.database.execute(statement, *values)

    def _end(self, statement: str) -> Any:
        writing, self._writing, self._reading = self._writing, False, False
        try:
            if writing:
                self.life.tell(Kind.COMMIT if statement == "COMMIT" else Kind.ROLLBACK, WRITER)
        except Stopped:
            self.database.execute("ROLLBACK")
            raise
        return self.database.execute(statement)


_KINDS: Final = {
    "create": Kind.CREATE, "write": Kind.WRITE, "fsync": Kind.FSYNC, "fsync_directory": Kind.FSYNC_DIRECTORY,
    "make_directory": Kind.MAKE_DIRECTORY, "remove_directory": Kind.REMOVE_DIRECTORY, "link": Kind.LINK,
    "replace": Kind.REPLACE, "unlink": Kind.UNLINK, "list_directory": Kind.LIST, "read": Kind.READ, "stat": Kind.STAT,
    "exists": Kind.STAT,
}  # fmt: skip


class _Files(EffectFiles):
    """Files in memory. Their modification times come from the simulated clock, or are older planted times."""

    def __init__(self, life: _SimulatedLife) -> None:
        super().__init__(synced=False)
        self._life = life

    def effect(
        self, operation: str, path: Path | str, act: Callable[[], Result], torn: Callable[[], object] | None = None
    ) -> Result:
        self._life.tell(_KINDS[operation], path)
        return act()

    def list_directory(self, directory: Path) -> list[FileStatus]:
        return sorted((_timed(status) for status in super().list_directory(directory)), key=lambda status: status.name)

    def stat(self, path: Path) -> FileStatus | None:
        status = super().stat(path)
        return None if status is None else _timed(status)


def _timed(status: FileStatus) -> FileStatus:
    return replace(status, modified=START_MS) if status.modified > START_MS else status
