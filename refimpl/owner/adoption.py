"""Tables that an engine makes ours by itself: the owner is told before, and reads afterwards what was written.

DELTA_SPARK.md#registering: Delta Spark registers a table with its coordinator, then writes version 0, or the version
that names the owner, through the filesystem. That put-if-absent is the commit point, and it is not the owner's.

    announce   the place is the owner's business from now on; nothing in the log says so yet
    adopt      at the first contact after that: the newest published version names this owner, so the table is its
               own from that version on

The announcement is durable, and only what was announced is adopted: an owner that lost its ledger would else begin
at the newest published version, and forget what it had ratified after it.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

from refimpl import log_path
from refimpl.commit_owner import MaintenancePolicy, ResolvedTable, TableState
from refimpl.commits import Conflict, DirectProposal, Outcome, Ratified, Rejected, RejectionReason, VersionGap
from refimpl.errors import InvalidRequestError, LocationError
from refimpl.log_path import Version
from refimpl.owner import decide, policy
from refimpl.owner.context import Context
from refimpl.owner.creation import refuse_overlap, refuse_reserved, refuse_unusual_path
from refimpl.owner.ownership import previous_timestamp_flaw
from refimpl.owner.records import TableRecord
from refimpl.owner.statements import View
from refimpl.table_feature import CommitMode, TableFeature

_ID_IN_NAME: Final = 8


def announce(
    context: Context,
    location: Path,
    name: str,
    feature: TableFeature,
    latest: Version | None,
    owner_conf: str | None,
    wanted: MaintenancePolicy | None,
) -> ResolvedTable:
    """See `LocalOwner.announce`. The same place announced again is the same table, until it is adopted."""
    refuse_unusual_path(location)
    flaw = policy.conf_flaw(owner_conf)
    if flaw is not None:  # afterwards it could only be found, not prevented
        raise InvalidRequestError(f"{location} cannot get this owner: {flaw.detail}", location=str(location))
    record = TableRecord(
        key=0,
        table_id=context.environment.new_id(),
        name=policy.checked_name(name),
        location=location,
        feature=feature,
        commit_mode=policy.checked_commit_mode(feature, CommitMode.STAGED),
        state=TableState.STAGING,
        latest=None,
        backfilled=None,
        in_commit_timestamp=None,
        policy=policy.checked_policy(wanted),
        halted=None,
        created_at=context.now,
    )
    with context.lock():
        _check_log(context, record, latest)
        with context.ledger.write() as writer:
            _check_place(context, writer, location)
            known = writer.table_at(location)
            if known is not None and known.state is TableState.STAGING and known.feature is feature:
                record = known
            else:
                refuse_overlap(writer, location)
                record = writer.add_table(record)
        context.log(record).create_folders(feature.staging_folder)
    return context.resolve_id(record.table_id)


def _check_place(context: Context, view: View, location: Path) -> None:
    allowed = (context.warehouse, *view.roots())
    if not any(location.is_relative_to(root) and location != root for root in allowed):
        raise LocationError(
            f"{location} is below none of {', '.join(map(str, allowed))}; choose a place there, or name its root with "
            f"refimpl.open(..., roots=[...])",
            location=str(location),
        )
    refuse_reserved(context, location)


def _check_log(context: Context, record: TableRecord, latest: Version | None) -> None:
    """A new table has no version, another one has the version that its engine saw."""
    log = context.log(record)
    if latest is None and log.published_versions():
        raise LocationError(f"there is a table at {record.location} already", location=str(record.location))
    if latest is not None and not log.published(latest):
        raise InvalidRequestError(
            f"the log of {record.location} has no version {latest}: publish it before the table gets an owner",
            version=latest,
        )


def adopt(context: Context, owner_name: str, table_id: str) -> Outcome:
    """See `LocalOwner.adopt`.

    Order: the version's bytes become a new file, durably, because an fsync of whoever wrote them may have failed; then
    the transaction records it. What is not adopted is not touched: it is somebody else's.
    """
    with context.lock():
        table = context.place(table_id)
        log = context.log(table)
        latest = max(log.published_versions(), default=None)
        if latest is None:
            return VersionGap(latest_ratified_version=None)
        name = log_path.commit(latest)
        proposal = DirectProposal(attempt=context.environment.new_id(), content=log.read(name))
        examined = decide.examine(table.feature, latest, proposal, proposal.content)
        flaw = decide.first_version_flaw(table, examined, owner_name)
        if flaw is None and latest > 0:
            flaw = previous_timestamp_flaw(log, examined)
        with context.changing(table_id) as (writer, table):
            if table.state is TableState.ACTIVE:
                return Conflict(latest_ratified_version=table.latest or 0)
            if table.state is not TableState.STAGING:
                return Rejected(
                    reason=RejectionReason.NOT_ACTIVE, detail=f"{table.label} is {table.state.value} and not announced"
                )
            if flaw is not None:
                return flaw
            log.overwrite(name, proposal.content)
            writer.set_name(table, _free_name(writer, table))
            commit = writer.ratify(table, examined, CommitMode.DIRECT, context.now, published=True)
            writer.set_state(table, TableState.ACTIVE)
    return Ratified(commit=commit)


def adopt_what_is_there(context: Context, owner_name: str) -> bool:
    """Adopt every announced table whose log has a version; whether there was one that could be adopted."""
    with context.ledger.read() as view:
        announced = view.announced()
    found = [table for table in announced if context.log(table).published_versions()]
    outcomes = [adopt(context, owner_name, table.table_id) for table in found]
    return any(isinstance(outcome, Ratified) for outcome in outcomes)


def _free_name(view: View, table: TableRecord) -> str:
    """The table exists whatever it is called: where another one has the name, its id makes a difference."""
    assert table.name is not None
    if view.table_named(table.name) is None:
        return table.name
    ending = f"_{table.table_id[:_ID_IN_NAME]}"
    return policy.checked_name(table.name[: policy.MAX_NAME_LENGTH - len(ending)] + ending)


def name_for(location: Path, wanted: str | None) -> str:
    """A name of this owner's for a table that an engine calls `wanted`, or knows by its place alone."""
    if wanted is not None:
        with contextlib.suppress(InvalidRequestError):
            return policy.checked_name(wanted)
    plain = re.sub(r"[^A-Za-z0-9_]", "_", location.name, flags=re.ASCII)[: policy.MAX_NAME_LENGTH - 1]
    return plain if plain and not plain[0].isdigit() else f"_{plain}"
