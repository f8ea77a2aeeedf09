"""The delayed commit protocol: DELTA.md#data-files-of-a-distributed-write."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from refimpl.protocol.actions import Add
from refimpl.rows import file_statistics, partition_values
from refimpl.rows.partition_values import FileLayout
from refimpl.spark import DeltaConnection, frames
from refimpl.spark.commit_protocol import MESSAGE_SCHEMA, WriteTask, gather

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """100 rows in two tasks."""
    return spark.range(0, 100, numPartitions=2).selectExpr("id", "cast(id % 3 as int) month")


def _task(location: Path, frame: DataFrame, *partition_columns: str) -> WriteTask:
    schema = frames.table_schema(frame)
    layout = FileLayout(location=location, schema=schema, partition_columns=partition_columns)
    return WriteTask(layout=layout, indexed=file_statistics.indexed(schema))


def _on_disk(location: Path) -> set[str]:
    return {str(path.relative_to(location)) for path in location.rglob("*.parquet")}


def _named(added: tuple[Add, ...]) -> set[str]:
    return {partition_values.decode_path(add.path) for add in added}


def _rows(added: tuple[Add, ...]) -> int:
    return sum(json.loads(add.stats or "")["numRecords"] for add in added)


def _dies_after_writing(task: WriteTask) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The first attempt of split 0 writes all its files, and then its process dies before it reports them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        message = task.run(batches, split=context.partitionId(), attempt=context.taskAttemptId())
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            os._exit(1)
        yield message

    return run


def test_no_message_names_the_files_of_a_killed_task(frame: DataFrame, tmp_path: Path) -> None:
    run = _dies_after_writing(_task(tmp_path, frame, "month"))
    files = gather(frame.mapInArrow(run, MESSAGE_SCHEMA).toArrow())
    assert _rows(files.added) == 100
    named, there = _named(files.added), _on_disk(tmp_path)
    assert (len(named), len(there)) == (6, 9)
    assert named < there


def test_a_failing_row_leaves_the_table_unchanged(delta: DeltaConnection, frame: DataFrame) -> None:
    bad = frame.selectExpr("case when id = 99 then raise_error('no') else id end id", "month")
    delta.write(frame).partitionBy("month").saveAsTable("t")
    with pytest.raises(PySparkException):
        delta.write(bad).mode("append").saveAsTable("t")
    table = delta.tables.by_name("t")
    snapshot = table.snapshot()
    assert snapshot.version == 0
    assert _on_disk(table.location) >= {add.path for add in snapshot.files.values()}
    assert delta.read.table("t").count() == 100
    assert delta.write(frame).mode("append").saveAsTable("t") is not None


def test_tasks_never_see_the_owner(frame: DataFrame, tmp_path: Path) -> None:
    task = _task(tmp_path, frame)
    assert b"owner" not in pickle.dumps(_task(Path("/data"), frame))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in task(batches):
            pass
        loaded = sorted(
            name for name in sys.modules if name.startswith(("apsw", "sqlite3", "filelock", "refimpl.owner"))
        )
        yield pa.RecordBatch.from_pydict({"loaded": [",".join(loaded)]})

    assert {row["loaded"] for row in frame.mapInArrow(run, "loaded string").collect()} == {""}


def test_a_write_computes_its_rows_exactly_once(delta: DeltaConnection, frame: DataFrame, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def marking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid

        (marks / str(uuid.uuid4())).touch()
        yield from batches

    delta.write(frame.mapInArrow(marking, frame.schema)).partitionBy("month").saveAsTable("t")
    assert len(list(marks.iterdir())) == 2
