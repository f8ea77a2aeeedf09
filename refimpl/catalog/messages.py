"""The messages of Unity Catalog's Delta API, as the server here and the remote owner send and read them.

UNITY_CATALOG.md#calls. Names are hyphenated on the wire; unknown fields are ignored, as everywhere in Delta. msgspec
checks the shapes while it decodes. Numbers are checked for Delta's range, so later code never gets larger ones.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.commit_owner import Maintenance
from refimpl.protocol.log_path import MAX_VERSION

CATALOG_BASE: Final = "/api/2.1/unity-catalog"
TRANSACTIONS: Final = "/v1/catalogs/{catalog}/transactions"
"""The calls for several tables, an extension of this server: UNITY_CATALOG.md#transactions."""
DELTA_BASE: Final = f"{CATALOG_BASE}/delta"
DEFAULT_CATALOG: Final = "unity"
DEFAULT_SCHEMA: Final = "default"

TABLE_ID: Final = "io.unitycatalog.tableId"
MANAGED: Final = "MANAGED"
LAST_VERSION: Final = "delta.lastUpdateVersion"
LAST_TIMESTAMP: Final = "delta.lastCommitTimestamp"
FORBIDDEN_JOBS: Final = "commitOwner.forbiddenMaintenance"
"""The maintenance that the owner forbids to clients, of the jobs that are allowed by default; joined by commas."""
OPERATIONS: Final = {
    "DATA_REORGANIZATION": frozenset({Maintenance.OPTIMIZE, Maintenance.REORG}),
    "DATA_CLEANUP": frozenset({Maintenance.VACUUM}),
    "METADATA_CLEANUP": frozenset({Maintenance.METADATA_CLEANUP}),
}
"""The maintenance operations of the API, each with the jobs that it stands for: UNITY_CATALOG.md#maintenance."""
COMMENT: Final = "commitOwner.comment"
"""The comment that a request without a commit set, until a commit changes the description in the log: that is the
comment otherwise. Empty: there is none."""
_DERIVED: Final = frozenset(
    {
        FORBIDDEN_JOBS, COMMENT, LAST_VERSION, LAST_TIMESTAMP, "delta.minReaderVersion", "delta.minWriterVersion",
        "delta.clusteringColumns", "delta.rowTracking.rowIdHighWaterMark",  # Unity Catalog reports metadata domains so
    }
)  # fmt: skip
FEATURE_PREFIX: Final = "delta.feature."
"""Properties that repeat other fields of the answer; clients send them back."""

# Requests

NewVersion = Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]
"""The client writes version 0 in place and the creation registers it, so no request commits version 0."""
AnyVersion = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    pass


class WireProtocol(_Wire, frozen=True, kw_only=True):
    """The protocol action, as the API spells it."""

    min_reader_version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    min_writer_version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class WireField(_Wire, frozen=True, kw_only=True):
    """A column. `type` is a name, or an object for a nested type."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
    type: str | dict[str, Any]
    nullable: bool = True
    metadata: dict[str, Any] | None = None


class Columns(_Wire, frozen=True, kw_only=True):
    """A schema: the struct of all columns."""

    fields: tuple[WireField, ...]
    type: str = "struct"


class StageTable(_Wire, frozen=True, kw_only=True):
    name: Text


class CreateTable(_Wire, frozen=True, kw_only=True, omit_defaults=True):
    """Registers a table whose version 0 is at `location`; a staging call returned this location. What a field says must
    agree with version 0."""

    name: Text
    location: Text
    columns: Columns
    protocol: WireProtocol
    table_type: str
    properties: dict[str, str]
    last_commit_timestamp_ms: Milliseconds
    partition_columns: tuple[str, ...] | None = None
    comment: str | None = None
    domain_metadata: dict[str, Any] | None = None


class RenameTable(_Wire, frozen=True, kw_only=True):
    """`new_name`: within the same schema."""

    new_name: Text


class AssertTableUuid(_Wire, frozen=True, kw_only=True, tag_field="type", tag="assert-table-uuid"):
    uuid: Text


class AssertEtag(_Wire, frozen=True, kw_only=True, tag_field="type", tag="assert-etag"):
    etag: Text


Requirement = AssertTableUuid | AssertEtag


class WireCommit(_Wire, frozen=True, kw_only=True):
    """A staged commit. Times in ms since the epoch; `timestamp` is the commit's in-commit timestamp."""

    version: NewVersion
    timestamp: Milliseconds
    file_name: Text
    file_size: Bytes
    file_modification_timestamp: Milliseconds


