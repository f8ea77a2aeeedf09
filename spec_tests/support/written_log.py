"""A log that a test writes file by file, with checkpoints of every kind; and an owner with answers of the test."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from refimpl.client.table import Table
from refimpl.protocol import log_path, table_feature
from refimpl.protocol.actions import Action, Add, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn, encode
from refimpl.protocol.commit_owner import MaintenancePolicy, ResolvedTable, TableState
from refimpl.protocol.commits import CommitsAnswer, RatifiedCommit
from refimpl.protocol.errors import TableNotFoundError
from refimpl.protocol.log_path import LogPath
from refimpl.storage.environment import Environment
from refimpl.storage.files import FileStatus, PosixFiles

START = 1_700_000_000_000
"""The in-commit timestamp of version 0, in ms. That of version v is v seconds later."""

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"month","type":"string","nullable":true,"metadata":{}}]}'
)


def metadata(schema: str = SCHEMA, *, partitioned: Sequence[str] = ("month",), **configuration: str) -> Metadata:
    return Metadata(
        id="5b068d91-2a11-4fa2-a73c-c7033ba20335",
        schema_string=schema,
        partition_columns=tuple(partitioned),
        configuration=configuration,
    )


def definition(feature: table_feature.TableFeature | None = None, **configuration: str) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of a table with this table feature; None: of a filesystem table."""
    if feature is None:
        return Protocol(min_reader_version=1, min_writer_version=2), metadata(**configuration)
    if feature.owner_property is not None:
        configuration[feature.owner_property] = "stated"
    configuration[table_feature.IN_COMMIT_TIMESTAMP_PROPERTY] = "true"
    return (
        Protocol(
            min_reader_version=feature.min_reader_version,
            min_writer_version=7,
            reader_features=(feature.name,) if feature.reader_feature else None,
            writer_features=(feature.name, "inCommitTimestamp"),
        ),
        metadata(**configuration),
    )


def add(path: str, month: str | None = "01", **fields: Any) -> Add:
    values: dict[str, Any] = {"size": 100, "modification_time": 0, "data_change": True, **fields}
    return Add(path=path, partition_values={"month": month}, **values)


def remove(path: str, **fields: Any) -> Remove:
    return Remove(path=path, **{"data_change": True, "deletion_timestamp": 1, **fields})


def info(version: int, **fields: Any) -> CommitInfo:
    own = {"inCommitTimestamp": START + 1000 * version, "operation": "WRITE", "txnId": f"t{version}"}
    return CommitInfo(own | fields)


