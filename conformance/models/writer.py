"""A writer in one page: one transaction, checked against concurrent commits, proposed until it is ratified.

managed-commits and catalog-managed, "Commit Protocol"; in-commit timestamps, "Writer Requirements"; the order of the
conflict checks is that of the document about commits and conflicts.
"""

import copy
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from conformance.interface import messages as m
from conformance.interface.log_names import STAGING, commit_file, staged_file
from conformance.models import proposals
from conformance.models.log_files import Unreadable
from conformance.models.owner import OWNER_PROPERTY
from conformance.models.reader import READER_FEATURES, ModelReader, Refused, Resolved, State, Unsure, file_of
from conformance.models.storage import FolderStorage

ROW_TRACKING: Final = "rowTracking"
CHECKPOINT_PROTECTION: Final = "checkpointProtection"
ROW_DOMAIN: Final = "delta.rowTracking"
ROW_IDS: Final = ("baseRowId", "defaultRowCommitVersion")
"""Fields of a file that its removal, and a checkpoint, keep."""

SUPPORTED: Final = frozenset(
    {
        "managedCommit", "catalogManaged", "inCommitTimestamp", "appendOnly", "domainMetadata", "invariants",
        "vacuumProtocolCheck", "changeDataFeed", CHECKPOINT_PROTECTION, ROW_TRACKING, *READER_FEATURES,
    }
)  # fmt: skip
"""Protocol features that this writer supports."""
WRITER_VERSION: Final = 7


class Conflicting(Exception):  # noqa: N818  # it is an answer
    """Another transaction changed something that this one relied on."""


@dataclass(kw_only=True)
class Transaction:
    """A transaction: its changes, and the snapshot that it read."""

    request: m.Transact
    table: Resolved
    base: State
    """The snapshot that it read."""
    checked: State
    """The newest snapshot against which it was checked."""
    attempts: list[str] = field(default_factory=list)


