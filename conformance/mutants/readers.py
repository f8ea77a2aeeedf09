"""Bad readers: they misread the answers of the owner and the listing, or misuse checkpoints, compactions and hints."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, commit_file
from conformance.models.client import ModelClient
from conformance.models.log_files import HINT, Checkpoint, Listing, actions_in, checkpoint_actions
from conformance.models.reader import Actions, Refused, Resolved, State
from conformance.mutants import memory_of, mutant, mutant_method, original


@mutant_method("_check_readable", "LOG-46")
def ignores_reader_features(self: ModelClient, state: State) -> None:
    """Reads tables with reader features that it does not know."""


@mutant_method("_gather", "CM-READ-01", "MC-GET-03", "MC-READ-07", "CM-READ-05", "LOG-04", bugs=("FB01",))
def lists_then_asks(self: ModelClient, client: str, table: Resolved) -> Listing:
    """Lists the log, then asks the owner, and does not list again: a backfill in between hides commits."""
    listed = self._list(table)
    self._ask(client, table)
    return listed


@mutant_method("_ask", "MC-READ-07", "CM-READ-05", "CM-READ-09", bugs=("FB02",))
def stops_asking_after_an_empty_answer(self: ModelClient, client: str, table: Resolved) -> None:
    """After the owner once returned no commits, reads the table from listings alone."""
    settled = memory_of(self, set[str | None])
    if table.name not in settled:
        original(self)._ask(client, table)
    if not table.commits:
        settled.add(table.name)


@mutant("LOG-13", bugs=("FB03",))
class ReadsOnlyTheStagedFile(ModelClient):
    """Fails if the staged file that the owner named was published and removed."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        name = owned[version].file_name if version in owned else None
        if name is not None and not (table.log / STAGING[table.feature or ""] / name).exists():
            raise Refused(f"the commit file {name} does not exist")
        return super()._commit(table, listed, owned, version)


@mutant_method("_target", "CM-READ-09", "MC-LOG-03", bugs=("FB04",))
def reads_published_versions_only(self: ModelClient, table: Resolved, listed: Listing, version: int | None) -> int:
    """Rejects a requested version that is ratified and not published."""
    if version is not None and version not in listed.commits:
        raise Refused(f"no commit file of version {version}")
    return original(self)._target(table, listed, version)


@mutant_method("_list", "MC-FILES-05", "CM-FILES-04", "LOG-17", bugs=("FB05",))
def lists_recursively(self: ModelClient, table: Resolved) -> Listing:
    """Lists the staging folder too: proposals that lost look like commits."""
    listed = original(self)._list(table)
    for path in sorted(table.log.rglob("_*commits/*.json")):
        listed.commits[int(path.name[:20])] = path
    return listed


@mutant("LOG-16", "CM-LOG-08", "CM-READ-09", "MC-FILES-05", "CM-FILES-04")
class ReadsTheStagingFolder(ModelClient):
    """Reads the first staged file of each next version as the commit, without asking the owner."""

    def _ask(self, client: str, table: Resolved) -> None:
        table.latest, table.commits = None, ()

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        for path in sorted(table.log.rglob("_*commits/*.json")):
            listed.commits.setdefault(int(path.name[:20]), path)
        return listed


@mutant_method("_latest", "CM-READ-04", bugs=("FB15",))
def reads_past_the_latest_version(self: ModelClient, table: Resolved, listed: Listing) -> int:
    """Reads newer listed versions, although the catalog returned an older latest version."""
    return max(listed.newest, -1 if table.latest is None else table.latest)


@mutant_method("_latest", "MC-FILES-09", "LOG-09")
def hides_direct_commits(self: ModelClient, table: Resolved, listed: Listing) -> int:
    """Reads a managedCommit table up to the version that its owner returns, and hides direct commits."""
    return listed.newest if table.latest is None else table.latest


@mutant_method("_latest", "LOG-10")
def reads_minus_one_as_empty(self: ModelClient, table: Resolved, listed: Listing) -> int:
    """Reads a table as empty if the owner returns no latest version."""
    if table.latest is None and table.reference is not None:
        raise Refused("the table has no version")
    return original(self)._latest(table, listed)


