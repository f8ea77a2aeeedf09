"""Reads return exactly one version, for any names of the files; the driver excludes files. Values of all types: tasks
and the driver write them; Spark, Arrow and delta-rs read the same rows.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

import refimpl
from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.protocol.actions import Add, DeletionVector
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.errors import (
    InvalidRequestError,
    NotFoundInHistoryError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from refimpl.protocol.table_feature import MANAGED_COMMIT
from refimpl.rows import data_files, partition_values
from refimpl.schema import schema as s
from refimpl.spark import DeltaConnection, commit_protocol, connect
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse
from spec_tests.spark.conftest import TIME_ZONE, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


DELETES_ROW_1 = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91"
"""An inline deletion vector."""


def _append(table: Table, rows: pa.Table, **changes: Any) -> Add:
    """Commit rows as one file, with changed fields in its action; `path` also renames the file."""
    snapshot = table.snapshot()
    [add] = data_files.DataFileWriter(snapshot.layout).write_all([rows])
    changed = msgspec.structs.replace(add, **changes)
    target = partition_values.local_path(table.location, changed.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(table.location / partition_values.decode_path(add.path), target)
    transaction = table.transaction(snapshot=snapshot)
    transaction.add(changed)
    transaction.commit()
    return changed


def _months(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "month": pa.array([i % 3 for i in ids], pa.int32())})


def _ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_deleted_rows_of_a_file_are_not_read(delta: DeltaConnection, warehouse: Warehouse) -> None:
    vector = DeletionVector(storage_type="i", path_or_inline_dv=DELETES_ROW_1, size_in_bytes=34, cardinality=1)
    table = warehouse.create_table("t", _months().schema)
    transaction = table.transaction()
    transaction.add_feature("deletionVectors")
    transaction.commit()
    _append(table, _months(5, 6, 7), deletion_vector=vector)
    _append(table, _months(8))
    assert _ids(delta.read.table("t")) == [5, 7, 8]


# Versions


def test_read_by_time_returns_the_newest_version_of_that_time(
    delta: DeltaConnection, rows: DataFrame, spark: SparkSession
) -> None:
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    delta.write(rows.where("id < 4")).saveAsTable("t")
    delta.write(rows).mode("overwrite").saveAsTable("t")
    first, second = (delta.tables.by_name("t").snapshot(version=version).timestamp for version in (0, 1))
    assert _ids(delta.read.option("timestampAsOf", first).table("t")) == [0, 1, 2, 3]
    assert delta.read.option("timestampAsOf", second - 1).table("t").count() == 4
    moment = datetime.fromtimestamp(second / 1000, UTC)
    local = f"{moment.astimezone(ZoneInfo('Asia/Tokyo')):%Y-%m-%d %H:%M:%S.%f}"
    for zone in ("Asia/Tokyo", "+09:00", "GMT+9", "UTC+09:00", "+9"):
        with settings(spark, {TIME_ZONE: zone}):
            assert delta.read.option("timestampAsOf", local).table("t").count() == 12
    with settings(spark, {TIME_ZONE: "PST"}):
        with pytest.raises(InvalidRequestError, match="timeZone PST"):
            delta.read.option("timestampAsOf", local).table("t")
        for zoned in (moment, moment.isoformat()):
            assert delta.read.option("timestampAsOf", zoned).table("t").count() == 12
    with pytest.raises(NotFoundInHistoryError):
        delta.read.option("timestampAsOf", first - 1).table("t")
    with pytest.raises(InvalidRequestError):
        delta.read.option("timestampAsOf", "yesterday").table("t")
    with pytest.raises(InvalidRequestError):
        delta.read.options(versionAsOf=0, timestampAsOf=first).table("t")


# Pruning


def test_partition_values_and_statistics_exclude_files_before_spark_sees_them(
    delta: DeltaConnection, rows: DataFrame
) -> None:
    """Conditions that only Spark supports filter rows."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions

    delta.write(rows).partitionBy("month").saveAsTable("parted")
    delta.write(rows).saveAsTable("flat")
    for table, conditions, ids, files in (
        ("parted", [], [*range(12)], 6),
        ("parted", ["month = 1"], [1, 4, 7, 10], 2),
        ("parted", ["month = 9"], [], 0),
        ("flat", ["id = 11"], [11], 1),
        ("flat", ["id > 3", "id < 8"], [4, 5, 6, 7], 2),
        ("flat", ["id % 5 = 0", "id > 0"], [5, 10], 2),
        ("flat", [functions.col("id") == 3], [3], 2),
    ):
        reader = delta.read
        for condition in conditions:
            reader = reader.where(condition)
        frame = reader.table(table)
        assert (_ids(frame), len(frame.inputFiles())) == (ids, files), conditions
    with pytest.raises(AnalysisException):
        delta.read.where("nothing = 1").table("flat")


