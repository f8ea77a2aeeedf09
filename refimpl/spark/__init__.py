"""Delta tables of a warehouse in PySpark.

    spark = refimpl.spark.local_session()
    delta = refimpl.spark.connect(spark, "/data/warehouse")
    delta.write(df).partitionBy("month").saveAsTable("flights")
    delta.read.where("month = 3").table("flights").count()
    delta.table("flights").delete("month = 3")

Writes of several data frames to several tables, which land at once:

    with delta.transaction("orders", "stock") as tx:
        tx.write(new_orders).mode("append").saveAsTable("orders")
        tx.table("stock").update({"left": "left - 1"}, "item = 7")

Jobs run inside the block and write files that no log names yet; its end commits all of them, or deletes them. What may
be in a block, and what its readers see: `refimpl.client.group_transaction`.

Importing this package does not import Spark; the first use does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from refimpl.client.table import Table
from refimpl.client.transaction import Committed
from refimpl.protocol.errors import InvalidRequestError, TableNotFoundError
from refimpl.spark.delta_table import DeltaTable
from refimpl.spark.reader import DeltaReader
from refimpl.spark.session import find_java, local_session, prepared
from refimpl.spark.tables import PathTarget, TableAccess
from refimpl.spark.writer import DeltaWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.client.group_transaction import GroupTransaction
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
        """A transaction over several tables, for a `with` statement. Raises `InvalidRequestError` without a warehouse,
        or for an owner without such transactions."""
        return SparkTransaction(self.tables, names)

    def table_at(self, path: str | Path) -> DeltaTable:
        """The table at this path, through its owner: see `Tables.by_path`."""
        return DeltaTable(self.tables, self.tables.by_path(Path(path).absolute()))


class SparkTransaction:
    """Made by `DeltaConnection.transaction`; a context manager, used once."""

    def __init__(self, access: TableAccess, names: tuple[str, ...]) -> None:
        self._group = access.required_warehouse().transaction(*names)
        self._access = _GroupAccess(access, self._group)

    def __enter__(self) -> Self:
        self._group.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._group.__exit__(kind, error, trace)

    @property
    def read(self) -> DeltaReader:
        """Starts a read of a table as this transaction reads it."""
        return DeltaReader(self._access)

    def write(self, frame: DataFrame) -> DeltaWriter:
        """Starts a write to an existing table. The version in its result is the one that is proposed first."""
        return DeltaWriter(self._access, frame)

    def table(self, name: str) -> DeltaTable:
        """The table of this name, to change its rows."""
        return DeltaTable(self._access, self._access.by_name(name))

    @property
    def committed(self) -> Mapping[str, Committed]:
        """After the block: the commit of each changed table, by name."""
        return self._group.committed


class _GroupAccess(TableAccess):
    """The tables of one transaction."""

    def __init__(self, access: TableAccess, group: GroupTransaction) -> None:
        super().__init__(access.spark, access.warehouse)
        self._group = group

    def by_name(self, name: str) -> Table:
        self._refuse_other_names()
        try:
            return self._group.table(name).handle
        except TableNotFoundError as error:
            raise InvalidRequestError(
                f"{error}; a transaction over several tables cannot create a table; create it first", name=name
            ) from error

    def by_path(self, location: Path) -> Table:
        raise _names_only(location)

    def target_at(self, location: Path) -> PathTarget:
        raise _names_only(location)


def _names_only(location: Path) -> InvalidRequestError:
    return InvalidRequestError(
        f"invalid table {str(location)!r}; expected a name: a transaction over several tables takes no paths"
    )


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
