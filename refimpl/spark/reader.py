"""`delta.read...`: the rows of one version, as a data frame.

    delta.read.option("versionAsOf", 3).where("month = 3").table("flights")

The snapshot lists the files. The driver leaves out files that the condition excludes, by partition values or
statistics. Almost all files are in the folder that their partition values name. Spark's vectorized reader reads these
files: it returns exactly the snapshot's rows, with the partition columns. The log allows files that Spark's reader does
not support: in other folders or outside the table, with partition values that a folder name spells differently, or with
a leading underscore or dot in the name, which Spark silently skips. Tasks read such files through Arrow.
"""

from __future__ import annotations

import datetime
import json
import re
import warnings
import zoneinfo
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.protocol import actions
from refimpl.protocol.actions import Add
from refimpl.protocol.errors import CorruptDataError, CorruptLogError, InvalidRequestError
from refimpl.protocol.in_commit_timestamp import milliseconds
from refimpl.rows import partition_values
from refimpl.rows.partition_values import FileLayout
from refimpl.schema.schema import ColumnMapping, DataType, Field, Primitive, Struct
from refimpl.spark import plan_reads
from refimpl.spark.frames import functions, optional, quoted, spark_schema
from refimpl.spark.tables import TableAccess

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_OPTIONS: Final = ("versionAsOf", "timestampAsOf")
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>0?\d|1[0-8])(?::?(?P<minutes>[0-5]\d))?", re.ASCII)
"""An offset from UTC in Spark's syntax, without seconds."""
_BY_LOWER_CASE: Final = {name.lower(): name for name in _OPTIONS}
_READER_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED", "mergeSchema": "false",
    "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false", "parquet.page.verify-checksum.enabled": "true",
}  # fmt: skip
"""They override the session's settings. Ancient dates are read unchanged (not rebased from the Julian calendar), as in
every Delta client. A file that cannot be read is an error: an UPDATE would otherwise lose its rows."""
_PATTERN_CHARACTERS: Final = re.compile(r"([{}\[\]*?\\])")
_HIDDEN: Final = ("_", ".")
_PREFIX: Final = re.compile("[A-Za-z0-9]+")
"""A random folder, over which Delta spreads the files of a table without partitions."""
_FILES_PER_TASK: Final = 16
_MOST_TASKS: Final = 200
"""Or four for each core, if that is more: starting a task takes as long as reading several small files."""
_MOST_PATHS: Final = 50_000
"""Spark keeps each path that it gets in the driver's memory. It reads 100,000 small files in half the time if tasks
read them through Arrow."""


class DeltaReader:
    """Configured like PySpark's `DataFrameReader`: every method but the last returns the reader itself."""

    def __init__(self, access: TableAccess) -> None:
        self._access = access
        self._options: dict[str, Any] = {}
        self._conditions: list[str | Column] = []

    def option(self, key: str, value: Any) -> Self:
        """Set one option: `versionAsOf` (a version) or `timestampAsOf`.

        A time is a string (by default in the session's time zone), a `datetime`, or ms since the epoch. It means the
        version that was the newest at that time.
        """
        if key.lower() not in _BY_LOWER_CASE:
            raise InvalidRequestError(
                f"unknown option {key!r}; expected {' or '.join(_OPTIONS)}; for the change data feed, use "
                "spark.read.format('delta-owner') with readChangeFeed",
                option=key,
            )
        self._options[_BY_LOWER_CASE[key.lower()]] = value
        return self

    def options(self, **options: Any) -> Self:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def where(self, condition: str | Column) -> Self:
        """Read only rows for which the condition is true. SQL text also excludes files before Spark sees them."""
        self._conditions.append(condition)
        return self

    filter = where

    def table(self, name: str) -> DataFrame:
        """The rows of the warehouse's table of this name.

        Raises `TableNotFoundError`, `NotFoundInHistoryError` for a version or time outside the history,
        `UnsupportedFeatureError`.
        """
        return self._frame(self._access.by_name(name))

    def load(self, path: str | Path) -> DataFrame:
        """The rows of the table at this path, through its owner: see `Tables.by_path`.

        Without its owner, a managedCommit table has only its backfilled versions: a warning says so.
        Raises `PathAccessError` for a catalog-managed table of another owner.
        """
        return self._frame(self._access.by_path(Path(path).absolute()))

    def snapshot(self, table: Table) -> Snapshot:
        """The version that the options ask for."""
        version, moment = self._options.get("versionAsOf"), self._options.get("timestampAsOf")
        if version is not None and not str(version).isdecimal():
            raise InvalidRequestError(f"invalid versionAsOf {version!r}; expected a version number")
        return table.snapshot(
            version=None if version is None else int(version),
            timestamp=None if moment is None else milliseconds_of(moment, self._access.time_zone),
        )

    def _frame(self, table: Table) -> DataFrame:
        snapshot = self.snapshot(table)
        if snapshot.staleness is not None:
            warnings.warn(snapshot.staleness, stacklevel=3)
        mark = None if self._options else plan_reads.mark(snapshot)
        frame = read_files(self._access.spark, snapshot, self._files(snapshot), mark=mark)
        for condition in self._conditions:
            frame = frame.where(condition)
        return frame

    def _files(self, snapshot: Snapshot) -> Sequence[Add]:
        """The active files that may hold rows for which every condition is true. Spark filters the rows by all
        conditions, and reports invalid ones."""
        known = (self._access.file_test(snapshot, condition) for condition in self._conditions)
        tests = [test for test in known if test is not None]
        return [add for add in snapshot.files.values() if all(test.may_match(add) for test in tests)]