def test_nan_is_above_every_number(delta: DeltaConnection, spark: SparkSession) -> None:
    """DELTA_SPARK.md#footer-statistics: Spark's reader skips a row group by bounds that leave NaN out."""
    delta.write(spark.createDataFrame([(1, float("nan")), (2, 0.5)], "id long, x double").coalesce(1)).saveAsTable("t")
    assert _ids(delta.read.where("x > 1").table("t")) == [1]
    assert _ids(delta.read.where("x = double('nan')").table("t")) == [1]


def test_time_without_a_zone_has_the_sessions_zone(delta: DeltaConnection, spark: SparkSession) -> None:
    delta.write(spark.sql("select timestamp'2024-01-01 00:00:00Z' moment")).saveAsTable("t")
    with settings(spark, {TIME_ZONE: "Asia/Tokyo"}):
        assert delta.read.where("moment = '2024-01-01 09:00:00'").table("t").count() == 1
        assert delta.read.where("moment = '2024-01-01 00:00:00'").table("t").count() == 0


def test_spark_uses_its_vectorised_reader(delta: DeltaConnection, rows: DataFrame) -> None:
    delta.write(rows).partitionBy("month").saveAsTable("t")
    frame = delta.read.table("t").where("month = 2 and id > 3").select("id")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Batched: true" in plan
    assert "PartitionFilters: [isnotnull(month" in plan
    assert "GreaterThan(id,3)" in plan
    assert _ids(frame) == [5, 8, 11]


# Columns


def test_partition_columns_keep_their_place_and_type(delta: DeltaConnection, spark: SparkSession) -> None:
    rows = spark.sql("select '007' code, date'2024-01-01' day, id from range(3)")
    delta.write(rows).partitionBy("day", "code").saveAsTable("t")
    frame = delta.read.table("t")
    assert frame.dtypes == [("code", "string"), ("day", "date"), ("id", "bigint")]
    assert frame.where("code = '007' and day = date'2024-01-01'").count() == 3


