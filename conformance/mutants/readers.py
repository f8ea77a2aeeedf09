"""Bad readers: they misread the answers of the owner and the listing, or misuse checkpoints, compactions and hints."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING
from conformance.models.client import ModelClient
from conformance.models.log_files import HINT, SIDECARS, Checkpoint, Listing, actions_in, checkpoint_actions
from conformance.models.reader import Actions, Refused, Resolved, State, Unsure
from conformance.mutants import memory, mutant


@mutant("LOG-46", side="client")
class IgnoresReaderFeatures(ModelClient):
    """Reads tables with reader features that it does not know."""

    def _check_readable(self, state: State) -> None:
        pass


@mutant("CM-READ-01", "MC-GET-03", "MC-READ-07", "CM-READ-05", "LOG-04", bugs=("FB01",), side="client")
class ListsThenAsks(ModelClient):
    """Lists the log, then asks the owner, and does not list again: a backfill in between hides commits."""

    def _gather(self, client: str, table: Resolved) -> Listing:
        listed = self._list(table)
        self._ask(client, table)
        return listed


@mutant("MC-READ-07", "CM-READ-05", "CM-READ-09", bugs=("FB02",), side="client")
class StopsAskingAfterAnEmptyAnswer(ModelClient):
    """After the owner once returned no commits, reads the table from listings alone."""

    settled: set[str | None] = memory(set)

    def _ask(self, client: str, table: Resolved) -> None:
        if table.name not in self.settled:
            super()._ask(client, table)
        if not table.commits:
            self.settled.add(table.name)


@mutant("LOG-13", bugs=("FB03",), side="client")
class ReadsOnlyTheStagedFile(ModelClient):
    """Fails if the staged file that the owner named was published and removed."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        name = owned[version].file_name if version in owned else None
        if name is not None and not (table.log / STAGING[table.feature or ""] / name).exists():
            raise Refused(f"the commit file {name} does not exist")
        return super()._commit(table, listed, owned, version)


