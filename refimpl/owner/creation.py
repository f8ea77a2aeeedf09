"""Creating and dropping tables: a location first, then version 0, then the name.

catalog-managed, "Creating and Dropping", three phases. Creators race for the name, and the
transaction that registers it decides; everybody has a location of its own until then.
managed-commits, "Creating a new managed-commit table": version 0 is written in place by
put-if-absent, so that an owner and a filesystem creator cannot both win.
"""

from __future__ import annotations

from pathlib import Path

from refimpl import log_path
from refimpl.commit_owner import MaintenancePolicy, NameTaken, Registered, ResolvedTable, TableState
from refimpl.commits import Conflict, DirectProposal, Outcome, Ratified, Rejected, RejectionReason
from refimpl.errors import InvalidRequestError, LocationError, NameTakenError, OwnerUnavailableError
from refimpl.owner import decide, policy
from refimpl.owner.context import Context
from refimpl.owner.records import Examined, TableRecord
from refimpl.owner.statements import View, Writer
from refimpl.table_feature import TableFeature, Way


def stage_table(
    context: Context,
    name: str,
    feature: TableFeature,
    way: Way | None,
    location: Path | None,
    wanted: MaintenancePolicy | None,
) -> ResolvedTable:
    """Phase 1; see `CommitOwner.stage_table`. The ledger knows the location before anything is there."""
    table_id = context.environment.new_id()
    record = TableRecord(
        key=0,
        table_id=table_id,
        name=policy.checked_name(name),
        location=location or context.warehouse / f"{name}-{table_id[:8]}",
        feature=feature,
        way=policy.checked_way(feature, way),
        state=TableState.STAGING,
        latest=None,
        backfilled=None,
        in_commit_timestamp=None,
        policy=policy.checked_policy(wanted),
        halted=None,
        created_at=context.now,
    )
    with context.lock(), context.ledger.write() as writer:
        _check_new_location(context, writer, record.location)
        holder = writer.table_named(name)
        if holder is None:
            record = writer.add_table(record)
    if holder is not None:
        raise name_taken(context, holder)
    try:
        context.log(record).create_folders(feature.staging_folder)
    except OSError as error:
        raise OwnerUnavailableError(f"cannot make the folders of {record.label}: {error}") from error
    return context.resolve_id(table_id)


def name_taken(context: Context, holder: TableRecord) -> NameTakenError:
    return NameTakenError(
        f"{holder.label} exists at {holder.location}; choose another name, or use that table",
        name=holder.name,
        winner=context.resolve_id(holder.table_id),
    )


def _check_new_location(context: Context, view: View, location: Path) -> None:
    """Inside the warehouse, no symbolic link on the way, not shared with another table, empty."""
    refuse_unusual_path(location)
    warehouse = context.warehouse
    inside = location.is_relative_to(warehouse) and location != warehouse
    if not inside or location.is_relative_to(warehouse / "_owner"):
        raise LocationError(f"{location} is not inside the warehouse {warehouse}", location=str(location))
    for other in view.tables():
        if other.state in (TableState.DROPPED, TableState.HANDED_BACK) and other.location != location:
            continue
        if location.is_relative_to(other.location) or other.location.is_relative_to(location):
            raise LocationError(f"{location} overlaps {other.label} at {other.location}", location=str(location))
    status = context.environment.files.stat(location)
    if status is None:
        return
    if not status.is_directory or context.environment.files.list_directory(location):
        raise LocationError(f"{location} is not an empty directory; a new table needs one", location=str(location))


def refuse_unusual_path(location: Path) -> None:
    """`LocationError` for a relative path, one with `..`, or one with a symbolic link on the way."""
    if not location.is_absolute() or ".." in location.parts:
        raise LocationError(f"{location} is not an absolute path without '..'", location=str(location))
    if location.resolve() != location:
        raise LocationError(
            f"{location} leads to {location.resolve()} by a symbolic link; name the real path", location=str(location)
        )


def register_table(
    context: Context, owner_name: str, table_id: str, proposal: DirectProposal
) -> Registered | NameTaken | Outcome:
    """Phase 3; see `CommitOwner.register_table`.

    Durability order: `0.json` and its name are durable, then one transaction gives the table its name
    and ratifies version 0. A crash in between leaves a staging table, which the same call completes.
    """
    table = context.place(table_id)
    flaw = decide.message_flaw(0, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(table.feature, 0, proposal, proposal.content)
    with context.lock():
        outcome = _registration(context, owner_name, table_id, examined)
    if isinstance(outcome, TableRecord):
        return NameTaken(winner=context.resolve_id(outcome.table_id))
    if isinstance(outcome, Ratified):
        return Registered(table=context.resolve_id(table_id), commit=outcome.commit)
    return outcome


def _registration(context: Context, owner_name: str, table_id: str, examined: Examined) -> TableRecord | Outcome:
    """The outcome, or the table that has the name."""
    attempt = examined.proposal.attempt
    with context.changing(table_id) as (writer, table):
        answered = decide.replay(table, examined, writer.attempt(table, attempt))
        refusal = answered or _refusal(writer, table)
        refusal = refusal or decide.first_version_flaw(table.feature, examined, owner_name)
    if refusal is not None:
        return refusal
    log, first = context.log(table), log_path.commit(0)
    if not log.put_if_absent(first, examined.content) and log.read(first) != examined.content:
        return Conflict(latest_ratified_version=0)
    with context.changing(table_id) as (writer, table):
        commit = writer.ratify(table, examined, Way.DIRECT, context.now, published=True)
        writer.set_state(table, TableState.ACTIVE)
    return Ratified(commit=commit)


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
    """Soft delete: the name is free again, the files and the ledger's rows stay."""
    with context.lock(), context.changing(table_id) as (writer, table):
        if table.state in (TableState.DROPPED, TableState.HANDED_BACK):
            raise InvalidRequestError(f"{table.label} is {table.state.value} already", table_id=table_id)
        writer.set_state(table, TableState.DROPPED)
