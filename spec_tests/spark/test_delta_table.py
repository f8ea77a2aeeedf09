"""DELETE, UPDATE, MERGE and the change data feed: Spark and the plain client agree on rows, metrics and feed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol.errors import ConcurrentDeleteReadError, InvalidRequestError
from refimpl.spark import DeltaConnection, delta_table
from refimpl.spark.delta_table import DeltaMerge, DeltaTable
from refimpl.spark.frames import functions
from refimpl.warehouse import Warehouse
from spec_tests.rows.test_row_rules import column, generated, identity, struct
from spec_tests.spark.conftest import lose_checkpoints, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def on_spark(table: DeltaTable, spark: SparkSession) -> Any:
    return table.merge(spark.createDataFrame(SOURCE), "target.id = source.id AND target.month < 9")


def test_only_changed_files_are_rewritten_at_escaped_paths(delta: DeltaConnection, warehouse: Warehouse) -> None:
    table = made(warehouse, "escaped")
    before = set(table.snapshot().files)
    delta.table("escaped").update({"id": "10"}, "name LIKE 'a%' AND id = 1")
    assert len(before - set(table.snapshot().files)) == 1
    assert rows_of(table)[0] == (10, 1, "a: b")


def test_condition_that_only_spark_knows_reads_the_whole_table(
    delta: DeltaConnection, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a removal in another partition is a conflict, and the loser's files are deleted."""
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


@pytest.mark.parametrize("given", ["rand() < 0.5", "uuid() > 'a'", "column", "registered"])
def test_condition_that_is_not_deterministic_is_rejected(
    delta: DeltaConnection, warehouse: Warehouse, given: str
) -> None:
    """As Delta Spark does, however the function is named: each of the two jobs could see other matches."""
    table = made(warehouse, "random", ())
    handle, source = delta.table("random"), delta.spark.createDataFrame(SOURCE).where(functions.rand() < 2)
    unstable = functions.udf(lambda number: number > 0, "boolean").asNondeterministic()
    delta.spark.udf.register("unstable", unstable)
    condition = {"column": functions.rand() < 0.5, "registered": "unstable(target.id)"}.get(given, given)
    merge = handle.merge(source, "target.id = source.id")
    for attempt in (
        lambda: merge.whenMatchedDelete(condition).execute(),
        lambda: handle.delete(condition if given != "registered" else "unstable(id)"),
        lambda: handle.update({"id": "1"}, condition if given != "registered" else "unstable(id)"),
    ):
        with pytest.raises(InvalidRequestError, match="not deterministic"):
            attempt()
    if isinstance(condition, str):
        with pytest.raises(InvalidRequestError, match="not deterministic"):
            handle.merge(source, f"target.id = source.id AND {condition}").whenMatchedDelete().execute()
    assert table.snapshot().version == 1


def test_invalid_requests_commit_nothing(delta: DeltaConnection, warehouse: Warehouse) -> None:
    table = made(warehouse, "refused", ())
    handle = delta.table("refused")
    source = delta.spark.createDataFrame(SOURCE)
    for attempt in (
        lambda: handle.delete("id IN (SELECT 1)"),
        lambda: handle.update({"id": "rand()"}),
        lambda: handle.update({"price": "1"}),
        lambda: handle.update({"id": "1", "ID": "2"}),
        lambda: handle.merge(source.drop("month"), "target.id = source.id").whenMatchedUpdateAll().execute(),
        lambda: handle.update({}),
        lambda: on_spark(handle, delta.spark).execute(),
    ):
        with pytest.raises(InvalidRequestError):
            attempt()
    for attempt in (
        lambda: handle.delete("price = 1"),
        lambda: handle.update({"id": "price"}),
        lambda: handle.merge(source, "target.price = source.id").whenMatchedDelete().execute(),
        lambda: on_spark(handle, delta.spark).whenMatchedUpdate(set={"id": "source.price"}).execute(),
    ):
        with pytest.raises(AnalysisException, match=r"(?s)^((?!__).)*price((?!__).)*month((?!__).)*$"):
            attempt()
    for clause, given in (
        (DeltaMerge.whenMatchedUpdateAll, ()),
        (DeltaMerge.whenNotMatchedBySourceDelete, ()),
        (DeltaMerge.whenMatchedDelete, (functions.expr("source.id = 2"),)),  # a Column has no truth value
    ):
        with pytest.raises(InvalidRequestError, match="id = "):
            clause(handle.merge(source.union(source), "target.id = source.id"), *given).execute()
    lenient = settings(delta.spark, {"spark.sql.ansi.enabled": "false"})  # it would change values that do not fit
    with lenient, pytest.raises(InvalidRequestError, match=r"spark\.sql\.ansi\.enabled"):
        handle.update({"id": "id + 1"})
    assert table.snapshot().version == 1


