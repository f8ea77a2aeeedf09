"""What a catalog's request asks besides the commit itself, judged and stored in the commit's own transaction.

UNITY_CATALOG.md#updates: one request may commit, report how far the log is published, demand an etag and change
properties; all of it happens or none. The order in which it is judged is the server's contract: a replay and a
lost race are answered before any of this is looked at, because a loser's report and etag are naturally stale.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import msgspec

from refimpl import log_path
from refimpl.actions import DomainMetadata, Metadata, Protocol
from refimpl.commit_owner import ResolvedTable, TableState
from refimpl.commits import AttemptId, Conflict, Outcome, Ratified, RatifiedCommit, Rejected, VersionGap
from refimpl.errors import InvalidRequestError
from refimpl.log_path import Version
from refimpl.log_store import LogStore
from refimpl.owner import policy
from refimpl.owner.backfill import same_actions
from refimpl.owner.context import Context, stored_commits
from refimpl.owner.decide import Ratify, not_accepting
from refimpl.owner.records import AttemptRecord, Examined, TableRecord
from refimpl.owner.statements import View, Writer

_LOOKS: Final = 10
"""How often a table is read again that changes while it is described."""


Contradiction = Callable[[Protocol, Metadata, Sequence[DomainMetadata]], str | None]
"""What a request says of a table that its log does not say. Takes the protocol and metadata that are in force once
the request's commit is in the log, and the domain metadata in that commit."""


def _agrees(_protocol: Protocol, _metadata: Metadata, _domains: Sequence[DomainMetadata]) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What must hold, and what else shall change, when a request is carried out."""

    etag: str | None = None
    """The table's metadata must still be what it was under this etag."""
    published_through: Version | None = None
    """The client reports every version up to here as published."""
    properties: Mapping[str, str | None] = field(default_factory=dict)
    """Properties to set, or (None) to remove. Those of the log are the log's: they can only be confirmed."""
    in_commit_timestamp: int | None = None
    """What the request says of the staged file's time, in ms since the epoch."""
    size: int | None = None
    """What it says of the staged file's length, in bytes."""
    contradiction: Contradiction = _agrees


class Requirement(Enum):
    """Which of the terms does not hold."""

    PUBLISHED = "published"
    ETAG = "etag"
    METADATA = "metadata"


class TermsRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The terms do not hold, and nothing was changed."""

    requirement: Requirement
    detail: str


class TableDescription(msgspec.Struct, frozen=True, kw_only=True):
    """All that a catalog tells of a table, from one read state. Times in ms since the epoch."""

    table: ResolvedTable
    protocol: Protocol
    metadata: Metadata
    catalog_properties: dict[str, str]
    """Properties that the catalog was told and the log does not have."""
    etag: str
    created_at: int
    updated_at: int
    in_commit_timestamp: int


def etag_of(protocol: Protocol, metadata: Metadata, catalog_properties: Mapping[str, str]) -> str:
    """Changes with the metadata and only with it, so it is derived and not stored."""
    content = msgspec.json.encode([protocol, metadata, dict(catalog_properties)], order="sorted")
    return f"etag-{hashlib.sha256(content).hexdigest()[:32]}"


def describe(context: Context, find: Callable[[View], TableRecord]) -> TableDescription:
    """The table that `find` finds. `InvalidRequestError` while it has no version 0.

    Whoever finds a published version that is newer than the read state reads again: else the metadata would be those
    before a commit that the answer already tells of. Only one that the ledger does not have stays beside them.
    """
    found, latest = _described(context, find)
    for _ in range(_LOOKS):
        if found.table.commits.latest_ratified_version == latest:
            break
        before = latest
        found, latest = _described(context, find)
        if latest == before:
            break
    return found


def _described(context: Context, find: Callable[[View], TableRecord]) -> tuple[TableDescription, Version | None]:
    """One look, and the latest version that the ledger had then."""
    with context.ledger.read() as view:
        table = find(view)
        answer = stored_commits(view, table, None, None)
        current = view.protocol_and_metadata(table.key)
        extra = view.catalog_properties(table.key)
        newest = () if table.latest is None else view.commits(table, table.latest, table.latest)
    if current is None or not newest:
        raise InvalidRequestError(f"{table.label} has no version 0 yet; create it first", table_id=table.table_id)
    found = TableDescription(
        table=context.resolved(table, answer),
        protocol=current[0],
        metadata=current[1],
        catalog_properties=extra,
        etag=etag_of(*current, extra),
        created_at=table.created_at,
        updated_at=newest[0].ratified_at,
        in_commit_timestamp=newest[0].in_commit_timestamp,
    )
    return found, table.latest


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """A table and what became of an attempt, from one read state. Where its version is taken by then and the attempt is
    not known, it has lost, whatever comes after."""

    table: TableRecord
    attempt: AttemptRecord | None

    def lost(self, version: Version) -> bool:
        table = self.table
        settled = table.state is TableState.ACTIVE and table.halted is None and not table.promised
        return settled and self.attempt is None and table.latest is not None and version <= table.latest


def glance(context: Context, name: str, attempt: AttemptId | None) -> Glance | None:
    """What one look without any lock tells of a live table; None where there is none of this name."""
    with context.ledger.read() as view:
        table = view.table_named(name)
        if table is None:
            return None
        return Glance(table=table, attempt=None if attempt is None else view.attempt(table, attempt))


def with_report(table: TableRecord, terms: Terms) -> TableRecord:
    """The table as it will be once the report is taken: the commit of the same request has the room it makes."""
    through = terms.published_through
    if through is None or table.latest is None or not table.first_unbackfilled <= through <= table.latest:
        return table
    return msgspec.structs.replace(table, backfilled=through)


def judged(
    writer: Writer,
    table: TableRecord,
    examined: Examined,
    terms: Terms,
    verdict: Ratify | Outcome,
    log: LogStore,
) -> Ratify | Outcome | TermsRefused:
    """The verdict on a commit, or what its terms lack. A landed attempt, a lost race and a gap come first."""
    if isinstance(verdict, Ratified | Conflict | VersionGap):
        return verdict
    return refusal(writer, table, terms, log, examined) or verdict


def refusal(
    writer: Writer, table: TableRecord, terms: Terms, log: LogStore, examined: Examined | None
) -> TermsRefused | None:
    """The first of the terms that does not hold: the report, the etag, then what is said of the metadata."""
    flaw = _report_flaw(writer, table, terms, log)
    if flaw is not None:
        return TermsRefused(requirement=Requirement.PUBLISHED, detail=flaw)
    current = writer.protocol_and_metadata(table.key)
    if current is None:
        return None
    extra = writer.catalog_properties(table.key)
    found = etag_of(*current, extra)
    if terms.etag is not None and terms.etag != found:
        return TermsRefused(
            requirement=Requirement.ETAG,
            detail=f"assert-etag failed: expected {terms.etag} but {table.label} has {found}; load it again",
        )
    protocol = (examined and examined.protocol) or current[0]
    metadata = (examined and examined.metadata) or current[1]
    domains = () if examined is None else examined.domains
    flaw = _claim_flaw(terms, examined) or terms.contradiction(protocol, metadata, domains)
    flaw = flaw or property_flaw(terms, metadata, extra)
    return None if flaw is None else TermsRefused(requirement=Requirement.METADATA, detail=flaw)


def change(context: Context, writer: Writer, table: TableRecord, terms: Terms) -> TermsRefused | Rejected | None:
    """Carry out terms that come without a commit, or say what they lack."""
    refused = not_accepting(table) or refusal(writer, table, terms, context.log(table), None)
    if refused is None:
        carry_out(writer, table, terms, None, context.now)
    return refused


def carry_out(writer: Writer, table: TableRecord, terms: Terms, examined: Examined | None, now: int) -> TableRecord:
    """Store what the terms change; the table as it is then. To be called before the commit is ratified, in its
    transaction."""
    through = terms.published_through
    if through is not None and through >= table.first_unbackfilled:
        writer.mark_published(table, through, now)
    metadata = examined.metadata if examined is not None else None
    if not terms.properties and metadata is None:
        return with_report(table, terms)
    current = writer.protocol_and_metadata(table.key)
    configuration = (metadata or (current and current[1]) or Metadata(id="", schema_string="")).configuration
    before = writer.catalog_properties(table.key)
    after = _catalogs(before, terms, configuration)
    if after != before:
        writer.set_catalog_properties(table, after)
    return with_report(table, terms)


def _report_flaw(writer: Writer, table: TableRecord, terms: Terms, log: LogStore) -> str | None:
    """Why a commit must not be forgotten yet: its `<v>.json` is not there, or holds something else.

    catalog-managed, "Publishing Commits". What is there was written by a client: it is made durable here, before
    the ledger forgets the bytes.
    """
    through = terms.published_through
    if through is None:
        return None
    if table.latest is None or through > table.latest:
        return f"version {through} cannot be published: the latest version of {table.label} is {table.latest}"
    for version in range(table.first_unbackfilled, through + 1):
        details = writer.commit_details(table, version)
        name = log_path.commit(version)
        found = log.find(name)
        if found is None:
            return f"version {version} of {table.label} is not published: {name} is not there; publish it, then report"
        commit, digest, _ = details if details is not None else (None, b"", None)
        if commit is None or not _holds(log, found, commit, digest):
            return f"{name} of {table.label} does not hold what was ratified as version {version}; run verify"
        log.make_durable(name)
    return None


def _holds(log: LogStore, found: log_path.LogPath, commit: RatifiedCommit, digest: bytes) -> bool:
    """Whether the file says what was ratified. Its size is looked at first: it is read under the owner's lock, and
    could be of any size."""
    if found.size > policy.MAX_COMMIT_BYTES or (commit.content is None and found.size != commit.size):
        return False
    try:
        content = log.read(found.name)
    except FileNotFoundError:
        return False
    if hashlib.sha256(content).digest() == digest:
        return True
    return commit.content is not None and same_actions(content, commit.content)


def _claim_flaw(terms: Terms, examined: Examined | None) -> str | None:
    """Where the request and its staged file differ. A file that is flawed by itself is judged for that."""
    if examined is None or examined.flaw is not None:
        return None
    if terms.size is not None and terms.size != len(examined.content):
        return f"the staged file of version {examined.version} has {len(examined.content)} bytes, not {terms.size}"
    if terms.in_commit_timestamp is not None and terms.in_commit_timestamp != examined.in_commit_timestamp:
        return (
            f"the staged file of version {examined.version} has the inCommitTimestamp {examined.in_commit_timestamp}, "
            f"not {terms.in_commit_timestamp}"
        )
    return None


def _catalogs(before: Mapping[str, str], terms: Terms, configuration: Mapping[str, str]) -> dict[str, str]:
    """The catalog's own properties once the terms are carried out: what the log has is the log's."""
    wanted = {**before, **terms.properties}
    return {key: value for key, value in wanted.items() if value is not None and key not in configuration}


def property_flaw(terms: Terms, metadata: Metadata, before: Mapping[str, str]) -> str | None:
    """Why a property cannot be the catalog's: the log has another value, its name is that of a secret, or with what
    was there `before` it would be too much for every answer about the table."""
    for key, value in terms.properties.items():
        found = metadata.configuration.get(key)
        if found is not None and found != value:
            return (
                f"the property {key} is {found!r} in the log, and the request says {value!r}; change it by a commit "
                f"with a metaData action"
            )
        if found is None and value is not None and policy.names_a_secret(key):
            return f"the property {key} names a secret, and every reader of the table would see it; leave it out"
    if not terms.properties:
        return None
    size = len(msgspec.json.encode(_catalogs(before, terms, metadata.configuration)))
    if size > max(policy.MAX_CATALOG_PROPERTIES_BYTES, len(msgspec.json.encode(before))):
        return (
            f"the properties that the log does not have would take {size} bytes, the limit is "
            f"{policy.MAX_CATALOG_PROPERTIES_BYTES}; remove some, or write them into the log"
        )
    return None
