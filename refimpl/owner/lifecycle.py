"""How this owner gets and loses a table: creation, take-over, hand-back, drop.

Creation. catalog-managed, "Creating and Dropping", three phases: a location first, then version 0, then the name.
Creators race for the name, and the transaction that registers it decides; each has a location of its own until then.
managed-commits, "Creating a new managed-commit table": version 0 is written in place by put-if-absent, so that an
owner and a filesystem creator cannot both win.

Take-over and hand-back. managed-commits, "Converting an existing filesystem based table" and "Converting a
managed-commit table to filesystem table". Both, and the registration, are promises: see `tables` for what a crash
leaves behind.

A table may be in the warehouse or below a root, neither inside nor around another table.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from refimpl.owner import decide
from refimpl.owner.backfill import backfill, finish
from refimpl.owner.records import Examined, PromiseKind, TableRecord, checked_commit_mode, checked_name
from refimpl.owner.statements import View, Writer
from refimpl.owner.tables import Tables, commit_errors, contiguous_end, disk_errors
from refimpl.protocol import actions, commits, log_path
from refimpl.protocol.actions import CommitInfo
from refimpl.protocol.commit_owner import (
    MaintenancePolicy,
    NameTaken,
    Registered,
    ResolvedTable,
    TableState,
    checked_policy,
)
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
from refimpl.storage import locations
from refimpl.storage.log_store import LogStore

_NAME_IN_FOLDER: Final = 100
"""Maximum characters of a table's name in the name of its folder: the file system limits the length."""

Registration = Registered | NameTaken | commits.Outcome
Also = Callable[[Writer, TableRecord, Examined], commits.Rejected | None]
"""Stores something in a registration's transaction, or returns why it cannot."""


