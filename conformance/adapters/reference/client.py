"""The reference's Delta client as a subject of the client side: reader, writer and maintenance.

It asks the kit's own owner through the shared interface, or with the reference's remote owner through the Delta API.
Everything else is `refimpl.client`, on the real files.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import msgspec

import refimpl
from conformance.adapters.http import HttpSubject
from conformance.adapters.in_process import answering
from conformance.adapters.reference import translation
from conformance.adapters.reference.asked_owner import Ask, AskedOwner
from conformance.adapters.uc.api import UnansweredError
from conformance.adapters.uc.server import CATALOG, SCHEMA, DeltaApi
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM
from conformance.interface.subject import AdapterError
from refimpl.client import ownership
from refimpl.client.checkpoint_writing import ask
from refimpl.client.data_maintenance import optimize, vacuum
from refimpl.client.group_transaction import GroupTransaction, read_together
from refimpl.client.maintenance import clean_up, write_checkpoint, write_checksum
from refimpl.client.proposing import MAX_LOOKS, RetryPolicy
from refimpl.client.snapshot import Snapshot
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol import actions, errors, log_path
from refimpl.protocol.actions import Add, Cdc, CommitInfo
from refimpl.protocol.commit_owner import Maintenance, ResolvedTable
from refimpl.protocol.table_feature import CATALOG_MANAGED, DOCUMENTED_FEATURES, IN_COMMIT_TIMESTAMP_FEATURE, CommitMode
from refimpl.remote_owner.connection import Address, NoAnswerError, Reply
from refimpl.remote_owner.owner import RemoteOwner
from refimpl.schema.features import IsolationLevel
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

PROFILES: Final = (
    "core", "staged", "inline", "direct-publish", "attempt-outcome", "ownership-transfer", "maintenance-policy",
    "backlog-limit", "discovery", "change-data", "row-tracking", "transaction-group",
)  # fmt: skip
COMMIT_MODES: Final = {
    name: tuple(commit_mode.value for commit_mode in CommitMode if commit_mode in feature.commit_modes)
    for name, feature in DOCUMENTED_FEATURES.items()
} | {FILESYSTEM: ("direct",)}
PARTITION_COLUMN: Final = "part"
"""The kit's only partition column."""
_JOBS: Final = {job.value: job for job in Maintenance}
_HANDLES_KEPT: Final = 64

T = TypeVar("T")


