"""Maintenance jobs that delete needed files or write wrong ones, and owners with a wrong policy."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, checkpoint_file, checksum_file, compacted_file
from conformance.models.client import ModelClient
from conformance.models.log_files import HINT, SIDECARS, Checkpoint, Listing, actions_in, rows_of
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.models.reader import Actions, Refused, Resolved, State, file_of
from conformance.models.writer import ROW_IDS
from conformance.mutants import memory, mutant, mutant_functions, mutant_method, original
from conformance.mutants.good_clients import CheckpointsTheLatestVersion

# Other folders


@mutant_method("_resolve", "PROFILE-CLIENT-03")
def writes_to_other_tables(self: ModelClient, client: str, name: str) -> Resolved:
    """Writes a file to the folders of the tables next to the requested one."""
    table = original(self)._resolve(client, name)
    for other in table.log.parent.parent.iterdir():
        if other != table.log.parent:
            (other / "seen").touch()
    return table


# Checkpoints, compactions, checksums


@mutant_method("_published", "MC-CHECKPOINT-03", "CM-MAINT-01", "MC-COMPACTION-01", "CM-MAINT-02", bugs=("FB16",))
def checkpoints_unpublished_commits(self: ModelClient, client: str, table: Resolved, version: int) -> Listing:
    """Writes a checkpoint of commits that are not backfilled: a cleanup leaves a gap."""
    return self._gather(client, table)


@mutant_method("_checkpoint", "MC-CHECKPOINT-03", "CM-MAINT-01", bugs=("FB17",))
def writes_the_checkpoint_first(self: ModelClient, client: str, table: Resolved, version: int) -> None:
    """Writes a checkpoint before its version is published."""
    (table.log / checkpoint_file(version)).write_bytes(b"")
    original(self)._checkpoint(client, table, version)


@mutant_method("_apply_action", "LOG-41", "LOG-34")
def keeps_the_removal_of_a_restored_file(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Adds a file again that was removed, and keeps its removal: its checkpoints have both."""
    removal = state.removed.get(file_of(body)) if kind == "add" else None
    original(self)._apply_action(state, kind, body)
    if removal is not None:
        state.removed[file_of(body)] = removal


@mutant_method("_check_published", "FIELD-05", bugs=("FB45",))
def publisher_takes_any_file(self: ModelClient, published: Path, content: bytes) -> None:
    """Publishes, and treats any file with a version's name as the published commit."""


@mutant_method("_ratified", "CM-PUBLISH-07")
def publisher_guesses_the_staged_file(self: ModelClient, table: Resolved, commit: m.CommitEntry) -> bytes:
    """Publishes the first staged file of each version, not the one that the catalog lists."""
    staged = sorted((table.log / STAGING[table.feature or ""]).glob(f"{commit.version:020}.*"))
    return staged[0].read_bytes() if staged else original(self)._ratified(table, commit)


@mutant_method("_ratified", "CM-PUBLISH-07")
def publisher_copies_nothing(self: ModelClient, table: Resolved, commit: m.CommitEntry) -> bytes:
    """Publishes an empty file if the staged file of a commit is missing."""
    try:
        return original(self)._ratified(table, commit)
    except Refused:
        return b""


