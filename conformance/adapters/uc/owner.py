"""A server of the Delta API as a commit owner: each request becomes the calls that Delta's clients make for it.

With each commit, a client of the API also sends the commit's changes of the table's metadata, because the server does
not read the log. The first part translates between the actions of a log and the documents of the API.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from conformance.adapters.connections import Connections, NoConnectionError
from conformance.adapters.in_process import InProcess, answering
from conformance.adapters.log_folder import LogAccess, LogFolder, OutsideError, content_of
from conformance.adapters.uc.api import (
    DERIVED,
    FREE_JOBS,
    OPERATIONS,
    Address,
    ApiCommit,
    DeltaApi,
    Loaded,
    Refused,
    RequiredProtocol,
    Staged,
    UnansweredError,
)
from conformance.history.events import Promise
from conformance.interface import messages as m
from conformance.interface.log_names import commit_file, staged_file
from conformance.interface.subject import TIMEOUT, AdapterError, Closing, gone
from conformance.models import proposals

_LEGAL_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,99}", re.ASCII)

Actions = Sequence[dict[str, Any]]


def table_name(name: str) -> str:
    """The table's name in the catalog, whose names are lower-case identifiers. A valid name stays as it is."""
    if _LEGAL_NAME.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9]+", "_", name.lower())[:80]
    return f"t_{readable}_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def parsed(content: bytes) -> list[dict[str, Any]]:
    """The actions of a file that can be parsed. The others are left out: the server has to reject them."""
    actions = []
    for line in _text(content).split("\n"):
        try:
            action = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(action, dict):
            actions.append(action)
    return actions


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", "replace")


def _time_of(content: bytes) -> int | None:
    return proposals.time_of(_text(content))


def body_of(actions: Actions, kind: str) -> dict[str, Any] | None:
    """The body of the last action of the kind."""
    bodies = [action[kind] for action in actions if isinstance(action.get(kind), dict)]
    return bodies[-1] if bodies else None


# A new table


def with_requirements(action: str, staged: Staged) -> str:
    """An action of version 0 with the features and properties that the server requires of its tables."""
    try:
        document = json.loads(action)
    except (ValueError, RecursionError):
        return action
    if isinstance(document, dict) and isinstance(document.get("protocol"), dict):
        _demand(document["protocol"], staged.required_protocol)
    elif isinstance(document, dict) and isinstance(document.get("metaData"), dict):
        configuration = document["metaData"].setdefault("configuration", {})
        if isinstance(configuration, dict):
            configuration |= {key: value for key, value in staged.required_properties.items() if value is not None}
    else:
        return action
    return json.dumps(document, separators=(",", ":"))


def _demand(protocol: dict[str, Any], required: RequiredProtocol) -> None:
    for key, features in (("readerFeatures", required.reader_features), ("writerFeatures", required.writer_features)):
        has = protocol.get(key)
        if features and isinstance(has, list):
            protocol[key] = sorted({*has, *features})


def creation_of(name: str, staged: Staged, content: bytes) -> dict[str, Any]:
    """The document that registers the table with this version 0."""
    actions = parsed(content)
    metadata = body_of(actions, "metaData") or {}
    return {
        "name": name,
        "location": staged.location,
        "table-type": "MANAGED",
        "columns": _columns(metadata),
        "partition-columns": metadata.get("partitionColumns") or [],
        "protocol": _protocol(body_of(actions, "protocol") or {}),
        "properties": metadata.get("configuration") or {},
        "last-commit-timestamp-ms": _time_of(content),
    }


def _columns(metadata: Mapping[str, Any]) -> Any:
    try:
        return json.loads(metadata.get("schemaString") or "null")
    except (ValueError, TypeError):
        return None


def _protocol(protocol: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "min-reader-version": protocol.get("minReaderVersion"),
        "min-writer-version": protocol.get("minWriterVersion"),
        "reader-features": protocol.get("readerFeatures") or [],
        "writer-features": protocol.get("writerFeatures") or [],
    }


# What a commit changes


def changes_metadata(actions: Actions) -> bool:
    return any(kind in action for action in actions for kind in ("metaData", "protocol"))


