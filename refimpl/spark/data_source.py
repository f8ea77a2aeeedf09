"""The data source `delta-owner`: tables of a warehouse in Spark's own readers and writers, also for streams.

    spark.read.format("delta-owner").load("flights")
    df.writeStream.format("delta-owner").option("checkpointLocation", path).start("flights")

`refimpl.spark.connect` registers it. Spark starts Python processes on the driver's host, which find tables, plan and
commit; only these processes call the owner. Tasks read and write files; they have no token, and never call the owner.

Each process gets a copy of the source, so the source holds the location of the warehouse, not the warehouse itself.
Spark sends one copy of a writer to the driver's process and to the tasks. The token of a server is therefore in a file
on the driver's host, which only this user can read.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

import refimpl
from refimpl.client import change_feed
from refimpl.client.change_feed import ChangedFile, FeedReader
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.client.table_stream import Offset, StreamOptions, TableStream
from refimpl.protocol.errors import (
    CorruptionError,
    DeltaError,
    InvalidRequestError,
    LocationError,
    NameTakenError,
    OwnerUnavailableError,
)
from refimpl.rows import data_files
from refimpl.rows.data_files import read_file
from refimpl.schema.schema import Struct
from refimpl.spark import plan_reads
from refimpl.spark.commit_protocol import JobFiles, gather_or_delete
from refimpl.spark.frames import check_columns_of, spark_schema, table_schema_of
from refimpl.spark.reader import milliseconds_of, parquet_request
from refimpl.spark.tables import NamedTarget, PathTarget, TableAccess, Tables, is_utc
from refimpl.spark.write_plan import OPTIONS as WRITE_OPTIONS
from refimpl.spark.write_plan import WriteOptions, WritePlan, truth
from refimpl.warehouse import AnyWarehouse, RemoteWarehouse, Warehouse

if TYPE_CHECKING:
    from refimpl.remote_owner.connection import Address

NAME: Final = "delta-owner"
_COMMON: Final = ("path", "table")
_OF_CATALOG: Final = "owner"
"""An option that Spark adds when a table of its catalog is created."""
_TIME_TRAVEL: Final = ("versionAsOf", "timestampAsOf")
_FEED: Final = ("readChangeFeed", "startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
_STREAM: Final = (
    "readChangeFeed",
    "startingVersion",
    "startingTimestamp",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "ignoreDeletes",
    "skipChangeCommits",
)
_OF_QUERY: Final = ("checkpointLocation", "queryName")
"""Options of a streaming query; Spark passes them to the sink, too."""
_MAX_FILES_PER_TRIGGER: Final = 1000
"""Delta's default."""
_SIZE: Final = re.compile(r"([0-9]+)\s*(?:([kmgtp])?b?)")
"""A number of bytes with a unit, as Spark reads it: 1k is 1024."""
_TASK_BYTES: Final = 64 * 2**20
_TASK_FILES: Final = 16
"""A task reads at most this many files and bytes, but at least one file."""
_BATCH_ROWS: Final = 131_072
_QUERY_ID: Final = "sql.streaming.queryId"
"""The local property that holds the id of a streaming query in its tasks. After a restart from the same checkpoint
location, the id is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The location of the tables, for other processes on the driver's host."""

    directory: str | None = None
    address: Address | None = None
    """The address of a server, without the token."""
    token_file: str | None = None
    time_zone: str = "UTC"

    @classmethod
    def of(cls, warehouse: AnyWarehouse | None, *, time_zone: str = "UTC") -> Connection:
        """`time_zone`: the session's, because other processes have no session."""
        connection = cls(time_zone=time_zone)
        if isinstance(warehouse, Warehouse):
            return dataclasses.replace(connection, directory=str(warehouse.directory))
        if isinstance(warehouse, RemoteWarehouse):
            address = warehouse.owner.address
            return dataclasses.replace(
                connection,
                address=dataclasses.replace(address, token=None),
                token_file=None if address.token is None else _private_file(address.token),
            )
        return connection

    def warehouse(self) -> AnyWarehouse | None:
        if self.directory is not None:
            return refimpl.open(self.directory)
        if self.address is None:
            return None
        from refimpl.remote_owner.owner import RemoteOwner
        from refimpl.storage.environment import Environment

        token = None if self.token_file is None else Path(self.token_file).read_text(encoding="ascii")
        environment = Environment()
        return RemoteWarehouse(RemoteOwner(dataclasses.replace(self.address, token=token), environment), environment)


