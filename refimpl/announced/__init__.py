"""Tables that an engine creates or converts itself, and announces to this owner before: Delta's own commit coordinators
do.

DELTA_SPARK.md#registering: Delta Spark registers a table with its coordinator, then writes version 0, or the version
that names the owner, through the filesystem. The engine's put-if-absent is the commit point. `announce` records the
location; at the next call for the table `adopt` reads that the newest published version names this owner, and
owns the table from that version on. The announcement is durable, and only an announced table is adopted: otherwise an
owner that lost its ledger would begin at the newest published version, and forget the versions that it had ratified
after it.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from refimpl.owner import decide
from refimpl.owner.lifecycle import previous_timestamp_flaw
from refimpl.owner.local import LocalOwner
from refimpl.owner.records import MAX_NAME_LENGTH, TableRecord, checked_name, unknown_attempt
from refimpl.owner.statements import View
from refimpl.owner.tables import disk_errors
from refimpl.protocol import commits, log_path
from refimpl.protocol.commit_owner import MaintenancePolicy, ResolvedTable, TableState, TableSummary
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, LocationError, TableNotFoundError
from refimpl.protocol.log_path import Version
from refimpl.protocol.owner_conf import conf_flaw
from refimpl.protocol.table_feature import CommitMode, TableFeature
from refimpl.storage import locations
from refimpl.storage.log_store import LogStore


class AnnouncedTables(LocalOwner):
    """An owner that also adopts tables whose engines announced them."""

    def resolve(self, reference: str | Path) -> ResolvedTable:
        """Also adopts a table that an engine announced and has created since."""
        try:
            found = super().resolve(reference)
        except TableNotFoundError:  # an announced table is found by its name only once it is adopted
            if not self._adopt_announced_tables():
                raise
            return super().resolve(reference)
        announced = found.state is TableState.STAGING and found.feature.engines_create
        return super().resolve(reference) if announced and self._adopt_created(found.table_id) else found

    def tables(self) -> Sequence[TableSummary]:
        self._adopt_announced_tables()
        return super().tables()

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

        `name`: the engine's name of the table, if it is a valid name here. The table is staging until `adopt`. A
        repeated call for one location returns the same table, until it is adopted.
        `owner_conf`: the JSON map for the owner's client that will be in the log.
        Raises `LocationError`, `InvalidRequestError`.

        Order: the transaction, then the folders; a crash in between leaves a table that the next call returns.
        """
        with disk_errors("announce a table"):
            locations.refuse_unusual_path(location)
            flaw = conf_flaw(owner_conf)
            if flaw is not None:  # after the engine's commit it is too late
                raise InvalidRequestError(f"{location} cannot get this owner: {flaw.detail}", location=str(location))
            own_name, state = _name_for(location, name), TableState.STAGING
            record = self.new_record(own_name, feature, CommitMode.STAGED, policy, state, location)
            with self.lock():
                _check_log(self.log(record), latest)
                with self.ledger.write() as writer:
                    self.refuse_outside(writer, location)
                    known = writer.table_at(location)
                    if known is not None and known.state is state and known.feature is feature:
                        record = known
                    else:
                        self.refuse_overlap(writer, location)
                        record = writer.add_table(record)
                self.log(record).create_folders(feature.staging_folder)
            return self.resolve_id(record.table_id)

    def adopt(self, table_id: str) -> commits.Outcome:
        """Own an announced table from its newest published version on; that version must name this owner.

        `VersionGap(None)`: no version is published yet. `Conflict`: it is owned already. `Rejected`: the version does
        not name this owner, or the one before it is missing; the table stays announced.

        Order: the earlier versions are synced, because their writers may not have done so; the version's bytes become a
        new file, durably, because the fsync of their writer may have failed; then the transaction records it. The files
        of a table that is not adopted stay unchanged: another owner may own it.
        """
        with disk_errors("adopt a table"), self.lock():
            table = self.cached_record(table_id)
            log = self.log(table)
            latest = max(log.published_versions(), default=None)
            if latest is None:
                return commits.VersionGap(latest_ratified_version=None)
            name = log_path.commit(latest)
            proposal = commits.DirectProposal(attempt=unknown_attempt(table_id, latest), content=log.read(name))
            examined = decide.examine(table.feature, latest, proposal, proposal.content)
            flaw = decide.first_version_flaw(table, examined, self.name)
            if flaw is None and latest > 0:
                flaw = previous_timestamp_flaw(log, examined)
            with self.changing(table_id) as (writer, table):
                refusal = decide.not_new(table) or flaw
                if refusal is not None:
                    return refusal
                log.sync_newest()
                log.overwrite(name, proposal.content)
                writer.set(table, name=_free_name(writer, table))
                commit = writer.ratify(table, examined, CommitMode.DIRECT, self.now, published=True)
                writer.set(table, state=TableState.ACTIVE)
        return commits.Ratified(commit=commit)

    def _adopt_announced_tables(self) -> bool:
        """Adopt every announced table whose log has a version; returns whether one is owned now."""
        with self.ledger.read() as view:
            staging = view.tables(state=TableState.STAGING)
        announced = sorted((table for table in staging if table.feature.engines_create), key=lambda table: table.key)
        owned = [self._adopt_created(table.table_id) for table in announced]
        return any(owned)

    def _adopt_created(self, table_id: str) -> bool:
        """Adopt an announced table if its log has a version; returns whether it is owned now."""
        with disk_errors("look for announced tables"), suppress(CorruptLogError):  # requests for its log report it
            created = self.log(self.cached_record(table_id)).published_versions()
            return bool(created) and isinstance(self.adopt(table_id), commits.Ratified | commits.Conflict)
        return False


_ID_IN_NAME: Final = 8


def _check_log(log: LogStore, latest: Version | None) -> None:
    """Check that a new table has no version, and that any other one has the version that its engine read."""
    if latest is None and log.published_versions():
        raise LocationError(
            f"{log.location} already has a table; choose an empty location, or take the table over",
            location=str(log.location),
        )
    if latest is not None and not log.published(latest):
        raise InvalidRequestError(
            f"the log of {log.location} has no version {latest}: publish it before the table gets an owner",
            version=latest,
        )


def _free_name(view: View, table: TableRecord) -> str:
    """A free name for a table that exists already: if another table has the name, its id is added."""
    assert table.name is not None
    if view.table_named(table.name) is None:
        return table.name
    ending = f"_{table.table_id[:_ID_IN_NAME]}"
    return checked_name(table.name[: MAX_NAME_LENGTH - len(ending)] + ending)


def _name_for(location: Path, wanted: str | None) -> str:
    """This owner's name for a table that an engine calls `wanted`, or knows by its location alone."""
    if wanted is not None:
        with suppress(InvalidRequestError):
            return checked_name(wanted)
    plain = re.sub(r"[^A-Za-z0-9_]", "_", location.name, flags=re.ASCII)[: MAX_NAME_LENGTH - 1]
    return plain if plain and not plain[0].isdigit() else f"_{plain}"
