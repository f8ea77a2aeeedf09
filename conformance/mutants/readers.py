"""Readers that see what is not there, or not what is: the owner's answer and the listing, put together wrongly."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.owner import STAGING
from conformance.models.reader import Actions, Owner, Refused, Resolved, State, Unsure
from conformance.models.storage import LOG
from conformance.mutants.registry import mutant


@mutant("CM-READ-01", "MC-GET-03", "MC-READ-07", "CM-READ-05", "LOG-04", bugs=("FB01",), side="client")
class ListsThenAsks(ModelClient):
    """Lists the log, then asks the owner, and does not list again: a backfill in between makes versions vanish."""

    def _gather(self, client: str, table: Resolved) -> Listing:
        listed = self._list(table)
        self._ask(client, table)
        return listed


@mutant("MC-READ-07", "CM-READ-05", "CM-READ-09", bugs=("FB02",), side="client")
class AsksNoMoreAfterAnEmptyAnswer(ModelClient):
    """Once its owner had no unpublished commit to tell, it reads the table from listings alone."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.settled: set[str | None] = set()

    def _ask(self, client: str, table: Resolved) -> None:
        if table.name not in self.settled:
            super()._ask(client, table)
        if not table.commits:
            self.settled.add(table.name)


@mutant("LOG-13", bugs=("FB03",), side="client")
class ReadsOnlyTheStagedFile(ModelClient):
    """Fails when the staged file that the owner named was published and removed before it opened it."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        name = owned[version].file_name if version in owned else None
        if name is not None and not (table.log / STAGING[table.feature or ""] / name).exists():
            raise Refused(f"the commit file {name} is gone")
        return super()._commit(table, listed, owned, version)


@mutant("CM-READ-09", "MC-LOG-03", bugs=("FB04",), side="client")
class LooksForVersionsInTheListing(ModelClient):
    """A version that it is asked for has to be published: "no such commit" for one that is only ratified."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        if version is not None and version not in listed.commits:
            raise Refused(f"no commit file of version {version}")
        return super()._target(table, listed, version)


@mutant("MC-FILES-05", "CM-FILES-04", "LOG-17", bugs=("FB05",), side="client")
class ListsRecursively(ModelClient):
    """Its listing goes into the staging folder, where proposals that lost look like commits."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        for path in sorted(table.log.rglob("_*commits/*.json")):
            listed.commits[int(path.name[:20])] = path
        return listed


@mutant("LOG-16", "CM-LOG-08", "CM-READ-09", "MC-FILES-05", "CM-FILES-04", side="client")
class GuessesFromTheStagingFolder(ModelClient):
    """Takes the first staged file of each next version for the commit, and asks no owner."""

    def _ask(self, client: str, table: Resolved) -> None:
        table.latest, table.commits = None, ()

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        for path in sorted(table.log.rglob("_*commits/*.json")):
            listed.commits.setdefault(int(path.name[:20]), path)
        return listed


@mutant("CM-READ-04", bugs=("FB15",), side="client")
class ReadsPastTheLatestVersion(ModelClient):
    """Reads whatever newer versions its listing shows, although the catalog named an older one as the latest."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return max(listed.newest, -1 if table.latest is None else table.latest)


@mutant("MC-FILES-09", "LOG-09", side="client")
class StopsAtWhatTheOwnerNoticed(ModelClient):
    """Reads a managedCommit table only up to the version that its owner tells, and hides direct commits."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return listed.newest if table.latest is None else table.latest


@mutant("LOG-10", side="client")
class TakesMinusOneForEmpty(ModelClient):
    """An owner that tells no latest version makes it say that the table has none."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        if table.latest is None and table.reference is not None:
            raise Refused("the table has no version")
        return super()._latest(table, listed)


@mutant("LOG-08", side="client")
class StopsWhereTheListEnds(ModelClient):
    """Takes the last commit that the owner lists for the newest version."""

    def _ask(self, client: str, table: Resolved) -> None:
        super()._ask(client, table)
        if table.commits:
            table.latest = table.commits[-1].version

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return listed.newest if table.latest is None else table.latest