class Lifecycle(Tables):
    """The requests with which an owner gets and loses tables: a part of `CommitOwner`."""

    # Creation

    def stage_table(
        self,
        name: str,
        feature: TableFeature,
        *,
        commit_mode: CommitMode | None = None,
        location: Path | None = None,
        policy: MaintenancePolicy | None = None,
        empty: bool = False,
    ) -> ResolvedTable:
        """Phase 1. The location is recorded before its folders are created.

        Order: the folders of the location, each with its parent; then the parents around it again, which another
        process may have made and not synced.
        """
        record = self.new_record(name, feature, commit_mode, policy, TableState.STAGING, location)
        locations.refuse_unusual_path(record.location)
        with disk_errors(f"create {name!r}"), self.lock():
            holder = self.holder(name)
            if holder is not None:
                raise self.name_taken(holder)
            with self.ledger.write() as writer:
                locations.refuse_outside_warehouse(self.warehouse, record.location)
                locations.refuse_reserved(self.ledger.path.parent, record.location)
                self.refuse_overlap(writer, record.location)
                locations.refuse_occupied(self.environment.files, self.warehouse, record.location)
                record = writer.add_table(record)
        try:
            if empty:
                self.log(record).create_location()
            else:
                self.log(record).create_folders(feature.staging_folder)
            for folder in record.location.relative_to(self.warehouse).parents[1:]:
                self.environment.files.fsync_directory(self.warehouse / folder)
            return self.resolve_id(record.table_id)
        except (OSError, OwnerUnavailableError) as error:
            with suppress(DeltaError, OSError), self.lock(), self.ledger.write() as writer:
                writer.forget_table(record)
            raise OwnerUnavailableError(f"cannot make the folders of {record.label}: {error}; try again") from error

    def new_record(
        self,
        name: str,
        feature: TableFeature,
        commit_mode: CommitMode | None,
        policy: MaintenancePolicy | None,
        state: TableState,
        location: Path | None = None,
        table_id: str | None = None,
    ) -> TableRecord:
        """A table that is not stored yet; without a location, in a folder of the warehouse that has its name."""
        table_id = self.environment.new_id() if table_id is None else table_id
        return TableRecord(
            table_id=table_id,
            name=checked_name(name),
            location=location or self.warehouse / f"{name[:_NAME_IN_FOLDER]}-{table_id[:8]}",
            feature=feature,
            commit_mode=checked_commit_mode(feature, commit_mode),
            state=state,
            policy=checked_policy(policy),
            created_at=self.now,
        )

    def refuse_overlap(self, view: View, location: Path) -> None:
        """`LocationError` for a location inside or around that of a table of this owner."""
        for other in view.overlapping(location):
            forgotten = f", or drop the table {other.table_id} if no process is creating it"
            raise LocationError(
                f"{location} overlaps {other.label} ({other.state.value}) at {other.location}; choose another location"
                f"{forgotten if other.state is TableState.STAGING else ''}",
                location=str(location),
            )

    def refuse_outside(self, view: View, location: Path) -> None:
        """`LocationError` for a location that is neither in the warehouse nor below a root, or is reserved."""
        locations.refuse_outside((self.warehouse, *view.roots()), location)
        locations.refuse_reserved(self.ledger.path.parent, location)

    def name_taken(self, holder: TableRecord) -> NameTakenError:
        return NameTakenError(
            f"{holder.label} already exists at {holder.location}; choose another name, or use that table",
            name=holder.name,
            winner=self.resolve_id(holder.table_id),
        )

    def register_table(self, table_id: str, proposal: commits.DirectProposal) -> Registration:
        return self.register(table_id, proposal, lambda _writer, _table, _examined: None)

    def register(self, table_id: str, proposal: commits.DirectProposal, also: Also) -> Registration:
        """Phase 3. `also`: what else the transaction stores with a table that will be registered; returns why it
        cannot.

        A promise: see `tables`. The transaction that gives the table its name and ratifies version 0 comes after
        `0.json` and its name are durable; a crash before it is completed by the next call for the table.
        """
        with commit_errors("register a table", table_id, 0, proposal.attempt):
            table = self.cached_record(table_id)
            flaw = decide.message_flaw(0, proposal)
            if flaw is not None:
                return flaw
            examined = decide.examine(table.feature, 0, proposal, proposal.content)
            with self.lock():
                self.holder(table.name or "")
                outcome = self._register(table_id, examined, also)
            if isinstance(outcome, TableRecord):
                return NameTaken(winner=self.resolve_id(outcome.table_id))
            if not isinstance(outcome, commits.Ratified):
                return outcome
            try:
                return Registered(table=self.resolve_id(table_id), commit=outcome.commit)
            except OwnerUnavailableError as error:  # it landed, so the error must not say that nothing did
                raise OutcomeUnknown(
                    f"{table.label} was registered, but cannot be described: {error.message}; send the request again"
                ) from error

    def _register(self, table_id: str, examined: Examined, also: Also) -> TableRecord | commits.Outcome:
        """The outcome, or the other table that has the name."""
        with self.changing(table_id) as (writer, table):
            verdict = decide.decide_registration(
                table,
                examined,
                writer.attempt_at(table, 0, examined.proposal.attempt),
                holder=writer.table_named(table.name or ""),
                owner_name=self.name,
            )
            if isinstance(verdict, TableRecord) and table.state is TableState.STAGING:
                writer.set(table, state=TableState.DROPPED)
            if not isinstance(verdict, decide.Ratify):
                return verdict
            if (flaw := also(writer, table, examined)) is not None:
                return flaw
            promise = self.promise(writer, table, PromiseKind.CREATE, examined)
        commit = self.keep(table, promise)
        return commits.Conflict(latest_ratified_version=0) if commit is None else commits.Ratified(commit=commit)

    # Take-over

    def take_over(
        self,
        location: Path,
        name: str,
        feature: TableFeature,
        version: Version,
        proposal: commits.DirectProposal,
        *,
        commit_mode: CommitMode | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> commits.Outcome:
        """Own the table at `location` from `version` on.

        Order: the earlier versions are synced, because their writers may not have done so; then a promise: see
        `tables`.
        """
        flaw = decide.message_flaw(log_path.checked(version), proposal)
        with commit_errors(f"take over {location}", None, version, proposal.attempt):
            locations.refuse_unusual_path(location)
            with self.ledger.read() as view:
                self.refuse_outside(view, location)
            if self.environment.files.stat(location / LOG_FOLDER) is None:
                raise LocationError(f"{location} has no {LOG_FOLDER}: it is not a Delta table", location=str(location))
            if flaw is not None:
                return flaw
            examined = decide.examine(feature, version, proposal, proposal.content)
            named, metadata = feature.table_id_property, examined.metadata  # engines read the id from the log
            table_id = None if named is None or metadata is None else metadata.configuration.get(named)
            record = self.new_record(name, feature, commit_mode, policy, TableState.TAKING_OVER, location, table_id)
            with self.lock():
                early = self._early(record, examined)
                if early is not None:
                    return early
                log = self.log(record)
                log.create_folders(feature.staging_folder)
                log.sync_newest()
                try:
                    with self.ledger.write() as writer:
                        record = writer.add_table(record)
                        promise = self.promise(writer, record, PromiseKind.TAKE_OVER, examined)
                except OutcomeUnknown as error:
                    raise OutcomeUnknown(error.message, table_id=record.table_id) from error
                commit = self.keep(record, promise)
            if commit is None:  # a commit through the filesystem was first, so nothing landed
                return commits.Conflict(latest_ratified_version=contiguous_end(self.log(record), version))
            return commits.Ratified(commit=commit)

    def _early(self, record: TableRecord, examined: Examined) -> commits.Outcome | None:
        """The outcome of a take-over that is decided before a promise is recorded; None: continue."""
        with self.ledger.read() as view:
            known = view.table_at(record.location)
        if known is not None and known.state is not TableState.HANDED_BACK:
            answered = self._known_here(known, examined)
            if answered is not None:
                return answered
        with self.ledger.read() as view:
            landed = _landed_before(view, record.location, examined)
            if landed is not None:
                return landed
            self.refuse_overlap(view, record.location)
        holder = self.holder(record.name or "")
        if holder is not None:
            raise self.name_taken(holder)
        with self.ledger.read() as view:
            same_id = view.table(record.table_id)
        flaw = decide.first_version_flaw(record, examined, self.name) or decide.id_flaw(record, same_id)
        if flaw is not None:
            return flaw
        log, version = self.log(record), examined.version
        taken = contiguous_end(log, version) if log.published(version) else None
        follows = version > 0 and log.published(version - 1)
        return decide.take_over_turn(taken, follows=follows) or previous_timestamp_flaw(log, examined)

    def _known_here(self, known: TableRecord, examined: Examined) -> commits.Outcome | None:
        """The outcome at a location that is owned: a replay, or a rejection. None: it was only a promise, now
        forgotten."""
        if known.promised:
            self.settle(known)
        with self.ledger.read() as view:
            table = view.table(known.table_id)
            if table is None:
                return None
            attempt = view.attempt_at(table, examined.version, examined.proposal.attempt)
            answered = decide.replay(table, examined, attempt) or _landed_before(view, table.location, examined)
        return answered or decide.owned_already(table)

    # Hand-back and drop

    def hand_back(self, table_id: str, version: Version, proposal: commits.DirectProposal) -> commits.Outcome:
        """Give the table back to the filesystem with `version`.

        Order: backfill all earlier versions (not for a proposal that cannot succeed), accept no other
        commit, then publish the last commit directly. The lock is held from the last check of the backlog
        to the link.
        """
        flaw = decide.message_flaw(log_path.checked(version), proposal)
        with commit_errors("hand a table back", table_id, version, proposal.attempt):
            table = self.cached_record(table_id)
            if flaw is not None:
                return flaw
            examined = decide.examine(table.feature, version, proposal, proposal.content)
            while True:
                with self.publishing(table_id), self.lock():
                    outcome = self.publish(table_id, PromiseKind.HAND_BACK, examined, self._judge_hand_back)
                if outcome is not None:
                    return outcome
                backfill(self, table_id, None)

    def _judge_hand_back(
        self, writer: Writer, table: TableRecord, examined: Examined
    ) -> decide.Ratify | commits.Outcome | None:
        """None: earlier commits must be published first."""
        verdict = decide.decide_hand_back(
            table,
            examined,
            writer.attempt_at(table, examined.version, examined.proposal.attempt),
            unknown_published=self.unknown_published_version(table) if examined.version >= table.next else None,
            current=writer.protocol_and_metadata(table.key),
        )
        return None if isinstance(verdict, decide.Ratify) and table.backlog else verdict

    def drop_table(self, table_id: str) -> None:
        """Soft delete: the name is free again, the files and the ledger's rows stay.

        Order: ratified commits are published, unless the log is damaged, because after the drop the owner writes no
        file there: another table may use the location. Then one transaction; then the lock's file of a table without a
        version.
        """
        with disk_errors("drop a table"):
            with suppress(CorruptionError):
                backfill(self, table_id, None)
            with self.publishing(table_id), self.lock():
                with suppress(CorruptionError):
                    finish(self, table_id)
                with self.changing(table_id) as (writer, table):
                    if table.state in (TableState.DROPPED, TableState.HANDED_BACK):
                        raise InvalidRequestError(f"{table.label} is {table.state.value} already", table_id=table_id)
                    writer.set(table, state=TableState.DROPPED, dropped_at=self.now)
                if table.latest is None:  # it was never registered, so it cannot be undropped
                    with suppress(OSError):  # the drop is durable
                        self.end_publishing(table_id)


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
    for table in view.tables(state=TableState.HANDED_BACK, location=location):
        attempt = view.attempt(table, examined.proposal.attempt)
        if attempt is not None and attempt.landed is not None:
            return decide.replay(table, examined, attempt)
    return None
