"""Readers that nobody may accuse: each uses something that the documents leave to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing, listing_of
from conformance.models.reader import Actions, Owner, Refused, Resolved, State
from conformance.mutants.registry import good


@good("MC-FILES-10", "CM-GET-02", "MC-READ-05", "LOG-14", side="client")
class ListsForWhatIsPublished(ModelClient):
    """Finds published commits, checkpoints and checksums by a listing, and asks the owner for the rest."""


class OnlyWhenReading(ModelClient):
    """Differs from the model only while it reads a snapshot: `reading` is true."""

    reading = False

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        self.reading = True
        try:
            return super().snapshot(client, request)
        finally:
            self.reading = False


@good("MC-READ-01", "MC-READ-02", "FREE-READ-02", "FREE-STALE-01", side="client")
class IgnoresTheOwner(OnlyWhenReading):
    """Reads managedCommit tables from listings alone, and promises no fresh snapshots."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        commit_modes = {"managedCommit": identity.commit_modes["managedCommit"]}
        return msgspec.structs.replace(identity, features=("managedCommit",), commit_modes=commit_modes, promises=())

    def _ask(self, client: str, table: Resolved) -> None:
        if not self.reading:
            super()._ask(client, table)


@good("MC-READ-02", "FREE-STALE-01", side="client")
class SaysThatItMayBeStale(OnlyWhenReading):
    """Reads a managedCommit table from a listing if the owner does not answer, and says so."""

    def _ask(self, client: str, table: Resolved) -> None:
        try:
            super()._ask(client, table)
        except Refused:
            if not self.reading or table.feature != "managedCommit":
                raise
            table.reference = None


@good("MC-READ-08", "LOG-12", "FREE-READ-03", side="client")
class PrefersBackfilledFiles(ModelClient):
    """Reads the backfilled file of a managedCommit version that the owner lists too."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        backfilled = table.feature == "managedCommit" and version in listed.commits
        return super()._commit(table, listed, {} if backfilled else owned, version)


@good("FREE-READ-04", "MC-READ-05", side="client")
class ListsWhileItAsks(ModelClient):
    """Lists a managedCommit table before the owner answered, and lists again if the answer does not fit."""

    def _gather(self, client: str, table: Resolved) -> Listing:
        listed = self._list(table)
        self._ask(client, table)
        known = {*listed.commits, *table.owned}
        complete = table.latest is not None and all(version in known for version in range(table.latest + 1))
        return listed if complete and table.feature == "managedCommit" else self._list(table)


@good("CM-READ-07", "FREE-READ-01", side="client")
class LooksForFilesByName(ModelClient):
    """Lists nothing: what the owner does not return it looks for by name, one version after another."""

    def _list(self, table: Resolved) -> Listing:
        if table.reference is None:
            return super()._list(table)
        found: list[Path] = []
        version = 0
        while version <= (table.latest or 0) or (table.log / f"{version:020}.json").exists():
            named = [table.log / f"{version:020}.{ending}" for ending in ("json", "checkpoint.parquet", "crc")]
            found += [path for path in named if path.exists()]
            version += 1
        if not any(path.name.endswith("json") and path.name.startswith("0" * 20) for path in found):
            return super()._list(table)
        return listing_of(found)


@good("FREE-STALE-03", "CM-READ-07", side="client")
class ReadsWhatItResolved(OnlyWhenReading):
    """Takes the commits that came with the resolution of the name, and asks no second time."""

    def _resolve(self, client: str, name: str) -> Resolved:
        table = super()._resolve(client, name)
        told = self.owner(client, m.LoadTable(name=name))
        if isinstance(told, m.Table) and told.commits is not None:
            table.latest, table.commits = None if told.latest == -1 else told.latest, told.commits
        return table

    def _ask(self, client: str, table: Resolved) -> None:
        if not self.reading:
            super()._ask(client, table)


@good("FREE-STALE-02", side="client")
class TravelsFromWhatItKnows(ModelClient):
    """For a version or a time it does not ask again: it uses what the owner told at the last read of the table."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.known: dict[Path, Resolved] = {}

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        known = self.known.get(table.log)
        if known is not None and (version is not None or timestamp is not None):
            table.reference, table.latest, table.commits = None, known.latest, known.commits
        state = super()._read(client, table, version, timestamp)
        if table.reference is not None:
            self.known[table.log] = table
        return state


@good("CM-CATALOG-06", side="client")
class TrustsTheCatalogsMetadata(ModelClient):
    """Takes protocol and metadata of the latest version from the catalog where that tells them."""

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        told = self.owner(client, m.LoadTable(name=table.name)) if table.name is not None else None
        state = super()._read(client, table, version, timestamp)
        if isinstance(told, m.Table) and told.latest == state.version and told.metadata and told.protocol:
            state.metadata = _inside(told.metadata, "metaData")
            state.protocol = _inside(told.protocol, "protocol")
        return state


def _inside(action: str, kind: str) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(action)[kind]
    return body


@good("FREE-NAME-01", side="client")
class AcceptsThePluralName(ModelClient):
    """Reads a table whose protocol lists `inCommitTimestamps` like one with the singular."""


@good("FREE-NAME-02", side="client")
class RefusesThePluralName(ModelClient):
    """Refuses a table whose protocol lists `inCommitTimestamps`."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        if "inCommitTimestamps" in state.protocol.get("writerFeatures", ()):
            raise Refused("the feature is called inCommitTimestamp")
        return state


@good("FREE-TIME-01", side="client")
class ReadsWithOneEnablementProperty(ModelClient):
    """Needs only one of the two enablement properties."""

    def _enabled_at(self, table: Resolved, listed: Listing, latest: State) -> int:
        return self._time(table, listed, latest, latest.enabled_since or 0)


@good("FREE-TIME-02", side="client")
class TravelsBeyondTheHistory(ModelClient):
    """A time before the first commit leads to the first version, one after the last commit to the last."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        times = self._times(table, listed, latest)
        return super()._at(table, listed, min(max(timestamp, times[min(times)]), max(times.values())))


@good("FREE-TIME-04", side="client")
class TakesModificationTimesAsTheyAre(ModelClient):
    """Does not make modification times increase, even where they go back."""

    def _adjusted(self, modified: int, previous: int | None) -> int:
        return modified


@good(side="client")
class TellsOnlyFiles(ModelClient):
    """Tells the version and the files of a snapshot, and what it warns of; nothing else."""

    def _told(self, state: State, *, stale: bool) -> m.SnapshotRead:
        whole = super()._told(state, stale=stale)
        return m.SnapshotRead(version=whole.version, files=whole.files, stale=whole.stale, warnings=whole.warnings)


@good(side="client")
class ReadsTheNewestByName(ModelClient):
    """Reads the newest version of tables by their names; it travels nowhere and reads nothing by its path."""

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        if request.path is not None or request.version is not None or request.timestamp is not None:
            return m.Unsupported(reason="only the newest version, by name")
        return super().snapshot(client, request)


@good(side="client")
class OnlyReads(ModelClient):
    """It reads tables, and does nothing else: neither writes, nor jobs, nor changes of the owner."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        return msgspec.structs.replace(identity, profiles=("core",))

    def _no(self, client: str, request: m.Request) -> m.Answer:
        return m.Unsupported(reason="it is a reader")

    transact = checkpoint = compact = checksum = cleanup = maintain = take_over = hand_back = create_table = _no
