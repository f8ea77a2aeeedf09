"""Spark on a table in an S3-compatible store. Its executors take credentials and endpoint from the environment."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import refimpl
from spec_tests.server.conftest import SCHEMA, ids_in
from spec_tests.storage.test_object_store import directory, objects, server, store

__all__ = ["directory", "server", "store"]

pytestmark = [pytest.mark.engines, pytest.mark.spark]

WORK = """
import sys
import refimpl.spark
from refimpl.client.maintenance import write_checkpoint

spark = refimpl.spark.local_session(cores=2)
delta = refimpl.spark.connect(spark, sys.argv[1])
orders = delta.table("orders")


def rows(start, end):
    return spark.range(start, end, numPartitions=2).selectExpr("id", "cast(id % 2 as int) AS day")


delta.write(rows(0, 10)).mode("append").saveAsTable("orders")
odd = rows(10, 20).where("day = 1")
delta.write(odd).mode("overwrite").option("replaceWhere", "day = 1").saveAsTable("orders")
orders.delete("id = 0")
orders.update({"id": "id + 100"}, "id = 2")
merge = orders.merge(rows(4, 6), "target.id = source.id").whenMatchedDelete().whenNotMatchedInsertAll()
assert merge.execute().metrics["numTargetRowsInserted"] == 1
write_checkpoint(delta.tables.by_name("orders"))
assert sorted(row.id for row in delta.read.where("day = 0").table("orders").collect()) == [6, 8, 102]
changes = spark.read.format("delta-owner").option("readChangeFeed", True).option("startingVersion", 3).load("orders")
feed = [(row["_change_type"], row.id) for row in changes.collect()]
assert sorted(feed) == [
    ("delete", 0), ("delete", 4), ("insert", 5), ("update_postimage", 102), ("update_preimage", 2)
], feed
stream = spark.readStream.format("delta-owner").load("orders").writeStream.format("delta-owner")
stream = stream.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True)
stream.start("copy").awaitTermination()
"""


def test_spark_writes_changes_and_streams(directory: Path, store: str, tmp_path: Path) -> None:
    with refimpl.open(directory) as warehouse:
        for name in ("orders", "copy"):
            warehouse.create_table(
                name,
                SCHEMA,
                partition_columns=["day"],
                location=directory / "s3.store" / name,
                properties={"delta.enableChangeDataFeed": "true"},
            )
        command = [sys.executable, "-c", WORK, str(directory), str(tmp_path / "checkpoint")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        assert done.returncode == 0, done.stdout
        expected = [5, 6, 8, 11, 13, 15, 17, 19, 102]
        assert ids_in(warehouse.table("orders")) == ids_in(warehouse.table("copy")) == expected
        assert warehouse.table("orders").snapshot().version == 5
    assert {name.partition("/")[0] for name in objects(store)} == {"orders", "copy"}


def test_files_are_ingested(directory: Path, tmp_path: Path) -> None:
    with refimpl.open(directory) as warehouse:
        table = warehouse.create_table("orders", SCHEMA, location=directory / "s3.store" / "orders")
        (tmp_path / "orders.csv").write_text("id,day\n1,1\n2,0\n")
        program = str(Path(sys.executable).with_name("commit-owner"))
        command = [program, "ingest", "orders", str(tmp_path / "orders.csv")]
        done = subprocess.run(
            [*command, "-w", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout
        assert table.snapshot().to_arrow().sort_by("id") == pa.table({"id": [1, 2], "day": [1, 0]}, schema=SCHEMA)