@cache
def _tables(connection: Connection) -> Tables:
    """Kept for the life of the process: a table's handle reads only the commits that it has not read yet."""
    return Tables(connection.warehouse())


@cache
def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="delta-owner-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _private_file(token: str) -> str:
    """A file with the token. Only this user can read it, and it is deleted when this process ends."""
    descriptor, path = tempfile.mkstemp(dir=_private_folder())
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    return path


def register(tables: TableAccess) -> None:
    """Make `delta-owner` a format of the session, for these tables. Replaces an earlier registration."""
    spark = tables.spark
    connection = Connection.of(tables.warehouse, time_zone=tables.time_zone)
    # Spark looks the name up in its active session, too, and rejects a name of another session. This call makes
    # `spark` the active session.
    spark.createDataFrame([], "id long")
    spark.dataSource.register(_source(connection))


@cache
def _source(connection: Connection) -> type[DeltaOwnerSource]:
    """The same class for equal connections: their scans in a query then share a version (`PlanReads.java`)."""
    return type("DeltaOwner", (DeltaOwnerSource,), {"connection": connection})


class DeltaOwnerSource(datasource.DataSource):
    """One use of the format. Spark creates it, and copies it to the processes that plan and commit."""

    connection: ClassVar[Connection]
    _version: int | None = None
    """The version that gave Spark the schema."""

    @classmethod
    def name(cls) -> str:
        return NAME

    # Reading

    def schema(self) -> StructType:
        self._check_options(_TIME_TRAVEL, _FEED, _STREAM)
        snapshot = self._snapshot()
        self._version = snapshot.version
        schema = FeedReader(layout=snapshot.layout).schema if self._feed else snapshot.schema
        return spark_schema(schema)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """Called once for a query, by the rule of `plan_reads`: its scans with the same options share the files."""
        self._version = None
        self._check_options(_TIME_TRAVEL, _FEED)
        if self._feed:
            given = [name for name in _TIME_TRAVEL if name in self.options]
            if given:
                raise InvalidRequestError(f"the options {given[0]} and readChangeFeed are mutually exclusive")
            table, (first, last) = self._table(), self._range()
            reader, files = table.change_files(first, last)
            mark = None if self._has_end else plan_reads.mark(table.snapshot(version=last))
            return _Reader(_Rows.of(reader, schema, feed=True), _tasks(files, mark))
        given = [name for name in _FEED if name in self.options]
        if given:
            raise InvalidRequestError(f"the option {given[0]} needs readChangeFeed=true")
        snapshot = self._snapshot()
        files = [ChangedFile(version=snapshot.version, timestamp=0, file=add) for add in snapshot.files.values()]
        stated = any(name in self.options for name in _TIME_TRAVEL)
        mark = None if stated else plan_reads.mark(snapshot, schema.names)
        request = parquet_request(snapshot, tuple(snapshot.files.values()))
        return _Reader(_Rows.of(FeedReader(layout=snapshot.layout), schema, feed=False), _tasks(files, mark, request))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - PySpark's name
        try:
            return self._stream_reader(schema)
        except DeltaError as error:  # raised later: an error of this method makes PySpark raise `UnboundLocalError`
            return _StreamReader(error, None, max_files=None, max_bytes=None)

    def _stream_reader(self, schema: StructType) -> _StreamReader:
        self._check_options(_STREAM)
        options = StreamOptions(
            starting_version=self._starting_version(),
            starting_timestamp=self._time("startingTimestamp"),
            feed=self._feed,
            ignore_deletes=truth("ignoreDeletes", self.options.get("ignoreDeletes")),
            skip_change_commits=truth("skipChangeCommits", self.options.get("skipChangeCommits")),
        )
        table, snapshot = self._table(), self._snapshot()
        return _StreamReader(
            TableStream(table, options, of=snapshot),
            _Rows.of(FeedReader(layout=snapshot.layout), schema, feed=self._feed),
            max_files=self._number("maxFilesPerTrigger", least=1),
            max_bytes=self._size("maxBytesPerTrigger"),
        )

    @property
    def _feed(self) -> bool:
        return truth("readChangeFeed", self.options.get("readChangeFeed"))

    @property
    def _has_end(self) -> bool:
        """Whether a read of the change data feed states its last version."""
        return "endingVersion" in self.options or "endingTimestamp" in self.options

    def _range(self) -> tuple[int, int]:
        """The first and last version of a read of the change data feed."""
        for first, second, needed in (
            ("startingVersion", "startingTimestamp", True),
            ("endingVersion", "endingTimestamp", False),
        ):
            given = (first in self.options) + (second in self.options)
            if given > 1 or (needed and not given):
                wanted = "exactly" if needed else "at most"
                raise InvalidRequestError(f"readChangeFeed needs {wanted} one of the options {first} and {second}")
        return change_feed.versions(
            self._table().snapshot().commit_times(),
            from_version=self._number("startingVersion"),
            to_version=self._number("endingVersion"),
            from_timestamp=self._time("startingTimestamp"),
            to_timestamp=self._time("endingTimestamp"),
        )

    def _snapshot(self) -> Snapshot:
        """The version that gave Spark the schema; without one, the version that the options name."""
        table, version, moment = self._table(), self._version, None
        if version is None and self._feed and self._has_end:
            version = self._range()[1]
        elif version is None:
            version, moment = self._number("versionAsOf"), self._time("timestampAsOf")
        newest = table.snapshot()
        if (version is None and moment is None) or version == newest.version:
            return newest
        return table.snapshot(version=version, timestamp=moment)

    # Writing

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceArrowWriter:
        self._check_options(WRITE_OPTIONS, ("partitionBy",))
        default_mode = self.options.get(plan_reads.MODE, "static")
        return _Writer(self._plan(schema, overwrite=overwrite, default_mode=default_mode))

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamArrowWriter:  # noqa: N802
        self._check_options(("mergeSchema", "overwriteSchema", "partitionBy"), _OF_QUERY)
        try:
            return _StreamWriter(self._plan(schema, overwrite=overwrite, default_mode="static"))
        except OwnerUnavailableError as error:  # raised later: Spark needs a writer to abort a batch, too
            return _StreamWriter(error)

    def _plan(self, schema: StructType, *, overwrite: bool, default_mode: str) -> _Work:
        if plan_reads.KEY not in self.options:
            raise InvalidRequestError(
                "cannot find the tables that the query reads: Spark's optimizer did not run the rule that "
                "refimpl.spark.connect adds to the session (spark.experimental.extraOptimizations); connect it again"
            )
        given = table_schema_of(schema)
        columns = self.options.get("partitionBy")
        partition_by = None if columns is None else tuple(name.strip() for name in columns.split(","))
        options = WriteOptions.parse(
            self.options, overwrite=overwrite, default_mode=default_mode, partition_by=partition_by
        )
        table = self._existing(given, given.spelled(partition_by or ()))
        snapshot = table.transaction().snapshot  # raises for a table that cannot be written, before a task writes
        plan = WritePlan.of(snapshot, given, options, in_utc=is_utc(self.options.get(plan_reads.ZONE, "")))
        plan = dataclasses.replace(plan, reads=plan_reads.decoded(self.options[plan_reads.KEY]))
        check_columns_of(given, plan.schema, filled=plan.rules.filled)
        return _Work(plan=plan, connection=self.connection, reference=self._reference())

    def _existing(self, schema: Struct, partition_columns: Sequence[str]) -> Table:
        """The table; created, empty, if it is missing."""
        tables, reference = _tables(self.connection), self._reference()
        target: NamedTarget | PathTarget
        if reference.startswith("/"):
            target = PathTarget(tables, Path(reference))
        else:
            target = NamedTarget(tables, reference, {"properties": {}})
        table = target.find()
        if table is not None:
            return table
        try:
            return target.begin(schema, partition_columns).finish(())
        except (NameTakenError, LocationError):
            table = target.find()  # another writer created it in the meantime
            if table is None:
                raise
            return table

    # Options

    def _reference(self) -> str:
        """The table's name, or its absolute path."""
        given = [self.options[name] for name in _COMMON if name in self.options]
        if len(given) > 1:
            raise InvalidRequestError("the options path and table are mutually exclusive; give one of them")
        if "paths" in self.options:
            raise InvalidRequestError(f"several tables {self.options['paths']}; expected one: load each, and use union")
        if not given or _OF_CATALOG in self.options:
            raise InvalidRequestError(
                "no table given; Spark's catalog keeps neither path nor options of a table of this format; use "
                f"spark.read.format('{NAME}').load('name'), df.write.format('{NAME}').save('name'), or in SQL CREATE "
                f"TEMPORARY VIEW v USING `{NAME}` OPTIONS (table 'name')"
            )
        reference = str(given[0]).removeprefix("file://")
        reference = reference.removeprefix("file:")
        if "/" in reference and not reference.startswith("/"):
            raise InvalidRequestError(f"invalid table {reference!r}; expected a name or an absolute path")
        return reference

    def _table(self) -> Table:
        return _table(self.connection, self._reference())

    def _check_options(self, *known: Sequence[str]) -> None:
        self._reference()
        names = dict.fromkeys(name for group in (*known, _COMMON) for name in group)
        lower = {name.lower() for name in (*names, *plan_reads.OPTIONS)}
        for given in self.options:
            if given.lower() not in lower:
                raise InvalidRequestError(f"unknown option {given!r}; expected {', '.join(names)}", option=given)

    def _number(self, name: str, *, least: int = 0) -> int | None:
        text = self.options.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise InvalidRequestError(f"invalid {name} {text!r}; expected a number >= {least}", option=name)
        return int(text)

    def _size(self, name: str) -> int | None:
        """In bytes. As in Delta, the option may have a unit: `64m`, `10g`."""
        text = self.options.get(name)
        if text is None:
            return None
        size = _SIZE.fullmatch(text.strip().lower())
        if size is None or int(size[1]) == 0:
            raise InvalidRequestError(
                f"invalid {name} {text!r}; expected bytes >= 1, such as 1048576 or 64m", option=name
            )
        return int(size[1]) << 10 * " kmgtp".index(size[2] or " ")

    def _starting_version(self) -> int | Literal["latest"] | None:
        if self.options.get("startingVersion", "").lower() == "latest":
            return "latest"
        return self._number("startingVersion")

    def _time(self, name: str) -> int | None:
        """In ms since the epoch. The option is a time, or ms since the epoch: Spark passes numbers as text."""
        text = self.options.get(name)
        if text is None or (len(text) > len("YYYYMMDD") and text.isascii() and text.isdecimal()):
            return None if text is None else int(text)
        return milliseconds_of(text, self.connection.time_zone, name)


