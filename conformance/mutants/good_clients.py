"""Good clients: readers, writers and maintenance jobs that differ from the model as the documents permit."""

import json
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from conformance.history import digests
from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, checkpoint_file, commit_file, staged_file
from conformance.models import proposals
from conformance.models.client import ModelClient
from conformance.models.log_files import HINT, Listing, checkpoint_parquet, listing_of
from conformance.models.reader import Actions, Refused, Resolved, State, Unsure
from conformance.models.storage import FolderStorage
from conformance.models.writer import Transaction
from conformance.mutants import good, good_method, memory, original


@good("MC-FILES-10", "CM-GET-02", "MC-READ-05", "LOG-14")
class ListsPublishedCommits(ModelClient):
    """Finds published commits, checkpoints and checksums by listing, and requests the rest from the owner."""


class OnlyWhenReading(ModelClient):
    """Differs from the model only while it reads a snapshot; `reading` is true then."""

    reading = False

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        self.reading = True
        try:
            return super().snapshot(client, request)
        finally:
            self.reading = False


@good("MC-READ-01", "MC-READ-02", "FREE-READ-02", "FREE-STALE-01")
class ReadsWithoutTheOwner(OnlyWhenReading):
    """Reads managedCommit tables from listings alone, and does not promise fresh snapshots."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        commit_modes = {"managedCommit": identity.commit_modes["managedCommit"]}
        return msgspec.structs.replace(identity, features=("managedCommit",), commit_modes=commit_modes, promises=())

    def _ask(self, client: str, table: Resolved) -> None:
        if not self.reading:
            super()._ask(client, table)


@good("MC-READ-08", "LOG-12", "FREE-READ-03")
class PrefersBackfilledFiles(ModelClient):
    """Reads the backfilled file of a managedCommit version that the owner lists too."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        backfilled = table.feature == "managedCommit" and version in listed.commits
        return super()._commit(table, listed, {} if backfilled else owned, version)


@good_method("_gather", "FREE-READ-04", "MC-READ-05")
def lists_while_it_asks(self: ModelClient, client: str, table: Resolved) -> Listing:
    """Lists a managedCommit table before the owner answers, and again if the answer does not fit."""
    listed = self._list(table)
    self._ask(client, table)
    known = {*listed.commits, *table.owned}
    complete = table.latest is not None and all(version in known for version in range(table.latest + 1))
    return listed if complete and table.feature == "managedCommit" else self._list(table)


@good_method("_list", "CM-READ-07", "FREE-READ-01")
def opens_files_by_name(self: ModelClient, table: Resolved) -> Listing:
    """Does not list: opens files that the owner does not return by name, version by version."""
    if table.reference is None:
        return original(self)._list(table)
    paths: list[Path] = []
    version = 0
    while version <= (table.latest or 0) or (table.log / commit_file(version)).exists():
        named = [table.log / f"{version:020}.{ending}" for ending in ("json", "checkpoint.parquet", "crc")]
        paths += [path for path in named if path.exists()]
        version += 1
    if not any(path.name.endswith("json") and path.name.startswith("0" * 20) for path in paths):
        return original(self)._list(table)
    return listing_of(paths)


@good("FREE-STALE-03", "CM-READ-07")
class ReadsResolvedCommits(OnlyWhenReading):
    """Uses the commits of the resolution without requesting them again."""

    def _resolve(self, client: str, name: str) -> Resolved:
        table = super()._resolve(client, name)
        if table.reference is None:
            return table
        answer = self.owner(client, m.LoadTable(name=name))
        if not isinstance(answer, m.Table):
            raise Unsure("the owner does not return its commits")
        if answer.commits is not None:
            table.latest, table.commits = None if answer.latest == -1 else answer.latest, answer.commits
        return table

    def _ask(self, client: str, table: Resolved) -> None:
        if not self.reading:
            super()._ask(client, table)


