"""Rows for the tables of these tests, committed by the plain client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refimpl.client import data_files
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from refimpl.client.landing import Committed


def commit_rows(warehouse: Warehouse, table: str, *rows: dict[str, object]) -> Committed:
    """One append."""
    import pyarrow as pa

    handle = warehouse.table(table)
    transaction = handle.transaction(operation="WRITE", parameters={"mode": "Append"})
    snapshot = transaction.snapshot
    data = pa.Table.from_pylist(list(rows))
    transaction.add(*data_files.write(handle.location, snapshot.schema, snapshot.partition_columns, data))
    return transaction.commit()
