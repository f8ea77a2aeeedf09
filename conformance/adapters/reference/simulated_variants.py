"""Known-bad variants of the reference that only a power cut finds: each lacks, or moves, one step of its durability.

They are the ordinary reference on a host that does not do one thing it is asked. Which requirement a variant breaks
stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.adapters.reference.dying import STAGING_FOLDERS
from conformance.adapters.reference.simulated import SimulatedReference
from conformance.simulation.files import SimulatedFiles
from conformance.simulation.storage import Number
from refimpl.log_path import LOG_FOLDER


class _WithoutFileSync(SimulatedFiles):
    """New files in some folders are not synced."""

    folders: frozenset[str]

    def sync(self, path: Path, number: Number) -> None:
        if path.parent.name not in self.folders:
            super().sync(path, number)


class _StagedFileNotSynced(_WithoutFileSync):
    folders = STAGING_FOLDERS


class _PublishedFileNotSynced(_WithoutFileSync):
    folders = frozenset({LOG_FOLDER})


class _StagedNameNotSynced(SimulatedFiles):
    def fsync_directory(self, path: Path) -> None:
        if path.name not in STAGING_FOLDERS:
            super().fsync_directory(path)


class _PublishedNameNotSynced(SimulatedFiles):
    def fsync_directory(self, path: Path) -> None:
        if path.name != LOG_FOLDER:
            super().fsync_directory(path)


class _FolderNotSynced(SimulatedFiles):
    """The folder of a new table, and the log folder in it, have names that were never synced."""

    def fsync_directory(self, path: Path) -> None:
        if path.name == LOG_FOLDER or path.name in STAGING_FOLDERS or path.name.startswith("_"):
            super().fsync_directory(path)


class _LinkedBeforeSynced(SimulatedFiles):
    """What is published becomes visible first and durable afterwards."""

    def sync(self, path: Path, number: Number) -> None:
        if path.parent.name != LOG_FOLDER:
            super().sync(path, number)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.fsync(target)


class _LazyLedger:
    """A connection with a lower `synchronous`."""

    def __init__(self, database: Any, level: str) -> None:
        self._database = database
        self._level = level

    def execute(self, statement: str, *values: Any) -> Any:
        return self._database.execute(statement.replace("synchronous=FULL", f"synchronous={self._level}"), *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerVariant:
    """A bad owner. `scope` is the beginning of the name of one that finds it."""

    name: str
    requirement: str
    scope: str
    start: Callable[[], SimulatedReference]


def _files(name: str, requirement: str, scope: str, files: type[SimulatedFiles]) -> PowerVariant:
    return PowerVariant(
        name=name, requirement=requirement, scope=scope, start=lambda: SimulatedReference(make_files=files)
    )


def _lazy(level: str, scope: str) -> PowerVariant:
    return PowerVariant(
        name=f"ledger-synchronous-{level.lower()}",
        requirement="PROFILE-DURABLE-01",
        scope=scope,
        start=lambda: SimulatedReference(change_database=lambda database: _LazyLedger(database, level)),
    )


VARIANTS: Final = (
    _files("staged-file-not-synced", "PROFILE-DURABLE-01", "commit/catalogManaged/staged", _StagedFileNotSynced),
    _files("staged-name-not-synced", "PROFILE-DURABLE-01", "commit/managedCommit/staged", _StagedNameNotSynced),
    _files(
        "published-file-not-synced", "PROFILE-DURABLE-01", "backfill/catalogManaged/staged", _PublishedFileNotSynced
    ),
    _files("published-name-not-synced", "PROFILE-DURABLE-01", "commit/catalogManaged/direct", _PublishedNameNotSynced),
    _files("table-folder-not-synced", "PROFILE-DURABLE-01", "create/catalogManaged/staged", _FolderNotSynced),
    _files("linked-before-synced", "PROFILE-DURABLE-01", "commit/managedCommit/direct", _LinkedBeforeSynced),
    _lazy("NORMAL", "commit/catalogManaged/inline"),
    _lazy("OFF", "commit/catalogManaged/staged"),
)