@good("FREE-STALE-02")
class TimeTravelUsesCachedCommits(ModelClient):
    """Uses the owner's commits of its last read of the table for time travel."""

    known: dict[tuple[str, Path], Resolved] = memory(dict)
    reads = False
    """Whether it reads only: a transaction uses the owner's newest commits."""

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        self.reads = True
        try:
            return super().snapshot(client, request)
        finally:
            self.reads = False

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        known = self.known.get((client, table.log)) if self.reads else None
        if known is not None and (version is not None or timestamp is not None):
            cached = replace(table, reference=None, latest=known.latest, commits=known.commits)
            with suppress(Refused):  # beyond these commits
                return super()._read(client, cached, version, timestamp)
        state = super()._read(client, table, version, timestamp)
        if table.reference is not None:
            self.known[client, table.log] = table
        return state


@good("CM-CATALOG-06")
class UsesCatalogMetadata(ModelClient):
    """Uses the catalog's protocol and metadata for the latest version."""

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        answer = self.owner(client, m.LoadTable(name=table.name)) if table.name is not None else None
        state = super()._read(client, table, version, timestamp)
        if isinstance(answer, m.Table) and answer.latest == state.version and answer.metadata and answer.protocol:
            state.metadata = _inside(answer.metadata, "metaData")
            state.protocol = _inside(answer.protocol, "protocol")
        return state


def _inside(action: str, kind: str) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(action)[kind]
    return body


@good("FREE-NAME-01")
class AcceptsPluralFeatureName(ModelClient):
    """Accepts a table whose protocol lists `inCommitTimestamps` instead of the singular."""


@good_method("_replay", "FREE-NAME-02")
def rejects_plural_feature_name(self: ModelClient, table: Resolved, listed: Listing, target: int) -> State:
    """Rejects a table whose protocol lists `inCommitTimestamps`."""
    state = original(self)._replay(table, listed, target)
    if "inCommitTimestamps" in state.protocol.get("writerFeatures", ()):
        raise Refused("the feature is called inCommitTimestamp")
    return state


@good_method("_for_writers", "LOG-42")
def lists_features_in_use(self: ModelClient, state: State) -> set[str]:
    """Lists in a take-over, of the features that the versions implied, only those that the history has used."""
    used = {"appendOnly"} if state.properties.get("delta.appendOnly") == "true" else set()
    return {*state.features, *used}


@good_method("_enabled_at", "FREE-TIME-01")
def reads_with_one_enablement_property(self: ModelClient, table: Resolved, listed: Listing, latest: State) -> int:
    """Needs only one of the two enablement properties."""
    return self._time(table, listed, latest, latest.enabled_since or 0)


@good_method("_at", "FREE-TIME-02")
def time_travel_clamps_to_the_history(self: ModelClient, table: Resolved, listed: Listing, timestamp: int) -> int:
    """Selects the first version for an earlier time, and the last version for a later one."""
    latest = self._replay(table, listed, self._target(table, listed, None))
    times = self._times(table, listed, latest)
    return original(self)._at(table, listed, min(max(timestamp, min(times.values())), times[latest.version]))


@good_method("_adjusted", "FREE-TIME-04")
def uses_unadjusted_modification_times(self: ModelClient, modified: int, previous: int | None) -> int:
    """Uses modification times without making them increase."""
    return modified


@good_method("_snapshot_read")
def returns_only_files(self: ModelClient, state: State, *, stale: bool) -> m.SnapshotRead:
    """Returns only version, files, staleness and warnings of a snapshot."""
    whole = original(self)._snapshot_read(state, stale=stale)
    return m.SnapshotRead(version=whole.version, files=whole.files, stale=whole.stale, warnings=whole.warnings)


@good()
class OnlyReads(ModelClient):
    """Only reads tables: no writes, no maintenance, no ownership changes."""

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        identity = super().hello(client, request)
        return msgspec.structs.replace(identity, profiles=("core",))

    def _no(self, client: str, request: m.Request) -> m.Answer:
        return m.Unsupported(reason="it is a reader")

    transact = checkpoint = compact = checksum = cleanup = maintain = take_over = hand_back = create_table = _no


