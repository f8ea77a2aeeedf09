"""Tables that an engine creates or converts itself, and announces to this owner before: Delta's own commit coordinators
do.

An announced table is staging until the engine's version names this owner; then it is adopted.
"""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from refimpl.owner import decide, lifecycle, policy
from refimpl.owner.context import Context, disk_errors
from refimpl.owner.local import LocalOwner
from refimpl.owner.records import TableRecord, unknown_attempt
from refimpl.owner.statements import View
from refimpl.protocol import commits, log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, ResolvedTable, TableState, TableSummary
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, LocationError, TableNotFoundError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CommitMode, TableFeature


class AnnouncedTables(LocalOwner):
    """An owner that also adopts tables whose engines announced them."""

    def resolve(self, reference: str | Path) -> ResolvedTable:
        """Also finds, by its name, a table that an engine announced and has created since."""
        try:
            return super().resolve(reference)
        except TableNotFoundError:
            if not self._adopt_announced_tables():
                raise
            return super().resolve(reference)

    def tables(self) -> Sequence[TableSummary]:
        self._adopt_announced_tables()
        return super().tables()

    def _adopt_announced_tables(self) -> bool:
        with disk_errors("look for announced tables"):
            return _adopt_all(self.context, self.name)

    def announce(
        self,
        location: Path,
        name: str | None,
        feature: TableFeature,
        latest: Version | None,
        *,
        owner_conf: str | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> ResolvedTable:
        """Announce that an engine will itself make this owner the owner of the table at `location`, with the version
        after `latest` (None: with version 0 of a new table).

        `name`: the engine's name of the table, if it is a valid name here. The table is staging until `adopt`.
        `owner_conf`: the JSON map for the owner's client that will be in the log.
        Raises `LocationError`, `InvalidRequestError`.
        """
        with disk_errors("announce a table"):
            return _announce(self.context, location, _name_for(location, name), feature, latest, owner_conf, policy)

    def adopt(self, table_id: str) -> commits.Outcome:
        """Own an announced table from its newest published version on; that version must name this owner.

        `VersionGap(None)`: no version is published yet. `Conflict`: it is owned already. `Rejected`: the version does
        not name this owner, or the one before it is missing; the table stays announced.
        """
        with disk_errors("adopt a table"):
            return _adopt(self.context, self.name, table_id)


_ID_IN_NAME: Final = 8


def _announce(
    context: Context,
    location: Path,
    name: str,
    feature: TableFeature,
    latest: Version | None,
    owner_conf: str | None,
    wanted: MaintenancePolicy | None,
) -> ResolvedTable:
    """See `AnnouncedTables.announce`. A repeated call for one location returns the same table, until it is adopted.

    Order: the transaction, then the folders; a crash in between leaves a table that the next call returns.
    """
    lifecycle.refuse_unusual_path(location)
    flaw = policy.conf_flaw(owner_conf)
    if flaw is not None:  # after the engine's commit it is too late
        raise InvalidRequestError(f"{location} cannot get this owner: {flaw.detail}", location=str(location))
    record = TableRecord(
        table_id=context.environment.new_id(),
        name=policy.checked_name(name),
        location=location,
        feature=feature,
        commit_mode=policy.checked_commit_mode(feature, CommitMode.STAGED),
        state=TableState.STAGING,
        policy=policy.checked_policy(wanted),
        created_at=context.now,
    )
    with context.lock():
        _check_log(context, record, latest)
        with context.ledger.write() as writer:
            lifecycle.check_roots(context, writer, location)
            known = writer.table_at(location)
            if known is not None and known.state is TableState.STAGING and known.feature is feature:
                record = known
            else:
                lifecycle.refuse_overlap(context, writer, location)
                record = writer.add_table(record)
        context.log(record).create_folders(feature.staging_folder)
    return context.resolve_id(record.table_id)


def _check_log(context: Context, record: TableRecord, latest: Version | None) -> None:
    """Check that a new table has no version, and that any other one has the version that its engine read."""
    log = context.log(record)
    if latest is None and log.published_versions():
        raise LocationError(f"{record.location} already has a table", location=str(record.location))
    if latest is not None and not log.published(latest):
        raise InvalidRequestError(
            f"the log of {record.location} has no version {latest}: publish it before the table gets an owner",
            version=latest,
        )


def _adopt(context: Context, owner_name: str, table_id: str) -> commits.Outcome:
    """See `AnnouncedTables.adopt`.

    Order: the earlier versions are synced, because their writers may not have done so; the version's bytes become a new
    file, durably, because the fsync of their writer may have failed; then the transaction records it. The files of a
    table that is not adopted stay unchanged: another owner may own it.
    """
    with context.lock():
        table = context.cached_record(table_id)
        log = context.log(table)
        latest = max(log.published_versions(), default=None)
        if latest is None:
            return commits.VersionGap(latest_ratified_version=None)
        name = log_path.commit(latest)
        proposal = commits.DirectProposal(attempt=unknown_attempt(table_id, latest), content=log.read(name))
        examined = decide.examine(table.feature, latest, proposal, proposal.content)
        flaw = decide.first_version_flaw(table, examined, owner_name)
        if flaw is None and latest > 0:
            flaw = lifecycle.previous_timestamp_flaw(log, examined)
        with context.changing(table_id) as (writer, table):
            refusal = decide.not_new(table) or flaw
            if refusal is not None:
                return refusal
            log.sync_newest()
            log.overwrite(name, proposal.content)
            writer.set_name(table, _free_name(writer, table))
            commit = writer.ratify(table, examined, CommitMode.DIRECT, context.now, published=True)
            writer.set_state(table, TableState.ACTIVE)
    return commits.Ratified(commit=commit)


def _adopt_all(context: Context, owner_name: str) -> bool:
    """Adopt every announced table whose log has a version; returns whether one could be adopted."""
    with context.ledger.read() as view:
        announced = view.announced()
    created = [table for table in announced if context.log(table).published_versions()]
    outcomes: list[commits.Outcome] = []
    for table in created:
        with contextlib.suppress(CorruptLogError):  # requests for the table itself report it
            outcomes.append(_adopt(context, owner_name, table.table_id))
    return any(isinstance(outcome, commits.Ratified) for outcome in outcomes)


def _free_name(view: View, table: TableRecord) -> str:
    """A free name for a table that exists already: if another table has the name, its id is added."""
    assert table.name is not None
    if view.table_named(table.name) is None:
        return table.name
    ending = f"_{table.table_id[:_ID_IN_NAME]}"
    return policy.checked_name(table.name[: policy.MAX_NAME_LENGTH - len(ending)] + ending)


def _name_for(location: Path, wanted: str | None) -> str:
    """This owner's name for a table that an engine calls `wanted`, or knows by its location alone."""
    if wanted is not None:
        with contextlib.suppress(InvalidRequestError):
            return policy.checked_name(wanted)
    plain = re.sub(r"[^A-Za-z0-9_]", "_", location.name, flags=re.ASCII)[: policy.MAX_NAME_LENGTH - 1]
    return plain if plain and not plain[0].isdigit() else f"_{plain}"
