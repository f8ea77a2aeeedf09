"""The data source on a table in an object store, without a session. The test runs the tasks on copies of its
objects."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refimpl
from refimpl.client.schema import Struct
from refimpl.client.table import Table
from refimpl.errors import InvalidRequestError
from refimpl.spark.tables import PathTarget, Tables
from refimpl.warehouse import Warehouse
from spec_tests.client.test_object_store import directory, objects, server, store
from spec_tests.spark.test_streaming_sink import COLUMNS, again, ids, message, source

__all__ = ["directory", "server", "store"]


@pytest.fixture
def warehouse(directory: Path) -> Iterator[Warehouse]:
    with refimpl.open(directory) as opened:
        yield opened


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    """A table with the ids 1 and 2 in the months 1 and 2."""
    schema = pa.schema([("id", pa.int64()), ("month", pa.int32())])
    made = warehouse.create_table(
        "sink",
        schema,
        partition_columns=["month"],
        location=warehouse.directory / "s3.store" / "sink",
        properties={"delta.enableChangeDataFeed": "true"},
    )
    made.append(pa.table({"id": [1, 2], "month": [1, 2]}, schema=schema))
    return made


def read(made: Any) -> list[dict[str, Any]]:
    """All rows, as tasks read them."""
    reader = made.reader(made.schema())
    partitions = [again(each) for each in reader.partitions()]
    return [row for each in partitions for batch in again(reader).read(each) for row in batch.to_pylist()]


def test_tasks_write_and_read_objects(warehouse: Warehouse, table: Table, store: str) -> None:
    writer = source(warehouse).writer(COLUMNS, False)
    writer.commit([message(writer, (3, 1), (4, 2), query=None)])
    assert ids(table) == [1, 2, 3, 4]
    assert sorted(row["id"] for row in read(source(warehouse))) == [1, 2, 3, 4]
    feed = read(source(warehouse, readChangeFeed="true", startingVersion="2"))
    assert sorted((row["id"], row["_change_type"]) for row in feed) == [(3, "insert"), (4, "insert")]
    assert (warehouse.directory / "s3.store").is_file()
    assert len([name for name in objects(store) if name.endswith(".parquet")]) == 4


def test_objects_of_an_uncommitted_job_are_deleted(warehouse: Warehouse, table: Table, store: str) -> None:
    before = objects(store)
    for end in ("abort", "commit"):
        writer = source(warehouse, replaceWhere="month = 1").writer(COLUMNS, True)
        sent = [message(writer, (3, 2), query=None)]
        assert len(objects(store) - before) == 1
        if end == "abort":
            writer.abort([*sent, None])
        else:
            with pytest.raises(InvalidRequestError, match="is not true for 1 of 1 rows"):
                writer.commit(sent)
        assert objects(store) == before
    assert ids(table) == [1, 2]


def test_write_by_path_creates_no_table_in_a_store(warehouse: Warehouse) -> None:
    target = PathTarget(Tables(warehouse), warehouse.directory / "s3.store" / "new", {"properties": {}})
    assert target.find() is None
    with pytest.raises(InvalidRequestError, match="create it first: commit-owner create NAME"):
        target.begin(Struct(), ())