# Good writers and maintenance jobs that set timestamps, name files, check conflicts and retain files differently from
# the model, as the documents permit. Every check must accept them.

MANAGED: Final = "managedCommit"

Lines = tuple[str, ...]

# Commits


class Labels(ModelClient):
    """Writes another commitInfo than the model."""

    def _actions(self, transaction: Transaction, version: int) -> Lines:
        first, *others = super()._actions(transaction, version)
        if transaction.table.reference is None:
            return (first, *others)  # in a table without an owner the kit finds a commit only by its `txnId`
        body = json.loads(first)["commitInfo"]
        return (proposals.line("commitInfo", self._labelled(body, transaction.table)), *others)

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        return body


@good("ICT-01")
class WritesLargeCommitInfo(Labels):
    """Writes nested objects, nulls, numbers and text of many languages to commitInfo."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        metrics = {"numFiles": "3", "by": {"größe": [1, None, 2.5], "空": {}}, "commitInfo": {"txnId": "another"}}
        return {"engineInfo": None, "operationMetrics": metrics, **body, "": True}


@good("ICT-01", "FREE-TXNID-01")
class WritesMinimalCommitInfo(Labels):
    """Writes only the required fields of commitInfo: for a managedCommit table not even a `txnId`."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        needed = {"inCommitTimestamp", "isBlindAppend"} | ({"txnId"} if table.feature == "catalogManaged" else set())
        return {name: value for name, value in body.items() if name in needed}


@good("FREE-TXNID-02")
class TxnIdsAreSentences(Labels):
    """Uses sentences as `txnId`s instead of UUIDs."""

    def _labelled(self, body: dict[str, Any], table: Resolved) -> dict[str, Any]:
        return {**body, "txnId": f"Ω: the nightly load / {body['txnId']} “once more”"}


@good("FREE-TIME-03")
class ClockIsACenturyAhead(ModelClient):
    """Has a clock that is a century ahead."""

    now = 4_900_000_000_000


@good()
class RepeatsTheAttemptAfterABackfill(ModelClient):
    """Repeats the identical proposal after it requested a backfill of a full backlog."""

    _waiting: m.Commit | None = None

    def _make_room(self, client: str, request: m.Commit) -> None:
        super()._make_room(client, request)
        self._waiting = request

    def _request(self, table: Resolved, version: int, attempt: str, actions: Lines) -> m.Commit:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.table == table.reference and waiting.version == version:
            return waiting
        return super()._request(table, version, attempt, actions)


@good_method("create_table")
def repeats_a_rejected_creation(self: ModelClient, client: str, request: m.CreateTable) -> m.Answer:
    """Repeats the identical creation after a rejection. This is allowed, because the version 0 of a new table has no
    staged file."""
    answer = original(self).create_table(client, request)
    return original(self).create_table(client, request) if isinstance(answer, m.Rejected) else answer


@good("FREE-UUID-01")
class StagedNamesUseUuid5(ModelClient):
    """Uses UUIDs of version 5 in the names of its staged files."""

    def _request(self, table: Resolved, version: int, attempt: str, actions: Lines) -> m.Commit:
        return super()._request(table, version, str(uuid.uuid5(uuid.NAMESPACE_OID, attempt)), actions)


# Data and change data


@good("DELAYED-06", "DELAYED-07", "DELAYED-09")
class WritesChangeData(ModelClient):
    """Commits a change data file with the files of an update, in `_change_data` and its partition's folder."""

    def _actions(self, transaction: Transaction, version: int) -> Lines:
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


