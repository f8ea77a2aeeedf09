"""Maintenance jobs that delete needed files or write wrong ones, and owners with a wrong policy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING
from conformance.models.client import ModelClient
from conformance.models.log_files import HINT, Checkpoint, Listing, actions_in
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.reader import Actions, Refused, Resolved, State, file_of
from conformance.models.writer import ROW_IDS
from conformance.mutants import memory, mutant
from conformance.mutants.good_clients import CheckpointsTheLatestVersion

# Other folders


@mutant("PROFILE-CLIENT-03", side="client")
class LeavesFilesBesideTheTables(ModelClient):
    """Makes a lock file beside the folder of a table, and leaves it there."""

    def _resolve(self, client: str, name: str) -> Resolved:
        table = super()._resolve(client, name)
        folder = table.log.parent
        folder.with_name(f"{folder.name}.lock").touch()
        return table


@mutant("PROFILE-CLIENT-03", side="client")
class WritesToOtherTables(ModelClient):
    """Writes a file to the folders of the tables next to the requested one."""

    def _resolve(self, client: str, name: str) -> Resolved:
        table = super()._resolve(client, name)
        for other in table.log.parent.parent.iterdir():
            if other != table.log.parent:
                (other / "seen").touch()
        return table


# Checkpoints, compactions, checksums


@mutant("MC-CHECKPOINT-03", "CM-MAINT-01", "MC-COMPACTION-01", "CM-MAINT-02", bugs=("FB16",), side="client")
class CheckpointsUnpublishedCommits(ModelClient):
    """Writes a checkpoint of commits that are not backfilled: a cleanup leaves a gap."""

    def _published(self, client: str, table: Resolved, version: int) -> Listing:
        return self._gather(client, table)


@mutant("MC-CHECKPOINT-03", "CM-MAINT-01", bugs=("FB17",), side="client")
class WritesTheCheckpointFirst(ModelClient):
    """Writes a checkpoint before its version is published."""

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        (table.log / f"{version:020}.checkpoint.parquet").write_bytes(b"")
        super()._checkpoint(client, table, version)


@mutant("FIELD-05", bugs=("FB45",), side="client")
class PublisherTakesAnyFile(ModelClient):
    """Publishes, and treats any file with a version's name as the published commit."""

    def _check_published(self, published: Path, content: bytes) -> None:
        pass


@mutant("CM-PUBLISH-07", side="client")
class PublisherGuessesTheStagedFile(ModelClient):
    """Publishes the first staged file of each version, not the one that the catalog lists."""

    def _ratified(self, table: Resolved, commit: m.CommitEntry) -> bytes:
        staged = sorted((table.log / STAGING[table.feature or ""]).glob(f"{commit.version:020}.*"))
        return staged[0].read_bytes() if staged else super()._ratified(table, commit)


@mutant("CM-PUBLISH-07", side="client")
class PublisherCopiesNothing(ModelClient):
    """Publishes an empty file if the staged file of a commit is missing."""

    def _ratified(self, table: Resolved, commit: m.CommitEntry) -> bytes:
        try:
            return super()._ratified(table, commit)
        except Refused:
            return b""


