"""How this owner gets and loses a table: creation, creation by an engine, take-over, hand-back.

Creation. catalog-managed, "Creating and Dropping", three phases: a location first, then version 0, then the name.
Creators race for the name, and the transaction that registers it decides; each has a location of its own until then.
managed-commits, "Creating a new managed-commit table": version 0 is written in place by put-if-absent, so that an
owner and a filesystem creator cannot both win.

Creation or conversion by an engine. DELTA_SPARK.md#registering: Delta Spark registers a table with its coordinator,
then writes version 0, or the version that names the owner, through the filesystem. The engine's put-if-absent is the
commit point. `announce` records the location; at the next call for the table `adopt` reads that the newest published
version names this owner, and owns the table from that version on. The announcement is durable, and only an announced
table is adopted: otherwise an owner that lost its ledger would begin at the newest published version, and forget the
versions that it had ratified after it.

Take-over and hand-back. managed-commits, "Converting an existing filesystem based table" and "Converting a
managed-commit table to filesystem table". Both, and the registration, are promises: see `promises` for what a crash
leaves behind.

A table may be in the warehouse or below a root, neither inside nor around another table.
"""

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

from refimpl.owner import decide, policy
from refimpl.owner.backfill import backfill, finish
from refimpl.owner.context import Context, contiguous_end
from refimpl.owner.promises import promise_of
from refimpl.owner.records import Examined, PromiseKind, TableRecord
from refimpl.owner.statements import View, Writer
from refimpl.protocol import actions, commits, log_path
from refimpl.protocol.actions import CommitInfo
from refimpl.protocol.commit_owner import MaintenancePolicy, NameTaken, Registered, ResolvedTable, TableState
from refimpl.protocol.errors import (
    CorruptionError,
    DeltaError,
    InvalidRequestError,
    LocationError,
    NameTakenError,
    OutcomeUnknown,
    OwnerUnavailableError,
)
from refimpl.protocol.log_path import LOG_FOLDER, Version
from refimpl.protocol.table_feature import CommitMode, TableFeature
from refimpl.storage.files import Files
from refimpl.storage.log_store import LogStore
from refimpl.storage.object_store import objects_at

# Where a table may be


_LONGEST_FILE_NAME: Final = 255
"""Bytes; the limit of common file systems."""


def check_new_location(context: Context, view: View, location: Path) -> None:
    """`LocationError` unless it is inside the warehouse, neither inside nor around another table, and empty."""
    warehouse, files = context.warehouse, context.environment.files
    if not location.is_relative_to(warehouse) or location == warehouse:
        raise LocationError(
            f"{location} is not inside the warehouse; expected a folder below {warehouse}", location=str(location)
        )
    refuse_reserved(context, location)
    refuse_overlap(context, view, location)
    for parent in location.parents[: len(location.parts) - len(warehouse.parts) - 1]:
        parent_status = files.stat(parent)
        if parent_status is not None and not parent_status.is_directory:
            raise LocationError(f"{location} cannot be below {parent}, which is a file", location=str(location))
        if files.stat(parent / LOG_FOLDER) is not None:
            raise LocationError(f"{location} is inside the table at {parent}", location=str(location))
    status = files.stat(location)
    if status is not None and not (status.is_directory and _is_vacant(files, location)):
        raise LocationError(f"{location} is not an empty folder; a new table needs one", location=str(location))


def _is_vacant(files: Files, location: Path) -> bool:
    """Whether the location is missing, or has only the empty folders of an earlier creation."""

    def holds_no_file(directory: Path) -> bool:
        return all(
            entry.is_directory and holds_no_file(directory / entry.name) for entry in files.list_directory(directory)
        )

    return all(
        entry.is_directory and entry.name == LOG_FOLDER and holds_no_file(location / LOG_FOLDER)
        for entry in files.list_directory(location)
    )


def check_roots(context: Context, view: View, location: Path) -> None:
    """`LocationError` for a location that is neither in the warehouse nor below a root, or is reserved."""
    allowed = (context.warehouse, *view.roots())
    if not any(location.is_relative_to(root) and location != root for root in allowed):
        raise LocationError(
            f"{location} is not below {' or '.join(map(str, allowed))}; choose a location there, or add a root: "
            f"commit-owner init --root, or refimpl.open(..., roots=[...])",
            location=str(location),
        )
    refuse_reserved(context, location)


def refuse_reserved(context: Context, location: Path) -> None:
    """`LocationError` for the owner's own folder, and for a folder inside a log."""
    if location.is_relative_to(context.ledger.path.parent) or LOG_FOLDER in location.parts:
        raise LocationError(f"{location} is reserved; choose another location", location=str(location))


