"""Writes of several data frames to several tables, which land at once.

    with delta.transaction("orders", "stock") as tx:
        tx.write(new_orders).mode("append").saveAsTable("orders")
        tx.table("stock").update({"left": "left - 1"}, "item = 7")

Jobs run inside the block and write files that no log names yet; its end commits all of them, or deletes them. What may
be in a block, and what its readers see: `refimpl.client.group_transaction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from refimpl.client.table import Table
from refimpl.client.transaction import Committed
from refimpl.protocol.errors import InvalidRequestError, TableNotFoundError
from refimpl.spark.delta_table import DeltaTable
from refimpl.spark.reader import DeltaReader
from refimpl.spark.tables import PathTarget, TableAccess
from refimpl.spark.writer import DeltaWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from refimpl.client.group_transaction import GroupTransaction


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