class _Update(_Wire, frozen=True, kw_only=True, tag_field="action"):
    pass


class AddCommit(_Update, frozen=True, kw_only=True, tag="add-commit", omit_defaults=True):
    commit: WireCommit
    uniform: dict[str, Any] | None = None


class SetLatestBackfilledVersion(_Update, frozen=True, kw_only=True, tag="set-latest-backfilled-version"):
    latest_published_version: AnyVersion


class SetProperties(_Update, frozen=True, kw_only=True, tag="set-properties"):
    updates: dict[str, str]


class RemoveProperties(_Update, frozen=True, kw_only=True, tag="remove-properties"):
    removals: tuple[str, ...]


class SetColumns(_Update, frozen=True, kw_only=True, tag="set-columns"):
    columns: Columns


class SetProtocol(_Update, frozen=True, kw_only=True, tag="set-protocol"):
    protocol: WireProtocol


class SetPartitionColumns(_Update, frozen=True, kw_only=True, tag="set-partition-columns"):
    partition_columns: tuple[str, ...]


class SetTableComment(_Update, frozen=True, kw_only=True, tag="set-table-comment"):
    comment: str | None = None


class SetDomainMetadata(_Update, frozen=True, kw_only=True, tag="set-domain-metadata"):
    updates: dict[str, Any]


class RemoveDomainMetadata(_Update, frozen=True, kw_only=True, tag="remove-domain-metadata"):
    domains: tuple[str, ...]


class UpdateSnapshotVersion(_Update, frozen=True, kw_only=True, tag="update-metadata-snapshot-version"):
    """Rejected here: the API has it for tables that are not catalog-managed."""

    last_commit_version: AnyVersion | None = None
    last_commit_timestamp_ms: Milliseconds | None = None


Update = (
    AddCommit
    | SetLatestBackfilledVersion
    | SetProperties
    | RemoveProperties
    | SetColumns
    | SetProtocol
    | SetPartitionColumns
    | SetTableComment
    | SetDomainMetadata
    | RemoveDomainMetadata
    | UpdateSnapshotVersion
)


