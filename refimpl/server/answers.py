"""The owner's values in the API's shapes.

UNITY_CATALOG.md#load. All fields that follow from the log's protocol and metadata are derived here,
from the read state of the answer.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from refimpl.catalog.messages import (
    COMMENT,
    FEATURE_PREFIX,
    FORBIDDEN_JOBS,
    LAST_TIMESTAMP,
    LAST_VERSION,
    MANAGED,
    TABLE_ID,
    LoadedMetadata,
    LoadedTable,
    ProtocolDemand,
    StagedTable,
    WireCommit,
    columns,
    fields_of,
    operations_of,
)
from refimpl.catalog.owner import TableDescription
from refimpl.protocol import table_feature
from refimpl.protocol.actions import Metadata
from refimpl.protocol.commit_owner import ALLOWED_BY_DEFAULT
from refimpl.protocol.commits import RatifiedCommit
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.server.last_change import LastChange

_SQL_TYPES: Final = {
    "byte": ("BYTE", "tinyint"),
    "short": ("SHORT", "smallint"),
    "integer": ("INT", "int"),
    "long": ("LONG", "bigint"),
    "float": ("FLOAT", "float"),
    "double": ("DOUBLE", "double"),
    "boolean": ("BOOLEAN", "boolean"),
    "string": ("STRING", "string"),
    "binary": ("BINARY", "binary"),
    "date": ("DATE", "date"),
    "timestamp": ("TIMESTAMP", "timestamp"),
    "timestamp_ntz": ("TIMESTAMP_NTZ", "timestamp_ntz"),
    "variant": ("VARIANT", "variant"),
}

CommitShape = Callable[[str, RatifiedCommit], WireCommit]
"""Gives a commit, whose staged file is in the folder, in the API's shape."""


def properties(description: TableDescription, change: LastChange) -> dict[str, str | None]:
    """The properties in the log, those only in the catalog, and further ones that clients expect."""
    features = dict.fromkeys(
        (*(description.protocol.reader_features or ()), *(description.protocol.writer_features or ()))
    )
    forbidden = sorted(job.value for job in ALLOWED_BY_DEFAULT - description.table.policy.allowed)
    return {
        **description.catalog_properties,
        **description.metadata.configuration,
        "delta.minReaderVersion": str(description.protocol.min_reader_version),
        "delta.minWriterVersion": str(description.protocol.min_writer_version),
        **{f"{FEATURE_PREFIX}{name}": "supported" for name in features},
        TABLE_ID: description.table.table_id,
        **change.properties,
        LAST_VERSION: str(change.version),
        LAST_TIMESTAMP: str(change.timestamp),
        **({FORBIDDEN_JOBS: ",".join(forbidden)} if forbidden else {}),
    }


def table(description: TableDescription, shape: CommitShape, change: LastChange) -> LoadedTable:
    """The answer to creating, loading and updating: metadata, and the unpublished commits, newest first."""
    latest = description.table.commits.latest_ratified_version
    folder = f"{description.table.location}/{LOG_FOLDER}/{description.table.feature.staging_folder}"
    return LoadedTable(
        metadata=LoadedMetadata(
            etag=description.etag,
            table_type=MANAGED,
            table_uuid=description.table.table_id,
            location=description.table.location.as_uri(),
            created_time=description.created_at,
            updated_time=description.updated_at,
            columns={"type": "struct", "fields": columns(description.metadata)},
            partition_columns=description.metadata.partition_columns,
            properties=properties(description, change),
            last_commit_version=change.version,
            last_commit_timestamp_ms=change.timestamp,
        ),
        commits=tuple(shape(folder, commit) for commit in reversed(description.table.commits.commits)),
        latest_table_version=latest,
        allowed_maintenance_operations=operations_of(description.table.policy.allowed),
    )


def commit(commit: RatifiedCommit, modified: int) -> WireCommit:
    """`modified`: the modification time of its staged file, in ms since the epoch."""
    assert commit.file_name is not None
    return WireCommit(
        version=commit.version,
        timestamp=commit.in_commit_timestamp,
        file_name=commit.file_name,
        file_size=commit.size,
        file_modification_timestamp=modified,
    )