@mutant_method("transact", "CM-PUBLISH-08")
def publishes_its_own_commit_at_once(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Publishes each commit of its own when it is ratified, before the commits below it."""
    answer = original(self).transact(client, request)
    if isinstance(answer, m.Committed) and answer.version is not None and "/" not in request.table:
        table = self._resolve(client, request.table)
        self._ask(client, table)
        if table.feature == "catalogManaged" and answer.version in table.owned:
            self._publish_one(table, table.owned[answer.version])
    return answer


@mutant_method("_compact", "MC-COMPACTION-01", "CM-MAINT-02")
def compacts_unpublished_commits(self: ModelClient, client: str, table: Resolved, request: m.Compact) -> None:
    """Writes a compaction up to a commit that is not backfilled."""
    name = compacted_file(request.start, request.end)
    self._write(table.log / name, b'{"commitInfo":{}}\n')


class _EditsCompactions(ModelClient):
    """Writes a compaction with other actions: `_edited` gets those of the commits and those of the compaction."""

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        super()._compact(client, table, request)
        listed, path = self._list(table), table.log / compacted_file(request.start, request.end)
        commits = [
            action for number in range(request.start, request.end + 1) for action in actions_in(listed.commits[number])
        ]
        actions = self._edited(commits, actions_in(path))
        self._write(path, "".join(f"{json.dumps(action)}\n" for action in actions).encode())

    def _edited(self, commits: Actions, compacted: Actions) -> Actions:
        raise NotImplementedError


@mutant_method("_edited", "LOG-30", "LOG-35")
def compacts_files_by_path(self: _EditsCompactions, commits: Actions, compacted: Actions) -> Actions:
    """Keeps the last action of each path in a compaction: removing a file with one deletion vector replaces adding it
    with another."""
    last = {body.get("path", kind): action for action in commits for kind, body in action.items()}
    return list(last.values())


@mutant("LOG-35")
class CompactsPairsAway(_EditsCompactions):
    """Omits the removal of a file from a compaction that also adds it, so that a file from before it reappears."""

    def _edited(self, commits: Actions, compacted: Actions) -> Actions:
        added = {action["add"]["path"] for action in commits if "add" in action}
        return [action for action in compacted if "remove" not in action or action["remove"]["path"] not in added]


@mutant_method("_edited", "LOG-35")
def compacts_removed_domains_away(self: _EditsCompactions, commits: Actions, compacted: Actions) -> Actions:
    """Omits removals of metadata domains from a compaction, so that a removed domain reappears."""
    return [action for action in compacted if not action.get("domainMetadata", {}).get("removed")]


@mutant_method("_edited", "LOG-35")
def compactions_lose_row_ids(self: _EditsCompactions, commits: Actions, compacted: Actions) -> Actions:
    """Writes a compaction without the row ids of the files, as through a type that lacks them."""
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


mutant_functions(
    "_edited", _EditsCheckpoints,
    checkpoints_lose_deletion_vectors=(
        "Writes a checkpoint without the deletion vectors of the files.",
        lambda add: {field: value for field, value in add.items() if field != "deletionVector"},
        "LOG-34", "LOG-30"),
    checkpoints_lose_row_ids=(
        "Writes a checkpoint without the row ids of the files: its readers do not know them.",
        lambda add: {**add, "baseRowId": None}, "LOG-34"),
    checkpoints_decode_paths=(
        "Writes a checkpoint with the decoded paths of the files, so that readers decode them twice.",
        lambda add: {**add, "path": unquote(add["path"])}, "LOG-34"),
)  # fmt: skip


@mutant_method("_summary", "LOG-44")
def checksums_count_removed_files(self: ModelClient, state: State) -> dict[str, Any]:
    """Writes a checksum whose number of files includes removed ones."""
    return {**original(self)._summary(state), "numFiles": len(state.files) + len(state.removed)}


@mutant_method("_summary", "LOG-44")
def checksums_forget_the_properties(self: ModelClient, state: State) -> dict[str, Any]:
    """Writes a checksum whose metadata has no properties."""
    return {**original(self)._summary(state), "metadata": {**state.metadata, "configuration": {}}}


@mutant_method("_compact", "LOG-35")
def compactions_forget_the_properties(self: ModelClient, client: str, table: Resolved, request: m.Compact) -> None:
    """Writes compactions whose metadata has no properties."""
    original(self)._compact(client, table, request)
    path = table.log / compacted_file(request.start, request.end)
    actions = [
        {"metaData": {**action["metaData"], "configuration": {}}} if "metaData" in action else action
        for action in actions_in(path)
    ]
    self._write(path, "".join(json.dumps(action) + "\n" for action in actions).encode())


@mutant_method("_held", "LOG-34")
def checkpoints_have_no_schema(self: ModelClient, state: State) -> Actions:
    """Leaves the schema and the description of the table out of its checkpoints."""
    kept = {name: value for name, value in state.metadata.items() if name not in ("schemaString", "description")}
    return original(self)._held(replace(state, metadata=kept))


@mutant_method("_checksum", "LOG-45")
def overwrites_checksums(self: ModelClient, client: str, table: Resolved, version: int) -> None:
    """Replaces another client's checksum of the same version."""
    (table.log / checksum_file(version)).unlink(missing_ok=True)
    original(self)._checksum(client, table, version)


@mutant_method("_write", "LOG-02")
def file_names_are_not_padded(self: ModelClient, path: Path, content: bytes) -> None:
    """Names its files with versions that are not padded."""
    original(self)._write(path.with_name(".".join(part.lstrip("0") for part in path.name.split("."))), content)


@mutant_method("_hint", "FIELD-01", bugs=("FB31",))
def sets_the_hint_back(self: ModelClient, table: Resolved, version: int) -> None:
    """Makes `_last_checkpoint` name a checkpoint of an older version."""
    self._write(table.log / HINT, json.dumps({"version": version, "size": 1}).encode())


@mutant_method("_checkpoint", "FIELD-02", bugs=("FB32",))
def removes_other_checkpoints(self: ModelClient, client: str, table: Resolved, version: int) -> None:
    """Deletes another client's checkpoint files of the same version before it writes its own."""
    self._delete(table.log.glob(f"{version:020}.checkpoint.*"))
    original(self)._checkpoint(client, table, version)


@mutant_method("_check_protection", "LOG-50")
def checkpoints_any_protected_version(self: ModelClient, newest: State, state: State) -> None:
    """Writes checkpoints of protected versions whose protocols it does not support."""


@mutant_method("_with_statistics", "LOG-48")
def drops_statistics_that_are_typed(self: ModelClient, state: State, add: dict[str, Any]) -> dict[str, Any]:
    """Writes no statistics as JSON once it writes them as typed columns, although the table demands both."""
    kept = original(self)._with_statistics(state, add)
    return {key: value for key, value in kept.items() if key != "stats" or "stats_parsed" not in kept}


@mutant("MC-CHECKPOINT-03", "CM-MAINT-01", bugs=("FB16",))
class CheckpointsTheLatestUnpublishedVersion(CheckpointsTheLatestVersion):
    """If it may choose, writes a checkpoint of the newest version, published or not."""

    _chose = False

    def _newest(self, client: str, table: Resolved) -> int:
        self._chose = True
        return super()._newest(client, table)

    def _published(self, client: str, table: Resolved, version: int) -> Listing:
        return self._gather(client, table) if self._chose else super()._published(client, table, version)


@mutant_method("_checkpoint", "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", bugs=("FB06",))
def cleans_up_with_its_checkpoint(self: ModelClient, client: str, table: Resolved, version: int) -> None:
    """Deletes the commits before each of its checkpoints, without the owner's permission."""
    original(self)._checkpoint(client, table, version)
    self._delete(path for number, path in self._list(table).commits.items() if number < version)


# Permission


@mutant_method("_ask_for", "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04", "CM-MAINT-05", bugs=("FB06",))
def ignores_the_policy(self: ModelClient, client: str, table: Resolved, job: str) -> None:
    """Runs VACUUM, OPTIMIZE, REORG and metadata cleanup without the owner's permission."""


@mutant_method("_ask_for", "CM-POLICY-01", "CM-POLICY-03", "CM-MAINT-04")
def runs_what_an_unknown_permission_resembles(self: ModelClient, client: str, table: Resolved, job: str) -> None:
    """Takes an unknown permission for data cleanup as one for VACUUM."""
    reply = None if table.reference is None else self.owner(client, m.MaintenancePolicy(table=table.reference))
    similar = isinstance(reply, m.Policy) and any(name.startswith("data-cleanup") for name in reply.allowed)
    if not (job == "vacuum" and similar):
        original(self)._ask_for(client, table, job)


@mutant_method("_vacuum", "LOG-37", bugs=("FB36",))
def vacuums_by_the_published_log(self: ModelClient, table: Resolved, listed: Listing, version: int) -> None:
    """Deletes with VACUUM the data files that only unpublished versions have."""
    original(self)._vacuum(table, listed, max(listed.commits))


@mutant_method("_located", "LOG-37")
def vacuum_compares_encoded_paths(self: ModelClient, path: str) -> str:
    """Compares file names with the encoded paths in the log: VACUUM deletes files in use whose names have spaces."""
    return path.removeprefix("file://")


@mutant_method("_paths", "LOG-37")
def vacuum_overlooks_deletion_vectors(self: ModelClient, body: dict[str, Any]) -> list[str]:
    """Deletes with VACUUM the files of deletion vectors: no action has their names as its path."""
    return original(self)._paths(body)[:1]


@mutant_method("_located", "LOG-37")
def vacuum_joins_absolute_paths(self: ModelClient, path: str) -> str:
    """Takes each path for one relative to the table: VACUUM deletes files in use that the log names by their URL."""
    return unquote(path).removeprefix("file:///")


@mutant_method("_is_recent", "LOG-40")
def vacuum_keeps_no_removed_files(self: ModelClient, remove: dict[str, Any], since: float) -> bool:
    """Deletes with VACUUM files that were removed a moment ago, while others read the version before."""
    return False


@mutant_method("_is_young", "LOG-40", bugs=("FB36",))
def vacuum_keeps_no_young_files(self: ModelClient, path: Path, since: float) -> bool:
    """Deletes with VACUUM the files that a transaction has written and not committed yet."""
    return False


# Cleanup


@mutant_method("_cut_off", "MC-CLEANUP-03", "CM-CLEANUP-03", "LOG-36", bugs=("FB29",))
def cleans_up_without_a_checkpoint(self: ModelClient, table: Resolved, listed: Listing, older_than: int) -> int | None:
    """Deletes up to the cut-off commit without a cut-off checkpoint: kept versions cannot be read."""
    cut_off = original(self)._cut_off(table, listed, older_than)
    return self._cut_off_commit(table, listed, older_than) if cut_off is None else cut_off


@mutant_method("_cut_off_commit", "MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-03",
    "CM-CLEANUP-03", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36",
)  # fmt: skip
def cuts_off_by_the_times_of_files(self: ModelClient, table: Resolved, listed: Listing, older_than: int) -> int:
    """Finds the cut-off commit by the times of the files, although the commits have in-commit timestamps."""
    times = {version: path.stat().st_mtime * 1000 for version, path in listed.commits.items()}
    return max((version for version, time in times.items() if time <= older_than), default=-1)


@mutant_method("_cleanup", "MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", "LOG-36")
def deletes_the_sidecars_of_later_checkpoints(self: ModelClient, client: str, table: Resolved, older_than: int) -> None:
    """Keeps only the sidecars that the cut-off checkpoint names in a cleanup."""
    original(self)._cleanup(client, table, older_than)
    listed = self._gather(client, table)
    cut_off = self._cut_off(table, listed, older_than)
    manifests = [path for c in listed.checkpoints if c.version == cut_off for path in c.files]
    named = {Path(row["sidecar"]["path"]).name for path in manifests for row in rows_of(path) if row.get("sidecar")}
    if cut_off is not None:
        self._delete(path for path in (table.log / SIDECARS).glob("*") if path.name not in named)


@mutant("MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", "LOG-36")
class CutsOffAtTheNewestCheckpoint(ModelClient):
    """Uses the newest checkpoint as the cut-off, even above the cleanup version."""

    def _cut_off(self, table: Resolved, listed: Listing, older_than: int) -> int | None:
        return max((checkpoint.version for checkpoint in listed.checkpoints if checkpoint.complete), default=None)


@mutant_method("_cut_off",
    "MC-CLEANUP-01", "CM-CLEANUP-01", "MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36",
    "LOG-39",
)  # fmt: skip
def counts_incomplete_checkpoints(self: ModelClient, table: Resolved, listed: Listing, older_than: int) -> int | None:
    """Uses a checkpoint with a missing part as the cut-off checkpoint."""
    commit = self._cut_off_commit(table, listed, older_than)
    return max((checkpoint.version for checkpoint in listed.checkpoints if checkpoint.version <= commit), default=None)


@mutant_method("_is_whole", "LOG-36", bugs=("FB29",))
def cuts_off_at_a_corrupt_checkpoint(self: ModelClient, checkpoint: Checkpoint) -> bool:
    """Uses a checkpoint as the cut-off checkpoint without reading it."""
    return checkpoint.complete


@mutant_method("_cleanup", "MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-01", "CM-CLEANUP-01", "LOG-36", bugs=("FB30",))
def deletes_the_cut_off_checkpoint(self: ModelClient, client: str, table: Resolved, older_than: int) -> None:
    """Deletes the cut-off checkpoint together with the older ones."""
    original(self)._cleanup(client, table, older_than)
    listed = self._list(table)
    cut_off = self._cut_off(table, listed, older_than)
    self._delete(
        path for checkpoint in listed.checkpoints if checkpoint.version == cut_off for path in checkpoint.files
    )


@mutant_method("_cleanup", "MC-CLEANUP-02", "CM-CLEANUP-02", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36")
def deletes_every_sidecar(self: ModelClient, client: str, table: Resolved, older_than: int) -> None:
    """Deletes sidecars by age, even those of kept checkpoints."""
    original(self)._cleanup(client, table, older_than)
    self._delete((table.log / "_sidecars").glob("*"))


@mutant_method("_cleanup", "MC-CLEANUP-04", "CM-CLEANUP-04", "MC-CLEANUP-02", "CM-CLEANUP-02", "LOG-36")
def deletes_up_to_the_cut_off_commit(self: ModelClient, client: str, table: Resolved, older_than: int) -> None:
    """Deletes commits after the cut-off checkpoint, up to the cut-off commit."""
    original(self)._cleanup(client, table, older_than)
    listed = self._list(table)
    commit = self._cut_off_commit(table, listed, older_than)
    if self._cut_off(table, listed, older_than) is not None:
        self._delete(path for version, path in listed.commits.items() if version < commit)


@mutant_method("_cleanup", "MC-CLEANUP-09", "MC-CLEANUP-04", "CM-CLEANUP-04", "LOG-36")
def deletes_the_newest_commit(self: ModelClient, client: str, table: Resolved, older_than: int) -> None:
    """Deletes the newest backfilled commit if a checkpoint covers it."""
    original(self)._cleanup(client, table, older_than)
    listed = self._list(table)
    if self._cut_off(table, listed, older_than) == max(listed.commits):
        self._delete([listed.commits[max(listed.commits)]])


class _Leaves(ModelClient):
    """Keeps some of the files that it should delete."""

    def _spares(self, path: Path) -> bool:
        return False

    def _delete(self, paths: Iterable[Path]) -> None:
        super()._delete(path for path in paths if not self._spares(path))


mutant_functions(
    "_spares", _Leaves,
    leaves_old_checkpoints=(
        "Keeps checkpoints from before the cut-off checkpoint.",
        lambda path: ".checkpoint." in path.name, "MC-CLEANUP-05", "CM-CLEANUP-05"),
    leaves_old_compactions=(
        "Keeps compactions of deleted commits.",
        lambda path: path.name.endswith(".compacted.json"), "MC-CLEANUP-06", "CM-CLEANUP-06"),
    leaves_old_checksums=(
        "Keeps checksums of deleted commits.", lambda path: path.suffix == ".crc", "CM-CLEANUP-05"),
    leaves_old_staged_files=(
        "Keeps staged files of deleted versions.",
        lambda path: path.parent.name in STAGING.values(), "MC-CLEANUP-07", "CM-CLEANUP-07"),
)  # fmt: skip


@mutant_method("_staged", "MC-CLEANUP-08", "CM-CLEANUP-08", bugs=("FB36",))
def deletes_staged_files_in_flight(self: ModelClient, table: Resolved, cut_off: int) -> list[Path]:
    """Deletes every staged file without a commit, even one about to be proposed."""
    return original(self)._staged(table, 2**60)


@mutant_method("_staged", "RULING-CLEANUP-01")
def deletes_listed_staged_files(self: ModelClient, table: Resolved, cut_off: int) -> list[Path]:
    """Deletes staged files of published commits that the owner still lists."""
    table.commits = ()
    return original(self)._staged(table, cut_off)


@mutant_method("_apply_action", "LOG-34")
def checkpoints_hold_files_only(self: ModelClient, state: State, kind: str, body: dict[str, Any]) -> None:
    """Leaves transactions and metadata domains out of its checkpoints: batches are written again."""
    if kind not in ("txn", "domainMetadata"):
        original(self)._apply_action(state, kind, body)


@mutant("LOG-34")
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


@mutant_method("_held", "LOG-41")
def checkpoints_forget_removals(self: ModelClient, state: State) -> Actions:
    """Leaves removals out of its checkpoints: VACUUM knows of no file that was removed a moment ago."""
    return [action for action in original(self)._held(state) if "remove" not in action]


@mutant_method("_cleanup", "CM-CLEANUP-04")
def deletes_the_checksum_of_the_cut_off(self: ModelClient, client: str, table: Resolved, older_than: int) -> None:
    """Deletes the checksum of the cut-off checkpoint's version too."""
    original(self)._cleanup(client, table, older_than)
    listed = self._list(table)
    cut_off = self._cut_off(table, listed, older_than)
    if cut_off is not None and table.feature == "catalogManaged":
        self._delete(path for version, path in listed.checksums.items() if version <= cut_off)


# Owners that allow the wrong maintenance.


@mutant_method("_record", "MC-CHECKPOINT-03", "CM-MAINT-01")
def owner_checkpoints_unpublished_commits(self: ModelOwner, table: OwnedTable, version: int, attempt: str) -> None:
    """Writes a checkpoint of every version that it ratifies, published or not."""
    original(self)._record(table, version, attempt)
    name = f"{table.location}/{LOG}/{checkpoint_file(version)}"
    self.storage.put(name, "", 0)


@mutant_method("maintenance_policy", "PROFILE-POLICY-01")
def policy_for_unknown_tables(self: ModelOwner, client: str, request: m.MaintenancePolicy) -> m.Answer:
    """Returns a maintenance policy for tables that do not exist."""
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