@mutant("CM-READ-03", side="client")
class PrefersThePublishedCopy(ModelClient):
    """Reads the published file of a version that the catalog returned too."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        return super()._commit(table, listed, {} if version in listed.commits else owned, version)


@mutant("CM-READ-09", "MC-READ-07", "CM-READ-05", side="client")
class FallsBackToTheListing(ModelClient):
    """If the owner does not answer, it reads what is published, and says nothing of it."""

    def _ask(self, client: str, table: Resolved) -> None:
        told = self.owner(client, m.GetCommits(table=table.reference or ""))
        if isinstance(told, m.Commits):
            table.latest, table.commits = told.latest, told.commits


@mutant("LOG-27", "MC-READ-07", "CM-READ-05", bugs=("FB37",), side="client")
class LeavesOutWhatItCannotFind(ModelClient):
    """If the newest commits are in no listing, it reads the version before them as the newest."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return min(super()._latest(table, listed), max([*listed.commits, *table.owned], default=-1))


@mutant("CM-READ-02", "LOG-18", side="client")
class NeverLists(ModelClient):
    """Makes a snapshot of version 0 and of what the owner returns, and never looks for published commits."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        return Listing(commits={v: path for v, path in listed.commits.items() if v == 0})


@mutant("LOG-09", "PROFILE-CLIENT-01", side="client")
class AlwaysReadsTheNewest(ModelClient):
    """Whatever version is asked for, it reads the newest one."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        super()._target(table, listed, version)
        return super()._target(table, listed, None)


@mutant("LOG-11", side="client")
class ReadsTheNewestForOneThatIsNotThere(ModelClient):
    """A version above the latest is read as the latest, without an error."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        return super()._target(table, listed, None if version is None else min(version, self._latest(table, listed)))


@mutant("MC-READ-04", "MC-READ-03", side="client")
class ReadsStagedFilesByPath(ModelClient):
    """Given a path, it takes what lies in the staging folder for the newest commits."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        if table.reference is None:
            for path in sorted((table.log / "_commits").glob("*.json")):
                listed.commits.setdefault(int(path.name[:20]), path)
        return listed


@mutant("CM-ACCESS-01", side="client")
class JudgesAnOldVersionByItself(ModelClient):
    """Reads by path the versions that a catalog-managed table had before its catalog took it over."""

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        self.pinned = request.version
        return super().snapshot(client, request)

    def _by_path(self, path: str) -> Resolved:
        if self.pinned is None:
            return super()._by_path(path)
        table = Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(path) / LOG)
        state = self._replay(table, self._list(table), self.pinned)
        if "catalogManaged" in state.protocol.get("readerFeatures", ()):
            raise Refused("a catalog-managed table is read through its catalog")
        return table


@mutant("CM-ACCESS-01", side="client")
class ReadsCatalogTablesByPath(ModelClient):
    """Reads a catalog-managed table from its path, without its catalog."""

    def _by_path(self, path: str) -> Resolved:
        return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(path) / LOG)


@mutant("CM-READ-08", "PROFILE-CLIENT-01", "MC-READ-07", "CM-READ-05", side="client")
class RemembersWhereATableWas(ModelClient):
    """Resolves a name once, and asks about that table for ever, whatever has the name now: another table, or the same
    one that was handed back and taken over again. If its owner knows nothing of the table any more, the log serves."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.known: dict[tuple[str, str], Resolved] = {}

    def _resolve(self, client: str, name: str) -> Resolved:
        if (client, name) not in self.known:
            self.known[client, name] = super()._resolve(client, name)
        return self.known[client, name]

    def _ask(self, client: str, table: Resolved) -> None:
        with suppress(Unsure):
            super()._ask(client, table)


@mutant("CM-LOG-03", "MC-LOG-06", side="client")
class TrustsTheCatalogForEveryVersion(ModelClient):
    """Puts the metadata that the catalog tells, which are those of the latest version, on older versions too."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        told = self.owner("reader", m.LoadTable(name=table.name))
        if isinstance(told, m.Table) and told.metadata is not None:
            state.metadata = msgspec.json.decode(told.metadata)
        return state


# Readers that misunderstand what a commit says.

