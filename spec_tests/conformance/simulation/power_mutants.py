"""Mutants that only a power cut exposes: each lacks, or moves, one step of the owner's durability."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from conformance.adapters.reference.dying import STAGING_FOLDERS
from conformance.simulated_reference.processes import SimulatedProcesses
from conformance.simulation.disk import Disk, Number, SimulatedFiles
from refimpl import log_path
from refimpl.errors import CorruptLogError
from refimpl.log_path import LOG_FOLDER, Version
from refimpl.log_store import LogStore
from refimpl.owner.ledger import Ledger
from refimpl.owner.local import OWNER_FOLDER
from refimpl.owner.write_ahead_log import WriteAheadLog
from spec_tests.conformance.simulation.hunting import PowerMutant, Wrapped, patched


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
    """The folder of a new table, and the log folder in it, have names that were never synced."""

    def fsync_directory(self, path: Path) -> None:
        if path.name == LOG_FOLDER or path.name in STAGING_FOLDERS or path.name.startswith("_"):
            super().fsync_directory(path)


class _LedgerNameNotSynced(SimulatedFiles):
    """The ledger is renamed into place, and SQLite makes its write-ahead log beside it, before that is durable."""

    def fsync_directory(self, path: Path) -> None:
        if path.name != OWNER_FOLDER:
            super().fsync_directory(path)


class _LinkedBeforeSynced(SimulatedFiles):
    """What is published becomes visible first and durable afterwards."""

    def sync(self, path: Path, number: Number) -> None:
        if path.parent.name != LOG_FOLDER:
            super().sync(path, number)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.fsync(target)


class _StagedAgainNotSynced(SimulatedFiles):
    """A staged file that is there already is proposed, whether or not whoever wrote it lived to sync it."""

    def sync(self, path: Path, number: Number) -> None:
        if not (path.parent.name in STAGING_FOLDERS and path.name.startswith(".tmp-")):
            super().sync(path, number)


class _TakenNameNotSynced(SimulatedFiles):
    """A name that is taken is reported, whether or not whoever linked it lived to sync it."""

    _taken = False

    def link(self, source: Path, target: Path) -> None:
        self._taken = self.disk.find(target) is not None
        super().link(source, target)

    def fsync_directory(self, path: Path) -> None:
        if self._taken and path.name == LOG_FOLDER:
            return
        super().fsync_directory(path)


class _FailedSyncRetried(SimulatedFiles):
    """Whatever sync fails is asked for again, and the second answer believed."""

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
    """A published name whose sync failed is taken as it stands, instead of being written anew."""

    def replace(self, source: Path, target: Path) -> None:
        if target.parent.name == LOG_FOLDER:
            self.unlink(source)
        else:
            super().replace(source, target)


def _retried() -> AbstractContextManager[None]:
    """The second sync would find nothing to do: the kernel reported the failure once."""
    return contextlib.suppress(OSError)


class _LazyLedger(Wrapped):
    """A connection with a lower `synchronous`."""

    def __init__(self, database: Any, level: str) -> None:
        super().__init__(database)
        self._level = level

    def execute(self, statement: str, *values: Any) -> Any:
        return self.wrapped.execute(statement.replace("synchronous=FULL", f"synchronous={self._level}"), *values)


def _equal_file_believed(log: LogStore, version: Version, content: bytes) -> None:
    """A version that is there already with the right bytes is taken for published, once it is synced again."""
    name = log_path.commit(version)
    if not log.put_if_absent(name, content) and log.read(name) != content:
        raise CorruptLogError(f"{name} is not version {version}")


class _LogFolderNotSynced(SimulatedFiles):
    """The name of a new table's log folder was never synced."""

    def fsync_directory(self, path: Path) -> None:
        if LOG_FOLDER not in self.disk.names(path) or path.name == LOG_FOLDER:
            super().fsync_directory(path)


class _UnsyncedCommits(Wrapped):
    """A connection that does not wait for the disk where its transaction does one thing."""

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


class _FoldsUnsynced(Wrapped):
    """A connection that moves its write-ahead log into the database, and does not wait for the disk before it goes on
    with that log from its beginning."""

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
    """`wrap`: given a connection, and what tells the disk of the present start."""
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
        "The ledger acts on what a dead process wrote to its write-ahead log, and never synced.",
        "commit/catalogManaged/inline",
        Ledger,
        "_write_last_transaction_again",
        lambda _ledger, _database: None,
        deaths=True,
    ),
    _patched(
        "recovered-log-synced-again",
        "The ledger syncs what it finds in its write-ahead log, where an earlier sync of that failed.",
        "commit/catalogManaged/inline",
        WriteAheadLog,
        "write_again",
        lambda _log, _frames: None,
        failing_syncs=True,
        deaths=True,
    ),
    _patched(
        "equal-file-believed",
        "A published file is recorded where an earlier sync of it failed, because its bytes are the right ones.",
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
        id="folded-without-sync",
        title="The write-ahead log is moved into the database, and written anew before that is synced.",
        requirement="PROFILE-OUTCOME-01",
        scope="fold/catalogManaged/inline",
        host=lambda: _with_database(_FoldsUnsynced, checkpointing=True),
    ),
)
