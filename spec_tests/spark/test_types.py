"""All types: tasks and the driver write them; Spark, Arrow and delta-rs read the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from refimpl.protocol.errors import UnsupportedFeatureError
from refimpl.rows import data_files
from refimpl.spark import DeltaConnection, commit_protocol
from spec_tests.spark.conftest import TIME_ZONE, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
