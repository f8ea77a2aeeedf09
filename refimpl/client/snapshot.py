"""One version of a table: its protocol, metadata, active files, tombstones, transactions and domains."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refimpl.log import loading
from refimpl.log.history import commit_times
from refimpl.log.log_reading import Loaded, LogReader
from refimpl.log.table_state import ReplayedState
from refimpl.protocol.actions import Add, DomainMetadata, FileKey, Metadata, Protocol, Remove, Txn
from refimpl.protocol.errors import CorruptLogError, InvalidTableError, PathAccessError
from refimpl.protocol.in_commit_timestamp import CommitTimes, Enablement, enablement
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import TableFeature, feature_of, in_commit_timestamps_enabled
from refimpl.rows import deletion_vectors, file_statistics
from refimpl.rows.condition import FileTest
from refimpl.rows.partition_values import FileLayout
from refimpl.schema import features, properties
from refimpl.schema.column_mapping import of_table
from refimpl.schema.features import check_readable
from refimpl.schema.schema import Struct
from refimpl.storage.object_store import ObjectFiles, objects_at

if TYPE_CHECKING:
    import pyarrow as pa


class Snapshot:
    """An immutable version. Made by `Table.snapshot`; `refresh` makes the newest one of the same table."""

    __slots__ = ("_newest", "_schema", "_timestamp", "loaded", "metadata", "protocol", "reader", "staleness")

    def __init__(self, reader: LogReader, loaded: Loaded, newest: Callable[[], Loaded] | None = None) -> None:
        """`newest`: the table's newest version, which defines the owner and the commit times; None if it is this one.
        Raises `UnsupportedFeatureError`, `PathAccessError` or `InvalidTableError` if it must not be read
        this way."""
        protocol, metadata = loaded.state.protocol, loaded.state.metadata
        assert protocol is not None
        assert metadata is not None
        self.protocol: Protocol = protocol
        self.metadata: Metadata = metadata
        check_readable(protocol, metadata)
        if loaded.state.files_with_deletion_vectors:
            deletion_vectors.check_library()
        self._newest = newest or (lambda: loaded)
        self.staleness: str | None = None if reader.owner is not None else _staleness(reader, loaded, self._newest)
        """Why newer versions may exist (the table was read without its owner), or None."""
        self.reader = reader
        """The reader of its log, through its owner if there is one."""
        self.loaded = loaded
        """The version as it was read."""
        self._schema: Struct | None = None
        self._timestamp: int | None = None

    @property
    def version(self) -> Version:
        return self.loaded.segment.version

    @property
    def location(self) -> Path:
        """The table's directory."""
        return self.reader.log.location

    @property
    def objects(self) -> ObjectFiles | None:
        """The store of the table's files; None if they are on this host."""
        return objects_at(self.reader.log.environment, self.location)

    @property
    def layout(self) -> FileLayout:
        """Where its data files are, and the columns of their rows."""
        return FileLayout(
            location=self.location,
            schema=self.schema,
            partition_columns=self.partition_columns,
            objects=self.objects,
            compression=properties.codec(self.metadata.configuration),
            page_version=properties.page_version(self.metadata.configuration),
        )

    @property
    def stale(self) -> bool:
        """Whether newer versions may have been ratified; `staleness` says why."""
        return self.staleness is not None

    @property
    def state(self) -> ReplayedState:
        """The reconciled actions of this version."""
        return self.loaded.state

    @property
    def newest_state(self) -> ReplayedState:
        """The reconciled actions of the table's newest version."""
        return self._newest().state

    @property
    def files(self) -> Mapping[FileKey, Add]:
        """Active files."""
        return self.loaded.state.files

    @property
    def tombstones(self) -> Mapping[FileKey, Remove]:
        """Removed files that the log still records."""
        return self.loaded.state.tombstones

    @property
    def transactions(self) -> Mapping[str, Txn]:
        """The newest `txn` of each application, by `appId`, without expired ones."""
        return self.state.transactions_after(
            properties.oldest_transaction(self.metadata, self.reader.log.environment.now())
        )

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """Metadata domains that are not removed, by name."""
        return self.loaded.state.domains

    @property
    def size_in_bytes(self) -> int:
        """Total size of all active files."""
        return self.loaded.state.size_in_bytes

    @property
    def warnings(self) -> Sequence[str]:
        """Harmless problems of the log: unreadable checkpoints, checksums that disagree."""
        return self.loaded.warnings

    @property
    def feature(self) -> TableFeature | None:
        """The table feature that the protocol names; None for a filesystem table."""
        return feature_of(self.protocol)

    @property
    def schema(self) -> Struct:
        if self._schema is None:
            self._schema = of_table(self.protocol, self.metadata)
        return self._schema

    @property
    def indexed_columns(self) -> frozenset[file_statistics.Leaf]:
        """The columns that get statistics in new files."""
        own = file_statistics.indexed(self.schema.without(self.partition_columns), self.metadata.configuration)
        return own | self.clustering_columns

    @property
    def clustering_columns(self) -> frozenset[file_statistics.Leaf]:
        """DELTA.md#clustering: their physical names; empty if the table is not clustered."""
        domain = self.domains.get(features.CLUSTERING_DOMAIN)
        if domain is None or features.CLUSTERING not in features.writer_features(self.protocol):
            return frozenset()
        return file_statistics.clustering_columns(domain.configuration)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @property
    def in_commit_timestamp(self) -> int | None:
        """The timestamp in this version's commit, in ms since the epoch; None if the table has them disabled."""
        if not in_commit_timestamps_enabled(self.protocol, self.metadata):
            return None
        return self.loaded.in_commit_timestamp

    @property
    def timestamp(self) -> int:
        """When this version was committed, in ms since the epoch. DELTA.md#ict-commit-time, DELTA.md#ict-replace.

        The in-commit timestamp, if the newest version has them enabled for this version; else the commit file's
        modification time (which costs a listing, once). Raises `CorruptLogError` if neither exists.
        """
        if self._timestamp is None:
            self._timestamp = self._commit_time()
        return self._timestamp

    def _commit_time(self) -> int:
        newest = self._newest().state
        assert newest.protocol is not None
        assert newest.metadata is not None
        enabled = enablement(newest.protocol, newest.metadata)
        if enabled is None or self.version < enabled.version:
            return commit_times(self.reader, self.version, None).of(self.version)
        if self.loaded.in_commit_timestamp is None:
            raise CorruptLogError(
                f"version {self.version} of {self.location} has no in-commit timestamp, although the "
                "table has them enabled",
                path=str(self.reader.log.folder),
                version=self.version,
            )
        return self.loaded.in_commit_timestamp

    @property
    def enablement(self) -> Enablement | None:
        """The enablement of in-commit timestamps in this version; None if they are disabled."""
        return enablement(self.protocol, self.metadata)

    def commit_times(self) -> CommitTimes:
        """The times of all commits up to this version, by its own properties."""
        return commit_times(self.reader, self.version, self.enablement)

    def refresh(self) -> "Snapshot":
        """The newest version; itself if there is nothing new. Only new commits are read."""
        return latest(self.reader, self)

    def file_test(self, where: str) -> FileTest:
        """A condition (SQL) on this snapshot's columns, as a test of files. Raises `InvalidRequestError`."""
        from refimpl.rows import predicate

        return predicate.file_test(where, self.schema, self.partition_columns)

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> "pa.Table":
        """The rows: all columns or those named, all rows or those for which `where` (SQL) is true.

        Raises `InvalidRequestError` for unknown columns and conditions that are not supported,
        `CorruptionError` for a data file that is missing or does not fit the schema.
        """
        return self._rows(columns, where, ahead=True).read_all()

    def to_batches(self, columns: Sequence[str] | None = None, where: str | None = None) -> "pa.RecordBatchReader":
        """The rows of `to_arrow` as a stream. Memory: a few batches, and the compressed row group that is read.

        Raises the errors of `to_arrow`; those of a data file when the stream reaches it.
        """
        return self._rows(columns, where, ahead=False)

    def _rows(self, columns: Sequence[str] | None, where: str | None, *, ahead: bool) -> "pa.RecordBatchReader":
        from refimpl.rows.data_files import read_rows

        test = None if where is None else self.file_test(where)
        columns = None if columns is None else self.schema.spelled(columns)
        return read_rows(self.layout, self.files.values(), columns, test, ahead=ahead)

    def __repr__(self) -> str:
        return f"<Snapshot of {self.location} at version {self.version}, {len(self.files)} files>"


