"""Checkpoint files of every kind, written with nothing of ours: Arrow and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from refimpl.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn

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