@mutant("CM-PUBLISH-08", side="client")
class PublishesItsOwnCommitAtOnce(ModelClient):
    """Publishes each commit of its own when it is ratified, before the commits below it."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, request)
        if isinstance(answer, m.Committed) and answer.version is not None and "/" not in request.table:
            table = self._resolve(client, request.table)
            self._ask(client, table)
            if table.feature == "catalogManaged" and answer.version in table.owned:
                self._publish_one(table, table.owned[answer.version])
        return answer


@mutant("MC-COMPACTION-01", "CM-MAINT-02", side="client")
class CompactsUnpublishedCommits(ModelClient):
    """Writes a compaction up to a commit that is not backfilled."""

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        name = f"{request.start:020}.{request.end:020}.compacted.json"
        self._write(table.log / name, b'{"commitInfo":{}}\n')


class _EditsCompactions(ModelClient):
    """Writes a compaction with other actions: `_edited` gets those of the commits and those of the compaction."""

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        super()._compact(client, table, request)
        listed, path = self._list(table), table.log / f"{request.start:020}.{request.end:020}.compacted.json"
        commits = [
            action for each in range(request.start, request.end + 1) for action in actions_in(listed.commits[each])
        ]
        actions = self._edited(commits, actions_in(path))
        self._write(path, "".join(f"{json.dumps(action)}\n" for action in actions).encode())

    def _edited(self, commits: Actions, compacted: Actions) -> Actions:
        raise NotImplementedError


@mutant("LOG-30", "LOG-35", side="client")
class CompactsFilesByPath(_EditsCompactions):
    """Keeps the last action of each path in a compaction: removing a file with one deletion vector replaces adding it
    with another."""

    def _edited(self, commits: Actions, compacted: Actions) -> Actions:
        last = {body.get("path", kind): action for action in commits for kind, body in action.items()}
        return list(last.values())


@mutant("LOG-35", side="client")
class CompactsPairsAway(_EditsCompactions):
    """Omits the removal of a file from a compaction that also adds it, so that a file from before it reappears."""

    def _edited(self, commits: Actions, compacted: Actions) -> Actions:
        added = {action["add"]["path"] for action in commits if "add" in action}
        return [each for each in compacted if "remove" not in each or each["remove"]["path"] not in added]


@mutant("LOG-35", side="client")
class CompactsRemovedDomainsAway(_EditsCompactions):
    """Omits removals of metadata domains from a compaction, so that a removed domain reappears."""

    def _edited(self, commits: Actions, compacted: Actions) -> Actions:
        return [each for each in compacted if not each.get("domainMetadata", {}).get("removed")]


@mutant("LOG-35", side="client")
class CompactionsLoseRowIds(_EditsCompactions):
    """Writes a compaction without the row ids of the files, as through a type that lacks them."""

    def _edited(self, commits: Actions, compacted: Actions) -> Actions:
        return [{kind: _without_row_ids(body) for kind, body in action.items()} for action in compacted]


def _without_row_ids(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ROW_IDS}


class _EditsCheckpoints(ModelClient):
    """Writes a checkpoint with other actions: `_edited` gets the body of each `add`."""

    def _held(self, state: State) -> list[dict[str, Any]]:
        held = super()._held(state)
        return [{"add": self._edited(action["add"])} if "add" in action else action for action in held]

    def _edited(self, add: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


@mutant("LOG-34", "LOG-30", side="client")
class CheckpointsLoseDeletionVectors(_EditsCheckpoints):
    """Writes a checkpoint without the deletion vectors of the files."""

    def _edited(self, add: dict[str, Any]) -> dict[str, Any]:
        return {field: value for field, value in add.items() if field != "deletionVector"}


@mutant("LOG-34", side="client")
class CheckpointsLosePartitionValues(_EditsCheckpoints):
    """Writes a checkpoint without the partition values of the files."""

    def _edited(self, add: dict[str, Any]) -> dict[str, Any]:
        return {**add, "partitionValues": {}}


@mutant("LOG-34", side="client")
class CheckpointsLoseRowIds(_EditsCheckpoints):
    """Writes a checkpoint without the row ids of the files: its readers do not know them."""

    def _edited(self, add: dict[str, Any]) -> dict[str, Any]:
        return {**add, "baseRowId": None}


@mutant("LOG-34", side="client")
class CheckpointsDecodePaths(_EditsCheckpoints):
    """Writes a checkpoint with the decoded paths of the files, so that readers decode them twice."""

    def _edited(self, add: dict[str, Any]) -> dict[str, Any]:
        return {**add, "path": unquote(add["path"])}


@mutant("LOG-44", side="client")
class ChecksumsCountRemovedFiles(ModelClient):
    """Writes a checksum whose number of files includes removed ones."""

    def _summary(self, state: State) -> dict[str, Any]:
        return {**super()._summary(state), "numFiles": len(state.files) + len(state.removed)}


@mutant("LOG-44", side="client")
class ChecksumsHaveNoDomains(ModelClient):
    """Writes a checksum with an empty list of metadata domains: readers that trust it lose the domains."""

    def _summary(self, state: State) -> dict[str, Any]:
        return {**super()._summary(state), "domainMetadata": []}


@mutant("LOG-45", side="client")
class OverwritesChecksums(ModelClient):
    """Replaces another client's checksum of the same version."""

    def _checksum(self, client: str, table: Resolved, version: int) -> None:
        (table.log / f"{version:020}.crc").unlink(missing_ok=True)
        super()._checksum(client, table, version)


@mutant("LOG-02", side="client")
class FileNamesAreNotPadded(ModelClient):
    """Names its files with versions that are not padded."""

    def _write(self, path: Path, content: bytes) -> None:
        super()._write(path.with_name(".".join(part.lstrip("0") for part in path.name.split("."))), content)


