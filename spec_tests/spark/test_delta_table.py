"""DELETE, UPDATE, MERGE and the change data feed on Spark: the same rows, metrics and feed as with the plain client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.errors import ConcurrentDeleteReadError, InvalidRequestError
from refimpl.spark import DeltaConnection
from refimpl.spark.delta_table import DeltaMerge, DeltaTable
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32()), ("name", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true"}
ROWS = pa.table(
    {"id": [1, 2, None, 4, 5, 6], "month": [1, 1, 1, 2, 2, None], "name": ["a: b", None, "c", "d", "e", "f"]},
    schema=SCHEMA,
)
SOURCE = pa.table({"id": [2, 4, 7, None], "month": [1, 2, 3, 1], "name": ["B", "D", "G", "N"]}, schema=SCHEMA)


def made(warehouse: Warehouse, name: str, columns: tuple[str, ...] = ("month", "name")) -> Table:
    table = warehouse.create_table(name, SCHEMA, partition_columns=columns, properties=FEED)
    table.append(ROWS)
    return table


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.snapshot().to_arrow().to_pylist()), key=str)


def feed_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("_commit_version", "_change_type", "id", "month", "name")
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def on_spark(table: DeltaTable, spark: SparkSession) -> Any:
    return table.merge(spark.createDataFrame(SOURCE), "target.id = source.id AND target.month < 9")


def plainly(table: Table) -> Any:
    return table.merge(SOURCE, "target.id = source.id AND target.month < 9")


OPERATIONS: list[tuple[str, Callable[[DeltaTable, SparkSession], Any], Callable[[Table], Any]]] = [
    ("DELETE", lambda t, _: t.delete("id > 1 AND name <> 'd'"), lambda t: t.delete("id > 1 AND name <> 'd'")),
    ("DELETE of partitions", lambda t, _: t.delete("month = 2"), lambda t: t.delete("month = 2")),
    ("DELETE of nothing", lambda t, _: t.delete("id = 99"), lambda t: t.delete("id = 99")),
    (
        "UPDATE",
        lambda t, _: t.update({"month": "month + 1", "name": "upper(name)"}, "id <> 5"),
        lambda t: t.update({"month": "month + 1", "name": "upper(name)"}, "id <> 5"),
    ),
    (
        "MERGE",
        lambda t, spark: (
            on_spark(t, spark)
            .whenMatchedDelete("source.name = 'B'")
            .whenMatchedUpdate(set={"name": "concat(source.name, target.name)"})
            .whenNotMatchedInsertAll("source.id IS NOT NULL")
            .whenNotMatchedBySourceUpdate("target.id = 1", {"month": 8})
            .whenNotMatchedBySourceDelete("target.id > 5")
            .execute()
        ),
        lambda t: (
            plainly(t)
            .when_matched_delete("source.name = 'B'")
            .when_matched_update({"name": "source.name || target.name"})
            .when_not_matched_insert_all("source.id IS NOT NULL")
            .when_not_matched_by_source_update({"month": 8}, "target.id = 1")
            .when_not_matched_by_source_delete("target.id > 5")
            .execute()
        ),
    ),
    (
        "MERGE that only inserts",
        lambda t, spark: on_spark(t, spark).whenNotMatchedInsert(values={"id": "source.id"}).execute(),
        lambda t: plainly(t).when_not_matched_insert({"id": "source.id"}).execute(),
    ),
]


USUAL = ("DELETE of partitions", "MERGE")
"""In the usual tests; the others are run with those of the engines."""


@pytest.mark.parametrize(
    ("spark_does", "client_does"),
    [pytest.param(*does, id=name, marks=() if name in USUAL else pytest.mark.engines) for name, *does in OPERATIONS],
)
def test_spark_and_the_plain_client_agree(
    delta: DeltaConnection,
    warehouse: Warehouse,
    spark_does: Callable[[DeltaTable, SparkSession], Any],
    client_does: Callable[[Table], Any],
) -> None:
    """Rows, versions, metrics of rows, and the feed, which tasks read here."""
    left, right = made(warehouse, "left", ("month",)), made(warehouse, "right", ("month",))
    theirs, ours = spark_does(delta.table("left"), delta.spark), client_does(right)
    assert rows_of(left) == rows_of(right)
    assert theirs.version == ours.version
    assert {k: v for k, v in theirs.metrics.items() if "Rows" in k} == {
        k: v for k, v in ours.metrics.items() if "Rows" in k
    }
    feed = [row.asDict() for row in delta.table("left").changes(1).collect()]
    assert feed_of(feed) == feed_of(right.changes(1).read_all().to_pylist())
    parameters = [table.history(1)[0].parameters for table in (left, right)]
    assert parameters[0].keys() == parameters[1].keys()


def test_only_touched_files_are_rewritten_and_found_by_their_escaped_paths(
    delta: DeltaConnection, warehouse: Warehouse
) -> None:
    table = made(warehouse, "escaped")
    before = set(table.snapshot().files)
    delta.table("escaped").update({"id": "10"}, "name LIKE 'a%' AND id = 1")
    assert len(before - set(table.snapshot().files)) == 1
    assert rows_of(table)[0] == (10, 1, "a: b")


def test_a_condition_of_spark_alone_reads_the_whole_table(
    delta: DeltaConnection, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a removal elsewhere is a conflict, and the files of the loser are deleted."""
    table = made(warehouse, "raced")
    commit = Transaction.commit_if_needed
    raced: list[set[Path]] = []

    def after_the_winner(transaction: Transaction) -> object:
        if not raced:
            raced.append(set(table.location.rglob("*.parquet")))
            warehouse.table("raced").delete("month = 2")
        return commit(transaction)

    monkeypatch.setattr(Transaction, "commit_if_needed", after_the_winner)
    before = set(table.location.rglob("*.parquet"))
    with pytest.raises(ConcurrentDeleteReadError):
        delta.table("raced").delete("pmod(id, 2) = 1 AND month = 1")
    assert set(table.location.rglob("*.parquet")) == before
    assert table.snapshot().version == 2


def test_bad_requests_leave_no_version(delta: DeltaConnection, warehouse: Warehouse) -> None:
    table = made(warehouse, "refused", ())
    handle = delta.table("refused")
    source = delta.spark.createDataFrame(SOURCE)
    for attempt in (
        lambda: handle.delete("id < rand()"),
        lambda: handle.delete("id IN (SELECT 1)"),
        lambda: handle.update({"id": "rand()"}),
        lambda: handle.update({"price": "1"}),
        lambda: handle.update({}),
        lambda: on_spark(handle, delta.spark).execute(),
        lambda: on_spark(handle, delta.spark).whenMatchedDelete("uuid() > 'a'").execute(),
    ):
        with pytest.raises(InvalidRequestError):
            attempt()
    for clause in (DeltaMerge.whenMatchedUpdateAll, DeltaMerge.whenNotMatchedBySourceDelete):
        with pytest.raises(InvalidRequestError, match="id = "):
            clause(handle.merge(source.union(source), "target.id = source.id")).execute()
    delta.spark.conf.set("spark.sql.ansi.enabled", "false")  # a value that does not fit would be changed silently
    try:
        with pytest.raises(InvalidRequestError, match=r"spark\.sql\.ansi\.enabled"):
            handle.update({"id": "id + 1"})
    finally:
        delta.spark.conf.unset("spark.sql.ansi.enabled")
    assert table.snapshot().version == 1