def _table(connection: Connection, reference: str) -> Table:
    tables = _tables(connection)
    return tables.by_path(Path(reference)) if reference.startswith("/") else tables.by_name(reference)


# Tasks that read


class _Files(datasource.InputPartition):
    """The files of one task. The first task also has the mark of the read, and the request for Spark's own reader."""

    def __init__(self, files: Sequence[ChangedFile], read: str | None = None, request: str | None = None) -> None:
        super().__init__(list(files))
        self.read = read
        self.request = request

    def __reduce__(self) -> tuple[object, ...]:
        """`PlanReads.java` reads the two texts, and need not know how the files are pickled."""
        return _files, (self.read, self.request, pickle.dumps(self.value))


def _files(read: str | None, request: str | None, pickled: bytes) -> _Files:
    return _Files(pickle.loads(pickled), read, request)  # noqa: S301 - of `__reduce__`, by way of Spark


def _tasks(
    files: Sequence[ChangedFile], read: str | None = None, request: str | None = None
) -> list[datasource.InputPartition]:
    """At least one task, because the first one shows the read."""
    tasks: list[datasource.InputPartition] = []
    waiting: list[ChangedFile] = []
    size = 0
    for file in files:
        if waiting and (len(waiting) >= _TASK_FILES or size + (file.file.size or 0) > _TASK_BYTES):
            tasks.append(_Files(waiting))
            waiting, size = [], 0
        waiting.append(file)
        size += file.file.size or 0
    if waiting or not tasks:
        tasks.append(_Files(waiting))
    tasks[0] = _Files(tasks[0].value, read, request)
    return tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Reads the rows of files, in tasks. It knows columns and paths, and no owner."""

    feed: FeedReader
    given: StructType
    """The columns of the rows in Spark's types: all of the table's columns, or some."""
    with_changes: bool

    @classmethod
    def of(cls, reader: FeedReader, given: StructType, *, feed: bool) -> _Rows:
        """`given`: the schema that Spark requests, or that the user gave."""
        available = spark_schema(reader.schema if feed else reader.layout.schema)
        columns = {field.name: field.dataType.simpleString() for field in available.fields}
        for field in given.fields:
            if columns.get(field.name) != field.dataType.simpleString():
                raise InvalidRequestError(
                    f"invalid schema: the column {field.name!r} of {field.dataType.simpleString()} is not among the "
                    f"table's columns, {available.simpleString()}; leave out the schema, or choose among them; if the "
                    "table has changed, create the frame or view again"
                )
        return cls(feed=reader, given=given, with_changes=feed)

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        target = to_arrow_schema(self.given, timezone="UTC")
        for changed in partition.value:
            for rows in self._tables(changed):
                yield from rows.select(target.names).cast(target).to_batches(max_chunksize=_BATCH_ROWS)

    def _tables(self, changed: ChangedFile) -> Iterator[pa.Table]:
        if self.with_changes:
            for batch in self.feed.read([changed]):
                yield pa.Table.from_batches([batch])
        else:
            names, layout = set(self.given.names), self.feed.layout
            needed = Struct(fields=tuple(column for column in layout.schema.fields if column.name in names))
            yield read_file(layout, changed.file, needed)


class _Reader(datasource.DataSourceReader):
    def __init__(self, rows: _Rows, tasks: Sequence[datasource.InputPartition]) -> None:
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return self._tasks

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def __getstate__(self) -> dict[str, object]:
        return {"_rows": self._rows, "_tasks": ()}


class _StreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A process on the driver's host keeps it for the life of the query; tasks get a copy that only reads."""

    def __init__(
        self,
        stream: TableStream | DeltaError | None,
        rows: _Rows | None,
        *,
        max_files: int | None,
        max_bytes: int | None,
    ) -> None:
        self._stream = stream
        self._rows = rows
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._until: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _stream_task, (self._rows,)

    @property
    def _source(self) -> TableStream:
        if isinstance(self._stream, DeltaError):
            raise self._stream
        assert self._stream is not None, "a task plans nothing"
        return self._stream

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        return _to_json(self._source.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        if self._max_files is None and self._max_bytes is not None:
            return ReadMaxFiles(2**31 - 1)
        return ReadMaxFiles(self._max_files or _MAX_FILES_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        self._until = self._source.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's
        everything = isinstance(limit, ReadAllAvailable)
        return _to_json(
            self._source.end(
                _offset(start),
                max_files=limit.max_files if isinstance(limit, ReadMaxFiles) else None,
                max_bytes=None if everything else self._max_bytes,
                until=self._until,
            )
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        return _tasks(self._source.files(_offset(start), _offset(end)))

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        assert self._rows is not None
        return self._rows.read(partition)


def _stream_task(rows: _Rows) -> _StreamReader:
    return _StreamReader(None, rows, max_files=None, max_bytes=None)


def _to_json(offset: Offset) -> dict[str, Any]:
    return dict(msgspec.to_builtins(offset))


def _offset(given: dict[str, Any]) -> Offset:
    try:
        return msgspec.convert(given, Offset)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"invalid offset {given} in the checkpoint of the query: {error}") from error


# Tasks that write, and the commit


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message(datasource.WriterCommitMessage):
    """The result of a task: rows of `commit_protocol.MESSAGE_SCHEMA`."""

    rows: pa.Table
    query_id: str | None
    plan: WritePlan
    """The plan by which the task wrote its files. Spark creates a new writer to commit a batch of a stream. By then the
    table may have other columns, or the name may mean another table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One write, as all of its processes know it."""

    plan: WritePlan
    connection: Connection
    reference: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> _Message:
        """In a task: write the rows to durable files, which no log names yet."""
        context = TaskContext.get()
        assert context is not None
        return self.run(
            batches,
            split=context.partitionId(),
            attempt=context.taskAttemptId(),
            query_id=context.getLocalProperty(_QUERY_ID),
        )

    def run(
        self, batches: Iterator[pa.RecordBatch], *, split: int, attempt: int, query_id: str | None = None
    ) -> _Message:
        """The same for attempt `attempt` of task `split` of a query, also outside Spark."""
        names = {name.lower(): name for name in self.plan.schema.names}
        renamed = (batch.rename_columns([names[name.lower()] for name in batch.schema.names]) for batch in batches)
        rows = self.plan.task.run(renamed, split=split, attempt=attempt)
        return _Message(rows=pa.Table.from_batches([rows]), query_id=query_id, plan=self.plan)

    def table(self) -> Table:
        return _table(self.connection, self.reference)

    def files(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> JobFiles:
        """The files of all tasks. If a task rejected its rows, this raises its error and deletes the other tasks'
        files."""
        written = pa.concat_tables([message.rows for message in messages if isinstance(message, _Message)])
        return gather_or_delete(written, self.plan.table)

    def commit(self, files: JobFiles, **batch: Any) -> None:
        """On the driver: commit the files in one transaction. If the batch is committed already, delete the files,
        unless the log names them: then the same messages were committed before, or meanwhile."""
        table = self.table()
        if _is_committed(table.snapshot(), files):
            return
        transaction = self.plan.begin(table, **batch)
        if transaction is not None:
            self.plan.commit(transaction, files, named=lambda: _is_committed(table.snapshot(), files))
        elif not _is_committed(table.snapshot(), files):  # an earlier request with them may have arrived since
            data_files.delete(self.plan.table, files.added)


def _is_committed(snapshot: Snapshot, files: JobFiles) -> bool:
    return any(add.key in known for add in files.added for known in (snapshot.files, snapshot.tombstones))


class _Writer(datasource.DataSourceArrowWriter):
    def __init__(self, work: _Work) -> None:
        self.work = work

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return self.work.write(iterator)

    def commit(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        self.work.commit(self.work.files(messages))

    def abort(self, messages: list[datasource.WriterCommitMessage | None]) -> None:
        """Does nothing: DELTA.md#aborts."""


class _StreamWriter(datasource.DataSourceStreamArrowWriter):
    """Commits each batch exactly once, by DELTA.md#stream-sink. The query id comes from the tasks, the batch id from
    Spark. Both are the same when Spark repeats a batch after a failure, or after a restart from the same checkpoint
    location.

    Durability order: each task's files and folders are durable before it reports them, and one transaction names them.
    After a failed commit that may have landed, the files stay; the repeated batch finds out whether it landed.
    """

    def __init__(self, work: _Work | OwnerUnavailableError) -> None:
        self._work = work

    @property
    def work(self) -> _Work:
        if isinstance(self._work, OwnerUnavailableError):
            raise self._work
        return self._work

    def __getstate__(self) -> dict[str, object]:
        """Raises the error before tasks run."""
        return {"_work": self.work}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return self.work.write(iterator)

    def commit(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        query = _query_id(messages)
        written = next(message.plan for message in messages if isinstance(message, _Message))
        work = dataclasses.replace(self.work, plan=written)
        files = work.files(messages)
        if not files.added and not work.plan.options.overwrite:
            return
        mode = "Complete" if work.plan.options.overwrite else "Append"
        work.commit(
            files,
            app=(query, batchId),
            operation="STREAMING UPDATE",
            parameters={"outputMode": mode, "queryId": query, "epochId": str(batchId)},
        )

    def abort(self, messages: list[datasource.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: DELTA.md#aborts."""


def _query_id(messages: Sequence[datasource.WriterCommitMessage | None]) -> str:
    """The id of the streaming query, on which all tasks of the batch agree."""
    ids = {message.query_id for message in messages if isinstance(message, _Message)}
    if len(ids) != 1 or None in ids:
        raise CorruptionError(
            f"the tasks of a batch report the query ids {sorted(map(str, ids))}; expected one: without it, "
            "a repeated batch could not be recognized; nothing is committed"
        )
    (query,) = ids
    assert query is not None
    return query