@mutant("FIELD-01", bugs=("FB31",), side="client")
class SetsTheHintBack(ModelClient):
    """Makes `_last_checkpoint` name a checkpoint of an older version."""

    def _hint(self, table: Resolved, version: int) -> None:
        self._write(table.log / HINT, json.dumps({"version": version, "size": 1}).encode())


@mutant("FIELD-02", bugs=("FB32",), side="client")
class RemovesOtherCheckpoints(ModelClient):
    """Deletes another client's checkpoint files of the same version before it writes its own."""

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        self._delete(table.log.glob(f"{version:020}.checkpoint.*"))
        super()._checkpoint(client, table, version)


@mutant("MC-CHECKPOINT-03", "CM-MAINT-01", bugs=("FB16",), side="client")
class CheckpointsTheLatestUnpublishedVersion(CheckpointsTheLatestVersion):
    """If it may choose, writes a checkpoint of the newest version, published or not."""

    _chose = False

    def _newest(self, client: str, table: Resolved) -> int:
        self._chose = True
        return super()._newest(client, table)

    def _published(self, client: str, table: Resolved, version: int) -> Listing:
        return self._gather(client, table) if self._chose else super()._published(client, table, version)


@mutant("CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", bugs=("FB06",), side="client")
class CleansUpWithItsCheckpoint(ModelClient):
    """Deletes the commits before each of its checkpoints, without the owner's permission."""

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        super()._checkpoint(client, table, version)
        self._delete(path for each, path in self._list(table).commits.items() if each < version)


# Permission


@mutant("CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", "CM-MAINT-05", bugs=("FB06",), side="client")
class IgnoresThePolicy(ModelClient):
    """Runs VACUUM, OPTIMIZE, REORG and metadata cleanup without the owner's permission."""

    def _ask_for(self, client: str, table: Resolved, job: str) -> None:
        pass


@mutant("CM-MAINT-05", side="client")
class CachesThePolicy(ModelClient):
    """Requests the policy of the owner once, for all tables."""

    asked = False

    def _ask_for(self, client: str, table: Resolved, job: str) -> None:
        if not self.asked:
            self.asked = True
            super()._ask_for(client, table, job)


@mutant("LOG-37", bugs=("FB36",), side="client")
class VacuumsByThePublishedLog(ModelClient):
    """Deletes with VACUUM the data files that only unpublished versions have."""

    def _vacuum(self, table: Resolved, listed: Listing, version: int) -> None:
        super()._vacuum(table, listed, max(listed.commits))


@mutant("LOG-37", side="client")
class VacuumComparesEncodedPaths(ModelClient):
    """Compares file names with the encoded paths in the log: VACUUM deletes files in use whose names have spaces."""

    def _located(self, path: str) -> str:
        return path.removeprefix("file://")


@mutant("LOG-37", side="client")
class VacuumOverlooksDeletionVectors(ModelClient):
    """Deletes with VACUUM the files of deletion vectors: no action has their names as its path."""

    def _paths(self, body: dict[str, Any]) -> list[str]:
        return super()._paths(body)[:1]


@mutant("LOG-37", side="client")
class VacuumSkipsFilesElsewhere(ModelClient):
    """Passes over a data file in another store, together with its deletion vector, which VACUUM deletes then."""

    def _paths(self, body: dict[str, Any]) -> list[str]:
        return [] if body["path"].startswith("s3://") else super()._paths(body)


@mutant("LOG-37", side="client")
class VacuumJoinsAbsolutePaths(ModelClient):
    """Takes each path for one relative to the table: VACUUM deletes files in use that the log names by their URL."""

    def _located(self, path: str) -> str:
        return unquote(path).removeprefix("file:///")


@mutant("LOG-40", side="client")
class VacuumKeepsNoRemovedFiles(ModelClient):
    """Deletes with VACUUM files that were removed a moment ago, while others read the version before."""

    def _is_recent(self, remove: dict[str, Any], since: float) -> bool:
        return False


@mutant("LOG-40", bugs=("FB36",), side="client")
class VacuumKeepsNoYoungFiles(ModelClient):
    """Deletes with VACUUM the files that a transaction has written and not committed yet."""

    def _is_young(self, path: Path, since: float) -> bool:
        return False


# Cleanup


