"""Short functions that make commits, tables, transactions and warehouses."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import msgspec

import refimpl
from refimpl.client.table import Table
from refimpl.client.transaction import Committed, Transaction
from refimpl.owner.local import LocalOwner
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Add, CommitInfo, Metadata, Protocol
from refimpl.protocol.commit_owner import MaintenancePolicy, Registered
from refimpl.protocol.commits import (
    AttemptId,
    DirectProposal,
    InlineProposal,
    Outcome,
    Proposal,
    Ratified,
    RatifiedCommit,
    Rejected,
    RejectionReason,
    StagedProposal,
)
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import (
    CATALOG_MANAGED,
    IN_COMMIT_TIMESTAMP_FEATURE,
    IN_COMMIT_TIMESTAMP_PROPERTY,
    TABLE_FEATURES,
    CommitMode,
    TableFeature,
)
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

START = 1_000
"""The in-commit timestamp of version 0 of the test tables; version v has `START + v`."""

METADATA_ID = "6d1f2a54-0000-4000-8000-000000000000"
"""The `metaData.id` of the test tables; it never changes."""

ON_REQUEST = MaintenancePolicy(backfill_every=None, backlog_limit=100_000)
"""A policy without automatic backfill."""

FEATURES_AND_COMMIT_MODES = [
    (feature, commit_mode)
    for feature in TABLE_FEATURES.values()
    for commit_mode in sorted(feature.commit_modes, key=lambda commit_mode: commit_mode.value)
]  # fmt: skip
"""Every table feature with each of its commit modes."""


def name_of(feature: TableFeature, commit_mode: CommitMode) -> str:
    return f"{feature.name}-{commit_mode.value}"


def new_attempt() -> AttemptId:
    return str(uuid.uuid4())


def info(timestamp: int, **fields: object) -> CommitInfo:
    """`fields` replace those of a write."""
    return CommitInfo(
        {"inCommitTimestamp": timestamp, "operation": "WRITE", "txnId": f"transaction-{uuid.uuid4()}", **fields}
    )


def protocol_of(feature: TableFeature | None, *, in_commit_timestamps: bool = True) -> Protocol:
    """The smallest protocol with the table feature; None: a filesystem table."""
    names = ([feature.name] if feature else []) + ([IN_COMMIT_TIMESTAMP_FEATURE] if in_commit_timestamps else [])
    readers = feature is not None and feature.reader_feature
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=(feature.name,) if feature is not None and readers else None,
        writer_features=tuple(names),
    )


def metadata_of(
    feature: TableFeature | None, *, owner: str = "refimpl", configuration: Mapping[str, str] | None = None
) -> Metadata:
    properties = {IN_COMMIT_TIMESTAMP_PROPERTY: "true"}
    if feature is not None and feature.owner_property is not None:
        properties[feature.owner_property] = owner
    return Metadata(
        id=METADATA_ID,
        schema_string='{"type":"struct","fields":[]}',
        configuration={**properties, **(configuration or {})},
    )


def first_version(feature: TableFeature | None, timestamp: int = START) -> bytes:
    return actions.encode([info(timestamp), protocol_of(feature), metadata_of(feature)])


STATISTICS = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}'


def addition(path: str | None = None, *, stats: str | None = None) -> Add:
    return Add(
        path=path or f"part-00000-{uuid.uuid4()}.parquet",
        partition_values={},
        size=100,
        modification_time=START,
        data_change=True,
        stats=stats,
    )


def append(timestamp: int, *, lines: int = 1, stats: str | None = None) -> bytes:
    """A commit that adds `lines` files."""
    return actions.encode([info(timestamp), *(addition(stats=stats) for _ in range(lines))])


def refused(outcome: object, reason: RejectionReason) -> None:
    """Check that the outcome is a rejection for this reason."""
    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason is reason, outcome
    assert outcome.detail


@dataclass(frozen=True, kw_only=True)
class OwnedTable:
    """A table of an owner, with the usual operations of a client."""

    owner: LocalOwner
    table_id: str
    feature: TableFeature
    commit_mode: CommitMode
    location: Path
    environment: Environment

    @property
    def log(self) -> LogStore:
        return LogStore(self.location, self.environment)

    def through(self, warehouse: refimpl.Warehouse) -> "OwnedTable":
        """The same table, through another start of its owner."""
        return OwnedTable(
            owner=warehouse.owner,
            table_id=self.table_id,
            feature=self.feature,
            commit_mode=self.commit_mode,
            location=self.location,
            environment=warehouse.environment,
        )

    @property
    def latest(self) -> Version | None:
        return self.owner.get_commits(self.table_id).latest_ratified_version

    def propose(
        self,
        version: Version,
        content: bytes,
        *,
        attempt: AttemptId | None = None,
        commit_mode: CommitMode | None = None,
    ) -> Proposal:
        """A proposal in the table's commit mode, or in another mode. For a staged proposal, writes the file."""
        attempt = attempt or new_attempt()
        match commit_mode or self.commit_mode:
            case CommitMode.STAGED:
                name = self.log.stage(self.feature.staging_folder, version, attempt, content)
                return StagedProposal(attempt=attempt, file_name=name)
            case CommitMode.INLINE:
                return InlineProposal(attempt=attempt, content=content)
            case CommitMode.DIRECT:
                return DirectProposal(attempt=attempt, content=content)

    def commit(self, version: Version, content: bytes | None = None, *, attempt: AttemptId | None = None) -> Outcome:
        content = append(START + version) if content is None else content
        return self.owner.commit(self.table_id, version, self.propose(version, content, attempt=attempt))

    def land(self, count: int = 1) -> list[RatifiedCommit]:
        """Land `count` more commits."""
        landed = []
        for _ in range(count):
            outcome = self.commit(0 if self.latest is None else self.latest + 1)
            assert isinstance(outcome, Ratified), outcome
            landed.append(outcome.commit)
        return landed

    def backfill(self, version: Version | None = None) -> None:
        self.owner.backfill_to_version(self.table_id, version)

    def published(self) -> list[Version]:
        """The versions whose `<v>.json` an external observer sees."""
        return [path.version for path in self.log.listing() if path.kind is log_path.FileKind.COMMIT]

    def history(self) -> dict[Version, bytes]:
        """The bytes of every version, as a reader gets them from the owner and the log."""
        answer = self.owner.get_commits(self.table_id)
        if answer.latest_ratified_version is None:
            assert answer.commits == ()
            return {}
        stored = {commit.version: self._stored(commit) for commit in answer.commits}
        assert list(stored) == sorted(stored)
        if stored:
            assert list(stored) == list(range(min(stored), max(stored) + 1)), "the answer has a gap"
        published = set(self.published())
        contents: dict[Version, bytes] = {}
        for version in range(min(published, default=0), answer.latest_ratified_version + 1):
            contents[version] = stored[version] if version in stored else self.log.read(log_path.commit(version))
        return contents

    def _stored(self, commit: RatifiedCommit) -> bytes:
        if commit.content is not None:
            return commit.content
        assert commit.file_name is not None
        return self.log.read_staged(self.feature.staging_folder, commit.file_name)