@good("DELAYED-12")
class RejectsFilesOutside(ModelClient):
    """Rejects a write with a file outside the table's folder."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        if any(file.path.startswith("/") for file in request.adds):
            return m.Rejected(reason="absolute paths are not written to")
        return super().transact(client, request)


@good_method("transact")
def rejects_lost_races(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Answers a failed check for conflicts with a rejection."""
    answer = original(self).transact(client, request)
    return m.Rejected(reason="another transaction was faster") if isinstance(answer, m.Conflict) else answer


@good_method("_check_writable")
def writes_old_plain_tables(self: ModelClient, protocol: dict[str, Any]) -> None:
    """Supports writer versions up to 6 only for tables without an owner."""
    if protocol.get("minWriterVersion", 2) > 6 and "inCommitTimestamp" not in protocol.get("writerFeatures", ()):
        raise Refused(f"writer version {protocol['minWriterVersion']} is not supported")
    original(self)._check_writable(protocol)


# Isolation, and empty transactions


@good("CONFLICT-ISOLATION-02")
class IgnoresPermittedAppends(ModelClient):
    """Ignores blind appends under WriteSerializable and all appends under SnapshotIsolation, as the model does."""


@good("CONFLICT-ISOLATION-02")
class AlwaysSerializable(ModelClient):
    """Checks for conflicts as under Serializable at every isolation level."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        return super().transact(client, msgspec.structs.replace(request, isolation=m.Isolation.SERIALIZABLE))


@good("CONFLICT-ISOLATION-03")
class RearrangesUnderSnapshotIsolation(ModelClient):
    """Checks a transaction that only rearranges data as under SnapshotIsolation."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        isolation = request.isolation if request.data_change else m.Isolation.SNAPSHOT
        return super().transact(client, msgspec.structs.replace(request, isolation=isolation))


@good("CONFLICT-EMPTY-01", "CONFLICT-EMPTY-03")
class CommitsEmptyTransactions(ModelClient):
    """Commits every transaction without changes."""

    def _is_empty(self, request: m.Transact) -> bool:
        return False


@good("CONFLICT-EMPTY-02", "CONFLICT-EMPTY-03")
class SkipsEmptyTransactions(ModelClient):
    """Reports success for a transaction without changes, and commits nothing."""

    def _is_empty(self, request: m.Transact) -> bool:
        return super()._is_empty(msgspec.structs.replace(request, if_needed=True))


# Publishing


@good("MC-RELEASE-08")
class PublishesBeforeAHandBack(ModelClient):
    """Publishes unbackfilled commits by put-if-absent before it requests a hand-back."""

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        table = self._resolve(client, request.table)
        self._ask(client, table)
        if table.feature == MANAGED:
            for commit in sorted(table.commits, key=lambda entry: entry.version):
                self._publish(table, commit)
        return super().hand_back(client, request)

    def _publish(self, table: Resolved, commit: m.CommitEntry) -> None:
        """Publish the content of the staged file under its version."""
        staged = FolderStorage(table.log.parent).read(str(table.log / STAGING[MANAGED] / (commit.file_name or "")))
        if staged is not None:
            path = str(table.log / commit_file(commit.version))
            self._place(FolderStorage(table.log.parent), path, staged.content, staged.modified)

    def _place(self, storage: FolderStorage, path: str, content: str, modified: int) -> None:
        storage.put_if_absent(path, content, modified)


# Maintenance


