"""The tasks and the driver of a write job. Most tests run the tasks without a session, and collect their messages;
the last ones run the delayed commit protocol in Spark: DELTA.md#data-files-of-a-distributed-write.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException

from refimpl.client.create import create_filesystem_table
from refimpl.protocol.actions import Add, Metadata, encode
from refimpl.protocol.errors import CorruptionError, InvalidRequestError
from refimpl.rows import data_files, file_statistics, partition_values
from refimpl.rows.partition_values import FileLayout
from refimpl.rows.row_rules import SPLITS, RowRules
from refimpl.schema import schema
from refimpl.schema.features import PLAIN_PROTOCOL, supporting
from refimpl.spark import DeltaConnection, frames
from refimpl.spark.commit_protocol import MESSAGE_SCHEMA, WriteTask, gather
from refimpl.spark.write_plan import WriteOptions, WritePlan
from spec_tests.support.faults import ScriptedHost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ROWS = pa.table({"id": pa.array(range(9), pa.int64()), "month": pa.array([n % 3 for n in range(9)], pa.int32())})


def task(location: Path, rows: pa.Table, *partition_columns: str) -> WriteTask:
    columns = schema.from_arrow(rows.schema)
    layout = FileLayout(location=location, schema=columns, partition_columns=partition_columns)
    return WriteTask(layout=layout, indexed=file_statistics.indexed(columns))


def run(location: Path, rows: pa.Table, *partition_columns: str, split: int = 0, attempt: int = 0) -> pa.RecordBatch:
    return task(location, rows, *partition_columns).run(iter(rows.to_batches()), split=split, attempt=attempt)


def messages(*batches: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches(batches)


def on_disk(location: Path) -> set[Path]:
    return set(location.rglob("*.parquet"))


def test_every_file_of_every_task_is_gathered(tmp_path: Path) -> None:
    sent = messages(run(tmp_path, ROWS, "month", split=1), run(tmp_path, ROWS, "month", split=0))
    files = gather(sent)
    assert len(files.added) == 6
    assert {partition_values.local_path(tmp_path, add.path) for add in files.added} == on_disk(tmp_path)
    assert [add.path.rpartition("part-")[2][:5] for add in files.added] == ["00000"] * 3 + ["00001"] * 3


def test_change_data_has_its_own_files(tmp_path: Path) -> None:
    marked = ROWS.append_column("__is_cdc", pa.array(["true", "false", "false"] * 3))
    files = gather(messages(run(tmp_path, marked, "__is_cdc")))
    assert (len(files.added), len(files.changes)) == (1, 1)
    assert "_change_data" in files.changes[0].path


def test_table_without_a_feed_may_have_a_change_type_column(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "_change_type": ["own", None]})
    columns = [*rows.columns, pa.array(["copy", "delete"]), pa.array(["false", "none"])]
    marked = pa.Table.from_arrays(columns, [*rows.column_names, "_change_type", "__is_cdc"])
    work = dataclasses.replace(task(tmp_path, rows), new_rows={})
    files = gather(messages(work.run(iter(marked.to_batches()), split=0, attempt=0)))
    assert files.counts == {"copy": 1, "delete": 1}
    (path,) = on_disk(tmp_path)
    assert parquet.read_table(path).to_pylist() == [{"id": 1, "_change_type": "own"}]


def test_two_attempts_of_one_task_are_rejected(tmp_path: Path) -> None:
    for attempts in ((1, 2), (2, 1)):
        sent = messages(*(run(tmp_path, ROWS, split=4, attempt=attempt) for attempt in attempts))
        with pytest.raises(CorruptionError) as caught:
            gather(sent)
        assert caught.value.split == 4
    (first,), (second,) = (gather(messages(run(tmp_path, ROWS, split=4, attempt=n))).added for n in (1, 2))
    assert first.path != second.path


@pytest.mark.parametrize("path", ["/data/x.parquet", "file:/x.parquet", "../x.parquet", "a/../../x.parquet", "a/.."])
def test_a_file_outside_of_the_table_is_refused(tmp_path: Path, path: str) -> None:
    added = Add(path=path, partition_values={}, size=1, modification_time=0, data_change=True)
    sent = run(tmp_path, ROWS)
    sent = sent.set_column(2, "action", pa.array([encode([added]).decode()]))
    with pytest.raises(InvalidRequestError) as caught:
        gather(messages(sent))
    assert caught.value.path == path


def test_location_may_contain_any_character(tmp_path: Path) -> None:
    add = Add(path="a=..x/x%3Ay.parquet", partition_values={}, size=1, modification_time=1, data_change=True)
    sent = run(tmp_path, ROWS).set_column(2, "action", pa.array([encode([add]).decode()]))
    assert gather(messages(sent)).added == (add,)


def test_task_that_rejects_its_rows_is_an_error(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", "x" * 300]})  # too long for the name of a folder
    with pytest.raises(InvalidRequestError):
        gather(messages(run(tmp_path, rows, "name")))
    assert on_disk(tmp_path) == set()


def test_current_time_is_the_same_in_all_tasks(tmp_path: Path) -> None:
    """A task makes the rules again from the plan."""
    host = ScriptedHost()
    at = pa.field("at", pa.timestamp("us", "UTC"), metadata={"CURRENT_DEFAULT": "current_timestamp()"})
    table = create_filesystem_table(tmp_path / "t", host.environment(), pa.schema([("id", pa.int64()), at]))
    plan = WritePlan.of(table.snapshot(), schema.from_arrow(ROWS.select(["id"]).schema), WriteOptions(), in_utc=True)
    rules = plan.task.rules
    assert rules is not None
    assert rules.defaults["at"][1].value == host.clock * 1000


def test_rows_are_written_in_their_order(tmp_path: Path) -> None:
    halves = iter([*ROWS.slice(0, 5).to_batches(), *ROWS.slice(5).to_batches()])
    (add,) = gather(messages(task(tmp_path, ROWS).run(halves, split=0, attempt=0))).added
    assert parquet.read_table(tmp_path / add.path).equals(ROWS)


@pytest.mark.parametrize("step", [3, -3])
def test_identity_values_of_different_tasks_differ(tmp_path: Path, step: int) -> None:
    """DELTA.md#identity-columns. The table's high water mark moves beyond the values of all tasks."""
    metadata = {"delta.identity.start": 7, "delta.identity.step": step, "delta.identity.allowExplicitInsert": False}
    long = schema.Primitive(name="long")
    columns = schema.Struct(
        fields=(schema.Field(name="id", type=long, metadata=metadata), schema.Field(name="x", type=long))
    )
    described = Metadata(id="t", schema_string=columns.to_json(), partition_columns=(), configuration={})
    rules = RowRules.of(supporting(PLAIN_PROTOCOL, ["identityColumns"]), described, now=0)
    layout = FileLayout(location=tmp_path, schema=columns)
    work = WriteTask(layout=layout, indexed=frozenset(), columns=("x",), rules=rules)
    rows = pa.table({"x": ROWS["id"]})
    files = gather(messages(*(work.run(iter(rows.to_batches()), split=n, attempt=n) for n in range(3))))
    ids = [number for add in files.added for number in parquet.read_table(tmp_path / add.path)["id"].to_pylist()]
    assert len(set(ids)) == len(ids) == 27
    assert {(number - 7) % 3 for number in ids} == {0}
    rules.advance(files.identities)
    advanced = rules.advanced(described)
    assert advanced is not None
    assert schema.parse(advanced.schema_string)["id"].metadata["delta.identity.highWaterMark"] == ids[-1]
    with pytest.raises(InvalidRequestError, match="coalesce"):
        gather(messages(work.run(iter(rows.to_batches()), split=SPLITS, attempt=9)))


def failing(*_: object) -> None:
    raise OSError("the disk failed")


def test_task_that_fails_deletes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DELTA.md#aborts: VACUUM deletes the files, which no message names."""
    monkeypatch.setattr(data_files, "sync_folders", failing)
    with pytest.raises(OSError, match="the disk failed"):
        run(tmp_path, ROWS, "month")
    assert len(on_disk(tmp_path)) == 3


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
