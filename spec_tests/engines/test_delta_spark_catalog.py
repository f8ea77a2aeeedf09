"""Delta Spark 4.4 with our server as its catalog. All work on tables goes through Delta's own client of the Delta
API.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import refimpl
from refimpl.protocol.table_feature import CATALOG_MANAGED
from spec_tests.engines.prerequisites import catalog_session, compile_catalog, rows_of, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.engines


class Catalog:
    """The server's tables in Delta Spark, and the warehouse that holds them."""

    def __init__(self, spark: "SparkSession", warehouse: refimpl.Warehouse) -> None:
        self.spark = spark
        self.warehouse = warehouse

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(statement).collect()]

    def create(self, name: str) -> None:
        self.sql(f"CREATE TABLE unity.default.{name} (id BIGINT, name STRING) USING delta {_PROPERTIES}")

    def insert(self, name: str, *rows: tuple[Any, ...]) -> None:
        self.sql(f"INSERT INTO unity.default.{name} VALUES {', '.join(map(str, rows))}")

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.sql(f"SELECT * FROM unity.default.{name}"))

    def latest(self, name: str) -> int | None:
        return self.warehouse.owner.resolve(name).commits.latest_ratified_version


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_PROPERTIES = "TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported', 'delta.enableDeletionVectors' = 'false')"


@pytest.fixture(scope="module")
def catalog(
    delta_spark: "SparkSession", java_classes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalog]:
    compile_catalog(java_classes)
    directory = tmp_path_factory.mktemp("catalog") / "warehouse"
    with refimpl.open(directory, create=True) as warehouse, served(directory) as url:
        yield Catalog(catalog_session(delta_spark, url), warehouse)


def test_every_statement_commits_through_the_server(catalog: Catalog) -> None:
    catalog.create("orders")
    catalog.insert("orders", (1, "one"), (2, "two"))
    catalog.insert("orders", (3, "three"))
    catalog.sql("UPDATE unity.default.orders SET name = 'TWO' WHERE id = 2")
    catalog.sql("DELETE FROM unity.default.orders WHERE id = 1")
    catalog.sql(
        "MERGE INTO unity.default.orders t USING (SELECT 3 AS id, 'THREE' AS name UNION ALL SELECT 4, 'four') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
    )
    catalog.sql("ALTER TABLE unity.default.orders ADD COLUMN price INT")
    expected = [(2, "TWO", None), (3, "THREE", None), (4, "four", None)]
    assert catalog.rows("orders") == expected
    assert rows_of(catalog.warehouse.table("orders")) == expected
    assert catalog.latest("orders") == 6
    operations = [row.operation for row in catalog.spark.sql("DESCRIBE HISTORY unity.default.orders").collect()]
    assert operations == ["ADD COLUMNS", "MERGE", "DELETE", "UPDATE", "WRITE", "WRITE", "CREATE TABLE"]
    earlier = catalog.sql("SELECT * FROM unity.default.orders VERSION AS OF 2")
    assert sorted(earlier) == [(1, "one"), (2, "two"), (3, "three")]


def test_a_table_is_created_with_its_rows_and_dropped(catalog: Catalog) -> None:
    catalog.sql(f"CREATE TABLE unity.default.copy USING delta {_PROPERTIES} AS SELECT 7L AS id, 'x' AS name")
    assert catalog.rows("copy") == rows_of(catalog.warehouse.table("copy")) == [(7, "x")]
    assert catalog.latest("copy") == 0
    catalog.sql("DROP TABLE unity.default.copy")
    assert "copy" not in catalog.warehouse.tables()


def test_a_table_is_described_and_replaced_under_its_name(catalog: Catalog) -> None:
    catalog.create("notes")
    catalog.insert("notes", (1, "one"))
    catalog.sql("COMMENT ON TABLE unity.default.notes IS 'what was noted'")
    assert catalog.warehouse.table("notes").snapshot().metadata.description == "what was noted"
    table_id = catalog.warehouse.owner.resolve("notes").table_id
    catalog.sql(
        f"CREATE OR REPLACE TABLE unity.default.notes USING delta {_PROPERTIES} AS SELECT 5 AS id, 'five' AS name"
    )
    assert catalog.rows("notes") == [(5, "five")]
    assert catalog.warehouse.owner.resolve("notes").table_id == table_id
    assert catalog.latest("notes") == 3
    assert catalog.sql("SELECT count(*) FROM unity.default.notes VERSION AS OF 1") == [(1,)]


def test_concurrent_inserts_all_land_once(catalog: Catalog) -> None:
    catalog.warehouse.create_table("races", SCHEMA, feature=CATALOG_MANAGED)  # a table by Delta has row tracking
    start = threading.Barrier(5)

    def by_spark(number: int) -> None:
        start.wait()
        for index in range(2):
            catalog.insert("races", (number * 10 + index, "spark"))

    def by_our_client() -> None:
        table = catalog.warehouse.table("races")
        start.wait()
        for number in range(4):
            table.append(pa.table({"id": [100 + number], "name": ["ours"]}))

    with ThreadPoolExecutor(5) as pool:
        for future in [*(pool.submit(by_spark, number) for number in range(4)), pool.submit(by_our_client)]:
            future.result()
    expected = [0, 1, 10, 11, 20, 21, 30, 31, 100, 101, 102, 103]
    assert [row[0] for row in catalog.rows("races")] == expected
    assert [row[0] for row in rows_of(catalog.warehouse.table("races"))] == expected
    assert catalog.latest("races") == 12
