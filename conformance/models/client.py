"""The kit's own client as a subject: reader, writer, maintenance and the change of a table's owner."""

import json
import time
import uuid
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from conformance.interface import messages as m
from conformance.interface.log_names import (
    FILESYSTEM,
    STAGING,
    checkpoint_file,
    checksum_file,
    commit_file,
    compacted_file,
)
from conformance.models import log_files, proposals
from conformance.models.owner import COMMIT_MODES, OWNER_PROPERTY
from conformance.models.proposals import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, TIMESTAMPS
from conformance.models.reader import ModelReader, Refused, Resolved, State, answered
from conformance.models.writer import CHECKPOINT_PROTECTION, SUPPORTED, ModelWriter

METADATA_CLEANUP: Final = "metadata-cleanup"
RETENTION: Final = 7 * 24 * 3600 * 1000
"""ms for which VACUUM spares files that were removed or written."""
IMPLIED: Final = {
    2: ("appendOnly", "invariants"), 3: ("checkConstraints",), 4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",), 6: ("identityColumns",),
}  # fmt: skip
"""By writer version below 7, the features that came with it."""


class ModelMaintainer(ModelReader):
    """Jobs on a table with concurrent writers: checkpoints, compactions and checksums of published versions,
    and cleanup of old ones.

    managed-commits and catalog-managed, "Metadata Cleanup" and "Maintenance Operations". It requests the policy before
    a job that the owner may forbid; checkpoints, compactions and checksums are always allowed.
    """

    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        return self._job(lambda: self._checkpoint(client, self._resolve(client, request.table), request.version))

    def compact(self, client: str, request: m.Compact) -> m.Answer:
        return self._job(lambda: self._compact(client, self._resolve(client, request.table), request))

    def checksum(self, client: str, request: m.Checksum) -> m.Answer:
        return self._job(lambda: self._checksum(client, self._resolve(client, request.table), request.version))

    def cleanup(self, client: str, request: m.Cleanup) -> m.Answer:
        return self._job(lambda: self._cleanup(client, self._resolve(client, request.table), request.older_than))

    def maintain(self, client: str, request: m.Maintain) -> m.Answer:
        return self._job(lambda: self._maintain(client, self._resolve(client, request.table), request.job))

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        return self._job(lambda: self._publish_all(client, self._resolve(client, request.table), request.version))

    def _job(self, run: Callable[[], None]) -> m.Answer:
        def done() -> m.Answer:
            run()
            return m.Done()

        return answered(done)

    # Jobs that are always allowed, on published versions

    def _checkpoint(self, client: str, table: Resolved, version: int) -> None:
        listed = self._published(client, table, version)
        state = self._replay(table, listed, version)
        self._check_protection(self._newest_state(table, listed) or state, state)
        self._write(table.log / checkpoint_file(version), log_files.checkpoint_parquet(self._held(state)))
        self._hint(table, version)

    def _newest_state(self, table: Resolved, listed: log_files.Listing) -> State | None:
        """The newest version in the log; None if it cannot be read."""
        try:
            return self._replay(table, listed, listed.newest)
        except (Refused, log_files.Unreadable, FileNotFoundError):
            return None

    def _check_protection(self, newest: State, state: State) -> None:
        """A protected version may have a protocol that this client does not support."""
        before = newest.properties.get("delta.requireCheckpointProtectionBeforeVersion", "0")
        if CHECKPOINT_PROTECTION in newest.features and state.version < int(before) and state.features - SUPPORTED:
            raise Refused(f"version {state.version} is protected, and its protocol is not supported")

    def _held(self, state: State) -> list[dict[str, Any]]:
        """The actions of a snapshot, as a checkpoint has them."""
        actions = [{"protocol": state.protocol}, {"metaData": state.metadata}]
        actions += [{"add": self._with_statistics(state, add)} for add in state.files.values()]
        actions += [{"remove": remove} for remove in state.removed.values()]
        actions += [{"txn": state.transactions[name]} for name in self._live(state)]
        return actions + [{"domainMetadata": body} for body in state.domains.values()]

    def _with_statistics(self, state: State, add: dict[str, Any]) -> dict[str, Any]:
        """The file with its statistics as JSON, as typed columns, or both, as the table's properties say."""
        stats, kept = add.get("stats"), dict(add)
        if state.properties.get("delta.checkpoint.writeStatsAsStruct") == "true":
            kept |= {"stats_parsed": json.loads(stats)} if stats else {}
            kept |= {"partitionValues_parsed": values} if (values := add.get("partitionValues")) else {}
        if state.properties.get("delta.checkpoint.writeStatsAsJson") == "false":
            kept.pop("stats", None)
        return kept

    def _compact(self, client: str, table: Resolved, request: m.Compact) -> None:
        """Write the last action of each kind and file in the commits."""
        start, end = request.start, request.end
        listed = self._published(client, table, end)
        kept: dict[str, dict[str, Any]] = {}
        if missing := sorted(set(range(start, end + 1)) - set(listed.commits)):
            raise Refused(f"version {missing[0]} is missing: a cleanup deleted it")
        for version in range(start, end + 1):
            for action in log_files.actions_in(listed.commits[version]):
                kept[identity_of(action)] = action
        lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in kept.values())
        self._write(table.log / compacted_file(start, end), lines.encode())

    def _checksum(self, client: str, table: Resolved, version: int) -> None:
        """Write the checksum of any ratified version, published or not. An existing one stays."""
        listed = self._gather(client, table)
        state = self._replay(table, listed, self._target(table, listed, version))
        if version not in listed.checksums:
            state.timestamp = self._time(table, listed, state, version)
            self._write(table.log / checksum_file(version), json.dumps(self._summary(state)).encode())

    def _summary(self, state: State) -> dict[str, Any]:
        """The content of a checksum."""
        sizes = [add.get("size", 0) for add in state.files.values()]
        known = state.enabled_since is not None and state.timestamp > 0  # unknown after a cleanup
        times = {"inCommitTimestampOpt": state.timestamp} if known else {}
        return {
            "tableSizeBytes": sum(sizes), "numFiles": len(sizes), "numMetadata": 1, "numProtocol": 1, **times,
            "domainMetadata": list(state.domains.values()), "metadata": state.metadata, "protocol": state.protocol,
        }  # fmt: skip

    def _published(self, client: str, table: Resolved, version: int) -> log_files.Listing:
        """A listing that has the version, which the owner publishes on request if it is missing."""
        listed = self._gather(client, table)
        if version > self._latest(table, listed):
            raise Refused(f"version {version} does not exist")
        if version not in listed.commits:
            self.owner(client, m.BackfillToVersion(table=table.reference or "", version=version))
            listed = self._gather(client, table)
        if version not in listed.commits:
            raise Refused(f"version {version} is not published")
        return listed

    def _publish_all(self, client: str, table: Resolved, version: int) -> None:
        """catalog-managed, "Publishing Commits": copy the owner's commits, in order. An existing file must be the
        commit."""
        self._gather(client, table)
        for commit in sorted(table.commits, key=lambda commit: commit.version):
            if commit.version <= version:
                self._publish_one(table, commit)

    def _publish_one(self, table: Resolved, commit: m.CommitEntry) -> None:
        target, content = table.log / commit_file(commit.version), self._ratified(table, commit)
        try:
            with target.open("xb") as file:
                file.write(content)
        except FileExistsError:
            self._check_published(target, content)

    def _ratified(self, table: Resolved, commit: m.CommitEntry) -> bytes:
        """The content of a commit, as it was staged or sent to the owner."""
        if commit.actions is not None:
            return proposals.content(commit.actions).encode()
        staged = table.log / STAGING[table.feature or ""] / (commit.file_name or "")
        if not staged.exists():
            raise Refused(f"{staged.name} does not exist")
        return staged.read_bytes()

    def _check_published(self, published: Path, content: bytes) -> None:
        if published.read_bytes() != content:
            raise Refused(f"{published.name} is not the ratified commit")

    def _hint(self, table: Resolved, version: int) -> None:
        """Update `_last_checkpoint`, never to an older version."""
        path = table.log / log_files.HINT
        try:
            known = int(json.loads(path.read_bytes())["version"])
        except (OSError, ValueError, KeyError, TypeError):
            known = -1  # a hint that cannot be read is replaced
        if version > known:
            self._write(path, json.dumps({"version": version, "size": 1}).encode())

    def _write(self, path: Path, content: bytes) -> None:
        """Write a file atomically; concurrent jobs use different temporary files."""
        temporary = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
        temporary.write_bytes(content)
        temporary.replace(path)

    # Jobs that need the owner's permission

    def _ask_for(self, client: str, table: Resolved, job: str) -> None:
        """Request the owner's policy. Raises `Refused` if it does not allow the job. A plain table has no owner."""
        if table.reference is None:
            return
        reply = self.owner(client, m.MaintenancePolicy(table=table.reference))
        if not isinstance(reply, m.Policy) or job not in reply.allowed:
            raise Refused(f"the owner does not allow {job}")

    def _maintain(self, client: str, table: Resolved, job: str) -> None:
        self._ask_for(client, table, job)
        if job == "vacuum":
            listed = self._gather(client, table)
            self._vacuum(table, listed, self._latest(table, listed))

    def _vacuum(self, table: Resolved, listed: log_files.Listing, version: int) -> None:
        """Delete the old files below the table's folder that neither the version nor a recent removal names."""
        state, since = self._replay(table, listed, version), time.time() * 1000 - RETENTION
        named = [*state.files.values(), *(body for body in state.removed.values() if self._is_recent(body, since))]
        needed = {table.log.parent / self._located(path) for body in named for path in self._paths(body)}
        files = (path for path in table.log.parent.rglob("*") if path.is_file() and table.log not in path.parents)
        self._delete(path for path in files if path not in needed and not self._is_young(path, since))

    def _is_recent(self, remove: dict[str, Any], since: float) -> bool:
        """Readers of earlier versions may still open the file."""
        return bool(remove.get("deletionTimestamp", 0) >= since)

    def _is_young(self, path: Path, since: float) -> bool:
        """A transaction that is not committed yet may have written the file."""
        return path.stat().st_mtime * 1000 >= since

    def _paths(self, body: dict[str, Any]) -> list[str]:
        """The files that an action names: the data file, and the one with its deletion vector."""
        vector = body.get("deletionVector")
        file = None if vector is None else log_files.vector_file(vector)
        return [body["path"]] if file is None else [body["path"], file]

    def _located(self, path: str) -> str:
        """Relative to the table, or absolute."""
        return unquote(path).removeprefix("file://")

    def _cleanup(self, client: str, table: Resolved, older_than: int) -> None:
        """Delete files older than the cut-off checkpoint; without one, nothing."""
        self._ask_for(client, table, METADATA_CLEANUP)
        listed = self._gather(client, table)
        cut_off = self._cut_off(table, listed, older_than)
        if cut_off is None:
            return
        newest = max(listed.commits, default=-1)
        self._delete(path for version, path in listed.commits.items() if version < cut_off and version != newest)
        self._delete(
            path for checkpoint in listed.checkpoints if checkpoint.version < cut_off for path in checkpoint.files
        )
        self._delete(path for (start, _), path in listed.compactions.items() if start <= cut_off)
        if table.feature == "catalogManaged":
            self._delete(path for version, path in listed.checksums.items() if version < cut_off)
        self._delete(self._staged(table, cut_off))

    def _cut_off(self, table: Resolved, listed: log_files.Listing, older_than: int) -> int | None:
        """The cut-off checkpoint: the newest complete one that can be read, at or before the newest commit that is not
        later than the time."""
        commit = self._cut_off_commit(table, listed, older_than)
        versions = [
            checkpoint.version
            for checkpoint in listed.checkpoints
            if checkpoint.version <= commit and self._is_whole(checkpoint)
        ]
        return max(versions, default=None)

    def _is_whole(self, checkpoint: log_files.Checkpoint) -> bool:
        try:
            return checkpoint.complete and bool(log_files.checkpoint_actions(checkpoint))
        except log_files.Unreadable:
            return False

    def _cut_off_commit(self, table: Resolved, listed: log_files.Listing, older_than: int) -> int:
        try:
            return self._at(table, listed, older_than)
        except Refused:
            return -1

    def _staged(self, table: Resolved, cut_off: int) -> list[Path]:
        """Staged files of the cut-off version and of earlier ones, except those that the owner still lists."""
        if table.feature is None:
            return []
        folder = table.log / STAGING[table.feature]
        listed = {commit.file_name for commit in table.commits}
        staged = sorted(folder.iterdir()) if folder.exists() else []
        return [path for path in staged if int(path.name[:20]) <= cut_off and path.name not in listed]

    def _delete(self, paths: Iterable[Path]) -> None:
        for path in list(paths):
            path.unlink(missing_ok=True)