class ReferenceClient:
    """Answers the client side of the shared interface.

    `owner`: asks the kit's owner; without it, `hello` must give the owner's URL. Each simulated client keeps its
    handles to tables over all its requests, as a process of its own would.
    """

    def __init__(self, owner: Ask | None = None) -> None:
        self._ask = owner
        self._owner_name: str | None = None
        self._reached: HttpSubject | None = None
        self._environment = Environment() if owner is None else Environment(pause=_no_wait)
        self._handles: dict[tuple[str, str], Table] = {}

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        if self._ask is None:
            if request.owner_url is None:
                raise AdapterError(
                    "the reference client has no owner to ask; construct it with one, or give its URL as `owner_url` "
                    "in `hello`"
                )
            self._reached = HttpSubject(request.owner_url)
            self._ask = self._reached.ask
        return m.Identity(
            name="reference-client",
            version=refimpl.__version__,
            interface_version=m.INTERFACE_VERSION,
            side="client",
            profiles=PROFILES,
            features=tuple(COMMIT_MODES),
            commit_modes=COMMIT_MODES,
            promises=("fresh-snapshots",),
        )

    def close(self) -> None:
        """Idempotent."""
        if self._reached is not None:
            self._reached.close()

    def answered(self, ask: Callable[[], m.Answer]) -> m.Answer:
        try:
            return ask()
        except errors.DeltaError as error:
            return translation.failure(error)

    # Finding tables

    def _owner(self, client: str) -> AskedOwner:
        if self._ask is None:
            raise AdapterError("`hello` comes first: it names the owner")
        if self._owner_name is None:
            answer = self._ask(client, m.Hello())
            if not isinstance(answer, m.Identity):
                raise AdapterError(f"the owner answers `hello` by {answer!r}; a client needs its `Identity`")
            self._owner_name = answer.name
        return self._owner_of(self._ask, client, self._owner_name)

    def _owner_of(self, ask: Ask, client: str, name: str) -> AskedOwner:
        return AskedOwner(ask, client, name)

    def _on(self, client: str, reference: str, act: Callable[[Table], T]) -> T:
        """Call `act` with this client's handle of the table. If that table is gone, use the table that has its name
        now. A table with an absolute path is opened without an owner, anew at each call."""
        if reference.startswith("/"):
            return act(Table.by_path(Path(reference), self._environment))
        key = (client, reference)
        if key in self._handles:
            try:
                return act(self._handles[key])
            except errors.TableNotFoundError:
                del self._handles[key]
        if len(self._handles) >= _HANDLES_KEPT:
            self._handles.clear()
        table = self._handles[key] = Table.resolve(reference, self._owner(client), self._environment)
        return act(table)

    # Reading

    def snapshot(self, client: str, request: m.Snapshot) -> m.Answer:
        def read(table: Table) -> m.Answer:
            return _snapshot_read(table.snapshot(version=request.version, timestamp=request.timestamp))

        try:
            return self._on(client, request.path or request.table or "", read)
        except errors.OwnerUnavailableError as error:  # the owner does not answer, so the state of the table is unknown
            return m.Unknown(reason=error.message)
        except errors.DeltaError as error:
            return translation.failure(error)

    @answering
    def snapshots(self, client: str, request: m.Snapshots) -> m.Answer:
        tables = read_together(self._owner(client), self._environment, request.tables)
        return m.SnapshotsRead(snapshots=tuple(_snapshot_read(table.snapshot) for table in tables))

    # Writing

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        written: list[Add] = []

        def prepare(table: Table) -> Transaction | None:
            transaction = table.transaction(
                snapshot=table.snapshot(version=request.read_version), isolation=IsolationLevel(request.isolation.value)
            )
            transaction.id = request.marker
            if not _describe(transaction, request):
                return None
            written.extend(self._write(transaction.snapshot.location, (*request.adds, *request.changes)))
            return transaction

        try:
            transaction = self._on(client, request.table, prepare)
        except errors.DeltaError as error:  # nothing was proposed
            return translation.failure(error)
        if transaction is None:
            return m.Committed(version=None)
        return _commit(transaction, written, if_needed=request.if_needed)

    def transact_group(self, client: str, request: m.TransactGroup) -> m.Answer:
        group = GroupTransaction(self._owner(client), self._environment, [member.table for member in request.members])
        proposed = False
        try:
            with group:
                for member in request.members:
                    isolation = IsolationLevel(member.isolation.value)
                    transaction = group.table(member.table).transaction(isolation=isolation)
                    transaction.id = member.marker
                    if not _describe(transaction, member):
                        raise errors.InvalidRequestError(f"{member.table} has recorded batch {member.application}")
                    self._write(transaction.snapshot.location, (*member.adds, *member.changes))
                    transaction.commit()
                proposed = True
        except errors.DeltaError as error:
            return _not_committed(error, proposed=proposed)
        return m.GroupCommitted(versions=tuple(group.committed[one.table].version for one in request.members))

    def _write(self, location: Path, files: tuple[m.DataFile, ...]) -> list[Add]:
        """Write the data files below the table's folder."""
        inside = [file.path for file in files if not file.path.startswith("/")]
        for path in inside:
            self.write_data_file(location / path)
        return [
            Add(path=quote(path), partition_values={}, size=0, modification_time=0, data_change=True) for path in inside
        ]

    def write_data_file(self, path: Path) -> None:
        """Write an empty data file, because the kit reads no data file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    @answering
    def create_table(self, client: str, request: m.CreateTable) -> m.Answer:
        """Register a table like `refimpl.client.create`: send the request again while no answer comes. The owner
        recognizes the repeated request."""
        owner = self._owner(client)
        unknown = errors.OutcomeUnknown(
            f"{request.name!r} may or may not be created: {MAX_LOOKS} requests were not answered",
            version=0,
            attempt=request.attempt,
        )
        retries = RetryPolicy(self._environment, max_tries=1, label=repr(request.name))
        answer = retries.ask_until_answered(lambda: owner.create(request), unknown)
        if isinstance(answer, m.Conflict) and answer.winner_table is not None:
            winner = owner.resolve(request.name)
            if _creator(winner, self._environment) == request.attempt:
                return m.Ratified(version=0, table=winner.table_id)
        return answer

    @answering
    def take_over(self, client: str, request: m.TakeOver) -> m.Answer:
        """The client builds the change itself, on the newest version. The commit has the request's attempt."""
        owner, feature = self._owner(client), DOCUMENTED_FEATURES.get(request.feature)
        if feature is None or request.commit_mode not in COMMIT_MODES[feature.name]:
            return m.Rejected(reason=f"{request.feature!r} tables have no {request.commit_mode!r} commits")
        table = Table.by_path(Path(request.path), self._environment)
        owned = ownership.take_over(
            table, owner, request.name, feature, commit_mode=CommitMode(request.commit_mode), txn_id=request.attempt
        )
        return _changed(owner, owned.table_id)

    @answering
    def hand_back(self, client: str, request: m.HandBack) -> m.Answer:
        owner = self._owner(client)
        table = Table.resolved(owner.resolve(request.table), owner, self._environment)
        ownership.hand_back(table, txn_id=request.attempt)
        self._handles.pop((client, request.table), None)
        return _changed(owner, None)

    @answering
    def drop_table(self, client: str, request: m.DropTable) -> m.Answer:
        owner = self._owner(client)
        owner.drop_table(owner.resolve(request.table).table_id)
        return m.Done()

    @answering
    def backfill_to_version(self, client: str, request: m.BackfillToVersion) -> m.Answer:
        """Publish the table; the owner publishes those that clients may not publish."""

        def publish(table: Table) -> object:
            if table.owner is None or table.table_id is None or (table.feature and table.feature.clients_publish):
                return table.publish(request.version)
            return table.owner.backfill_to_version(table.table_id, request.version)

        return self._maintained(client, request.table, publish)

    # Maintenance

    @answering
    def checkpoint(self, client: str, request: m.Checkpoint) -> m.Answer:
        return self._maintained(client, request.table, lambda table: write_checkpoint(table, request.version))

    @answering
    def checksum(self, client: str, request: m.Checksum) -> m.Answer:
        return self._maintained(client, request.table, lambda table: write_checksum(table, request.version))

    @answering
    def cleanup(self, client: str, request: m.Cleanup) -> m.Answer:
        """The reference takes a retention period instead of a time, so its clock is stopped during the cleanup."""

        def run(table: Table) -> object:
            now = table.environment.now()
            table.environment = dataclasses.replace(table.environment, now=lambda: now)
            try:
                return clean_up(table, older_than=now - request.older_than)
            finally:
                table.environment = self._environment

        return self._maintained(client, request.table, run)

    @answering
    def maintain(self, client: str, request: m.Maintain) -> m.Answer:
        """Ask for the owner's policy, although the client has no such job: the answer to a forbidden job is
        `rejected`."""

        def run(table: Table) -> m.Answer:
            job = _JOBS.get(request.job)
            if job is None:
                return m.Unsupported(reason=f"unknown job {request.job}; expected one of {', '.join(_JOBS)}")
            if job is Maintenance.VACUUM:
                vacuum(table, dry_run=False)
                return m.Done()
            if job is Maintenance.OPTIMIZE:
                done = optimize(table)
                return m.Committed(version=done.version)
            ask(table.snapshot(), job)
            return m.Unsupported(reason=f"the reference has no {request.job}")

        return self._on(client, request.table, run)

    def _maintained(self, client: str, reference: str, run: Callable[[Table], object]) -> m.Answer:
        self._on(client, reference, run)
        return m.Done()