@good("MC-CHECKPOINT-01", "CM-POLICY-02", "MC-BACKFILL-06")
class CheckpointsAfterEveryCommit(ModelClient):
    """Requests a backfill and writes a checkpoint of the previous version after each of its commits, without requesting
    the policy."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, request)
        if isinstance(answer, m.Committed) and answer.version and "/" not in request.table:
            self.checkpoint(client, m.Checkpoint(table=request.table, version=answer.version - 1))
        return answer


@good_method("_with_statistics", "LOG-48")
def writes_statistics_as_json_too(self: ModelClient, state: State, add: dict[str, Any]) -> dict[str, Any]:
    """Writes statistics as JSON also where the table does not demand them."""
    kept = original(self)._with_statistics(state, add)
    return {**kept, "stats": add["stats"]} if "stats" in add else kept


@good_method("_checkpoint", "LOG-34")
def writes_two_checkpoints(self: ModelClient, client: str, table: Resolved, version: int) -> None:
    """Writes each checkpoint a second time, under the name of a V2 checkpoint, for readers that look for those. Before
    that it leaves one part of three of a third checkpoint."""
    original(self)._checkpoint(client, table, version)
    written = (table.log / checkpoint_file(version)).read_bytes()
    self._write(table.log / f"{version:020}.checkpoint.{uuid.uuid4()}.parquet", written)
    part = checkpoint_parquet([{"add": {"path": "unfinished", "size": 1}}])
    self._write(table.log / f"{version:020}.checkpoint.{2:010}.{3:010}.parquet", part)


@good("MC-CHECKPOINT-01", "MC-BACKFILL-06")
class CheckpointsTheLatestVersion(ModelClient):
    """If it may choose, requests a backfill of all commits, and writes a checkpoint of the newest version."""

    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        def run() -> None:
            table = self._resolve(client, request.table)
            self._checkpoint(client, table, self._newest(client, table) if request.any_version else request.version)

        return self._job(run)

    def _newest(self, client: str, table: Resolved) -> int:
        return self._latest(table, self._gather(client, table))


@good("CM-STORE-01", "FREE-PUBLISH-01")
class ReformatsInlineCommits(ModelClient):
    """Publishes inline commits with sorted fields and spaces: the same actions."""

    def _ratified(self, table: Resolved, commit: m.CommitEntry) -> bytes:
        if commit.actions is None:
            return super()._ratified(table, commit)
        return proposals.content(json.dumps(json.loads(action), sort_keys=True) for action in commit.actions).encode()

    def _check_published(self, published: Path, content: bytes) -> None:
        if digests.of_file(published.read_bytes()).actions != digests.of_file(content).actions:
            raise Refused(f"{published.name} is not the ratified commit")


@good("CM-MAINT-03", "FREE-CHECKSUM-02", "CM-POLICY-02")
class WritesChecksums(ModelClient):
    """Writes the checksum of each of its commits, published or not. Checksums, and the hint to the newest checkpoint,
    are JSON on several lines."""

    def _write(self, path: Path, content: bytes) -> None:
        an_object = path.suffix == ".crc" or path.name == HINT
        super()._write(path, json.dumps(json.loads(content), indent=1).encode() if an_object else content)

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        answer = super().transact(client, request)
        if isinstance(answer, m.Committed) and answer.version and "/" not in request.table:
            self.checksum(client, m.Checksum(table=request.table, version=answer.version))
        return answer


@good_method("transact")
def renames_files_with_blanks(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Chooses another name for each data file whose requested name contains a blank."""
    names = (add.path.replace(" ", f"_{uuid.uuid4()}_") for add in request.adds)
    adds = (msgspec.structs.replace(add, path=name) for add, name in zip(request.adds, names, strict=True))
    return original(self).transact(client, msgspec.structs.replace(request, adds=tuple(adds)))


@good_method("checksum", "FREE-CHECKSUM-01")
def writes_no_checksums(self: ModelClient, client: str, request: m.Checksum) -> m.Answer:
    """Writes no checksums."""
    return m.Unsupported(reason="there are no checksums")


@good("MC-BACKFILL-06")
class BackfillsBeforeMaintenance(ModelClient):
    """Requests a backfill of all commits before any maintenance."""

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


@good("FREE-CLEANUP-01")
class NeverCleansUp(ModelClient):
    """Answers a cleanup as done without deleting anything."""

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        self._ask_for(client, table, "metadata-cleanup")


