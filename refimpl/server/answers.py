"""The owner's values in the API's shapes.

UNITY_CATALOG.md#load. Whatever can be derived from the log's
own protocol and metadata is derived here, from the read state that the answer is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from refimpl.actions import Metadata, Protocol
from refimpl.catalog_owner import TableDescription
from refimpl.commits import RatifiedCommit
from refimpl.log_path import LOG_FOLDER
from refimpl.table_feature import CATALOG_MANAGED, IN_COMMIT_TIMESTAMP_FEATURE, IN_COMMIT_TIMESTAMP_PROPERTY

TABLE_ID: Final = "io.unitycatalog.tableId"
MANAGED: Final = "MANAGED"
VACUUM_CHECK: Final = "vacuumProtocolCheck"
_LAST_VERSION: Final = "delta.lastUpdateVersion"
_LAST_TIMESTAMP: Final = "delta.lastCommitTimestamp"
_DERIVED: Final = frozenset({_LAST_VERSION, _LAST_TIMESTAMP, "delta.minReaderVersion", "delta.minWriterVersion"})
_FEATURE_PREFIX: Final = "delta.feature."

_NESTED_NAMES: Final = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_LOG_NAMES: Final = {wire: log for log, wire in _NESTED_NAMES.items()}

_LEGACY_TYPES: Final = {
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

ModificationTime = Callable[[Path, str], int | None]
"""Modification time of a staged file in a folder, in ms since the epoch; None if it is gone."""


def is_derived(key: str) -> bool:
    """Whether a property only repeats what the answer is made of: clients send these back."""
    return key in _DERIVED or key.startswith(_FEATURE_PREFIX)


def features_in(properties: Iterable[str]) -> list[str]:
    """The table features that these properties name."""
    return [key.removeprefix(_FEATURE_PREFIX) for key in properties if key.startswith(_FEATURE_PREFIX)]


def url_of(location: Path) -> str:
    return location.as_uri()


def properties(found: TableDescription) -> dict[str, str]:
    """The log's properties, those that only the catalog has, and those that clients expect besides."""
    features = dict.fromkeys((*(found.protocol.reader_features or ()), *(found.protocol.writer_features or ())))
    return {
        **found.catalog_properties,
        **found.metadata.configuration,
        "delta.minReaderVersion": str(found.protocol.min_reader_version),
        "delta.minWriterVersion": str(found.protocol.min_writer_version),
        **{f"{_FEATURE_PREFIX}{name}": "supported" for name in features},
        TABLE_ID: found.table.table_id,
        _LAST_VERSION: str(found.table.commits.latest_ratified_version),
        _LAST_TIMESTAMP: str(found.in_commit_timestamp),
    }


