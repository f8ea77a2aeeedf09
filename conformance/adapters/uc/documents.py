"""Translates between the actions of a log and the documents of the Delta API.

Beside the commit itself, a client of the API sends the changes of the table's metadata in it, because the server does
not read the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from conformance.adapters.uc.api import Loaded, RequiredProtocol, Staged

_LEGAL_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,99}", re.ASCII)
_DERIVED: Final = re.compile(
    r"delta\.(feature\..*|minReaderVersion|minWriterVersion|lastUpdateVersion|lastCommitTimestamp"
    r"|clusteringColumns|rowTracking\.rowIdHighWaterMark)"
)
"""Properties that the server derives from the protocol, the newest commit and metadata domains. No client sets
them."""

Actions = Sequence[dict[str, Any]]


def table_name(name: str) -> str:
    """The table's name in the catalog, whose names are lower-case identifiers. A valid name stays as it is."""
    if _LEGAL_NAME.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9]+", "_", name.lower())[:80]
    return f"t_{readable}_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def content_of(actions: Iterable[str]) -> bytes:
    """The content of a log file with these actions."""
    return "".join(f"{action}\n" for action in actions).encode("utf-8", "surrogatepass")


def parsed(content: bytes) -> list[dict[str, Any]]:
    """The actions of a file that can be parsed. The others are left out: the server has to reject them."""
    actions = []
    for line in content.decode("utf-8", "replace").split("\n"):
        try:
            action = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(action, dict):
            actions.append(action)
    return actions


def body_of(actions: Actions, kind: str) -> dict[str, Any] | None:
    """The body of the last action of the kind."""
    bodies = [action[kind] for action in actions if isinstance(action.get(kind), dict)]
    return bodies[-1] if bodies else None


def attempt_of(actions: Actions) -> str | None:
    """The attempt of the commit: its `txnId`."""
    attempt = (body_of(actions[:1], "commitInfo") or {}).get("txnId")
    return attempt if isinstance(attempt, str) else None


def timestamp_of(actions: Actions) -> int | None:
    """The in-commit timestamp, in ms."""
    time = (body_of(actions[:1], "commitInfo") or {}).get("inCommitTimestamp")
    return time if isinstance(time, int) else None


# A new table


def with_requirements(actions: Iterable[str], staged: Staged) -> tuple[str, ...]:
    """Version 0 with the features and properties that the server requires of its tables."""
    return tuple(_with_requirements(action, staged) for action in actions)


def _with_requirements(action: str, staged: Staged) -> str:
    try:
        document = json.loads(action)
    except (ValueError, RecursionError):
        return action
    if isinstance(document, dict) and isinstance(document.get("protocol"), dict):
        _demand(document["protocol"], staged.required_protocol)
    elif isinstance(document, dict) and isinstance(document.get("metaData"), dict):
        configuration = document["metaData"].setdefault("configuration", {})
        if isinstance(configuration, dict):
            configuration |= {key: value for key, value in staged.required_properties.items() if value is not None}
    else:
        return action
    return json.dumps(document, separators=(",", ":"))


def _demand(protocol: dict[str, Any], required: RequiredProtocol) -> None:
    for field, features in (("readerFeatures", required.reader_features), ("writerFeatures", required.writer_features)):
        has = protocol.get(field)
        if features and isinstance(has, list):
            protocol[field] = sorted({*has, *features})


def creation(name: str, staged: Staged, actions: Actions) -> dict[str, Any]:
    """The document that registers the table with these actions as version 0."""
    metadata = body_of(actions, "metaData") or {}
    return {
        "name": name,
        "location": staged.location,
        "table-type": "MANAGED",
        "columns": _columns(metadata),
        "partition-columns": metadata.get("partitionColumns") or [],
        "protocol": _protocol(body_of(actions, "protocol") or {}),
        "properties": metadata.get("configuration") or {},
        "last-commit-timestamp-ms": timestamp_of(actions),
    }


