"""Reads the change data feed: which rows each commit inserted, updated and deleted.

    for batch in table.changes(from_version=3): ...

DELTA.md#change-data-feed. A commit with `cdc` actions is read from its change data files, any other one from the files
that it added and removed. Ratified commits that are not published yet are included.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from refimpl.client.row_changes import DELETED, INSERTED
from refimpl.client.snapshot import Snapshot, at
from refimpl.log.history import commits_between
from refimpl.protocol.actions import Action, Add, Cdc, CommitInfo, Metadata, Protocol, Remove
from refimpl.protocol.errors import InvalidRequestError, NotFoundInHistoryError
from refimpl.protocol.in_commit_timestamp import CommitTimes
from refimpl.protocol.log_path import Version
from refimpl.rows import deletion_vectors
from refimpl.rows.data_files import read_file
from refimpl.rows.partition_values import FileLayout
from refimpl.schema.column_mapping import of_table
from refimpl.schema.features import CHANGE_FEED_PROPERTY, feeds_changes
from refimpl.schema.schema import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    FEED_COLUMNS,
    Field,
    Primitive,
    Struct,
    misfit,
    to_arrow,
)


def versions(
    times: CommitTimes,
    *,
    from_version: Version | None,
    to_version: Version | None,
    from_timestamp: int | None,
    to_timestamp: int | None,
) -> tuple[Version, Version]:
    """The first and the last version that were committed in a range of versions or times (ms since the epoch).

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
                f"version {version} is not in the history, which has versions {times.first} to {times.last}",
                version=version,
            )
    if first > last:
        raise InvalidRequestError(f"the first version {first} is after the last version {last}; expected first <= last")
    return first, last


def _at_or_after(times: CommitTimes, timestamp: int) -> Version:
    version = times.version_at(timestamp)
    return version if times.of(version) == timestamp else version + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """One file of the feed, and the commit that it belongs to."""

    version: Version
    timestamp: int
    file: Add | Remove | Cdc
    other: Add | Remove | None = None
    """The same file with its deletion vector before, or after, the commit: rows in both were not changed."""


def changed_files(newest: Snapshot, start: Snapshot, end: Snapshot) -> list[ChangedFile]:
    """The files of the commits from `start` to `end`, in their order; within a commit removed files come first.

    `newest` defines the commit times. Raises `InvalidRequestError` for a version at which the feed was off, or
    whose rows do not fit the schema of `end`, and `UnsupportedFeatureError` if deletion vectors cannot be decoded.
    """
    files: list[ChangedFile] = []
    protocol, metadata = start.protocol, start.metadata
    for version, timestamp, actions in commits_between(newest.reader, start.version, end.version, newest.enablement):
        protocol = next((action for action in actions if isinstance(action, Protocol)), protocol)
        metadata = next((action for action in actions if isinstance(action, Metadata)), metadata)
        check_commit(version, protocol, metadata, end)
        files += files_of_commit(version, timestamp, actions, end)
    return files


def files_of_commit(version: Version, timestamp: int, actions: Sequence[Action], end: Snapshot) -> list[ChangedFile]:
    """The files of one commit. Raises `UnsupportedFeatureError` if deletion vectors cannot be decoded."""
    files: list[ChangedFile] = []
    for file, other in _files(actions):
        if not isinstance(file, Cdc) and file.deletion_vector is not None:
            deletion_vectors.check_library()
        if isinstance(file, Remove) and file.partition_values is None and end.partition_columns:
            known = other or at(end.reader, version - 1).files.get(file.key)
            if known is None:  # the file was not active, so no row was removed
                continue
            file = msgspec.structs.replace(file, partition_values=known.partition_values)
        files.append(ChangedFile(version=version, timestamp=timestamp, file=file, other=other))
    return files


def check_commit(version: Version, protocol: Protocol, metadata: Metadata, end: Snapshot) -> None:
    """DELTA.md#feed-was-off and DELTA.md#feed-schema."""
    if not feeds_changes(metadata):
        raise InvalidRequestError(
            f"the change data feed was off at version {version}; expected versions at which {CHANGE_FEED_PROPERTY} is "
            f"true",
            version=version,
        )
    problem = misfit_of(protocol, metadata, end)
    if problem is not None:
        raise InvalidRequestError(
            f"the rows of version {version} do not fit the schema of version {end.version}: {problem}; read the "
            "versions before and after the change separately",
            version=version,
        )


