"""Good writers and maintenance jobs that stamp, name, check and keep in other ways than the model, as the documents
allow. Nobody may accuse them of anything."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.log_files import Listing
from conformance.models.owner import STAGING
from conformance.models.reader import Resolved
from conformance.models.storage import FolderStorage
from conformance.models.writer import Transaction
from conformance.mutants.registry import good
from conformance.scenario import proposals

MANAGED: Final = "managedCommit"

Actions = tuple[str, ...]

# Commits


class _Labels(ModelClient):
    """Writes another commitInfo than the model."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        first, *others = super()._actions(transaction, version)
        if transaction.table.reference is None:
            return (first, *others)  # without an owner to ask, the kit finds a commit by its `txnId` alone
        body = json.loads(first)["commitInfo"]
        return (proposals.line("commitInfo", self._labelled(body, transaction.table)), *others)

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        return body


@good("ICT-01", side="client")
class TellsMuchOfItsCommits(_Labels):
    """Its commitInfo has objects in objects, nulls, numbers and words of any language in it."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        metrics = {"numFiles": "3", "by": {"größe": [1, None, 2.5], "空": {}}, "commitInfo": {"txnId": "another"}}
        return {"engineInfo": None, "operationMetrics": metrics, **body, "": True}


@good("ICT-01", "FREE-TXNID-01", side="client")
class TellsLittleOfItsCommits(_Labels):
    """Its commitInfo says when, and nothing else that the table does not ask for: of a managedCommit table not even a
    `txnId`."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        needed = {"inCommitTimestamp", "isBlindAppend"} | ({"txnId"} if table.feature == "catalogManaged" else set())
        return {name: value for name, value in body.items() if name in needed}


@good("FREE-TXNID-02", side="client")
class NamesItsTransactionsInWords(_Labels):
    """Its `txnId`s are no uuids, but sentences."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        return {**body, "txnId": f"Ω: the nightly load / {body['txnId']} “once more”"}


@good("FREE-TIME-03", side="client")
class LivesInTheFuture(ModelClient):
    """Its clock is a century ahead."""

    now = 4_900_000_000_000


@good("FREE-TIME-03", side="client")
class LivesInThePast(ModelClient):
    """Its clock never left the epoch: its commits are stamped one ms after those before."""

    now = 0


@good(side="client")
class SendsTheSameWhenThereIsRoom(ModelClient):
    """A proposal that is refused for now is no other one later: it makes room, and sends the identical request."""

    _waiting: m.Commit | None = None

    def _make_room(self, client: str, request: m.Commit) -> None:
        super()._make_room(client, request)
        self._waiting = request

    def _request(self, table: Resolved, version: int, attempt: str, actions: Actions) -> m.Commit:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.table == table.reference and waiting.version == version:
            return waiting
        return super()._request(table, version, attempt, actions)


@good("FREE-UUID-01", side="client")
class NamesItsStagedFilesByHash(ModelClient):
    """The uuids in the names of its staged files are of version 5."""

    def _request(self, table: Resolved, version: int, attempt: str, actions: Actions) -> m.Commit:
        return super()._request(table, version, str(uuid.uuid5(uuid.NAMESPACE_OID, attempt)), actions)


# Data and change data


@good("DELAYED-06", "DELAYED-07", "DELAYED-09", side="client")
class WritesChangeData(ModelClient):
    """Beside the files of an update it commits one of change data, in `_change_data` and its partition's folder, named
    by its kind, its task and a uuid."""

    def _actions(self, transaction: Transaction, version: int) -> Actions:
        actions = super()._actions(transaction, version)
        request = transaction.request
        if not (request.adds and request.removes):
            return actions
        partitioned = bool(transaction.checked.metadata.get("partitionColumns"))
        partition = request.adds[0].partition
        folder = f"part={partition}/" if partitioned else ""
        body = {
            "path": quote(f"_change_data/{folder}cdc-00000-{uuid.uuid4()}.c000.snappy.parquet"),
            "partitionValues": {"part": partition} if partitioned else {},
            "size": 1, "dataChange": False,
        }  # fmt: skip
        return (*actions, proposals.line("cdc", body))


@good("DELAYED-12", side="client")
class RefusesFilesOutside(ModelClient):
    """A write with a file outside the table's folder is refused."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        if any(file.path.startswith("/") for file in request.adds):
            return m.Rejected(reason="absolute paths are not written to")
        return super().transact(client, request)


# Isolation, and nothing to commit


@good("CONFLICT-ISOLATION-02", side="client")
class OverlooksWhatItMay(ModelClient):
    """The model itself: blind appends under WriteSerializable, all appends under SnapshotIsolation."""


@good("CONFLICT-ISOLATION-02", side="client")
class IsAlwaysSerializable(ModelClient):
    """Whatever the isolation, it overlooks nothing."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        return super().transact(client, msgspec.structs.replace(request, isolation=m.Isolation.SERIALIZABLE))


@good("CONFLICT-ISOLATION-03", side="client")
class RearrangesUnderSnapshotIsolation(ModelClient):
    """A transaction that only rearranges data is checked as under SnapshotIsolation."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        isolation = request.isolation if request.data_change else m.Isolation.SNAPSHOT
        return super().transact(client, msgspec.structs.replace(request, isolation=isolation))