def updates_of(actions: Actions, before: Loaded) -> list[dict[str, Any]]:
    """The updates of metadata, protocol and domains in the commit, compared with what the server has."""
    updates: list[dict[str, Any]] = []
    metadata, protocol = body_of(actions, "metaData"), body_of(actions, "protocol")
    if metadata is not None:
        updates += _metadata_updates(metadata, before)
    if protocol is not None:
        updates.append({"action": "set-protocol", "protocol": _protocol(protocol)})
    return updates + _domain_updates(actions)


def _metadata_updates(metadata: Mapping[str, Any], before: Loaded) -> list[dict[str, Any]]:
    had = {key: value for key, value in (before.metadata.properties or {}).items() if not DERIVED.fullmatch(key)}
    wanted = metadata.get("configuration") or {}
    changed = {key: value for key, value in wanted.items() if had.get(key) != value}
    removed = sorted(key for key in had if key not in wanted)
    columns, partitions = _columns(metadata), list(metadata.get("partitionColumns") or [])
    updates: list[dict[str, Any]] = []
    if columns != before.metadata.columns:
        updates.append({"action": "set-columns", "columns": columns})
    if partitions != list(before.metadata.partition_columns or ()):
        updates.append({"action": "set-partition-columns", "partition-columns": partitions})
    if changed:
        updates.append({"action": "set-properties", "updates": changed})
    if removed:
        updates.append({"action": "remove-properties", "removals": removed})
    return updates


def _domain_updates(actions: Actions) -> list[dict[str, Any]]:
    """The updates of the two metadata domains that the API knows. Other domains are only in the log."""
    known = {"delta.rowTracking", "delta.clustering"}
    bodies = [body for action in actions if isinstance(body := action.get("domainMetadata"), dict)]
    domains = [body for body in bodies if body.get("domain") in known]
    removed = [body["domain"] for body in domains if body.get("removed")]
    updates: list[dict[str, Any]] = []
    if len(domains) > len(removed):
        values = {body["domain"]: json.loads(body["configuration"]) for body in domains if not body.get("removed")}
        updates.append({"action": "set-domain-metadata", "updates": values})
    if removed:
        updates.append({"action": "remove-domain-metadata", "domains": removed})
    return updates


# The actions in a loaded table


def protocol_action(table: Loaded) -> str | None:
    """The protocol, from the table's properties. They do not tell which features are reader features."""
    properties = table.metadata.properties or {}
    features = [key.removeprefix("delta.feature.") for key in sorted(properties) if key.startswith("delta.feature.")]
    reader, writer = properties.get("delta.minReaderVersion"), properties.get("delta.minWriterVersion")
    if reader is None or writer is None or not (reader.isdecimal() and writer.isdecimal()):
        return None
    body = {"minReaderVersion": int(reader), "minWriterVersion": int(writer), "writerFeatures": features}
    return json.dumps({"protocol": body}, separators=(",", ":"))


def metadata_action(table: Loaded) -> str | None:
    if table.metadata.columns is None:
        return None
    properties = table.metadata.properties or {}
    body = {
        "schemaString": json.dumps(table.metadata.columns, separators=(",", ":")),
        "partitionColumns": list(table.metadata.partition_columns or ()),
        "configuration": {key: value for key, value in properties.items() if not DERIVED.fullmatch(key)},
    }
    return json.dumps({"metaData": body}, separators=(",", ":"))


FEATURE: Final = "catalogManaged"
STAGING: Final = "_staged_commits"
PROFILES: Final = (
    "core", "version-0-by-owner", "staged", "idempotent-retry", "discovery", "maintenance-policy", "storage-access",
    "uc-delta-api",
)  # fmt: skip
"""The profiles of such a server. It limits the backlog, but its user cannot choose the limit."""
BACKFILL_EVERY: Final = 3
"""After so many commits the adapter publishes, if the kit leaves publishing to the subject."""


Documents = list[dict[str, Any]]


class Reference(NamedTuple):
    """The kit's reference of a table. A later table of the same name has another reference."""

    name: str
    uuid: str

    def __str__(self) -> str:
        return f"{self.name}@{self.uuid}"


