"""Mutants that only an interruption exposes: a power cut, a death, a failed effect or a lost answer."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from conformance.adapters.reference.host_effects import STAGING_FOLDERS
from conformance.simulated_reference.processes import Patch, SimulatedProcesses
from conformance.simulation.disk import Disk, Number, SimulatedFiles
from refimpl import log_path
from refimpl.environment import Environment
from refimpl.errors import CorruptLogError, OutcomeUnknown, OwnerUnavailableError
from refimpl.log_path import LOG_FOLDER, Version
from refimpl.log_store import LogStore
from refimpl.owner import lifecycle, promises
from refimpl.owner.context import Context
from refimpl.owner.group import Decision, Waiting
from refimpl.owner.ledger import Ledger
from refimpl.owner.local import OWNER_FOLDER, LocalOwner
from refimpl.owner.records import Promise, PromiseKind, TableRecord
from refimpl.owner.statements import Writer
from refimpl.owner.write_ahead_log import WriteAheadLog
from spec_tests.conformance.simulation.hunting import CrashMutant, PowerMutant, Wrapped, connected, patched, with_lock
from spec_tests.conformance.simulation.schedule_mutants import recorded_first, trusts_the_lock


class _WithoutFileSync(SimulatedFiles):
    """New files in some folders are not synced."""

    folders: frozenset[str]

    def sync(self, path: Path, number: Number) -> None:
        if path.parent.name not in self.folders:
            super().sync(path, number)


class _StagedFileNotSynced(_WithoutFileSync):
    """A staged file is not synced before it is proposed."""

    folders = STAGING_FOLDERS


class _PublishedFileNotSynced(_WithoutFileSync):
    """A published file is not synced before it gets its name."""

    folders = frozenset({LOG_FOLDER})


class _StagedNameNotSynced(SimulatedFiles):
    """The name of a staged file is not synced before it is proposed."""

    def fsync_directory(self, path: Path) -> None:
        if path.name not in STAGING_FOLDERS:
            super().fsync_directory(path)


class _PublishedNameNotSynced(SimulatedFiles):
    """The name of a published file is not synced before it is reported."""

    def fsync_directory(self, path: Path) -> None:
        if path.name != LOG_FOLDER:
            super().fsync_directory(path)


class _FolderNotSynced(SimulatedFiles):
    """The names of a new table's folder, and of the log folder in it, are never synced."""

    def fsync_directory(self, path: Path) -> None:
        if path.name == LOG_FOLDER or path.name in STAGING_FOLDERS or path.name.startswith("_"):
            super().fsync_directory(path)


class _LedgerNameNotSynced(SimulatedFiles):
    """The ledger is renamed into place without a sync, and SQLite then creates its write-ahead log beside it."""

    def fsync_directory(self, path: Path) -> None:
        if path.name != OWNER_FOLDER:
            super().fsync_directory(path)


class _LinkedBeforeSynced(SimulatedFiles):
    """A published file becomes visible first and durable afterwards."""

    def sync(self, path: Path, number: Number) -> None:
        if path.parent.name != LOG_FOLDER:
            super().sync(path, number)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.fsync(target)


class _StagedAgainNotSynced(SimulatedFiles):
    """A staged file that already exists is proposed, even if its writer died before it synced the file."""

    def sync(self, path: Path, number: Number) -> None:
        if not path.name.startswith(".tmp-"):
            super().sync(path, number)

    def link(self, source: Path, target: Path) -> None:
        self.fsync(source)
        super().link(source, target)

    def replace(self, source: Path, target: Path) -> None:
        if target.parent.name not in STAGING_FOLDERS:
            self.fsync(source)
        super().replace(source, target)


class _TakenNameNotSynced(SimulatedFiles):
    """An existing name is reported, even if the process that linked it died before it synced the name."""

    _taken = False

    def link(self, source: Path, target: Path) -> None:
        self._taken = self.disk.find(target) is not None
        super().link(source, target)

    def fsync_directory(self, path: Path) -> None:
        if self._taken and path.name == LOG_FOLDER:
            return
        super().fsync_directory(path)


class _FailedSyncRetried(SimulatedFiles):
    """A failed sync is repeated, and the second answer is believed."""

    def sync(self, path: Path, number: Number) -> None:
        with _retried():
            super().sync(path, number)

    def fsync(self, path: Path) -> None:
        with _retried():
            super().fsync(path)

    def fsync_directory(self, path: Path) -> None:
        with _retried():
            super().fsync_directory(path)