@pytest.mark.parametrize(("keys", "landed"), [([1, None, 2], True), ([], True), ([2, 11], False)])
def test_a_merge_with_many_keys_reads_the_files_in_their_range(
    delta: DeltaConnection, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, keys: list[int | None], landed: bool
) -> None:
    """So a removal of another file is no conflict."""
    table = warehouse.create_table("t", pa.schema([("id", pa.int64())]))
    for ids in ([1, 2], [10, 12]):
        table.append(pa.table({"id": ids}))
    source = delta.spark.createDataFrame(pa.table({"id": pa.array(keys, pa.int64())}))
    commit = Transaction.commit_if_needed
    monkeypatch.setattr(delta_table, "_KEYS", 1)

    def after_the_winner(transaction: Transaction) -> object:
        monkeypatch.undo()
        table.delete("id >= 10")
        return commit(transaction)

    monkeypatch.setattr(Transaction, "commit_if_needed", after_the_winner)
    merge = delta.table("t").merge(source, "target.id = source.id").whenMatchedDelete()
    with contextlib.nullcontext() if landed else pytest.raises(ConcurrentDeleteReadError):
        merge.execute()
    assert table.snapshot().to_arrow()["id"].to_pylist() == ([] if landed and keys else [1, 2])


@pytest.mark.parametrize(("lost", "landed"), [(3, True), (4, False)])
def test_a_merge_starts_again_after_a_lost_executor(
    delta: DeltaConnection, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, lost: int, landed: bool
) -> None:
    table, handle = made(warehouse, "t", ()), delta.table("t")
    source = delta.spark.createDataFrame(SOURCE)
    evaluate, evaluated = type(source).localCheckpoint, []

    def and_lose(frame: DataFrame) -> DataFrame:
        rows = evaluate(frame)
        evaluated.append(rows)
        if len(evaluated) <= lost:
            lose_checkpoints(delta.spark)
        return rows

    monkeypatch.setattr(type(source), "localCheckpoint", and_lose)
    merge = handle.merge(source, "target.id = source.id").whenMatchedUpdate(set={"name": "'new'"})
    before = set(table.location.rglob("*.parquet"))
    if landed:
        assert merge.execute().metrics["numTargetRowsUpdated"] == 2
        assert table.snapshot().version == 2
    else:
        with pytest.raises(Exception, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
            merge.execute()
        assert (table.snapshot().version, set(table.location.rglob("*.parquet"))) == (1, before)


RULES: list[dict[str, Any]] = [
    identity(start=10, step=2),
    column("x"),
    generated("y", "x * 2"),
    column("kind", "string", nullable=False, CURRENT_DEFAULT="'new'"),
]
GIVEN = pa.table({"x": [1, 2, 3, 4], "kind": ["a", "b", "c", "d"]})
NEWER = pa.table({"x": [2, 3, 7, 8], "kind": ["B", "C", "G", "H"]})


def with_rules(warehouse: Warehouse, name: str) -> Table:
    """A table of two files with two rows each, with row tracking and the change data feed."""
    properties = {**FEED, "delta.constraints.low": "x < 100", "delta.enableRowTracking": "true"}
    table = warehouse.create_table(name, json.dumps(struct(*RULES)), properties=properties)
    for rows in (GIVEN.slice(0, 2), GIVEN.slice(2)):
        table.append(rows)
    return table


def test_violated_rule_is_one_error_and_leaves_no_file(delta: DeltaConnection, warehouse: Warehouse) -> None:
    table = with_rules(warehouse, "t")
    handle, source = delta.table("t"), delta.spark.createDataFrame(NEWER)
    before = set(table.location.rglob("*.parquet"))
    for message, attempt in (
        ("'y'", lambda: handle.update({"y": "1"})),
        ("'kind'", lambda: handle.update({"kind": None})),
        (
            "low",
            lambda: (
                handle.merge(source, "target.x = source.x + 9").whenNotMatchedInsert(None, {"x": "x * 99"}).execute()
            ),
        ),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            attempt()
    assert set(table.location.rglob("*.parquet")) == before
    assert table.snapshot().version == 2