def refuse_overlap(context: Context, view: View, location: Path) -> None:
    """`LocationError` for a location inside or around that of a table of this owner."""
    objects = objects_at(context.environment, location)
    places = (location,) if objects is None else (location, *objects.aliases(location))
    for other in itertools.chain.from_iterable(map(view.overlapping, places)):
        forgotten = f", or drop the table {other.table_id} if no process is creating it"
        raise LocationError(
            f"{location} overlaps {other.label} ({other.state.value}) at {other.location}; choose another location"
            f"{forgotten if other.state is TableState.STAGING else ''}",
            location=str(location),
        )


def is_link(path: Path) -> bool:
    """Whether a path below a table's location is a symbolic link."""
    return path.resolve() != path


def refuse_unusual_path(location: Path) -> None:
    """`LocationError` for a path that is relative, has `..`, is not text, or leads through a symbolic link."""
    if not location.is_absolute() or ".." in location.parts:
        raise LocationError(f"{location} is not an absolute path without '..'", location=str(location))
    try:
        too_long = any(len(part.encode()) > _LONGEST_FILE_NAME for part in location.parts)
        real = location.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or not text
        raise LocationError(f"{str(location)!r} cannot be a location: {error}", location=str(location)) from error
    if too_long:
        raise LocationError(
            f"a part of {location} is longer than {_LONGEST_FILE_NAME} bytes; choose shorter names",
            location=str(location),
        )
    if real != location:
        raise LocationError(
            f"{location} leads to {real} through a symbolic link; pass the real path", location=str(location)
        )


_NAME_IN_FOLDER: Final = 100
"""Maximum characters of a table's name in the name of its folder: the file system limits the length."""


def stage_table(
    context: Context,
    name: str,
    feature: TableFeature,
    commit_mode: CommitMode | None,
    location: Path | None,
    wanted: MaintenancePolicy | None,
    empty: bool = False,
) -> ResolvedTable:
    """Phase 1; see `CommitOwner.stage_table`. The location is recorded before its folders are created.

    Order: the folders of the location, each with its parent; then the parents around it again, which another process
    may have made and not synced.
    """
    table_id = context.environment.new_id()
    record = TableRecord(
        table_id=table_id,
        name=policy.checked_name(name),
        location=location or context.warehouse / f"{name[:_NAME_IN_FOLDER]}-{table_id[:8]}",
        feature=feature,
        commit_mode=policy.checked_commit_mode(feature, commit_mode),
        state=TableState.STAGING,
        policy=policy.checked_policy(wanted),
        created_at=context.now,
    )
    refuse_unusual_path(record.location)
    with context.lock():
        holder = context.holder(name)
        if holder is not None:
            raise name_taken(context, holder)
        with context.ledger.write() as writer:
            check_new_location(context, writer, record.location)
            record = writer.add_table(record)
    try:
        if empty:
            context.log(record).create_location()
        else:
            context.log(record).create_folders(feature.staging_folder)
        for folder in record.location.relative_to(context.warehouse).parents[1:]:
            context.environment.files.fsync_directory(context.warehouse / folder)
    except OSError as error:
        with contextlib.suppress(DeltaError), context.lock(), context.ledger.write() as writer:
            writer.forget_table(record)
        raise OwnerUnavailableError(f"cannot make the folders of {record.label}: {error}; try again") from error
    return context.resolve_id(table_id)


def name_taken(context: Context, holder: TableRecord) -> NameTakenError:
    return NameTakenError(
        f"{holder.label} already exists at {holder.location}; choose another name, or use that table",
        name=holder.name,
        winner=context.resolve_id(holder.table_id),
    )


Also = Callable[[Writer, TableRecord, Examined], commits.Rejected | None]
"""Stores something in a registration's transaction, or returns why it cannot."""


