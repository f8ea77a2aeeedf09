"""Appending rows with the plain client: no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refimpl.client import data_files

if TYPE_CHECKING:
    import pyarrow as pa

    from refimpl.client.landing import Committed
    from refimpl.client.snapshot import Snapshot
    from refimpl.client.table import Table


def append(table: Table, rows: pa.Table, snapshot: Snapshot | None = None) -> Committed:
    """One blind append, begun on `snapshot` or on the newest version."""
    transaction = table.transaction(snapshot=snapshot, operation="WRITE", parameters={"mode": "Append"})
    based_on = transaction.snapshot
    transaction.add(*data_files.write(table.location, based_on.schema, based_on.partition_columns, rows))
    return transaction.commit()
