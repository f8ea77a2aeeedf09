"""The world of a scenario: clients and an owner, run by the reference's own code on a simulated host.

A run is a list of choices. The same choices give the same run, so going back, or trying another choice, runs a first
part of the list again.
"""

import contextlib
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, Self, cast
from zlib import crc32

import refimpl
from conformance.adapters.reference.host_effects import LedgerConnection
from conformance.simulation.disk import Disk, PowerCut, SimulatedFiles, Tree
from conformance.simulation.effects import Effect, Kind, Moment
from conformance.simulation.reference import WAREHOUSE, Transactions, identifiers
from conformance.simulation.schedule import Scheduler
from conformance.simulation.sqlite_vfs import SimulatedSqlite
from conformance.story import Happening, Rows, View
from refimpl.client.table import Table
from refimpl.owner.ledger import FILE_NAME
from refimpl.protocol.commit_owner import Backfilled, CommitOwner, ResolvedTable
from refimpl.protocol.commits import CommitsAnswer, Conflict, Landed, Ratified, Rejected, VersionGap
from refimpl.protocol.errors import DeltaError, OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import CATALOG_MANAGED, TableFeature
from refimpl.storage.environment import Environment, HostLock
from refimpl.storage.files import Files
from refimpl.storage.locations import OWNER_FOLDER

START_MS: Final = 1_700_000_000_000
TABLE: Final = "orders"
LOCATION: Final = WAREHOUSE / TABLE
OWNER: Final = "owner"
"""The lane of a commit owner's steps, for all clients."""

_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

HIDDEN: Final = frozenset({Kind.STAT, Kind.ACQUIRE, Kind.RELEASE, Kind.BEGIN, Kind.ROLLBACK, Kind.QUERY, Kind.PAUSE})
"""Effects that are part of the next visible step of the same client."""

DROP, CRASH, POWER = "drop the answer for", "crash", "cut the power"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A story: its clients, and the order of their steps."""

    name: str
    title: str
    about: str
    clients: "Mapping[str, Callable[[Actor], object]]"
    story: tuple[str, ...]
    """Directives: see `World.follow`."""
    setup: "Callable[[Actor], object]"
    ends: str
    """The result at the end."""
    files: Callable[..., SimulatedFiles] = SimulatedFiles
    feature: TableFeature = CATALOG_MANAGED
    clocks: Mapping[str, int] = field(default_factory=dict)
    """The offset of a client's clock in ms, by client."""


class Actor:
    """A client: a process with its own clock, and its connection to the owner."""

    def __init__(self, world: "World", name: str, number: int) -> None:
        self.name = name
        self.world = world
        self.environment = world.environment(name, number)
        self._owner: CommitOwner | None = None

    @property
    def warehouse(self) -> refimpl.Warehouse:
        """The warehouse; its start is not a step of the story."""
        if self._owner is None:
            with self.world.unnoticed():
                self._opened = refimpl.open(WAREHOUSE, environment=self.environment, create=True)
            self._owner = cast(CommitOwner, _Requests(self._opened.owner, self.world))
        return self._opened

    @property
    def owner(self) -> CommitOwner:
        assert self.warehouse
        assert self._owner is not None
        return self._owner

    def table(self) -> Table:
        return Table.resolve(TABLE, self.owner, self.environment)

    def by_path(self) -> Table:
        return Table.by_path(LOCATION, self.environment)

    def says(self, text: str) -> None:
        """A result of this client that the story shows."""
        self.world.happened(Happening(self.name, self.name, "result", self.world.label(text)))

    def does(self, kind: str, target: str) -> None:
        """Take a step that is not an effect on the log."""
        self.world.reach(Kind.WORK, f"{kind} {target}")

    def attempt_of(self, client: str) -> str | None:
        """The newest attempt that a client sent; None if it sent none."""
        return self.world.attempts.get(client)


class _Requests:
    """An owner whose requests and answers are steps."""

    def __init__(self, owner: Any, world: "World") -> None:
        self._owner = owner
        self._world = world

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._owner, name)
        if not callable(attribute) or name not in REQUESTS:
            return attribute

        def ask(*args: Any, **options: Any) -> Any:
            return self._world.request(name, args, lambda: attribute(*args, **options))

        return ask


CHANGES: Final = frozenset(
    {"stage_table", "register_table", "drop_table", "commit", "commit_group", "take_over", "hand_back"}
)
"""Requests that change something: without an answer their outcome is unknown."""
REQUESTS: Final = CHANGES | {"resolve", "resolve_together", "attempt_outcome", "get_commits", "backfill_to_version"}


