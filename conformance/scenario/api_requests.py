"""What a client must send to a catalog with Unity Catalog's Delta API: UC_DELTA_API.md#clients.

The kit's catalog shows each request for a creation or an update to the kit's owner, as the client sent it. Findings
about it do not depend on the answer, which may be lost.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.adapters.uc.api import DERIVED, TableUpdate, respelled
from conformance.interface import messages as m
from conformance.interface.log_names import LOG, STAGING, TABLE_ID, commit_file
from conformance.models import proposals
from conformance.models.owner import OwnedTable
from conformance.scenario.audit import Before, Problem

SHAPE, LOCKSTEP, DERIVED_KEYS, REPORT, DESCRIPTION, RETRY, CREATION, KEPT_ID = (
    (f"UC-CLIENT-{number:02}",) for number in range(1, 9)
)
_MIRRORED: Final = "the request of a commit has its changes of the log"
_DOMAINS: Final = ("delta.clustering", "delta.rowTracking")
"""The metadata domains that the API knows."""


@dataclass(slots=True, kw_only=True)
class Sent:
    """A request of the client under test to the catalog."""

    operation: int
    """The number of the client's operation in the history."""
    path: str
    body: dict[str, Any]
    outcome_unknown: bool = False
    """Whether its commit was answered, if at all, without its outcome."""

    @classmethod
    def of(cls, operation: int, request: m.CallApi) -> "Sent":
        try:
            body = json.loads(request.body or "")
        except (ValueError, RecursionError):
            body = None
        return cls(operation=operation, path=request.path, body=body if isinstance(body, dict) else {})

    @property
    def update(self) -> TableUpdate | None:
        """None: it is no valid update."""
        try:
            return None if self.path.endswith("/tables") else msgspec.convert(self.body, TableUpdate)
        except msgspec.ValidationError:
            return None

    @property
    def file_name(self) -> str | None:
        """The staged file of its commit."""
        commit = None if self.update is None else self.update.commit
        return None if commit is None else commit.file_name

    def updates(self) -> dict[str, dict[str, Any]]:
        """Its updates by action."""
        return {update["action"]: update for update in self.body["updates"]}


def of_an_update(sent: Sent, earlier: Sequence[Sent], table: OwnedTable | None) -> Iterator[Problem]:
    """Findings about an update when it arrives. `table`: the one that it asserts."""
    update = sent.update
    if update is None:
        yield Problem(SHAPE, "an update has the form that the API requires", f"it is {json.dumps(sent.body)[:300]}")
        return
    logged = [part.action for part in update.updates if part.is_logged]
    if update.commit is None and logged:
        yield Problem(LOCKSTEP, "a change of the log is sent with its commit", f"{logged[0]!r} has no add-commit")
    elif problem := update.problem:
        yield Problem(SHAPE, "an update has the form that the API requires", problem)
    keys = {key for part in update.updates for key in (*(part.updates or ()), *part.removals)}
    if derived := sorted(key for key in keys if DERIVED.fullmatch(key)):
        yield Problem(DERIVED_KEYS, "the catalog alone derives such properties", f"the update changes {derived[0]!r}")
    same = [other for other in earlier if other.file_name == sent.file_name is not None and other.outcome_unknown]
    if same and same[-1].body != sent.body:
        yield Problem(
            RETRY, "while the outcome of a commit is unknown, its request is repeated without a change",
            f"{sent.file_name} was sent again in another request",
        )  # fmt: skip
    if table is not None:
        yield from _of_files(update, Path(table.location, LOG), table)


def _of_files(update: TableUpdate, log: Path, table: OwnedTable) -> Iterator[Problem]:
    reported = -1 if update.published is None else update.published
    for version in sorted(version for version in table.unbackfilled if version <= reported):
        if not (log / commit_file(version)).exists():
            yield Problem(
                REPORT, f"a client reports versions up to {reported} as published after it has published them",
                f"version {version} is not published",
            )  # fmt: skip
    commit = update.commit
    staged = log / STAGING["catalogManaged"] / ("" if commit is None else commit.file_name)
    if commit is not None and staged.is_file():
        content = staged.read_bytes()
        has = (proposals.time_of(content.decode("utf-8", "replace")), len(content))
        if (commit.timestamp, commit.file_size) != has:
            yield Problem(
                DESCRIPTION, f"an add-commit has the timestamp and the size of its staged file: {has}",
                f"they are {(commit.timestamp, commit.file_size)}",
            )  # fmt: skip


