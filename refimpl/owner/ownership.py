"""Taking a filesystem table over, and handing one back.

managed-commits, "Converting an existing filesystem based table" and "Converting a managed-commit
table to filesystem table". Both are promises: see `promises` for what a crash leaves behind.
"""

from __future__ import annotations

from pathlib import Path

from refimpl.commit_owner import MaintenancePolicy, TableState
from refimpl.commits import Conflict, DirectProposal, Outcome, Ratified, Rejected, RejectionReason, VersionGap
from refimpl.errors import LocationError
from refimpl.log_path import LOG_FOLDER, Version
from refimpl.owner import decide, policy, promises
from refimpl.owner.backfill import backfill
from refimpl.owner.context import Context
from refimpl.owner.creation import name_taken, refuse_unusual_path
from refimpl.owner.promises import promise_of
from refimpl.owner.records import Examined, Promise, PromiseKind, TableRecord
from refimpl.table_feature import TableFeature, Way


def take_over(
    context: Context,
    owner_name: str,
    location: Path,
    name: str,
    feature: TableFeature,
    version: Version,
    proposal: DirectProposal,
    way: Way | None,
    wanted: MaintenancePolicy | None,
) -> Outcome:
    """Own the table at `location` from `version` on; see `CommitOwner.take_over`."""
    _check_place(context, location)
    flaw = decide.message_flaw(version, proposal)
    if flaw is not None:
        return flaw
    record = TableRecord(
        key=0,
        table_id=context.environment.new_id(),
        name=policy.checked_name(name),
        location=location,
        feature=feature,
        way=policy.checked_way(feature, way),
        state=TableState.TAKING_OVER,
        latest=None,
        backfilled=None,
        in_commit_timestamp=None,
        policy=policy.checked_policy(wanted),
        halted=None,
        created_at=context.now,
    )
    examined = decide.examine(feature, version, proposal, proposal.content)
    with context.lock():
        early = _early(context, record, examined, owner_name)
        if early is not None:
            return early
        promise = promise_of(PromiseKind.TAKE_OVER, examined, context.now)
        with context.ledger.write() as writer:
            record = writer.add_table(record)
            writer.add_promise(record, promise)
        context.log(record).create_folders(feature.staging_folder)
        return _kept(context, record, promise)


def _early(context: Context, record: TableRecord, examined: Examined, owner_name: str) -> Outcome | None:
    """What answers a take-over before anything is promised."""
    with context.ledger.read() as view:
        known = view.table_at(record.location)
    if known is not None and known.state is not TableState.HANDED_BACK:
        answered = _known_here(context, known, examined)
        if answered is not None:
            return answered
    with context.ledger.read() as view:
        holder = view.table_named(record.name or "")
    if holder is not None:
        raise name_taken(context, holder)
    flaw = decide.first_version_flaw(record.feature, examined, owner_name)
    if flaw is not None:
        return flaw
    log = context.log(record)
    if log.published(examined.version):
        return Conflict(latest_ratified_version=examined.version)
    if examined.version == 0 or not log.published(examined.version - 1):
        return VersionGap(latest_ratified_version=None)
    return None


def _known_here(context: Context, known: TableRecord, examined: Examined) -> Outcome | None:
    """An owned place: the same attempt again, or a refusal. None: it was only a promise, now forgotten."""
    with context.ledger.write() as writer:
        promises.settle(writer, known, context.log(known), context.now)
        table = writer.table(known.table_id)
        if table is None:
            return None
        answered = decide.replay(table, examined, writer.attempt(table, examined.proposal.attempt))
    return answered or Rejected(
        reason=RejectionReason.OWNERSHIP_CHANGE, detail=f"{table.label} at {table.location} is owned already"
    )


def _check_place(context: Context, location: Path) -> None:
    """An existing table inside the warehouse or below a root named at init."""
    refuse_unusual_path(location)
    with context.ledger.read() as view:
        allowed = (context.warehouse, *view.roots())
    if not any(location.is_relative_to(root) and location != root for root in allowed):
        raise LocationError(
            f"{location} is below none of {', '.join(map(str, allowed))}; name its root at init", location=str(location)
        )
    if context.environment.files.stat(location / LOG_FOLDER) is None:
        raise LocationError(f"{location} has no {LOG_FOLDER}: it is not a Delta table", location=str(location))


def hand_back(context: Context, table_id: str, version: Version, proposal: DirectProposal) -> Outcome:
    """Give the table back to the filesystem with `version`; see `CommitOwner.hand_back`.

    Everything before is backfilled, nothing else is accepted, then the last commit is published
    directly. The lock is held from the last look at the backlog to the link.
    """
    table = context.place(table_id)
    flaw = decide.message_flaw(version, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(table.feature, version, proposal, proposal.content)
    while True:
        backfill(context, table_id, None)
        with context.lock():
            with context.changing(table_id) as (writer, table):
                seen = writer.attempt(table, proposal.attempt)
                early = decide.replay(table, examined, seen) or _hand_back_refusal(table, examined)
                if early is not None:
                    return early
                flaw = decide.hand_back_flaw(table, examined, writer.protocol_and_metadata(table.key))
                if flaw is not None:
                    return flaw
                if table.backlog:  # somebody committed after the backfill
                    continue
                promise = promise_of(PromiseKind.HAND_BACK, examined, context.now)
                writer.add_promise(table, promise)
            return _kept(context, table, promise)


def _hand_back_refusal(table: TableRecord, examined: Examined) -> Outcome | None:
    refused = decide.not_accepting(table)
    if refused is not None:
        return refused
    if table.latest is not None and examined.version <= table.latest:
        return Conflict(latest_ratified_version=table.latest)
    if examined.version != table.next:
        return VersionGap(latest_ratified_version=table.latest)
    return None


def _kept(context: Context, table: TableRecord, promise: Promise) -> Outcome:
    commit = context.keep(table, promise)
    if commit is not None:
        return Ratified(commit=commit)
    # A commit through the filesystem was first: this one never happened.
    return Conflict(latest_ratified_version=promise.version)