class World:
    """One run of a scenario. A context manager."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.happenings: list[Happening] = []
        self.choices: list[str] = []
        self._sqlite = SimulatedSqlite()
        self._silent = 1
        self._serving: dict[str, int] = {}
        self._actor = ""
        self._scheduler = Scheduler(unseen=frozenset({Kind.CLOCK}))
        self._dropped: set[str] = set()
        self._begun: set[str] = set()
        self._seen: tuple[Disk, int, View] | None = None
        self.attempts: dict[str, str] = {}
        """The newest attempt of each client."""
        self.messages: list[Any] = []
        """The messages of tasks to their driver."""
        self._makers: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._connections: dict[str, list[Transactions]] = {}
        self._boot(Disk())
        self._prepare()

    # The host

    def _boot(self, disk: Disk) -> None:
        self.disk = disk
        self._connect = self._sqlite.mounted(disk)

    def _prepare(self) -> None:
        self.disk.make_directory(WAREHOUSE, now=START_MS)
        setup = Actor(self, "setup", 0)
        self.scenario.setup(setup)
        self._end("setup")
        self.disk.sync_everything()
        self._silent = 0
        self._start(self.scenario.clients)

    def _start(self, clients: Mapping[str, Callable[[Actor], object]]) -> None:
        for number, (name, run) in enumerate(clients.items(), 1 + len(self.choices)):

            def life(name: str = name, number: int = number, run: Callable[[Actor], object] = run) -> None:
                self.reach(Kind.PAUSE, "start")
                actor = Actor(self, name, number)  # on the disk that a power cut may have left
                try:
                    run(actor)
                except (DeltaError, OSError) as error:
                    self.happened(
                        Happening(actor.name, actor.name, "error", type(error).__name__, self.label(str(error)))
                    )
                else:
                    self.happened(Happening(actor.name, actor.name, "done", "done"))

            self._actor = name
            self._scheduler.start([(name, life)])

    def environment(self, name: str, number: int) -> Environment:
        ticks = count(START_MS + number * 1000 + self.scenario.clocks.get(name, 0))
        files = self.scenario.files(self.disk, hook=self._hook, now=lambda: START_MS)
        held: dict[Path, list[str]] = {}
        identify = identifiers(number)

        def new_id() -> str:
            made = identify()
            self._makers[made] = name
            return made

        def lock(path: Path) -> HostLock:
            @contextlib.contextmanager
            def hold() -> Iterator[None]:
                holders = held.setdefault(path, [])
                if not holders:
                    self.reach(Kind.ACQUIRE, str(path))
                holders.append(name)
                try:
                    yield
                finally:
                    holders.pop()
                    if not holders:
                        self.reach(Kind.RELEASE, str(path))

            return hold

        def connected(path: Path) -> Any:
            connection = Transactions(self._connect(path), self._hook)
            self._connections.setdefault(name, []).append(connection)
            return connection

        return Environment(
            files=cast(Files, files),
            host_lock=lock,
            host_queue=lambda _path: lambda: contextlib.nullcontext(False),
            now=lambda: next(ticks),
            new_id=new_id,
            random=lambda: 0.5,
            pause=lambda _seconds: self.reach(Kind.PAUSE, "back-off"),
            connect=connected,
        )

    def label(self, text: str) -> str:
        """A short readable name: paths below the log, versions without zeros, attempts by client and number."""
        for prefix in (f"{LOCATION / LOG_FOLDER}/", f"{LOCATION}/", f"{WAREHOUSE}/"):
            text = text.replace(prefix, "")
        return shorter(text, self._name_of)

    def _name_of(self, identity: str) -> str:
        if identity in self._makers and identity not in self._names:
            maker = self._makers[identity]
            number = 1 + sum(self._makers[name] == maker for name in self._names)
            self._names[identity] = f"{maker}{number}"
        return self._names.get(identity, "…")  # of a data file

    @contextlib.contextmanager
    def unnoticed(self) -> Iterator[None]:
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    # Steps, called inside of a client

    def _hook(self, effect: Effect) -> None:
        if effect.moment is Moment.BEFORE:
            self.reach(effect.kind, effect.target)

    def reach(self, kind: Kind, target: str) -> None:
        """The client announces its next step, and waits for its turn."""
        if self._silent:
            return
        self._scheduler.reach(kind, self.label(target))
        client = self._actor
        if kind not in HIDDEN:
            lane = OWNER if self._serving.get(client) else client
            self.happened(Happening(lane, client, kind.value, self.label(target)))

    def happened(self, happening: Happening) -> None:
        self.happenings.append(happening)

    def request(self, name: str, args: tuple[Any, ...], carry_out: Callable[[], Any]) -> Any:
        """Send a request to the owner, carry it out, and deliver or lose the answer."""
        client = self._actor
        if self._silent or self._serving.get(client):
            return carry_out()
        text = _request(name, args)
        for argument in args:
            if hasattr(argument, "attempt"):
                self.attempts[client] = argument.attempt
        self.reach(Kind.SEND, text)
        self._serving[client] = 1
        answer: Any = None
        failed: BaseException | None = None
        try:
            answer = carry_out()
        except DeltaError as error:
            failed = error
        finally:
            self._serving[client] = 0
        said = _answer(answer) if failed is None else f"{type(failed).__name__}: {failed}"
        self.reach(Kind.ANSWER, f"{text}: {said}")
        if client in self._dropped:
            self._dropped.discard(client)
            self.happenings[-1] = Happening(client, client, "lost answer", text, said)
            lost = OutcomeUnknown if name in CHANGES else OwnerUnavailableError
            raise lost(f"no answer to {text}")
        if failed is not None:
            raise failed
        return answer

    # Choices, called by the driver

    def enabled(self) -> dict[str, str]:
        """The possible choices, each with its meaning."""
        waiting = self._scheduler.enabled().items()
        return {name: "start" if step.kind is Kind.PAUSE else f"{step.kind} {step.target}" for name, step in waiting}

    def faults(self) -> list[str]:
        """The possible faults."""
        waiting = self._scheduler.pending()
        faults = [f"{DROP} {name}" for name, step in waiting.items() if step.kind is Kind.ANSWER]
        faults += [f"{CRASH} {name}" for name in waiting]
        return [*faults, POWER] if waiting else faults

    def choose(self, choice: str) -> list[Happening]:
        """Make one choice: a client's next visible step, or a fault."""
        before = len(self.happenings)
        self.choices.append(choice)
        if choice == POWER:
            self._cut_power()
        elif choice.startswith(CRASH):
            self._crash(choice.removeprefix(CRASH).strip())
        else:
            if choice.startswith(DROP):
                choice = choice.removeprefix(DROP).strip()
                self._dropped.add(choice)
            self._step(choice)
        return self.happenings[before:]

    def _step(self, client: str) -> None:
        """Take the next effect of a client, with the hidden ones around it."""
        self._begun.add(client)
        before = len(self.happenings)
        while client in self._scheduler.enabled():
            self._actor = client
            self._scheduler.step(client)
            if client in self._scheduler.errors:
                raise self._scheduler.errors[client]
            following = self._scheduler.pending().get(client)
            if following is None or (following.kind not in HIDDEN and len(self.happenings) > before):
                return

    def _end(self, client: str) -> None:
        self._actor = client
        if client in self._scheduler.clients:
            self._scheduler.kill(client)
        self._serving[client] = 0
        for connection in self._connections.pop(client, ()):
            connection.kill()

    def _crash(self, client: str) -> None:
        self._end(client)
        self.happened(Happening(client, client, "crash", client))

    def _cut_power(self) -> None:
        for client in self._begun:
            self._end(client)
        before = {name for name, _, _ in self._log(self.disk)}
        left = Disk.holding(_least(self.disk), now=START_MS)
        lost = sorted(before - {name for name, _, _ in self._log(left)})
        self._boot(left)
        self.happened(Happening("host", "host", "power cut", "everything that was not synced is lost", ", ".join(lost)))

    def follow(self) -> Iterator[list[Happening]]:
        """Make the choices of the story, one at a time. A directive is one of

        A                   until A is done
        A to PATTERN        until A's next step matches; that step is not taken
        A past PATTERN      until A took a matching step
        crash A, cut the power, drop the answer for A
        """
        for directive in self.scenario.story:
            if directive == POWER or directive.startswith((CRASH, DROP)):
                yield self.choose(directive)
                continue
            client, _, rest = directive.partition(" ")
            word, _, pattern = rest.partition(" ")
            while client in (enabled := self.enabled()):
                if word == "to" and re.search(pattern, enabled[client]):
                    break
                done = self.choose(client)
                yield done
                if word == "past" and any(re.search(pattern, f"{step.kind} {step.target}") for step in done):
                    break

    # Views

    def view(self) -> View:
        """The state as an observer sees it, from a copy, so that the observation changes nothing."""
        if self._seen is None or self._seen[:2] != (self.disk, self.disk.revision):
            self._seen = self.disk, self.disk.revision, self._look()
        return self._seen[2]

    def _look(self) -> View:
        copy = self.disk.copy()
        connect = self._sqlite.mounted(copy)
        connections: list[Any] = []

        def connected(path: Path) -> Any:
            connections.append(LedgerConnection(connect(path)))
            return connections[-1]

        environment = Environment(
            files=cast(Files, SimulatedFiles(copy)),
            host_lock=lambda _path: contextlib.nullcontext,
            host_queue=lambda _path: lambda: contextlib.nullcontext(False),
            now=lambda: START_MS,
            connect=connected,
        )
        with self.unnoticed():
            by_path = _seen(lambda: Table.by_path(LOCATION, environment).snapshot())
            ledger, through = _ledger_and_reader(environment, connected)  # last: it may complete a take-over
        for connection in connections:
            connection.kill()
        return View(
            ledger=tuple(tuple(self.label(value) for value in row) for row in ledger),
            log=tuple(self._log(self.disk)),
            readers=(("through the owner", self.label(through)), ("by path", self.label(by_path))),
        )

    def _log(self, disk: Disk) -> list[tuple[str, bool, int]]:
        left = Disk.holding(_least(disk), now=0)
        durable = {(path, bytes(left.numbered(number).content)) for path, number in left.walk()}
        files = ((path, bytes(disk.numbered(number).content)) for path, number in disk.walk())
        return sorted(
            (self.label(path), (path, content) in durable, crc32(content))
            for path, content in files
            if f"/{LOG_FOLDER}/" in path
        )

    def close(self) -> None:
        self._scheduler.close()
        for client in list(self._connections):
            self._end(client)
        self._sqlite.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def shorter(text: str, name_of: Callable[[str], str]) -> str:
    """A name for each id, and versions without zeros."""
    text = re.sub(_UUID, lambda match: name_of(match[0]), re.sub(rf"\.tmp-{_UUID}", ".tmp", text))
    return re.sub(r"\b0{10,19}(\d+)\b", r"\1", text)