class _InDoubtKept(SimulatedFiles):
    """A published file whose name failed to sync is kept, instead of being written again."""

    def replace(self, source: Path, target: Path) -> None:
        if target.parent.name == LOG_FOLDER:
            self.unlink(source)
        else:
            super().replace(source, target)


def _retried() -> AbstractContextManager[None]:
    """The second sync succeeds without an effect, because the kernel reports a failure only once."""
    return contextlib.suppress(OSError)


class _LazyLedger(Wrapped):
    """A connection with a lower `synchronous`."""

    def __init__(self, database: Any, level: str) -> None:
        super().__init__(database)
        self._level = level

    def execute(self, statement: str, *values: Any) -> Any:
        return self.wrapped.execute(statement.replace("synchronous=FULL", f"synchronous={self._level}"), *values)


def _equal_file_believed(log: LogStore, version: Version, content: bytes, commit_mode: object = None) -> None:
    """An existing version with the expected bytes counts as published once it is synced again."""
    name = log_path.commit(version)
    if not log.put_if_absent(name, content) and log.read(name) != content:
        raise CorruptLogError(f"{name} is not version {version}")


class _LogFolderNotSynced(SimulatedFiles):
    """The name of a new table's log folder is never synced."""

    def fsync_directory(self, path: Path) -> None:
        if LOG_FOLDER not in self.disk.names(path) or path.name == LOG_FOLDER:
            super().fsync_directory(path)


class _UnsyncedCommits(Wrapped):
    """A connection that does not wait for the disk if its transaction executes a given statement."""

    def __init__(self, database: Any, statement: str, disk: Callable[[], Disk]) -> None:
        super().__init__(database)
        self._statement = statement
        self._disk = disk
        self._does = False

    def execute(self, statement: str, *values: Any) -> Any:
        self._does = self._does or statement.lstrip().startswith(self._statement)
        if statement != "COMMIT" or not self._does:
            return self.wrapped.execute(statement, *values)
        self._does = False
        with mock.patch.object(self._disk(), "sync", lambda _number: None):
            return self.wrapped.execute(statement, *values)


class _UnsyncedGroups(Wrapped):
    """A connection that waits for the disk only if its transaction ratifies a single commit."""

    def __init__(self, database: Any, disk: Callable[[], Disk]) -> None:
        super().__init__(database)
        self._disk = disk
        self._commits = 0

    def execute(self, statement: str, *values: Any) -> Any:
        self._commits += statement.lstrip().startswith("INSERT INTO commits")
        if statement != "COMMIT":
            return self.wrapped.execute(statement, *values)
        together, self._commits = self._commits > 1, 0
        with mock.patch.object(self._disk(), "sync", lambda _number: None) if together else contextlib.nullcontext():
            return self.wrapped.execute(statement, *values)


def _group_decided(owner: LocalOwner, group: Sequence[Waiting], decided: list[Decision | None]) -> None:
    with owner.context.ledger.write() as writer:
        decided.extend(owner._decide_in(writer, each) for each in group)


def _failed_sync_believed_by_one(owner: LocalOwner, group: Sequence[Waiting]) -> list[Any]:
    """The leader reports an unknown outcome; the members after it report their decisions."""
    decided: list[Decision | None] = []
    try:
        _group_decided(owner, group, decided)
    except OutcomeUnknown as error:
        return [error, *decided[1:]]
    return decided


def _acknowledged_although_rolled_back(owner: LocalOwner, group: Sequence[Waiting]) -> list[Decision | None]:
    decided: list[Decision | None] = []
    try:
        _group_decided(owner, group, decided)
    except OutcomeUnknown:
        raise
    except Exception:  # noqa: BLE001 - the mutant's mistake
        return [*decided, *[None] * (len(group) - len(decided))]
    return decided


def _published_before_the_sync(owner: LocalOwner, group: Sequence[Waiting]) -> list[Decision | None]:
    with owner.context.ledger.write() as writer:
        decided = [owner._decide_in(writer, each) for each in group]
        for each in group:
            owner.context.log(each.place).publish(each.examined.version, each.examined.content)
        return decided


class _FoldsUnsynced(Wrapped):
    """A connection that moves its write-ahead log into the database, and overwrites the log before the database is
    synced.
    """

    def __init__(self, database: Any, disk: Callable[[], Disk]) -> None:
        super().__init__(database)
        self._disk = disk

    def wal_checkpoint(self, *values: Any, **more: Any) -> Any:
        with mock.patch.object(self._disk(), "sync", lambda _number: None):
            return self.wrapped.wal_checkpoint(*values, **more)


