"""Maintenance jobs that take what somebody needs, or write what nobody may rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.log_files import HINT, Listing
from conformance.models.owner import STAGING, ModelOwner
from conformance.models.reader import Resolved, State
from conformance.mutants.registry import mutant

# Checkpoints, compactions, checksums


@mutant("MC-CHECKPOINT-03", "CM-MAINT-01", "MC-COMPACTION-01", "CM-MAINT-02", bugs=("FB16",), side="client")
class CheckpointsWhatIsNotPublished(ModelClient):
    """A checkpoint of ratified commits that are not backfilled: cleanup after it leaves a gap."""

    def _published(self, client: str, table: Resolved, version: int) -> Listing:
        return self._gather(client, table)


@mutant("MC-CHECKPOINT-03", "CM-MAINT-01", bugs=("FB17",), side="client")
class WritesTheCheckpointFirst(ModelClient):
    """The checkpoint is written, and then its version is published."""

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        (table.log / f"{version:020}.checkpoint.parquet").write_bytes(b"")
        super()._checkpoint(client, table, version)


@mutant("MC-COMPACTION-01", "CM-MAINT-02", side="client")
class CompactsWhatIsNotPublished(ModelClient):
    """A compaction up to a commit that is not backfilled."""

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        name = f"{request.start:020}.{request.end:020}.compacted.json"
        self._write(table.log / name, b'{"commitInfo":{}}\n')


@mutant("LOG-02", side="client")
class NamesFilesWithoutZeros(ModelClient):
    """The versions in the names of its files are not padded."""

    def _write(self, path: Path, content: bytes) -> None:
        super()._write(path.with_name(".".join(part.lstrip("0") for part in path.name.split("."))), content)


@mutant("FIELD-01", bugs=("FB31",), side="client")
class SetsTheHintBack(ModelClient):
    """A checkpoint of an older version makes `_last_checkpoint` name it."""

    def _hint(self, table: Resolved, version: int) -> None:
        self._write(table.log / HINT, json.dumps({"version": version, "size": 1}).encode())


@mutant("FIELD-02", bugs=("FB32",), side="client")
class RemovesOtherCheckpoints(ModelClient):
    """Before it writes a checkpoint it removes what it takes for the remains of another one of that version."""

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        self._delete(table.log.glob(f"{version:020}.checkpoint.*"))
        super()._checkpoint(client, table, version)


# Permission


@mutant("CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", "CM-MAINT-05", bugs=("FB06",), side="client")
class MaintainsUninvited(ModelClient):
    """VACUUM, OPTIMIZE, REORG and metadata cleanup run, whatever the owner allows."""

    def _ask_for(self, client: str, table: Resolved, job: str) -> None:
        pass


@mutant("CM-MAINT-05", side="client")
class RemembersThePolicy(ModelClient):
    """The owner is asked for its policy once, and for no other table or time after that."""

    def _ask_for(self, client: str, table: Resolved, job: str) -> None:
        known = self.__dict__.setdefault("_known", set())
        if "optimize" not in known:
            try:
                super()._ask_for(client, table, job)
            finally:
                known.add("optimize")


# Cleanup


@mutant("MC-CLEANUP-03", "CM-CLEANUP-03", bugs=("FB29",), side="client")
class CleansUpWithoutACheckpoint(ModelClient):
    """Where there is no cut-off checkpoint it deletes up to the cut-off commit: kept versions cannot be rebuilt."""

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        found = super()._cut_off(table, listed, older_than)
        return self._cut_off_commit(table, listed, older_than) if found is None else found


@mutant("MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", side="client")
class CutsOffAtTheNewestCheckpoint(ModelClient):
    """It cuts off at the newest checkpoint, although that is newer than what is to be cleaned up."""

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        return max((each.version for each in listed.checkpoints if each.complete), default=None)


@mutant(
    "MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", side="client"
)
class CountsIncompleteCheckpoints(ModelClient):
    """A checkpoint of which a part is missing is its cut-off checkpoint."""

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        commit = self._cut_off_commit(table, listed, older_than)
        return max((each.version for each in listed.checkpoints if each.version <= commit), default=None)


@mutant("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-01", "CM-CLEANUP-01", bugs=("FB30",), side="client")
class DeletesTheCutOffCheckpoint(ModelClient):
    """It deletes the cut-off checkpoint together with the older ones."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        cut_off = self._cut_off(table, listed, older_than)
        self._delete(path for each in listed.checkpoints if each.version == cut_off for path in each.files)


@mutant("MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", side="client")
class DeletesEverySidecar(ModelClient):
    """Cleanup deletes the sidecars of old checkpoints by their age, without a look at which checkpoints name them."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        self._delete((table.log / "_sidecars").glob("*"))


@mutant("MC-CLEANUP-04", "CM-CLEANUP-04", "MC-CLEANUP-02", "CM-CLEANUP-02", side="client")
class DeletesUpToTheCutOffCommit(ModelClient):
    """It deletes commits after the cut-off checkpoint too, up to the cut-off commit."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        commit = self._cut_off_commit(table, listed, older_than)
        if self._cut_off(table, listed, older_than) is not None:
            self._delete(path for version, path in listed.commits.items() if version < commit)


@mutant("MC-CLEANUP-04", "CM-CLEANUP-04", side="client")
class KeepsTheNewestCheckpointOnly(ModelClient):
    """Of the checkpoints after the cut-off checkpoint it deletes all but the newest: time travel between them has to
    replay everything since the cut-off."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        cut_off = self._cut_off(table, listed, older_than)
        newest = max((each.version for each in listed.checkpoints), default=-1)
        if cut_off is not None:
            between = [each for each in listed.checkpoints if cut_off < each.version < newest]
            self._delete(path for each in between for path in each.files)


@mutant("MC-CLEANUP-09", "MC-CLEANUP-04", "CM-CLEANUP-04", side="client")
class DeletesTheNewestCommit(ModelClient):
    """It deletes the newest backfilled commit where a checkpoint covers it."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        if self._cut_off(table, listed, older_than) == max(listed.commits):
            self._delete([listed.commits[max(listed.commits)]])


