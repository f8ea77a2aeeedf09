"""The actions of the kit's commits: small, valid, and each identified by its attempt's id, the `txnId`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from conformance.interface.log_names import FILESYSTEM

TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"
KEPT: Final = "delta.logRetentionDuration"
"""A property of a table that does not concern its owner."""
BASE_TIME: Final = 1_700_000_000_000
"""The time of version 0, in ms since the epoch. In-commit timestamps may be far from the wall clock."""

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

NAMED: Final = json.dumps(
    {
        "type": "struct",
        "fields": [
            {
                **column,
                "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"},
            }
            for number, column in enumerate(json.loads(SCHEMA)["fields"], 1)
            for name in (column["name"],)
        ],
    },
    separators=(",", ":"),
)
"""The same columns, with ids and physical names."""
WITH_VOID: Final = f'{SCHEMA[:-2]},{{"name":"nothing","type":"void","nullable":true,"metadata":{{}}}}]}}'
"""One more column, of the type void."""
MODE: Final = "delta.columnMapping.mode"

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
"""The protocol, by table feature; None for a table that an owner can take over. A plain table requires as little as
possible, so that old clients can write it."""


def line(kind: str, body: object) -> str:
    """One action, as a line of a log."""
    return json.dumps({kind: body}, separators=(",", ":"))


def commit_info(attempt: str, timestamp: int, operation: str = "WRITE", *, ms: int = 0, **more: Any) -> str:
    """The first action of a commit, with its in-commit timestamp. Its writer began so many `ms` before that."""
    body = {"inCommitTimestamp": timestamp, "timestamp": timestamp - ms, "operation": operation, "txnId": attempt}
    body |= more
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
    """The protocol of a table with this feature and more writer features. It keeps the feature that the kit's catalog
    requires of every table."""
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
    """Table metadata; `table` is its id. `stamped`: with in-commit timestamps."""
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
    schema: str = SCHEMA,
) -> tuple[str, ...]:
    """The actions that `create_table` proposes or, without a table feature, that a filesystem writer writes."""
    return (
        commit_info(attempt, timestamp, "CREATE TABLE"),
        protocol(feature),
        metadata(table, timestamp, properties, partition_columns, stamped=feature != FILESYSTEM, schema=schema),
    )


def ownership_change(attempt: str, timestamp: int, feature: str | None, table: str) -> tuple[str, ...]:
    """The actions that give a table the feature of its owner or, without one, end the ownership. The property `KEPT`
    stays."""
    operation = "UNSET TBLPROPERTIES" if feature is None else "SET TBLPROPERTIES"
    return (
        commit_info(attempt, timestamp, operation),
        protocol(feature),
        metadata(table, timestamp, {KEPT: "interval 30 days"}),
    )


def append(attempt: str, timestamp: int, files: Iterable[str] | None = None) -> tuple[str, ...]:
    """A commit that adds the files; by default, one new file."""
    named = [f"part-00000-{attempt}.snappy.parquet"] if files is None else list(files)
    return (commit_info(attempt, timestamp), *(add(path, timestamp) for path in named))


def content(actions: Iterable[str]) -> str:
    """The content of a commit file: newline-delimited JSON."""
    return "".join(f"{action}\n" for action in actions)


def lines(content: str) -> list[str]:
    """The lines of a commit, without blank ones. Only a line feed ends a line: `str.splitlines` also splits inside
    strings."""
    return [line for line in content.split("\n") if line.strip()]


def body_of(content: str, kind: str) -> dict[str, Any] | None:
    """The first action of this kind in a commit; lines that are not actions are ignored."""
    for line in lines(content):
        try:
            action = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(action, dict) and isinstance(action.get(kind), dict):
            return dict(action[kind])
    return None


def table_id_in(actions: Iterable[str]) -> str:
    """The table's id in the metadata that a commit sets; empty if it sets none."""
    return str((body_of(content(actions), "metaData") or {}).get("id", ""))


def attempt_of(text: str) -> str | None:
    """The attempt that wrote this commit: the `txnId` of its first action. None if the kit did not write it."""
    try:
        attempt = json.loads(text.partition("\n")[0])["commitInfo"]["txnId"]
    except (ValueError, KeyError, TypeError):
        return None
    return attempt if isinstance(attempt, str) else None


def time_of(content: str) -> int | None:
    """The in-commit timestamp of this commit, in ms; None if its first action has none."""
    time = (body_of(content.partition("\n")[0], "commitInfo") or {}).get("inCommitTimestamp")
    return None if isinstance(time, bool) or not isinstance(time, int) else time