KNOWN = {
    "commitInfo",
    "protocol",
    "metaData",
    "add",
    "remove",
    "txn",
    "domainMetadata",
    "sidecar",
    "checkpointMetadata",
}


@mutant("MC-LOG-06", "CM-LOG-03", side="client")
class IgnoresRemovals(ModelClient):
    """Files that were removed stay in its snapshots."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "remove":
            super()._apply_action(state, kind, body)


@mutant("MC-LOG-06", "CM-LOG-03", side="client")
class RemovesForEver(ModelClient):
    """A file that was removed once never comes back, although a later commit adds it again."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "add" and ("removed", body["path"]) in state.files:
            return
        super()._apply_action(state, kind, body)
        if kind == "remove":
            state.files["removed", body["path"]] = {}

    def _told(self, state: State, *, stale: bool) -> Any:
        state.files = {key: add for key, add in state.files.items() if add}
        return super()._told(state, stale=stale)


@mutant("LOG-29", side="client")
class RefusesUnknownActions(ModelClient):
    """An action of a kind that it does not know stops the read."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind not in KNOWN:
            raise Refused(f"unknown action {kind}")
        super()._apply_action(state, kind, body)


@mutant("LOG-29", side="client")
class RefusesUnknownFields(ModelClient):
    """A field that it does not know in an action that it does stops the read."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "add" and "somethingNew" in body:
            raise Refused("unknown field in add")
        super()._apply_action(state, kind, body)


@mutant("LOG-30", side="client")
class KnowsFilesByTheirPaths(ModelClient):
    """Takes two files with the same path for one: removing it without its deletion vector removes it with one too."""

    def _apply(self, state: State, version: int, actions: Actions) -> None:
        super()._apply(state, version, actions)
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        state.files = {key: add for key, add in state.files.items() if key[0] not in removed}


@mutant("LOG-31", side="client")
class KeepsTheFirstTransaction(ModelClient):
    """Of an application's transactions it remembers the first one."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "txn" or body["appId"] not in state.applications:
            super()._apply_action(state, kind, body)


@mutant("LOG-31", side="client")
class KeepsRemovedDomains(ModelClient):
    """A metadata domain that was removed stays."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        super()._apply_action(state, kind, {**body, "removed": False} if kind == "domainMetadata" else body)


@mutant("LOG-31", side="client")
class AddsNewPropertiesToOldOnes(ModelClient):
    """New metadata add to the table's properties instead of replacing them."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "metaData":
            body = {**body, "configuration": {**state.properties, **body["configuration"]}}
        super()._apply_action(state, kind, body)


@mutant("LOG-32", side="client")
class TakesPathsAsTheyAreWritten(ModelClient):
    """Does not decode paths: it looks for a file named `with%20space.parquet`."""

    def _decoded(self, path: str) -> str:
        return path


@mutant("LOG-32", side="client")
class DecodesPathsTwice(ModelClient):
    """Decodes paths once too often: a percent sign in a folder's name is lost."""

    def _decoded(self, path: str) -> str:
        return unquote(unquote(path))


@mutant("LOG-32", side="client")
class PutsEveryFileIntoTheTable(ModelClient):
    """Takes the last part of an absolute path for a file in the table's folder."""

    def _decoded(self, path: str) -> str:
        return super()._decoded(path.rpartition("/")[2] if path.startswith("file:") else path)


@mutant("LOG-33", side="client")
class TellsEmptyFromNull(ModelClient):
    """An empty partition value is an empty string for it, and not null."""

    def _partition(self, add: dict[str, Any]) -> str | None:
        value = (add.get("partitionValues") or {}).get("part")
        return None if value is None else str(value)


@mutant("LOG-33", side="client")
class TakesPartitionValuesForNumbers(ModelClient):
    """A partition value that looks like a number becomes one: 007 is 7."""

    def _partition(self, add: dict[str, Any]) -> str | None:
        value = super()._partition(add)
        return str(int(value)) if value is not None and value.isdecimal() else value


# Readers that are wrong about when a version was committed.