class UpdateTable(_Wire, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements that must hold, and updates that are applied all or none; at most one of each kind."""

    updates: tuple[Update, ...]
    requirements: tuple[Requirement, ...] | None = None

    @property
    def table_id(self) -> str:
        """The id of the table that it means; empty in a request that lacks it, which is rejected."""
        return next((each.uuid for each in self.requirements or () if isinstance(each, AssertTableUuid)), "")


class TableIdentifier(_Wire, frozen=True, kw_only=True):
    """A table's name in Iceberg's form. `namespace`: the schema alone."""

    namespace: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=1)]
    name: Text


class TableChange(UpdateTable, frozen=True, kw_only=True, omit_defaults=True):
    """One table's part of a transaction."""

    identifier: TableIdentifier


class CommitTransaction(_Wire, frozen=True, kw_only=True):
    """Commits to several tables, all or none: UNITY_CATALOG.md#transactions."""

    table_changes: tuple[TableChange, ...]


class LoadTables(_Wire, frozen=True, kw_only=True):
    identifiers: tuple[TableIdentifier, ...]


class TableCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """A request beside the Delta API, whose names are not hyphenated."""

    table_id: Text
    operation: Literal["READ", "READ_WRITE"]


# Requests of clients that know no Delta API, such as Sail: UNITY_CATALOG.md#by-id


class CommitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """As `WireCommit`. `is_disown_commit`: the table would have no owner after it."""

    version: NewVersion
    timestamp: Milliseconds
    file_name: Text
    file_size: Bytes
    file_modification_timestamp: Milliseconds
    is_disown_commit: bool | None = None


class CommitById(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that changes no metadata, or a report of the published versions, or both."""

    table_id: Text
    table_uri: Text
    commit_info: CommitInfo | None = None
    latest_backfilled_version: AnyVersion | None = None
    metadata: None = None
    protocol: None = None
    uniform: None = None

    @property
    def updates(self) -> tuple[Update, ...]:
        """The same as updates of the Delta API."""
        updates: list[Update] = []
        if self.commit_info is not None:
            commit = {name: getattr(self.commit_info, name) for name in WireCommit.__struct_fields__}
            updates.append(AddCommit(commit=WireCommit(**commit)))
        if self.latest_backfilled_version is not None:
            updates.append(SetLatestBackfilledVersion(latest_published_version=self.latest_backfilled_version))
        return tuple(updates)


class CommitsById(msgspec.Struct, frozen=True, kw_only=True):
    """The unpublished commits of these versions, both ends included."""

    table_id: Text
    table_uri: Text
    start_version: AnyVersion
    end_version: AnyVersion | None = None


class FileSizeHistogram(_Wire, frozen=True, kw_only=True):
    """One value for each bin in all three. A bin's boundary is its smallest size, in bytes."""

    sorted_bin_boundaries: tuple[int, ...]
    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]


class CommitReport(_Wire, frozen=True, kw_only=True):
    """The part of a commit's metrics that is checked."""

    file_size_histogram: FileSizeHistogram | None = None


class MetricsReport(_Wire, frozen=True, kw_only=True):
    commit_report: CommitReport | None = None


class ReportMetrics(_Wire, frozen=True, kw_only=True):
    table_id: Text | None = None
    report: MetricsReport | None = None


# Answers


class LoadedMetadata(_Wire, frozen=True, kw_only=True):
    """The metadata of a table in an answer. Only fields that every server sends are required. Times in ms since the
    epoch."""

    table_uuid: str
    location: str
    properties: dict[str, str | None]
    etag: str | None = None
    table_type: str | None = None
    created_time: int | None = None
    updated_time: int | None = None
    columns: dict[str, Any] | None = None
    partition_columns: tuple[str, ...] | None = None
    last_commit_version: int | None = None
    last_commit_timestamp_ms: int | None = None


class LoadedTable(_Wire, frozen=True, kw_only=True):
    """The answer to creating, loading and updating a table. `commits`: the unpublished ones, newest first."""

    metadata: LoadedMetadata
    commits: tuple[WireCommit, ...] | None = None
    latest_table_version: int | None = None
    """None or -1: no version is ratified."""
    allowed_maintenance_operations: tuple[str, ...] | None = None
    """Which of `OPERATIONS` clients may run. Unknown ones are ignored."""


class ProtocolDemand(_Wire, frozen=True, kw_only=True):
    """What the protocol of a new table must have, or should have."""

    min_reader_version: int | msgspec.UnsetType = msgspec.UNSET
    min_writer_version: int | msgspec.UnsetType = msgspec.UNSET
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class StagedTable(_Wire, frozen=True, kw_only=True):
    """A location for a new table, and what its version 0 must contain."""

    table_id: str
    location: str
    required_protocol: ProtocolDemand = ProtocolDemand()
    required_properties: dict[str, str | None] = {}  # msgspec copies it
    table_type: str = MANAGED
    storage_credentials: tuple[dict[str, Any], ...] = ()
    suggested_protocol: ProtocolDemand = ProtocolDemand()
    suggested_properties: dict[str, str | None] = {}


class ListedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table in a list."""

    name: str
    table_id: str | None = None
    storage_location: str | None = None
    properties: dict[str, str | None] | None = None


class TablePage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the list of tables."""

    tables: tuple[ListedTable, ...] = ()
    next_page_token: str | None = None


UNSUPPORTED_FORMAT: Final = "UnsupportedTableFormatException"
"""The type of the error for a table that exists and that the API cannot express."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """`type` is one of the API's exception names. The optional `stack` is neither sent nor read."""

    message: str
    type: str
    code: int


class LoadedTables(msgspec.Struct, frozen=True, kw_only=True):
    """Several tables in one state of the catalog."""

    tables: tuple[LoadedTable, ...]


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`table`: the current table after a lost race, if the client requested it: UNITY_CATALOG.md#conflict. `member`:
    the index of the table change that decided a transaction."""

    error: ErrorBody
    table: LoadedTable | msgspec.UnsetType = msgspec.UNSET
    member: int | msgspec.UnsetType = msgspec.UNSET


# What both sides derive from the messages


def operations_of(jobs: Set[Maintenance]) -> tuple[str, ...]:
    """The operations of which clients may run every job."""
    return tuple(operation for operation, of in OPERATIONS.items() if of <= jobs)


def jobs_of(operations: Iterable[str]) -> frozenset[Maintenance]:
    """The jobs of the operations; none for an unknown operation."""
    return frozenset().union(*(OPERATIONS.get(operation, frozenset()) for operation in operations))


def tag_of(kind: type) -> str:
    """The API's name of an update or a requirement."""
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]


