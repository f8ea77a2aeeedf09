"""Delta tables of a warehouse in PySpark.

    spark = refimpl.spark.local_session()
    delta = refimpl.spark.connect(spark, "/data/warehouse")
    delta.write(df).partitionBy("month").saveAsTable("flights")
    delta.read.where("month = 3").table("flights").count()
    delta.table("flights").delete("month = 3")

Importing this package does not import Spark; the first use does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.spark.delta_table import DeltaTable
from refimpl.spark.group import SparkTransaction
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
        """The warehouse's table of this name, to change its rows. Raises `TableNotFoundError`."""
        return DeltaTable(self.tables, self.tables.by_name(name))

    def transaction(self, *names: str) -> SparkTransaction:
        """A transaction over several tables, for a `with` statement: `refimpl.spark.group`. Raises
        `InvalidRequestError` without a warehouse, or for an owner without such transactions."""
        return SparkTransaction(self.tables, names)

    def table_at(self, path: str | Path) -> DeltaTable:
        """The table at this path, through its owner: see `Tables.by_path`."""
        return DeltaTable(self.tables, self.tables.by_path(Path(path).absolute()))


WAREHOUSE_SETTING = "spark.commitOwner.warehouse"
TOKEN_SETTING = "spark.commitOwner.token"


def connect(spark: SparkSession, warehouse: AnyWarehouse | str | os.PathLike[str] | None = None) -> DeltaConnection:
    """Connect the session `spark` (the user's own, or that of `local_session`) to the tables of a warehouse.

    `warehouse`: an open warehouse, the directory of an existing one, or the URL of a server. Default: the session's
    setting `spark.commitOwner.warehouse`; without this setting, tables are reached by path only.
    The token for a server is the session's setting `spark.commitOwner.token` (default: $COMMIT_OWNER_TOKEN). It stays
    on the driver: tasks only write files. Applies `refimpl.spark.session.SETTINGS` to the session, except those that
    the user has set.
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

    tables = TableAccess(prepared(spark), warehouse)
    data_source.register(tables)
    return DeltaConnection(spark, tables)
