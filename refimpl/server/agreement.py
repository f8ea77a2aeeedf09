"""Whether a request and the log say the same of a table.

The log is the table's metadata: whatever a request says of columns, protocol or properties must be what its commit
says, and is then true by the commit alone. Only properties that the log does not have are stored beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refimpl.actions import Metadata, Protocol
from refimpl.owner.terms import Terms
from refimpl.server import answers, messages


def tag_of(kind: type) -> str:
    """How the API calls an update or a requirement."""
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]


def terms_of(asked: Mapping[type, Any], table_id: str, etag: str | None) -> Terms:
    """Everything of a request but its commit."""
    wanted: dict[str, str | None] = {}
    removed = asked.get(messages.RemoveProperties)
    if removed is not None:
        wanted |= dict.fromkeys(removed.removals)
    changed = asked.get(messages.SetProperties)
    if changed is not None:
        wanted |= changed.updates
    told_id = wanted.pop(answers.TABLE_ID, table_id)
    report = asked.get(messages.SetLatestBackfilledVersion)
    added = asked.get(messages.AddCommit)

    def contradiction(protocol: Protocol, metadata: Metadata) -> str | None:
        if told_id != table_id:
            return f"{answers.TABLE_ID} is {told_id!r} in the request; the table is {table_id}, and stays it"
        return _contradiction(asked, protocol, metadata)

    return Terms(
        etag=etag,
        published_through=None if report is None else report.latest_published_version,
        properties={key: value for key, value in wanted.items() if not answers.is_derived(key)},
        contradiction=contradiction,
        in_commit_timestamp=None if added is None else added.commit.timestamp,
        size=None if added is None else added.commit.file_size,
    )


def properties_beside(metadata: Metadata, told: Mapping[str, str]) -> Terms:
    """Those properties of a creation that the log does not have, to be stored for it."""
    known = {*metadata.configuration, answers.TABLE_ID}
    return Terms(
        properties={key: value for key, value in told.items() if key not in known and not answers.is_derived(key)}
    )


def with_creation(request: messages.CreateTable, table_id: str, protocol: Protocol, metadata: Metadata) -> str | None:
    """How a creation contradicts its version 0, if it does."""
    told_id = (request.properties or {}).get(answers.TABLE_ID, table_id)
    if told_id != table_id:
        return f"{answers.TABLE_ID} is {told_id!r}; the staged table is {table_id}"
    logged_id = metadata.configuration.get(answers.TABLE_ID, table_id)
    if logged_id != table_id:
        return f"{answers.TABLE_ID} is {logged_id!r} in version 0; the staged table is {table_id}"
    for key, value in (request.properties or {}).items():
        found = metadata.configuration.get(key)
        if found is not None and found != value and not answers.is_derived(key):
            return f"the property {key} is {value!r} in the request and {found!r} in version 0"
    said: dict[type, Any] = {
        messages.SetColumns: messages.SetColumns(columns=request.columns),
        messages.SetProtocol: messages.SetProtocol(protocol=request.protocol),
    }
    if request.partition_columns is not None:
        said[messages.SetPartitionColumns] = messages.SetPartitionColumns(partition_columns=request.partition_columns)
    return _contradiction(said, protocol, metadata)


def _contradiction(said: Mapping[type, Any], protocol: Protocol, metadata: Metadata) -> str | None:
    columns = said.get(messages.SetColumns)
    try:
        flaw = None if columns is None else _columns_flaw(columns.columns, metadata)
    except RecursionError:
        flaw = "the request's columns have types that are nested too deeply"
    if flaw is not None:
        return flaw
    wanted = said.get(messages.SetProtocol)
    if wanted is not None and not _same_protocol(wanted.protocol, protocol):
        return f"the request's protocol is not the log's, which is {answers.protocol(protocol)}"
    partitions = said.get(messages.SetPartitionColumns)
    if partitions is not None and partitions.partition_columns != metadata.partition_columns:
        return (
            f"the request's partition columns are {list(partitions.partition_columns)}, the log's "
            f"{list(metadata.partition_columns)}"
        )
    comment = said.get(messages.SetTableComment)
    if comment is not None and (comment.comment or "") != (metadata.description or ""):
        return f"the request's comment is {comment.comment!r}, the log's {metadata.description!r}"
    return None


def _columns_flaw(columns: messages.Columns, metadata: Metadata) -> str | None:
    """Names and types, in order. Whether a column may be null, and its metadata, clients spell as they like."""
    told = [(field.name, answers.in_the_log(field.type)) for field in columns.fields]
    found = [(field.get("name"), field.get("type")) for field in answers.fields_of(metadata)]
    if [name for name, _ in told] != [name for name, _ in found]:
        return f"the request's columns are {[name for name, _ in told]}, the log's {[name for name, _ in found]}"
    for (name, kind), (_, logged) in zip(told, found, strict=True):
        if _bare(kind) != _bare(logged):
            return f"the request's column {name} has the type {kind!r}, the log's {logged!r}"
    return None


def _bare(kind: Any) -> Any:
    """A type without what clients spell differently."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if isinstance(kind, list):
        return [_bare(item) for item in kind]
    if isinstance(kind, dict):
        return {key: _bare(item) for key, item in kind.items() if key not in ("metadata", "nullable")}
    return kind


def _same_protocol(told: messages.WireProtocol, found: Protocol) -> bool:
    return (
        told.min_reader_version == found.min_reader_version
        and told.min_writer_version == found.min_writer_version
        and set(told.reader_features or ()) == set(found.reader_features or ())
        and set(told.writer_features or ()) == set(found.writer_features or ())
    )
