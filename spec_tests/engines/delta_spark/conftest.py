"""Delta Spark on a warehouse of ours, one for each test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import refimpl
from refimpl.client.table import Table
from refimpl.spark import coordinator
from spec_tests.engines.delta_spark.session import TINY, needed_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine:
    """Delta Spark, whose tables are those of a warehouse."""

    def __init__(self, spark: SparkSession, warehouse: refimpl.Warehouse, properties: Mapping[str, str]) -> None:
        self.spark = spark
        self.warehouse = warehouse
        self.properties = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of the answer."""
        return [tuple(row) for row in self.spark.sql(statement).collect()]

    def place(self, name: str) -> Path:
        return self.warehouse.directory / name

    def create(self, name: str, columns: str = "id BIGINT, name STRING", *, owned: bool = True) -> Table:
        """A table by Delta Spark's CREATE; through its owner as our client sees it."""
        properties = f" TBLPROPERTIES ({self.properties})" if owned else ""
        self.sql(f"CREATE TABLE {name} ({columns}) USING delta LOCATION '{self.place(name)}'{properties}")
        return self.table(name) if owned else Table.by_path(self.place(name))

    def insert(self, name: str, *rows: tuple[Any, ...]) -> None:
        self.sql(f"INSERT INTO {name} VALUES {', '.join(map(str, rows))}")

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """All rows, sorted, as a session reads them that never saw the table."""
        self.forget()
        return sorted(self.sql(f"SELECT * FROM {name}"))

    def table(self, name: str) -> Table:
        return self.warehouse.table(self.place(name))

    def forget(self) -> None:
        """Drop what Delta remembers of all logs."""
        jvm: Any = self.spark.sparkContext._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """All rows, sorted, as our client reads them."""
    return sorted(tuple(row.values()) for row in table.snapshot().to_arrow().to_pylist())


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[refimpl.Warehouse]:
    with refimpl.open(tmp_path / "warehouse", create=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def delta_spark(request: pytest.FixtureRequest) -> SparkSession:
    """A session of the Spark of all tests, where that has Delta. Its tables are tiny: compiling code for them would be
    most of the work."""
    needed_jars()
    session: SparkSession = request.getfixturevalue("spark").newSession()
    for key, value in TINY.items():
        session.conf.set(key, value)
    return session


@pytest.fixture
def engine(delta_spark: SparkSession, warehouse: refimpl.Warehouse) -> Iterator[Engine]:
    """Delta Spark with our owner as its commit coordinator."""
    yield Engine(delta_spark, warehouse, coordinator.register(delta_spark, warehouse))
    for row in delta_spark.sql("SHOW TABLES IN default").collect():
        delta_spark.sql(f"DROP TABLE IF EXISTS default.{row.tableName}")
    delta_spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