def test_added_column_is_null_in_older_files(delta: DeltaConnection, rows: DataFrame) -> None:
    delta.write(rows).saveAsTable("t")
    table = delta.tables.by_name("t")
    snapshot = table.snapshot()
    wider = s.Struct(fields=(*snapshot.schema.fields, s.Field(name="note", type=s.Primitive(name="string"))))
    transaction = table.transaction(snapshot=snapshot)
    transaction.set_metadata(msgspec.structs.replace(snapshot.metadata, schema_string=wider.to_json()))
    transaction.commit()
    delta.write(rows.selectExpr("id + 100 id", "month", "'x' note")).mode("append").saveAsTable("t")
    assert delta.read.where("note is null").table("t").count() == 12
    assert delta.read.where("note = 'x'").table("t").count() == 12
    assert delta.read.option("versionAsOf", 0).table("t").columns == ["id", "month"]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_table_with_column_mapping_is_read_and_written(
    delta: DeltaConnection, spark: SparkSession, warehouse: Warehouse, mode: str
) -> None:
    """DELTA.md#physical-names. The columns `a b` and `month` swap their names, and so do the members of `s`."""
    rows = spark.sql("select id `a b`, cast(id % 3 as int) month, named_struct('x', id, 'y', -id) s from range(6)")
    delta.write(rows).partitionBy("month").option("delta.columnMapping.mode", mode).saveAsTable("t")
    table = warehouse.table("t")
    before = table.snapshot().metadata
    swapped = before.schema_string
    for name, other in (("a b", "month"), ("x", "y")):
        swapped = swapped.replace(f'"name":"{name}"', '"name":"-"').replace(f'"name":"{other}"', f'"name":"{name}"')
        swapped = swapped.replace('"name":"-"', f'"name":"{other}"')
    transaction = table.transaction()
    transaction.set_metadata(msgspec.structs.replace(before, schema_string=swapped, partition_columns=("a b",)))
    transaction.commit()
    more = spark.sql("select 100 month, cast(7 as int) `a b`, named_struct('y', 1, 'x', 2) s")
    delta.write(more.selectExpr("cast(month as long) month", "`a b`", "named_struct('y', 1L, 'x', 2L) s")).mode(
        "append"
    ).saveAsTable("t")
    expected = [(number, number % 3, (number, -number)) for number in range(6)] + [(100, 7, (1, 2))]
    frame = delta.read.where("month >= 0").table("t")
    assert frame.columns == ["month", "a b", "s"]
    assert frame.schema["s"].dataType.names == ["y", "x"]
    assert sorted(tuple(row) for row in frame.collect()) == expected
    assert [row.month for row in delta.read.where("`a b` = 7").table("t").collect()] == [100]
    assert [row.month for row in delta.read.table("t").where("s.x = -4").collect()] == [4]
    assert delta.table("t").delete("`a b` = 1 AND s.x = -4").metrics["numDeletedRows"] == 1
    assert (
        delta.table("t").update({"s": "named_struct('y', 0L, 'x', month)"}, "month = 5").metrics["numUpdatedRows"] == 1
    )
    read = sorted(tuple(row) for row in delta.read.table("t").collect())
    assert read == sorted([*expected[:4], (5, 2, (0, 5)), expected[6]])
    assert read == sorted(
        (r["month"], r["a b"], tuple(r["s"].values())) for r in table.snapshot().to_arrow().to_pylist()
    )
    copied = delta.read.table("t")
    delta.write(copied.withColumnRenamed("a b", "b")).saveAsTable("copy")
    assert "columnMapping" not in warehouse.table("copy").snapshot().metadata.schema_string


# Files that the log allows, and that Spark does not expect


PATHS = [
    "month=1/_hidden.parquet", "month=1/.hidden.parquet", "month=1/with%3Acolon.parquet", "_change_data/part.parquet",
    "ab/part-00000-x.parquet", "part-00000-x.parquet", "month=1/deeper/part.parquet",
    "month=2/part-of-another-month.parquet", "{elsewhere}/part.parquet", "file:{elsewhere}/other.parquet",
    "month=0/part.parquet", "month=1/part.parquet",
]  # fmt: skip


def test_a_file_is_read_at_any_path_and_by_any_name(
    delta: DeltaConnection, warehouse: Warehouse, tmp_path: Path
) -> None:
    """Spark would skip names with a leading underscore, and misread folders that name other partition values. Two files
    may have the same name in different folders."""
    table = warehouse.create_table("t", _months().schema, partition_columns=["month"])
    _append(table, _months(0, 3))
    for number, path in enumerate(PATHS):
        _append(table, _months(3 * number + 1), path=path.format(elsewhere=tmp_path / "elsewhere"))
    expected = [(3 * number + 1, 1) for number in range(len(PATHS))]
    assert sorted(map(tuple, delta.read.table("t").collect())) == sorted([(0, 0), (3, 0), *expected])
    assert sorted(map(tuple, delta.read.where("month = 1").table("t").collect())) == expected
    assert delta.read.table("t").schema == delta.read.where("month = 0").table("t").schema


def test_partition_values_are_read_in_any_spelling(delta: DeltaConnection, warehouse: Warehouse) -> None:
    schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", tz="UTC")), ("s", pa.string())])
    table = warehouse.create_table("t", schema, partition_columns=["t", "s"])
    row = pa.table({"id": [1]})
    spellings: list[dict[str, str | None]] = [
        {"t": "2024-01-01 00:00:00", "s": "a"},
        {"t": "2024-01-01T00:00:00.000000Z", "s": "a"},
        {"t": "2023-12-31 19:00:00-05:00", "s": "a"},
    ]
    for index, values in enumerate(spellings):
        _append(table, row, partition_values=values, path=f"x{index}/part.parquet")
    _append(table, row, partition_values={"t": None, "s": partition_values.NULL_FOLDER}, path="y/part.parquet")
    frame = delta.read.table("t")
    assert frame.where("t = timestamp'2024-01-01 00:00:00Z' and s = 'a'").count() == 3
    assert frame.where(f"s = '{partition_values.NULL_FOLDER}' and t is null").count() == 1


