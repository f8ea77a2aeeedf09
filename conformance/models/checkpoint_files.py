"""Checkpoints as Parquet, as the kit writes them: one row for each action, one column for each kind.

The columns are those that every reader knows; a kind that a checkpoint does not hold has a column all the same.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import Any


@cache
def _schema() -> Any:
    """Of all columns. Arrow takes long to import, which most processes of a run need not wait for."""
    import pyarrow as pa

    texts = pa.list_(pa.field("element", pa.string()))
    strings = pa.map_(pa.string(), pa.string())
    vector = pa.struct(
        {
            "storageType": pa.string(),
            "pathOrInlineDv": pa.string(),
            "offset": pa.int32(),
            "sizeInBytes": pa.int32(),
            "cardinality": pa.int64(),
        }
    )

    return pa.schema(
        {
            "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
            "add": pa.struct(
                {
                    "path": pa.string(),
                    "partitionValues": strings,
                    "size": pa.int64(),
                    "modificationTime": pa.int64(),
                    "dataChange": pa.bool_(),
                    "stats": pa.string(),
                    "deletionVector": vector,
                }
            ),
            "remove": pa.struct(
                {
                    "path": pa.string(),
                    "deletionTimestamp": pa.int64(),
                    "dataChange": pa.bool_(),
                    "deletionVector": vector,
                }
            ),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "name": pa.string(),
                    "description": pa.string(),
                    "format": pa.struct({"provider": pa.string(), "options": strings}),
                    "schemaString": pa.string(),
                    "partitionColumns": texts,
                    "configuration": strings,
                    "createdTime": pa.int64(),
                }
            ),
            "protocol": pa.struct(
                {
                    "minReaderVersion": pa.int32(),
                    "minWriterVersion": pa.int32(),
                    "readerFeatures": texts,
                    "writerFeatures": texts,
                }
            ),
            "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
            "checkpointMetadata": pa.struct({"version": pa.int64()}),
            "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()}),
        }
    )


def parquet(actions: Sequence[dict[str, Any]]) -> bytes:
    """A checkpoint file with these actions. Only V2 checkpoints have the columns that are theirs alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {kind for action in actions for kind in action}
    schema = _schema()
    for kind in ("checkpointMetadata", "sidecar"):
        if kind not in kinds:
            schema = schema.remove(schema.get_field_index(kind))
    rows = [{kind: _in_pairs(body) for kind, body in action.items()} for action in actions]
    written = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), written, compression="none", use_dictionary=False)
    return written.getvalue()


def _in_pairs(body: Any) -> Any:
    """Maps as Arrow takes them."""
    if not isinstance(body, dict):
        return body
    maps = ("partitionValues", "configuration", "options")
    return {
        key: list(value.items()) if key in maps and isinstance(value, dict) else _in_pairs(value)
        for key, value in body.items()
    }
