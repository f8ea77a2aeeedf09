"""The content of a commit as messages of the API, so that a server need not read the log."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from refimpl.catalog import messages as catalog_messages
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Action, CommitInfo, DomainMetadata, Metadata, Protocol
from refimpl.protocol.commits import AttemptId

_KNOWN_DOMAINS: Final = frozenset({"delta.rowTracking", "delta.clustering"})
"""Metadata domains that the API can express; the others are only in the log."""


def attempt_in(file_name: str) -> AttemptId:
    """The uuid in the name of a staged file; empty if it has none, which Unity Catalog accepts."""
    name = log_path.parse_staged(file_name)
    return "" if name is None or name.uuid is None else name.uuid


def in_commit_timestamp(content: bytes) -> int | None:
    """The in-commit timestamp in ms since the epoch; None if the commitInfo has none. Raises `CorruptLogError`."""
    first = next(iter(actions.decode(content.partition(b"\n")[0], source="the commit")), None)
    return first.in_commit_timestamp if isinstance(first, CommitInfo) else None


def _columns(metadata: Metadata) -> catalog_messages.Columns:
    return msgspec.convert({"type": "struct", "fields": catalog_messages.columns(metadata)}, catalog_messages.Columns)


def creation(name: str, staged: catalog_messages.StagedTable, content: bytes) -> catalog_messages.CreateTable:
    """The content of version 0, for a server that does not read it."""
    decoded = actions.decode(content, source="version 0")
    metadata = next(action for action in decoded if isinstance(action, Metadata))
    domains = {update.domain: _domain_document(update) for update in _domains(decoded)}
    return catalog_messages.CreateTable(
        name=name,
        location=staged.location,
        table_type=catalog_messages.MANAGED,
        columns=_columns(metadata),
        protocol=catalog_messages.protocol(next(action for action in decoded if isinstance(action, Protocol))),
        partition_columns=metadata.partition_columns,
        properties=dict(metadata.configuration),
        comment=metadata.description,
        domain_metadata=domains or None,
        last_commit_timestamp_ms=in_commit_timestamp(content) or 0,
    )


def _metadata_updates(
    metadata: Metadata,
    before: catalog_messages.LoadedTable,
    logged: Callable[[catalog_messages.LoadedTable], Mapping[str, str]],
) -> list[catalog_messages.Update]:
    had = {key: value for key, value in before.metadata.properties.items() if not catalog_messages.is_derived(key)}
    changed = {key: value for key, value in metadata.configuration.items() if had.get(key) != value}
    gone = sorted(key for key in had if key not in metadata.configuration)
    in_log = () if all(key.startswith("delta.") for key in gone) else logged(before)
    removed = tuple(key for key in gone if key.startswith("delta.") or key in in_log)
    updates: list[catalog_messages.Update] = []
    wanted = _columns(metadata)
    if msgspec.to_builtins(wanted) != before.metadata.columns:
        updates.append(catalog_messages.SetColumns(columns=wanted))
    if metadata.partition_columns != (before.metadata.partition_columns or ()):
        updates.append(catalog_messages.SetPartitionColumns(partition_columns=metadata.partition_columns))
    if changed:
        updates.append(catalog_messages.SetProperties(updates=changed))
    if removed:
        updates.append(catalog_messages.RemoveProperties(removals=removed))
    if metadata.description is not None:
        updates.append(catalog_messages.SetTableComment(comment=metadata.description))
    return updates


def _domains(decoded: Sequence[Action]) -> list[DomainMetadata]:
    return [action for action in decoded if isinstance(action, DomainMetadata) and action.domain in _KNOWN_DOMAINS]


def _domain_document(domain: DomainMetadata) -> dict[str, object]:
    """The domain's content without its name, which the log repeats in it and the API does not. Raises
    `msgspec.DecodeError`."""
    document: dict[str, object] = msgspec.json.decode(domain.configuration, type=dict[str, object])
    return {member: value for member, value in document.items() if member != "domainName"}


def _domain_updates(decoded: Sequence[Action]) -> list[catalog_messages.Update]:
    set_, removed = {}, []
    for action in _domains(decoded):
        if action.removed:
            removed.append(action.domain)
        else:
            with contextlib.suppress(msgspec.DecodeError):
                set_[action.domain] = _domain_document(action)
    updates: list[catalog_messages.Update] = [catalog_messages.SetDomainMetadata(updates=set_)] if set_ else []
    return [*updates, catalog_messages.RemoveDomainMetadata(domains=tuple(removed))] if removed else updates


def configuration_in(content: bytes) -> Mapping[str, str] | None:
    """The properties that a commit sets; None: it leaves them. Raises `CorruptLogError`."""
    if b'"metaData"' not in content:
        return None
    found = [action for action in actions.decode(content, source="a commit") if isinstance(action, Metadata)]
    return found[-1].configuration if found else None


def changes(
    content: bytes,
    before: Callable[[], catalog_messages.LoadedTable],
    logged: Callable[[catalog_messages.LoadedTable], Mapping[str, str]],
) -> list[catalog_messages.Update]:
    """The updates that a commit makes to the table's metadata at the server. `before` loads the present metadata, and
    `logged` the properties that the log has now; they are called only if needed.

    A property that the server has and the commit lacks is removed at the server only if it is a `delta.*` property or
    is in the log: the server may keep other properties that were never in the log. Raises `CorruptLogError`.
    """
    if not any(f'{{"{kind}":'.encode() in content for kind in ("metaData", "protocol", "domainMetadata")):
        return []
    decoded = actions.decode(content, source="the staged commit")
    updates: list[catalog_messages.Update] = []
    for action in decoded:
        if isinstance(action, Metadata):
            updates += _metadata_updates(action, before(), logged)
        elif isinstance(action, Protocol):
            updates.append(catalog_messages.SetProtocol(protocol=catalog_messages.protocol(action)))
    return updates + _domain_updates(decoded)
