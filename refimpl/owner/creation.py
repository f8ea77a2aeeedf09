"""Creating and dropping tables: a location first, then version 0, then the name.

catalog-managed, "Creating and Dropping", three phases. Creators race for the name, and the
transaction that registers it decides; everybody has a location of its own until then.
managed-commits, "Creating a new managed-commit table": version 0 is written in place by
put-if-absent, so that an owner and a filesystem creator cannot both win.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from refimpl.commit_owner import MaintenancePolicy, NameTaken, Registered, ResolvedTable, TableState
from refimpl.commits import Conflict, DirectProposal, Outcome, Ratified, Rejected, RejectionReason
from refimpl.errors import (
    CorruptionError,
    DeltaError,
    InvalidRequestError,
    LocationError,
    NameTakenError,
    OutcomeUnknown,
    OwnerUnavailableError,
)
from refimpl.files import Files
from refimpl.log_path import LOG_FOLDER
from refimpl.owner import decide, policy
from refimpl.owner.backfill import backfill, finish
from refimpl.owner.context import Context
from refimpl.owner.promises import promise_of
from refimpl.owner.records import Examined, PromiseKind, TableRecord
from refimpl.owner.statements import View, Writer
from refimpl.table_feature import CommitMode, TableFeature

_LONGEST_FILE_NAME: Final = 255
"""Bytes, on every file system that we know."""

_NAME_IN_FOLDER: Final = 100
"""So many characters of a table's name are in its folder's name, which the file system limits."""


def stage_table(
    context: Context,
    name: str,
    feature: TableFeature,
    commit_mode: CommitMode | None,
    location: Path | None,
    wanted: MaintenancePolicy | None,
    empty: bool = False,
) -> ResolvedTable:
    """Phase 1; see `CommitOwner.stage_table`. The ledger knows the location before anything is there."""
    table_id = context.environment.new_id()
    record = TableRecord(
        key=0,
        table_id=table_id,
        name=policy.checked_name(name),
        location=location or context.warehouse / f"{name[:_NAME_IN_FOLDER]}-{table_id[:8]}",
        feature=feature,
        commit_mode=policy.checked_commit_mode(feature, commit_mode),
        state=TableState.STAGING,
        latest=None,
        backfilled=None,
        in_commit_timestamp=None,
        policy=policy.checked_policy(wanted),
        halted=None,
        created_at=context.now,
    )
    refuse_unusual_path(record.location)
    with context.lock():
        holder = context.holder(name)
        if holder is not None:
            raise name_taken(context, holder)
        with context.ledger.write() as writer:
            _check_new_location(context, writer, record.location)
            record = writer.add_table(record)
    try:
        if empty:
            context.log(record).create_location()
        else:
            context.log(record).create_folders(feature.staging_folder)
    except OSError as error:
        with contextlib.suppress(DeltaError), context.lock(), context.ledger.write() as writer:
            writer.forget_table(record)
        raise OwnerUnavailableError(f"cannot make the folders of {record.label}: {error}; try again") from error
    return context.resolve_id(table_id)


def name_taken(context: Context, holder: TableRecord) -> NameTakenError:
    return NameTakenError(
        f"{holder.label} exists at {holder.location}; choose another name, or use that table",
        name=holder.name,
        winner=context.resolve_id(holder.table_id),
    )


def _check_new_location(context: Context, view: View, location: Path) -> None:
    """Inside the warehouse, neither in nor around another table, and empty."""
    warehouse, files = context.warehouse, context.environment.files
    if not location.is_relative_to(warehouse) or location == warehouse:
        raise LocationError(f"{location} is not inside the warehouse {warehouse}", location=str(location))
    refuse_reserved(context, location)
    refuse_overlap(view, location)
    for parent in location.parents[: len(location.parts) - len(warehouse.parts) - 1]:
        found = files.stat(parent)
        if found is not None and not found.is_directory:
            raise LocationError(f"{location} cannot be below {parent}, which is a file", location=str(location))
        if files.stat(parent / LOG_FOLDER) is not None:
            raise LocationError(f"{location} is inside the table at {parent}", location=str(location))
    status = files.stat(location)
    if status is not None and not (status.is_directory and _is_vacant(files, location)):
        raise LocationError(f"{location} is not an empty directory; a new table needs one", location=str(location))


def _is_vacant(files: Files, location: Path) -> bool:
    """Whether nothing is there but, perhaps, the empty folders that a creation left behind."""

    def holds_no_file(directory: Path) -> bool:
        return all(
            entry.is_directory and holds_no_file(directory / entry.name) for entry in files.list_directory(directory)
        )

    return all(
        entry.is_directory and entry.name == LOG_FOLDER and holds_no_file(location / LOG_FOLDER)
        for entry in files.list_directory(location)
    )


def refuse_reserved(context: Context, location: Path) -> None:
    """`LocationError` for the owner's own folder, and for a folder inside a log."""
    if location.is_relative_to(context.ledger.path.parent) or LOG_FOLDER in location.parts:
        raise LocationError(f"{location} is reserved; choose another place", location=str(location))


