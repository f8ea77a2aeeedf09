"""Checks that a request of the Delta API agrees with the log.

UNITY_CATALOG.md#agreement: the log defines the table's metadata. The columns, protocol and properties in a request
must equal those in its commit. Only properties that are not in the log are stored in addition. msgspec cannot check
this.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from refimpl.catalog.messages import (
    COMMENT,
    TABLE_ID,
    AddCommit,
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
    """The parts of a request other than its commit. A comment without a commit is the catalog's, and an empty one hides
    the log's, until the property is removed; beside a commit, the log has it."""
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
    properties = {key: value for key, value in wanted.items() if not is_derived(key)}
    comment = updates.get(SetTableComment)
    if removed is not None and COMMENT in removed.removals:
        properties[COMMENT] = None
    if comment is not None:
        properties[COMMENT] = (comment.comment or "") if added is None else None
    stated = {kind: update for kind, update in updates.items() if added is not None or kind is not SetTableComment}

    def contradiction(protocol: Protocol, metadata: Metadata, domains: Sequence[DomainMetadata]) -> str | None:
        if requested_id != table_id:
            return f"{TABLE_ID} is {requested_id!r} in the request; the table's id is {table_id} and cannot change"
        return _contradiction(stated, protocol, metadata) or _domain_flaw(updates, domains)

    return UpdatePreconditions(
        etag=etag,
        published_through=None if report is None else report.latest_published_version,
        properties=properties,
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
    requested_id = request.properties.get(TABLE_ID, table_id)
    if requested_id != table_id:
        return f"{TABLE_ID} is {requested_id!r}; the staged table is {table_id}"
    logged_id = metadata.configuration.get(TABLE_ID, table_id)
    if logged_id != table_id:
        return f"{TABLE_ID} is {logged_id!r} in version 0; the staged table is {table_id}"
    for key, value in request.properties.items():
        logged = metadata.configuration.get(key)
        if logged is not None and logged != value and not is_derived(key):
            return f"the property {key} is {value!r} in the request and {logged!r} in version 0"
    time, logged_time = request.last_commit_timestamp_ms, _in_commit_timestamp(actions)
    if time != logged_time:
        return f"last-commit-timestamp-ms is {time}, the inCommitTimestamp of version 0 {logged_time}"
    said: list[tuple[type, str, Any]] = [
        (SetColumns, "columns", request.columns),
        (SetProtocol, "protocol", request.protocol),
        (SetPartitionColumns, "partition_columns", request.partition_columns),
        (SetTableComment, "comment", request.comment),
        (SetDomainMetadata, "updates", request.domain_metadata),
        (SetProperties, "updates", request.properties),
    ]
    updates = {update: update(**{member: value}) for update, member, value in said if value is not None}
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
    try:
        for what, wanted, logged in _statements(updates, protocol, metadata):
            if wanted != logged:
                return f"the {what} of the request: {wanted!r}; of the log: {logged!r}"
    except RecursionError:
        return "the request's columns have types that are nested too deeply"
    return None


def _statements(
    updates: Mapping[type, Any], protocol: Protocol, metadata: Metadata
) -> Iterator[tuple[str, object, object]]:
    """What the request and the log say of the same, without what clients spell differently: the nullability and
    metadata of columns, the order of features."""
    if (columns := updates.get(SetColumns)) is not None:
        named = [(field.name, _bare(in_the_log(field.type))) for field in columns.columns.fields]
        yield "columns", named, [(field.get("name"), _bare(field.get("type"))) for field in fields_of(metadata)]
    if (wanted := updates.get(SetProtocol)) is not None:
        yield "protocol", _unordered(wanted.protocol), _unordered(spelled(protocol))
    if (partitions := updates.get(SetPartitionColumns)) is not None:
        yield "partitioning", partitions.partition_columns, metadata.partition_columns
    if (comment := updates.get(SetTableComment)) is not None:
        yield "comment", comment.comment or "", metadata.description or ""
    if (changed := updates.get(SetProperties)) is not None:
        features = set(features_in(changed.updates))
        listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        yield "table features", features, features & listed


def _bare(kind: Any) -> Any:
    """A type without the parts that clients spell differently."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if isinstance(kind, list):
        return [_bare(item) for item in kind]
    if isinstance(kind, dict):
        return {key: _bare(item) for key, item in kind.items() if key not in ("metadata", "nullable")}
    return kind


def _unordered(protocol: WireProtocol) -> dict[str, Any]:
    features = {"reader_features": protocol.reader_features, "writer_features": protocol.writer_features}
    return msgspec.structs.asdict(protocol) | {name: sorted(set(listed or ())) for name, listed in features.items()}
