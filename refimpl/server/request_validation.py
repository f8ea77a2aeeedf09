"""Checks that a request of the Delta API agrees with the log.

UNITY_CATALOG.md#agreement: the log defines the table's metadata. The columns, protocol and properties in a request
must equal those in its commit. Only properties that are not in the log are stored in addition. msgspec cannot check
this.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from refimpl.catalog.messages import (
    TABLE_ID,
    AddCommit,
    Columns,
    CreateTable,
    RemoveDomainMetadata,
    RemoveProperties,
    SetColumns,
    SetDomainMetadata,
    SetLatestBackfilledVersion,
    SetPartitionColumns,
    SetProperties,
    SetProtocol,
    SetTableComment,
    WireProtocol,
    features_in,
    fields_of,
    in_the_log,
    is_derived,
)
from refimpl.catalog.messages import protocol as spelled
from refimpl.catalog.owner import UpdatePreconditions
from refimpl.protocol.actions import Action, CommitInfo, DomainMetadata, Metadata, Protocol


def preconditions_of(updates: Mapping[type, Any], table_id: str, etag: str | None) -> UpdatePreconditions:
    """The parts of a request other than its commit."""
    wanted: dict[str, str | None] = {}
    removed = updates.get(RemoveProperties)
    if removed is not None:
        wanted |= dict.fromkeys(removed.removals)
    changed = updates.get(SetProperties)
    if changed is not None:
        wanted |= changed.updates
    requested_id = wanted.pop(TABLE_ID, table_id)
    report = updates.get(SetLatestBackfilledVersion)
    added = updates.get(AddCommit)

    def contradiction(protocol: Protocol, metadata: Metadata, domains: Sequence[DomainMetadata]) -> str | None:
        if requested_id != table_id:
            return f"{TABLE_ID} is {requested_id!r} in the request; the table's id is {table_id} and cannot change"
        return _contradiction(updates, protocol, metadata) or _domain_flaw(updates, domains)

    return UpdatePreconditions(
        etag=etag,
        published_through=None if report is None else report.latest_published_version,
        properties={key: value for key, value in wanted.items() if not is_derived(key)},
        contradiction=contradiction,
        in_commit_timestamp=None if added is None else added.commit.timestamp,
        size=None if added is None else added.commit.file_size,
    )


def properties_beside(metadata: Metadata, wanted: Mapping[str, str]) -> dict[str, str]:
    """The properties in a creation request that are not in the log: the catalog stores them."""
    known = {*metadata.configuration, TABLE_ID}
    return {key: value for key, value in wanted.items() if key not in known and not is_derived(key)}


def with_creation(
    request: CreateTable, table_id: str, actions: Sequence[Action], protocol: Protocol, metadata: Metadata
) -> str | None:
    """How a creation request contradicts its version 0, or None."""
    requested_id = (request.properties or {}).get(TABLE_ID, table_id)
    if requested_id != table_id:
        return f"{TABLE_ID} is {requested_id!r}; the staged table is {table_id}"
    logged_id = metadata.configuration.get(TABLE_ID, table_id)
    if logged_id != table_id:
        return f"{TABLE_ID} is {logged_id!r} in version 0; the staged table is {table_id}"
    for key, value in (request.properties or {}).items():
        logged = metadata.configuration.get(key)
        if logged is not None and logged != value and not is_derived(key):
            return f"the property {key} is {value!r} in the request and {logged!r} in version 0"
    time, logged_time = request.last_commit_timestamp_ms, _in_commit_timestamp(actions)
    if time is not None and time != logged_time:
        return f"last-commit-timestamp-ms is {time}, the inCommitTimestamp of version 0 {logged_time}"
    updates: dict[type, Any] = {
        SetColumns: SetColumns(columns=request.columns),
        SetProtocol: SetProtocol(protocol=request.protocol),
    }
    if request.partition_columns is not None:
        updates[SetPartitionColumns] = SetPartitionColumns(partition_columns=request.partition_columns)
    if request.comment is not None:
        updates[SetTableComment] = SetTableComment(comment=request.comment)
    if request.domain_metadata is not None:
        updates[SetDomainMetadata] = SetDomainMetadata(updates=request.domain_metadata)
    if request.properties is not None:
        updates[SetProperties] = SetProperties(updates=request.properties)
    domains = [action for action in actions if isinstance(action, DomainMetadata)]
    return _contradiction(updates, protocol, metadata) or _domain_flaw(updates, domains)


def _in_commit_timestamp(actions: Sequence[Action]) -> int | None:
    return next((action.in_commit_timestamp for action in actions if isinstance(action, CommitInfo)), None)


def _domain_flaw(updates: Mapping[type, Any], domains: Sequence[DomainMetadata]) -> str | None:
    """How the domain metadata in the request differs from the commit's, or None."""
    logged = {action.domain: action for action in domains}
    wanted = updates.get(SetDomainMetadata)
    for name, configuration in () if wanted is None else wanted.updates.items():
        action = logged.get(name)
        if action is None or action.removed:
            return f"the request sets the domain metadata {name!r} without a commit that sets it too"
        if not _is_said_by(configuration, action.configuration):
            return (
                f"the domain metadata {name!r} is {configuration!r} in the request, the log's {action.configuration!r}"
            )
    removed = updates.get(RemoveDomainMetadata)
    for name in () if removed is None else removed.domains:
        action = logged.get(name)
        if action is None or not action.removed:
            return f"the request removes the domain metadata {name!r} without a commit that removes it too"
    return None