@mutant("LOG-10")
class LooksOnlyForTheNextNames(ModelClient):
    """Takes a table for unchanged if the owner returns no version and the next four commits are missing, although a
    newer checkpoint may have replaced them."""

    def _found(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        known = memory_of(self, dict[Path, State])
        if version is None and timestamp is None and table.log in known:
            self._ask(client, table)
            after = known[table.log].version + 1
            names = (table.log / commit_file(number) for number in range(after, after + 4))
            if table.latest is None and not table.commits and not any(name.exists() for name in names):
                return known[table.log]
        state = super()._found(client, table, version, timestamp)
        known[table.log] = state
        return state


@mutant("LOG-08")
class ReadsToTheEndOfTheList(ModelClient):
    """Reads only up to the last commit that the owner lists."""

    def _ask(self, client: str, table: Resolved) -> None:
        super()._ask(client, table)
        if table.commits:
            table.latest = table.commits[-1].version

    def _latest(self, table: Resolved, listed: Listing) -> int:
        return listed.newest if table.latest is None else table.latest


@mutant("CM-READ-03")
class PrefersThePublishedCopy(ModelClient):
    """Reads the published file of a version that the catalog returned too."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        return super()._commit(table, listed, {} if version in listed.commits else owned, version)


@mutant_method("_ask", "CM-READ-09", "MC-READ-07", "CM-READ-05")
def falls_back_to_the_listing(self: ModelClient, client: str, table: Resolved) -> None:
    """Reads only published commits if the owner does not answer, without declaring it."""
    answer = self.owner(client, m.GetCommits(table=table.reference or ""))
    if isinstance(answer, m.Commits):
        table.latest, table.commits = answer.latest, answer.commits


@mutant_method("_latest", "LOG-27", "MC-READ-07", "CM-READ-05", bugs=("FB37",))
def skips_missing_newest_commits(self: ModelClient, table: Resolved, listed: Listing) -> int:
    """Reads the version before the newest commits if these are not in the listing."""
    return min(original(self)._latest(table, listed), max([*listed.commits, *table.owned], default=-1))


@mutant_method("_list", "CM-READ-02", "LOG-18")
def never_lists(self: ModelClient, table: Resolved) -> Listing:
    """Builds a snapshot from version 0 and the owner's commits, without listing published ones."""
    listed = original(self)._list(table)
    return Listing(commits={v: path for v, path in listed.commits.items() if v == 0})


@mutant_method("_target", "LOG-09", "PROFILE-CLIENT-01")
def always_reads_the_newest(self: ModelClient, table: Resolved, listed: Listing, version: int | None) -> int:
    """Reads the newest version whatever version is requested."""
    original(self)._target(table, listed, version)
    return original(self)._target(table, listed, None)


@mutant("LOG-11")
class ReadsTheLatestForAHigherVersion(ModelClient):
    """Reads the latest version if a higher one is requested."""

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        return super()._target(table, listed, None if version is None else min(version, self._latest(table, listed)))


@mutant_method("_list", "MC-READ-04", "MC-READ-03")
def reads_staged_files_by_path(self: ModelClient, table: Resolved) -> Listing:
    """Reads staged files as the newest commits when given a path."""
    listed = original(self)._list(table)
    if table.reference is None:
        for path in sorted((table.log / "_commits").glob("*.json")):
            listed.commits.setdefault(int(path.name[:20]), path)
    return listed


@mutant("CM-ACCESS-01")
class ReadsOldVersionsByPath(ModelClient):
    """Reads by path the versions that a catalog-managed table had before its take-over."""

    pinned: int | None = None

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


@mutant_method("_check_path_access", "CM-ACCESS-01")
def reads_catalog_tables_by_path(self: ModelClient, state: State) -> None:
    """Reads a catalog-managed table by its path, without its catalog."""


@mutant_method("_replay", "CM-READ-08", "PROFILE-CLIENT-01")
def caches_versions_by_name(self: ModelClient, table: Resolved, listed: Listing, target: int) -> State:
    """Caches versions by the table's name, and returns them for a new table of that name."""
    read = memory_of(self, dict[tuple[str | None, int], State])
    state = original(self)._replay(table, listed, target)
    return copy.deepcopy(read.setdefault((table.name, target), copy.deepcopy(state)))


@mutant_method("_replay", "CM-LOG-03", "MC-LOG-06")
def uses_catalog_metadata_for_old_versions(self: ModelClient, table: Resolved, listed: Listing, target: int) -> State:
    """Uses the catalog's metadata, which is for the latest version, for older versions too."""
    state = original(self)._replay(table, listed, target)
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


@mutant_method("_apply_action", "MC-LOG-06", "CM-LOG-03")
def ignores_removals(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Keeps removed files in its snapshots."""
    if kind != "remove":
        original(self)._apply_action(state, kind, body)


@mutant_method("_live", "LOG-49")
def keeps_expired_applications(self: ModelClient, state: State) -> dict[str, int]:
    """Ignores the retention period of the transactions of applications."""
    return state.applications


@mutant_method("_apply_action", "LOG-29")
def fails_on_unknown_actions(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Fails on an unknown kind of action."""
    if kind not in KNOWN:
        raise Refused(f"unknown action {kind}")
    original(self)._apply_action(state, kind, body)


@mutant_method("_apply", "LOG-30")
def identifies_files_by_path(self: ModelClient, state: State, version: int, actions: Actions) -> None:
    """Ignores deletion vectors in the identity of files: removing a file without its vector removes it with one too."""
    original(self)._apply(state, version, actions)
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    state.files = {key: add for key, add in state.files.items() if key[0] not in removed}


@mutant_method("_apply_action", "LOG-30")
def identifies_vectors_by_file(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Ignores the offset of a deletion vector: two vectors in one file are the same."""
    if body.get("deletionVector"):
        body = {**body, "deletionVector": {**body["deletionVector"], "offset": 0}}
    original(self)._apply_action(state, kind, body)


@mutant_method("_apply_action", "LOG-31")
def keeps_removed_domains(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Keeps a removed metadata domain."""
    original(self)._apply_action(state, kind, {**body, "removed": False} if kind == "domainMetadata" else body)


@mutant_method("_apply_action", "LOG-31")
def merges_properties(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Merges the properties of new metadata into the old ones instead of replacing them."""
    if kind == "metaData":
        body = {**body, "configuration": {**state.properties, **body["configuration"]}}
    original(self)._apply_action(state, kind, body)


@mutant_method("_decoded", "LOG-32")
def does_not_decode_paths(self: ModelClient, path: str) -> str:
    """Does not decode paths: opens a file named `with%20space.parquet`."""
    return path


@mutant_method("_partition", "LOG-33")
def reads_empty_partition_values_as_text(self: ModelClient, add: dict[str, Any]) -> str | None:
    """Reads an empty partition value as an empty string instead of null."""
    value = (add.get("partitionValues") or {}).get("part")
    return None if value is None else str(value)


@mutant_method("_partition", "LOG-33")
def reads_partition_values_as_numbers(self: ModelClient, add: dict[str, Any]) -> str | None:
    """Reads a partition value that looks like a number as a number: 007 becomes 7."""
    value = original(self)._partition(add)
    return str(int(value)) if value is not None and value.isdecimal() else value


# Readers that are wrong about the time of a version.


def _modified(listed: Listing, version: int) -> int:
    path = listed.commits.get(version)
    return 0 if path is None else path.stat().st_mtime_ns // 1_000_000


@mutant_method("_time", "ICT-16", "ICT-20", bugs=("FB20",))
def uses_modification_times(self: ModelClient, table: Resolved, listed: Listing, state: State, version: int) -> int:
    """Uses modification times of files as commit times, even with in-commit timestamps."""
    return _modified(listed, version) or original(self)._time(table, listed, state, version)


@mutant_method("_at", "ICT-19", bugs=("FB20",))
def searches_modification_times_only(self: ModelClient, table: Resolved, listed: Listing, timestamp: int) -> int:
    """Searches the modification times of all versions, even after the enablement."""
    latest = self._replay(table, listed, self._target(table, listed, None))
    if latest.enabled_since in (None, 0):
        return original(self)._at(table, listed, timestamp)
    times = {v: _modified(listed, v) or self._time(table, listed, latest, v) for v in range(latest.version + 1)}
    reached = [version for version, time in times.items() if time <= timestamp]
    return max(reached, default=0)


@mutant_method("_enabled_at", "ICT-18")
def excludes_the_enablement_time(self: ModelClient, table: Resolved, listed: Listing, latest: State) -> int:
    """Selects the version before the enablement for the exact time of the enablement."""
    enabled = original(self)._enabled_at(table, listed, latest)
    return enabled + 1 if enabled else 0


@mutant("ICT-17")
class UsesTimestampOfOldCommitInfos(ModelClient):
    """Uses the field `timestamp` of a commitInfo as the commit's time before the enablement."""

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        if state.enabled_since is not None and version >= state.enabled_since:
            return super()._time(table, listed, state, version)
        actions = self._commit(table, listed, table.owned, version)
        return next((action["commitInfo"].get("timestamp", 0) for action in actions if "commitInfo" in action), 0)


@mutant("ICT-20", bugs=("FB18",))
class TimeTravelIgnoresUnpublishedCommits(ModelClient):
    """Searches a time among published commits only."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        times = super()._times(table, listed, latest)
        return {version: time for version, time in times.items() if version in listed.commits}


@mutant("ICT-20", bugs=("FB18",))
class TimeTravelNeedsPublishedCommits(ModelClient):
    """Fails time travel while a commit is unpublished."""

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        if latest.version not in listed.commits:
            raise Refused(f"version {latest.version} is missing")
        return super()._times(table, listed, latest)


@mutant("ICT-22")
class UsesEachVersionsOwnTimestampSetting(ModelClient):
    """Uses the requested version's setting for in-commit timestamps instead of the newest one's."""

    def _decisive(self, table: Resolved, listed: Listing, state: State) -> State:
        return state


@mutant_method("_start", "LOG-18")
def skips_the_commit_after_a_checkpoint(self: ModelClient, listed: Listing, target: int) -> State:
    """Skips the first commit after the checkpoint."""
    state = original(self)._start(listed, target)
    if 0 <= state.version < target:
        state.version += 1
    return state


@mutant_method("_checkpoints", "MC-CHECKPOINT-02", "LOG-18")
def starts_from_the_oldest_checkpoint(self: ModelClient, listed: Listing, target: int) -> list[Checkpoint]:
    """Uses the first listed checkpoint instead of the newest one."""
    return original(self)._checkpoints(listed, target)[::-1]


@mutant_method("_checkpoints", "LOG-19")
def uses_incomplete_checkpoints(self: ModelClient, listed: Listing, target: int) -> list[Checkpoint]:
    """Reads the existing parts of a checkpoint without counting them."""
    counted = [replace(checkpoint, parts=len(checkpoint.files)) for checkpoint in listed.checkpoints]
    return original(self)._checkpoints(replace(listed, checkpoints=counted), target)


@mutant("LOG-21", bugs=("FB31",))
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


@mutant_method("_start", "LOG-15")
def starts_from_a_later_checkpoint(self: ModelClient, listed: Listing, target: int) -> State:
    """Uses the checkpoint that the hint names, even above the requested version."""
    state = original(self)._start(listed, max(listed.commits))
    if state.version > target:
        state.version = target
    return state


@mutant("LOG-22", "LOG-15")
class UsesACompactionBeyondTheVersion(ModelClient):
    """Applies a compaction that ends after the requested version."""

    def _compacted(self, listed: Listing, owned: dict[int, m.CommitEntry], start: int, target: int) -> int | None:
        return super()._compacted(listed, owned, start, max(listed.commits))

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        state.version = target
        return state


@mutant_method("_start", "LOG-22")
def applies_old_compactions(self: ModelClient, listed: Listing, target: int) -> State:
    """Applies every listed compaction, even one that ends before the checkpoint: removed files reappear."""
    state = original(self)._start(listed, target)
    version = state.version
    for (_, end), path in listed.compactions.items():
        if end <= version:
            self._apply(state, version, actions_in(path))
    return state


@mutant_method("_replay", "LOG-24", bugs=("FB33",))
def takes_domains_from_any_checksum(self: ModelClient, table: Resolved, listed: Listing, target: int) -> State:
    """Reads metadata domains from the newest checksum of any version."""
    state = original(self)._replay(table, listed, target)
    older = [version for version in listed.checksums if version <= target]
    if older:
        try:
            checksum = json.loads(listed.checksums[max(older)].read_text())
            state.domains = {domain["domain"]: domain for domain in checksum["domainMetadata"]}
        except (ValueError, TypeError, KeyError):
            return state
    return state


@mutant_method("_disagreements", "LOG-25", bugs=("FB33",))
def fails_on_a_corrupt_checksum(self: ModelClient, listed: Listing, state: State) -> list[str]:
    """Fails on an unreadable checksum."""
    if state.version in listed.checksums:
        try:
            json.loads(listed.checksums[state.version].read_text())["numFiles"]
        except (ValueError, TypeError, KeyError) as error:
            raise Refused("the checksum is corrupt") from error
    return original(self)._disagreements(listed, state)


@mutant_method("_disagreements", "LOG-26")
def ignores_checksums(self: ModelClient, listed: Listing, state: State) -> list[str]:
    """Does not compare its snapshot with the checksum of the version."""
    return []


@mutant("LOG-27")
class SkipsMissingCommits(ModelClient):
    """Skips a commit that does not exist."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        return super()._commit(table, listed, owned, version) if version in {*listed.commits, *owned} else []


@mutant_method("_opened", "LOG-38")
def reads_an_empty_file_as_a_commit(self: ModelClient, path: Path) -> Actions:
    """Reads a commit of zero bytes as one without actions."""
    return [] if path.stat().st_size == 0 else original(self)._opened(path)


@mutant_method("_opened", "LOG-28")
def skips_invalid_lines(self: ModelClient, path: Path) -> Actions:
    """Skips a truncated line at the end of a commit."""
    actions = []
    for line in path.read_text().splitlines():
        try:
            actions.append(json.loads(line))
        except ValueError:
            continue
    return actions


@mutant_method("_start", "FIELD-03", bugs=("FB39",))
def fails_on_a_corrupt_checkpoint(self: ModelClient, listed: Listing, target: int) -> State:
    """Fails on an unreadable checkpoint, although all commits exist."""
    for checkpoint in self._checkpoints(listed, target):
        checkpoint_actions(checkpoint)
        break
    return original(self)._start(listed, target)


@mutant_method("_list", "LOG-20")
def mixes_checkpoints_of_a_version(self: ModelClient, table: Resolved) -> Listing:
    """Combines parts of different checkpoints of a version."""
    listed = original(self)._list(table)
    mixed: dict[int, dict[str, Path]] = {}
    for candidate in listed.checkpoints:
        if candidate.parts > 1:
            mixed.setdefault(candidate.version, {}).update({path.name.split(".")[2]: path for path in candidate.files})
    listed.checkpoints = [checkpoint for checkpoint in listed.checkpoints if checkpoint.parts == 1]
    listed.checkpoints += [
        Checkpoint(version=version, files=tuple(parts.values()), parts=len(parts), rank=0)
        for version, parts in mixed.items()
    ]
    return listed


@mutant_method("_commit", "LOG-27", "MC-FILES-05", "CM-FILES-04", "LOG-17")
def fills_a_gap_from_the_staging_folder(
    self: ModelClient, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int
) -> Actions:
    """Reads the only staged file of a version that is missing, although no owner lists it."""
    staged = list((table.log / STAGING.get(table.feature or "", "")).glob(f"{version:020}.*-*.json"))
    if version in owned or version in listed.commits or len(staged) != 1:
        return original(self)._commit(table, listed, owned, version)
    return self._opened(staged[0])