@dataclass(slots=True)
class Known:
    """What the adapter's clients remember."""

    logs: dict[str, LogFolder] = field(default_factory=dict)
    """The log of each table, by reference. Also for dropped tables, whose remaining files the kit may read."""
    created: dict[tuple[str, str], tuple[str, dict[str, Any] | None]] = field(default_factory=dict)
    """For each name and attempt, the reference of the table that the attempt created; and the creating request, if its
    answer arrived."""
    proposed: dict[tuple[str, str], int] = field(default_factory=dict)
    """For each table and attempt, the version that the attempt was proposed for."""
    sent: dict[tuple[str, int, str], tuple[Documents, Documents]] = field(default_factory=dict)
    """For each table, version and file, the requirements and updates of a commit that landed or may have landed. A
    client that sends the commit again sends the same request, byte for byte."""
    publishing: set[str] = field(default_factory=set)
    """The tables whose commits the adapter publishes without a request of the kit."""


class TableGone(Exception):  # noqa: N818  # it is the state of a table
    """The table does not exist, or no longer."""


class LoadRejected(Exception):  # noqa: N818  # it is the result of a read
    """The server rejected the request to load a table."""

    def __init__(self, reply: Refused) -> None:
        super().__init__(str(reply))
        self.reply = reply


class UcOwner(LogAccess):
    """Answers the owner side of the shared interface, from any thread."""

    def __init__(self, address: Address, api: DeltaApi, known: Known, identity: m.Identity) -> None:
        self._address = address
        self._api = api
        self._known = known
        self._identity = identity

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        try:
            return ask()
        except UnansweredError as error:
            return m.Unknown(reason=str(error))
        except NoConnectionError as error:
            return gone(str(error))
        except TableGone:
            return m.NotFound()
        except LoadRejected as refused:
            return _rejected(refused.reply)
        except OutsideError as error:
            return m.Rejected(reason=str(error))

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return self._identity

    # Creating, finding and dropping

    @answering
    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        """catalog-managed, "Creating and Dropping": get a location, write version 0 there, then register the name. If
        the name is taken, the client checks whether the table has the client's own version 0: an earlier request may
        have succeeded although its answer was lost."""
        if request.feature != FEATURE or request.commit_mode != "staged" or request.path is not None:
            return m.Unsupported(
                reason=f"the Delta API creates only {FEATURE} tables with staged commits, where the server chooses"
            )
        name = table_name(request.name)
        if (name, request.attempt) in self._known.created:
            return self._created_again(name, request)
        existing = self._api.load(name)
        if isinstance(existing, Loaded):
            return self._name_taken(name, existing, request)
        if existing.status != 404:
            return _rejected(existing)
        staged = self._api.stage(name)
        if isinstance(staged, Refused):
            return _rejected(staged)
        log = LogFolder(folder_of(staged.location))
        content = content_of(tuple(with_requirements(action, staged) for action in request.actions))
        log.put(commit_file(0), content, if_absent=True)
        creation = creation_of(name, staged, content)
        reply = self._api.create(creation)
        if isinstance(reply, Refused):
            holder = self._api.load(name) if reply.status == 409 else reply
            return self._name_taken(name, holder, request) if isinstance(holder, Loaded) else _rejected(reply)
        return self._created_answer(name, reply, request, creation)

    def _created_again(self, name: str, request: m.CreateTable) -> m.Answer:
        """Send the identical request again, although it landed. If the server creates another table for it, the answer
        names that table."""
        made, creation = self._known.created[name, request.attempt]
        reply = None if creation is None else self._api.create(creation)
        return m.Ratified(version=0, table=str(self._reference_of(name, reply)) if isinstance(reply, Loaded) else made)

    def _name_taken(self, name: str, holder: Loaded, request: m.CreateTable) -> m.Answer:
        log = LogFolder(folder_of(holder.metadata.location))
        if proposals.attempt_of(_text(log.read(commit_file(0)))) == request.attempt:
            return self._created_answer(name, holder, request)
        return m.Conflict(latest=holder.latest, winner_table=str(self._reference_of(name, holder)))

    def _created_answer(
        self, name: str, table: Loaded, request: m.CreateTable, creation: dict[str, Any] | None = None
    ) -> m.Ratified:
        reference = str(self._reference_of(name, table))
        self._known.created[name, request.attempt] = reference, creation
        if request.backfill == "subject":
            self._known.publishing.add(reference)
        return m.Ratified(version=0, table=reference)

    def _reference_of(self, name: str, table: Loaded) -> Reference:
        reference = Reference(name, table.metadata.table_uuid)
        self._known.logs.setdefault(str(reference), LogFolder(folder_of(table.metadata.location)))
        return reference

    @answering
    def load_table(self, client: str, request: m.LoadTable) -> m.Answer:
        if request.name is None:
            return m.Unsupported(reason="the Delta API finds tables by their names")
        name = table_name(request.name)
        table = self._api.load(name)
        if isinstance(table, Refused):
            return m.NotFound() if table.status == 404 else _rejected(table)
        return m.Table(
            table=str(self._reference_of(name, table)),
            feature=FEATURE,
            commit_mode="staged",
            latest=table.latest,
            location=str(folder_of(table.metadata.location)),
            commits=tuple(_entry(commit) for commit in table.unpublished),
            protocol=protocol_action(table),
            metadata=metadata_action(table),
        )

    @answering
    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        name, _ = self._loaded(request.table)
        reply = self._api.drop(name)
        return m.Done() if reply is None else m.NotFound() if reply.status == 404 else _rejected(reply)

    def _loaded(self, table: m.TableRef) -> tuple[str, Loaded]:
        """The table's name, and the server's answer to loading it. Raises `TableGone` if the name now belongs to
        another table, and `LoadRejected`."""
        name, _, uuid = table.rpartition("@")
        loaded = self._api.load(name) if name else None
        if isinstance(loaded, Refused) and loaded.status != 404:
            raise LoadRejected(loaded)
        if not isinstance(loaded, Loaded) or loaded.metadata.table_uuid != uuid:
            raise TableGone(table)
        self._reference_of(name, loaded)
        return name, loaded

    def log_of(self, table: m.TableRef) -> LogFolder:
        """Raises `TableGone`."""
        if table not in self._known.logs:
            self._loaded(table)
        return self._known.logs[table]

    # Committing

    @answering
    def commit(self, client: str, request: m.Commit) -> m.Answer:
        """The server recognizes a commit by the name of its file, which holds the version. So the client must propose
        an attempt for one version only."""
        log = self.log_of(request.table)
        if (request.actions is None) == (request.staged_file is None):
            return m.Rejected(reason="a proposal is either actions or the name of a staged file")
        file_name = request.staged_file or staged_file(request.version, request.attempt)
        if self._known.proposed.setdefault((request.table, request.attempt), request.version) != request.version:
            return m.Rejected(reason=f"{request.attempt} was proposed for another version; each try needs a new id")
        if request.actions is not None:
            content = content_of(request.actions)
            time = _time_of(content)
            if (
                not log.put(f"{STAGING}/{file_name}", content, if_absent=True, modified=time)
                and log.read(f"{STAGING}/{file_name}") != content
            ):
                return m.Rejected(reason=f"{file_name} is staged with other actions; every try needs a new attempt id")
        answer = self._sent(request, log, file_name)
        if isinstance(answer, m.Ratified) and request.table in self._known.publishing:
            self._publish_if_due(request.table, request.version)
        return answer

    def _sent(self, request: m.Commit, log: LogFolder, file_name: str) -> m.Answer:
        """If the backlog is full, the client publishes, and sends the request once more with a report of that."""
        requirements, updates = self._known.sent.get((request.table, request.version, file_name)) or self._request(
            request, log, file_name
        )
        reply = self._update(request, file_name, requirements, updates)
        if reply is not None and reply.status == 429:
            _, full = self._loaded(request.table)
            problem = _publish(log, full.unpublished)
            if problem is None and full.latest is not None:
                report = {"action": "set-latest-backfilled-version", "latest-published-version": full.latest}
                others = [update for update in updates if update["action"] != report["action"]]
                reply = self._update(request, file_name, requirements, [*others, report])
        return m.Ratified(version=request.version) if reply is None else self._refused(request, reply)

    def _request(self, request: m.Commit, log: LogFolder, file_name: str) -> tuple[Documents, Documents]:
        """The requirements and the updates of the request."""
        content = log.read(f"{STAGING}/{file_name}") or b""
        actions = parsed(content)
        requirements: Documents = [{"type": "assert-table-uuid", "uuid": request.table.rpartition("@")[2]}]
        updates: Documents = [{"action": "add-commit", "commit": _commit(request, log, file_name, content)}]
        if changes_metadata(actions):
            _, before = self._loaded(request.table)
            requirements.append({"type": "assert-etag", "etag": before.metadata.etag})
            updates += updates_of(actions, before)
        return requirements, updates

    def _update(self, request: m.Commit, file_name: str, requirements: Documents, updates: Documents) -> Refused | None:
        """Send the request. A rejected request had no effect; the next one is built anew."""
        sent = request.table, request.version, file_name
        self._known.sent[sent] = requirements, updates
        reply = self._api.update(request.table.rpartition("@")[0], requirements, updates)
        if reply is not None:
            self._known.sent.pop(sent, None)
        return reply

    def _refused(self, request: m.Commit, reply: Refused) -> m.Answer:
        """The answer to a rejected commit. The API answers a gap like any bad request, so the table's latest version
        decides whether it was a gap. A commit of version 0 is a bad request too: every existing table has a version
        0."""
        if reply.type == "CommitVersionConflictException":
            return m.Conflict()
        if reply.status not in (400, 409):
            return m.NotFound() if reply.status == 404 else _rejected(reply)
        _, now = self._loaded(request.table)
        if reply.status == 400 and request.version > (-1 if now.latest is None else now.latest) + 1:
            return m.Gap(latest=now.latest)
        if reply.status == 400 and request.version == 0 and now.latest is not None:
            return m.Conflict(latest=now.latest)
        return _rejected(reply)

    def _publish_if_due(self, table: m.TableRef, version: int) -> None:
        """Publish, if it is time. The commit has landed, even if publishing fails."""
        if version % BACKFILL_EVERY == BACKFILL_EVERY - 1:
            self.answered(lambda: self._backfilled(table, version))

    @answering
    def call_api(self, client: str, request: m.CallApi) -> m.Answer:
        return self._api.call(request)

    # Reading and publishing

    @answering
    def get_commits(self, client: str, request: m.GetCommits) -> m.Answer:
        _, table = self._loaded(request.table)
        first, last = request.start or 0, request.end
        wanted = (commit for commit in table.unpublished if first <= commit.version)
        commits = tuple(_entry(commit) for commit in wanted if last is None or commit.version <= last)
        return m.Commits(commits=commits, latest=table.latest)

    @answering
    def maintenance_policy(self, client: str, request: m.MaintenancePolicy) -> m.Answer:
        """Beside the jobs that need no permission, those of the operations that the server allows, as far as this
        module knows them."""
        _, table = self._loaded(request.table)
        jobs = [OPERATIONS.get(operation, ()) for operation in table.allowed_maintenance_operations or ()]
        return m.Policy(allowed=(*FREE_JOBS, *itertools.chain.from_iterable(jobs)))

    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        return self.answered(lambda: self._backfilled(request.table, request.version))

    def _backfilled(self, table: m.TableRef, version: int) -> m.Answer:
        """catalog-managed, "Publishing Commits": publish in order, each file atomically; then report it to the server.
        If the server rejects the report because another client reported a later version, its list shows
        that none is left."""
        name, before = self._loaded(table)
        todo = tuple(commit for commit in before.unpublished if commit.version <= version)
        if not todo:
            return m.Done()
        problem = _publish(self.log_of(table), todo)
        if problem is not None:
            return m.Rejected(reason=problem)
        report = {"action": "set-latest-backfilled-version", "latest-published-version": todo[-1].version}
        reply = self._api.update(name, [{"type": "assert-table-uuid", "uuid": before.metadata.table_uuid}], [report])
        if reply is None:
            return m.Done()
        _, after = self._loaded(table)
        return _rejected(reply) if any(commit.version <= version for commit in after.unpublished) else m.Done()