def _is_said_by(wanted: Any, configuration: str) -> bool:
    """Whether a domain's configuration, usually JSON, contains all of `wanted`. It may contain more: Delta repeats the
    domain's name in it."""
    try:
        logged = msgspec.json.decode(configuration)
    except (msgspec.DecodeError, RecursionError):
        return bool(wanted == configuration)
    if isinstance(wanted, dict) and isinstance(logged, dict):
        return all(key in logged and logged[key] == value for key, value in wanted.items())
    return bool(wanted == logged)


def _contradiction(updates: Mapping[type, Any], protocol: Protocol, metadata: Metadata) -> str | None:
    columns = updates.get(SetColumns)
    try:
        flaw = None if columns is None else _columns_flaw(columns.columns, metadata)
    except RecursionError:
        flaw = "the request's columns have types that are nested too deeply"
    if flaw is not None:
        return flaw
    wanted = updates.get(SetProtocol)
    if wanted is not None and not _same_protocol(wanted.protocol, protocol):
        return f"the request's protocol is not the log's, which is {msgspec.to_builtins(spelled(protocol))}"
    partitions = updates.get(SetPartitionColumns)
    if partitions is not None and partitions.partition_columns != metadata.partition_columns:
        return (
            f"the request's partition columns are {list(partitions.partition_columns)}, the log's "
            f"{list(metadata.partition_columns)}"
        )
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    changed = updates.get(SetProperties)
    for feature in () if changed is None else features_in(changed.updates):
        if feature not in features:
            return f"the request has the table feature {feature}, the log does not"
    comment = updates.get(SetTableComment)
    if comment is not None and (comment.comment or "") != (metadata.description or ""):
        return f"the request's comment is {comment.comment!r}, the log's {metadata.description!r}"
    return None


def _columns_flaw(columns: Columns, metadata: Metadata) -> str | None:
    """Compares names and types, in order. Nullability and metadata are ignored: clients spell them differently."""
    wanted = [(field.name, _bare(in_the_log(field.type))) for field in columns.fields]
    fields = [(field.get("name"), _bare(field.get("type"))) for field in fields_of(metadata)]
    return None if wanted == fields else f"the request's columns are {wanted}, the log's {fields}"


def _bare(kind: Any) -> Any:
    """A type without the parts that clients spell differently."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if isinstance(kind, list):
        return [_bare(item) for item in kind]
    if isinstance(kind, dict):
        return {key: _bare(item) for key, item in kind.items() if key not in ("metadata", "nullable")}
    return kind


def _same_protocol(wanted: WireProtocol, logged: Protocol) -> bool:
    return (
        wanted.min_reader_version == logged.min_reader_version
        and wanted.min_writer_version == logged.min_writer_version
        and set(wanted.reader_features or ()) == set(logged.reader_features or ())
        and set(wanted.writer_features or ()) == set(logged.writer_features or ())
    )