def _least(disk: Disk) -> Tree:
    """The minimum that a power cut leaves: exactly the synced data."""
    return next(PowerCut(disk.snapshot()).disks(random.Random(0), limit=1))


_ROWS: Final = (
    "SELECT 'table', state, commit_mode || ' commits',"
    " coalesce('published through ' || backfilled, 'nothing published') FROM tables"
    " UNION ALL SELECT 'commit', 'version ' || version, attempt, iif(published_at IS NULL, 'ratified', 'published')"
    " FROM commits UNION ALL SELECT 'promise', kind || ' as version ' || version, attempt, '' FROM promises"
    " UNION ALL SELECT 'resolved', 'did not land', attempt, '' FROM tombstones"
)


def _ledger_and_reader(environment: Environment, connect: Callable[[Path], Any]) -> tuple[Rows, str]:
    path = WAREHOUSE / OWNER_FOLDER / FILE_NAME
    if not environment.files.exists(str(path)):
        return (), "there is no owner"
    rows = tuple(connect(path).execute(_ROWS).fetchall())
    return rows, _seen(lambda: refimpl.open(WAREHOUSE, environment=environment).table(TABLE).snapshot())


def _seen(look: Callable[[], Any]) -> str:
    try:
        snapshot = look()
    except (DeltaError, OSError) as error:
        return f"{type(error).__name__}: {re.split('[:;] ', str(error))[0]}"
    files = sorted(Path(file.path).name for file in snapshot.files.values())
    return f"version {snapshot.version}: {', '.join(files) or 'no files'}"


def _request(name: str, args: tuple[Any, ...]) -> str:
    numbers = [str(arg) for arg in args if isinstance(arg, int)]
    return " ".join([name, *(f"v{number}" for number in numbers)])


def _answer(answer: Any) -> str:
    match answer:
        case Ratified(commit=commit) | Landed(commit=commit):
            return f"{_word(answer)}, version {commit.version}"
        case Conflict() | VersionGap():
            return f"{_word(answer)}, {_latest(answer.latest_ratified_version)}"
        case Rejected():
            return f"rejected, {answer.detail}"
        case CommitsAnswer():
            versions = ", ".join(str(commit.version) for commit in answer.commits) or "no unpublished commits"
            return f"{versions}; {_latest(answer.latest_ratified_version)}"
        case (ResolvedTable(), *_):
            return ", ".join(f"{table.name}: {_latest(table.commits.latest_ratified_version)}" for table in answer)
        case ResolvedTable():
            return f"a {answer.feature_name} table; {_answer(answer.commits)}"
        case Backfilled():
            return f"published through {answer.through}"
    return _word(answer)


def _latest(version: int | None) -> str:
    return "there is no version yet" if version is None else f"the latest version is {version}"


def _word(answer: object) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(answer).__name__).lower()