def test_path_may_contain_pattern_characters(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    delta, location = connect(spark), tmp_path / "a {b,c} [d] 50% #?" / "x=1"
    create_filesystem_table(location, Environment(), _months().schema)
    delta.write(rows).mode("append").save(location)
    assert delta.read.load(location).dtypes == [("id", "bigint"), ("month", "int")]
    assert delta.read.load(location).count() == 12


def test_many_files_are_listed_without_a_job(delta: DeltaConnection, warehouse: Warehouse, spark: SparkSession) -> None:
    """DELTA_SPARK.md#listing-job: for more than 32 paths, Spark by default starts a job only to list them."""
    table = warehouse.create_table("t", _months().schema)
    snapshot = table.snapshot()
    adds = [add for i in range(40) for add in data_files.DataFileWriter(snapshot.layout).write_all([_months(i)])]
    transaction = table.transaction(snapshot=snapshot)
    transaction.add(*adds)
    transaction.commit()

    def jobs_of_a_read() -> int:
        before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        delta.read.table("t")
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) - before

    assert jobs_of_a_read() == 0
    with settings(spark, {"spark.sql.sources.parallelPartitionDiscovery.threshold": "32"}):
        assert jobs_of_a_read() == 1
    assert _ids(delta.read.table("t")) == list(range(40))


def test_no_setting_of_the_session_leaves_out_a_data_file(delta: DeltaConnection, rows: DataFrame) -> None:
    """An UPDATE would otherwise commit the loss of its rows."""
    delta.write(rows).partitionBy("month").saveAsTable("t")
    table, keys = delta.tables.by_name("t"), [f"spark.sql.files.ignore{what}Files" for what in ("Corrupt", "Missing")]
    damaged = table.location / next(iter(table.snapshot().files.values())).path
    with settings(delta.spark, dict.fromkeys(keys, "true")):
        for damage in (lambda: damaged.write_bytes(b"PAR1"), damaged.unlink):
            damage()
            for attempt in (lambda: delta.read.table("t").collect(), lambda: delta.table("t").update({"id": "id + 1"})):
                with pytest.raises(Exception, match=damaged.name):
                    attempt()
    assert table.snapshot().version == 0


def test_file_path_in_spark_equals_the_path_in_the_log(delta: DeltaConnection, spark: SparkSession) -> None:
    delta.write(spark.sql("select 1 id, 'a:b c%' p")).partitionBy("p").saveAsTable("t")
    table = delta.tables.by_name("t")
    [row] = delta.read.table("t").select("_metadata.file_path").collect()
    [add] = table.snapshot().files.values()
    assert row.file_path == f"file:{table.location}/{add.path}"


# Access