@dataclass
class WrittenLog:
    """The log of one table, and the commits that its owner still stores."""

    location: Path
    feature: table_feature.TableFeature | None = None
    stored: list[RatifiedCommit] = field(default_factory=list)
    contents: dict[int, bytes] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.location / "_delta_log"

    def content(self, version: int, *actions: Action, carries_time: bool = True) -> bytes:
        first = info(version) if carries_time else CommitInfo({"operation": "WRITE"})
        self.contents[version] = encode([first, *actions])
        return self.contents[version]

    def create(self, *actions: Action, **configuration: str) -> WrittenLog:
        """Write version 0, with the smallest protocol of this table feature."""
        return self.publish(0, *definition(self.feature, **configuration), *actions)

    def publish(self, version: int, *actions: Action, **options: Any) -> WrittenLog:
        return self.write(log_path.commit(version), self.content(version, *actions, **options))

    def stage(self, version: int, *actions: Action) -> WrittenLog:
        """Add a ratified staged commit."""
        assert self.feature is not None
        name = log_path.staged_commit(version, uuid(version))
        self.write(f"{self.feature.staging_folder}/{name}", self.content(version, *actions))
        self.stored.append(self._ratified(version, table_feature.CommitMode.STAGED, file_name=name))
        return self

    def inline(self, version: int, *actions: Action) -> WrittenLog:
        """Add a ratified inline commit, which only the owner has."""
        content = self.content(version, *actions)
        self.stored.append(self._ratified(version, table_feature.CommitMode.INLINE, content=content))
        return self

    def _ratified(self, version: int, commit_mode: table_feature.CommitMode, **fields: Any) -> RatifiedCommit:
        size = len(self.contents[version])
        return ratified(version, commit_mode, in_commit_timestamp=START + 1000 * version, size=size, **fields)

    def backfill(self, version: int) -> WrittenLog:
        """Publish a stored commit. The owner forgets it, and its staged file is removed."""
        self.write(log_path.commit(version), self.contents[version])
        (commit,) = [commit for commit in self.stored if commit.version == version]
        self.stored.remove(commit)
        if commit.file_name is not None and self.feature is not None:
            self.delete(f"{self.feature.staging_folder}/{commit.file_name}")
        return self

    def write(self, name: str, content: bytes) -> WrittenLog:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return self

    def checksum(self, version: int, **fields: Any) -> WrittenLog:
        return self.write(log_path.checksum(version), json.dumps(fields).encode())

    def delete(self, name: str) -> WrittenLog:
        (self.folder / name).unlink()
        return self

    def modified(self, version: int, milliseconds: int) -> WrittenLog:
        """Set the modification time of a published commit."""
        os.utime(self.folder / log_path.commit(version), ns=(milliseconds * 1_000_000,) * 2)
        return self

    @property
    def latest(self) -> int | None:
        return max(self.contents, default=None)

    def owner(self) -> StatedOwner:
        return StatedOwner(self)

    def table(self, owner: StatedOwner | None = None, files: PosixFiles | None = None) -> Table:
        """A handle of the table, through `owner` if given, otherwise by path."""
        environment = Environment(files=files or PosixFiles())
        if owner is None:
            return Table.by_path(self.location, environment)
        return Table.resolve(self.location, owner, environment)  # type: ignore[arg-type]


@dataclass
class StatedOwner:
    """The methods of `CommitOwner` that readers use. The answers are those of the log, or those that a test sets."""

    log: WrittenLog
    name: str = "stated"
    state: TableState = TableState.ACTIVE
    latest: Callable[[], int | None] | None = None
    feature: table_feature.TableFeature | None = None
    asked: list[tuple[int | None, int | None]] = field(default_factory=list)
    after_answer: list[Callable[[], object]] = field(default_factory=list)
    """Each answer runs one of these: an event between the answer and the listing."""

    def resolve(self, reference: str | Path) -> ResolvedTable:
        feature = self.feature or self.log.feature
        if feature is None:
            raise TableNotFoundError(f"no table {reference}")
        return ResolvedTable(
            table_id="t",
            name="orders",
            location=self.log.location,
            feature_name=feature.name,
            commit_mode=table_feature.CommitMode.STAGED,
            state=self.state,
            policy=MaintenancePolicy(),
            commits=self._answer(None, None),
        )

    def get_commits(self, table_id: str, start: int | None = None, end: int | None = None) -> CommitsAnswer:
        self.asked.append((start, end))
        given = self._answer(start, end)
        if self.after_answer:
            self.after_answer.pop(0)()
        return given

    def _answer(self, start: int | None, end: int | None) -> CommitsAnswer:
        commits = [
            commit
            for commit in self.log.stored
            if (start is None or commit.version >= start) and (end is None or commit.version <= end)
        ]
        latest = self.log.latest if self.latest is None else self.latest()
        return CommitsAnswer(commits=tuple(commits), latest_ratified_version=latest)


class WatchedFiles(PosixFiles):
    """Counts operations on files. `before_read` lets other writers act in between."""

    def __init__(self) -> None:
        self.listings = 0
        self.reads: list[str] = []
        self.looks: list[str] = []
        """The names in calls of `stat`."""
        self.before_read: dict[str, Callable[[], object]] = {}

    def list_directory(self, directory: Path) -> list[FileStatus]:
        self.listings += 1
        return super().list_directory(directory)

    def stat(self, path: Path) -> FileStatus | None:
        self.looks.append(path.name)
        return super().stat(path)

    def read(self, path: Path) -> bytes:
        self.reads.append(path.name)
        if path.name in self.before_read:
            self.before_read.pop(path.name)()
        return super().read(path)


