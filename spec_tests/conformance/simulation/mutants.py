"""Mutants of the reference. Some are exposed by a schedule alone, and are correct while one client runs at a time: one
step is moved or removed, like a lock, the bounds of a transaction, or the order of two effects. Others are exposed by
an interruption alone: a power cut, a death, a failed effect or a lost answer.

A mutant names the scope that finds it and the requirement that it violates. It is killed if the quick budget finds a
violation of that requirement. Counterexamples of power cuts are minimal: with any one of the lost changes kept, there
is no violation. Those of interruptions have one, at one effect.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from unittest import mock

from conformance.adapters.reference.host_effects import STAGING_FOLDERS
from conformance.simulation import power as cuts
from conformance.simulation.disk import Disk, Number, SimulatedFiles
from conformance.simulation.explore import Report, by_priorities, depth_first
from conformance.simulation.operations import Operation, operations
from conformance.simulation.reference import STORAGE, Change, Patch, SimulatedReference, unchanged
from conformance.simulation.schedule import Step
from conformance.simulation.schedule_scopes import DEPTH, Outcome, Scope, ScopeRun, prepare, scopes
from refimpl.care.watched_ledger import WatchedLedger
from refimpl.care.write_ahead_log import WriteAheadLog
from refimpl.client import transaction
from refimpl.log import loading
from refimpl.log.log_reading import Loaded, LogReader
from refimpl.log.log_segment import build
from refimpl.log.table_state import ReplayedState
from refimpl.owner import decide, lifecycle, local
from refimpl.owner.local import Decision, LocalOwner
from refimpl.owner.records import Promise, TableRecord
from refimpl.owner.statements import Writer
from refimpl.owner.tables import Tables, stored_commits
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import Backfilled
from refimpl.protocol.commits import AttemptOutcome, CommitsAnswer, Landed, NotLanded, RatifiedCommit
from refimpl.protocol.errors import CorruptLogError, OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.log_path import LOG_FOLDER, Version
from refimpl.served.group import GroupCommit, Groups, Waiting
from refimpl.storage.environment import Environment
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.storage.log_store import LogStore

RANDOM_SCHEDULES: Final = 150
MOST_SCHEDULES: Final = 1000
DISKS: Final = 8
"""The number of disk states for each power cut. It is 1 if a death or a failed sync comes before the cut."""
DEATHS: Final = 16
"""The number of deaths that are tried after each failed sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """The result of a hunt."""

    found: str | None
    """The violated requirement; None if no violation was found."""
    size: str = ""
    """The size of the counterexample."""
    counterexample: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mutant:
    """A bad owner."""

    id: str
    scope: str
    """The id of a scope of schedules, or the name of an operation, in which the mutant is found."""
    requirement: str
    change: Change = unchanged
    patch: Patch = contextlib.nullcontext

    def host(self) -> SimulatedReference:
        return SimulatedReference(change=self.change, patch=self.patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleMutant(_Mutant):
    """A bad owner that only a schedule exposes."""

    family = "schedule"

    def hunt(self) -> Hunt:
        scope = scope_of(self)
        with self.host() as host:
            steps, outcome = first_bad_schedule(host, scope, self.requirement)
            if steps is None:
                return Hunt(found=min(outcome.requirements, default=None) if outcome else None)
        assert outcome is not None
        turns = [f"{client} does {len(effects)} effects, from `{effects[0]}`" for client, effects in turns_of(steps)]
        size = f"{len(turns) - 1} switches, {len(steps)} effects"
        return Hunt(found=self.requirement, size=size, counterexample=(*turns, *outcome.violations))


def scope_of(mutant: ScheduleMutant) -> Scope:
    (scope,) = scopes(lambda candidate: candidate.id == mutant.scope)
    return scope


def first_bad_schedule(
    host: SimulatedReference, scope: Scope, requirement: str
) -> tuple[list[Step] | None, Outcome | None]:
    """The first schedule that violates the requirement: its steps and its outcome. Without such a schedule: no steps,
    and the first other bad outcome. Random schedules are tried first, then all in order, up to a limit.
    """
    start = prepare(scope, host)
    runs: list[ScopeRun] = []

    def begin() -> ScopeRun:
        runs[:] = [ScopeRun(scope, host, start)]
        return runs[0]

    by_chance = by_priorities(begin, Report(), seed=0, schedules=RANDOM_SCHEDULES, depth=DEPTH, length=30)
    other = None
    for tried, outcome in enumerate(cast(Iterator[Outcome], chain(by_chance, depth_first(begin, Report()))), 1):
        if requirement in outcome.requirements:
            return list(runs[0].scheduler.steps), outcome
        other = other or (outcome if outcome.violations else None)
        if tried == MOST_SCHEDULES:
            break
    return None, other


def turns_of(steps: Iterable[Step]) -> list[tuple[str, list[str]]]:
    """The clients in turn, each with its effects until the next one's turn."""
    grouped = groupby(steps, key=lambda step: step.client)
    return [(client, [str(step).partition(" ")[2] for step in group]) for client, group in grouped]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMutant(_Mutant):
    """A bad owner that only a power cut, a death or a lost answer of the disk exposes."""

    make_files: type[SimulatedFiles] = SimulatedFiles
    connection: Callable[[Any, Callable[[], Disk]], Any] = lambda database, _disk: database
    """Changes a connection; also gets a function that returns the current disk."""
    checkpointing: bool = False
    deaths: bool = False
    """Whether a process must die before the cut."""
    lost_answers: bool = False
    """Whether an answer of the disk must be lost before the death."""
    failing_syncs: bool = False
    """Whether a sync must fail before the cut, or before the death."""
    family = "power"

    def host(self) -> SimulatedReference:
        host = SimulatedReference(
            patch=self.patch, make_files=self.make_files, checkpointing=self.checkpointing,
            change_database=lambda database: self.connection(database, lambda: host.disk),
        )  # fmt: skip
        return host

    def hunt(self) -> Hunt:
        with self.host() as host:
            result = cuts.explore(host, operation_named(self.scope), self.budget, seed=1)
        if not result.violations:
            return Hunt(found=None)
        (bad,) = result.violations
        return Hunt(
            found=bad.requirement,
            size=f"1 cut, {len(bad.lost)} things lost, {len(bad.exchanges)} requests",
            counterexample=(
                f"interruption: {bad.effect}",
                *(f"lost: {x}" for x in bad.lost),
                *bad.exchanges,
                bad.problem,
            ),
        )

    @property
    def budget(self) -> cuts.Budget:
        both = self.deaths and self.failing_syncs
        return cuts.Budget(
            states=1 if self.deaths or self.failing_syncs else DISKS,
            deaths=self.deaths and not both,
            lost_answers=self.lost_answers,
            failing_syncs=self.failing_syncs,
            deaths_after_failing=DEATHS if both else 0,
        )


Mutant = ScheduleMutant | PowerMutant
M = TypeVar("M", bound=_Mutant)
T = TypeVar("T")


def operation_named(name: str) -> Operation:
    return next(operation for operation in operations(STORAGE) if operation.name == name)


# How variants are made


def recorded(
    mutants: list[M], kind: type[M], field: str, scope: str, requirement: str, *method: Any, **more: Any
) -> Callable[[T], T]:
    """Add a mutant to the list. Its `field` is the decorated code or, if `method` names a class and one of its methods,
    a patch of this method. Its id is the name of the code.
    """

    def record(code: T) -> T:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", code.__name__).lower().replace("_", "-")  # type: ignore[attr-defined]
        more[field] = (lambda: mock.patch.object(*method, code)) if method else code
        mutants.append(kind(id=name, scope=scope, requirement=requirement, **more))
        return code

    return record


class Wrapped:
    """Files or a connection with one method changed by a subclass."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def connected(environment: Environment, wrap: Callable[[Any], Any]) -> Environment:
    connect = environment.connect
    assert connect is not None
    return replace(environment, connect=lambda path: wrap(connect(path)))


def with_lock(
    environment: Environment, lock: Callable[[Callable[[], Any]], Callable[[], contextlib.AbstractContextManager[Any]]]
) -> Environment:
    """The environment with another lock: `lock` makes it from the ordinary lock."""

    def host_lock(path: Path) -> Any:
        return lock(environment.host_lock(path))

    return replace(environment, host_lock=host_lock)


SCHEDULE_MUTANTS: Final[list[ScheduleMutant]] = []
schedule = partial(recorded, SCHEDULE_MUTANTS, ScheduleMutant)


def _recorded(tables: Tables, writer: Writer, table: TableRecord, promise: Promise) -> RatifiedCommit:
    """Record a promise without a check whether another process has recorded it."""
    with mock.patch.object(writer, "attempt", lambda *_: None):
        return _record(tables, writer, table, promise)


_record: Final = Tables.record


def trusts_the_lock() -> AbstractContextManager[Any]:
    """Record a promise as if no other process could have recorded it. That is true only under the lock."""
    return mock.patch.object(Tables, "record", _recorded)


@schedule("change", "two-writers[managedCommit,direct]", "PROFILE-CORE-03", patch=trusts_the_lock)
def lock_not_taken(environment: Environment) -> Environment:
    """The owner's lock is not taken: the promise of a running process counts as abandoned."""
    return with_lock(environment, lambda _take: contextlib.nullcontext)


@schedule("change", "two-writers[catalogManaged,direct]", "PROFILE-CORE-03", patch=trusts_the_lock)
def lock_released_early(environment: Environment) -> Environment:
    """The first commit releases the lock, before the promised version is linked."""
    held: list[contextlib.ExitStack] = []

    class Frees(Wrapped):
        def execute(self, statement: str, *values: Any) -> Any:
            result = self.wrapped.execute(statement, *values)
            if statement == "COMMIT" and held:
                held[-1].close()
            return result

    def freed(take: Callable[[], Any]) -> Callable[[], AbstractContextManager[Any]]:
        @contextlib.contextmanager
        def lock() -> Iterator[None]:
            with contextlib.ExitStack() as stack:
                stack.enter_context(take())
                held.append(stack)
                try:
                    yield
                finally:
                    held.pop()

        return lock

    return with_lock(connected(environment, Frees), freed)


@schedule("change", "take-over[managedCommit,staged]", "MC-COMMIT-02")
def asks_then_replaces(environment: Environment) -> Environment:
    """Put-if-absent is a check and a rename: a filesystem writer's version is overwritten."""

    class Files(Wrapped):
        def link(self, source: Path, target: Path) -> None:
            if self.wrapped.exists(str(target)):
                raise FileExistsError(str(target))
            self.wrapped.replace(source, target)

    return replace(environment, files=Files(environment.files))


# Edits of the owner


class _LastOneStays(Wrapped):
    """A ledger in which a repeated insert of a version replaces the earlier row."""

    def execute(self, statement: str, *values: Any) -> Any:
        return self.wrapped.execute(statement.replace("INSERT INTO commits", "INSERT OR REPLACE INTO commits"), *values)


@schedule("patch", "looker[managedCommit,direct]", "MC-READ-06", Tables, "with_visible")
def answers_from_the_ledger_alone(
    _self: Tables, _table: TableRecord, answer: CommitsAnswer, *_range: Version | None
) -> CommitsAnswer:
    """A visible commit is not reported until the ledger knows it."""
    return answer


@schedule("patch", "delayed[managedCommit,staged]", "PROFILE-OUTCOME-02", LocalOwner, "attempt_outcome")
def resolves_from_an_old_look(owner: LocalOwner, table_id: str, attempt: str) -> AttemptOutcome:
    """The owner reads the ledger before it takes the lock, and records that old state under the lock."""
    with owner.ledger.read() as view:
        seen = view.attempt(owner.required(view, table_id), attempt)
    if seen is None:
        with owner.lock(), owner.changing(table_id) as (writer, _):
            writer.add_tombstone(table_id, attempt, owner.now)
    return NotLanded() if seen is None or seen.landed is None else Landed(commit=seen.landed)


def _contents(tables: Tables, table_id: str, version: Version | None) -> tuple[TableRecord, list[tuple[int, bytes]]]:
    """The versions to be published and their content, read from the ledger in one transaction."""
    with tables.ledger.read() as view:
        table = tables.required(view, table_id)
        latest = -1 if table.latest is None else table.latest
        wanted = range(table.first_unbackfilled, min(latest, latest if version is None else version) + 1)
        stored = [(number, view.commit_details(table, number)) for number in wanted]
    log, contents = tables.log(table), []
    for number, details in stored:
        assert details is not None
        content = log.ratified_bytes(table.feature.staging_folder, details[0])
        assert content is not None
        contents.append((number, content))
    return table, contents


@schedule("patch", "backfiller[managedCommit,staged]", "MC-FILES-06", local, "backfill")
def forgets_before_it_publishes(tables: Tables, table_id: str, version: Version | None) -> Backfilled:
    """The ledger forgets the bytes, and then the owner publishes them."""
    with tables.lock():
        table, contents = _contents(tables, table_id, version)
        if contents:
            with tables.ledger.write() as writer:
                writer.mark_published(table, contents[-1][0], tables.now)
        for number, content in contents:
            tables.log(table).publish(number, content)
    return Backfilled(through=table.backfilled, published=len(contents))


@schedule("patch", "two-backfillers[managedCommit,staged]", "MC-BACKFILL-03", local, "backfill")
def publishes_the_newest_first(tables: Tables, table_id: str, version: Version | None) -> Backfilled:
    """A backfill makes the last version visible before the versions below it."""
    with tables.lock():
        table, contents = _contents(tables, table_id, version)
        for number, content in reversed(contents):
            tables.log(table).publish(number, content)
        if contents:
            with tables.ledger.write() as writer:
                writer.mark_published(table, contents[-1][0], tables.now)
    return Backfilled(through=table.backfilled, published=len(contents))


@schedule("change", "two-writers[catalogManaged,inline]", "CM-COMMIT-08")
def decided_outside_the_transaction(environment: Environment) -> Environment:
    """A transaction begins with its first change. Its decision uses rows that were read before."""

    class Late(_LastOneStays):
        _wanted = False

        def execute(self, statement: str, *values: Any) -> Any:
            if statement == "BEGIN IMMEDIATE":
                self._wanted = True
                return None
            if statement in ("COMMIT", "ROLLBACK") and self._wanted:
                self._wanted = False
                return None
            if self._wanted and statement.lstrip().startswith(("INSERT", "UPDATE", "DELETE")):
                self._wanted = False
                self.wrapped.execute("BEGIN IMMEDIATE")
            return super().execute(statement, *values)

    return lock_not_taken(connected(environment, Late))


@schedule("change", "two-backfillers[catalogManaged,inline]", "CM-PUBLISH-03")
def publishes_in_place(environment: Environment) -> Environment:
    """A published file has its name before it has its content."""

    class Files(Wrapped):
        def link(self, source: Path, target: Path) -> None:
            content = self.wrapped.read(source)
            with self.wrapped.create(target) as file:
                file.write(content)

    return replace(environment, files=Files(environment.files))


@schedule("patch", "backfiller[catalogManaged,inline]", "CM-STORE-09", LocalOwner, "get_commits")
def latest_by_a_second_look(
    tables: Tables, table_id: str, start: Version | None = None, end: Version | None = None
) -> CommitsAnswer:
    """The commits and the latest version come from two reads of the ledger."""
    with tables.ledger.read() as view:
        commits = stored_commits(view, tables.required(view, table_id), start, end).commits
    with tables.ledger.read() as view:
        return CommitsAnswer(commits=commits, latest_ratified_version=tables.required(view, table_id).latest)


@schedule("patch", "backfiller[catalogManaged,direct]", "CM-STORE-09", Tables, "keep")
def recorded_before_it_is_visible(tables: Tables, table: TableRecord, promise: Promise) -> RatifiedCommit | None:
    """The ledger records a promise as kept, and then the owner links its file."""
    with tables.ledger.write() as writer:
        commit = tables.record(writer, table, promise)
    tables.link(table, promise)
    return commit


@schedule("patch", "take-over[catalogManaged,staged]", "CM-COMMIT-08", Tables, "link")
def take_over_without_a_check(tables: Tables, table: TableRecord, promise: Promise) -> bool:
    """An existing version counts as the promised one, whether or not a filesystem writer linked it."""
    tables.log(table).put_if_absent(f"{promise.version:020}.json", promise.content)
    return True


@schedule("patch", "reader[catalogManaged,inline]", "PROFILE-CLIENT-01", loading, "load")
def reader_lists_then_asks(reader: LogReader, version: Version | None = None) -> Loaded:
    """The reader lists the log, then asks the owner, once each. A commit published in between may be in neither
    answer.
    """
    listing = reader.log.listing()
    answer = reader.ask(end=version)
    segment = build(listing, answer, reader.feature, version=version, distrusted={})
    return loading._read(reader, segment, ReplayedState(), [])


@schedule("patch", "transactions[catalogManaged,inline]", "ICT-08")
@contextlib.contextmanager
def writer_keeps_its_time() -> Iterator[None]:
    """A client keeps the time of its first try after a lost race, and the owner does not check it."""
    with (
        mock.patch.object(transaction, "after_lost_race", lambda mine, _winner: mine),
        mock.patch.object(decide, "_timestamp_flaw", lambda _table, _examined: None),
    ):
        yield


@schedule("patch", "threads[catalogManaged,inline]", "CM-FEATURE-01", Groups, "_decide")
def group_answered_as_it_arrived(groups: Groups, group: Sequence[Waiting]) -> None:
    """The members are decided in the order of their versions, but get the answers in the order of their arrival."""
    arrived = [member for member in groups._waiting if member in group]
    for member, answer in zip(arrived, groups._together(group), strict=True):
        member.answer = answer


POWER_MUTANTS: Final[list[PowerMutant]] = []
power = partial(recorded, POWER_MUTANTS, PowerMutant)


def _unsynced(method: str, skipped: Callable[[Disk, Path], bool]) -> dict[str, Any]:
    """The method of `SimulatedFiles` that syncs, which does nothing for some paths."""
    ordinary = getattr(SimulatedFiles, method)

    def sync(files: SimulatedFiles, path: Path, *more: Any) -> None:
        if not skipped(files.disk, path):
            ordinary(files, path, *more)

    return {method: sync}


def _is_above(disk: Disk, path: Path) -> bool:
    """Whether it is the folder of a table, or one above."""
    return not (path.name == LOG_FOLDER or path.name in STAGING_FOLDERS or path.name.startswith("_"))


UNSYNCED_FILES: Final[dict[str, tuple[str, str, str, Callable[[Disk, Path], bool]]]] = {
    "StagedFileNotSynced": (
        "A staged file is not synced before it is proposed.", "commit/catalogManaged/staged",
        "sync", lambda _disk, path: path.parent.name in STAGING_FOLDERS),
    "PublishedFileNotSynced": (
        "A published file is not synced before it gets its name.", "backfill/catalogManaged/staged",
        "sync", lambda _disk, path: path.parent.name == LOG_FOLDER),
    "StagedNameNotSynced": (
        "The name of a staged file is not synced before it is proposed.", "commit/managedCommit/staged",
        "fsync_directory", lambda _disk, path: path.name in STAGING_FOLDERS),
    "PublishedNameNotSynced": (
        "The name of a published file is not synced before it is reported.", "commit/catalogManaged/direct",
        "fsync_directory", lambda _disk, path: path.name == LOG_FOLDER),
    "TableFolderNotSynced": (
        "The names of a new table's folder, and of the log folder in it, are never synced.",
        "create/catalogManaged/staged", "fsync_directory", _is_above),
    "LogFolderNotSynced": (
        "The name of a new table's log folder is never synced.", "create/managedCommit/staged",
        "fsync_directory", lambda disk, path: LOG_FOLDER in disk.names(path) and path.name != LOG_FOLDER),
    "LedgerNameNotSynced": (
        "The ledger is renamed into place without a sync, and SQLite then creates its write-ahead log beside it.",
        "first-start/catalogManaged/inline", "fsync_directory", lambda _disk, path: path.name == OWNER_FOLDER),
}  # fmt: skip
"""For each mutant: its title, its scope, the method that syncs, and the paths that it does not sync."""
for name, (title, scope, method, skipped) in UNSYNCED_FILES.items():
    members = {"__doc__": title, **_unsynced(method, skipped)}
    power("make_files", scope, "PROFILE-DURABLE-01")(type(name, (SimulatedFiles,), members))


@power("make_files", "commit/managedCommit/direct", "MC-BACKFILL-01")
class LinkedBeforeSynced(SimulatedFiles):
    """A published file becomes visible first and durable afterwards."""

    def sync(self, path: Path, number: Number) -> None:
        if path.parent.name != LOG_FOLDER:
            super().sync(path, number)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.fsync(target)


@power("make_files", "commit/managedCommit/staged", "PROFILE-DURABLE-01", failing_syncs=True)
class FailedSyncRetried(SimulatedFiles):
    """A failed sync is repeated, and the second answer is believed: the kernel reports a failure only once."""

    def sync(self, path: Path, number: Number) -> None:
        with contextlib.suppress(OSError):
            super().sync(path, number)

    def fsync(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            super().fsync(path)

    def fsync_directory(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            super().fsync_directory(path)


class _OnDisk(Wrapped):
    """A connection that knows its current disk."""

    def __init__(self, database: Any, disk: Callable[[], Disk]) -> None:
        super().__init__(database)
        self._disk = disk

    def unsynced(self) -> AbstractContextManager[Any]:
        return mock.patch.object(self._disk(), "sync", lambda _number: None)


@power("connection", "commit/catalogManaged/inline", "PROFILE-OUTCOME-02")
class LedgerSynchronousNormal(_OnDisk):
    """The ledger is written with a lower `synchronous`: NORMAL."""

    def execute(self, statement: str, *values: Any) -> Any:
        return self.wrapped.execute(statement.replace("synchronous=FULL", "synchronous=NORMAL"), *values)


@power("patch", "backfill/catalogManaged/inline", "CM-PUBLISH-06", LogStore, "publish", failing_syncs=True, deaths=True)
def equal_file_believed(log: LogStore, version: Version, content: bytes, commit_mode: object = None) -> None:
    """A published file with the expected bytes is recorded although an earlier sync of it failed."""
    name = log_path.commit(version)
    if not log.put_if_absent(name, content) and log.read(name) != content:
        raise CorruptLogError(f"{name} is not version {version}")


class _UnsyncedCommits(_OnDisk):
    """A connection that does not wait for the disk if its transaction executes a given statement."""

    statement: str
    _does = False

    def execute(self, statement: str, *values: Any) -> Any:
        self._does = self._does or statement.lstrip().startswith(self.statement)
        if statement != "COMMIT" or not self._does:
            return self.wrapped.execute(statement, *values)
        self._does = False
        with self.unsynced():
            return self.wrapped.execute(statement, *values)


UNSYNCED_COMMITS: Final = {
    "PromiseNotSynced": ("a promise", "commit/managedCommit/direct", "PROFILE-OUTCOME-01", "INSERT INTO promises"),
    "TombstoneNotSynced": (
        "a tombstone", "resolve/catalogManaged/staged", "PROFILE-OUTCOME-02", "INSERT OR IGNORE INTO tombstones"),
    "RatifiedNotSynced": ("a commit", "commit/managedCommit/staged", "PROFILE-DURABLE-01", "INSERT INTO commits"),
    "DropNotSynced": ("a drop", "drop/managedCommit/staged", "PROFILE-DISCOVERY-01", "UPDATE tables SET state"),
}  # fmt: skip
"""For each mutant: whose transaction does not wait for the disk, its scope, its requirement, and the statement."""
for name, (what, scope, requirement, statement) in UNSYNCED_COMMITS.items():
    members = {"__doc__": f"The transaction of {what} does not wait for the disk.", "statement": statement}
    power("connection", scope, requirement)(type(name, (_UnsyncedCommits,), members))


@power("connection", "group/catalogManaged/inline", "PROFILE-DURABLE-01")
class GroupAnsweredBeforeItsSync(_OnDisk):
    """A transaction waits for the disk only if it ratifies a single commit."""

    _commits = 0

    def execute(self, statement: str, *values: Any) -> Any:
        self._commits += statement.lstrip().startswith("INSERT INTO commits")
        if statement != "COMMIT":
            return self.wrapped.execute(statement, *values)
        together, self._commits = self._commits > 1, 0
        with self.unsynced() if together else contextlib.nullcontext():
            return self.wrapped.execute(statement, *values)


@power("patch", "group/catalogManaged/inline", "PROFILE-DURABLE-01", GroupCommit, "_decide_together", lost_answers=True)
def group_acknowledged_although_rolled_back(owner: GroupCommit, group: Sequence[Waiting]) -> list[Decision | None]:
    """The error of one member rolls the group back, but members decided before it are acknowledged."""
    decided: list[Decision | None] = []
    try:
        with owner.ledger.write() as writer:
            decided.extend(owner._decide_in(writer, member) for member in group)
    except OutcomeUnknown:
        raise
    except Exception:  # noqa: BLE001 - the mutant's mistake
        return [*decided, *[None] * (len(group) - len(decided))]
    return decided


@power("connection", "fold/catalogManaged/inline", "PROFILE-OUTCOME-01", checkpointing=True)
class FoldedWithoutSync(_OnDisk):
    """The write-ahead log is moved into the database, and overwritten before the database is synced."""

    def wal_checkpoint(self, *values: Any, **more: Any) -> Any:
        with self.unsynced():
            return self.wrapped.wal_checkpoint(*values, **more)


@power(
    "patch",
    "commit/catalogManaged/inline",
    "PROFILE-DURABLE-01",
    WatchedLedger,
    "_write_last_transaction_again",
    deaths=True,
)
def recovered_log_not_synced(_ledger: WatchedLedger, _database: Any) -> None:
    """The ledger uses entries of its write-ahead log that a dead process wrote but never synced."""


@power(
    "patch", "commit/catalogManaged/inline", "PROFILE-DURABLE-01", WriteAheadLog, "write_again", failing_syncs=True,
    deaths=True,
)  # fmt: skip
def recovered_log_synced_again(_log: WriteAheadLog, _frames: Any) -> None:
    """The ledger syncs its write-ahead log again after an earlier sync of it failed."""


# Mutants that only an interrupted effect exposes: they are correct while no process dies


@power("patch", "commit/managedCommit/direct", "PROFILE-OUTCOME-01", Writer, "add_promise")
def publish_without_promise(*_: Any) -> None:
    """A direct commit is linked first and recorded afterwards, without a promise."""


@power("patch", "commit/managedCommit/direct", "PROFILE-OUTCOME-01", Tables, "complete")
def promise_always_forgotten(tables: Tables, writer: Writer, table: TableRecord, promise: Promise) -> None:
    """Recovery forgets every promise, whether or not its file is visible."""
    tables.forget(writer, table, promise)


@power("patch", "commit/catalogManaged/direct", "PROFILE-DURABLE-01", Tables, "link_again")
def promise_always_believed(_tables: Tables, _table: TableRecord, _promise: Promise) -> bool:
    """Recovery assumes that every promise was kept, and links nothing."""
    return True


@power("patch", "commit/catalogManaged/inline", "PROFILE-DURABLE-01", lost_answers=True)
def error_of_a_commit_believed() -> AbstractContextManager[Any]:
    """A transaction whose commit failed is reported as not committed."""
    ordinary = WatchedLedger.commit

    def commit(ledger: WatchedLedger, database: Any) -> None:
        try:
            ordinary(ledger, database)
        except OutcomeUnknown as error:
            raise OwnerUnavailableError(f"{error.message}; nothing was committed") from error

    return mock.patch.object(WatchedLedger, "commit", commit)


@power("patch", "create/catalogManaged/staged", "PROFILE-DURABLE-01", lost_answers=True)
def description_decides() -> AbstractContextManager[Any]:
    """A creation that landed is reported as failed if the table cannot be described."""

    class Believes(OutcomeUnknown):
        def __new__(cls, message: str, **facts: Any) -> Any:
            return OwnerUnavailableError(message, **facts)

    return mock.patch.object(lifecycle, "OutcomeUnknown", Believes)


@power("patch", "commit/catalogManaged/direct", "PROFILE-DURABLE-01", Tables, "keep")
def direct_recorded_first(*kept: Any) -> RatifiedCommit | None:
    """A direct commit is recorded as published, and then linked."""
    return recorded_before_it_is_visible(*kept)
