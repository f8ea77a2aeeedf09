"""A reader in a few pages: from an owner's commits and a listing to a snapshot.

catalog-managed, "Reading Catalog-managed Tables", and managed-commits, "Reading managed-commit tables": ask the owner
first, list the log afterwards, and combine both without a gap. The other files follow the general rules of the log: a
checkpoint replaces all commits up to its version, a compaction those in its range, and a checksum describes the
expected state of a version.
"""

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, commit_file
from conformance.models.log_files import Checkpoint, Listing, Unreadable, actions_in, checkpoint_actions, listing_of
from conformance.models.proposals import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, MODE, TIMESTAMPS, attempt_of

Owner = Callable[[str, m.Request], m.Answer]
Actions = list[dict[str, Any]]


class Refused(Exception):  # noqa: N818  # it is an answer
    """The client rejects the request, with a reason."""


class Unsure(Exception):  # noqa: N818  # it is an answer
    """The client cannot know whether the request took effect."""


def answered(ask: Callable[[], m.Answer]) -> m.Answer:
    """The answer of `ask`; `Refused` and `Unsure` become answers too."""
    try:
        return ask()
    except (Refused, Unreadable, FileNotFoundError) as refused:
        return m.Rejected(reason=str(refused))
    except Unsure as unsure:
        return m.Unknown(reason=str(unsure))


READER_VERSION: Final = 3
READER_FEATURES: Final = frozenset(
    {"catalogManaged", "vacuumProtocolCheck", "deletionVectors", "v2Checkpoint", "columnMapping"}
)
"""What this reader supports."""


