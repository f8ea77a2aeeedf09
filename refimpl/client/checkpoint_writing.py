"""The Parquet file of a classic checkpoint.

Delta's protocol, "Checkpoint Schema": one row per action, one struct column per kind of action, all but one
of them null. Column by column, for a table may have millions of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from refimpl.actions import Action, Add, DeletionVector, DomainMetadata, Metadata, Protocol, Remove, Txn

if TYPE_CHECKING:
    from refimpl.client.snapshot import Snapshot

ROWS_AT_ONCE: Final = 50_000
"""Of a row group."""

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_LIST: Final = pa.list_(pa.field("element", pa.string()))
_DELETION_VECTOR: Final = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_FILE: Final = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "tags": _TEXTS,
    "deletionVector": _DELETION_VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
_COLUMNS: Final[dict[type, tuple[str, dict[str, pa.DataType]]]] = {
    Protocol: (
        "protocol",
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": _LIST,
            "writerFeatures": _LIST,
        },
    ),
    Metadata: (
        "metaData",
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": pa.struct([("provider", pa.string()), ("options", _TEXTS)]),
            "schemaString": pa.string(),
            "partitionColumns": _LIST,
            "configuration": _TEXTS,
            "createdTime": pa.int64(),
        },
    ),
    Txn: ("txn", {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    DomainMetadata: (
        "domainMetadata",
        {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
    ),
    Remove: (
        "remove",
        _FILE | {"deletionTimestamp": pa.int64(), "dataChange": pa.bool_(), "extendedFileMetadata": pa.bool_()},
    ),
    Add: (
        "add",
        _FILE
        | {
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "stats": pa.string(),
            "clusteringProvider": pa.string(),
        },
    ),
}
_SCHEMA: Final = pa.schema([pa.field(name, pa.struct(list(members.items()))) for name, members in _COLUMNS.values()])


def encode(snapshot: Snapshot, *, oldest_tombstone: int) -> tuple[bytes, int]:
    """The checkpoint's bytes, and how many actions it holds.

    `oldest_tombstone`: files removed at or before this time (ms since the epoch) are forgotten; nobody can
    need them once VACUUM may delete them.
    """
    tombstones = [
        remove for remove in snapshot.tombstones.values() if (remove.deletion_timestamp or 0) > oldest_tombstone
    ]
    small = [*snapshot.transactions.values(), *snapshot.domains.values()]
    count = 0
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _SCHEMA, compression="snappy") as writer:
        writer.write_table(pa.concat_tables([_rows([snapshot.protocol]), _rows([snapshot.metadata])]))
        count += 2
        for kind in (Txn, DomainMetadata):
            for chunk in _chunks([action for action in small if isinstance(action, kind)]):
                writer.write_table(_rows(chunk))
                count += len(chunk)
        for files in (tombstones, list(snapshot.files.values())):
            for chunk in _chunks(files):
                writer.write_table(_rows(chunk))
                count += len(chunk)
    content: bytes = sink.getvalue().to_pybytes()
    return content, count


def _chunks(actions: Sequence[Action]) -> Iterator[Sequence[Action]]:
    for start in range(0, len(actions), ROWS_AT_ONCE):
        yield actions[start : start + ROWS_AT_ONCE]


def _rows(actions: Sequence[Action]) -> pa.Table:
    """Rows of one kind of action."""
    kind = type(actions[0])
    name, members = _COLUMNS[kind]
    attributes = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))  # type: ignore[union-attr]
    arrays = [
        pa.array([_VALUES.get(spelled, _same)(getattr(action, attributes[spelled])) for action in actions], kind_of)
        for spelled, kind_of in members.items()
    ]
    filled = pa.StructArray.from_arrays(arrays, fields=[pa.field(key, kind_of) for key, kind_of in members.items()])
    return pa.table(
        [filled if field.name == name else pa.nulls(len(actions), field.type) for field in _SCHEMA], schema=_SCHEMA
    )


def _same(value: Any) -> Any:
    return value


def _pairs(value: dict[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if value is None else list(value.items())


def _vector(value: DeletionVector | None) -> dict[str, Any] | None:
    if value is None:
        return None
    spelled = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return {name: getattr(value, attribute) for name, attribute in spelled}


_VALUES: Final[dict[str, Callable[[Any], Any]]] = {
    "partitionValues": _pairs,
    "tags": _pairs,
    "configuration": lambda value: _pairs(value) if isinstance(value, dict) else value,
    "format": lambda value: {"provider": value.provider, "options": _pairs(value.options)},
    "deletionVector": _vector,
    "dataChange": lambda _: False,
}
"""How some members become Arrow's values. A checkpoint changes no data."""