def fields_of(metadata: Metadata) -> list[dict[str, Any]]:
    """The columns as the log has them; none where its schema cannot be read. What a log says of its columns is for
    its readers to judge: it must not keep anybody from what else there is."""
    try:
        schema = msgspec.json.decode(metadata.schema_string, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return []
    fields = schema.get("fields")
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def columns(metadata: Metadata) -> list[Any]:
    """The columns in the API's spelling; none where types are nested so deeply that Python cannot follow."""
    try:
        found: list[Any] = _respelled(fields_of(metadata), _NESTED_NAMES)
    except RecursionError:
        return []
    return found


def in_the_log(value: Any) -> Any:
    """A data type of the API in the log's spelling."""
    return _respelled(value, _LOG_NAMES)


def _respelled(value: Any, names: Mapping[str, str]) -> Any:
    """Only the parts of a type: a column's metadata is anybody's JSON."""
    if isinstance(value, list):
        return [_respelled(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {names.get(key, key): item if key == "metadata" else _respelled(item, names) for key, item in value.items()}


def protocol(action: Protocol) -> dict[str, Any]:
    return {
        "min-reader-version": action.min_reader_version,
        "min-writer-version": action.min_writer_version,
        "reader-features": list(action.reader_features or ()),
        "writer-features": list(action.writer_features or ()),
    }


def table(found: TableDescription, modified: ModificationTime) -> dict[str, Any]:
    """What creating, loading and updating answer: metadata, and the commits that are not published, newest first."""
    latest = found.table.commits.latest_ratified_version
    folder = found.table.location / LOG_FOLDER / found.table.feature.staging_folder
    return {
        "metadata": {
            "etag": found.etag,
            "table-type": MANAGED,
            "table-uuid": found.table.table_id,
            "location": url_of(found.table.location),
            "created-time": found.created_at,
            "updated-time": found.updated_at,
            "columns": {"type": "struct", "fields": columns(found.metadata)},
            "partition-columns": list(found.metadata.partition_columns),
            "properties": properties(found),
            "last-commit-version": latest,
            "last-commit-timestamp-ms": found.in_commit_timestamp,
        },
        "commits": [_commit(folder, commit, modified) for commit in reversed(found.table.commits.commits)],
        "latest-table-version": latest,
    }


def _commit(folder: Path, commit: RatifiedCommit, modified: ModificationTime) -> dict[str, Any]:
    assert commit.file_name is not None
    return {
        "version": commit.version,
        "timestamp": commit.in_commit_timestamp,
        "file-name": commit.file_name,
        "file-size": commit.size,
        "file-modification-timestamp": modified(folder, commit.file_name) or commit.ratified_at,
    }


def staged(table_id: str, location: Path) -> dict[str, Any]:
    """A place for a new table, and what its version 0 must say.

    Only what this owner needs is required: every further feature would lock out clients that lack it.
    """
    reader = [CATALOG_MANAGED.name, VACUUM_CHECK]
    return {
        "table-id": table_id,
        "table-type": MANAGED,
        "location": url_of(location),
        "storage-credentials": credentials(location, "READ_WRITE"),
        "required-protocol": {
            "min-reader-version": CATALOG_MANAGED.min_reader_version,
            "min-writer-version": 7,
            "reader-features": reader,
            "writer-features": [*reader, IN_COMMIT_TIMESTAMP_FEATURE],
        },
        "suggested-protocol": {"reader-features": [], "writer-features": []},
        "required-properties": {IN_COMMIT_TIMESTAMP_PROPERTY: "true", TABLE_ID: table_id},
        "suggested-properties": {},
    }


def credentials(location: Path, operation: str) -> list[dict[str, Any]]:
    """Local files need none; clients want the list."""
    return [{"prefix": url_of(location), "operation": operation, "config": {}, "expiration-time-ms": None}]


def legacy_table(catalog: str, schema: str, name: str, found: TableDescription) -> dict[str, Any]:
    """A table as the older calls tell of it."""
    return {
        "name": name,
        "catalog_name": catalog,
        "schema_name": schema,
        "table_type": MANAGED,
        "data_source_format": "DELTA",
        "columns": _legacy_columns(found.metadata),
        "storage_location": url_of(found.table.location),
        "comment": found.metadata.description,
        "properties": properties(found),
        "owner": None,
        "created_at": found.created_at,
        "created_by": None,
        "updated_at": found.updated_at,
        "updated_by": None,
        "table_id": found.table.table_id,
        "view_definition": None,
        "view_dependencies": None,
    }


def _legacy_columns(metadata: Metadata) -> list[dict[str, Any]]:
    partitions = {column: index for index, column in enumerate(metadata.partition_columns)}
    try:
        return [_legacy_column(index, field, partitions) for index, field in enumerate(fields_of(metadata))]
    except RecursionError:
        return []


def _legacy_column(position: int, field: Mapping[str, Any], partitions: Mapping[str, int]) -> dict[str, Any]:
    name, kind = str(field.get("name")), field.get("type")
    type_name, type_text = _legacy_type(kind)
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


def _legacy_type(kind: Any) -> tuple[str, str]:
    """The name and the text of a type, as SQL spells it."""
    match kind:
        case str() if kind.startswith("decimal"):
            return "DECIMAL", kind
        case str():
            return _LEGACY_TYPES.get(kind, ("USER_DEFINED_TYPE", kind))
        case {"type": "array", "elementType": element}:
            return "ARRAY", f"array<{_legacy_type(element)[1]}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return "MAP", f"map<{_legacy_type(key)[1]},{_legacy_type(value)[1]}>"
        case {"type": "struct", "fields": list(fields)} if all(isinstance(field, dict) for field in fields):
            inner = ",".join(f"{f.get('name')}:{_legacy_type(f.get('type'))[1]}" for f in fields)
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