@dataclass(kw_only=True)
class State:
    """A snapshot: all actions of its versions, reconciled."""

    version: int = -1
    timestamp: int = 0
    """The commit time of the version; 0 if it is no longer known."""
    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    files: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Files, by path as written and deletion vector."""
    removed: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Files that are not there any more, as far as the log still says so."""
    applications: dict[str, int] = field(default_factory=dict)
    transactions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The newest `txn` of each application."""
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.metadata.get("configuration") or {})

    @property
    def features(self) -> frozenset[str]:
        """The writer features that the protocol lists."""
        return frozenset(self.protocol.get("writerFeatures", ()))

    @property
    def enabled_since(self) -> int | None:
        """The first version with an in-commit timestamp; None if they are not enabled."""
        if self.properties.get(TIMESTAMPS) != "true":
            return None
        return int(self.properties.get(ENABLEMENT_VERSION, 0))


@dataclass(kw_only=True)
class Resolved:
    """A table, as returned by its owner."""

    name: str | None
    reference: str | None
    feature: str | None
    commit_mode: str
    log: Path
    latest: int | None = None
    commits: tuple[m.CommitEntry, ...] = ()

    @property
    def owned(self) -> dict[int, m.CommitEntry]:
        return {commit.version: commit for commit in self.commits}


class ModelReader:
    """Reads through `owner`. The private methods are its steps, in order."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        try:
            if request.path is not None:
                table = self._by_path(request.path)
            else:
                table = self._resolve(client, request.table or "")
            state = self._read(client, table, request.version, request.timestamp)
            if table.reference is None:
                self._check_path_access(state)
        except (Refused, Unreadable, FileNotFoundError) as refused:
            return m.Rejected(reason=str(refused))
        except Unsure as unsure:
            return m.Unknown(reason=str(unsure))
        return self._snapshot_read(state, stale=table.reference is None)

    def _snapshot_read(self, state: State, *, stale: bool) -> m.SnapshotRead:
        files = state.files.values()
        return m.SnapshotRead(
            version=state.version,
            files=tuple(sorted(self._decoded(add["path"]) for add in files)),
            stale=stale,
            timestamp=state.timestamp or None,
            properties=state.properties,
            partitions={self._decoded(add["path"]): self._partition(self._by_names(state, add)) for add in files},
            applications=self._live(state),
            domains={name: body["configuration"] for name, body in state.domains.items()},
            warnings=tuple(state.warnings),
        )

    def _live(self, state: State) -> dict[str, int]:
        """The applications whose transactions have not expired. The kit's tables have no other retention than days."""
        days = re.fullmatch(r"interval (\d+) days", state.properties.get("delta.setTransactionRetentionDuration", ""))
        oldest = -math.inf if days is None else time.time() * 1000 - int(days[1]) * 24 * 3600 * 1000
        times = {name: body.get("lastUpdated", math.inf) for name, body in state.transactions.items()}
        return {name: version for name, version in state.applications.items() if times.get(name, math.inf) > oldest}

    def _decoded(self, path: str) -> str:
        """The path in an action is a URI, which is decoded once."""
        return unquote(path)

    def _by_names(self, state: State, add: dict[str, Any]) -> dict[str, Any]:
        """A file with its partition values by the names of columns, which may have physical names."""
        values = add.get("partitionValues") or {}
        return {**add, "partitionValues": {"part": values.get(self._stored_name(state))}}

    def _stored_name(self, state: State) -> str:
        """The name of the column `part` in partition values."""
        mapped = "columnMapping" in state.protocol.get("readerFeatures", ())
        return physical_part(state) if mapped and state.properties.get(MODE, "none") != "none" else "part"

    def _partition(self, add: dict[str, Any]) -> str | None:
        """A partition value; the empty string means null."""
        return (add.get("partitionValues") or {}).get("part") or None

    def _ask_twice(self, client: str, request: m.Request) -> tuple[m.Answer, bool]:
        """After a lost answer, send the identical request once more: the owner recognizes it. A refusal is about the
        second request only. Returns the answer, and whether it is that to the second request."""
        reply = self.owner(client, request)
        if not isinstance(reply, m.Unknown):
            return reply, False
        again = self.owner(client, request)
        return (reply if isinstance(again, m.Rejected | m.NotFound | m.Unsupported) else again), True

    def _is_own(self, table: Resolved, version: int, attempt: str, *, repeated: bool) -> bool:
        """Whether this attempt committed the version: the network may have delivered the request twice. Raises
        `Unsure` if the request was repeated, and the file is missing: a cleanup may have deleted it."""
        path = table.log / commit_file(version)
        if repeated and not path.exists():
            raise Unsure(f"{path.name} does not exist, so it does not show who committed version {version}")
        return path.exists() and attempt_of(path.read_text("utf-8")) == attempt

    # The table and the version to read

    def _resolve(self, client: str, name: str) -> Resolved:
        """Resolve a table through the owner, which returns its commits too. A path names a plain table, which has no
        owner."""
        if "/" in name:
            return self._by_path(name)
        reply = self.owner(client, m.LoadTable(name=name))
        if isinstance(reply, m.NotFound):
            raise Refused(f"there is no table {name}")
        if not isinstance(reply, m.Table) or reply.location is None:
            raise Unsure("the owner does not return the table's location")
        return Resolved(
            name=name,
            reference=reply.table,
            feature=reply.feature,
            commit_mode=reply.commit_mode,
            log=Path(reply.location) / LOG,
        )

    def _by_path(self, path: str) -> Resolved:
        """A managedCommit table by its published versions, which may be stale. A catalogManaged table is rejected."""
        table = Resolved(name=None, reference=None, feature=None, commit_mode="", log=Path(path) / LOG)
        listed = self._list(table)
        if listed.newest < 0:
            raise Refused(f"there is no table at {path}")
        try:
            state = self._replay(table, listed, listed.newest)
        except (Refused, Unreadable, FileNotFoundError):
            return table  # an older version may be readable
        self._check_path_access(state)
        return table

    def _check_path_access(self, state: State) -> None:
        if "catalogManaged" in state.protocol.get("readerFeatures", ()):
            raise Refused("a catalog-managed table is read through its catalog")

    def _gather(self, client: str, table: Resolved) -> Listing:
        """Ask the owner first, list the log afterwards: a commit that is published in between is then in both, not in
        neither."""
        self._ask(client, table)
        return self._list(table)

    def _ask(self, client: str, table: Resolved) -> None:
        """The owner's latest version and its commits."""
        if table.reference is None:
            return
        reply = self.owner(client, m.GetCommits(table=table.reference))
        if not isinstance(reply, m.Commits):
            raise Unsure("the owner does not return its commits")
        table.latest = None if reply.latest == -1 else reply.latest
        table.commits = reply.commits

    def _list(self, table: Resolved) -> Listing:
        try:
            return listing_of(sorted(table.log.iterdir()))
        except FileNotFoundError as error:
            raise Refused(f"there is no log at {table.log}") from error

    def _target(self, table: Resolved, listed: Listing, version: int | None) -> int:
        """The version to read: the requested one, or the latest."""
        latest = self._latest(table, listed)
        if latest < 0:
            raise Refused("the table has no version")
        if version is not None and version > latest:
            raise Refused(f"version {version} does not exist; the latest is {latest}")
        return latest if version is None else version

    def _latest(self, table: Resolved, listed: Listing) -> int:
        """The catalog's latest version; for managedCommit, where -1 is not a claim, the listing may show a later
        one."""
        if table.latest is None:
            return listed.newest
        return table.latest if table.feature == "catalogManaged" else max(listed.newest, table.latest)

    # From files to a snapshot

    def _read(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        state = self._found(client, table, version, timestamp)
        self._check_readable(state)
        return state

    def _check_readable(self, state: State) -> None:
        unknown = sorted({*state.protocol.get("readerFeatures", ())} - READER_FEATURES)
        if unknown or state.protocol.get("minReaderVersion", 1) > READER_VERSION:
            raise Refused(f"the protocol {state.protocol} is not supported")

    def _found(self, client: str, table: Resolved, version: int | None, timestamp: int | None) -> State:
        listed = self._gather(client, table)
        if timestamp is not None:
            version = self._at(table, listed, timestamp)
        state = self._replay(table, listed, self._target(table, listed, version))
        if version is not None:
            state.timestamp = self._time(table, listed, self._decisive(table, listed, state), state.version)
        return state

    def _decisive(self, table: Resolved, listed: Listing, state: State) -> State:
        """The version whose settings decide about in-commit timestamps: the newest one or, if that cannot be read, the
        version itself."""
        try:
            return self._replay(table, listed, self._target(table, listed, None))
        except (Refused, Unreadable, FileNotFoundError):
            return state

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        """Start from the newest usable checkpoint, and apply every later commit up to the target."""
        state = self._start(listed, target)
        owned = table.owned
        while state.version < target:
            end = self._compacted(listed, owned, state.version + 1, target)
            if end is None:
                self._apply(state, state.version + 1, self._commit(table, listed, owned, state.version + 1))
            else:
                self._apply(state, end, self._opened(listed.compactions[state.version + 1, end]))
        state.timestamp = self._time(table, listed, state, target)
        state.warnings = self._disagreements(listed, state)
        return state

    def _start(self, listed: Listing, target: int) -> State:
        """The state of the newest readable checkpoint."""
        for checkpoint in self._checkpoints(listed, target):
            try:
                state = State()
                self._apply(state, checkpoint.version, self._checkpointed(checkpoint))
            except Unreadable:
                continue
            return state
        return State()

    def _checkpoints(self, listed: Listing, target: int) -> list[Checkpoint]:
        """The usable checkpoints, the best one first. The reader lists them, and so does not need
        `_last_checkpoint`."""
        usable = [
            checkpoint for checkpoint in listed.checkpoints if checkpoint.complete and checkpoint.version <= target
        ]
        return sorted(usable, key=lambda checkpoint: (checkpoint.version, checkpoint.rank), reverse=True)

    def _compacted(self, listed: Listing, owned: dict[int, m.CommitEntry], start: int, target: int) -> int | None:
        """The last version of the widest compaction that starts at `start`, ends at or before the target, and covers no
        commit that the owner lists."""
        ends = [end for first, end in listed.compactions if first == start and end <= target]
        return max((end for end in ends if not any(start <= version <= end for version in owned)), default=None)

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        """The actions of a version, from the owner's copy if it has one, otherwise from the published file."""
        commit = owned.get(version)
        if commit is not None and commit.actions is not None:
            return [json.loads(action) for action in commit.actions]
        if commit is not None and commit.file_name is not None:
            staged = table.log / STAGING[table.feature or ""] / commit.file_name
            if staged.exists():
                return self._opened(staged)
        published = listed.commits.get(version, table.log / commit_file(version))
        if version not in listed.commits and not (commit is not None and published.exists()):
            raise Refused(f"version {version} is missing")
        return self._opened(published)

    def _opened(self, path: Path) -> Actions:
        """The actions of a commit file. An empty or malformed file is an error, and is not skipped."""
        return actions_in(path)

    def _checkpointed(self, checkpoint: Checkpoint) -> Actions:
        """The actions of a checkpoint: of all its parts and sidecars."""
        return checkpoint_actions(checkpoint)

    def _apply(self, state: State, version: int, actions: Actions) -> None:
        """Apply one commit to the previous version; also a compaction to a version, or a checkpoint to an empty
        state."""
        state.version = version
        for action in actions:
            for kind, body in action.items():
                self._apply_action(state, kind, body)

    def _apply_action(self, state: State, kind: str, body: dict[str, Any]) -> None:
        """Apply one action: the latest of each kind counts. Unknown actions are ignored."""
        match kind:
            case "commitInfo":
                state.timestamp = body.get("inCommitTimestamp", 0)
            case "protocol":
                state.protocol = body
            case "metaData":
                state.metadata = body
            case "add":
                state.files[file_of(body)] = body
                state.removed.pop(file_of(body), None)
            case "remove":
                state.files.pop(file_of(body), None)
                state.removed[file_of(body)] = body
            case "txn":
                state.applications[body["appId"]] = body["version"]
                state.transactions[body["appId"]] = body
            case "domainMetadata":
                state.domains[body["domain"]] = body
                if body.get("removed"):
                    del state.domains[body["domain"]]

    def _disagreements(self, listed: Listing, state: State) -> list[str]:
        """The differences between this version and its checksum; none if the checksum cannot be read."""
        try:
            checksum = json.loads(listed.checksums[state.version].read_text("utf-8"))
            stated = {body["domain"]: body["configuration"] for body in checksum.get("domainMetadata") or ()}
        except (KeyError, OSError, ValueError, TypeError, AttributeError):
            return []
        differences = []
        if checksum.get("numFiles", len(state.files)) != len(state.files):
            differences.append(f"the checksum counts {checksum['numFiles']} files, the log {len(state.files)}")
        domains = {name: body["configuration"] for name, body in state.domains.items()}
        if "domainMetadata" in checksum and stated != domains:
            differences.append(f"the checksum has the domains {stated}, the log {domains}")
        return differences

    # Time travel

    def _at(self, table: Resolved, listed: Listing, timestamp: int) -> int:
        """The latest version at or before the time, among those before or those after the enablement of in-commit
        timestamps."""
        latest = self._replay(table, listed, self._target(table, listed, None))
        times = self._times(table, listed, latest)
        if latest.enabled_since is not None:
            after = timestamp >= self._enabled_at(table, listed, latest)
            times = {v: time for v, time in times.items() if (v >= latest.enabled_since) == after}
        reached = [version for version, time in times.items() if time <= timestamp]
        if not reached or times.get(latest.version, timestamp) < timestamp:
            raise Refused(f"{timestamp} is before the first commit or after the last one: {times}")
        return max(reached)

    def _enabled_at(self, table: Resolved, listed: Listing, latest: State) -> int:
        """The time of the enablement; 0 if the table was created with the feature."""
        if (ENABLEMENT_VERSION in latest.properties) != (ENABLEMENT_TIMESTAMP in latest.properties):
            raise Refused(f"the table has only one of {ENABLEMENT_VERSION} and {ENABLEMENT_TIMESTAMP}")
        return int(latest.properties.get(ENABLEMENT_TIMESTAMP, 0))

    def _times(self, table: Resolved, listed: Listing, latest: State) -> dict[int, int]:
        """The times of all versions whose commits exist, including unpublished ones."""
        versions = [latest.version]
        while versions[-1] - 1 in listed.commits or versions[-1] - 1 in table.owned:
            versions.append(versions[-1] - 1)
        times: dict[int, int] = {}
        for version in reversed(versions):
            time = self._time(table, listed, latest, version)
            before = latest.enabled_since is None or version < latest.enabled_since
            times[version] = self._adjusted(time, times.get(version - 1)) if before else time
        return times

    def _adjusted(self, modified: int, previous: int | None) -> int:
        """Modification times made ascending, because the order of versions is."""
        return modified if previous is None else max(modified, previous + 1)

    def _time(self, table: Resolved, listed: Listing, state: State, version: int) -> int:
        """The in-commit timestamp of a version from the enablement on; before that the modification time of its
        file."""
        published = listed.commits.get(version)
        if state.enabled_since is None or version < state.enabled_since:
            return 0 if published is None else int(published.stat().st_mtime_ns // 1_000_000)
        if published is None and version not in table.owned:
            return 0
        infos = [
            entry["commitInfo"] for entry in self._commit(table, listed, table.owned, version) if "commitInfo" in entry
        ]
        time = infos[0].get("inCommitTimestamp") if infos else None
        return time if isinstance(time, int) else 0


def physical_part(state: State) -> str:
    """The physical name of the column `part`, by the schema; its name if it has none."""
    fields = json.loads(state.metadata["schemaString"])["fields"]
    named = {field["name"]: field["metadata"].get("delta.columnMapping.physicalName") for field in fields}
    return named["part"] or "part"


def file_of(body: dict[str, Any]) -> tuple[str, str]:
    """The identity of a file: its path and its deletion vector."""
    vector = body.get("deletionVector") or {}
    return body["path"], f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}{vector.get('offset', '')}"