def _files(
    name: str, scope: str, files: type[SimulatedFiles], requirement: str = "PROFILE-DURABLE-01", **needs: bool
) -> PowerMutant:
    return PowerMutant(
        id=name,
        title=" ".join((files.__doc__ or "").split()),
        requirement=requirement,
        scope=scope,
        host=lambda: SimulatedProcesses(make_files=files),
        **needs,
    )


def _patched(
    name: str,
    title: str,
    scope: str,
    target: object,
    method: str,
    instead: Any,
    *,
    requirement: str = "PROFILE-DURABLE-01",
    **needs: bool,
) -> PowerMutant:
    return PowerMutant(
        id=name,
        title=title,
        requirement=requirement,
        scope=scope,
        host=lambda: SimulatedProcesses(patch=patched(target, method, instead)),
        **needs,
    )


def _lazy(level: str, scope: str) -> PowerMutant:
    return PowerMutant(
        id=f"ledger-synchronous-{level.lower()}",
        title=f"The ledger is written with synchronous={level}.",
        requirement="PROFILE-OUTCOME-02",
        scope=scope,
        host=lambda: SimulatedProcesses(change_database=lambda database: _LazyLedger(database, level)),
    )


def _with_database(wrap: Callable[[Any, Callable[[], Disk]], Any], **options: bool) -> SimulatedProcesses:
    """A host whose connections are changed. `wrap` gets a connection, and a function that returns the current disk."""
    host = SimulatedProcesses(change_database=lambda database: wrap(database, lambda: host.disk), **options)
    return host


def _unsynced(name: str, statement: str, scope: str, requirement: str) -> PowerMutant:
    return PowerMutant(
        id=name,
        title=f"The transaction of `{statement}` does not wait for the disk.",
        requirement=requirement,
        scope=scope,
        host=lambda: _with_database(lambda database, disk: _UnsyncedCommits(database, statement, disk)),
    )


POWER_MUTANTS: Final = (
    _files("staged-file-not-synced", "commit/catalogManaged/staged", _StagedFileNotSynced),
    _files("staged-name-not-synced", "commit/managedCommit/staged", _StagedNameNotSynced),
    _files("published-file-not-synced", "backfill/catalogManaged/staged", _PublishedFileNotSynced),
    _files("published-name-not-synced", "commit/catalogManaged/direct", _PublishedNameNotSynced),
    _files("table-folder-not-synced", "create/catalogManaged/staged", _FolderNotSynced),
    _files("linked-before-synced", "commit/managedCommit/direct", _LinkedBeforeSynced, "MC-BACKFILL-01"),
    _files("ledger-name-not-synced", "first-start/catalogManaged/inline", _LedgerNameNotSynced),
    _patched(
        "recovered-log-not-synced",
        "The ledger uses entries of its write-ahead log that a dead process wrote but never synced.",
        "commit/catalogManaged/inline",
        Ledger,
        "_write_last_transaction_again",
        lambda _ledger, _database: None,
        deaths=True,
    ),
    _patched(
        "recovered-log-synced-again",
        "The ledger syncs its write-ahead log again after an earlier sync of it failed.",
        "commit/catalogManaged/inline",
        WriteAheadLog,
        "write_again",
        lambda _log, _frames: None,
        failing_syncs=True,
        deaths=True,
    ),
    _patched(
        "equal-file-believed",
        "A published file with the expected bytes is recorded although an earlier sync of it failed.",
        "backfill/catalogManaged/inline",
        LogStore,
        "publish",
        _equal_file_believed,
        requirement="CM-PUBLISH-06",
        failing_syncs=True,
        deaths=True,
    ),
    _files("staged-again-not-synced", "commit/managedCommit/staged", _StagedAgainNotSynced, deaths=True),
    _files(
        "taken-name-not-synced", "backfill/catalogManaged/inline", _TakenNameNotSynced, "CM-PUBLISH-06", deaths=True
    ),
    _files("failed-sync-retried", "commit/managedCommit/staged", _FailedSyncRetried, failing_syncs=True),
    _files("name-in-doubt-kept", "backfill/catalogManaged/inline", _InDoubtKept, "CM-PUBLISH-06", failing_syncs=True),
    _lazy("NORMAL", "commit/catalogManaged/inline"),
    _lazy("OFF", "commit/catalogManaged/staged"),
    _files("log-folder-not-synced", "create/managedCommit/staged", _LogFolderNotSynced),
    _unsynced("promise-not-synced", "INSERT INTO promises", "commit/managedCommit/direct", "PROFILE-OUTCOME-01"),
    _unsynced(
        "tombstone-not-synced",
        "INSERT OR IGNORE INTO tombstones",
        "resolve/catalogManaged/staged",
        "PROFILE-OUTCOME-02",
    ),
    _unsynced("ratified-not-synced", "INSERT INTO commits", "commit/managedCommit/staged", "PROFILE-DURABLE-01"),
    _unsynced("drop-not-synced", "UPDATE tables SET state", "drop/managedCommit/staged", "PROFILE-DISCOVERY-01"),
    PowerMutant(
        id="group-answered-before-its-sync",
        title="A transaction of several commits does not wait for the disk.",
        requirement="PROFILE-DURABLE-01",
        scope="group/catalogManaged/inline",
        host=lambda: _with_database(_UnsyncedGroups),
    ),
    _patched(
        "group-failed-sync-believed-by-one",
        "The sync of a group fails, and some of its members are acknowledged.",
        "group/catalogManaged/inline",
        LocalOwner,
        "_decide_together",
        _failed_sync_believed_by_one,
        failing_syncs=True,
    ),
    _patched(
        "group-published-before-its-sync",
        "The members of a group are published before the transaction that ratifies them is durable.",
        "group/managedCommit/staged",
        LocalOwner,
        "_decide_together",
        _published_before_the_sync,
        requirement="PROFILE-OUTCOME-01",
    ),
    PowerMutant(
        id="folded-without-sync",
        title="The write-ahead log is moved into the database, and overwritten before the database is synced.",
        requirement="PROFILE-OUTCOME-01",
        scope="fold/catalogManaged/inline",
        host=lambda: _with_database(_FoldsUnsynced, checkpointing=True),
    ),
)