def is_derived(key: str) -> bool:
    """Whether a property only repeats another field of the answer."""
    return key in _DERIVED or key.startswith(FEATURE_PREFIX)


def features_in(properties: Iterable[str]) -> list[str]:
    """The table features that these properties name."""
    return [key.removeprefix(FEATURE_PREFIX) for key in properties if key.startswith(FEATURE_PREFIX)]


def protocol(action: Protocol) -> WireProtocol:
    """A protocol action in the API's spelling."""
    return WireProtocol(
        min_reader_version=action.min_reader_version,
        min_writer_version=action.min_writer_version,
        reader_features=action.reader_features or (),
        writer_features=action.writer_features or (),
    )


_NESTED_NAMES: Final = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_LOG_NAMES: Final = {wire: log for log, wire in _NESTED_NAMES.items()}


def in_the_log(value: Any) -> Any:
    """A data type of the API in the log's spelling."""
    return _respelled(value, _LOG_NAMES)


def _respelled(value: Any, names: Mapping[str, str]) -> Any:
    """Respells the parts of a type; a column's metadata is arbitrary JSON and stays as it is."""
    if isinstance(value, list):
        return [_respelled(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {names.get(key, key): item if key == "metadata" else _respelled(item, names) for key, item in value.items()}


def fields_of(metadata: Metadata) -> list[dict[str, Any]]:
    """The columns as the log has them; empty if its schema cannot be parsed. Readers of the log judge its schema; an
    invalid one must not hide the rest of the answer."""
    try:
        schema = msgspec.json.decode(metadata.schema_string, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return []
    fields = schema.get("fields")
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def columns(metadata: Metadata) -> list[Any]:
    """The columns in the API's spelling; empty if types are nested too deeply for Python's recursion limit."""
    try:
        fields: list[Any] = _respelled(fields_of(metadata), _NESTED_NAMES)
    except RecursionError:
        return []
    return fields


def path_of(location: str) -> Path | None:
    """The absolute path on this host that a location means; None for any other text."""
    try:
        parts = urlsplit(location)
    except ValueError:  # an invalid address in brackets
        return None
    path = Path(unquote(parts.path))
    is_local = parts.scheme in ("", "file") and parts.netloc in ("", "localhost")
    return path if is_local and path.is_absolute() and not (parts.query or parts.fragment) else None


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. Any name other than `localhost` counts as reachable by
    others."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