def identity_of(address: Address, api: DeltaApi) -> m.Identity:
    """Raises `AdapterError` if there is no such schema, `NoConnectionError` if there is no server."""
    config = api.config()
    return m.Identity(
        promises=(Promise.UC_DELTA_API.value,),
        name=address.name,
        version=address.version or f"Delta API {config.protocol_version}",
        interface_version=m.INTERFACE_VERSION,
        side="owner",
        profiles=tuple(profile for profile in PROFILES if profile not in address.without),
        features=(FEATURE,),
        commit_modes={FEATURE: ("staged",)},
        storage=None,
    )


def _publish(log: LogFolder, commits: tuple[ApiCommit, ...]) -> str | None:
    """Publish in order, each file only if it is absent. Returns the problem with the first file that cannot be
    published; the files before it are published."""
    for commit in commits:
        content = log.read(f"{STAGING}/{Path(commit.file_name).name}")
        copy = log.read(commit_file(commit.version))
        if content is None and copy is None:
            return f"the staged file {commit.file_name} of version {commit.version} is missing"
        if content is not None and copy is None and not log.put(commit_file(commit.version), content, if_absent=True):
            copy = log.read(commit_file(commit.version))
        if content is not None and copy is not None and copy != content:
            return f"version {commit.version} is published with a content that differs from {commit.file_name}"
    return None