def _no_wait(seconds: float) -> None:
    """Return at once: no other code runs in this process while a client waits."""


def _creator(table: ResolvedTable, environment: Environment) -> str | None:
    """The attempt that created the table: the `txnId` of its version 0."""
    name = log_path.commit(0)
    try:
        content = LogStore(table.location, environment).read(name)
    except FileNotFoundError:
        return None
    infos = (action for action in actions.decode(content, source=name) if isinstance(action, CommitInfo))
    first = next(infos, None)
    return None if first is None else first.txn_id


def _changed(owner: AskedOwner, table: str | None) -> m.Answer:
    if owner.changed is None:
        return m.Unknown(reason="the owner changed, but the version is unknown")
    return m.Ratified(version=owner.changed, table=table)


# Transactions and snapshots


def _snapshot_read(snapshot: Snapshot) -> m.SnapshotRead:
    adds = sorted(snapshot.files.values(), key=lambda add: add.path)
    warnings = list(snapshot.warnings)
    try:
        timestamp: int | None = snapshot.timestamp
    except errors.CorruptLogError as error:
        timestamp = None
        warnings.append(str(error))
    (part,) = snapshot.schema.physical_names((PARTITION_COLUMN,))
    return m.SnapshotRead(
        version=snapshot.version,
        files=tuple(sorted(unquote(add.path) for add in adds)),
        stale=snapshot.stale,
        timestamp=timestamp,
        properties=dict(snapshot.metadata.configuration),
        partitions={unquote(add.path): add.partition_values.get(part) or None for add in adds},
        applications={name: txn.version for name, txn in snapshot.transactions.items()},
        domains={name: domain.configuration for name, domain in snapshot.domains.items()},
        warnings=tuple(warnings),
    )


