"""A write whose query reads the table that it writes to: what other writers do meanwhile is a conflict."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import refimpl
from refimpl.protocol.errors import ConcurrentAppendError, DeltaError, InvalidRequestError
from refimpl.spark import DeltaConnection, connect, reader
from refimpl.warehouse import Warehouse
from spec_tests.spark.conftest import MODE, TIME_ZONE, settings
from spec_tests.support.sampling import sampled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.client.table import Table

FORMAT = "delta-owner"
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.int32())])


def append(table: Table, *numbers: int) -> None:
    """Rows with these ids; the partition is the last bit of the id."""
    table.append(pa.table({"id": list(numbers), "p": [number % 2 for number in numbers]}, schema=SCHEMA))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("id").collect())


def stored(table: Table) -> list[int]:
    return sorted(table.snapshot().to_arrow()["id"].to_pylist())


def recorded_as_blind(table: Table) -> bool:
    (info,) = (entry.info for entry in table.history(limit=1))
    return info is not None and info.fields["isBlindAppend"] is True


@pytest.fixture
def table(spark: SparkSession, delta: DeltaConnection, warehouse: Warehouse) -> Table:
    """The table `t` with the ids 0 to 5, and a view of it with the same name."""
    created = warehouse.create_table("t", SCHEMA, partition_columns=["p"])
    append(created, *range(6))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW t USING `{FORMAT}` OPTIONS (table 't')")
    return created


Write = Callable[[DeltaConnection, "DataFrame"], Any]
READS: dict[str, Callable[[DeltaConnection], DataFrame]] = {
    "delta.read": lambda delta: delta.read.table("t"),
    "view": lambda delta: delta.spark.table("t"),
    "data source": lambda delta: delta.spark.read.format(FORMAT).load("t"),
}


def saved(mode: str, **options: str) -> Write:
    return lambda delta, rows: delta.write(rows).mode(mode).options(**options).saveAsTable("t")


def formatted(mode: str, **options: str) -> Write:
    return lambda delta, rows: rows.write.format(FORMAT).mode(mode).options(**options).save("t")


def sql(start: str) -> Write:
    return lambda delta, rows: (
        rows.createOrReplaceTempView("changed"),
        delta.spark.sql(f"{start} t SELECT * FROM changed"),
    )


def merged(delta: DeltaConnection, rows: DataFrame) -> None:
    delta.table("t").merge(rows, "target.id = source.id").whenNotMatchedInsertAll().execute()


def saved_in_batch(delta: DeltaConnection, rows: DataFrame) -> None:
    stream = delta.spark.readStream.format("rate").load().writeStream
    query = stream.foreachBatch(lambda *_: saved("append")(delta, rows) and None).trigger(once=True).start()
    query.awaitTermination()


APPENDED, REPLACED, NARROW = [*range(6), 101, 103, 105], [101, 103, 105], [0, 2, 4, 101, 103, 105]
ROUTES: dict[str, tuple[str, Write, list[int], bool]] = {
    "append": ("delta.read", saved("append"), APPENDED, False),
    "overwrite": ("delta.read", saved("overwrite"), REPLACED, True),
    "replaceWhere": ("data source", saved("overwrite", replaceWhere="p = 1"), NARROW, False),
    "dynamic": ("view", saved("overwrite", partitionOverwriteMode="dynamic"), NARROW, False),
    "data source, append": ("delta.read", formatted("append"), APPENDED, False),
    "data source, overwrite": ("data source", formatted("overwrite"), REPLACED, True),
    "INSERT INTO": ("view", sql("INSERT INTO"), APPENDED, False),
    "INSERT OVERWRITE": ("view", sql("INSERT OVERWRITE"), REPLACED, True),
    "MERGE": ("data source", merged, APPENDED, True),
    "foreachBatch": ("delta.read", saved_in_batch, APPENDED, False),
}
"""How the query reads the table, how its rows are written, the ids after that, and whether the write itself depends on
both partitions. The query reads the partition 1."""
EVENTS: dict[str, tuple[Callable[[Table], Any] | None, str | None, list[int]]] = {
    "nothing": (None, None, []),
    "append": (lambda table: append(table, 7), "ConcurrentAppend", [*range(6), 7]),
    "delete": (lambda table: table.delete("p = 1"), "ConcurrentDeleteRead", [0, 2, 4]),
    "append elsewhere": (lambda table: append(table, 8), "ConcurrentAppend", [*range(6), 8]),
}
"""What another writer does while the query runs, the conflict, and the ids after that."""


@pytest.mark.parametrize("case", sampled(product(ROUTES, EVENTS), 3))
def test_own_reads_are_checked(delta: DeltaConnection, table: Table, tmp_path: Path, case: tuple[str, str]) -> None:
    from pyspark.errors import PySparkException

    route, event = case
    (read, write, after, depends_on_both), (act, conflict, left) = ROUTES[route], EVENTS[event]
    lake, once = str(table.location.parent), tmp_path / "once"

    def during(number: int) -> bool:
        with contextlib.suppress(FileExistsError):  # another row was first
            once.touch(exist_ok=False)
            if act is not None:
                act(refimpl.open(lake).table("t"))
        return True

    delta.spark.udf.register("during", during, "boolean")
    rows = READS[read](delta).where("p = 1").where("during(id)").selectExpr("id + 100 AS id", "p")
    if conflict is None or (event == "append elsewhere" and not depends_on_both):
        write(delta, rows)
        assert stored(table) == sorted([*after, *left[6:]])
        assert not recorded_as_blind(table)
    else:
        with pytest.raises((DeltaError, PySparkException), match=rf"\({conflict}\)"):
            write(delta, rows)
        assert stored(table) == left


FILES: dict[str, Callable[[pytest.MonkeyPatch, Table], Any]] = {
    "by Spark": lambda *_: None,
    "by Arrow": lambda patch, _: patch.setattr(reader, "_MOST_PATHS", 0),
    "none": lambda _, table: table.delete(),
}
"""How Spark reads the files of a frame of `delta.read`."""
QUERIES = (
    "SELECT * FROM kept UNION ALL VALUES (9, 0)",
    "SELECT id, 0 AS p FROM range(9) WHERE id > coalesce((SELECT max(id) FROM kept), 0)",
    "SELECT id, 0 AS p FROM range(9) r WHERE NOT EXISTS (SELECT 1 FROM kept WHERE kept.id = r.id)",
)


@pytest.mark.parametrize("case", sampled(product(FILES, QUERIES, [False, True]), 5))
def test_stale_frame_is_a_conflict(
    delta: DeltaConnection, table: Table, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, bool]
) -> None:
    """A frame of `delta.read` keeps its version, and Spark's plan may contain it anywhere."""
    files, query, cached = case
    FILES[files](monkeypatch, table)
    frame = READS["delta.read"](delta)
    (frame.cache() if cached else frame).createOrReplaceTempView("kept")
    rows = delta.spark.sql(query)
    append(table, 7)
    before = stored(table)
    with pytest.raises(ConcurrentAppendError):
        saved("overwrite")(delta, rows)
    assert stored(table) == before
    frame.unpersist()


