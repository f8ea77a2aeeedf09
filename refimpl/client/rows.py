"""Rows of Arrow tables, appended to or put in the place of a table's rows, without Spark.

Data files are written and made durable first; then one transaction names them. If it certainly did not
land they are deleted; after an unknown outcome they stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refimpl.client import data_files, file_statistics
from refimpl.client.transaction import Committed
from refimpl.errors import CERTAINLY_NOT_COMMITTED

if TYPE_CHECKING:
    from refimpl.client.table import Table
    from refimpl.client.transaction import Transaction


def append(table: Table, rows: Any, *, app: tuple[str, int] | None = None) -> Committed | None:
    """Append a `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`, columns by name.

    `app`: (application id, batch number); a batch that this application committed already is skipped, and
    None returned. Raises `InvalidRequestError` for rows that do not fit, and what a commit raises.
    """
    transaction = table.transaction(operation="WRITE", parameters={"mode": "Append"})
    if app is not None and not transaction.claim(*app):
        return None
    return _commit_with(transaction, rows)


def overwrite(table: Table, rows: Any) -> Committed:
    """Put `rows` in the place of all rows. Whoever changes the table meanwhile is a conflict."""
    transaction = table.transaction(operation="WRITE", parameters={"mode": "Overwrite"})
    transaction.remove(*transaction.read_whole_table())
    return _commit_with(transaction, rows)


def _commit_with(transaction: Transaction, rows: Any) -> Committed:
    table, snapshot = transaction.table, transaction.snapshot
    columns, properties = snapshot.partition_columns, snapshot.metadata.configuration
    adds = data_files.write(
        table.location,
        snapshot.schema,
        columns,
        rows,
        new_id=table.environment.new_id,
        indexed=file_statistics.indexed(snapshot.schema.without(columns), properties),
    )
    try:
        transaction.add(*adds)
        return transaction.commit()
    except CERTAINLY_NOT_COMMITTED:
        data_files.delete(table.location, adds)
        raise
