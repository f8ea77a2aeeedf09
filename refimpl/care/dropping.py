"""Undrop and purge a dropped table: catalog-managed, "Creating and Dropping".

Undropped: the same table with its id and history, as long as its files exist and no other table has its name.
Purged: a hard delete of the files. The ledger's rows stay, so that its id and its attempts are never used again.

After a drop, another table may be created at the location. So undrop and purge first check that the log there is this
table's: a published commit must have the bytes that were ratified. Purge deletes that file last, so an interrupted
purge can check it again.
"""

import contextlib
import errno
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from refimpl.owner.local import LocalOwner
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import View
from refimpl.owner.tables import disk_errors
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import ResolvedTable, TableState
from refimpl.protocol.errors import InvalidRequestError, LocationError, TableNotFoundError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.storage.files import Files
from refimpl.storage.locations import is_link
from refimpl.storage.object_store import objects_at

KEPT_FOR: Final = 7 * 86_400_000
"""ms during which a dropped table can be undropped, unless a purge with a shorter time deletes it."""
BATCH: Final = 1000
"""Files deleted under one hold of the lock; between two holds other processes get the lock."""
BATCH_OF_OBJECTS: Final = 20
"""The same in an object store, where each deletion is two requests."""
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
        dropped = _dropped(owner, reference)[0]
        holder = owner.holder(dropped.name or "")
        if holder is not None:
            raise owner.name_taken(holder)
        with owner.changing(dropped.table_id) as (writer, table):
            _refuse_others(owner, writer, table)
            own_commit(owner, writer, table)
            _refuse_another_writer(owner, table)
            writer.set(table, state=TableState.ACTIVE, dropped_at=None)
    return owner.resolve_id(dropped.table_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """A table whose files were deleted."""

    table_id: str
    name: str | None
    location: Path
    files: int
    """How many this call deleted."""
    left: bool
    """Whether the location still exists, because it holds another table."""


@disk_errors("find a dropped table")
def purgeable(owner: LocalOwner, reference: str, *, older_than: int = KEPT_FOR) -> TableRecord:
    """The table that a purge of this name or id would delete. Raises the errors of `purge_table` for a table that is
    unknown, ambiguous, or was dropped too recently."""
    return _purgeable(owner, reference, older_than)


def _purgeable(owner: LocalOwner, reference: str, older_than: int) -> TableRecord:
    candidates = _dropped(owner, reference, purged=True)
    if len(candidates) > 1:
        ids = ", ".join(table.table_id for table in candidates)
        raise InvalidRequestError(f"several dropped tables are called {reference!r}; give the id: {ids}")
    if candidates[0].purged_at is None and older_than > 0:
        _refuse_early(candidates[0], owner.now, older_than)
    return candidates[0]


@disk_errors("purge a table")
def purge_table(owner: LocalOwner, reference: str, *, older_than: int = KEPT_FOR) -> Purged:
    """Delete all files of a table that was dropped at least `older_than` ms ago; see `undrop_table` for the errors.

    A folder below the location that has a log of its own is another table, and stays. Symbolic links are deleted, not
    followed.

    Order: the transaction after which the table can be neither undropped nor published; the publishing lock's file;
    the data files; the log; last the commit that identifies the log as the table's. Each deletion below the location is
    durable before that last one; if a power cut restores the lock file, no process uses it. An interrupted purge can be
    repeated.
    """
    with owner.lock():
        dropped = _purgeable(owner, reference, older_than)
        with owner.changing(dropped.table_id) as (writer, table):
            _refuse_others(owner, writer, table)
            if table.purged_at is None:
                own_commit(owner, writer, table)
                _refuse_another_writer(owner, table)
                writer.set(table, purged_at=owner.now)
    with owner.publishing(table.table_id):
        owner.end_publishing(table.table_id)
    deleted = 0
    files = owner.environment.files
    most = BATCH if objects_at(owner.environment, table.location) is None else BATCH_OF_OBJECTS
    last: Path | None = None
    steps: Iterator[Path] = iter(())
    done = False
    while not done:
        with owner.lock():
            with owner.ledger.read() as view:
                _refuse_others(owner, view, table)
                try:
                    evidence = owner.log(table).folder / own_commit(owner, view, table)
                except LocationError:  # an earlier purge deleted the last file
                    _remove_empty(files, table)
                    break
            if evidence != last:
                last, steps = evidence, _deleting(files, table.location, keep=evidence)
            batch = sum(1 for _ in islice(steps, most))
            done = batch < most
            if done:
                files.unlink(evidence)
                _remove_empty(files, table)  # under the lock: another table may be created here from now on
            deleted += batch + done
    left = files.stat(table.location) is not None
    return Purged(table_id=table.table_id, name=table.name, location=table.location, files=deleted, left=left)


def _duration(ms: int) -> str:
    """Such as `7 days`, `24 h`, `1.5 h` or `20 s`."""
    for unit, length, least in (("days", 86_400_000, 172_800_000), ("h", 3_600_000, 3_600_000)):
        if ms >= least:
            return f"{ms * 10 // length / 10:g} {unit}"  # rounded down: an age below the limit stays below it
    return f"{ms // 1000} s"


def _refuse_early(table: TableRecord, now: int, older_than: int) -> None:
    age = now - (table.dropped_at or now)  # an earlier schema recorded no time
    if age < older_than:
        raise InvalidRequestError(
            f"{table.label} was dropped {_duration(age)} ago; expected at least {_duration(older_than)}; wait, "
            "or pass a smaller --older-than (older_than in Python)",
            age=age,
        )


def _dropped(owner: LocalOwner, reference: str, *, purged: bool = False) -> list[TableRecord]:
    """The dropped tables of this id or name, the most recently dropped first. `purged`: also a table whose purge began,
    found by its id, or by its name if it was dropped last."""
    with owner.ledger.read() as view:
        dropped = [table for table in view.tables(state=TableState.DROPPED) if table.latest is not None]
    dropped.sort(key=lambda table: (table.dropped_at or 0, table.key), reverse=True)
    known = [table for table in dropped if table.purged_at is None]
    matching = [table for table in known if reference in (table.table_id, table.name)]
    if purged and not matching:
        matching = [table for table in dropped if reference in (table.table_id, table.name)][:1]
    if not matching:
        names = ", ".join(dict.fromkeys(f"{table.name} ({table.table_id})" for table in known[:20])) or "none"
        raise TableNotFoundError(f"no dropped table {reference!r}; dropped tables: {names}", reference=reference)
    return matching


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


def own_commit(owner: LocalOwner, view: View, table: TableRecord) -> str:
    """The name of a published commit with the ratified bytes; `LocationError` if the log there is not this table's."""
    log, newest = owner.log(table), -1 if table.backfilled is None else table.backfilled
    for version in range(newest, max(newest - _LOOKED_AT, -1), -1):
        details = view.commit_details(table, version)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if details is not None and hashlib.sha256(log.read(log_path.commit(version))).digest() == details[1]:
                return log_path.commit(version)
    raise LocationError(
        f"{table.location} does not hold {table.label} any more: none of its published commits is there; if it "
        f"holds another table, do not purge it",
        location=str(table.location),
    )


def _deleting(files: Files, location: Path, *, keep: Path) -> Iterator[Path]:
    """Deletes the files of a table one by one, its log last, except `keep`, and each folder when it is empty. All
    deletions are durable at the end."""
    log = location / LOG_FOLDER
    for folder in (location, log):
        for entry in _entries(files, folder):
            path = folder / entry
            if path not in (log, keep):
                yield from _deleting_tree(files, path)
        files.fsync_directory(folder)


def _deleting_tree(files: Files, path: Path) -> Iterator[Path]:
    status = files.stat(path)
    if status is None or not status.is_directory or is_link(path):
        with contextlib.suppress(FileNotFoundError):
            files.unlink(path)
        yield path
        return
    names = _entries(files, path)
    if LOG_FOLDER in names:
        return
    for name in names:
        yield from _deleting_tree(files, path / name)
    if not _removed(files, path):  # another table is below
        files.fsync_directory(path)


def _entries(files: Files, folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in files.list_directory(folder))
    except FileNotFoundError:
        return []


def _remove_empty(files: Files, table: TableRecord) -> None:
    """Remove the remaining folders, if they are empty."""
    for folder in (table.location / LOG_FOLDER, table.location):
        if files.stat(folder) is not None and _removed(files, folder):
            files.fsync_directory(folder.parent)


def _removed(files: Files, folder: Path) -> bool:
    """Remove a folder; False if it is not empty."""
    try:
        files.remove_directory(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
