"""`delta-owner` as a format of Spark, for batches and streams. Each row is read or written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from refimpl.spark import DeltaConnection, connect
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "delta-owner"
SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32())])


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def appended(warehouse: Warehouse, name: str, *numbers: int) -> None:
    warehouse.table(name).append(pa.table({"id": list(numbers), "month": [1] * len(numbers)}, schema=SCHEMA))


@pytest.fixture
def source(delta: DeltaConnection, warehouse: Warehouse) -> str:
    """A table with the ids 0 to 2."""
    warehouse.create_table("source", SCHEMA, partition_columns=["month"])
    appended(warehouse, "source", 0, 1, 2)
    return "source"


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Run]:
    """Runs a query from `source` to `sink` until no rows are left, and returns the progress of its batches."""

    def start(sink: str = "sink", to: dict[str, str] | None = None, **options: object) -> list[dict[str, Any]]:
        rows = spark.readStream.format(FORMAT).options(**options).load("source")
        writer = rows.writeStream.format(FORMAT).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.options(**(to or {})).queryName("copy").trigger(availableNow=True).start(sink)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    return start


def test_stream_copies_each_row_once(spark: SparkSession, warehouse: Warehouse, source: str, run: Run) -> None:
    appended(warehouse, source, 3)
    assert [progress["numInputRows"] for progress in run(maxFilesPerTrigger=1)] == [3, 1]
    appended(warehouse, source, 4)
    assert len(run()) == 1
    assert run() == []
    sink = warehouse.table("sink")
    assert sorted(sink.snapshot().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    entries = sink.history()
    assert [entry.operation for entry in entries] == ["STREAMING UPDATE"] * 3 + ["CREATE TABLE"]
    (recorded,) = sink.snapshot().transactions.values()
    assert recorded.version == 2
    assert entries[0].parameters["queryId"] == recorded.app_id
    assert ids(spark.read.format(FORMAT).load("sink")) == [0, 1, 2, 3, 4]


def test_rows_of_a_failed_attempt_are_not_committed(
    spark: SparkSession, warehouse: Warehouse, source: str, tmp_path: Path
) -> None:
    """The first attempt of the task has written files, which no commit names."""
    marker = tmp_path / "failed-once"

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not marker.exists():
                marker.touch()
                raise OSError("this attempt fails")

    rows = spark.readStream.format(FORMAT).load(source).mapInArrow(failing, "id long, month int")
    writer = rows.writeStream.format(FORMAT).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start("sink").awaitTermination()
    assert marker.exists()
    assert sorted(warehouse.table("sink").snapshot().to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_stream_stops_at_a_commit_that_changes_rows(
    spark: SparkSession, warehouse: Warehouse, source: str, run: Run
) -> None:
    from pyspark.errors import StreamingQueryException

    warehouse.table(source).delete("id = 1")
    with pytest.raises(StreamingQueryException, match=r"version 2 of 'source' changes rows .*skipChangeCommits"):
        run(startingVersion=1)
    appended(warehouse, source, 5)
    run(startingVersion=1, skipChangeCommits=True)
    assert sorted(warehouse.table("sink").snapshot().to_arrow()["id"].to_pylist()) == [0, 1, 2, 5]


def test_batch_reads(spark: SparkSession, delta: DeltaConnection, warehouse: Warehouse) -> None:
    delta.write(spark.range(3)).option("delta.enableChangeDataFeed", True).saveAsTable("fed")
    delta.table("fed").delete("id = 1")

    def load(**options: object) -> DataFrame:
        return spark.read.format(FORMAT).options(**options).load("fed")

    assert ids(load()) == [0, 2]
    assert ids(load(versionAsOf=0)) == [0, 1, 2]
    changes = load(readChangeFeed=True, startingVersion=1, endingVersion=1).collect()
    assert [(row.id, row._change_type, row._commit_version) for row in changes] == [(1, "delete", 1)]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW fed_view USING `{FORMAT}` OPTIONS (table 'fed')")
    spark.sql("INSERT INTO fed_view VALUES (7)")
    assert sorted(warehouse.table("fed").snapshot().to_arrow()["id"].to_pylist()) == [0, 2, 7]
    spark.catalog.dropTempView("fed_view")


@pytest.mark.parametrize(
    ("properties", "case_sensitive", "reader"),
    [
        ({}, False, "FileScan parquet"),
        ({}, True, "BatchScan"),
        ({"delta.columnMapping.mode": "name"}, False, "BatchScan"),
    ],
)
def test_sparks_own_reader_reads_the_columns_of_plain_files(
    delta: DeltaConnection, warehouse: Warehouse, properties: dict[str, str], case_sensitive: bool, reader: str
) -> None:
    """In a case-sensitive session it would find no column that a file spells in another case."""
    warehouse.create_table("source", SCHEMA, partition_columns=["month"], properties=properties)
    appended(warehouse, "source", 0, 1, 2)
    frame = delta.spark.read.format(FORMAT).load("source")
    query = frame.where("id > 0").join(frame.selectExpr("id + 1 as id", "month as before"), "id").select("id", "before")
    delta.spark.conf.set("spark.sql.caseSensitive", case_sensitive)
    try:
        assert sorted(tuple(row) for row in query.collect()) == [(1, 1), (2, 1)]
        plan = query._jdf.queryExecution().sparkPlan().toString()
    finally:
        delta.spark.conf.unset("spark.sql.caseSensitive")
    assert plan.count(reader) == 2, plan


@pytest.mark.parametrize("replaced", [False, True])
def test_missing_or_replaced_file_is_named(
    spark: SparkSession, warehouse: Warehouse, source: str, replaced: bool
) -> None:
    from pyspark.errors import PythonException

    (file,) = warehouse.table(source).location.glob("month=1/*.parquet")
    file.unlink()
    if replaced:
        parquet.write_table(pa.table({"id": [0]}), file)
    with pytest.raises(PythonException, match=file.name):
        spark.read.format(FORMAT).load(source).collect()


def test_errors_name_the_call_to_use(spark: SparkSession, source: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=r"keeps neither path nor options.*TEMPORARY VIEW v USING"):
        spark.sql(f"CREATE TABLE never USING `{FORMAT}` OPTIONS (table '{source}')")
    with pytest.raises(AnalysisException, match="unknown option 'versionof'; expected versionAsOf, timestampAsOf"):
        spark.read.format(FORMAT).option("versionOf", 1).load(source)
    with pytest.raises(AnalysisException, match="the column 'name' of string is not among the table's columns"):
        spark.read.format(FORMAT).schema("name string").load(source).collect()


def test_second_session_has_the_format(spark: SparkSession, delta: DeltaConnection, warehouse: Warehouse) -> None:
    """Also while the first session is Spark's active session."""
    spark.createDataFrame([(1,)], "id long")
    second = connect(spark.newSession(), warehouse).spark
    try:
        warehouse.create_table("source", SCHEMA)
        appended(warehouse, "source", 7)
        assert ids(second.read.format(FORMAT).load("source")) == [7]
    finally:
        spark.createDataFrame([(1,)], "id long")  # the first session is active again