def _describe(transaction: Transaction, request: m.Transact) -> bool:
    """Add the reads and changes of the request to the transaction; False if the table already has its batch."""
    if request.application is not None and not transaction.claim(*request.application):
        return False
    if request.reads == "*":
        transaction.read_whole_table()
    elif request.reads is not None:
        transaction.read_files(_in_partition(request.reads))
    if request.replace_table:
        transaction.remove(*transaction.read_whole_table(), data_change=request.data_change)
        transaction.set_metadata(msgspec.structs.replace(transaction.snapshot.metadata, configuration={}))
    else:
        transaction.remove(*_named(transaction.snapshot, request.removes), data_change=request.data_change)
    if request.partition_by is not None:
        now = transaction.snapshot.metadata
        transaction.set_metadata(msgspec.structs.replace(now, partition_columns=request.partition_by))
    if request.set_properties or request.unset_properties:
        transaction.set_properties(request.set_properties, remove=request.unset_properties)
    if request.add_feature == IN_COMMIT_TIMESTAMP_FEATURE:
        transaction.enable_in_commit_timestamps()
    elif request.add_feature is not None:
        transaction.add_feature(request.add_feature)
    if request.domain is not None:
        transaction.set_domain(*request.domain)
    columns = transaction.snapshot.partition_columns if request.partition_by is None else request.partition_by
    transaction.add(*(_joining(transaction, file, columns, data_change=request.data_change) for file in request.adds))
    transaction.add_changes(*(_changed_rows(file, columns) for file in request.changes))
    return True