def test_frames_and_views_see_the_newest_version(delta: DeltaConnection, table: Table) -> None:
    frame, fixed = READS["data source"](delta), delta.spark.read.format(FORMAT).option("versionAsOf", 1).load("t")
    cached = READS["data source"](delta).where("id > 0").cache()
    assert cached.count() == 5
    delta.spark.sql("INSERT INTO t VALUES (7, 1)")
    append(table, 8)
    assert ids(READS["view"](delta)) == ids(frame) == [*range(6), 7, 8]
    assert ids(fixed) == [*range(6)]
    with pytest.raises(ConcurrentAppendError):
        saved("append")(delta, cached.limit(1))
    cached.unpersist()


def test_query_sees_one_version(spark: SparkSession, table: Table) -> None:
    writer = threading.Thread(target=lambda: [append(table, number) for number in range(10, 40)])
    writer.start()
    while writer.is_alive():
        query = """SELECT (SELECT max(id) FROM t), max(a.id), max(b.id), max(c.id)
                   FROM t a FULL JOIN t b ON a.id = b.id FULL JOIN (SELECT id + 0 AS id FROM t) c ON a.id = c.id"""
        (row,) = spark.sql(query).collect()
        assert len(set(row)) == 1
    writer.join()


def test_query_reads_equal_names_of_two_warehouses(
    delta: DeltaConnection, warehouse: Warehouse, table: Table, tmp_path: Path
) -> None:
    first, again = READS["data source"](delta), connect(delta.spark, warehouse)
    assert ids(first.union(READS["data source"](again))) == sorted([*range(6)] * 2)
    with refimpl.open(tmp_path / "second", create=True) as second:
        append(second.create_table("t", SCHEMA, partition_columns=["p"]), 100)
        both = first.union(READS["data source"](connect(delta.spark, second)))
        assert ids(both) == [*range(6), 100]
        assert ids(both.where("id = (SELECT max(id) FROM t)")) == [5]