def refuse_overlap(view: View, location: Path) -> None:
    """`LocationError` for a place in or around that of a table of this owner."""
    for other in view.overlapping(location):
        raise LocationError(
            f"{location} overlaps {other.label} ({other.state.value}) at {other.location}; choose another place, "
            f"or drop the table {other.table_id} if no process is creating it",
            location=str(location),
        )


def refuse_unusual_path(location: Path) -> None:
    """`LocationError` for a relative path, one with `..`, one that is no text, or one through a symbolic link."""
    if not location.is_absolute() or ".." in location.parts:
        raise LocationError(f"{location} is not an absolute path without '..'", location=str(location))
    try:
        too_long = any(len(part.encode()) > _LONGEST_FILE_NAME for part in location.parts)
        real = location.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, no text
        raise LocationError(f"{str(location)!r} cannot be a location: {error}", location=str(location)) from error
    if too_long:
        raise LocationError(
            f"a part of {location} is longer than {_LONGEST_FILE_NAME} bytes; choose shorter names",
            location=str(location),
        )
    if real != location:
        raise LocationError(
            f"{location} leads to {real} by a symbolic link; name the real path", location=str(location)
        )


def register_table(
    context: Context, owner_name: str, table_id: str, proposal: DirectProposal
) -> Registered | NameTaken | Outcome:
    """Phase 3; see `CommitOwner.register_table`.

    A promise: see `promises`. The transaction that gives the table its name and ratifies version 0 comes
    after `0.json` and its name are durable; a crash before it is completed by the next call for the table.
    """
    table = context.place(table_id)
    flaw = decide.message_flaw(0, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(table.feature, 0, proposal, proposal.content)
    with context.lock():
        context.holder(table.name or "")
        outcome = _registration(context, owner_name, table_id, examined)
    if isinstance(outcome, TableRecord):
        return NameTaken(winner=context.resolve_id(outcome.table_id))
    if isinstance(outcome, Ratified):
        try:
            return Registered(table=context.resolve_id(table_id), commit=outcome.commit)
        except OwnerUnavailableError as error:  # it landed: that nothing did is not to be said any more
            raise OutcomeUnknown(
                f"{table.label} was registered, and cannot be described: {error.message}; send the request again"
            ) from error
    return outcome


def _registration(context: Context, owner_name: str, table_id: str, examined: Examined) -> TableRecord | Outcome:
    """The outcome, or the table that has the name."""
    attempt = examined.proposal.attempt
    with context.changing(table_id) as (writer, table):
        answered = decide.replay(table, examined, writer.attempt(table, attempt))
        refusal = answered or _refusal(writer, table)
        refusal = refusal or decide.first_version_flaw(table, examined, owner_name)
        if refusal is not None:
            return refusal
        promise = promise_of(PromiseKind.CREATE, examined, context.now)
        writer.add_promise(table, promise)
    commit = context.keep(table, promise)
    return Conflict(latest_ratified_version=0) if commit is None else Ratified(commit=commit)


def _refusal(writer: Writer, table: TableRecord) -> TableRecord | Outcome | None:
    """Why a new registration cannot go on: the name went to another table, or this one is not staging."""
    assert table.name is not None
    holder = writer.table_named(table.name)
    if table.state is TableState.STAGING and holder is None:
        return None
    if holder is not None and holder.key != table.key:
        if table.state is TableState.STAGING:
            writer.set_state(table, TableState.DROPPED)
        return holder
    if table.state is TableState.ACTIVE:
        return Conflict(latest_ratified_version=table.latest or 0)
    return Rejected(
        reason=RejectionReason.NOT_ACTIVE, detail=f"{table.label} is {table.state.value} and cannot be registered"
    )


def drop_table(context: Context, table_id: str) -> None:
    """Soft delete: the name is free again, the files and the ledger's rows stay.

    What was ratified is published first, unless the log is damaged: afterwards the owner writes nothing
    there any more, because another table may live there.
    """
    with contextlib.suppress(CorruptionError):
        backfill(context, table_id, None)
    with context.lock():
        with contextlib.suppress(CorruptionError):
            finish(context, table_id)
        with context.changing(table_id) as (writer, table):
            if table.state in (TableState.DROPPED, TableState.HANDED_BACK):
                raise InvalidRequestError(f"{table.label} is {table.state.value} already", table_id=table_id)
            writer.set_state(table, TableState.DROPPED)
