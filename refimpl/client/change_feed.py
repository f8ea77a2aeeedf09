"""Reading the change data feed: which rows each commit inserted, updated and deleted.

    for batch in table.changes(from_version=3): ...

DELTA.md#change-data-feed. A commit with `cdc` actions is read from its change data files, any other one from the files
that it added and removed. Commits that the owner has ratified and not published yet are included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from refimpl.actions import Action, Add, Cdc, Metadata, Protocol, Remove
from refimpl.client.data_files import read_file
from refimpl.client.features import CHANGE_FEED_PROPERTY, feeds_changes
from refimpl.client.history import commits_between
from refimpl.client.in_commit_timestamp import CommitTimes
from refimpl.client.partition_values import local_path
from refimpl.client.row_changes import DELETED, INSERTED
from refimpl.client.schema import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    Field,
    Primitive,
    Struct,
    misfit,
    to_arrow,
)
from refimpl.client.snapshot import Snapshot, at
from refimpl.errors import InvalidRequestError, NotFoundInHistoryError, UnsupportedFeatureError
from refimpl.log_path import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Which commits to read: from `first` to `last`, both included."""

    first: Version
    last: Version


def versions(
    times: CommitTimes,
    *,
    from_version: Version | None,
    to_version: Version | None,
    from_timestamp: int | None,
    to_timestamp: int | None,
) -> Range:
    """The versions that were committed in a range of versions or times (ms since the epoch), both ends included.

    A time in the future ends at the newest version. Raises `InvalidRequestError` for a missing or double start, and
    `NotFoundInHistoryError` for one outside the history.
    """
    if (from_version is None) == (from_timestamp is None):
        raise InvalidRequestError("exactly one of from_version and from_timestamp is required")
    if to_version is not None and to_timestamp is not None:
        raise InvalidRequestError("to_version and to_timestamp are mutually exclusive; pass one of them")
    first, last = from_version, to_version
    if from_timestamp is not None:
        first = times.first if from_timestamp <= times.of(times.first) else _at_or_after(times, from_timestamp)
    if last is None:
        ends_before = to_timestamp is not None and to_timestamp < times.of(times.last)
        last = times.version_at(to_timestamp) if to_timestamp is not None and ends_before else times.last
    assert first is not None
    for version in (first, last):
        if not times.first <= version <= times.last:
            raise NotFoundInHistoryError(
                f"version {version} has no commit in the history, which holds {times.first} to {times.last}",
                version=version,
            )
    if first > last:
        raise InvalidRequestError(f"the changes begin at version {first}, after their end at version {last}")
    return Range(first=first, last=last)


def _at_or_after(times: CommitTimes, timestamp: int) -> Version:
    version = times.version_at(timestamp)
    return version if times.of(version) == timestamp else version + 1


def read(newest: Snapshot, start: Snapshot, end: Snapshot) -> pa.RecordBatchReader:
    """The changes of the commits from `start` to `end`, in their order; within a commit deletes come first.

    `newest` says how commit times count. Raises `InvalidRequestError` for a version at which the feed was off, or
    whose rows do not fit the schema of `end`, before anything is read.
    """
    schema = _schema_of(end)
    commits: list[_Commit] = []
    protocol, metadata = start.protocol, start.metadata
    for version, timestamp, found in commits_between(newest.reader, start.version, end.version, newest.enablement):
        protocol = next((action for action in found if isinstance(action, Protocol)), protocol)
        metadata = next((action for action in found if isinstance(action, Metadata)), metadata)
        _check(version, protocol, metadata, end)
        commits.append(_Commit(version=version, timestamp=timestamp, files=_files(found)))
    return pa.RecordBatchReader.from_batches(schema, (b for commit in commits for b in commit.batches(end, schema)))


def _schema_of(end: Snapshot) -> pa.Schema:
    text, number, time = (Primitive(name=name) for name in ("string", "long", "timestamp"))
    extra = (
        Field(name=CHANGE_TYPE, type=text),
        Field(name=COMMIT_VERSION, type=number),
        Field(name=COMMIT_TIMESTAMP, type=time),
    )
    return to_arrow(Struct(fields=(*end.schema.fields, *extra)))


def _check(version: Version, protocol: Protocol, metadata: Metadata, end: Snapshot) -> None:
    """DELTA.md#feed-was-off and DELTA.md#feed-schema."""
    if not feeds_changes(protocol, metadata):
        raise InvalidRequestError(
            f"the change data feed was off at version {version} ({CHANGE_FEED_PROPERTY}); read from a later version",
            version=version,
        )
    problem = misfit(metadata, end.metadata)
    if problem is not None:
        raise InvalidRequestError(
            f"the rows of version {version} do not fit the schema of version {end.version}: {problem}; read the "
            "versions before and after the change separately",
            version=version,
        )


def _files(found: Sequence[Action]) -> tuple[Add | Remove | Cdc, ...]:
    """The change data files of a commit; without any, the files that it removed and added. DELTA.md#change-files,
    DELTA.md#inferred-changes."""
    changes = tuple(action for action in found if isinstance(action, Cdc))
    removed = tuple(action for action in found if isinstance(action, Remove) and action.data_change)
    added = tuple(action for action in found if isinstance(action, Add) and action.data_change)
    return changes or (*removed, *added)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """What of one commit the feed needs."""

    version: Version
    timestamp: int
    files: tuple[Add | Remove | Cdc, ...]

    def batches(self, end: Snapshot, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            rows = self._rows(file, end)
            constants: dict[str, int | str] = {COMMIT_VERSION: self.version, COMMIT_TIMESTAMP: self.timestamp * 1000}
            if not isinstance(file, Cdc):
                constants |= {CHANGE_TYPE: INSERTED if isinstance(file, Add) else DELETED}
            for name, value in constants.items():
                kind = schema.field(name).type
                rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
            yield from rows.select(schema.names).cast(schema).to_batches()

    def _rows(self, file: Add | Remove | Cdc, end: Snapshot) -> pa.Table:
        needed = end.schema
        if isinstance(file, Cdc):
            needed = Struct(fields=(*needed.fields, Field(name=CHANGE_TYPE, type=Primitive(name="string"))))
        elif file.deletion_vector is not None:
            raise UnsupportedFeatureError(
                f"{file.path} has a deletion vector in version {self.version}, which this client does not read",
                features=("deletionVectors",),
            )
        elif isinstance(file, Remove) and file.partition_values is None and end.partition_columns:
            file = at(end.reader, self.version - 1).files[file.key]
        return read_file(local_path(end.location, file.path), file, needed, end.partition_columns)