@mutant("CM-READ-09", "MC-LOG-03", bugs=("FB04",), side="client")
class ReadsPublishedVersionsOnly(ModelClient):
    """Rejects a requested version that is ratified and not published."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        if version is not None and version not in listed.commits:
            raise Refused(f"no commit file of version {version}")
        return super()._target(table, listed, version)


@mutant("MC-FILES-05", "CM-FILES-04", "LOG-17", bugs=("FB05",), side="client")
class ListsRecursively(ModelClient):
    """Lists the staging folder too: proposals that lost look like commits."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        for path in sorted(table.log.rglob("_*commits/*.json")):
            listed.commits[int(path.name[:20])] = path
        return listed


@mutant("LOG-16", "CM-LOG-08", "CM-READ-09", "MC-FILES-05", "CM-FILES-04", side="client")
class ReadsTheStagingFolder(ModelClient):
    """Reads the first staged file of each next version as the commit, without asking the owner."""

    def _ask(self, client: str, table: Resolved) -> None:
        table.latest, table.commits = None, ()

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        for path in sorted(table.log.rglob("_*commits/*.json")):
            listed.commits.setdefault(int(path.name[:20]), path)
        return listed


@mutant("CM-READ-04", bugs=("FB15",), side="client")
class ReadsPastTheLatestVersion(ModelClient):
    """Reads newer listed versions, although the catalog returned an older latest version."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return max(listed.newest, -1 if table.latest is None else table.latest)


@mutant("MC-FILES-09", "LOG-09", side="client")
class HidesDirectCommits(ModelClient):
    """Reads a managedCommit table up to the version that its owner returns, and hides direct commits."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return listed.newest if table.latest is None else table.latest


@mutant("LOG-10", side="client")
class ReadsMinusOneAsEmpty(ModelClient):
    """Reads a table as empty if the owner returns no latest version."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        if table.latest is None and table.reference is not None:
            raise Refused("the table has no version")
        return super()._latest(table, listed)


@mutant("LOG-08", side="client")
class ReadsToTheEndOfTheList(ModelClient):
    """Reads only up to the last commit that the owner lists."""

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
    """Reads only published commits if the owner does not answer, without declaring it."""

    def _ask(self, client: str, table: Resolved) -> None:
        answer = self.owner(client, m.GetCommits(table=table.reference or ""))
        if isinstance(answer, m.Commits):
            table.latest, table.commits = answer.latest, answer.commits


@mutant("LOG-27", "MC-READ-07", "CM-READ-05", bugs=("FB37",), side="client")
class SkipsMissingNewestCommits(ModelClient):
    """Reads the version before the newest commits if these are not in the listing."""

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return min(super()._latest(table, listed), max([*listed.commits, *table.owned], default=-1))


@mutant("CM-READ-02", "LOG-18", side="client")
class NeverLists(ModelClient):
    """Builds a snapshot from version 0 and the owner's commits, without listing published ones."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        return Listing(commits={v: path for v, path in listed.commits.items() if v == 0})


@mutant("LOG-09", "PROFILE-CLIENT-01", side="client")
class AlwaysReadsTheNewest(ModelClient):
    """Reads the newest version whatever version is requested."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        super()._target(table, listed, version)
        return super()._target(table, listed, None)


@mutant("LOG-11", side="client")
class ReadsTheLatestForAHigherVersion(ModelClient):
    """Reads the latest version if a higher one is requested."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        return super()._target(table, listed, None if version is None else min(version, self._latest(table, listed)))


@mutant("MC-READ-04", "MC-READ-03", side="client")
class ReadsStagedFilesByPath(ModelClient):
    """Reads staged files as the newest commits when given a path."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        if table.reference is None:
            for path in sorted((table.log / "_commits").glob("*.json")):
                listed.commits.setdefault(int(path.name[:20]), path)
        return listed


@mutant("CM-ACCESS-01", side="client")
class ReadsOldVersionsByPath(ModelClient):
    """Reads by path the versions that a catalog-managed table had before its take-over."""

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
    """Reads a catalog-managed table by its path, without its catalog."""

    def _by_path(self, path: str) -> Resolved:
        return Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(path) / LOG)


@mutant("CM-READ-08", "PROFILE-CLIENT-01", side="client")
class CachesVersionsByName(ModelClient):
    """Caches versions by the table's name, and returns them for a new table of that name."""

    read: dict[tuple[str | None, int], State] = memory(dict)

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        return copy.deepcopy(self.read.setdefault((table.name, target), copy.deepcopy(state)))


@mutant("CM-READ-08", "PROFILE-CLIENT-01", "MC-READ-07", "CM-READ-05", side="client")
class CachesReferences(ModelClient):
    """Resolves a name once, and uses that table from then on, even after a drop or an ownership change."""

    known: dict[tuple[str, str], Resolved] = memory(dict)

    def _resolve(self, client: str, name: str) -> Resolved:
        if (client, name) not in self.known:
            self.known[client, name] = super()._resolve(client, name)
        return self.known[client, name]

    def _ask(self, client: str, table: Resolved) -> None:
        with suppress(Unsure):
            super()._ask(client, table)


@mutant("CM-LOG-03", "MC-LOG-06", side="client")
class UsesCatalogMetadataForOldVersions(ModelClient):
    """Uses the catalog's metadata, which is for the latest version, for older versions too."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        answer = self.owner("reader", m.LoadTable(name=table.name))
        if isinstance(answer, m.Table) and answer.metadata is not None:
            state.metadata = msgspec.json.decode(answer.metadata)
        return state


# Readers that misinterpret the content of a commit.

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
    """Keeps removed files in its snapshots."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "remove":
            super()._apply_action(state, kind, body)


@mutant("MC-LOG-06", "CM-LOG-03", side="client")
class RemovedFilesCannotReturn(ModelClient):
    """Ignores a file that was removed once, although a later commit adds it again."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "add" and ("removed", body["path"]) in state.files:
            return
        super()._apply_action(state, kind, body)
        if kind == "remove":
            state.files["removed", body["path"]] = {}

    def _snapshot_read(self, state: State, *, stale: bool) -> Any:
        state.files = {key: add for key, add in state.files.items() if add}
        return super()._snapshot_read(state, stale=stale)


@mutant("LOG-29", side="client")
class FailsOnUnknownActions(ModelClient):
    """Fails on an unknown kind of action."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind not in KNOWN:
            raise Refused(f"unknown action {kind}")
        super()._apply_action(state, kind, body)


@mutant("LOG-29", side="client")
class FailsOnUnknownFields(ModelClient):
    """Fails on an unknown field of a known action."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "add" and "somethingNew" in body:
            raise Refused("unknown field in add")
        super()._apply_action(state, kind, body)


@mutant("LOG-18", "LOG-19", side="client")
class PassesOverMissingSidecars(ModelClient):
    """Reads a V2 checkpoint without its sidecars if they are missing."""

    def _start(self, listed: Listing, target: int) -> State:
        for checkpoint in self._checkpoints(listed, target):
            [manifest, *_] = checkpoint.files
            if manifest.suffix == ".json" and not any((manifest.parent / SIDECARS).glob("*")):
                state = State()
                self._apply(state, checkpoint.version, actions_in(manifest))
                return state
        return super()._start(listed, target)


@mutant("LOG-30", side="client")
class IdentifiesFilesByPath(ModelClient):
    """Ignores deletion vectors in the identity of files: removing a file without its vector removes it with one too."""

    def _apply(self, state: State, version: int, actions: Actions) -> None:
        super()._apply(state, version, actions)
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        state.files = {key: add for key, add in state.files.items() if key[0] not in removed}


@mutant("LOG-30", side="client")
class IdentifiesVectorsByFile(ModelClient):
    """Ignores the offset of a deletion vector: two vectors in one file are the same."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if body.get("deletionVector"):
            body = {**body, "deletionVector": {**body["deletionVector"], "offset": 0}}
        super()._apply_action(state, kind, body)


@mutant("LOG-31", side="client")
class KeepsTheFirstTransaction(ModelClient):
    """Keeps the first transaction of each application instead of the last."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "txn" or body["appId"] not in state.applications:
            super()._apply_action(state, kind, body)


@mutant("LOG-31", side="client")
class KeepsRemovedDomains(ModelClient):
    """Keeps a removed metadata domain."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        super()._apply_action(state, kind, {**body, "removed": False} if kind == "domainMetadata" else body)


@mutant("LOG-31", side="client")
class MergesProperties(ModelClient):
    """Merges the properties of new metadata into the old ones instead of replacing them."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "metaData":
            body = {**body, "configuration": {**state.properties, **body["configuration"]}}
        super()._apply_action(state, kind, body)


@mutant("LOG-32", side="client")
class DoesNotDecodePaths(ModelClient):
    """Does not decode paths: opens a file named `with%20space.parquet`."""

    def _decoded(self, path: str) -> str:
        return path


@mutant("LOG-32", side="client")
class DecodesPathsTwice(ModelClient):
    """Decodes paths twice: a percent sign in a name is lost."""

    def _decoded(self, path: str) -> str:
        return unquote(unquote(path))


@mutant("LOG-32", side="client")
class DropsFoldersOfAbsolutePaths(ModelClient):
    """Uses only the last part of an absolute path, as a file in the table's folder."""

    def _decoded(self, path: str) -> str:
        return super()._decoded(path.rpartition("/")[2] if path.startswith("file:") else path)


@mutant("LOG-33", side="client")
class ReadsEmptyPartitionValuesAsText(ModelClient):
    """Reads an empty partition value as an empty string instead of null."""

    def _partition(self, add: dict[str, Any]) -> str | None:
        value = (add.get("partitionValues") or {}).get("part")
        return None if value is None else str(value)


@mutant("LOG-33", side="client")
class ReadsPartitionValuesAsNumbers(ModelClient):
    """Reads a partition value that looks like a number as a number: 007 becomes 7."""

    def _partition(self, add: dict[str, Any]) -> str | None:
        value = super()._partition(add)
        return str(int(value)) if value is not None and value.isdecimal() else value


# Readers that are wrong about the time of a version.


def _modified(listed: Listing, version: int) -> int:
    path = listed.commits.get(version)
    return 0 if path is None else path.stat().st_mtime_ns // 1_000_000


@mutant("ICT-16", "ICT-20", bugs=("FB20",), side="client")
class UsesModificationTimes(ModelClient):
    """Uses modification times of files as commit times, even with in-commit timestamps."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        return _modified(listed, version) or super()._time(table, listed, state, version)


@mutant("ICT-19", bugs=("FB20",), side="client")
class SearchesModificationTimesOnly(ModelClient):
    """Searches the modification times of all versions, even after the enablement."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        if latest.enabled_since in (None, 0):
            return super()._at(table, listed, timestamp)
        times = {v: _modified(listed, v) or self._time(table, listed, latest, v) for v in range(latest.version + 1)}
        reached = [version for version, time in times.items() if time <= timestamp]
        return max(reached, default=0)


@mutant("ICT-18", side="client")
class ExcludesTheEnablementTime(ModelClient):
    """Selects the version before the enablement for the exact time of the enablement."""

    def _enabled_at(self, table: Resolved, listed: Listing, latest: State) -> int:
        enabled = super()._enabled_at(table, listed, latest)
        return enabled + 1 if enabled else 0


@mutant("ICT-19", side="client")
class TimeTravelStopsAtTheEnablement(ModelClient):
    """Selects the enabling version for a time before the enablement."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        if latest.enabled_since is None:
            return super()._at(table, listed, timestamp)
        return super()._at(table, listed, max(timestamp, self._enabled_at(table, listed, latest)))


@mutant("ICT-18", side="client")
class OrdersTimesAcrossTheEnablement(ModelClient):
    """Makes the times of all versions increase, so that the late modification time of a copied file shifts later
    commits."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        reached, newest = [], 0
        for version in range(latest.version + 1):
            newest = max(newest + 1, self._time(table, listed, latest, version))
            if newest <= timestamp:
                reached.append(version)
        return max(reached, default=0)


@mutant("ICT-17", side="client")
class UsesTimestampOfOldCommitInfos(ModelClient):
    """Uses the field `timestamp` of a commitInfo as the commit's time before the enablement."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        if state.enabled_since is not None and version >= state.enabled_since:
            return super()._time(table, listed, state, version)
        actions = self._commit(table, listed, table.owned, version)
        return next((action["commitInfo"].get("timestamp", 0) for action in actions if "commitInfo" in action), 0)


@mutant("ICT-20", bugs=("FB18",), side="client")
class TimeTravelIgnoresUnpublishedCommits(ModelClient):
    """Searches a time among published commits only."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        times = super()._times(table, listed, latest)
        return {version: time for version, time in times.items() if version in listed.commits}


@mutant("ICT-20", bugs=("FB18",), side="client")
class TimeTravelNeedsPublishedCommits(ModelClient):
    """Fails time travel while a commit is unpublished."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        if latest.version not in listed.commits:
            raise Refused(f"version {latest.version} is missing")
        return super()._times(table, listed, latest)


@mutant("ICT-20", side="client")
class TimeTravelSelectsTheNextVersion(ModelClient):
    """Selects the later version for a time between two versions."""

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        latest = self._replay(table, listed, self._target(table, listed, None))
        times = self._times(table, listed, latest)
        return min((version for version, time in times.items() if time >= timestamp), default=latest.version)


@mutant("ICT-22", side="client")
class UsesDisabledTimestamps(ModelClient):
    """Uses in-commit timestamps that the table has disabled."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        infos = [a["commitInfo"] for a in self._commit(table, listed, table.owned, version) if "commitInfo" in a]
        inside = infos[0].get("inCommitTimestamp") if infos else None
        return inside if isinstance(inside, int) else super()._time(table, listed, state, version)


@mutant("ICT-22", side="client")
class UsesEachVersionsOwnTimestampSetting(ModelClient):
    """Uses the requested version's setting for in-commit timestamps instead of the newest one's."""

    def _decisive(self, table: Resolved, listed: Listing, state: State) -> State:
        return state


@mutant("LOG-18", side="client")
class SkipsTheCommitAfterACheckpoint(ModelClient):
    """Skips the first commit after the checkpoint."""

    def _start(self, listed: Listing, target: int) -> State:
        state = super()._start(listed, target)
        if 0 <= state.version < target:
            state.version += 1
        return state


@mutant("LOG-18", side="client")
class AppliesListedCommitsTwice(ModelClient):
    """Applies all commits that the owner lists after the checkpoint, even those that the checkpoint contains."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        start = self._start(listed, target)
        for version in sorted(version for version in table.owned if version <= start.version):
            self._apply(start, start.version, self._commit(table, listed, table.owned, version))
        if start.version == target:
            state.files = start.files
        return state


@mutant("MC-CHECKPOINT-02", "LOG-18", side="client")
class StartsFromTheOldestCheckpoint(ModelClient):
    """Uses the first listed checkpoint instead of the newest one."""

    def _checkpoints(self, listed: Listing, target: int) -> list[Checkpoint]:
        return super()._checkpoints(listed, target)[::-1]


@mutant("LOG-19", side="client")
class UsesIncompleteCheckpoints(ModelClient):
    """Reads the existing parts of a checkpoint without counting them."""

    def _checkpoints(self, listed: Listing, target: int) -> list[Checkpoint]:
        counted = [replace(checkpoint, parts=len(checkpoint.files)) for checkpoint in listed.checkpoints]
        return super()._checkpoints(replace(listed, checkpoints=counted), target)


@mutant("LOG-21", bugs=("FB31",), side="client")
class TrustsTheHint(ModelClient):
    """Opens the checkpoint that `_last_checkpoint` names, and fails if it was deleted."""

    def _start(self, listed: Listing, target: int) -> State:
        named = self._named(listed)
        if (
            named is not None
            and named <= target
            and all(checkpoint.version != named for checkpoint in listed.checkpoints)
        ):
            raise Refused(f"the checkpoint of version {named} does not exist")
        return super()._start(listed, target)

    def _named(self, listed: Listing) -> int | None:
        folder = next(iter(listed.commits.values())).parent
        try:
            return int(json.loads((folder / HINT).read_text())["version"])
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Refused(f"{HINT} cannot be read") from error


@mutant("LOG-15", side="client")
class StartsFromALaterCheckpoint(ModelClient):
    """Uses the checkpoint that the hint names, even above the requested version."""

    def _start(self, listed: Listing, target: int) -> State:
        state = super()._start(listed, max(listed.commits))
        if state.version > target:
            state.version = target
        return state


@mutant("LOG-22", "LOG-15", side="client")
class UsesACompactionBeyondTheVersion(ModelClient):
    """Applies a compaction that ends after the requested version."""

    def _compacted(self, listed: Listing, owned: dict[int, m.CommitEntry], start: int, target: int) -> int | None:
        return super()._compacted(listed, owned, start, max(listed.commits))

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        state.version = target
        return state


@mutant("LOG-22", side="client")
class AppliesOldCompactions(ModelClient):
    """Applies every listed compaction, even one that ends before the checkpoint: removed files reappear."""

    def _start(self, listed: Listing, target: int) -> State:
        state = super()._start(listed, target)
        version = state.version
        for (_, end), path in listed.compactions.items():
            if end <= version:
                self._apply(state, version, actions_in(path))
        return state


@mutant("LOG-24", bugs=("FB33",), side="client")
class TakesDomainsFromAnyChecksum(ModelClient):
    """Reads metadata domains from the newest checksum of any version."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        older = [version for version in listed.checksums if version <= target]
        if older:
            try:
                checksum = json.loads(listed.checksums[max(older)].read_text())
                state.domains = {domain["domain"]: domain for domain in checksum["domainMetadata"]}
            except (ValueError, TypeError, KeyError):
                return state
        return state


@mutant("LOG-25", bugs=("FB33",), side="client")
class FailsOnACorruptChecksum(ModelClient):
    """Fails on an unreadable checksum."""

    def _disagreements(self, listed: Listing, state: State) -> list[str]:
        if state.version in listed.checksums:
            try:
                json.loads(listed.checksums[state.version].read_text())["numFiles"]
            except (ValueError, TypeError, KeyError) as error:
                raise Refused("the checksum is corrupt") from error
        return super()._disagreements(listed, state)


@mutant("LOG-26", side="client")
class IgnoresChecksums(ModelClient):
    """Does not compare its snapshot with the checksum of the version."""

    def _disagreements(self, listed: Listing, state: State) -> list[str]:
        return []


@mutant("LOG-27", side="client")
class SkipsMissingCommits(ModelClient):
    """Skips a commit that does not exist."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        return super()._commit(table, listed, owned, version) if version in {*listed.commits, *owned} else []


@mutant("LOG-38", side="client")
class ReadsAnEmptyFileAsACommit(ModelClient):
    """Reads a commit of zero bytes as one without actions."""

    def _opened(self, path: Path) -> Actions:
        return [] if path.stat().st_size == 0 else super()._opened(path)


@mutant("LOG-28", side="client")
class SkipsInvalidLines(ModelClient):
    """Skips a truncated line at the end of a commit."""

    def _opened(self, path: Path) -> Actions:
        actions = []
        for line in path.read_text().splitlines():
            try:
                actions.append(json.loads(line))
            except ValueError:
                continue
        return actions


@mutant("FIELD-03", bugs=("FB39",), side="client")
class FailsOnACorruptCheckpoint(ModelClient):
    """Fails on an unreadable checkpoint, although all commits exist."""

    def _start(self, listed: Listing, target: int) -> State:
        for checkpoint in self._checkpoints(listed, target):
            checkpoint_actions(checkpoint)
            break
        return super()._start(listed, target)


@mutant("LOG-20", side="client")
class MixesCheckpointsOfAVersion(ModelClient):
    """Combines parts of different checkpoints of a version."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        mixed: dict[int, dict[str, Path]] = {}
        for each in listed.checkpoints:
            if each.parts > 1:
                mixed.setdefault(each.version, {}).update({path.name.split(".")[2]: path for path in each.files})
        listed.checkpoints = [checkpoint for checkpoint in listed.checkpoints if checkpoint.parts == 1]
        listed.checkpoints += [
            Checkpoint(version=version, files=tuple(parts.values()), parts=len(parts), rank=0)
            for version, parts in mixed.items()
        ]
        return listed