def _modified(listed: Listing, version: int) -> int:
    path = listed.commits.get(version)
    return 0 if path is None else path.stat().st_mtime_ns // 1_000_000


@mutant("ICT-16", "ICT-20", bugs=("FB20",), side="client")
class GoesByFiles(ModelClient):
    """Takes the modification times of files for the times of commits, in-commit timestamps or not."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        return _modified(listed, version) or super()._time(table, listed, state, version)


@mutant("ICT-19", bugs=("FB20",), side="client")
class SearchesAllVersionsByTheirFiles(ModelClient):
    """Time travel looks at the files' modification times of all versions, also beyond the enablement."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        if latest.enabled_since in (None, 0):
            return super()._at(table, listed, timestamp)
        times = {v: _modified(listed, v) or self._time(table, listed, latest, v) for v in range(latest.version + 1)}
        reached = [version for version, time in times.items() if time <= timestamp]
        return max(reached, default=0)


@mutant("ICT-18", side="client")
class TakesTheEnablementForEarlier(ModelClient):
    """A time that is exactly that of the enablement leads to the version before it."""

    def _enabled_at(self, table: Resolved, listed: Listing, latest: State) -> int:
        enabled = super()._enabled_at(table, listed, latest)
        return enabled + 1 if enabled else 0


@mutant("ICT-19", side="client")
class TravelsNoFurtherThanTheEnablement(ModelClient):
    """A time before the enablement leads to the enabling version, as if there were none before it."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        if latest.enabled_since is None:
            return super()._at(table, listed, timestamp)
        return super()._at(table, listed, max(timestamp, self._enabled_at(table, listed, latest)))


@mutant("ICT-18", side="client")
class KeepsTimesInOrderAcrossTheEnablement(ModelClient):
    """Makes the times of all versions increase, so that a file that was copied late moves the commits after it."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        reached, newest = [], 0
        for version in range(latest.version + 1):
            newest = max(newest + 1, self._time(table, listed, latest, version))
            if newest <= timestamp:
                reached.append(version)
        return max(reached, default=0)


@mutant("ICT-17", side="client")
class TakesTheTimestampOfOldCommitInfos(ModelClient):
    """Before the enablement it takes the field `timestamp` of a commitInfo for the time of the commit."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        if state.enabled_since is not None and version >= state.enabled_since:
            return super()._time(table, listed, state, version)
        actions = self._commit(table, listed, table.owned, version)
        return next((each["commitInfo"].get("timestamp", 0) for each in actions if "commitInfo" in each), 0)


@mutant("ICT-20", bugs=("FB18",), side="client")
class TravelsAmongPublishedVersions(ModelClient):
    """Looks a time up among the published commits only: the staged ones at the end are not there."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        times = super()._times(table, listed, latest)
        return {version: time for version, time in times.items() if version in listed.commits}


@mutant("ICT-20", bugs=("FB18",), side="client")
class NeedsPublishedCommitsToTravel(ModelClient):
    """Time travel fails as soon as a commit is not published."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        if latest.version not in listed.commits:
            raise Refused(f"version {latest.version} is missing")
        return super()._times(table, listed, latest)


@mutant("ICT-20", side="client")
class TravelsToTheNextVersion(ModelClient):
    """A time between two versions leads to the later one."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        times = self._times(table, listed, latest)
        return min((version for version, time in times.items() if time >= timestamp), default=latest.version)


@mutant("ICT-22", side="client")
class TrustsTimestampsThatWereDisabled(ModelClient):
    """Goes by in-commit timestamps wherever a commit has one, although the table has them disabled by now."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        infos = [a["commitInfo"] for a in self._commit(table, listed, table.owned, version) if "commitInfo" in a]
        inside = infos[0].get("inCommitTimestamp") if infos else None
        return inside if isinstance(inside, int) else super()._time(table, listed, state, version)


@mutant("ICT-22", side="client")
class LetsEachVersionDecideAboutItsTime(ModelClient):
    """Asks the version that it reads, not the newest one, whether in-commit timestamps are enabled: an old snapshot has
    another time than time travel finds it by."""

    def _decisive(self, table: Resolved, listed: Listing, state: State) -> State:
        return state
