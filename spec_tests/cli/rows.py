"""Rows for the tables of these tests, committed by the plain client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from refimpl.client.transaction import Committed


def commit_rows(warehouse: Warehouse, table: str, *rows: dict[str, object]) -> Committed:
    """One append."""
    import pyarrow as pa

    committed = warehouse.table(table).append(pa.Table.from_pylist(list(rows)))
    assert committed is not None
    return committed
