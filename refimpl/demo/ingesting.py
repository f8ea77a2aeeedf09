"""One of the writers: the parts of the file, through Spark, one commit for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.demo.observed_owner import ObservedOwner
from refimpl.demo.source import NULL
from refimpl.demo.tasks import Ingest, parts_of_word
from refimpl.environment import Environment
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.client.schema import Struct

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
"""Short jobs gain more from a quick start than from the best code."""


def session(name: str) -> SparkSession:
    """One core for each process: several run at the same time."""
    from refimpl.spark.session import local_session

    return local_session(
        app_name=name,
        cores=1,
        shuffle_partitions=1,
        memory="768m",
        java_options=JAVA_OPTIONS,
        settings={"spark.sql.session.timeZone": "UTC"},
    )


def ingest(task: Ingest, tell: Callable[..., None], wait: Callable[[], str]) -> None:
    """Append each part as one commit. `proposing`, `lost` and `holding` are told by the owner that is observed."""
    from pyspark.sql.functions import col

    import refimpl.spark
    from refimpl.spark.frames import quoted

    spark = session("ingest")
    environment = Environment()
    owner = ObservedOwner(Path(task.warehouse), environment, tell=tell, wait=wait, holds=task.holds)
    warehouse = Warehouse(Path(task.warehouse), owner, environment)
    delta = refimpl.spark.connect(spark, warehouse)
    schema = warehouse.table(task.table).snapshot().schema
    part, file, parts = col(quoted(task.partition_column)).cast("string"), _rows(spark, task, schema), task.parts
    tell("ready")
    while parts:
        rows = file.where(part.isin(parts)).persist()
        for value in parts:
            tell("writing", part=value)
            written = delta.write(rows.where(part == value)).mode("append").saveAsTable(task.table)
            assert written is not None
            owner.parts_done += 1
            tell("committed", part=value, version=written.version, rows=written.rows, tries=written.tries)
        rows.unpersist()
        tell("idle")
        parts = parts_of_word(wait())
    warehouse.close()
    spark.stop()


def _rows(spark: SparkSession, task: Ingest, schema: Struct) -> DataFrame:
    """The file with the table's columns. A CSV file whose header differs from them is an error of Spark's."""
    from refimpl.spark.frames import spark_schema

    if not task.is_csv:
        return spark.read.parquet(task.path)
    reader = spark.read.schema(spark_schema(schema)).option("header", True).option("enforceSchema", False)
    return reader.option("nullValue", NULL).option("mode", "FAILFAST").csv(task.path)
