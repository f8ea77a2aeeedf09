"""Delta tables of a warehouse in PySpark.

    spark = refimpl.spark.local_session()
    delta = refimpl.spark.connect(spark, "/data/warehouse")
    delta.write(df).partitionBy("month").saveAsTable("flights")
    delta.read.where("month = 3").table("flights").count()
    delta.table("flights").delete("month = 3")

Spark is imported when it is used, not with this package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.spark.delta_table import DeltaTable
from refimpl.spark.reader import DeltaReader
from refimpl.spark.session import find_java, local_session, prepared
from refimpl.spark.tables import TableAccess
from refimpl.spark.writer import DeltaWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.warehouse import AnyWarehouse

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

    def table(self, name: str) -> DeltaTable:
        """The warehouse's table of this name, to change its rows or read its changes. Raises `TableNotFoundError`."""
        return DeltaTable(self.tables, self.tables.by_name(name))

    def table_at(self, path: str | Path) -> DeltaTable:
        """The table at this path, through its owner where the warehouse has one for it."""
        return DeltaTable(self.tables, self.tables.by_path(Path(path).absolute()))


WAREHOUSE_SETTING = "spark.commitOwner.warehouse"
TOKEN_SETTING = "spark.commitOwner.token"


def connect(spark: SparkSession, warehouse: AnyWarehouse | str | os.PathLike[str] | None = None) -> DeltaConnection:
    """Reads and writes of `spark`, a session of the user's or `local_session`'s, on the tables of a warehouse.

    `warehouse`: an open one, the directory of one that exists, or the URL of a server; without it, what the session's
    `spark.commitOwner.warehouse` names; without that, tables are reached by path only. The token for a server is the
    session's `spark.commitOwner.token`, by default $COMMIT_OWNER_TOKEN. It stays on the driver: tasks only write files.
    Sets what `refimpl.spark.session.SETTINGS` lists on the session, where the user has not.
    """
    if warehouse is None:
        warehouse = spark.conf.get(WAREHOUSE_SETTING, None)
    if isinstance(warehouse, str | os.PathLike):
        import refimpl
        from refimpl.warehouse import is_url

        if is_url(warehouse):
            warehouse = refimpl.open(str(warehouse), token=spark.conf.get(TOKEN_SETTING, None))
        else:
            warehouse = refimpl.open(warehouse)
    from refimpl.spark import data_source

    data_source.register(prepared(spark), warehouse)
    return DeltaConnection(spark, TableAccess(spark, warehouse))
