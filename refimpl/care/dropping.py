"""Undrop a dropped table: catalog-managed, "Creating and Dropping".

It is the same table with its id and history, as long as its files exist and no other table has its name.

After a drop, another table may be created at the location. So undrop first checks that the log there is this table's: a
published commit must have the bytes that were ratified.
"""

import contextlib
import hashlib
from typing import Final

from refimpl.owner.local import LocalOwner
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import View
from refimpl.owner.tables import disk_errors
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import ResolvedTable, TableState
from refimpl.protocol.errors import LocationError, TableNotFoundError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.storage.locations import is_link

_LOOKED_AT: Final = 100
"""How many of the newest published commits are compared; one match is enough, because a client may spell an inline
commit differently."""


@disk_errors("undrop a table")
def undrop_table(owner: LocalOwner, reference: str) -> ResolvedTable:
    """Restore a dropped table, by id or by name; of several with this name, the one that was dropped last.

    Raises `TableNotFoundError`, `NameTakenError`, and `LocationError` if another table, or no table, is at its
    location. One transaction: after a crash the table is either dropped or active.
    """
    with owner.lock():
        dropped = _dropped(owner, reference)
        holder = owner.holder(dropped.name or "")
        if holder is not None:
            raise owner.name_taken(holder)
        with owner.changing(dropped.table_id) as (writer, table):
            _refuse_others(owner, writer, table)
            check_own_log(owner, writer, table)
            _refuse_another_writer(owner, table)
            writer.set(table, state=TableState.ACTIVE, dropped_at=None)
    return owner.resolve_id(dropped.table_id)


def _dropped(owner: LocalOwner, reference: str) -> TableRecord:
    """The table of this id or name that was dropped last."""
    with owner.ledger.read() as view:
        dropped = [table for table in view.tables(state=TableState.DROPPED) if table.latest is not None]
    dropped.sort(key=lambda table: (table.dropped_at or 0, table.key), reverse=True)
    matching = [table for table in dropped if reference in (table.table_id, table.name)]
    if not matching:
        names = ", ".join(dict.fromkeys(f"{table.name} ({table.table_id})" for table in dropped[:20])) or "none"
        raise TableNotFoundError(f"no dropped table {reference!r}; dropped tables: {names}", reference=reference)
    return matching[0]


def _refuse_others(owner: LocalOwner, view: View, table: TableRecord) -> None:
    """`LocationError` if the owner's folder, or a table that is not dropped, is at, in or around the location."""
    if is_link(table.location) or is_link(table.location / LOG_FOLDER):
        raise LocationError(f"{table.location}, or its log, is a symbolic link now", location=str(table.location))
    owner.refuse_overlap(view, table.location)
    other = view.table_at(table.location)
    if other is not None and other.state is TableState.HANDED_BACK and other.key < table.key:
        other = None  # an older record of `table`, from before it was taken over again
    if other is not None or owner.ledger.path.is_relative_to(table.location):
        what = "this owner's folder is inside it" if other is None else f"{other.label} ({other.state.value}) uses it"
        raise LocationError(
            f"{table.location} does not belong to {table.label} alone: {what}", location=str(table.location)
        )


def _refuse_another_writer(owner: LocalOwner, table: TableRecord) -> None:
    """`LocationError` if another writer continued the table, such as another catalog that registered it."""
    unknown = owner.unknown_published_version(table)
    if unknown is not None:
        raise LocationError(
            f"{table.location} has version {unknown}, which this owner did not ratify: another writer has used it "
            f"since {table.label} was dropped",
            location=str(table.location),
        )


def check_own_log(owner: LocalOwner, view: View, table: TableRecord) -> None:
    """`LocationError` if the log there is not this table's: no published commit has the ratified bytes."""
    log, newest = owner.log(table), -1 if table.backfilled is None else table.backfilled
    for version in range(newest, max(newest - _LOOKED_AT, -1), -1):
        details = view.commit_details(table, version)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if details is not None and hashlib.sha256(log.read(log_path.commit(version))).digest() == details[1]:
                return
    raise LocationError(
        f"{table.location} does not hold {table.label} any more: none of its published commits is there",
        location=str(table.location),
    )