def staged(table_id: str, location: Path) -> StagedTable:
    """A location for a new table, and what its version 0 must contain.

    Only features that this owner needs are required: any other would exclude clients that lack it.
    """
    reader = (table_feature.CATALOG_MANAGED.name, table_feature.VACUUM_PROTOCOL_CHECK)
    return StagedTable(
        table_id=table_id,
        location=location.as_uri(),
        storage_credentials=tuple(credentials(location, "READ_WRITE")),
        required_protocol=ProtocolDemand(
            min_reader_version=table_feature.CATALOG_MANAGED.min_reader_version,
            min_writer_version=7,
            reader_features=reader,
            writer_features=(*reader, table_feature.IN_COMMIT_TIMESTAMP_FEATURE),
        ),
        required_properties={table_feature.IN_COMMIT_TIMESTAMP_PROPERTY: "true", TABLE_ID: table_id},
    )


def credentials(location: Path, operation: str) -> list[dict[str, Any]]:
    """Local files need no credentials, but clients require the list. These expire at the end of the year 9999."""
    return [{"prefix": location.as_uri(), "operation": operation, "config": {}, "expiration-time-ms": NEVER}]


NEVER: Final = 253_402_300_799_000
"""ms since the epoch: the last second that Java and Python can show as a date."""


def listed_table(
    catalog: str, schema: str, name: str, description: TableDescription, change: LastChange
) -> dict[str, Any]:
    """A table in the shape of the lists."""
    return {
        "name": name,
        "catalog_name": catalog,
        "schema_name": schema,
        "table_type": MANAGED,
        "data_source_format": "DELTA",
        "columns": _listed_columns(description.metadata),
        "storage_location": description.table.location.as_uri(),
        "comment": description.catalog_properties.get(COMMENT, description.metadata.description) or None,
        "properties": properties(description, change),
        "owner": None,
        "created_at": description.created_at,
        "created_by": None,
        "updated_at": description.updated_at,
        "updated_by": None,
        "table_id": description.table.table_id,
        "view_definition": None,
        "view_dependencies": None,
    }


def _listed_columns(metadata: Metadata) -> list[dict[str, Any]]:
    partitions = {column: index for index, column in enumerate(metadata.partition_columns)}
    try:
        return [_listed_column(index, field, partitions) for index, field in enumerate(fields_of(metadata))]
    except RecursionError:
        return []


def _listed_column(position: int, field: Mapping[str, Any], partitions: Mapping[str, int]) -> dict[str, Any]:
    name, kind = str(field.get("name")), field.get("type")
    type_name, type_text = _sql_type(kind)
    precision, scale = _decimal(kind)
    comment = field.get("metadata", {}).get("comment") if isinstance(field.get("metadata"), dict) else None
    return {
        "name": name,
        "type_text": type_text,
        "type_json": msgspec.json.encode(field).decode(),
        "type_name": type_name,
        "type_precision": precision,
        "type_scale": scale,
        "type_interval_type": None,
        "position": position,
        "comment": comment,
        "nullable": field.get("nullable", True),
        "partition_index": partitions.get(name),
    }


def _sql_type(kind: Any) -> tuple[str, str]:
    """The name and the text of a type, as SQL spells it."""
    match kind:
        case str() if kind.startswith("decimal"):
            return "DECIMAL", kind
        case str():
            return _SQL_TYPES.get(kind, ("USER_DEFINED_TYPE", kind))
        case {"type": "array", "elementType": element}:
            return "ARRAY", f"array<{_sql_type(element)[1]}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return "MAP", f"map<{_sql_type(key)[1]},{_sql_type(value)[1]}>"
        case {"type": "struct", "fields": list(fields)} if all(isinstance(field, dict) for field in fields):
            inner = ",".join(f"{f.get('name')}:{_sql_type(f.get('type'))[1]}" for f in fields)
            return "STRUCT", f"struct<{inner}>"
    return "USER_DEFINED_TYPE", str(kind)


def _decimal(kind: Any) -> tuple[int | None, int | None]:
    if not isinstance(kind, str) or not kind.startswith("decimal(") or not kind.endswith(")"):
        return None, None
    precision, _, scale = kind[len("decimal(") : -1].partition(",")
    try:
        return int(precision), int(scale or 0)
    except ValueError:
        return None, None
