"""The actions of the kit's commits: small, valid, and each recognisable by its attempt's id, the `txnId`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from conformance.interface.log_names import FILESYSTEM

TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"
BASE_TIME: Final = 1_700_000_000_000
"""ms since the epoch, of version 0. In-commit timestamps may be far from the wall clock."""

SCHEMA: Final = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "part", "type": "string", "nullable": True, "metadata": {}},
        ],
    },
    separators=(",", ":"),
)

OTHER_TYPE: Final = SCHEMA.replace("long", "string")
"""The same columns, of which one has another type."""

PROTOCOLS: Final[Mapping[str | None, dict[str, Any]]] = {
    "managedCommit": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp", "managedCommit"],
    },
    "catalogManaged": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged"],
        "writerFeatures": ["catalogManaged", "inCommitTimestamp"],
    },
    None: {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]},
    FILESYSTEM: {"minReaderVersion": 1, "minWriterVersion": 2},
}
"""By table feature; None: a table that an owner can take over. A plain table asks for as little as possible, so that
old clients can write it."""


def line(kind: str, body: object) -> str:
    """One action as it stands in a log."""
    return json.dumps({kind: body}, separators=(",", ":"))


def commit_info(attempt: str, timestamp: int, operation: str = "WRITE", **more: Any) -> str:
    """in-commit timestamps: the first action of its commit."""
    body = {"inCommitTimestamp": timestamp, "timestamp": timestamp, "operation": operation, "txnId": attempt, **more}
    return line("commitInfo", body)


def add(path: str, timestamp: int, partition: str | None = None, *, partitioned: bool = False) -> str:
    body = {
        "path": path,
        "partitionValues": {"part": partition} if partitioned else {},
        "size": 1,
        "modificationTime": timestamp,
        "dataChange": True,
    }
    return line("add", body)


def remove(path: str, timestamp: int) -> str:
    return line("remove", {"path": path, "deletionTimestamp": timestamp, "dataChange": True})


def protocol(feature: str | None) -> str:
    return line("protocol", PROTOCOLS[feature])


def with_features(feature: str | None, *writer_features: str) -> dict[str, Any]:
    """The protocol of such a table, with more writer features. A change of it keeps the feature that the kit's catalog
    demands of every table."""
    protocol = dict(PROTOCOLS[feature])
    if feature == "catalogManaged":
        protocol["readerFeatures"] = [*protocol["readerFeatures"], "vacuumProtocolCheck"]
        writer_features = (*writer_features, "vacuumProtocolCheck")
    implied = protocol.get("writerFeatures", ("appendOnly", "invariants"))
    return {**protocol, "minWriterVersion": 7, "writerFeatures": sorted({*implied, *writer_features})}


def metadata(
    table: str,
    timestamp: int,
    properties: Mapping[str, str] | None = None,
    partition_columns: Sequence[str] = (),
    *,
    stamped: bool = True,
    schema: str = SCHEMA,
) -> str:
    """`table` is the id that the metadata carries. `stamped`: with in-commit timestamps."""
    body = {
        "id": table,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": list(partition_columns),
        "configuration": {**({TIMESTAMPS: "true"} if stamped else {}), **(properties or {})},
        "createdTime": timestamp,
    }
    return line("metaData", body)


def version_0(
    feature: str | None,
    attempt: str,
    table: str,
    *,
    timestamp: int = BASE_TIME,
    properties: Mapping[str, str] | None = None,
    partition_columns: Sequence[str] = (),
) -> tuple[str, ...]:
    """What `create_table` proposes. Without a table feature, what a filesystem writer would write."""
    return (
        commit_info(attempt, timestamp, "CREATE TABLE"),
        protocol(feature),
        metadata(table, timestamp, properties, partition_columns, stamped=feature != FILESYSTEM),
    )


def append(attempt: str, timestamp: int, files: Iterable[str] | None = None) -> tuple[str, ...]:
    """A commit that adds files; without any named, one of its own."""
    named = [f"part-00000-{attempt}.snappy.parquet"] if files is None else list(files)
    return (commit_info(attempt, timestamp), *(add(path, timestamp) for path in named))


def content(actions: Iterable[str]) -> str:
    """As a file: newline-delimited JSON."""
    return "".join(f"{action}\n" for action in actions)


def lines(content: str) -> list[str]:
    """Of a commit, without blank ones. Only a line feed ends a line: `str.splitlines` would also end one inside of a
    string."""
    return [line for line in content.split("\n") if line.strip()]


def body_of(content: str, kind: str) -> dict[str, Any] | None:
    """The first action of this kind in a commit; lines that are no actions are ignored."""
    for line in lines(content):
        try:
            action = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(action, dict) and isinstance(action.get(kind), dict):
            return dict(action[kind])
    return None


def attempt_of(text: str) -> str | None:
    """The attempt whose commit this content is: the `txnId` of its first action. None: it is not one of the kit's."""
    try:
        found = json.loads(text.partition("\n")[0])["commitInfo"]["txnId"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