@good_method("checkpoint", "FREE-CLEANUP-02")
def cleans_up_with_its_checkpoint_of_managed_commits(self: ModelClient, client: str, request: m.Checkpoint) -> m.Answer:
    """Deletes expired commits before its checkpoint of a managedCommit table, because such a table has no policy."""
    answer = original(self).checkpoint(client, request)
    with suppress(Refused, Unsure):
        table = self._resolve(client, request.table)
        if request.any_version and table.feature == "managedCommit":
            self._delete(path for version, path in self._list(table).commits.items() if version < request.version)
    return answer


@good_method("_cleanup")
def asks_again_after_a_cleanup(self: ModelClient, client: str, table: Resolved, older_than: int) -> None:
    """Refreshes its list of commits when a cleanup has ended."""
    original(self)._cleanup(client, table, older_than)
    self._gather(client, table)


@good_method("_propose")
def deletes_its_losing_files(self: ModelClient, client: str, transaction: Transaction, version: int) -> bool:
    """Deletes the staged file of its proposal when another writer certainly won the version."""
    landed = original(self)._propose(client, transaction, version)
    table = transaction.table
    if not landed and table.commit_mode == "staged":
        name = staged_file(version, transaction.attempts[-1])
        (table.log / STAGING[table.feature or ""] / name).unlink(missing_ok=True)
    return landed


@good_method("_was_read")
def compares_no_partitions(self: ModelClient, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
    """Checks each read of a partition as one of the whole table, so that more winners conflict with it."""
    return request.reads is not None


@good_method("transact")
def probes_before_it_transacts(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Requests a table's commits before a transaction, whose table it then resolves and reads."""
    with suppress(Refused, Unsure):
        self._ask(client, self._resolve(client, request.table))
    return original(self).transact(client, request)


@good_method("transact", "FREE-CLEANUP-02")
def cleans_up_with_its_commit_of_managed_commits(self: ModelClient, client: str, request: m.Transact) -> m.Answer:
    """Deletes commits before the newest checkpoint of a managedCommit table when it has committed."""
    answer = original(self).transact(client, request)
    with suppress(Refused, Unsure):
        table = self._resolve(client, request.table)
        if isinstance(answer, m.Committed) and table.feature == "managedCommit":
            listed = self._list(table)
            cut = min(self._cut_off(table, listed, 4_000_000_000_000) or 0, max(listed.commits, default=0))
            self._delete(path for version, path in listed.commits.items() if version < cut)
    return answer


@good("FREE-CLEANUP-03")
class DeletesListedStagedFilesOfManagedCommits(ModelClient):
    """Deletes all staged files up to the cut-off checkpoint's version in a cleanup of a managedCommit table, including
    those of published commits that the owner lists."""

    def _staged(self, table: Resolved, cut_off: int) -> list[Path]:
        if table.feature == "managedCommit":
            table.commits = ()
        return super()._staged(table, cut_off)


@good()
class WritesAbsolutePaths(ModelClient):
    """Writes absolute URIs of data files. In answers, it names a file relative to the table if the file is below it."""

    folder = ""

    def _actions(self, transaction: Transaction, version: int) -> tuple[str, ...]:
        self.folder = f"file://{quote(str(transaction.table.log.parent))}/"
        return super()._actions(transaction, version)

    def _add(self, file: m.DataFile, request: m.Transact, timestamp: int, *, partitioned: bool) -> str:
        body = json.loads(super()._add(file, request, timestamp, partitioned=partitioned))["add"]
        if not body["path"].startswith("/") and ":" not in body["path"]:
            body["path"] = self.folder + body["path"]
        return proposals.line("add", body)


@good_method("_resolved")
def sends_again(self: ModelClient, client: str, transaction: Transaction, request: m.Commit) -> bool:
    """Repeats the identical request after an unknown outcome, until it gets an answer."""
    for _ in range(self.most_questions):
        reply = self.owner(client, request)
        if isinstance(reply, m.Ratified):
            return True
        if not isinstance(reply, m.Unknown):
            break
    return original(self)._resolved(client, transaction, request)