def test_unknown_names_paths_and_options_are_rejected(delta: DeltaConnection, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        delta.read.table("nothing")
    with pytest.raises(TableNotFoundError):
        delta.read.load(tmp_path / "nothing")
    with pytest.raises(InvalidRequestError, match="versionAsOf"):
        delta.read.option("version", 1)


def test_a_path_leads_to_the_owner_that_the_table_names(
    spark: SparkSession, warehouse: Warehouse, rows: DataFrame, tmp_path: Path
) -> None:
    """managed-commits, "Reading managed-commit tables": without the owner, as for a copy, only the published part."""
    policy = MaintenancePolicy(backfill_every=None)
    table = warehouse.create_table("t", _months().schema, feature=MANAGED_COMMIT, policy=policy)
    shutil.copytree(table.location, tmp_path / "copy")
    plain = connect(spark)
    plain.write(rows).mode("append").save(table.location)
    assert (table.published_snapshot().version, table.snapshot().version) == (0, 1)
    assert plain.read.load(table.location).count() == 12
    assert spark.read.format("delta-owner").load(str(table.location)).count() == 12
    with pytest.warns(UserWarning, match="without its owner"):
        assert plain.read.load(tmp_path / "copy").count() == 0


def test_a_warehouse_may_be_named_by_its_directory(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):  # a mistyped name creates no warehouse
        connect(spark, tmp_path / "named")
    with refimpl.open(tmp_path / "named", create=True) as opened:
        connect(spark, tmp_path / "named").write(rows).saveAsTable("t")
        assert connect(spark, opened).read.table("t").count() == 12


COLUMNS = {
    "string": ["'x'", "''", "'ü 漢 \U0001f600'", "repeat('long', 5000)"],
    "long": ["9223372036854775807", "-9223372036854775808L", "0"],
    "integer": ["2147483647", "-2147483648", "0"],
    "short": ["cast(32767 as short)", "cast(-32768 as short)"],
    "byte": ["cast(127 as byte)", "cast(-128 as byte)"],
    "float": ["float(0.1)", "float('NaN')", "float('-Infinity')", "float(-0.0)"],
    "double": ["double(0.1)", "double('NaN')", "double('Infinity')", "1.7976931348623157E308D"],
    "boolean": ["true", "false"],
    "binary": ["X'00FF'", "X''"],
    "date": ["date'9999-12-31'", "date'0001-01-01'", "date'1582-10-10'", "date'2024-02-29'"],
    "timestamp": ["timestamp'2024-03-31 02:30:00.123456Z'", "timestamp'0001-01-01 00:00:00Z'"],
    "timestamp_ntz": ["timestamp_ntz'2024-03-31 02:30:00.000001'", "timestamp_ntz'1900-01-01 00:00:00'"],
    "small": ["cast(9.99 as decimal(3,2))", "cast(-9.99 as decimal(3,2))"],
    "medium": ["cast(1234567890.12345678 as decimal(18,8))", "cast(0 as decimal(18,8))"],
    "large": ["cast('9999999999999999999999999999.9999999999' as decimal(38,10))"],
    "struct": ["named_struct('a', 1L, 'b', named_struct('c', 'x'))", "named_struct('a', null, 'b', null)"],
    "array": ["array(array(1L, null), array(), null)", "array()"],
    "map": ["map('k', array(1L), 'l', null)", "map()"],
    "people": ["array(named_struct('n', 'x', 'm', map(1, date'2024-01-01')))", "array(null)"],
}
TYPES = {
    "small": "decimal(3,2)",
    "medium": "decimal(18,8)",
    "large": "decimal(38,10)",
    "struct": "struct<a:bigint,b:struct<c:string>>",
    "array": "array<array<bigint>>",
    "map": "map<string,array<bigint>>",
    "people": "array<struct<n:string,m:map<int,date>>>",
}
COMPLEX = ("struct", "array", "map", "people", "binary")


@pytest.fixture
def everything(spark: SparkSession) -> DataFrame:
    """One row for each value of the longest column, and one row of nulls. Shorter columns repeat their values."""
    count = max(map(len, COLUMNS.values()))
    selects = [
        "select "
        + ", ".join(
            f"cast({values[i % len(values)]} as {TYPES.get(name, name)}) {name}" for name, values in COLUMNS.items()
        )
        for i in range(count)
    ]
    nothing = "select " + ", ".join(f"cast(null as {TYPES.get(name, name)}) {name}" for name in COLUMNS)
    return spark.sql(" union all ".join([*selects, nothing])).selectExpr("row_number() over (order by 1) row", "*")


def _comparable(value: Any) -> Any:
    """Equal for equal values; unlike in Python, NaN equals itself."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            return {key: _comparable(item) for key, item in value.items()}
        case list():
            return [_comparable(item) for item in value]
        case tuple():
            return tuple(_comparable(item) for item in value)
        case _:
            return value


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted((_comparable(row) for row in table.to_pylist()), key=lambda row: row["row"])


def _route(name: str, monkeypatch: pytest.MonkeyPatch, frame: DataFrame) -> DataFrame:
    """The frame, set up so that its rows take only this route."""
    if name == "driver":
        monkeypatch.setattr(commit_protocol, "write", None)
        return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema)
    monkeypatch.setattr(data_files.DataFileWriter, "write_all", None)
    return frame


@pytest.mark.parametrize("route", ["tasks", "driver"])
def test_values_of_every_type_are_read_back_unchanged(
    route: str, delta: DeltaConnection, everything: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _rows(everything.toArrow())
    frame = _route(route, monkeypatch, everything)
    assert frame.isLocal() == (route == "driver")
    delta.write(frame).saveAsTable("t")
    snapshot = delta.tables.by_name("t").snapshot()
    assert [str(snapshot.schema[name].type) for name in ("timestamp_ntz", "large")] == [
        "timestamp_ntz",
        "decimal(38,10)",
    ]
    assert _rows(delta.read.table("t").toArrow()) == expected
    assert _rows(snapshot.to_arrow()) == expected


def test_partition_values_of_every_type_are_read_back_unchanged(delta: DeltaConnection, everything: DataFrame) -> None:
    partitions = [name for name in COLUMNS if name not in COMPLEX]
    frame = everything.select("row", *partitions).withColumn("string", everything["string"].substr(1, 9))
    expected = _rows(frame.toArrow())
    for row in expected:
        row["string"] = row["string"] or None
    delta.write(frame).partitionBy(*partitions).saveAsTable("t")
    assert _rows(delta.read.table("t").toArrow()) == expected
    assert _rows(delta.tables.by_name("t").snapshot().to_arrow()) == expected


def test_timestamps_mean_the_same_moment_in_every_time_zone(delta: DeltaConnection, spark: SparkSession) -> None:
    moment = "timestamp'2024-01-01 00:30:00Z'"
    for index, zone in enumerate(("Asia/Tokyo", "America/New_York")):
        with settings(spark, {TIME_ZONE: zone}):
            columns = f"{index} zone, {moment} moment, {moment} p, timestamp_ntz'2024-01-01 00:30:00' ntz"
            delta.write(spark.sql(f"select {columns}")).mode("append").partitionBy("p").saveAsTable("t")
    for zone in ("UTC", "Europe/Berlin"):
        same = f"moment = {moment} and p = {moment} and ntz = timestamp_ntz'2024-01-01 00:30:00'"
        with settings(spark, {TIME_ZONE: zone}):
            assert delta.read.where(same).table("t").count() == 2
    assert {add.partition_values["p"] for add in delta.tables.by_name("t").snapshot().files.values()} == {
        "2024-01-01T00:30:00.000000Z"
    }


@pytest.fixture
def rebase_mode(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    keys = (f"spark.sql.parquet.datetimeRebaseModeIn{direction}" for direction in ("Read", "Write"))
    with settings(spark, dict.fromkeys(keys, request.param)):
        yield request.param


@pytest.mark.parametrize("rebase_mode", ["CORRECTED", "LEGACY"], indirect=True)
def test_ancient_dates_are_the_same_in_both_rebase_modes(
    rebase_mode: str, delta: DeltaConnection, spark: SparkSession, tmp_path: Path
) -> None:
    """Files of this package use today's calendar, whatever the session's mode. Spark also reads its own files in the
    old calendar. The plain client rejects them, because it would read other days."""
    texts = ["0001-01-01", "1582-10-04", "1582-10-15", "1899-12-31", "9999-12-31"]
    values = ", ".join(f"({row}, date'{text}', timestamp'{text} 12:00:00Z')" for row, text in enumerate(texts))
    rows = spark.sql(f"select * from values {values} as t(row, day, moment)")
    expected = _rows(rows.toArrow())
    assert [str(row["day"]) for row in expected] == texts
    delta.write(rows).saveAsTable("flat")
    delta.write(rows).partitionBy("day").saveAsTable("parted")
    for name in ("flat", "parted"):
        assert _rows(delta.read.table(name).toArrow()) == expected
        assert _rows(delta.tables.by_name(name).snapshot().to_arrow()) == expected
        assert delta.read.where("day < date'1582-10-10'").table(name).count() == 2
    table = delta.tables.by_name("flat")
    add, *_ = table.snapshot().files.values()
    rows.coalesce(1).write.parquet(str(tmp_path / "sparks"))
    (sparks,) = (tmp_path / "sparks").glob("*.parquet")
    moved = sparks.rename(table.location / sparks.name)
    replaced = table.transaction()
    replaced.remove(*replaced.read_whole_table())
    replaced.add(msgspec.structs.replace(add, path=moved.name, size=moved.stat().st_size, stats=None))
    replaced.commit()
    assert _rows(delta.read.table("flat").toArrow()) == expected
    if rebase_mode == "CORRECTED":
        assert _rows(delta.tables.by_name("flat").snapshot().to_arrow()) == expected
    else:
        with pytest.raises(UnsupportedFeatureError):
            delta.tables.by_name("flat").snapshot().to_arrow()