def _commit(request: m.Commit, log: LogFolder, file_name: str, content: bytes) -> dict[str, Any]:
    """The client's description of its staged file. The file may be missing; the server has to reject that."""
    try:
        status = log.status(f"{STAGING}/{file_name}")
    except OutsideError:
        status = None
    modified = 0 if status is None else status.st_mtime_ns // 1_000_000
    timestamp = _time_of(content)
    return {
        "version": request.version,
        "timestamp": modified if timestamp is None else timestamp,
        "file-name": file_name,
        "file-size": 0 if status is None else status.st_size,
        "file-modification-timestamp": modified,
    }


def _entry(commit: ApiCommit) -> m.CommitEntry:
    return m.CommitEntry(version=commit.version, file_name=commit.file_name, in_commit_timestamp=commit.timestamp)


def _rejected(reply: Refused) -> m.Rejected:
    return m.Rejected(reason=str(reply), retryable=reply.status in (409, 429))


def folder_of(location: str) -> Path:
    """The folder that a location names. Raises `AdapterError` for one that is not on this machine."""
    parts = urlsplit(location)
    if parts.scheme == "" and location.startswith("/"):
        return Path(location)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise AdapterError(
            f"the server keeps tables at {location!r}; the kit reads their logs itself, and can only read "
            f"folders of this machine (file:///...): give the catalog a local storage root"
        )
    return Path(unquote(parts.path))


