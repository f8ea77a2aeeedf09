"""Writes: creation in one version, modes, partitions, columns, options, conflicts, paths. Two data frames in one
transaction: `delta.transaction`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.protocol import errors
from refimpl.protocol.errors import ConcurrentModificationError, InvalidRequestError
from refimpl.protocol.table_feature import CATALOG_MANAGED, MANAGED_COMMIT, CommitMode
from refimpl.schema import schema as s
from refimpl.server.access import Scope, Tokens
from refimpl.spark import TOKEN_SETTING, WAREHOUSE_SETTING, DeltaConnection, commit_protocol, connect, frames
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse
from spec_tests.server.conftest import Listen, directory, listen
from spec_tests.spark.conftest import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


__all__ = ["directory", "listen"]


@pytest.fixture
def flights(delta: DeltaConnection, rows: DataFrame) -> str:
    """A table with the rows of `rows`, partitioned by month."""
    delta.write(rows).partitionBy("month").saveAsTable("flights")
    return "flights"


def _content(delta: DeltaConnection, name: str) -> Counter[tuple[Any, ...]]:
    return _tuples(delta.read.table(name))


def _tuples(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def _data_files(location: Path) -> set[str]:
    return {str(path.relative_to(location)) for path in location.rglob("part-*.parquet")}


def _meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Run `action` after the next write has written its files, before it commits."""
    plain, waiting = commit_protocol.write, [action]

    def write(*arguments: Any, **options: Any) -> Any:
        written = plain(*arguments, **options)
        if waiting:
            waiting.pop()()
        return written

    monkeypatch.setattr(commit_protocol, "write", write)


# Creation


@pytest.mark.parametrize("partition_columns", [[], ["month"]])
def test_a_table_is_created_with_its_rows_in_version_0(
    partition_columns: list[str], delta: DeltaConnection, rows: DataFrame
) -> None:
    written = delta.write(rows).partitionBy(*partition_columns).saveAsTable("t")
    assert written is not None
    assert (written.version, written.rows, written.removed) == (0, 12, 0)
    snapshot = delta.tables.by_name("t").snapshot()
    assert snapshot.version == 0
    assert len(snapshot.files) == written.files
    assert snapshot.partition_columns == tuple(partition_columns)
    assert [entry.info.fields["operation"] for entry in delta.tables.by_name("t").history() if entry.info] == [
        "CREATE TABLE AS SELECT"
    ]
    assert _content(delta, "t") == _tuples(rows)


@pytest.mark.parametrize(
    ("feature", "commit_mode"), [(CATALOG_MANAGED, CommitMode.INLINE), (MANAGED_COMMIT, CommitMode.DIRECT)]
)
def test_options_choose_feature_commit_mode_and_properties(
    feature: Any, commit_mode: CommitMode, delta: DeltaConnection, rows: DataFrame
) -> None:
    options = {"feature": feature.name, "commitMode": commit_mode.value, "delta.checkpointInterval": 7,
               "delta.parquet.compression.codec": "gzip"}  # fmt: skip
    delta.write(rows).options(**options).saveAsTable("t")
    delta.write(rows).mode("append").saveAsTable("t")
    table = delta.tables.by_name("t")
    assert (table.feature, table.commit_mode) == (feature, commit_mode)
    snapshot = table.snapshot()
    assert (snapshot.version, snapshot.metadata.configuration["delta.checkpointInterval"]) == (1, "7")
    assert all(path.endswith(".gz.parquet") for path, _ in snapshot.files)
    assert delta.read.table("t").count() == 24


def test_a_type_that_delta_lacks_creates_no_table(delta: DeltaConnection, spark: SparkSession) -> None:
    for expression, kind in (
        ("interval 1 day x", "interval day"),
        ("null x", "void"),
        ("parse_json('1') x", "variant"),
        ("named_struct('y', null) x", "void"),
        ("'a' collate UTF8_LCASE x", "collation"),
    ):
        with pytest.raises(errors.UnsupportedFeatureError, match=kind) as refused:
            delta.write(spark.sql(f"select {expression}")).saveAsTable("t")
        assert refused.value.column.startswith("x")
    assert delta.tables.required_warehouse().tables() == []
    assert [path.name for path in delta.tables.required_warehouse().directory.iterdir()] == ["_owner"]


@pytest.mark.parametrize("columns", [["nothing"], ["id", "month"], ["month", "month"]])
def test_an_invalid_partitioning_writes_nothing(columns: list[str], delta: DeltaConnection, rows: DataFrame) -> None:
    with pytest.raises(errors.InvalidRequestError):
        delta.write(rows).partitionBy(*columns).saveAsTable("t")
    assert [path.name for path in delta.tables.required_warehouse().directory.iterdir()] == ["_owner"]