def _columns(metadata: Mapping[str, Any]) -> Any:
    try:
        return json.loads(metadata.get("schemaString") or "null")
    except (ValueError, TypeError):
        return None


def _protocol(protocol: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "min-reader-version": protocol.get("minReaderVersion"),
        "min-writer-version": protocol.get("minWriterVersion"),
        "reader-features": protocol.get("readerFeatures") or [],
        "writer-features": protocol.get("writerFeatures") or [],
    }


# What a commit changes


def changes_metadata(actions: Actions) -> bool:
    return any(kind in action for action in actions for kind in ("metaData", "protocol"))


def updates_of(actions: Actions, before: Loaded) -> list[dict[str, Any]]:
    """The updates of metadata, protocol and domains in the commit, compared with what the server has."""
    updates: list[dict[str, Any]] = []
    metadata, protocol = body_of(actions, "metaData"), body_of(actions, "protocol")
    if metadata is not None:
        updates += _metadata_updates(metadata, before)
    if protocol is not None:
        updates.append({"action": "set-protocol", "protocol": _protocol(protocol)})
    return updates + _domain_updates(actions)


def _metadata_updates(metadata: Mapping[str, Any], before: Loaded) -> list[dict[str, Any]]:
    had = {key: value for key, value in (before.metadata.properties or {}).items() if not _DERIVED.fullmatch(key)}
    wanted = metadata.get("configuration") or {}
    changed = {key: value for key, value in wanted.items() if had.get(key) != value}
    removed = sorted(key for key in had if key not in wanted)
    columns, partitions = _columns(metadata), list(metadata.get("partitionColumns") or [])
    updates: list[dict[str, Any]] = []
    if columns != before.metadata.columns:
        updates.append({"action": "set-columns", "columns": columns})
    if partitions != list(before.metadata.partition_columns or ()):
        updates.append({"action": "set-partition-columns", "partition-columns": partitions})
    if changed:
        updates.append({"action": "set-properties", "updates": changed})
    if removed:
        updates.append({"action": "remove-properties", "removals": removed})
    return updates


def _domain_updates(actions: Actions) -> list[dict[str, Any]]:
    """The updates of the two metadata domains that the API knows. Other domains are only in the log."""
    known = {"delta.rowTracking", "delta.clustering"}
    bodies = [body for action in actions if isinstance(body := action.get("domainMetadata"), dict)]
    domains = [body for body in bodies if body.get("domain") in known]
    removed = [body["domain"] for body in domains if body.get("removed")]
    updates: list[dict[str, Any]] = []
    if len(domains) > len(removed):
        values = {body["domain"]: json.loads(body["configuration"]) for body in domains if not body.get("removed")}
        updates.append({"action": "set-domain-metadata", "updates": values})
    if removed:
        updates.append({"action": "remove-domain-metadata", "domains": removed})
    return updates


# The actions in a loaded table


def protocol_action(table: Loaded) -> str | None:
    """The protocol, from the table's properties. They do not tell which features are reader features."""
    properties = table.metadata.properties or {}
    features = [key.removeprefix("delta.feature.") for key in sorted(properties) if key.startswith("delta.feature.")]
    reader, writer = properties.get("delta.minReaderVersion"), properties.get("delta.minWriterVersion")
    if reader is None or writer is None or not (reader.isdecimal() and writer.isdecimal()):
        return None
    body = {"minReaderVersion": int(reader), "minWriterVersion": int(writer), "writerFeatures": features}
    return json.dumps({"protocol": body}, separators=(",", ":"))


def metadata_action(table: Loaded) -> str | None:
    if table.metadata.columns is None:
        return None
    properties = table.metadata.properties or {}
    body = {
        "schemaString": json.dumps(table.metadata.columns, separators=(",", ":")),
        "partitionColumns": list(table.metadata.partition_columns or ()),
        "configuration": {key: value for key, value in properties.items() if not _DERIVED.fullmatch(key)},
    }
    return json.dumps({"metaData": body}, separators=(",", ":"))
