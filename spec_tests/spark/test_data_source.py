"""`delta-owner` as a format of Spark: batch and streams, each row once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refimpl.spark import DeltaConnection
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

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
    """Runs a query from `source` to `sink` until nothing is left; progress of its batches."""

    def start(sink: str = "sink", to: dict[str, str] | None = None, **options: object) -> list[dict[str, Any]]:
        rows = spark.readStream.format(FORMAT).options(**options).load("source")
        writer = rows.writeStream.format(FORMAT).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.options(**(to or {})).trigger(availableNow=True).start(sink)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    return start


def test_a_table_goes_through_a_stream_once(spark: SparkSession, warehouse: Warehouse, source: str, run: Run) -> None:
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