def test_stated_version_is_no_read_of_the_newest(delta: DeltaConnection, table: Table) -> None:
    """It restores the table, whatever has landed since."""
    append(table, 7)
    saved("overwrite")(delta, delta.read.option("versionAsOf", 1).table("t"))
    append(table, 7)
    formatted("overwrite")(delta, delta.spark.read.format(FORMAT).option("versionAsOf", 1).load("t"))
    assert stored(table) == [*range(6)]


@pytest.mark.parametrize("source", ["view", "data source"])
def test_a_column_that_the_frame_lacks_is_not_overwritten(delta: DeltaConnection, table: Table, source: str) -> None:
    """One user alone: the frame or view has the columns of its creation, and the rows of the newest version."""
    frame = READS[source](delta)
    row = delta.spark.createDataFrame([(7, 1, "keep")], "id long, p int, c string")
    delta.write(row).option("mergeSchema", "true").mode("append").saveAsTable("t")
    for write in (formatted("overwrite"), saved("overwrite"), sql("INSERT OVERWRITE")):
        with pytest.raises(Exception, match="lacks columns of 't': c"):
            write(delta, frame.where("p = 1"))
    assert "keep" in table.snapshot().to_arrow()["c"].to_pylist()


@pytest.mark.parametrize("write", [formatted("overwrite"), saved("overwrite")])
def test_an_overwrite_has_the_mode_of_the_session_when_it_runs(
    spark: SparkSession, delta: DeltaConnection, table: Table, write: Write
) -> None:
    rows = spark.createDataFrame([(9, 1)], "id long, p int")
    with settings(spark, {MODE: "dynamic"}):
        write(delta, rows)
    assert stored(table) == [0, 2, 4, 9]
    write(delta, rows)
    assert stored(table) == [9]