def test_a_creation_that_fails_leaves_neither_name_nor_files(
    delta: DeltaConnection, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down() -> None:
        raise KeyboardInterrupt

    _meanwhile(monkeypatch, break_down)
    with pytest.raises(KeyboardInterrupt):
        delta.write(rows).saveAsTable("t")
    assert delta.tables.required_warehouse().tables() == []
    assert delta.write(rows).saveAsTable("t") is not None


@pytest.mark.parametrize(
    ("mode", "version", "count"), [("error", 0, 12), ("append", 1, 24), ("overwrite", 1, 12), ("ignore", 0, 12)]
)
def test_mode_applies_after_a_lost_creation(
    mode: str, version: int, count: int, delta: DeltaConnection, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loser leaves no file outside the winner's table."""
    _meanwhile(monkeypatch, lambda: delta.write(rows).saveAsTable("t"))
    with pytest.raises(errors.NameTakenError) if mode == "error" else contextlib.nullcontext() as lost:
        delta.write(rows).mode(mode).saveAsTable("t")
    table = delta.tables.by_name("t")
    assert lost is None or lost.value.winner.table_id == table.table_id
    assert (table.snapshot().version, delta.read.table("t").count()) == (version, count)
    stored = _data_files(delta.tables.required_warehouse().directory)
    assert stored == {f"{table.location.name}/{name}" for name in _data_files(table.location)}


# Modes


@pytest.mark.parametrize("partition_columns", [[], ["month"]])
def test_driver_writes_rows_that_it_holds(
    partition_columns: list[str],
    delta: DeltaConnection,
    spark: SparkSession,
    rows: DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_protocol, "write", None)
    local = spark.createDataFrame(rows.toArrow(), rows.schema)
    delta.write(local).partitionBy(partition_columns).saveAsTable("t")
    delta.write(local).mode("append").saveAsTable("t")
    assert _content(delta, "t") == _tuples(rows.union(rows))
    with pytest.raises(TypeError):
        delta.write(rows).mode("append").saveAsTable("t")


# replaceWhere


def test_replace_where_replaces_matching_partitions(delta: DeltaConnection, flights: str, rows: DataFrame) -> None:
    new = rows.where("month = 1").selectExpr("id + 100 id", "month")
    replace = delta.write(new).mode("overwrite").option("replaceWhere", "month = 1")
    written = replace.saveAsTable(flights)
    assert written is not None
    assert (written.rows, written.removed) == (4, 2)
    assert _content(delta, flights) == _tuples(rows.where("month != 1").union(new))


def test_replace_where_rejects_rows_outside_its_condition(
    delta: DeltaConnection, flights: str, rows: DataFrame
) -> None:
    before = _data_files(delta.tables.by_name(flights).location)
    with pytest.raises(errors.InvalidRequestError, match="not true for 8 of 12 rows"):
        delta.write(rows).mode("overwrite").option("replaceWhere", "month = 1").saveAsTable(flights)
    assert _data_files(delta.tables.by_name(flights).location) == before
    assert _content(delta, flights) == _tuples(rows)
    unknown = rows.selectExpr("id", "cast(null as int) month")
    with pytest.raises(errors.InvalidRequestError, match="not true for 12 of 12 rows"):
        delta.write(unknown).mode("overwrite").option("replaceWhere", "month = 1").saveAsTable(flights)


# Columns


@pytest.mark.parametrize(
    ("expressions", "fault"),
    [
        (["id", "month", "1 extra"], "no column 'extra' (leave it out, or write it in Python with .option("),
        (["cast(id as string) id", "month"], "'id' is long in the table and string in the rows"),
        (["id", "cast(month as long) month"], "'month' is integer in the table and long in the rows"),
        (["id", "id ID", "month"], "twice"),
        (["id", "named_struct('x', 1) month"], "struct<x:integer> in the rows"),
    ],
)
def test_rows_that_do_not_fit_write_no_file(
    expressions: list[str], fault: str, delta: DeltaConnection, flights: str, rows: DataFrame
) -> None:
    before = _data_files(delta.tables.by_name(flights).location)
    for mode in ("append", "overwrite"):
        with pytest.raises(errors.InvalidRequestError) as refused:
            delta.write(rows.selectExpr(*expressions)).mode(mode).saveAsTable(flights)
        assert fault in refused.value.message
    assert _data_files(delta.tables.by_name(flights).location) == before
    assert delta.tables.by_name(flights).snapshot().version == 0


def test_nulls_are_rejected_in_required_columns(delta: DeltaConnection, spark: SparkSession) -> None:
    required = s.Struct(
        fields=(
            s.Field(name="id", type=s.Primitive(name="long"), nullable=False),
            s.Field(name="tags", type=s.Array(element=s.Primitive(name="string"), contains_null=False)),
        )
    )
    delta.tables.required_warehouse().create_table("t", required)
    good = "select id, array('x') tags from range(4)"
    delta.write(spark.sql(good)).mode("append").saveAsTable("t")
    for bad, column in (
        ("select nullif(id, 2) id, array('x') tags from range(4)", "'id'"),
        ("select id, array(nullif('x', 'x')) tags from range(4)", "'tags.element'"),
        ("select cast(null as long) id, array('x') tags", "'id'"),
    ):
        with pytest.raises(errors.InvalidRequestError, match=column):
            delta.write(spark.sql(bad)).mode("append").saveAsTable("t")
    with pytest.raises(errors.InvalidRequestError, match="'id' must not be null"):
        delta.write(spark.sql("select array('x') tags")).mode("append").saveAsTable("t")
    assert delta.read.table("t").count() == 4


def test_column_comments_are_kept_without_private_metadata(delta: DeltaConnection, spark: SparkSession) -> None:
    from pyspark.sql import functions

    notes = {"comment": "the key", "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)", "CURRENT_DEFAULT": "1"}
    frame = spark.sql("select 'x' id").select(functions.col("id").alias("id", metadata=notes))
    delta.write(frame).saveAsTable("t")
    assert delta.tables.by_name("t").snapshot().schema["id"].metadata == {"comment": "the key"}
    assert delta.read.table("t").schema["id"].metadata == {"comment": "the key"}


def test_reused_name_means_the_new_table(delta: DeltaConnection, flights: str, rows: DataFrame) -> None:
    first = delta.tables.by_name(flights)
    assert delta.tables.by_name(flights) is first
    delta.tables.required_warehouse().owner.drop_table(str(first.table_id))
    delta.write(rows.where("id < 2")).saveAsTable(flights)
    assert delta.tables.by_name(flights).table_id != first.table_id
    assert delta.read.table(flights).count() == 2


# Options


def test_misspelled_options_and_modes_are_rejected_at_once(delta: DeltaConnection, rows: DataFrame) -> None:
    write = delta.write(rows)
    with pytest.raises(errors.InvalidRequestError, match="replaceWhere"):
        write.option("replaceWere", "month = 1")
    with pytest.raises(errors.InvalidRequestError):
        write.mode("upsert")
    for key, value in (("feature", "x"), ("commitMode", "x"), ("txnVersion", 1), ("delta.noSuchProperty", "1")):
        with pytest.raises(errors.InvalidRequestError):
            delta.write(rows).option(key, value).saveAsTable("t")
    assert delta.tables.required_warehouse().tables() == []


def test_options_of_a_creation_need_a_new_table(delta: DeltaConnection, flights: str, rows: DataFrame) -> None:
    for key, value in (("feature", "catalogManaged"), ("commitMode", "inline"), ("delta.appendOnly", True)):
        with pytest.raises(errors.InvalidRequestError, match="new table"):
            delta.write(rows).mode("append").option(key, value).saveAsTable(flights)
    with pytest.raises(errors.InvalidRequestError, match="partitioned by month"):
        delta.write(rows).mode("append").partitionBy("id").saveAsTable(flights)
    assert delta.write(rows).mode("append").partitionBy("month").saveAsTable(flights) is not None


def test_a_batch_of_an_application_is_written_once(delta: DeltaConnection, rows: DataFrame) -> None:
    """DELTA.md#idempotent-writers."""

    def write(batch: int) -> object:
        options = {"txnAppId": "stream", "txnVersion": batch}
        return delta.write(rows).mode("append").options(**options).saveAsTable("t")

    assert [write(batch) is None for batch in (1, 1, 2, 1, 2)] == [False, True, False, True, True]
    assert delta.read.table("t").count() == 24
    assert delta.tables.by_name("t").snapshot().transactions["stream"].version == 2


# Conflicts, as in DELTA.md#transactions


@pytest.mark.parametrize(("condition", "winner"), [(None, "append"), (None, "overwrite"), ("month = 1", "overwrite")])
def test_write_conflicts_with_changes_of_its_reads(
    condition: str | None, winner: str, delta: DeltaConnection, flights: str, rows: DataFrame, monkeypatch: Any
) -> None:
    """FB34: if two overwrites both land, all rows are doubled. The loser deletes its files."""

    def write(mode: str) -> None:
        writer = delta.write(rows.where(condition or "true")).mode(mode)
        if condition:
            writer = writer.option("replaceWhere", condition)
        writer.saveAsTable(flights)

    _meanwhile(monkeypatch, lambda: write(winner))
    with pytest.raises((errors.ConcurrentAppendError, errors.ConcurrentDeleteReadError)):
        write("overwrite")
    snapshots = [delta.tables.by_name(flights).snapshot(version=version) for version in (0, 1)]
    assert _data_files(snapshots[0].location) == {add.path for snapshot in snapshots for add in snapshot.files.values()}
    assert delta.read.table(flights).count() == (24 if winner == "append" else 12)


# Paths


def test_plain_table_at_a_path_needs_no_warehouse(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    delta, path = connect(spark), tmp_path / "plain"
    with pytest.raises(errors.TableNotFoundError, match="needs an existing table"):
        delta.write(rows).save(path)
    assert not path.exists()
    create_filesystem_table(path, Environment(), frames.table_schema(rows), partition_columns=["month"])
    for _ in range(2):
        delta.write(rows).mode("append").save(str(path))
    with pytest.raises(errors.LocationError):
        delta.write(rows).save(path)
    replace = delta.write(rows.where("month = 1")).mode("overwrite").option("replaceWhere", "month = 1")
    replace.save(path)
    assert delta.read.load(path).count() == 20
    with pytest.raises(errors.InvalidRequestError, match="no warehouse"):
        delta.write(rows).saveAsTable("t")
    with pytest.raises(errors.InvalidRequestError, match="no warehouse"):
        delta.read.table("t")


def test_a_path_of_the_warehouse_is_written_through_its_owner(
    delta: DeltaConnection, flights: str, rows: DataFrame
) -> None:
    written = delta.write(rows).mode("append").save(delta.tables.by_name(flights).location)
    assert written is not None
    assert written.version == delta.tables.by_name(flights).snapshot().version == 1


def test_a_session_writes_and_reads_through_a_server(
    spark: SparkSession, rows: DataFrame, listen: Listen, warehouse: Warehouse
) -> None:
    """The session's settings name the server; the token stays on the driver."""
    token = Tokens(warehouse).add("spark", Scope.WRITE)
    with settings(spark, {WAREHOUSE_SETTING: listen(), TOKEN_SETTING: token}):
        remote = connect(spark)
        remote.write(rows).partitionBy("month").saveAsTable("flights")
        remote.write(rows).mode("append").saveAsTable("flights")
        remote.write(rows.where("month = 1")).mode("overwrite").saveAsTable("flights")
        assert remote.read.table("flights").count() == 4
        assert remote.read.option("versionAsOf", 1).table("flights").count() == 24
    assert connect(spark, warehouse).read.table("flights").count() == 4


NAMES = ("orders", "stock")


@pytest.fixture
def tables(delta: DeltaConnection, rows: DataFrame) -> DeltaConnection:
    for name in NAMES:
        delta.write(rows).saveAsTable(name)
    return delta


def counts(delta: DeltaConnection) -> list[int]:
    return [delta.read.table(name).count() for name in NAMES]


def files(warehouse: Warehouse) -> set[Path]:
    return {*warehouse.directory.rglob("*.parquet")}


def test_two_frames_land_at_once_and_see_one_read_point(tables: DeltaConnection, rows: DataFrame) -> None:
    with tables.transaction(*NAMES) as tx:
        tx.write(rows).mode("append").saveAsTable("orders")
        tables.write(rows.limit(5)).mode("append").saveAsTable("orders")
        assert tx.read.table("orders").count() == 12
        tx.table("stock").delete("id < 4")
        assert counts(tables) == [17, 12]
    assert counts(tables) == [29, 8]
    assert {name: (done.version, done.rebased_over) for name, done in tx.committed.items()} == {
        "orders": (2, 1), "stock": (1, 0),
    }  # fmt: skip


def test_failed_transaction_leaves_no_rows_and_no_files(
    tables: DeltaConnection, rows: DataFrame, warehouse: Warehouse
) -> None:
    before = files(warehouse)
    with pytest.raises(InvalidRequestError, match="cannot create a table"), tables.transaction(*NAMES) as tx:
        tx.write(rows).mode("append").saveAsTable("orders")
        tx.write(rows).saveAsTable("missing")
    with pytest.raises(InvalidRequestError, match="takes no paths"), tables.transaction() as tx:
        tx.write(rows).mode("append").save(warehouse.directory / "orders")
    assert (files(warehouse), counts(tables)) == (before, [12, 12])
    with pytest.raises(ConcurrentModificationError), tables.transaction() as tx:
        tx.write(rows).mode("append").saveAsTable("orders")
        tx.write(rows).mode("overwrite").saveAsTable("stock")
        tables.write(rows.limit(1)).mode("append").saveAsTable("stock")
    assert counts(tables) == [12, 13]