@good("CONFLICT-EMPTY-01", "CONFLICT-EMPTY-03", side="client")
class CommitsEmptyTransactions(ModelClient):
    """A transaction without any change is a commit, whether it is needed or not."""

    def _is_empty(self, request: m.Transact) -> bool:
        return False


@good("CONFLICT-EMPTY-02", "CONFLICT-EMPTY-03", side="client")
class SkipsEmptyTransactions(ModelClient):
    """A transaction without any change leaves no commit, even if none was told to be left out."""

    def _is_empty(self, request: m.Transact) -> bool:
        return super()._is_empty(msgspec.structs.replace(request, if_needed=True))


# Publishing


@good("MC-RELEASE-08", side="client")
class PublishesBeforeItGivesBack(ModelClient):
    """It publishes the commits that keep a table from being given back, each by put-if-absent, before it asks."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self._resolve(client, request.table)
        self._ask(client, table)
        if table.feature == MANAGED:
            for commit in sorted(table.commits, key=lambda each: each.version):
                self._publish(table, commit)
        return super().hand_back(client, request)

    def _publish(self, table: Resolved, commit: m.CommitEntry) -> None:
        """The content of its staged file, under its version."""
        staged = FolderStorage(table.log.parent).read(str(table.log / STAGING[MANAGED] / (commit.file_name or "")))
        if staged is not None:
            path = str(table.log / f"{commit.version:020}.json")
            self._place(FolderStorage(table.log.parent), path, staged.content, staged.modified)

    def _place(self, storage: FolderStorage, path: str, content: str, modified: int) -> None:
        storage.put_if_absent(path, content, modified)


# Maintenance


@good("MC-CHECKPOINT-01", "CM-POLICY-02", "MC-BACKFILL-06", side="client")
class CheckpointsWheneverItLikes(ModelClient):
    """After each of its commits it writes a checkpoint of the version before, which it has published first, and asks
    nobody whether it may."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        told = super().transact(client, request)
        if isinstance(told, m.Committed) and told.version and "/" not in request.table:
            self.checkpoint(client, m.Checkpoint(table=request.table, version=told.version - 1))
        return told


@good("CM-MAINT-03", "FREE-CHECKSUM-02", "CM-POLICY-02", side="client")
class WritesChecksumsOfItsCommits(ModelClient):
    """After each of its commits it writes the checksum of that version, published or not."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        told = super().transact(client, request)
        if isinstance(told, m.Committed) and told.version and "/" not in request.table:
            self.checksum(client, m.Checksum(table=request.table, version=told.version))
        return told


@good("FREE-CHECKSUM-01", side="client")
class WritesNoChecksums(ModelClient):
    """It knows of no checksums."""

    def checksum(self, client: str, request: m.Checksum) -> m.Answer:
        return m.Unsupported(reason="there are no checksums")


@good("MC-BACKFILL-06", side="client")
class PublishesBeforeEveryJob(ModelClient):
    """Before any maintenance it has all commits backfilled."""

    def _gather(self, client: str, table: Resolved) -> Listing:
        listed = super()._gather(client, table)
        if table.commits and getattr(self, "_in_a_job", False):
            newest = max(commit.version for commit in table.commits)
            self.owner(client, m.BackfillToVersion(table=table.reference or "", version=newest))
            return super()._gather(client, table)
        return listed

    def _job(self, run: Any) -> m.Answer:
        self._in_a_job = True
        try:
            return super()._job(run)
        finally:
            self._in_a_job = False


@good("MC-CHECKPOINT-01", side="client")
class LeavesNoHint(ModelClient):
    """It writes checkpoints, and no `_last_checkpoint`."""

    def _hint(self, table: Resolved, version: int) -> None:
        pass


@good("FREE-CLEANUP-01", side="client")
class NeverCleansUp(ModelClient):
    """It is asked to clean up, finds nothing that is worth it, and is done."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        self._ask_for(client, table, "metadata-cleanup")


@good("FREE-CLEANUP-02", side="client")
class KeepsManyCommits(ModelClient):
    """Of the commits it keeps the newest three, whatever the cut-off checkpoint covers."""

    kept: int = 3

    def _delete(self, paths: Iterable[Path]) -> None:
        found = list(paths)
        commits = [path for path in found if len(path.name) == len(f"{0:020}.json") and path.suffix == ".json"]
        spared: set[Path] = set()
        if commits:
            published = sorted(path for path in commits[0].parent.glob("*.json") if len(path.name) == 25)
            spared = set(published[-self.kept :])
        super()._delete(path for path in found if path not in spared)


@good("FREE-CLEANUP-02", side="client")
class KeepsAllCommits(KeepsManyCommits):
    """Of the commits it keeps all, and deletes the rest."""

    kept = 1_000
