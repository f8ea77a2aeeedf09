"""The parts of a load that the ledger does not have: the newest commit that changed protocol or metadata, and two
metadata domains that are shown as properties (UC_DELTA_API.md#load-last-change, UC_DELTA_API.md#domains).

They are read from the newest commits backwards, and remembered: after the first load of a table, only commits that are
new are read. Versions whose files were cleaned up are not known.

The first load after a start may read each commit that the log still has: neither the ledger nor a checkpoint has the
version of the last change. Measured: 0.6 s for 20,000 commits of one file each, 1.0 s for those of ten files.
"""

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from refimpl.catalog.owner import TableDescription
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Action, CommitInfo, DomainMetadata, Metadata, Protocol
from refimpl.protocol.errors import CorruptLogError
from refimpl.protocol.log_path import LOG_FOLDER, Version
from refimpl.storage.files import Files

_DOMAINS: Final = {
    "clustering": ("delta.clustering", "clusteringColumns", "delta.clusteringColumns"),
    "rowTracking": ("delta.rowTracking", "rowIdHighWaterMark", "delta.rowTracking.rowIdHighWaterMark"),
}
"""For each table feature: its metadata domain, a member of that, and the property that shows the member."""
_WORDS: Final = (b'"metaData"', b'"protocol"', b'"domainMetadata"', b"\\u00")
"""A commit without these has none of the three actions. JSON can also spell their names with escapes."""
_TABLES_KEPT: Final = 10_000


class LastChange(NamedTuple):
    """`version` and `timestamp` of the newest commit that changed protocol or metadata; `domains`: the configuration of
    each known metadata domain, None for a removed one."""

    version: Version
    timestamp: int
    domains: dict[str, str | None]

    @property
    def properties(self) -> dict[str, str]:
        """The members of the domains that are shown as properties."""
        shown = {}
        for domain, member, name in _DOMAINS.values():
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                configuration = msgspec.json.decode(self.domains.get(domain) or "{}")
                if isinstance(configuration, dict) and member in configuration:
                    shown[name] = msgspec.json.encode(configuration[member]).decode()
        return shown


class LastChanges:
    """Safe to share between threads: two of them may read the same commits."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[str, tuple[Version, LastChange]] = {}

    def of(self, description: TableDescription) -> LastChange:
        table_id = description.table.table_id
        latest = description.table.commits.latest_ratified_version or 0
        read_through, known = self._known.get(table_id, (-1, LastChange(0, description.created_at, {})))
        features = description.protocol.writer_features or ()
        wanted = {domain for feature, (domain, _, _) in _DOMAINS.items() if feature in features}
        at: tuple[Version, int] | None = None
        domains: dict[str, str | None] = {}
        for version, commit in self._commits(description, latest, read_through):
            for action in commit:
                if isinstance(action, DomainMetadata):
                    domains.setdefault(action.domain, None if action.removed else action.configuration)
            if at is None and any(isinstance(action, Protocol | Metadata) for action in commit):
                times = [action.in_commit_timestamp for action in commit if isinstance(action, CommitInfo)]
                at = version, (times[0] if times else None) or 0
            if at is not None and wanted <= domains.keys():
                break
        change = LastChange(*(at or known[:2]), known.domains | domains)
        if latest >= read_through:
            if len(self._known) >= _TABLES_KEPT:
                self._known.clear()
            self._known[table_id] = latest, change
        return change

    def _commits(
        self, description: TableDescription, latest: Version, read_through: Version
    ) -> Iterator[tuple[Version, list[Action]]]:
        """The commits above `read_through` that may hold a change, newest first, until a file is missing."""
        folder = description.table.location / LOG_FOLDER
        staging = description.table.feature.staging_folder
        staged = {commit.version: commit.file_name for commit in description.table.commits.commits if commit.file_name}
        for version in range(latest, read_through, -1):
            names = [f"{staging}/{staged[version]}"] if version in staged else []
            for name in (*names, log_path.commit(version)):
                with contextlib.suppress(FileNotFoundError):
                    content = self._files.read(folder / name)
                    break
            else:
                return
            if not any(word in content for word in _WORDS):
                continue
            with contextlib.suppress(CorruptLogError):
                yield version, actions.decode(content, source=name)
