"""One table, written in turn by Delta Spark, our Spark pipeline, our client and DuckDB: all of them read the same
rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

import refimpl
from refimpl.client.create import create_filesystem_table
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.log_path import FileKind
from refimpl.protocol.table_feature import CATALOG_MANAGED
from refimpl.spark import connect
from spec_tests.engines.prerequisites import Engine, catalog_session, compile_catalog, rows_of, served
from spec_tests.support import other_readers
from spec_tests.support.other_readers import by_delta_rs, by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


COLUMNS = ("id", "name")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def one_row(spark: SparkSession, row: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame([row], "id long, name string")


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_all_engines_read_and_write_a_coordinated_table(engine: Engine) -> None:
    table = engine.create("orders")
    pipeline = connect(engine.spark, engine.warehouse)
    expected = []
    for number in range(0, 6, 3):
        engine.insert("orders", (number, "delta"))
        pipeline.write(one_row(engine.spark, (number + 1, "pipeline"))).mode("append").saveAsTable("orders")
        table.append(pa.table({"id": [number + 2], "name": ["client"]}, schema=SCHEMA))
        expected += [(number, "delta"), (number + 1, "pipeline"), (number + 2, "client")]
    assert engine.rows("orders") == expected
    assert sorted_rows(pipeline.read.table("orders")) == expected
    assert rows_of(table) == expected
    assert by_duckdb(table.location, COLUMNS) == expected
    with pytest.raises(DeltaError, match="VacuumProtocolCheck"):  # a feature that delta-rs lacks
        by_delta_rs(table.location, COLUMNS)
    assert engine.warehouse.owner.resolve("orders").commits.latest_ratified_version == 6


def test_all_engines_read_and_write_a_catalog_managed_table(
    delta_spark: SparkSession, java_classes: Path, warehouse: refimpl.Warehouse
) -> None:
    for name in ("duckdb_extension_httpfs", "duckdb_extension_unity_catalog"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    compile_catalog(java_classes)
    table = warehouse.create_table("orders", SCHEMA, feature=CATALOG_MANAGED)
    pipeline = connect(delta_spark, warehouse)
    with served(warehouse.directory) as url, other_readers.attached(url) as other:
        spark = catalog_session(delta_spark, url)
        expected = []
        for number in range(0, 8, 4):
            spark.sql(f"INSERT INTO unity.default.orders VALUES ({number}, 'delta')")
            pipeline.write(one_row(delta_spark, (number + 1, "pipeline"))).mode("append").saveAsTable("orders")
            table.append(pa.table({"id": [number + 2], "name": ["client"]}, schema=SCHEMA))
            other.execute(f"INSERT INTO unity.default.orders VALUES ({number + 3}, 'duckdb')")
            expected += [(number + index, who) for index, who in enumerate(("delta", "pipeline", "client", "duckdb"))]
        assert sorted_rows(spark.sql("SELECT * FROM unity.default.orders")) == expected
        assert sorted_rows(pipeline.read.table("orders")) == expected
        assert rows_of(table) == expected
        assert other_readers.rows_of(other, "orders") == expected
    assert warehouse.owner.resolve("orders").commits.latest_ratified_version == 8


def test_every_engine_reads_the_others_v2_checkpoints(engine: Engine, tmp_path: Path) -> None:
    """The commits before the last are deleted, so each reader needs the sidecars. Delta Spark also needs the last
    commit.
    """
    location = tmp_path / "plain"
    table = create_filesystem_table(
        location, engine.warehouse.environment, SCHEMA, properties={"delta.checkpointPolicy": "v2"}
    )
    expected = []
    for number in range(4):
        table.append(pa.table({"id": [number], "name": ["client"]}, schema=SCHEMA))
        expected.append((number, "client"))
    assert write_checkpoint(table).sidecars == 1
    for version in range(4):
        table.log.delete(log_path.commit(version))
    by_path = f"delta.`{location}`"
    assert sorted(engine.sql(f"SELECT * FROM {by_path}")) == expected
    for number in range(4, 8):
        engine.sql(f"INSERT INTO {by_path} VALUES ({number}, 'delta')")
        expected.append((number, "delta"))
    engine.sql(f"ALTER TABLE {by_path} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    engine.sql(f"INSERT INTO {by_path} VALUES (8, 'delta')")
    expected.append((8, "delta"))
    snapshot = Table.by_path(location).snapshot()
    assert snapshot.loaded.segment.checkpoint_version == snapshot.version == 10
    assert snapshot.loaded.segment.checkpoint[0].kind is FileKind.V2_CHECKPOINT
    assert rows_of(Table.by_path(location)) == expected
    assert by_delta_rs(location, COLUMNS) == by_duckdb(location, COLUMNS) == expected


def test_a_query_that_delta_spark_reads_does_not_overwrite_its_table(engine: Engine) -> None:
    """The version that Delta Spark reads is not known here, so a conflict could not be seen."""
    location = engine.location("both")
    table = create_filesystem_table(location, engine.warehouse.environment, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    frame = engine.spark.read.format("delta").load(str(location)).where("id > 1")
    ours = connect(engine.spark, engine.warehouse)
    with pytest.raises(InvalidRequestError, match="Delta Spark reads"):
        ours.write(frame).mode("overwrite").save(str(location))
    ours.write(frame).mode("overwrite").saveAsTable("other")
    assert (rows_of(table), table.snapshot().version) == ([(1,), (2,)], 1)