class UcSubject(Closing):
    """A server of the Delta API as a subject. Safe for threads. `timeout`: seconds that one call of the API may take.
    Raises `AdapterError` if there is no such server, catalog or schema, or the server rejects the token."""

    def __init__(self, address: Address, *, timeout: float = TIMEOUT) -> None:
        self._connections = Connections(address.server, timeout=timeout)
        self._lossy = Connections(address.server, timeout=timeout, reuse=False)
        known = Known()
        heard = DeltaApi(address, self._connections, self._connections)
        unheard = DeltaApi(address, self._connections, self._lossy)
        try:
            self.identity: m.Identity = identity_of(address, heard)
        except (NoConnectionError, UnansweredError) as error:
            self.close()
            raise AdapterError(f"no server at {address.server}: {error}. Start the server before the kit") from error
        except BaseException:
            self.close()
            raise
        self._asked = InProcess(UcOwner(address, heard, known, self.identity))
        self._lost = InProcess(UcOwner(address, unheard, known, self.identity))

    def ask(self, client: str, request: m.Request) -> m.Answer:
        return self._asked.ask(client, request)

    def lose(self, client: str, request: m.Request) -> m.Answer:
        """Ask, and lose the server's answers to all changes on the wire. Only the kit gets these answers."""
        return self._lost.ask(client, request)

    def close(self) -> None:
        """Close the connections. Idempotent; the server itself goes on."""
        self._connections.close()
        self._lossy.close()
