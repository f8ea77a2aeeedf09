"""`ingest`: files through Spark, one commit each call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refimpl.cli.exit_codes import ExitCode
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

with_spark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "day.csv"
    path.write_text("month,id\n1,10\n1,NA\n2,20\n")
    return path


def _rows(warehouse: Warehouse, table: str) -> list[tuple[object, ...]]:
    rows = warehouse.table(table).snapshot().to_arrow(columns=["id", "month"]).to_pylist()
    return sorted((row["month"], row["id"] or 0) for row in rows)


@pytest.mark.parametrize("marked", [pytest.param(None, marks=with_spark)])
def test_csv_files_become_one_commit_with_the_tables_types(
    cli: CommandLine, warehouse: Warehouse, sales: str, day: Path, spark: SparkSession, marked: None
) -> None:
    answer = cli("ingest", sales, day, day, "--null", "NA", "--json")
    assert answer.code == ExitCode.OK, answer.err
    assert (answer.json["version"], answer.json["rows"], answer.json["tries"]) == (1, 6, 1)
    assert _rows(warehouse, sales) == [(1, 0), (1, 0), (1, 10), (1, 10), (2, 20), (2, 20)]
    assert spark.range(1).count() == 1  # the session is left running


@pytest.mark.parametrize("marked", [pytest.param(None, marks=with_spark)])
def test_a_table_is_created_from_rows_only_where_that_is_wanted(
    cli: CommandLine, warehouse: Warehouse, day: Path, spark: SparkSession, marked: None
) -> None:
    refused = cli("ingest", "days", day)
    assert refused.code == ExitCode.USAGE
    assert "--create" in refused.err
    assert warehouse.tables() == []
    made = cli(
        *("ingest", "days", day, "--create", "-p", "month", "--feature", "managedCommit", "--null", "NA", "--json")
    )
    assert (made.code, made.json["version"]) == (ExitCode.OK, 0)
    snapshot = warehouse.table("days").snapshot()
    assert (str(snapshot.schema), snapshot.partition_columns) == ("struct<month:integer,id:integer>", ("month",))
    assert warehouse.owner.resolve("days").feature_name == "managedCommit"


@pytest.mark.parametrize("marked", [pytest.param(None, marks=with_spark)])
def test_overwrite_replaces_all_or_the_named_partitions(
    cli: CommandLine, warehouse: Warehouse, sales: str, day: Path, tmp_path: Path, spark: SparkSession, marked: None
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    cli("ingest", sales, day, "--null", "NA")
    parquet.write_table(
        pa.table({"id": pa.array([7], pa.int64()), "month": pa.array([1], pa.int32())}), tmp_path / "r.parquet"
    )
    replaced = cli("ingest", sales, tmp_path / "r.parquet", "--mode", "overwrite", "--replace-where", "month = 1")
    assert replaced.code == ExitCode.OK, replaced.err
    assert _rows(warehouse, sales) == [(1, 7), (2, 20)]
    outside = cli("ingest", sales, tmp_path / "r.parquet", "--mode", "overwrite", "--replace-where", "month = 2")
    assert outside.code == ExitCode.USAGE
    assert "removed 2 files" in cli("ingest", sales, tmp_path / "r.parquet", "--mode", "overwrite").out
    assert _rows(warehouse, sales) == [(1, 7)]


@pytest.mark.parametrize("marked", [pytest.param(None, marks=with_spark)])
def test_rows_that_do_not_fit_are_refused_and_nothing_lands(
    cli: CommandLine, warehouse: Warehouse, sales: str, tmp_path: Path, spark: SparkSession, marked: None
) -> None:
    (tmp_path / "more.csv").write_text("id,month,colour\n1,1,red\n")
    (tmp_path / "text.csv").write_text("id,month\nten,1\n")
    unknown = cli("ingest", sales, tmp_path / "more.csv")
    assert unknown.code == ExitCode.USAGE
    assert "colour" in unknown.err
    assert cli("ingest", sales, tmp_path / "text.csv").code == ExitCode.REFUSED
    assert warehouse.owner.resolve(sales).commits.latest_ratified_version == 0


@pytest.mark.parametrize(
    "words",
    [
        ["nowhere.csv"],
        ["rows.json"],
        ["rows.csv", "rows.parquet"],
        ["rows.csv", "--mode", "upsert"],
        ["rows.csv", "--partition-by", "id"],
        ["rows.csv", "--create", "--way", "sideways"],
        [],
    ],
)
def test_bad_input_is_refused_before_spark_is_started(
    cli: CommandLine, warehouse: Warehouse, sales: str, words: list[str]
) -> None:
    for name in ("rows.csv", "rows.json", "rows.parquet"):
        Path(name).write_text("id,month\n1,1\n")
    answer = cli("ingest", sales, *words)
    assert answer.code == ExitCode.USAGE
    assert warehouse.owner.resolve(sales).commits.latest_ratified_version == 0