FEATURES = [table_feature.MANAGED_COMMIT, table_feature.CATALOG_MANAGED]


def named(name: str) -> LogPath:
    path = log_path.parse(name)
    assert path is not None, name
    return path


def published(*versions: int) -> list[LogPath]:
    return [named(log_path.commit(version)) for version in versions]


def classic(version: int) -> LogPath:
    return named(log_path.classic_checkpoint(version))


def part(version: int, number: int, of: int) -> LogPath:
    return named(f"{version:020d}.checkpoint.{number:010d}.{of:010d}.parquet")


def parts(version: int, of: int) -> list[LogPath]:
    return [part(version, number, of) for number in range(1, of + 1)]


def v2(version: int, extension: str = "parquet") -> LogPath:
    return named(f"{version:020d}.checkpoint.{uuid(version)}.{extension}")


def compaction(start: int, end: int) -> LogPath:
    return named(f"{start:020d}.{end:020d}.compacted.json")


def checksum(version: int) -> LogPath:
    return named(log_path.checksum(version))


def uuid(number: int) -> str:
    return f"3a0d65cd-4056-49b8-937b-{number:012d}"


def staged(version: int, *, file_name: str | None = None) -> RatifiedCommit:
    name = log_path.staged_commit(version, uuid(version)) if file_name is None else file_name
    return ratified(version, table_feature.CommitMode.STAGED, file_name=name)


def inline(version: int, content: bytes = b"{}\n") -> RatifiedCommit:
    return ratified(version, table_feature.CommitMode.INLINE, content=content)


def direct(version: int) -> RatifiedCommit:
    """A commit that the owner knows to be published."""
    return ratified(version, table_feature.CommitMode.DIRECT)


def ratified(version: int, commit_mode: table_feature.CommitMode, **fields: Any) -> RatifiedCommit:
    own = {"attempt": uuid(version), "in_commit_timestamp": 1000 + version, "size": 3, "ratified_at": 0}
    return RatifiedCommit(version=version, commit_mode=commit_mode, **{**own, **fields})


def answer(*commits: RatifiedCommit, latest: int | None) -> CommitsAnswer:
    return CommitsAnswer(commits=commits, latest_ratified_version=latest)


TEXTS = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    [
        ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()), ("cardinality", pa.int64()),
    ]
)  # fmt: skip
FILE = [("path", pa.string()), ("partitionValues", TEXTS), ("size", pa.int64())]
COLUMNS: dict[str, pa.StructType] = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "add": pa.struct(
        [
            *FILE, ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("stats", pa.string()),
            ("tags", TEXTS),
            ("deletionVector", VECTOR), ("baseRowId", pa.int64()),
        ]
    ),
    "remove": pa.struct(
        [*FILE, ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()), ("deletionVector", VECTOR)]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()), ("name", pa.string()), ("schemaString", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", TEXTS)])),
            ("partitionColumns", pa.list_(pa.string())), ("configuration", TEXTS), ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())), ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
    "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
    "checkpointMetadata": pa.struct([("version", pa.int64())]),
}  # fmt: skip
NAMES: dict[type, str] = {
    Txn: "txn", Add: "add", Remove: "remove", Metadata: "metaData", Protocol: "protocol",
    DomainMetadata: "domainMetadata",
}  # fmt: skip


def row(action: Action) -> dict[str, Any]:
    return {NAMES[type(action)]: msgspec.to_builtins(action)}


def parquet(rows: Sequence[dict[str, Any]], columns: dict[str, pa.StructType] | None = None) -> bytes:
    schema = pa.schema(list((columns or COLUMNS).items()))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink)
    return sink.getvalue()


def classic_content(actions: Sequence[Action]) -> bytes:
    return parquet([row(action) for action in actions])


def lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in rows)