def _in_partition(value: str) -> str:
    """The condition for a partition value, in Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{PARTITION_COLUMN} = '{escaped}'"


def _named(snapshot: Snapshot, paths: tuple[str, ...]) -> list[Add]:
    """The active files with these paths; the log holds encoded paths."""
    active = {unquote(add.path): add for add in snapshot.files.values()}
    missing = [path for path in paths if path not in active]
    if missing:
        raise errors.InvalidRequestError(
            f"{missing[0]} is not an active file of version {snapshot.version}; only active files can be removed"
        )
    return [active[path] for path in paths]


def _joining(transaction: Transaction, file: m.DataFile, columns: tuple[str, ...], *, data_change: bool) -> Add:
    return Add(
        path=quote(file.path),
        partition_values={PARTITION_COLUMN: file.partition} if PARTITION_COLUMN in columns else {},
        size=1,
        modification_time=transaction.reader.log.environment.now(),
        data_change=data_change,
        stats=None if file.rows is None else msgspec.json.encode({"numRecords": file.rows}).decode(),
    )


def _changed_rows(file: m.DataFile, columns: tuple[str, ...]) -> Cdc:
    values = {PARTITION_COLUMN: file.partition} if PARTITION_COLUMN in columns else {}
    return Cdc(path=quote(file.path), partition_values=values, size=1, data_change=False)


def _commit(transaction: Transaction, written: list[Add], *, if_needed: bool) -> m.Answer:
    """Commit. After a proposal only some errors say that it did not land; only after these are its files deleted."""
    try:
        with transaction.deleting_unless_landed(written):
            committed = transaction.commit_if_needed() if if_needed else transaction.commit()
    except errors.DeltaError as error:
        return _not_committed(error, proposed=True)
    return m.Committed(version=None if committed is None else committed.version)


def _not_committed(error: errors.DeltaError, *, proposed: bool) -> m.Answer:
    if isinstance(error, errors.ConcurrentModificationError):
        return m.Conflict()
    if not proposed or isinstance(error, errors.CERTAINLY_NOT_COMMITTED):
        return translation.failure(error)
    return m.Unknown(reason=f"{type(error).__name__}: {error.message}")


# With its remote owner. `DeltaApi` replaces the network; requests and answers are the API's bytes


REMOTE_PROFILES: Final = (
    "core", "staged", "maintenance-policy", "backlog-limit", "discovery", "change-data", "row-tracking",
    "uc-delta-api",
)  # fmt: skip
_ADDRESS: Final = Address(scheme="http", host="kit", port=80, path="", catalog=CATALOG, schema=SCHEMA)


class RemoteReferenceClient(ReferenceClient):
    """Answers the client side of the shared interface, for catalog-managed tables with staged commits.

    It creates and drops tables through the shared interface; all other requests go through the API.
    """

    def hello(self, client: str, request: m.Hello) -> m.Identity:
        return msgspec.structs.replace(
            super().hello(client, request),
            name="reference-client-remote",
            profiles=REMOTE_PROFILES,
            features=(CATALOG_MANAGED.name,),
            commit_modes={CATALOG_MANAGED.name: ("staged",)},
        )

    def _owner_of(self, ask: Ask, client: str, name: str) -> AskedOwner:
        return _OverTheApi(ask, client, name, self._environment)


class _OverTheApi(AskedOwner):
    def __init__(self, ask: Ask, client: str, name: str, environment: Environment) -> None:
        super().__init__(ask, client, name)
        self._remote = RemoteOwner(_ADDRESS, environment, connection=_Connection(DeltaApi(ask), client))
        for operation in ("commit", "attempt_outcome", "get_commits", "backfill_to_version", "report_published"):
            setattr(self, operation, getattr(self._remote, operation))

    def resolve(self, reference: str | Path) -> ResolvedTable:
        return super().resolve(reference) if isinstance(reference, Path) else self._remote.resolve(reference)


class _Connection:
    """Replaces the remote owner's connection, without a network."""

    def __init__(self, api: DeltaApi, client: str) -> None:
        self._api = api
        self._headers = {"Authorization": f"Bearer {client}"}

    def send(self, method: str, target: str, body: bytes | None = None) -> Reply:
        try:
            status, content = self._api.send(method, target, body, self._headers)
        except UnansweredError as error:
            raise NoAnswerError(str(error)) from error
        return Reply(status=status, body=content)

    def close(self) -> None:
        """There is nothing to close."""