# Mutants that only an interrupted effect exposes: they are correct while no process dies


def _without_promise(kind: PromiseKind) -> Patch:
    """One kind of commit by put-if-absent is linked first and recorded afterwards, without a promise before the
    link.
    """
    ordinary = Writer.add_promise

    def add_promise(writer: Writer, table: TableRecord, promise: Promise) -> None:
        if promise.kind is not kind:
            ordinary(writer, table, promise)

    return patched(Writer, "add_promise", add_promise)


def _always_forgotten(writer: Writer, table: TableRecord, _log: LogStore, _now: int) -> None:
    promise = writer.promise(table.key)
    if promise is not None:
        promises.forget(writer, table, promise)


def _recorded_in_two_transactions() -> AbstractContextManager[Any]:
    ordinary = Writer.forget_promise

    def forget_promise(writer: Writer, table: TableRecord) -> None:
        writer._db.execute("COMMIT")
        writer._db.execute("BEGIN IMMEDIATE")
        ordinary(writer, table)

    return mock.patch.object(Writer, "forget_promise", forget_promise)


_RESOLVED: Final = "tombstones WHERE table_id = ? AND attempt = ?"


class _ForgetsTombstones(Wrapped):
    """Only the process that resolved an attempt knows its tombstone."""

    def __init__(self, database: Any) -> None:
        super().__init__(database)
        self._own: set[str] = set()

    def execute(self, statement: str, *values: Any) -> Any:
        if statement.startswith("INSERT OR IGNORE INTO tombstones"):
            self._own.add(values[0][1])
            return None
        if _RESOLVED in statement:
            known = int(values[0][-1] in self._own)
            statement = statement.replace(_RESOLVED, f"(SELECT ? AS table_id, ? AS attempt) WHERE {known}")
        return self.wrapped.execute(statement, *values)


def _error_believed(context: Context, table: TableRecord, promise: Promise) -> Any:
    """After a disk error, the owner assumes that the link did not happen."""
    try:
        mine = promises.publish(promise, context.log(table))
    except OSError as error:
        with context.ledger.write() as writer:
            promises.forget(writer, table, promise)
        raise OwnerUnavailableError(f"not published: {error}; nothing was committed") from error
    with context.ledger.write() as writer:
        if mine:
            return promises.record(writer, table, promise, context.now)
        promises.forget(writer, table, promise)
    return None


def _failed_commit_believed() -> AbstractContextManager[Any]:
    """A transaction whose commit failed is reported as not committed."""
    ordinary = Ledger._commit

    def commit(ledger: Ledger, database: Any) -> None:
        try:
            ordinary(ledger, database)
        except OutcomeUnknown as error:
            raise OwnerUnavailableError(f"{error.message}; nothing was committed") from error

    return mock.patch.object(Ledger, "_commit", commit)