@mutant("MC-CLEANUP-03", "CM-CLEANUP-03", "LOG-36", bugs=("FB29",), side="client")
class CleansUpWithoutACheckpoint(ModelClient):
    """Deletes up to the cut-off commit without a cut-off checkpoint: kept versions cannot be read."""

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        found = super()._cut_off(table, listed, older_than)
        return self._cut_off_commit(table, listed, older_than) if found is None else found


@mutant("MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", "LOG-36", side="client")
class CutsOffAtTheNewestCheckpoint(ModelClient):
    """Uses the newest checkpoint as the cut-off, even above the cleanup version."""

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        return max((checkpoint.version for checkpoint in listed.checkpoints if checkpoint.complete), default=None)


@mutant(
    "MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36",
    "LOG-39", side="client",
)  # fmt: skip
class CountsIncompleteCheckpoints(ModelClient):
    """Uses a checkpoint with a missing part as the cut-off checkpoint."""

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        commit = self._cut_off_commit(table, listed, older_than)
        return max(
            (checkpoint.version for checkpoint in listed.checkpoints if checkpoint.version <= commit), default=None
        )


@mutant("LOG-36", bugs=("FB29",), side="client")
class CutsOffAtACorruptCheckpoint(ModelClient):
    """Uses a checkpoint as the cut-off checkpoint without reading it."""

    def _is_whole(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.complete


@mutant("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-01", "CM-CLEANUP-01", "LOG-36", bugs=("FB30",), side="client")
class DeletesTheCutOffCheckpoint(ModelClient):
    """Deletes the cut-off checkpoint together with the older ones."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        cut_off = self._cut_off(table, listed, older_than)
        self._delete(
            path for checkpoint in listed.checkpoints if checkpoint.version == cut_off for path in checkpoint.files
        )


@mutant("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36", side="client")
class DeletesEverySidecar(ModelClient):
    """Deletes sidecars by age, even those of kept checkpoints."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        self._delete((table.log / "_sidecars").glob("*"))


@mutant("MC-CLEANUP-04", "CM-CLEANUP-04", "MC-CLEANUP-02", "CM-CLEANUP-02", "LOG-36", side="client")
class DeletesUpToTheCutOffCommit(ModelClient):
    """Deletes commits after the cut-off checkpoint, up to the cut-off commit."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        commit = self._cut_off_commit(table, listed, older_than)
        if self._cut_off(table, listed, older_than) is not None:
            self._delete(path for version, path in listed.commits.items() if version < commit)


@mutant("MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36", side="client")
class KeepsTheNewestCheckpointOnly(ModelClient):
    """Deletes all checkpoints after the cut-off except the newest one."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        cut_off = self._cut_off(table, listed, older_than)
        newest = max((checkpoint.version for checkpoint in listed.checkpoints), default=-1)
        if cut_off is not None:
            between = [checkpoint for checkpoint in listed.checkpoints if cut_off < checkpoint.version < newest]
            self._delete(path for each in between for path in each.files)


@mutant("MC-CLEANUP-09", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36", side="client")
class DeletesTheNewestCommit(ModelClient):
    """Deletes the newest backfilled commit if a checkpoint covers it."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        if self._cut_off(table, listed, older_than) == max(listed.commits):
            self._delete([listed.commits[max(listed.commits)]])


class _Leaves(ModelClient):
    """Keeps some of the files that it should delete."""

    def _spares(self, path: Path) -> bool:
        return False

    def _delete(self, paths: Iterable[Path]) -> None:
        super()._delete(path for path in paths if not self._spares(path))


@mutant("MC-CLEANUP-05", "CM-CLEANUP-05", side="client")
class LeavesOldCheckpoints(_Leaves):
    """Keeps checkpoints from before the cut-off checkpoint."""

    def _spares(self, path: Path) -> bool:
        return ".checkpoint." in path.name


@mutant("MC-CLEANUP-06", "CM-CLEANUP-06", side="client")
class LeavesOldCompactions(_Leaves):
    """Keeps compactions of deleted commits."""

    def _spares(self, path: Path) -> bool:
        return path.name.endswith(".compacted.json")


@mutant("CM-CLEANUP-05", side="client")
class LeavesOldChecksums(_Leaves):
    """Keeps checksums of deleted commits."""

    def _spares(self, path: Path) -> bool:
        return path.suffix == ".crc"


@mutant("MC-CLEANUP-07", "CM-CLEANUP-07", side="client")
class LeavesOldStagedFiles(_Leaves):
    """Keeps staged files of deleted versions."""

    def _spares(self, path: Path) -> bool:
        return path.parent.name in STAGING.values()


@mutant("MC-CLEANUP-08", "CM-CLEANUP-08", bugs=("FB36",), side="client")
class DeletesStagedFilesInFlight(ModelClient):
    """Deletes every staged file without a commit, even one about to be proposed."""

    def _staged(self, table: Resolved, cut_off: int) -> list[Path]:
        return super()._staged(table, 2**60)


@mutant("RULING-CLEANUP-01", side="client")
class DeletesListedStagedFiles(ModelClient):
    """Deletes staged files of published commits that the owner still lists."""

    def _staged(self, table: Resolved, cut_off: int) -> list[Path]:
        table.commits = ()
        return super()._staged(table, cut_off)


@mutant("LOG-34", side="client")
class CheckpointsHoldFilesOnly(ModelClient):
    """Leaves transactions and metadata domains out of its checkpoints: batches are written again."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind not in ("txn", "domainMetadata"):
            super()._apply_action(state, kind, body)


@mutant("LOG-34", side="client")
class CheckpointsKeepRemovedFiles(ModelClient):
    """Keeps removed files in its checkpoints: they reappear."""

    _keeps_removed = False

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        self._keeps_removed = True
        super()._checkpoint(client, table, version)
        self._keeps_removed = False

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "remove" or not self._keeps_removed:
            super()._apply_action(state, kind, body)


@mutant("LOG-34", side="client")
class CheckpointsRepeatFiles(ModelClient):
    """Writes each `add` of a file into its checkpoints, although a later one replaced it."""

    _replaced: list[dict[str, Any]] = memory(list)

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind == "add" and file_of(body) in state.files:
            self._replaced.append(state.files[file_of(body)])
        super()._apply_action(state, kind, body)

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        self._replaced.clear()
        super()._checkpoint(client, table, version)

    def _held(self, state: State) -> Actions:
        repeated = [{"add": body} for body in self._replaced if file_of(body) in state.files]
        return [*super()._held(state), *repeated]


@mutant("LOG-41", side="client")
class CheckpointsForgetRemovals(ModelClient):
    """Leaves removals out of its checkpoints: VACUUM knows of no file that was removed a moment ago."""

    def _held(self, state: State) -> Actions:
        return [each for each in super()._held(state) if "remove" not in each]


@mutant("LOG-35", side="client")
class CompactionsForgetRemovals(ModelClient):
    """Leaves removals out of a compaction: removed files reappear."""

    def _write(self, path: Path, content: bytes) -> None:
        if path.name.endswith(".compacted.json"):
            content = b"".join(line for line in content.splitlines(keepends=True) if not line.startswith(b'{"remove"'))
        super()._write(path, content)


@mutant("CM-CLEANUP-04", side="client")
class DeletesTheChecksumOfTheCutOff(ModelClient):
    """Deletes the checksum of the cut-off checkpoint's version too."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        cut_off = self._cut_off(table, listed, older_than)
        if cut_off is not None and table.feature == "catalogManaged":
            self._delete(path for version, path in listed.checksums.items() if version <= cut_off)


# Owners that allow the wrong maintenance.


@mutant("MC-CHECKPOINT-03", "CM-MAINT-01")
class OwnerCheckpointsUnpublishedCommits(ModelOwner):
    """Writes a checkpoint of every version that it ratifies, published or not."""

    def _record(self, table: OwnedTable, version: int, attempt: str) -> None:
        super()._record(table, version, attempt)
        name = f"{table.location}/{LOG}/{version:020}.checkpoint.parquet"
        self.storage.put(name, "", 0)


@mutant("PROFILE-POLICY-01")
class PolicyForUnknownTables(ModelOwner):
    """Returns a maintenance policy for tables that do not exist."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        return m.Policy(allowed=("checkpoint", "log-compaction", "checksum", "vacuum", "optimize", "reorg"))


@mutant("PROFILE-POLICY-01", "PROFILE-DURABLE-03")
class RestartResetsPolicy(ModelOwner):
    """Keeps its maintenance policy in memory: after a restart it allows only the minimum."""

    strict: set[str] = memory(set)

    def _restarted(self, table: OwnedTable) -> None:
        super()._restarted(table)
        self.strict.add(table.reference)

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        if isinstance(answer, m.Policy) and request.table in self.strict:
            return m.Policy(allowed=("checkpoint", "log-compaction", "checksum"))
        return answer