def test_an_overwrite_from_the_change_feed_is_a_conflict(
    delta: DeltaConnection, warehouse: Warehouse, tmp_path: Path
) -> None:
    fed = warehouse.create_table("fed", SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    lake, once = str(fed.location.parent), tmp_path / "once"

    def feed() -> DataFrame:
        options = {"readChangeFeed": "true", "startingVersion": "0"}
        return delta.spark.read.format(FORMAT).options(**options).load("fed").select("id", "p")

    def during(number: int) -> bool:
        with contextlib.suppress(FileExistsError):  # another row was first
            once.touch(exist_ok=False)
            append(refimpl.open(lake).table("fed"), 3)
        return True

    delta.write(feed()).mode("append").saveAsTable("fed")
    append(fed, 1, 2)
    delta.spark.udf.register("during", during, "boolean")
    with pytest.raises(ConcurrentAppendError):
        delta.write(feed().where("during(id)")).mode("overwrite").saveAsTable("fed")
    assert stored(fed) == [1, 2, 3]


def test_text_conditions_have_the_sessions_dialect(spark: SparkSession, delta: DeltaConnection) -> None:
    """Files are skipped only where this client reads the text as Spark does."""
    rows = spark.createDataFrame([("x\\b", "x"), ("x\\\\b", "y")], "p string, b string")
    delta.write(rows).partitionBy("p").saveAsTable("texts")
    for setting, condition, left in (
        ("spark.sql.parser.escapedStringLiterals", r"p = 'x\b'", [r"x\\b"]),
        ("spark.sql.ansi.doubleQuotedIdentifiers", 'p = "p"', []),
    ):
        with settings(spark, {setting: "true"}):
            expected = sorted(row[0] for row in delta.read.table("texts").where(condition).collect())
            assert [row[0] for row in delta.read.where(condition).table("texts").collect()] == expected
            delta.table("texts").delete(condition)
        assert [row[0] for row in delta.read.table("texts").collect()] == left


def test_names_with_case_are_refused(spark: SparkSession, delta: DeltaConnection, table: Table) -> None:
    sensitive = settings(spark, {"spark.sql.caseSensitive": "true"})
    with sensitive, pytest.raises(InvalidRequestError, match="caseSensitive"):
        delta.read.table("t")


def test_query_of_another_table_is_blind(delta: DeltaConnection, warehouse: Warehouse, table: Table) -> None:
    append(warehouse.create_table("other", SCHEMA, partition_columns=["p"]), 9)
    rows = delta.read.table("other")
    append(table, 7)
    for write in (saved("append"), formatted("append")):
        write(delta, rows)
        assert recorded_as_blind(table)
    saved("overwrite")(delta, rows)
    assert stored(table) == [9]


def test_own_reads_are_checked_in_each_session(delta: DeltaConnection, warehouse: Warehouse, table: Table) -> None:
    other = connect(delta.spark.newSession(), warehouse)
    for connection in (delta, other, delta):
        rows = connection.read.table("t").where("id < 3")
        append(table, 8)
        with pytest.raises(ConcurrentAppendError):
            saved("overwrite")(connection, rows)


def test_own_reads_are_found_whatever_reads_parquet_files(delta: DeltaConnection, table: Table) -> None:
    with settings(delta.spark, {"spark.sql.sources.useV1SourceList": ""}):
        rows = delta.read.table("t").where("p = 1")
        append(table, 8)
        with pytest.raises(ConcurrentAppendError):
            saved("overwrite")(delta, rows)


def test_several_inserts_of_one_query(spark: SparkSession, warehouse: Warehouse, table: Table) -> None:
    other = warehouse.create_table("other", SCHEMA, partition_columns=["p"])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW other USING `{FORMAT}` OPTIONS (table 'other')")
    spark.sql("FROM t INSERT INTO t SELECT id + 10, p WHERE id < 2 INSERT OVERWRITE other SELECT *")
    assert (stored(table), stored(other)) == ([*range(6), 10, 11], [*range(6)])
    assert not recorded_as_blind(table)


def test_write_without_the_rule_is_rejected(spark: SparkSession, table: Table) -> None:
    from pyspark.errors import PySparkException

    without = settings(spark, {"spark.sql.optimizer.excludedRules": "refimpl.spark.PlanReads"})
    with without, pytest.raises(PySparkException, match="cannot find the tables that the query reads"):
        spark.sql("INSERT OVERWRITE t SELECT * FROM t WHERE id < 3")
    assert stored(table) == [*range(6)]


def test_replace_where_on_a_timestamp_needs_a_session_in_utc(spark: SparkSession, delta: DeltaConnection) -> None:
    """The session's zone when the write runs: its other conditions would mean another moment."""
    rows_at = spark.sql("select 1 id, timestamp'2024-01-01 00:00:00Z' moment")
    delta.write(rows_at).partitionBy("moment").saveAsTable("moments")
    where = {"replaceWhere": "moment = '2024-01-01 00:00:00'"}
    by_source = rows_at.write.format(FORMAT).mode("overwrite").options(**where)
    by_writer = delta.write(rows_at).mode("overwrite").options(**where)
    writes = (lambda: by_source.save("moments"), lambda: by_writer.saveAsTable("moments"))
    for write in writes:
        with settings(spark, {TIME_ZONE: "Asia/Tokyo"}), pytest.raises(Exception, match="timeZone"):
            write()
    for write in writes:
        write()
    assert delta.tables.by_name("moments").snapshot().version == 2


def test_subquery_in_a_row_change_is_rejected(spark: SparkSession, delta: DeltaConnection, table: Table) -> None:
    from pyspark.sql import functions

    most = spark.sql("SELECT max(id) FROM t").scalar()
    merge = delta.table("t").merge(spark.range(3), "target.id = source.id").whenMatchedUpdate(set={"id": most})
    exists = spark.range(3).alias("o").where(functions.col("o.id") == functions.col("id").outer()).exists()
    table_ = delta.table("t")
    changes = (lambda: table_.delete(most > 1), lambda: table_.delete(exists), lambda: table_.update({"id": most}))
    for change in (*changes, merge.execute):
        with pytest.raises(InvalidRequestError, match="has a subquery"):
            change()


def test_stream_with_a_stale_frame_of_its_sink(delta: DeltaConnection, table: Table, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    known = READS["delta.read"](delta).withColumnRenamed("p", "known")
    append(table, 7)
    joined = delta.spark.readStream.format(FORMAT).load("t").join(known, "id").select("id", "p")
    query = joined.writeStream.format(FORMAT).option("checkpointLocation", str(tmp_path / "c")).start("t")
    with pytest.raises(StreamingQueryException, match=r"\(ConcurrentAppend\)"):
        query.processAllAvailable()
    assert stored(table) == [*range(6), 7]