def latest(reader: LogReader, known: Snapshot | None = None) -> Snapshot:
    """The newest version. `known`: an older snapshot; then only later commits are read.

    If the owner of the table has changed since `reader` was made, the snapshot has another `reader`.
    Raises `InvalidTableError` for a table feature that is not the owner's.
    """
    reader, loaded = _newest(reader, known)
    if known is not None and loaded is known.loaded:
        return known
    newest = Snapshot(reader, loaded)
    if reader.feature is not None and newest.feature is not reader.feature:
        raise InvalidTableError(
            f"{newest.location} is a {newest.feature.name if newest.feature else 'filesystem'} table at version "
            f"{newest.version}, but its owner knows it as {reader.feature.name}",
            version=newest.version,
        )
    if known is not None and (newest.protocol, newest.metadata) == (known.protocol, known.metadata):
        newest._schema = known._schema
    return newest


def at(reader: LogReader, version: Version, known: Snapshot | None = None) -> Snapshot:
    """A version, judged by the newest version. `known`: an older snapshot.

    Without an owner the newest version is read first: it decides whether the table may be read by path. Through an
    owner, time travel reads no newer version.
    """
    if reader.owner is not None:
        return Snapshot(reader, loading.load(reader, version), lambda: _newest(reader, known)[1])
    try:
        reader, newest = _newest(reader, known)
    except CorruptLogError as error:
        old, failure = loading.load(reader, version), error

        def unreadable() -> Loaded:
            raise failure

        return Snapshot(reader, old, unreadable)
    return Snapshot(reader, loading.load(reader, version), lambda: newest)


