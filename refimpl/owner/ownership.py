"""Taking a filesystem table over, and handing one back.

managed-commits, "Converting an existing filesystem based table" and "Converting a managed-commit
table to filesystem table". Both are promises: see `promises` for what a crash leaves behind.
"""

from __future__ import annotations

from pathlib import Path

from refimpl import actions, log_path
from refimpl.actions import CommitInfo
from refimpl.commit_owner import MaintenancePolicy, TableState
from refimpl.commits import (
    Conflict,
    DirectProposal,
    Outcome,
    Ratified,
    Rejected,
    RejectionReason,
    VersionGap,
    is_attempt_id,
)
from refimpl.errors import LocationError, OutcomeUnknown, OwnerUnavailableError
from refimpl.log_path import LOG_FOLDER, Version
from refimpl.log_store import LogStore
from refimpl.owner import decide, policy
from refimpl.owner.backfill import backfill
from refimpl.owner.context import Context, contiguous_end
from refimpl.owner.creation import name_taken, refuse_overlap, refuse_reserved, refuse_unusual_path
from refimpl.owner.promises import promise_of
from refimpl.owner.records import Examined, PromiseKind, TableRecord
from refimpl.owner.statements import View, Writer
from refimpl.table_feature import CommitMode, TableFeature


def take_over(
    context: Context,
    owner_name: str,
    location: Path,
    name: str,
    feature: TableFeature,
    version: Version,
    proposal: DirectProposal,
    commit_mode: CommitMode | None,
    wanted: MaintenancePolicy | None,
) -> Outcome:
    """Own the table at `location` from `version` on; see `CommitOwner.take_over`."""
    _check_place(context, location)
    flaw = decide.message_flaw(version, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(feature, version, proposal, proposal.content)
    told_id = _told_id(feature, examined)
    record = TableRecord(
        key=0,
        table_id=context.environment.new_id() if told_id is None else told_id,
        name=policy.checked_name(name),
        location=location,
        feature=feature,
        commit_mode=policy.checked_commit_mode(feature, commit_mode),
        state=TableState.TAKING_OVER,
        latest=None,
        backfilled=None,
        in_commit_timestamp=None,
        policy=policy.checked_policy(wanted),
        halted=None,
        created_at=context.now,
    )
    with context.lock():
        early = _early(context, record, examined, owner_name)
        if early is not None:
            return early
        context.log(record).create_folders(feature.staging_folder)
        promise = promise_of(PromiseKind.TAKE_OVER, examined, context.now)
        try:
            with context.ledger.write() as writer:
                record = writer.add_table(record)
                writer.add_promise(record, promise)
        except OutcomeUnknown as error:
            raise OutcomeUnknown(error.message, table_id=record.table_id) from error
        commit = context.keep(record, promise)
    if commit is None:  # a commit through the filesystem was first, and this one never happened
        return Conflict(latest_ratified_version=contiguous_end(context.log(record), version))
    return Ratified(commit=commit)


def _early(context: Context, record: TableRecord, examined: Examined, owner_name: str) -> Outcome | None:
    """What answers a take-over before anything is promised."""
    with context.ledger.read() as view:
        known = view.table_at(record.location)
    if known is not None and known.state is not TableState.HANDED_BACK:
        answered = _known_here(context, known, examined)
        if answered is not None:
            return answered
    with context.ledger.read() as view:
        landed = _landed_before(view, record.location, examined)
        if landed is not None:
            return landed
        refuse_overlap(view, record.location)
    holder = context.holder(record.name or "")
    if holder is not None:
        raise name_taken(context, holder)
    flaw = decide.first_version_flaw(record, examined, owner_name) or _id_flaw(context, record)
    if flaw is not None:
        return flaw
    log = context.log(record)
    if log.published(examined.version):
        return Conflict(latest_ratified_version=contiguous_end(log, examined.version))
    if examined.version == 0 or not log.published(examined.version - 1):
        return VersionGap(latest_ratified_version=None)
    return previous_timestamp_flaw(log, examined)


def _told_id(feature: TableFeature, examined: Examined) -> str | None:
    """The id that the change of owner gives the table, for engines that look for it in the log."""
    if feature.table_id_property is None or examined.metadata is None:
        return None
    return examined.metadata.configuration.get(feature.table_id_property)


def _id_flaw(context: Context, record: TableRecord) -> Rejected | None:
    """The id must be one, and be nobody else's: also not that of the table that lived here before."""
    table_id = record.table_id
    with context.ledger.read() as view:
        known = view.table(table_id)
    if known is None and is_attempt_id(table_id):
        return None
    what = f"is that of {known.label} at {known.location}" if known is not None else "is not a lower-case uuid"
    return Rejected(
        reason=RejectionReason.INCONSISTENT_TABLE,
        detail=f"{record.feature.table_id_property} is {table_id!r}, which {what}; give the table a new uuid there",
    )


def previous_timestamp_flaw(log: LogStore, examined: Examined) -> Rejected | None:
    """in-commit timestamps, rules 2 and 3: greater than the previous commit's, or than its file's modification time."""
    name = log_path.commit(examined.version - 1)
    first = next(iter(actions.decode(log.read(name), source=name)), None)
    previous = first.in_commit_timestamp if isinstance(first, CommitInfo) else None
    if previous is None:
        previous = log.modified(name) or 0
    return decide.timestamp_flaw(examined, previous)


def _landed_before(view: View, location: Path, examined: Examined) -> Outcome | None:
    """The answer to a take-over that made one of the tables that lived here before, handed back since."""
    for table in view.handed_back_from(location):
        attempt = view.attempt(table, examined.proposal.attempt)
        if attempt is not None and attempt.landed is not None:
            return decide.replay(table, examined, attempt)
    return None


def _known_here(context: Context, known: TableRecord, examined: Examined) -> Outcome | None:
    """An owned place: the same attempt again, or a refusal. None: it was only a promise, now forgotten."""
    if known.promised:
        context.settle(known)
    with context.ledger.read() as view:
        table = view.table(known.table_id)
        if table is None:
            return None
        answered = decide.replay(table, examined, view.attempt(table, examined.proposal.attempt))
        answered = answered or _landed_before(view, table.location, examined)
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
    refuse_reserved(context, location)
    if context.environment.files.stat(location / LOG_FOLDER) is None:
        raise LocationError(f"{location} has no {LOG_FOLDER}: it is not a Delta table", location=str(location))


def hand_back(context: Context, table_id: str, version: Version, proposal: DirectProposal) -> Outcome:
    """Give the table back to the filesystem with `version`; see `CommitOwner.hand_back`.

    Everything before is backfilled (a proposal that cannot succeed backfills nothing), nothing else is
    accepted, then the last commit is published directly. The lock is held from the last look at the
    backlog to the link.
    """
    table = context.place(table_id)
    flaw = decide.message_flaw(version, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(table.feature, version, proposal, proposal.content)
    while True:
        with context.lock():
            outcome = _hand_back(context, table_id, examined)
        if outcome is not None:
            return outcome
        backfill(context, table_id, None)


def _hand_back(context: Context, table_id: str, examined: Examined) -> Outcome | None:
    """The outcome, or None if there is something to backfill first."""
    with context.changing(table_id) as (writer, table):
        verdict = _judge(context, writer, table, examined)
        if not isinstance(verdict, decide.Ratify):
            return verdict
        if table.backlog:
            return None
        promise = promise_of(PromiseKind.HAND_BACK, examined, context.now)
        writer.add_promise(table, promise)
    commit = context.keep(table, promise)
    if commit is not None:
        return Ratified(commit=commit)
    with context.changing(table_id) as (writer, table):  # somebody went round the owner: halted by that file
        verdict = _judge(context, writer, table, examined)
    if isinstance(verdict, decide.Ratify):
        raise OwnerUnavailableError(f"the log of {table.label} changed under the owner; propose again")
    return verdict


def _judge(context: Context, writer: Writer, table: TableRecord, examined: Examined) -> decide.Ratify | Outcome:
    return decide.decide_hand_back(
        table,
        examined,
        writer.attempt(table, examined.proposal.attempt),
        stranger=context.stranger(table) if examined.version >= table.next else None,
        current=writer.protocol_and_metadata(table.key),
    )