def create(
    warehouse: refimpl.Warehouse,
    feature: TableFeature,
    commit_mode: CommitMode,
    *,
    name: str = "orders",
    policy: MaintenancePolicy = ON_REQUEST,
    commits: int = 0,
    location: Path | None = None,
) -> OwnedTable:
    """A new table with version 0 and `commits` more commits."""
    staged = warehouse.owner.stage_table(name, feature, commit_mode=commit_mode, policy=policy, location=location)
    proposal = DirectProposal(attempt=new_attempt(), content=first_version(feature))
    outcome = warehouse.owner.register_table(staged.table_id, proposal)
    assert isinstance(outcome, Registered), outcome
    table = owned(warehouse, staged.table_id)
    table.land(commits)
    return table


def dropped(warehouse: refimpl.Warehouse, commits: int = 2) -> OwnedTable:
    """A dropped table with two data files."""
    table = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, commits=commits)
    (table.location / "month=1").mkdir()
    (table.location / "month=1" / "a.parquet").write_bytes(b"rows")
    (table.location / "b.parquet").write_bytes(b"rows")
    warehouse.owner.drop_table(table.table_id)
    return table


def owned(warehouse: refimpl.Warehouse, reference: str | Path) -> OwnedTable:
    """The owner's table with this name, id or path."""
    resolved = warehouse.owner.resolve(reference)
    return OwnedTable(
        owner=warehouse.owner,
        table_id=resolved.table_id,
        feature=resolved.feature,
        commit_mode=resolved.commit_mode,
        location=resolved.location,
        environment=warehouse.environment,
    )


def filesystem_table(location: Path, *, versions: int = 2, environment: Environment | None = None) -> LogStore:
    """A table without an owner, with the versions 0 to `versions` - 1; the last has in-commit timestamps."""
    log = LogStore(location, environment or Environment())
    log.create_folders()
    for version in range(versions):
        content = first_version(None, START) if version == 0 else append(START + version)
        assert log.put_if_absent(log_path.commit(version), content)
    return log


def ownership_change(feature: TableFeature, timestamp: int) -> bytes:
    """The commit that makes a filesystem table an owned one."""
    return actions.encode([info(timestamp), protocol_of(feature), metadata_of(feature)])


def hand_back_commit(timestamp: int) -> bytes:
    """The commit that makes an owned table a filesystem one."""
    return actions.encode([info(timestamp), protocol_of(None), metadata_of(None)])


def sql(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements on a database; returns the rows of the last one."""
    with closing(apsw.Connection(str(path))) as database:
        for statement in statements:
            rows = database.execute(statement).fetchall()
    return rows


def replace_ledger(path: Path, by: Path) -> None:
    """Replace a ledger, also while processes have it open."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    by.replace(path)


def commit(table: Table, *work: Callable[[Transaction], object], **options: Any) -> Committed:
    """Run one transaction of these steps."""
    transaction = table.transaction(**options)
    for step in work:
        step(transaction)
    return transaction.commit()


def redefine(transaction: Transaction, **fields: Any) -> None:
    """Change these fields of the table's metadata."""
    transaction.set_metadata(msgspec.structs.replace(transaction.snapshot.metadata, **fields))