def register_table(
    context: Context, owner_name: str, table_id: str, proposal: commits.DirectProposal, also: Also
) -> Registered | NameTaken | commits.Outcome:
    """Phase 3; see `CommitOwner.register_table`. `also`: what else the transaction stores with a table that will be
    registered; returns why it cannot.

    A promise: see `promises`. The transaction that gives the table its name and ratifies version 0 comes
    after `0.json` and its name are durable; a crash before it is completed by the next call for the table.
    """
    table = context.cached_record(table_id)
    flaw = decide.message_flaw(0, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(table.feature, 0, proposal, proposal.content)
    with context.lock():
        context.holder(table.name or "")
        outcome = _registration(context, owner_name, table_id, examined, also)
    if isinstance(outcome, TableRecord):
        return NameTaken(winner=context.resolve_id(outcome.table_id))
    if isinstance(outcome, commits.Ratified):
        try:
            return Registered(table=context.resolve_id(table_id), commit=outcome.commit)
        except OwnerUnavailableError as error:  # it landed, so the error must not say that nothing did
            raise OutcomeUnknown(
                f"{table.label} was registered, but cannot be described: {error.message}; send the request again"
            ) from error
    return outcome


def _registration(
    context: Context, owner_name: str, table_id: str, examined: Examined, also: Also
) -> TableRecord | commits.Outcome:
    """The outcome, or the other table that has the name."""
    with context.changing(table_id) as (writer, table):
        verdict = decide.decide_registration(
            table,
            examined,
            writer.attempt_at(table, 0, examined.proposal.attempt),
            holder=writer.table_named(table.name or ""),
            owner_name=owner_name,
        )
        if isinstance(verdict, TableRecord) and table.state is TableState.STAGING:
            writer.set_state(table, TableState.DROPPED)
        if not isinstance(verdict, decide.Ratify):
            return verdict
        if (flaw := also(writer, table, examined)) is not None:
            return flaw
        promise = promise_of(PromiseKind.CREATE, examined, context.now)
        writer.add_promise(table, promise)
    commit = context.keep(table, promise)
    return commits.Conflict(latest_ratified_version=0) if commit is None else commits.Ratified(commit=commit)


def take_over(
    context: Context,
    owner_name: str,
    location: Path,
    name: str,
    feature: TableFeature,
    version: Version,
    proposal: commits.DirectProposal,
    commit_mode: CommitMode | None,
    wanted: MaintenancePolicy | None,
) -> commits.Outcome:
    """Own the table at `location` from `version` on; see `CommitOwner.take_over`.

    Order: the earlier versions are synced, because their writers may not have done so; then a promise: see `promises`.
    """
    _check_filesystem_table(context, location)
    flaw = decide.message_flaw(version, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(feature, version, proposal, proposal.content)
    given_id = _given_id(feature, examined)
    record = TableRecord(
        table_id=context.environment.new_id() if given_id is None else given_id,
        name=policy.checked_name(name),
        location=location,
        feature=feature,
        commit_mode=policy.checked_commit_mode(feature, commit_mode),
        state=TableState.TAKING_OVER,
        policy=policy.checked_policy(wanted),
        created_at=context.now,
    )
    with context.lock():
        early = _early(context, record, examined, owner_name)
        if early is not None:
            return early
        log = context.log(record)
        log.create_folders(feature.staging_folder)
        log.sync_newest()
        promise = promise_of(PromiseKind.TAKE_OVER, examined, context.now)
        try:
            with context.ledger.write() as writer:
                record = writer.add_table(record)
                writer.add_promise(record, promise)
        except OutcomeUnknown as error:
            raise OutcomeUnknown(error.message, table_id=record.table_id) from error
        commit = context.keep(record, promise)
    if commit is None:  # a commit through the filesystem was first, so nothing landed
        return commits.Conflict(latest_ratified_version=contiguous_end(context.log(record), version))
    return commits.Ratified(commit=commit)


def _early(context: Context, record: TableRecord, examined: Examined, owner_name: str) -> commits.Outcome | None:
    """The outcome of a take-over that is decided before a promise is recorded; None: continue."""
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
        refuse_overlap(context, view, record.location)
    holder = context.holder(record.name or "")
    if holder is not None:
        raise name_taken(context, holder)
    with context.ledger.read() as view:
        same_id = view.table(record.table_id)
    flaw = decide.first_version_flaw(record, examined, owner_name) or decide.id_flaw(record, same_id)
    if flaw is not None:
        return flaw
    log, version = context.log(record), examined.version
    taken = contiguous_end(log, version) if log.published(version) else None
    follows = version > 0 and log.published(version - 1)
    return decide.take_over_turn(taken, follows=follows) or previous_timestamp_flaw(log, examined)


def _given_id(feature: TableFeature, examined: Examined) -> str | None:
    """The id that the change of owner gives the table, for engines that read it from the log."""
    if feature.table_id_property is None or examined.metadata is None:
        return None
    return examined.metadata.configuration.get(feature.table_id_property)


def previous_timestamp_flaw(log: LogStore, examined: Examined) -> commits.Rejected | None:
    """in-commit timestamps, rules 2 and 3: greater than the previous commit's, or than its file's modification time.

    The time of a version that was cleaned up is unknown, and no reader needs it: its checkpoint suffices. Without one,
    the log has a gap.
    """
    name = log_path.commit(examined.version - 1)
    try:
        first = next(iter(actions.decode(log.read(name), source=name)), None)
    except FileNotFoundError:
        if log.in_checkpoint(examined.version - 1):
            return None
        return decide.previous_is_missing(examined, log.folder / name)
    previous = first.in_commit_timestamp if isinstance(first, CommitInfo) else None
    if previous is None:
        previous = log.modified(name) or 0
    return decide.timestamp_flaw(examined, previous)


def _landed_before(view: View, location: Path, examined: Examined) -> commits.Outcome | None:
    """The answer to a replayed take-over of an earlier table at this location, which was handed back since."""
    for table in view.handed_back_from(location):
        attempt = view.attempt(table, examined.proposal.attempt)
        if attempt is not None and attempt.landed is not None:
            return decide.replay(table, examined, attempt)
    return None


def _known_here(context: Context, known: TableRecord, examined: Examined) -> commits.Outcome | None:
    """The outcome at a location that is owned: a replay, or a rejection. None: it was only a promise, now forgotten."""
    if known.promised:
        context.settle(known)
    with context.ledger.read() as view:
        table = view.table(known.table_id)
        if table is None:
            return None
        answered = decide.replay(table, examined, view.attempt_at(table, examined.version, examined.proposal.attempt))
        answered = answered or _landed_before(view, table.location, examined)
    return answered or decide.owned_already(table)


def _check_filesystem_table(context: Context, location: Path) -> None:
    """An existing table inside the warehouse or below a root named at init."""
    refuse_unusual_path(location)
    with context.ledger.read() as view:
        check_roots(context, view, location)
    if context.environment.files.stat(location / LOG_FOLDER) is None:
        raise LocationError(f"{location} has no {LOG_FOLDER}: it is not a Delta table", location=str(location))


def hand_back(context: Context, table_id: str, version: Version, proposal: commits.DirectProposal) -> commits.Outcome:
    """Give the table back to the filesystem with `version`; see `CommitOwner.hand_back`.

    Order: backfill all earlier versions (not for a proposal that cannot succeed), accept no other
    commit, then publish the last commit directly. The lock is held from the last check of the backlog
    to the link.
    """
    table = context.cached_record(table_id)
    flaw = decide.message_flaw(version, proposal)
    if flaw is not None:
        return flaw
    examined = decide.examine(table.feature, version, proposal, proposal.content)
    while True:
        with context.publishing(table_id), context.lock():
            outcome = _hand_back(context, table_id, examined)
        if outcome is not None:
            return outcome
        backfill(context, table_id, None)


def _hand_back(context: Context, table_id: str, examined: Examined) -> commits.Outcome | None:
    """The outcome, or None if commits must be backfilled first."""
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
        return commits.Ratified(commit=commit)
    with context.changing(table_id) as (writer, table):  # a writer bypassed the owner: that file halts the table
        verdict = _judge(context, writer, table, examined)
    if isinstance(verdict, decide.Ratify):
        raise OwnerUnavailableError(f"the log of {table.label} changed during the commit; propose again")
    return verdict


def _judge(context: Context, writer: Writer, table: TableRecord, examined: Examined) -> decide.Ratify | commits.Outcome:
    return decide.decide_hand_back(
        table,
        examined,
        writer.attempt_at(table, examined.version, examined.proposal.attempt),
        unknown_published=context.unknown_published_version(table) if examined.version >= table.next else None,
        current=writer.protocol_and_metadata(table.key),
    )


def drop_table(context: Context, table_id: str) -> None:
    """Soft delete: the name is free again, the files and the ledger's rows stay.

    Order: ratified commits are published, unless the log is damaged, because after the drop the owner writes no file
    there: another table may use the location. Then one transaction; then the lock's file of a table without a version.
    """
    with contextlib.suppress(CorruptionError):
        backfill(context, table_id, None)
    with context.publishing(table_id), context.lock():
        with contextlib.suppress(CorruptionError):
            finish(context, table_id)
        with context.changing(table_id) as (writer, table):
            if table.state in (TableState.DROPPED, TableState.HANDED_BACK):
                raise InvalidRequestError(f"{table.label} is {table.state.value} already", table_id=table_id)
            writer.set_dropped(table, context.now)
        if table.latest is None:  # it was never registered: no purge will remove the lock's file
            with contextlib.suppress(OSError):  # the drop is durable
                context.end_publishing(table_id)