class ModelWriter(ModelReader):
    """Commits through `owner`, in the table's commit mode."""

    most_tries: int = 100
    """The number of lost races after which it gives up; in each of them another writer succeeded."""

    most_questions: int = 5
    """The number of unanswered lookups of an attempt after which it gives up."""

    now: int = proposals.BASE_TIME
    """The clock, in ms since the epoch. It does not advance, so timestamps must increase without it."""

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        return self._committed(lambda files: self._transact(client, self._begun(client, request, files)))

    def _begun(self, client: str, request: m.Transact, files: list[Path]) -> Transaction:
        """Read the snapshot, and write the data files, which are added to `files`."""
        self._refuse_protected(request)
        table = self._open(client, request.table)
        base = self._read(client, table, request.read_version, None)
        self._check_writable(base.protocol)
        self._check_removable(base, request)
        transaction = Transaction(request=request, table=table, base=base, checked=copy.deepcopy(base))
        files += self._write_files(transaction)
        return transaction

    def _committed(self, commit: Callable[[list[Path]], m.Answer]) -> m.Answer:
        """The answer. `commit` adds the data files that it writes to its argument."""
        files: list[Path] = []
        try:
            return commit(files)
        except Conflicting:
            self._discard_files(files)
            return m.Conflict()
        except (Refused, Unreadable, FileNotFoundError) as refused:
            self._discard_files(files)
            return m.Rejected(reason=str(refused))
        except Unsure as unsure:
            self._keep_files(files)
            return m.Unknown(reason=str(unsure))

    def _check_writable(self, protocol: dict[str, Any]) -> None:
        if protocol.get("minWriterVersion", 2) > WRITER_VERSION or {*protocol.get("writerFeatures", ())} - SUPPORTED:
            raise Refused(f"the protocol {protocol} is not supported")

    def _check_removable(self, base: State, request: m.Transact) -> None:
        """Delta's protocol, "Append-only Tables": data may only be rearranged. A replacement of the table ends that."""
        removes = request.removes and request.data_change and not request.replace_table
        if removes and "appendOnly" in base.features and base.properties.get("delta.appendOnly") == "true":
            raise Refused("the table is append-only")

    def _write_files(self, transaction: Transaction) -> list[Path]:
        """Write the data files below the table's folder, before any commit names them. They are empty: nothing reads
        them."""
        request, location = transaction.request, transaction.table.log.parent
        inside = (file.path for file in (*request.adds, *request.changes) if not file.path.startswith("/"))
        files = [location / path for path in inside]
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return files

    def _discard_files(self, files: list[Path]) -> None:
        """The transaction certainly failed: no commit names its files."""
        for file in files:
            file.unlink()

    def _keep_files(self, files: list[Path]) -> None:
        """The commit may have landed: its files stay."""

    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        """After a conflict, version 0 shows whether this client created the table: some owners do not recognize a
        replay."""
        reply, again = self._ask_twice(client, request)
        if not isinstance(reply, m.Conflict):
            return reply
        try:
            table = self._resolve(client, request.name)
            own = self._is_own(table, 0, request.attempt, repeated=again)
        except (Refused, Unsure) as problem:
            return m.Unknown(reason=str(problem)) if again else reply
        return m.Ratified(version=0, table=table.reference) if own else reply

    def _open(self, client: str, name: str) -> Resolved:
        """Open a table by name through the owner. For a path, the log says whether the table has an owner, which is
        then used; a catalog-managed table is written only through its catalog."""
        if "/" not in name:
            return self._resolve(client, name)
        table = self._by_path(name)
        state = self._read(client, table, None, None)
        if OWNER_PROPERTY not in state.properties:
            return table
        reply = self.owner(client, m.LoadTable(path=name))
        if not isinstance(reply, m.Table):
            raise Refused(f"the owner of {name} cannot be reached")
        return Resolved(
            name=None, reference=reply.table, feature=reply.feature, commit_mode=reply.commit_mode, log=table.log
        )

    def _refuse_protected(self, request: m.Transact) -> None:
        """Reject changes to the properties of ownership and of timestamps."""
        named = {*request.set_properties, *request.unset_properties}
        protected = sorted(
            name for name in named if "incommittimestamp" in name.lower() or name.startswith(OWNER_PROPERTY)
        )
        if protected:
            raise Refused(f"{', '.join(protected)} cannot be changed")

    def _transact(self, client: str, transaction: Transaction) -> m.Answer:
        if self._recorded(transaction.base, transaction.request) or self._is_empty(transaction.request):
            return m.Committed(version=None)
        for _ in range(self.most_tries):
            self._catch_up(client, transaction)
            version = transaction.checked.version + 1
            landed = self._propose(client, transaction, version)
            if landed:
                return m.Committed(version=version)
        raise Refused(f"{self.most_tries} races lost")

    def _recorded(self, base: State, request: m.Transact) -> bool:
        """Whether the table has this batch of the application, or a later one."""
        if request.application is None:
            return False
        name, version = request.application
        return base.applications.get(name, -1) >= version

    def _is_empty(self, request: m.Transact) -> bool:
        changes = (request.adds, request.removes, request.add_feature, request.domain, request.application)
        return request.if_needed and not any(changes) and not self._changes_metadata(request)

    def _changes_metadata(self, request: m.Transact) -> bool:
        changes = (request.set_properties, request.unset_properties, request.replace_table)
        return any(changes) or request.partition_by is not None

    # Winners of a race

    def _catch_up(self, client: str, transaction: Transaction) -> None:
        """Check against every later version, oldest first."""
        listed = self._gather(client, transaction.table)
        target = self._target(transaction.table, listed, None)
        owned = {commit.version: commit for commit in transaction.table.commits}
        for version in range(transaction.checked.version + 1, target + 1):
            winner = self._commit(transaction.table, listed, owned, version)
            self._check(transaction, winner)
            self._apply(transaction.checked, version, winner)

    def _check(self, transaction: Transaction, winner: list[dict[str, Any]]) -> None:
        """Run all checks in order. Raises `Conflicting`."""
        request, base = transaction.request, transaction.base
        did: dict[str, list[dict[str, Any]]] = {}
        for action in winner:
            for kind, body in action.items():
                did.setdefault(kind, []).append(body)
        if "protocol" in did:
            self._check_protocol(request, did["protocol"][0], transaction.checked)
        if "metaData" in did:
            raise Conflicting("the metadata changed")
        self._check_domains(request, did.get("domainMetadata", []))
        self._check_applications(request, did.get("txn", []))
        self._check_added(request, base, winner, did.get("add", []))
        self._check_removed(request, base, did.get("remove", []))

    def _check_protocol(self, request: m.Transact, protocol: dict[str, Any], before: State) -> None:
        features = set(protocol.get("writerFeatures", ()))
        if not features <= SUPPORTED:
            raise Conflicting(f"unknown features: {sorted(features - SUPPORTED)}")
        dropped = set(before.protocol.get("writerFeatures", ())) - features
        if request.add_feature is not None or dropped:
            raise Conflicting("the protocol changed")

    def _check_domains(self, request: m.Transact, domains: list[dict[str, Any]]) -> None:
        if request.domain is not None and any(body["domain"] == request.domain[0] for body in domains):
            raise Conflicting("the domain changed")

    def _check_applications(self, request: m.Transact, applications: list[dict[str, Any]]) -> None:
        if request.application is not None and any(body["appId"] == request.application[0] for body in applications):
            raise Conflicting("the application committed")

    def _check_added(
        self, request: m.Transact, base: State, winner: list[dict[str, Any]], added: list[dict[str, Any]]
    ) -> None:
        """Check the winner's files that the isolation level considers against what was read."""
        if request.partition_by is not None and added:
            raise Conflicting("files were added by the old partitioning")
        if request.reads is None or request.isolation is m.Isolation.SNAPSHOT:
            return
        blind = any(action.get("commitInfo", {}).get("isBlindAppend") for action in winner)
        if blind and request.isolation is m.Isolation.WRITE_SERIALIZABLE and not self._changes_metadata(request):
            return
        if any(self._was_read(request, base, body) for body in added):
            raise Conflicting("files were added to what was read")

    def _check_removed(self, request: m.Transact, base: State, removed: list[dict[str, Any]]) -> None:
        mine = set(request.removes)
        for body in removed:
            known = base.files.get(file_of(body))
            if request.reads == "*" or (request.reads is not None and known and self._was_read(request, base, known)):
                raise Conflicting("files that were read were removed")
            if unquote(body["path"]) in mine:
                raise Conflicting("a file was removed by both")

    def _was_read(self, request: m.Transact, base: State, file: dict[str, Any]) -> bool:
        """Whether the file is in what the transaction read: the whole table, or one partition."""
        if request.reads == "*" or not base.metadata.get("partitionColumns"):
            return request.reads is not None
        return self._partition(self._by_names(base, file)) == request.reads

    # The proposal

    def _propose(self, client: str, transaction: Transaction, version: int) -> bool:
        """Propose once, as a new attempt. Returns whether it landed; False if another writer won."""
        attempt = str(uuid.uuid4())
        transaction.attempts.append(attempt)
        actions = self._actions(transaction, version)
        if transaction.table.reference is None:
            return self._put(transaction.table, version, actions)
        request = self._request(transaction.table, version, attempt, actions)
        reply = self.owner(client, request)
        if isinstance(reply, m.Unknown):
            return self._resolved(client, transaction, request)
        if isinstance(reply, m.Rejected) and reply.retryable:
            self._make_room(client, request)
            return False
        if isinstance(reply, m.Rejected | m.NotFound | m.Unsupported):
            self._refused(reply)
        return self._won(reply)

    def _won(self, reply: m.Answer) -> bool:
        """The details of a conflict may be stale, so the winners are requested from the owner."""
        return isinstance(reply, m.Ratified)

    def _make_room(self, client: str, request: m.Commit) -> None:
        """Request a backfill, because the backlog is full."""
        self.owner(client, m.BackfillToVersion(table=request.table, version=request.version - 1))

    def _refused(self, reply: m.Answer) -> None:
        """A final rejection: the transaction fails."""
        raise Refused(f"the owner rejected the commit: {reply}")

    def _put(self, table: Resolved, version: int, actions: tuple[str, ...]) -> bool:
        """Commit to a table without an owner: the first writer that creates the file wins."""
        storage = FolderStorage(table.log.parent)
        return storage.put_if_absent(str(table.log / commit_file(version)), proposals.content(actions), self.now)

    def _request(self, table: Resolved, version: int, attempt: str, actions: tuple[str, ...]) -> m.Commit:
        """The proposal in the table's commit mode; a staged commit is first written to its own file."""
        if table.commit_mode != "staged":
            return m.Commit(table=table.reference or "", version=version, attempt=attempt, actions=actions)
        name = staged_file(version, attempt)
        folder = table.log / STAGING[table.feature or ""]
        storage = FolderStorage(table.log.parent)
        storage.put_if_absent(str(folder / name), proposals.content(actions), self.now)
        return m.Commit(table=table.reference or "", version=version, attempt=attempt, staged_file=name)

    def _resolved(self, client: str, transaction: Transaction, request: m.Commit) -> bool:
        """After an unknown outcome: whether this attempt landed, before anything is proposed again."""
        for _ in range(self.most_questions):
            reply = self.owner(client, m.AttemptOutcome(table=request.table, attempt=request.attempt))
            if not isinstance(reply, m.Unknown):
                return self._outcome(reply)
        raise Unsure(f"attempt {request.attempt} of version {request.version} is not resolved")

    def _outcome(self, reply: m.Answer) -> bool:
        if not isinstance(reply, m.Landed | m.NotLanded):
            raise Unsure(f"the owner does not know the outcome: {reply}")
        return isinstance(reply, m.Landed)

    def _actions(self, transaction: Transaction, version: int) -> tuple[str, ...]:
        request, newest = transaction.request, transaction.checked
        timestamp = self._timestamp(newest)
        blind = request.reads is None and not request.removes and not request.replace_table
        actions = [proposals.commit_info(request.marker, timestamp, "WRITE", isBlindAppend=blind)]
        if request.add_feature is not None:
            actions.append(proposals.line("protocol", self._protocol(newest, request.add_feature)))
        metadata = self._metadata(newest, request)
        if self._changes_metadata(request):
            actions.append(proposals.line("metaData", metadata))
        if request.application is not None:
            name, number = request.application
            actions.append(proposals.line("txn", {"appId": name, "version": number}))
        if request.domain is not None:
            domain, configuration = request.domain
            body = {"domain": domain, "configuration": configuration, "removed": False}
            actions.append(proposals.line("domainMetadata", body))
        removes = [unquote(path) for path, _ in newest.files] if request.replace_table else list(request.removes)
        removed = [file for file in newest.files.values() if unquote(file["path"]) in removes]
        actions += [proposals.line("remove", self._removal(file, request, timestamp)) for file in removed]
        partitioned = bool(metadata.get("partitionColumns"))
        adds = [self._add(add, request, timestamp, partitioned=partitioned) for add in request.adds]
        adds = adds if ROW_TRACKING not in newest.features else self._with_row_ids(adds, transaction, version)
        written = [*adds, *self._changes(transaction, partitioned=partitioned)]
        column = self._stored_name(replace(newest, metadata=metadata))
        return (*actions, *(self._with_column(line, column) for line in written))

    def _with_column(self, line: str, column: str) -> str:
        """The action with the name that the column `part` has in partition values."""
        if column == "part":
            return line
        [(kind, body)] = json.loads(line).items()
        if "partitionValues" not in body:
            return line
        values = {column if name == "part" else name: value for name, value in body["partitionValues"].items()}
        return proposals.line(kind, {**body, "partitionValues": values})

    def _changes(self, transaction: Transaction, *, partitioned: bool) -> list[str]:
        """The change data actions, for the commit of the change."""
        actions = []
        for change in transaction.request.changes:
            values = {"part": change.partition} if partitioned else {}
            body = {"path": quote(change.path), "partitionValues": values, "size": 1, "dataChange": False}
            actions.append(proposals.line("cdc", body))
        return actions

    def _with_row_ids(self, adds: list[str], transaction: Transaction, version: int) -> list[str]:
        """Row tracking: ids above the high water mark, assigned again for every proposal, and the new mark."""
        mark = self._high_water_mark(transaction)
        actions = []
        for line, file in zip(adds, transaction.request.adds, strict=True):
            ids = {"baseRowId": mark + 1, "defaultRowCommitVersion": self._row_version(transaction, version)}
            stats = json.dumps({"numRecords": file.rows or 0})
            actions.append(proposals.line("add", {**json.loads(line)["add"], **ids, "stats": stats}))
            mark += file.rows or 0
        return [*actions, *self._mark(mark)]

    def _high_water_mark(self, transaction: Transaction) -> int:
        """The high water mark of the newest version against which the transaction was checked."""
        domain = transaction.checked.domains.get(ROW_DOMAIN, {"configuration": '{"rowIdHighWaterMark": -1}'})
        return int(json.loads(domain["configuration"])["rowIdHighWaterMark"])

    def _row_version(self, transaction: Transaction, version: int) -> int:
        return version

    def _mark(self, mark: int) -> list[str]:
        configuration = json.dumps({"rowIdHighWaterMark": mark})
        return [
            proposals.line("domainMetadata", {"domain": ROW_DOMAIN, "configuration": configuration, "removed": False})
        ]

    def _timestamp(self, newest: State) -> int:
        """The in-commit timestamp: greater than that of the previous commit, and at least the clock's time."""
        return max(self.now, newest.timestamp + 1)

    def _protocol(self, newest: State, feature: str) -> dict[str, Any]:
        return {**newest.protocol, "writerFeatures": sorted({*newest.protocol.get("writerFeatures", ()), feature})}

    def _metadata(self, newest: State, request: m.Transact) -> dict[str, Any]:
        """A replaced table keeps the properties of ownership and of the enablement of timestamps."""
        kept = newest.properties
        if request.replace_table:
            names = (OWNER_PROPERTY, f"{OWNER_PROPERTY}Conf")
            kept = {k: v for k, v in kept.items() if k in names or "incommittimestamp" in k.lower()}
        configuration = {**kept, **request.set_properties}
        for name in request.unset_properties:
            configuration.pop(name, None)
        columns = {} if request.partition_by is None else {"partitionColumns": list(request.partition_by)}
        return {**newest.metadata, "configuration": configuration, **columns}

    def _removal(self, file: dict[str, Any], request: m.Transact, timestamp: int) -> dict[str, Any]:
        kept = {name: file[name] for name in ("deletionVector", *ROW_IDS) if file.get(name) is not None}
        body = {"path": file["path"], "deletionTimestamp": timestamp, "dataChange": request.data_change}
        return {**body, "partitionValues": file.get("partitionValues", {}), **kept}

    def _add(self, file: m.DataFile, request: m.Transact, timestamp: int, *, partitioned: bool) -> str:
        body = json.loads(proposals.add(quote(file.path), timestamp, file.partition, partitioned=partitioned))["add"]
        return proposals.line("add", {**body, "dataChange": request.data_change})