def identity_of(action: dict[str, Any]) -> str:
    """The key of an action: a later action with the same key replaces it."""
    kind, body = next(iter(action.items()))
    match kind:
        case "add" | "remove":
            return f"file {body['path']} {json.dumps(body.get('deletionVector'))}"
        case "txn":
            return f"txn {body['appId']}"
        case "domainMetadata":
            return f"domain {body['domain']}"
        case _:
            return str(kind)


class ModelMigrator(ModelReader):
    """Requests take-overs and hand-backs from an owner."""

    now: int = proposals.BASE_TIME
    most_tries: int = 100

    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        return answered(lambda: self._take_over(client, request))

    def _take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        """Propose the version after the newest one, and again after each race that a filesystem writer won."""
        table = self._by_path(request.path)
        for _ in range(self.most_tries):
            listed = self._list(table)
            state = self._replay(table, listed, listed.newest)
            change = msgspec.structs.replace(
                request, version=state.version + 1, attempt=str(uuid.uuid4()),
                actions=self._ownership_change(request, state, listed),
            )  # fmt: skip
            reply, again = self._ask_twice(client, change)
            own = isinstance(reply, m.Conflict) and self._is_own(table, change.version, request.attempt, repeated=again)
            if own:
                return m.Ratified(version=change.version)
            if not isinstance(reply, m.Conflict | m.Gap):
                return reply
        raise Refused(f"{self.most_tries} races lost")

    def _ownership_change(self, request: m.TakeOver, state: State, listed: log_files.Listing) -> tuple[str, ...]:
        timestamp = self._change_time(state, listed)
        stamped = state.properties.get(TIMESTAMPS) == "true"
        properties = {**state.properties, TIMESTAMPS: "true"}
        if not stamped:
            properties |= self._enablement(state.version + 1, timestamp)
        return (
            proposals.commit_info(request.attempt, timestamp, "SET TBLPROPERTIES"),
            proposals.line("protocol", self._with(state, request.feature)),
            proposals.line("metaData", {**state.metadata, "configuration": properties}),
        )

    def _with(self, state: State, feature: str) -> dict[str, Any]:
        """Versions become lists of features, without any loss."""
        version = state.protocol.get("minReaderVersion", 1)
        readers = self._for_readers(state) | ({feature} if feature == "catalogManaged" else set())
        lists = {"readerFeatures": sorted(readers)} if version == 3 or feature in readers else {}
        return {
            "minReaderVersion": 3 if lists else version,
            "minWriterVersion": 7,
            **lists,
            "writerFeatures": sorted(self._for_writers(state) | {feature, "inCommitTimestamp"}),
        }

    def _for_readers(self, state: State) -> set[str]:
        """The features that the table supports; version 2 stands for one."""
        mapped = state.protocol.get("minReaderVersion") == 2
        return {*state.protocol.get("readerFeatures", ()), *(("columnMapping",) if mapped else ())}

    def _for_writers(self, state: State) -> set[str]:
        """The features that the table supports. All that came with its version may have been used."""
        version = state.protocol.get("minWriterVersion", 1)
        implied = [features for brought, features in IMPLIED.items() if brought <= version < 7]
        return {*state.features, *chain.from_iterable(implied)}

    def _change_time(self, state: State, listed: log_files.Listing) -> int:
        """A time after that of the previous commit, or after the modification time of its file if it has no
        timestamp."""
        modified = listed.commits[state.version].stat().st_mtime_ns // 1_000_000
        return max(self.now, state.timestamp + 1, modified + 1)

    def _enablement(self, version: int, timestamp: int) -> dict[str, str]:
        return {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp)}

    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        return answered(lambda: self._hand_back(client, request))

    def _hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        for _ in range(self.most_tries):
            table = self._resolve(client, request.table)
            state = self._read(client, table, None, None)
            change = m.HandBack(
                table=table.reference or "", version=state.version + 1, attempt=str(uuid.uuid4()),
                actions=self._release(request, state, table.feature or ""),
            )  # fmt: skip
            reply, again = self._ask_twice(client, change)
            own = isinstance(reply, m.Conflict) and self._is_own(table, change.version, request.attempt, repeated=again)
            if own:
                return m.Ratified(version=change.version)
            if not isinstance(reply, m.Conflict | m.Gap):
                return reply
        raise Refused(f"{self.most_tries} races lost")

    def _release(self, request: m.HandBack, state: State, feature: str) -> tuple[str, ...]:
        """Remove the owner and the feature together; the timestamps stay."""
        return (
            proposals.commit_info(request.attempt, max(self.now, state.timestamp + 1), "UNSET TBLPROPERTIES"),
            proposals.line("protocol", self._without(state.protocol, feature)),
            proposals.line("metaData", {**state.metadata, "configuration": self._unowned(state)}),
        )

    def _without(self, protocol: dict[str, Any], feature: str) -> dict[str, Any]:
        left = {**protocol, "writerFeatures": [name for name in protocol["writerFeatures"] if name != feature]}
        if "readerFeatures" in left:
            left["readerFeatures"] = [name for name in left["readerFeatures"] if name != feature]
        return left

    def _unowned(self, state: State) -> dict[str, str]:
        return {name: value for name, value in state.properties.items() if not name.startswith(OWNER_PROPERTY)}


CLIENT_PROFILES: Final = ("core", "staged", "inline", "direct-publish", "maintenance-policy", "ownership-transfer",
                          "backlog-limit", "discovery", "change-data", "row-tracking")  # fmt: skip
CLIENT_MODES: Final = {**COMMIT_MODES, FILESYSTEM: ("direct",)}


class ModelClient(ModelWriter, ModelMaintainer, ModelMigrator):
    """Answers the client side of the shared interface."""

    name = "model-client"

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return m.Identity(
            name=self.name, version="1", interface_version=m.INTERFACE_VERSION, side="client",
            profiles=CLIENT_PROFILES, features=tuple(CLIENT_MODES), commit_modes=dict(CLIENT_MODES),
            promises=("fresh-snapshots",),
        )  # fmt: skip