def milliseconds_of(moment: Any, time_zone: str, option: str = "timestampAsOf") -> int:
    """The time of an option, in ms since the epoch. `time_zone`: for a time that names no zone."""
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    try:
        time = moment if isinstance(moment, datetime.datetime) else datetime.datetime.fromisoformat(str(moment))
    except ValueError:
        raise InvalidRequestError(
            f"invalid {option} {moment!r}; expected a time such as '2024-05-01 12:00:00'"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=_zone(time_zone))
    return milliseconds(time)


def _zone(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        offset = _OFFSET.fullmatch(name)
    if offset is None:
        raise InvalidRequestError(
            f"invalid spark.sql.session.timeZone {name}; set a region such as Europe/Berlin or "
            "an offset such as +01:00, or give the time with its own offset"
        )
    distance = datetime.timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"] or 0))
    return datetime.timezone(-distance if offset["sign"] == "-" else distance)


FILE_COLUMN: Final = "__file"
"""The column with the URI of a row's file; `path_of` returns the path."""


def path_of(uri: str) -> str:
    """The path on disk for a value of `FILE_COLUMN`. Spark encodes the path once: DELTA_SPARK.md#file-paths."""
    return partition_values.decode_path(uri.removeprefix("file:"))


def read_files(
    spark: SparkSession,
    snapshot: Snapshot,
    files: Sequence[Add],
    *,
    with_file: bool = False,
    hidden: tuple[Field, ...] = (),
    mark: str | None = None,
) -> DataFrame:
    """The rows of these files of the snapshot, with the columns in the table's order; missing columns are null.

    `hidden`: the columns of `row_tracking.hidden_columns`, after the table's; tasks compute row ids and commit
    versions. `with_file`: `FILE_COLUMN` is the last column. `mark`: of `plan_reads`.
    """
    plain, other = ([], files) if hidden else _split(snapshot, files)
    parts = []
    if plain or (mark is not None and not other):
        parts.append(_read_by_spark(spark, snapshot, plain, with_file, mark))
    if other:
        parts.append(_read_by_arrow(spark, snapshot, other, with_file, hidden, mark))
    if not parts:
        return spark.createDataFrame([], _schema(snapshot, with_file, hidden))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def _split(snapshot: Snapshot, files: Sequence[Add]) -> tuple[list[Add], list[Add]]:
    """The files that Spark's own reader can read, and the others."""
    folders = _Folders(snapshot.schema, snapshot.partition_columns)
    readable = snapshot.objects is None and len(files) <= _MOST_PATHS
    plain: list[Add] = []
    other: list[Add] = []
    for add in files:
        by_spark = readable and add.deletion_vector is None and folders.tell_all(add)
        (plain if by_spark else other).append(add)
    return plain, other


def parquet_request(snapshot: Snapshot, files: Sequence[Add]) -> str | None:
    """The schema, options and paths, as JSON, with which Spark's own reader returns the rows of all these files under
    the names of the table's columns; None if it cannot, and for an empty list. `PlanReads.java` reads it."""
    if not files or snapshot.schema.is_mapped or _split(snapshot, files)[1] or not _have_stated_sizes(snapshot, files):
        return None
    schema = spark_schema(snapshot.schema).json()
    return json.dumps([schema, _reader_options(snapshot), _paths(snapshot, files)])


def _have_stated_sizes(snapshot: Snapshot, files: Sequence[Add]) -> bool:
    """If not, a file is missing or was replaced: Arrow compares more, and its error names the file."""
    try:
        return all(Path(snapshot.layout.path_of(add.path)).stat().st_size == add.size for add in files)
    except OSError:
        return False


def _reader_options(snapshot: Snapshot) -> dict[str, str]:
    return {**_READER_OPTIONS, "basePath": f"file:{snapshot.location}"}


def _paths(snapshot: Snapshot, files: Sequence[Add]) -> list[str]:
    return [_escaped(snapshot.location / partition_values.decode_path(add.path)) for add in files]


def _schema(snapshot: Snapshot, with_file: bool, hidden: tuple[Field, ...]) -> StructType:
    extra = (Field(name=FILE_COLUMN, type=Primitive(name="string")),) if with_file else ()
    return spark_schema(Struct(fields=(*snapshot.schema.fields, *hidden, *extra)))


class _Folders:
    """Decides whether Spark can read a file's partition values off its path."""

    def __init__(self, schema: Struct, partition_columns: Sequence[str]) -> None:
        self._columns = [(schema[name].physical_name, schema[name].type) for name in partition_columns]
        self._by_id = any(column.mapping is ColumnMapping.ID for column in schema.fields)
        self._known: dict[tuple[str | None, ...], str | None] = {}

    def tell_all(self, add: Add) -> bool:
        if self._by_id:
            return False
        values = tuple(add.partition_values.get(name) for name, _ in self._columns)
        if values not in self._known:
            self._known[values] = self._folder(values)
        folder, _, name = partition_values.decode_path(add.path).rpartition("/")
        fits = folder == self._known[values] or (not self._columns and _PREFIX.fullmatch(folder) is not None)
        return fits and not name.startswith(_HIDDEN) and ":" not in name

    def _folder(self, values: tuple[str | None, ...]) -> str | None:
        """The folder from which Spark would read the values; None if there is no such folder."""
        if not all(_is_canonical(text, kind) for text, (_, kind) in zip(values, self._columns, strict=True)):
            return None
        return partition_values.folder((name, text) for text, (name, _) in zip(values, self._columns, strict=True))


def _is_canonical(text: str | None, kind: DataType) -> bool:
    if text is None or text == "":
        return True
    if text == partition_values.NULL_FOLDER or kind == Primitive(name="binary"):
        return False
    try:
        return partition_values.to_text(partition_values.from_text(text, kind), kind) == text
    except CorruptLogError:
        return False


def _read_by_spark(
    spark: SparkSession, snapshot: Snapshot, files: Sequence[Add], with_file: bool, mark: str | None
) -> DataFrame:
    """Spark discovers the partition columns below `basePath`, and puts them last; `select` restores the table's order.

    With column mapping, Spark reads the physical names. A cast renames members of structs by their position.
    """
    from pyspark.errors import AnalysisException

    stored, location = snapshot.schema.physical(), snapshot.location
    options = _reader_options(snapshot) if files else _READER_OPTIONS
    reader = spark.read.schema(spark_schema(stored)).options(**options)
    reader = reader if mark is None else reader.option(plan_reads.KEY, mark)
    try:
        frame = _parquet(spark, reader, _paths(snapshot, files))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise CorruptDataError(
            f"a data file of version {snapshot.version} is missing below {location}, although the log has it (VACUUM "
            f"deletes the files of old versions; read a newer version, or restore the file): {error}",
            path=str(location),
            version=snapshot.version,
        ) from error
    columns = [functions.col(quoted(name)) for name in stored.names]
    if snapshot.schema.is_mapped:
        wanted = spark_schema(optional(snapshot.schema)).fields
        columns = [column.cast(to.dataType).alias(to.name) for column, to in zip(columns, wanted, strict=True)]
    elif not with_file and not snapshot.partition_columns:
        return frame
    file = functions.col("_metadata.file_path").alias(FILE_COLUMN)
    return frame.select(*columns, *((file,) if with_file else ()))


def _parquet(spark: SparkSession, reader: DataFrameReader, paths: list[str]) -> DataFrame:
    """`reader.parquet(*paths)`, but all paths in one call of the Java virtual machine instead of one call for each."""
    from pyspark.sql import DataFrame

    if not paths:
        return reader.parquet()
    jvm: Any = spark._jvm
    array = jvm.java.util.regex.Pattern.compile("\0").split("\0".join(paths))
    return DataFrame(reader._jreader.parquet(array), spark)


def _escaped(path: Path) -> str:
    """Escape a path, which Spark takes for a pattern. (The option `__globPaths__` would read files several times.)"""
    return "file:" + _PATTERN_CHARACTERS.sub(r"\\\1", str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadTask:
    """The function that tasks run: it reads the rows of one file after another. Picklable, like `WriteTask`."""

    layout: FileLayout
    with_file: bool = False
    hidden: tuple[Field, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from refimpl.rows.data_files import read_file

        for batch in batches:
            for line in batch.column("action").to_pylist():
                (add,) = actions.decode(line.encode(), source="a read task")
                assert isinstance(add, Add)
                rows = read_file(self.layout, add, hidden=self.hidden)
                if self.with_file:
                    uri = f"file:{partition_values.encode_path(str(self.layout.path_of(add.path)))}"
                    rows = rows.append_column(FILE_COLUMN, pa.repeat(uri, rows.num_rows))
                yield from rows.to_batches()


def _read_by_arrow(
    spark: SparkSession,
    snapshot: Snapshot,
    files: Sequence[Add],
    with_file: bool,
    hidden: tuple[Field, ...],
    mark: str | None,
) -> DataFrame:
    from pyspark.sql.types import StructType

    task = _ReadTask(layout=snapshot.layout, with_file=with_file, hidden=hidden)
    lines = [(actions.encode([add]).decode(),) for add in files]
    column = StructType().add("action", "string", metadata=None if mark is None else {plan_reads.KEY: mark})
    most = max(_MOST_TASKS, 4 * spark.sparkContext.defaultParallelism)
    tasks = min(-(-len(lines) // _FILES_PER_TASK), most)
    work = spark.createDataFrame(lines, column).repartition(tasks)
    return work.mapInArrow(task.__call__, _schema(snapshot, with_file, hidden))
