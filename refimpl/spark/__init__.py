"""Delta tables of a warehouse in PySpark.

    spark = refimpl.spark.local_session()
    delta = refimpl.spark.connect(spark, "/data/warehouse")
    delta.write(df).partitionBy("month").saveAsTable("flights")
    delta.read.where("month = 3").table("flights").count()

Spark is imported when it is used, not with this package.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from refimpl.spark.reader import DeltaReader
from refimpl.spark.session import find_java, local_session, prepared
from refimpl.spark.tables import TableAccess
from refimpl.spark.writer import DeltaWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.warehouse import Warehouse

__all__ = ["DeltaConnection", "connect", "find_java", "local_session"]


class DeltaConnection:
    """Made by `connect`. Any number of threads may use it."""

    def __init__(self, spark: SparkSession, tables: TableAccess) -> None:
        self.spark = spark
        self.tables = tables

    @property
    def read(self) -> DeltaReader:
        """Starts a read, as `spark.read` does."""
        return DeltaReader(self.tables)

    def write(self, frame: DataFrame) -> DeltaWriter:
        """Starts a write of these rows, as `df.write` does."""
        return DeltaWriter(self.tables, frame)


def connect(spark: SparkSession, warehouse: Warehouse | str | os.PathLike[str] | None = None) -> DeltaConnection:
    """Reads and writes of `spark`, a session of the user's or `local_session`'s, on the tables of a warehouse.

    `warehouse`: an open one, or the directory of one that exists; without it, tables are reached by path only.
    Sets what `refimpl.spark.session.SETTINGS` lists on the session, where the user has not.
    """
    if isinstance(warehouse, str | os.PathLike):
        import refimpl

        warehouse = refimpl.open(warehouse)
    return DeltaConnection(spark, TableAccess(prepared(spark), warehouse))