def _newest(reader: LogReader, known: Snapshot | None) -> tuple[LogReader, Loaded]:
    """The newest version, and the reader for the table's current owner."""
    try:
        loaded = loading.load(reader) if known is None else loading.refresh(reader, known.loaded)
    except CorruptLogError:  # after a hand-back, a cleanup may have deleted the owner's latest version
        now = reader if reader.owner is None else reader.resolved_again()
        if now.table_id == reader.table_id:
            raise
        reader, loaded = now, loading.load(now)
    for _ in range(_OWNER_CHANGES):
        now = _reader_now(reader, loaded)
        if now is reader:
            break
        reader, loaded = now, loading.load(now)
    return reader, loaded


_OWNER_CHANGES: Final = 4
"""How many changes of owner one read follows."""


def _reader_now(reader: LogReader, loaded: Loaded) -> LogReader:
    """The reader to use now; `reader` itself if its result is valid.

    managed-commits, both "Converting ..." sections: the published commits show whether a table has an owner. For the
    owner, each take-over is a new table, and an old one ends with its hand-back. So the table is resolved again if the
    newest version names another feature, or is newer than the owner's latest one.
    """
    assert loaded.state.protocol is not None
    feature = feature_of(loaded.state.protocol)
    if reader.catalog is None or (feature is reader.feature and not loaded.segment.unclaimed):
        return reader
    now = reader.resolved_again()
    if now.table_id != reader.table_id:
        return now
    if feature is None:  # a change of owner is visible and not yet recorded, or promised and not yet visible
        return reader.without_owner()
    return reader


def _staleness(reader: LogReader, read: Loaded, newest: Callable[[], Loaded]) -> str | None:
    """managed-commits, "Reading managed-commit tables", first choice; catalog-managed, "Reader Requirements". If the
    newest version cannot be read, the version that was read says whether the table may be read by its path."""
    unreadable = None
    try:
        known = newest()
    except CorruptLogError as error:
        unreadable, known = f"the newest version of {reader.log.location} cannot be read: {error}", read
    assert known.state.protocol is not None
    feature = feature_of(known.state.protocol)
    properties = {} if known.state.metadata is None else known.state.metadata.configuration
    named = None if feature is None else properties.get(feature.owner_property or "")
    its_owner = "its owner" if named is None else f"its owner {named!r}"
    if feature is not None and not feature.path_access:
        raise PathAccessError(
            f"{reader.log.location} is a {feature.name} table: it cannot be read by its path; open it through "
            f"{its_owner}, by name or id",
            location=str(reader.log.location),
        )
    if unreadable is not None or feature is None:
        return unreadable
    return (
        f"{reader.log.location} is a {feature.name} table that was read by its path, without {its_owner}, which may "
        f"have ratified versions after {known.segment.version} that are not backfilled"
    )