def _lease(environment: Environment) -> Environment:
    """A lock is taken away from a slow process, which does not notice."""

    def leased(take: Callable[[], Any]) -> Callable[[], AbstractContextManager[Any]]:
        @contextlib.contextmanager
        def lock() -> Iterator[None]:
            with contextlib.ExitStack() as stack, contextlib.suppress(OwnerUnavailableError):
                stack.enter_context(take())
            yield

        return lock

    return with_lock(environment, leased)


def _described_after_the_commit() -> AbstractContextManager[Any]:
    """A creation that landed is reported as failed if the table cannot be described."""

    class Believes(OutcomeUnknown):
        def __new__(cls, message: str, **facts: Any) -> Any:
            return OwnerUnavailableError(message, **facts)

    return mock.patch.object(lifecycle, "OutcomeUnknown", Believes)


CRASH_MUTANTS: Final = (
    *(
        CrashMutant(
            id=f"{kind.value}-without-promise",
            title=f"{what} is linked first and recorded afterwards, without a promise",
            scope=scope,
            requirement=requirement,
            patch=_without_promise(kind),
        )
        for kind, what, scope, requirement in (
            (PromiseKind.PUBLISH, "a direct commit", "commit/managedCommit/direct", "PROFILE-OUTCOME-01"),
            (PromiseKind.TAKE_OVER, "a take-over", "take-over/managedCommit/staged", "PROFILE-DURABLE-01"),
            (PromiseKind.HAND_BACK, "a hand-back", "hand-back/managedCommit/staged", "PROFILE-OUTCOME-01"),
        )
    ),
    CrashMutant(
        id="group-acknowledged-although-rolled-back",
        title="the error of one member rolls the group back, but members decided before it are acknowledged",
        scope="group/catalogManaged/inline",
        requirement="PROFILE-DURABLE-01",
        patch=patched(LocalOwner, "_decide_together", _acknowledged_although_rolled_back),
    ),
    CrashMutant(
        id="direct-recorded-first",
        title="a direct commit is recorded as published, and then linked",
        scope="commit/catalogManaged/direct",
        requirement="PROFILE-DURABLE-01",
        patch=patched(Context, "keep", recorded_first),
    ),
    CrashMutant(
        id="hand-back-recorded-first",
        title="a table is recorded as handed back, and then its last commit is linked",
        scope="hand-back/catalogManaged/staged",
        requirement="PROFILE-DURABLE-01",
        patch=patched(Context, "keep", recorded_first),
    ),
    CrashMutant(
        id="promise-always-forgotten",
        title="recovery forgets every promise, whether or not its file is visible",
        scope="commit/managedCommit/direct",
        requirement="PROFILE-OUTCOME-01",
        patch=patched(promises, "settle", _always_forgotten),
    ),
    CrashMutant(
        id="promise-always-believed",
        title="recovery assumes that every promise was kept, and links nothing",
        scope="commit/catalogManaged/direct",
        requirement="PROFILE-DURABLE-01",
        patch=patched(promises, "_published_now", lambda _promise, _log, **_more: True),
    ),
    CrashMutant(
        id="recorded-in-two-transactions",
        title="a kept promise is recorded in one transaction and forgotten in another",
        scope="commit/managedCommit/direct",
        requirement="PROFILE-DURABLE-01",
        patch=_recorded_in_two_transactions,
    ),
    CrashMutant(
        id="tombstones-in-memory",
        title="only the process that resolved an attempt knows its outcome",
        scope="resolve/catalogManaged/staged",
        requirement="PROFILE-OUTCOME-02",
        change=lambda environment: connected(environment, _ForgetsTombstones),
    ),
    CrashMutant(
        id="error-of-a-link-believed",
        title="a failed link is assumed to have had no effect",
        scope="commit/managedCommit/direct",
        requirement="PROFILE-OUTCOME-01",
        patch=patched(Context, "keep", _error_believed),
    ),
    CrashMutant(
        id="error-of-a-commit-believed",
        title="a transaction whose commit failed is reported as not committed",
        scope="commit/catalogManaged/inline",
        requirement="PROFILE-DURABLE-01",
        patch=_failed_commit_believed,
    ),
    CrashMutant(
        id="lock-with-a-lease",
        title="a lock is taken away from a slow holder, which continues",
        scope="commit/catalogManaged/direct",
        requirement="PROFILE-CORE-03",
        change=_lease,
        patch=trusts_the_lock,
    ),
    CrashMutant(
        id="description-decides",
        title="a creation that landed is reported as failed if the new table cannot be described",
        scope="create/catalogManaged/staged",
        requirement="PROFILE-DURABLE-01",
        patch=_described_after_the_commit,
    ),
)