def misfit_of(protocol: Protocol, metadata: Metadata, end: Snapshot) -> str | None:
    """Why rows of a version with this protocol and metadata cannot be read with the schema of `end`; None if they
    can."""
    schema = of_table(protocol, metadata)
    if schema.physical_names(metadata.partition_columns) != end.schema.physical_names(end.partition_columns):
        return f"it is partitioned by {', '.join(metadata.partition_columns) or 'nothing'}"
    return misfit(schema, end.schema, strictly=True)


def _files(actions: Sequence[Action]) -> list[tuple[Add | Remove | Cdc, Add | Remove | None]]:
    """The change data files of a commit; if it has none, the files that it removed and added, each paired with the
    opposite action on the same file. DELTA.md#change-files, DELTA.md#inferred-changes,
    DELTA.md#inferred-from-vectors."""
    changes = [action for action in actions if isinstance(action, Cdc)]
    if changes:
        return [(change, None) for change in changes]
    if any(isinstance(action, CommitInfo) and _changed_no_row(action) for action in actions):
        return []
    removed: dict[str, Add | Remove] = {
        action.key[0]: action for action in actions if isinstance(action, Remove) and action.data_change
    }
    added: dict[str, Add | Remove] = {
        action.key[0]: action for action in actions if isinstance(action, Add) and action.data_change
    }
    return [*_without_equal(removed, added), *_without_equal(added, removed)]


def _changed_no_row(info: CommitInfo) -> bool:
    """Delta Spark's MERGE may replace files without changing a row, and then writes no change data."""
    metrics = info.fields.get("operationMetrics")
    if info.fields.get("operation") != "MERGE" or not isinstance(metrics, dict):
        return False
    return all(metrics.get(f"numTargetRows{what}") == "0" for what in ("Inserted", "Updated", "Deleted"))


def _without_equal(
    files: Mapping[str, Add | Remove], others: Mapping[str, Add | Remove]
) -> Iterator[tuple[Add | Remove, Add | Remove | None]]:
    """Pairs each file with the opposite action on its path; a file without a deletion vector has all rows."""
    for path, file in files.items():
        other = others.get(path)
        if other is None or other.deletion_vector is not None:
            yield file, other


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedReader:
    """Reads files of the feed with the schema of the last version. Picklable, for Spark's tasks."""

    layout: FileLayout
    """Of the last version."""

    @property
    def schema(self) -> Struct:
        """The table's columns and those of the feed."""
        extra = zip(FEED_COLUMNS, ("string", "long", "timestamp"), strict=True)
        fields = (Field(name=name, type=Primitive(name=kind)) for name, kind in extra)
        return Struct(fields=(*self.layout.schema.fields, *fields))

    def read(self, files: Iterable[ChangedFile]) -> Iterator[pa.RecordBatch]:
        """The rows of the files, one file in memory at a time."""
        schema = self.schema
        arrow = to_arrow(schema)
        columns, with_type = self.layout.schema, Struct(fields=schema.fields[:-2])
        for changed in files:
            file = changed.file
            needed = with_type if isinstance(file, Cdc) else columns
            rows = read_file(self.layout, file, needed, other=changed.other)
            constants: dict[str, int | str] = {
                COMMIT_VERSION: changed.version,
                COMMIT_TIMESTAMP: changed.timestamp * 1000,
            }
            if not isinstance(file, Cdc):
                constants[CHANGE_TYPE] = INSERTED if isinstance(file, Add) else DELETED
            for name, value in constants.items():
                rows = rows.append_column(name, pa.repeat(pa.scalar(value, arrow.field(name).type), rows.num_rows))
            yield from pa.Table.from_arrays(rows.select(arrow.names).columns, schema=arrow).to_batches()

    def all(self, files: Iterable[ChangedFile]) -> pa.RecordBatchReader:
        """The rows of the files as one stream."""
        return pa.RecordBatchReader.from_batches(to_arrow(self.schema), self.read(files))
