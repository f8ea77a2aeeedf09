"""The files of a snapshot as one data frame.

Almost all files stand in the folder that their partition values name; for those Spark's vectorised reader
gives exactly the snapshot's rows, partition columns included. The log allows more than Spark's reader can
be told: files in other folders, or outside the table, values that a folder spells otherwise, and names with
a leading underscore or dot, which Spark silently skips. Such files are read through Arrow, by tasks, and
joined to the rest. Nobody has to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refimpl import actions
from refimpl.actions import Add
from refimpl.client import partition_values
from refimpl.client.schema import DataType, Primitive, Struct, parse
from refimpl.client.snapshot import Snapshot
from refimpl.errors import CorruptionError, CorruptLogError
from refimpl.spark.frames import quoted, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_READER_OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
"""Ancient dates mean what they say, as in every Delta client."""
_PATTERN_CHARACTERS: Final = re.compile(r"([{}\[\]*?\\])")
_HIDDEN: Final = ("_", ".")
_FILES_PER_TASK: Final = 16


def read_files(spark: SparkSession, location: Path, snapshot: Snapshot, files: Sequence[Add]) -> DataFrame:
    """The rows of these files of the snapshot, with its columns in order; missing columns are null."""
    folders = _Folders(snapshot.schema, snapshot.partition_columns)
    plain: list[Add] = []
    other: list[Add] = []
    for add in files:
        (plain if folders.tell_all(add) else other).append(add)
    parts = []
    if plain:
        parts.append(_read_by_spark(spark, location, snapshot, plain))
    if other:
        parts.append(_read_by_arrow(spark, location, snapshot, other))
    if not parts:
        return spark.createDataFrame([], spark_schema(snapshot.schema))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


class _Folders:
    """Whether a file's place tells Spark all that its action says."""

    def __init__(self, schema: Struct, partition_columns: Sequence[str]) -> None:
        self._columns = [(name, schema[name].type) for name in partition_columns]
        self._known: dict[tuple[str | None, ...], str | None] = {}

    def tell_all(self, add: Add) -> bool:
        values = tuple(add.partition_values.get(name) for name, _ in self._columns)
        if values not in self._known:
            self._known[values] = self._folder(values)
        folder, _, name = partition_values.decode_path(add.path).rpartition("/")
        return folder == self._known[values] and not name.startswith(_HIDDEN) and ":" not in name

    def _folder(self, values: tuple[str | None, ...]) -> str | None:
        """Where Spark would find the values; None if it could not read them off a folder."""
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


def _read_by_spark(spark: SparkSession, location: Path, snapshot: Snapshot, files: Sequence[Add]) -> DataFrame:
    """Partition discovery below `basePath` gives the partition columns; Spark puts them last, the table may not."""
    from pyspark.errors import AnalysisException

    reader = spark.read.schema(spark_schema(snapshot.schema)).options(**_READER_OPTIONS)
    reader = reader.option("basePath", f"file:{location}")
    try:
        frame = reader.parquet(*(_escaped(location / partition_values.decode_path(add.path)) for add in files))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise CorruptionError(
            f"a data file of version {snapshot.version} is missing below {location}, although the log has it: {error}",
            path=str(location),
            version=snapshot.version,
        ) from error
    return frame.select(*(quoted(name) for name in snapshot.schema.names)) if snapshot.partition_columns else frame


def _escaped(path: Path) -> str:
    """Spark takes a path for a pattern. (Its option against that, `__globPaths__`, reads files several times.)"""
    return "file:" + _PATTERN_CHARACTERS.sub(r"\\\1", str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadTask:
    """What tasks run: picklable, like its counterpart for writes."""

    location: str
    schema_string: str
    partition_columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from refimpl.client.data_reading import read_file

        schema, location = parse(self.schema_string), Path(self.location)
        for batch in batches:
            for line in batch.column("action").to_pylist():
                for add in actions.decode(line.encode(), source="a read task"):
                    assert isinstance(add, Add)
                    path = partition_values.local_path(location, add.path)
                    yield from read_file(path, add, schema, self.partition_columns).to_batches()


def _read_by_arrow(spark: SparkSession, location: Path, snapshot: Snapshot, files: Sequence[Add]) -> DataFrame:
    task = _ReadTask(
        location=str(location),
        schema_string=snapshot.metadata.schema_string,
        partition_columns=snapshot.partition_columns,
    )
    lines = [(actions.encode([add]).decode(),) for add in files]
    work = spark.createDataFrame(lines, "action string").repartition(-(-len(lines) // _FILES_PER_TASK))
    return work.mapInArrow(task.__call__, spark_schema(snapshot.schema))