def of_a_creation(sent: Sent, lines: Sequence[str]) -> Iterator[Problem]:
    """Findings about the registration of a table with this version 0."""
    content = proposals.content(tuple(lines))
    protocol, metadata = (proposals.body_of(content, kind) or {} for kind in ("protocol", "metaData"))
    declared = sent.body.get("properties") or {}
    written = metadata.get("configuration") or {}
    pairs = {
        "protocol": (_protocol(protocol), _declared(sent.body.get("protocol") or {})),
        "columns": (_fields(metadata), _declared_fields(sent.body.get("columns"))),
        "partition-columns": (metadata.get("partitionColumns") or [], sent.body.get("partition-columns") or []),
        "properties": tuple(
            {key: value for key, value in of.items() if not DERIVED.fullmatch(key)} for of in (written, declared)
        ),
        "last-commit-timestamp-ms": (proposals.time_of(content), sent.body.get("last-commit-timestamp-ms")),
    }
    for name, (logged, said) in pairs.items():
        if logged != said:
            yield Problem(CREATION, f"a creation declares what version 0 has: {name} {logged}", f"it declares {said}")


def of_a_commit(sent: Sent, lines: Sequence[str], before: Before) -> Iterator[Problem]:
    """Findings about the updates in the request of a commit that landed, compared with its staged file."""
    content, updates = proposals.content(tuple(lines)), sent.updates()
    metadata = proposals.body_of(content, "metaData") or before.metadata
    old, new = before.properties, dict(metadata.get("configuration") or {})
    if old.get(TABLE_ID) not in (None, new.get(TABLE_ID)):
        yield Problem(
            KEPT_ID, f"each commit keeps the property {TABLE_ID}", f"the commit sets it to {new.get(TABLE_ID)!r}"
        )
    if copied := sorted(key for key in new if key not in old and DERIVED.fullmatch(key)):
        yield Problem(DERIVED_KEYS, "no client writes a derived property into the log", f"it writes {copied[0]!r}")
    yield from _of_properties(old, new, updates)
    protocol = proposals.body_of(content, "protocol") or before.protocol
    given = updates.get("set-columns", {}).get("columns"), updates.get("set-protocol", {}).get("protocol")
    pairs = {
        "set-columns": (_fields(before.metadata), _fields(metadata), given[0] and _declared_fields(given[0])),
        "set-protocol": (_protocol(before.protocol), _protocol(protocol), given[1] and _declared(given[1])),
        "set-partition-columns": (
            before.metadata.get("partitionColumns") or [], metadata.get("partitionColumns") or [],
            updates.get("set-partition-columns", {}).get("partition-columns"),
        ),
        **_domains(content, updates),
    }  # fmt: skip
    for action, (was, now, said) in pairs.items():
        if said != now and (said is not None or was != now):
            yield Problem(
                LOCKSTEP, f"{_MIRRORED}: `{action}` {now}", "it has none" if said is None else f"it has {said}"
            )


def _of_properties(
    old: Mapping[str, str], new: Mapping[str, str], updates: Mapping[str, Mapping[str, Any]]
) -> Iterator[Problem]:
    """The catalog may have properties that the log lacks."""
    given = updates.get("set-properties", {}).get("updates") or {}
    removed = updates.get("remove-properties", {}).get("removals") or ()
    for key in sorted({*old, *new}):
        if DERIVED.fullmatch(key):
            continue
        is_removed = key in old and key not in new
        changed = old.get(key) != new.get(key)
        if (
            is_removed != (key in removed)
            or given.get(key, new.get(key)) != new.get(key)
            or changed > (is_removed or key in given)
        ):
            said = f"it sets {given[key]!r}" if key in given else "it removes it" if key in removed else "it has none"
            yield Problem(LOCKSTEP, f"{_MIRRORED}: the property {key} is {new.get(key)!r}", said)


def _domains(content: str, updates: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Any, Any, Any]]:
    """For each of the two domains that the commit changes: nothing, its new value or that it was removed, and what the
    request says."""
    given = updates.get("set-domain-metadata", {}).get("updates") or {}
    removed = dict.fromkeys(updates.get("remove-domain-metadata", {}).get("domains") or (), "removed")
    pairs = {}
    for line in proposals.lines(content):
        body = proposals.body_of(line, "domainMetadata") or {}
        if (name := body.get("domain")) in _DOMAINS:
            now = "removed" if body.get("removed") else json.loads(body.get("configuration") or "{}")
            pairs[f"domain {name}"] = (None, now, {**given, **removed}.get(name))
    return pairs


def _protocol(body: Mapping[str, Any]) -> tuple[Any, ...]:
    features = (frozenset(body.get(key) or ()) for key in ("readerFeatures", "writerFeatures"))
    return (body.get("minReaderVersion"), body.get("minWriterVersion"), *features)


def _declared(protocol: Mapping[str, Any]) -> tuple[Any, ...]:
    features = (frozenset(protocol.get(key) or ()) for key in ("reader-features", "writer-features"))
    return (protocol.get("min-reader-version"), protocol.get("min-writer-version"), *features)


def _fields(metadata: Mapping[str, Any]) -> Any:
    return _declared_fields(json.loads(metadata.get("schemaString") or "{}"))


def _declared_fields(columns: Any) -> Any:
    return respelled(columns.get("fields") or []) if isinstance(columns, dict) else None