class _Leaves(ModelClient):
    """Spares files that it should delete, while it deletes others."""

    def _spares(self, path: Path) -> bool:
        return False

    def _delete(self, paths: Iterable[Path]) -> None:
        super()._delete(path for path in paths if not self._spares(path))


@mutant("MC-CLEANUP-05", "CM-CLEANUP-05", side="client")
class LeavesOldCheckpoints(_Leaves):
    """Checkpoints from before the cut-off checkpoint stay."""

    def _spares(self, path: Path) -> bool:
        return ".checkpoint." in path.name


@mutant("MC-CLEANUP-06", "CM-CLEANUP-06", side="client")
class LeavesOldCompactions(_Leaves):
    """Compactions of deleted commits stay."""

    def _spares(self, path: Path) -> bool:
        return path.name.endswith(".compacted.json")


@mutant("CM-CLEANUP-05", side="client")
class LeavesOldChecksums(_Leaves):
    """Checksums of deleted commits stay."""

    def _spares(self, path: Path) -> bool:
        return path.suffix == ".crc"


@mutant("MC-CLEANUP-07", "CM-CLEANUP-07", side="client")
class LeavesOldStagedFiles(_Leaves):
    """Staged files of versions that were cleaned up stay."""

    def _spares(self, path: Path) -> bool:
        return path.parent.name in STAGING.values()


@mutant("MC-CLEANUP-08", "CM-CLEANUP-08", bugs=("FB36",), side="client")
class DeletesWhatIsInFlight(ModelClient):
    """Staged files that belong to no commit are deleted, whatever their version: a writer is about to propose one."""

    def _staged(self, table: Resolved, cut_off: int) -> list[Path]:
        return super()._staged(table, 2**60)


@mutant("RULING-CLEANUP-01", side="client")
class DeletesWhatTheOwnerLists(ModelClient):
    """Staged files of published commits are deleted while the owner still points to them."""

    def _staged(self, table: Resolved, cut_off: int) -> list[Path]:
        table.commits = ()
        return super()._staged(table, cut_off)


@mutant("LOG-34", side="client")
class CheckpointsHoldFilesOnly(ModelClient):
    """A checkpoint of it forgets applications and domains: batches are written again after it."""

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind not in ("txn", "domainMetadata"):
            super()._apply_action(state, kind, body)


@mutant("LOG-34", side="client")
class CheckpointsKeepWhatWasRemoved(ModelClient):
    """A checkpoint of it holds files that were removed: they come back."""

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        self._keeps_removed = True
        super()._checkpoint(client, table, version)
        self._keeps_removed = False

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        if kind != "remove" or not self.__dict__.get("_keeps_removed"):
            super()._apply_action(state, kind, body)


@mutant("LOG-35", side="client")
class CompactionsForgetRemovals(ModelClient):
    """It leaves removals out of a compaction: files that were removed come back."""

    def _write(self, path: Path, content: bytes) -> None:
        if path.name.endswith(".compacted.json"):
            content = b"".join(line for line in content.splitlines(keepends=True) if not line.startswith(b'{"remove"'))
        super()._write(path, content)


@mutant("CM-CLEANUP-04", side="client")
class DeletesTheChecksumOfTheCutOff(ModelClient):
    """Of the checksums it deletes one more than the last from before the cut-off checkpoint."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        super()._cleanup(client, table, older_than)
        listed = self._list(table)
        cut_off = self._cut_off(table, listed, older_than)
        if cut_off is not None and table.feature == "catalogManaged":
            self._delete(path for version, path in listed.checksums.items() if version <= cut_off)


# Owners that are wrong about what maintenance may run.


@mutant("PROFILE-POLICY-01")
class ForbidsCheckpoints(ModelOwner):
    """It forbids all maintenance but the cleanup, checkpoints included."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        return m.Policy(allowed=("metadata-cleanup",)) if isinstance(answer, m.Policy) else answer


@mutant("PROFILE-POLICY-01")
class ForbidsCompactionsWhileCommitsWait(ModelOwner):
    """It forbids log compactions of a table that has unbackfilled commits, of the published versions too."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        table = self.tables.get(request.table)
        if isinstance(answer, m.Policy) and table is not None and table.unbackfilled:
            return m.Policy(allowed=("checkpoint", "checksum"))
        return answer


@mutant("PROFILE-POLICY-01")
class ForbidsChecksums(ModelOwner):
    """It does not know of checksums."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        return m.Policy(allowed=("checkpoint", "log-compaction")) if isinstance(answer, m.Policy) else answer


@mutant("PROFILE-POLICY-01")
class AllowsEverythingWhereThereIsNothing(ModelOwner):
    """It tells a policy for tables that it never heard of."""

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        return m.Policy(allowed=("checkpoint", "log-compaction", "checksum", "vacuum", "optimize", "reorg"))


@mutant("PROFILE-POLICY-01", "PROFILE-DURABLE-03")
class ARestartForbidsTheCleanup(ModelOwner):
    """It keeps its policy in memory: after a restart it allows the least."""

    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        self.strict = set(self.tables)
        return answer

    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        answer = super().maintenance_policy(client, request)
        if isinstance(answer, m.Policy) and request.table in getattr(self, "strict", ()):
            return m.Policy(allowed=("checkpoint", "log-compaction", "checksum"))
        return answer
