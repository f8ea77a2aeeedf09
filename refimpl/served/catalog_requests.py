"""The requests of a catalog: commits and updates with preconditions, properties that are not in the log, descriptions.

A commit with preconditions is judged like any other one (`owner.decide`), with two more rules: between the admission
and the content, the reported published versions and the etag (a loser's report and etag are naturally stale:
UNITY_CATALOG.md#order-of-judging); after the content, the request's statements about it. Room in the backlog is counted
after the report.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec

from refimpl.catalog.messages import COMMENT
from refimpl.catalog.owner import AttemptLookup, Precondition, PreconditionFailed, TableDescription, UpdatePreconditions
from refimpl.owner import decide
from refimpl.owner.backfill import BATCH, confirm_published
from refimpl.owner.ledger import Ledger
from refimpl.owner.local import Decision, LocalOwner
from refimpl.owner.records import AttemptRecord, Examined, Promise, TableRecord, checked_name
from refimpl.owner.statements import View, Writer
from refimpl.owner.tables import disk_errors, stored_commits
from refimpl.protocol import commits
from refimpl.protocol.actions import Metadata, Protocol
from refimpl.protocol.commit_owner import NameTaken, Registered, ResolvedTable, TableState, TableSummary
from refimpl.protocol.commits import Rejected, RejectionReason
from refimpl.protocol.errors import InvalidRequestError, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.log_path import Version
from refimpl.protocol.owner_conf import names_a_secret
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.environment import Environment

Recorded = TypeVar("Recorded")

_MAX_READS: Final = 10
"""How often the owner reads a table again that changes while it is described."""


MAX_CATALOG_PROPERTIES_BYTES: Final = 256 * 2**10
"""Per table: they are read with every commit and sent with every answer."""
_DOUBTS_KEPT: Final = 10_000

CATALOG_PROPERTIES: Final = "SELECT catalog_properties FROM tables WHERE key = ? AND catalog_properties IS NOT NULL"


class ReportContinues:
    """The outcome of a request with a long report: its transaction recorded a batch of it, and the request is judged
    again in the next one."""


class _Request(Examined, frozen=True, kw_only=True):
    """A proposal in a catalog's request."""

    preconditions: UpdatePreconditions


def as_request(preconditions: UpdatePreconditions, examined: Examined) -> Examined:
    """The proposal as a part of a catalog's request."""
    return _Request(**msgspec.structs.asdict(examined), preconditions=preconditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFacts:
    """A catalog's request, with the facts that were looked up for it."""

    preconditions: UpdatePreconditions
    properties: Mapping[str, str] = field(default_factory=dict)
    """The table's properties that are not in its log."""
    unpublished: str | None = None
    """Why one of the reported versions must not be forgotten: its file is missing, or has other bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RatifyRequest(decide.Ratify):
    facts: CatalogFacts


def decide_request(
    table: TableRecord,
    examined: Examined,
    attempt: AttemptRecord | None,
    facts: CatalogFacts,
    *,
    unknown_published: Version | None,
    current: tuple[Protocol, Metadata] | None,
) -> decide.Ratify | commits.Outcome | PreconditionFailed:
    """The outcome of a proposal in a request; arguments as in `decide.decide`."""
    return (
        decide.admission(table, examined, attempt, unknown_published=unknown_published)
        or _precondition_flaw(table, facts, current)
        or decide.content_flaw(table, examined, current)
        or _request_flaw(facts, examined, current)
        or decide.backlog_flaw(_with_report(table, facts.preconditions))
        or _RatifyRequest(examined=examined, facts=facts)
    )


def has_lost(table: TableRecord, version: Version, attempt: AttemptRecord | None) -> bool:
    """Whether a proposal has certainly and finally lost: its version is taken and its attempt is unknown."""
    settled = decide.not_accepting(table) is None and not table.promised
    return settled and attempt is None and table.latest is not None and version <= table.latest


def _reported_versions(table: TableRecord, preconditions: UpdatePreconditions) -> range:
    """The versions that the owner may forget if the report is right."""
    through = preconditions.published_through
    if through is None or decide.report_flaw(table, through) is not None:
        return range(0)
    return range(table.first_unbackfilled, through + 1)


def _with_report(table: TableRecord, preconditions: UpdatePreconditions) -> TableRecord:
    """The table as it will be once the report is recorded; the request's own commit may use the room that it makes."""
    versions = _reported_versions(table, preconditions)
    return msgspec.structs.replace(table, backfilled=versions[-1]) if versions else table


def _precondition_flaw(
    table: TableRecord, facts: CatalogFacts, current: tuple[Protocol, Metadata] | None
) -> PreconditionFailed | None:
    """catalog-managed, "Publishing Commits"; UNITY_CATALOG.md#etag."""
    through, etag = facts.preconditions.published_through, facts.preconditions.etag
    flaw = (None if through is None else decide.report_flaw(table, through)) or facts.unpublished
    if flaw is not None:
        return PreconditionFailed(precondition=Precondition.PUBLISHED, detail=flaw)
    if etag is None or current is None or etag == (current_etag := etag_of(*current, facts.properties)):
        return None
    return PreconditionFailed(
        precondition=Precondition.ETAG,
        detail=f"assert-etag failed: expected {etag} but {table.label} has {current_etag}; load it again",
    )


def _request_flaw(
    facts: CatalogFacts, examined: Examined | None, current: tuple[Protocol, Metadata] | None
) -> PreconditionFailed | None:
    """How a request differs from its staged file, or from the log."""
    if current is None:
        return None
    protocol = (examined and examined.protocol) or current[0]
    metadata = (examined and examined.metadata) or current[1]
    preconditions, domains = facts.preconditions, () if examined is None else examined.domains
    flaw = (
        (None if examined is None else _file_flaw(preconditions, examined))
        or preconditions.contradiction(protocol, metadata, domains)
        or _property_flaw(preconditions.properties, metadata, facts.properties)
    )
    return None if flaw is None else PreconditionFailed(precondition=Precondition.METADATA, detail=flaw)


def _file_flaw(preconditions: UpdatePreconditions, examined: Examined) -> str | None:
    size, timestamp = preconditions.size, preconditions.in_commit_timestamp
    if size is not None and size != len(examined.content):
        return f"the staged file of version {examined.version} has {len(examined.content)} bytes, not {size}"
    if timestamp is not None and timestamp != examined.in_commit_timestamp:
        return (
            f"the staged file of version {examined.version} has the inCommitTimestamp {examined.in_commit_timestamp}, "
            f"not {timestamp}"
        )
    return None


def _property_flaw(wanted: Mapping[str, str | None], metadata: Metadata, before: Mapping[str, str]) -> str | None:
    """Why the catalog cannot store a property: the log has another value, or none of a `delta.*` property, whose place
    is the log; its name is that of a secret; or together with those stored `before` it exceeds the size limit of an
    answer."""
    for key, value in wanted.items():
        logged = metadata.configuration.get(key)
        if logged != value and (logged is not None or key.startswith("delta.")):
            return (
                f"the property {key} is {_spelled(logged)} in the log, but {_spelled(value)} in the request; change it "
                f"by a commit with a metaData action"
            )
        if logged is None and value is not None and names_a_secret(key):
            return f"the property {key} names a secret, and every reader of the table would see it; leave it out"
    if not wanted:
        return None
    size = len(msgspec.json.encode(_catalog_properties(before, wanted, metadata)))
    if size > max(MAX_CATALOG_PROPERTIES_BYTES, len(msgspec.json.encode(before))):
        return (
            f"the properties that are not in the log would take {size} bytes, the limit is "
            f"{MAX_CATALOG_PROPERTIES_BYTES}; remove some, or write them into the log"
        )
    return None


def _spelled(value: str | None) -> str:
    return "absent" if value is None else repr(value)


def _catalog_properties(
    before: Mapping[str, str], wanted: Mapping[str, str | None], metadata: Metadata
) -> dict[str, str]:
    """The catalog's own properties after a change, without those that are in the log."""
    after = {**before, **wanted}
    return {key: value for key, value in after.items() if value is not None and key not in metadata.configuration}


def etag_of(protocol: Protocol, metadata: Metadata, properties: Mapping[str, str]) -> str:
    """The etag changes with the metadata and only with it, so it is derived and not stored.

    Metadata domains do not count: no text requires it, and row tracking changes one with almost every commit, so that a
    writer whose request has an etag would rarely land.
    """
    content = msgspec.json.encode([protocol, metadata, dict(properties)], order="sorted")
    return f"etag-{hashlib.sha256(content).hexdigest()[:32]}"


def _properties(view: View, table: TableRecord) -> dict[str, str]:
    """The properties that were set in the catalog and are not in the table's log."""

    def load(row: tuple[str]) -> dict[str, str]:
        return msgspec.json.decode(row[0], type=dict[str, str])

    return view.first(load, CATALOG_PROPERTIES, (table.key,)) or {}


class CatalogRequests(LocalOwner):
    """An owner that answers a catalog's requests: `CatalogOwner`."""

    def __init__(self, warehouse: Path, environment: Environment, ledger: type[Ledger] = Ledger) -> None:
        super().__init__(warehouse, environment, ledger)
        self._in_doubt: dict[str, object] = {}
        """Staged files whose fsync failed, or is under way, in this process; other processes see the marks of failed
        ones, unless the disk failed."""

    def recorded_tables(self) -> Sequence[TableSummary]:
        with self.ledger.read() as view:
            return view.tables(state=TableState.ACTIVE)

    def register_table(
        self, table_id: str, proposal: commits.DirectProposal, *, properties: Mapping[str, str] | None = None
    ) -> Registered | NameTaken | commits.Outcome:
        def stored(writer: Writer, table: TableRecord, examined: Examined) -> Rejected | None:
            wanted = properties or {}
            flaw = None if examined.metadata is None else _property_flaw(wanted, examined.metadata, {})
            if flaw is not None:
                return Rejected(reason=RejectionReason.INCONSISTENT_TABLE, detail=flaw)
            if wanted != _properties(writer, table):
                writer.set(table, catalog_properties=wanted)
            return None

        return self.register(table_id, proposal, stored)

    def commit_if(
        self, table_id: str, version: Version, proposal: commits.Proposal, preconditions: UpdatePreconditions
    ) -> commits.Outcome | PreconditionFailed:
        outcome: commits.Outcome | PreconditionFailed | ReportContinues = ReportContinues()
        while isinstance(outcome, ReportContinues):
            outcome = self.propose(table_id, version, proposal, partial(as_request, preconditions))
        return outcome

    def verdict(
        self,
        writer: Writer,
        table: TableRecord,
        examined: Examined,
        attempt: AttemptRecord | None,
        unknown: Version | None,
    ) -> decide.Ratify | commits.Outcome:
        if not isinstance(examined, _Request):
            return super().verdict(writer, table, examined, attempt, unknown)
        admission = decide.admission(table, examined, attempt, unknown_published=unknown)
        if admission is not None:
            return admission
        # `commit_if` alone gets the other outcomes: no other proposal is a `_Request`.
        facts = self._facts(writer, table, examined.preconditions)
        if isinstance(facts, ReportContinues):
            return cast(commits.Outcome, facts)
        current = writer.protocol_and_metadata(table.key)
        decided = decide_request(table, examined, attempt, facts, unknown_published=unknown, current=current)
        return cast(commits.Outcome, decided)

    def ratify(self, writer: Writer, table: TableRecord, verdict: decide.Ratify) -> Decision:
        if isinstance(verdict, _RatifyRequest):
            current = writer.protocol_and_metadata(table.key)
            assert current is not None, f"{table.label} is active and has no metadata"
            table = self._apply(writer, table, verdict.facts, current[1], verdict.examined.metadata)
        if verdict.examined.metadata is None:
            return super().ratify(writer, table, verdict)
        return self._with_comment(writer, table, lambda: super(CatalogRequests, self).ratify(writer, table, verdict))

    def record(self, writer: Writer, table: TableRecord, promise: Promise) -> commits.RatifiedCommit:
        return self._with_comment(writer, table, lambda: super(CatalogRequests, self).record(writer, table, promise))

    def record_visible(self, writer: Writer, table: TableRecord) -> tuple[TableRecord, Rejected | None]:
        return self._with_comment(writer, table, lambda: super(CatalogRequests, self).record_visible(writer, table))

    def _with_comment(self, writer: Writer, table: TableRecord, record: Callable[[], Recorded]) -> Recorded:
        """Record commits; if they change the description in the log, the catalog's own comment is outdated."""
        properties = _properties(writer, table)
        if properties.pop(COMMENT, None) is None:
            return record()
        before = writer.protocol_and_metadata(table.key)
        recorded = record()
        after = writer.protocol_and_metadata(table.key)
        if before is not None and after is not None and before[1].description != after[1].description:
            writer.set(table, catalog_properties=properties)
        return recorded

    def update(self, table_id: str, preconditions: UpdatePreconditions) -> PreconditionFailed | commits.Rejected | None:
        outcome: PreconditionFailed | commits.Rejected | ReportContinues | None = ReportContinues()
        while isinstance(outcome, ReportContinues):
            with disk_errors("change a table"), self.lock(), self.changing(table_id) as (writer, table):
                outcome = self._updated(writer, table, preconditions)
        return outcome

    def _updated(
        self, writer: Writer, table: TableRecord, preconditions: UpdatePreconditions
    ) -> PreconditionFailed | commits.Rejected | ReportContinues | None:
        refused = decide.not_accepting(table)
        facts = self._facts(writer, table, preconditions) if refused is None else refused
        if not isinstance(facts, CatalogFacts):
            return facts
        current = writer.protocol_and_metadata(table.key)
        flaw = _precondition_flaw(table, facts, current) or _request_flaw(facts, None, current)
        if flaw is None and current is not None:
            self._apply(writer, table, facts, current[1])
        return flaw

    def _facts(
        self, writer: Writer, table: TableRecord, preconditions: UpdatePreconditions
    ) -> CatalogFacts | ReportContinues:
        """The facts for a request, each reported version confirmed."""
        versions = _reported_versions(table, preconditions)
        unpublished = confirm_published(writer, table, self.log(table), versions[:BATCH])
        if unpublished is None and len(versions) > BATCH:
            writer.mark_published(table, versions[BATCH - 1], self.now)
            return ReportContinues()
        properties = _properties(writer, table)
        return CatalogFacts(preconditions=preconditions, properties=properties, unpublished=unpublished)

    def _apply(
        self,
        writer: Writer,
        table: TableRecord,
        facts: CatalogFacts,
        current: Metadata,
        committed: Metadata | None = None,
    ) -> TableRecord:
        """Store the request's changes; returns the table after them. In the commit's transaction, before it is
        ratified.

        `committed`: the metadata in the request's commit. A commit without metadata changes no property and no etag.
        """
        after = _with_report(table, facts.preconditions)
        if after.backfilled is not None and after.backfilled != table.backfilled:
            writer.mark_published(table, after.backfilled, self.now)
        if committed is None and not facts.preconditions.properties:
            return after
        properties = _catalog_properties(facts.properties, facts.preconditions.properties, committed or current)
        if properties != facts.properties:
            writer.set(table, catalog_properties=properties)
        return after

    def make_staged_durable(self, table_id: str, file_name: str) -> None:
        """Order: fsync file, fsync directory. After a failed fsync, a second one may report success for lost data:
        when the client sends the same file again, the same bytes become a new file, also if another process gets the
        request."""
        cached = self.cached_record(table_id)
        log, folder = self.log(cached), cached.feature.staging_folder
        try:
            with suppress(FileNotFoundError):
                mine = object()  # doubtful before the fsync: another request may name the file while it fails
                if self._in_doubt.setdefault(file_name, mine) is mine and not log.is_doubtful(file_name):
                    log.make_staged_durable(folder, file_name)
                elif (log.staged_size(folder, file_name) or 0) <= decide.size_limit(CommitMode.STAGED):
                    log.stage_again(folder, file_name, log.read_staged(folder, file_name))
                    log.mark_doubtful(file_name, doubtful=False)
        except OSError as error:
            log.mark_doubtful(file_name, doubtful=True)
            for oldest in [*self._in_doubt][:-_DOUBTS_KEPT]:
                self._in_doubt.pop(oldest, None)
            raise OwnerUnavailableError(f"cannot make {file_name} durable: {error}; nothing was committed") from error
        self._in_doubt.pop(file_name, None)

    def describe(self, reference: str | Path) -> TableDescription:
        try:
            return self.description(lambda view: self.find(view, reference))
        except InvalidRequestError:
            if self.resolve(reference).state is not TableState.ACTIVE:
                raise
        return self.description(lambda view: self.find(view, reference))

    def description(self, find: Callable[[View], TableRecord]) -> TableDescription:
        """The table that `find` finds, with its metadata. `InvalidRequestError` while it has no version 0.

        If a published version is newer than the read state, it reads again: otherwise the metadata would be older than
        a commit in the answer. A published version that the ledger still lacks then stays in the answer.
        """
        description, latest = self._described(find)
        for _ in range(_MAX_READS):
            if description.table.commits.latest_ratified_version == latest:
                break
            before = latest
            description, latest = self._described(find)
            if latest == before:
                break
        return description

    def _described(self, find: Callable[[View], TableRecord]) -> tuple[TableDescription, Version | None]:
        """One description, and the ledger's latest version at that moment."""
        with self.ledger.read() as view:
            table = find(view)
            answer = stored_commits(view, table, None, None)
            describe = self.describing(view, table, answer)
        return describe(self.resolved(table, answer)), table.latest

    def describing(
        self, view: View, table: TableRecord, answer: commits.CommitsAnswer
    ) -> Callable[[ResolvedTable], TableDescription]:
        """The description as of this read state, once the table is resolved. `InvalidRequestError` for a table without
        version 0."""
        current = view.protocol_and_metadata(table.key)
        extra = _properties(view, table)
        newest = answer.commits[-1:] or (
            () if table.latest is None else view.commits(table, table.latest, table.latest)
        )
        if current is None or not newest:
            raise InvalidRequestError(f"{table.label} has no version 0 yet; create it first", table_id=table.table_id)
        return lambda resolved: TableDescription(
            table=resolved,
            protocol=current[0],
            metadata=current[1],
            catalog_properties=extra,
            etag=etag_of(*current, extra),
            created_at=table.created_at,
            updated_at=newest[0].ratified_at,
            in_commit_timestamp=newest[0].in_commit_timestamp,
        )

    def look_up(
        self, reference: str, version: Version | None, attempt: commits.AttemptId | None
    ) -> AttemptLookup | None:
        with self.ledger.read() as view:
            table = view.table(reference) if commits.is_attempt_id(reference) else view.table_named(reference)
            seen = None if table is None or attempt is None else view.attempt_at(table, version or 0, attempt)
        if table is None:
            return None
        known = version is not None and attempt is not None
        return AttemptLookup(table=table, lost=known and has_lost(table, cast(Version, version), seen))

    def registered_at(self, location: Path) -> Sequence[str]:
        with self.ledger.read() as view:
            return [table.table_id for table in view.tables(location=location) if table.latest is not None]

    def rename_table(self, table_id: str, name: str, *, before: str) -> None:
        checked_name(name)
        try:  # an unknown outcome stays one: a repeated rename does not find the old name
            with self.lock():
                holder = self.holder(name)
                if holder is not None and holder.table_id != table_id:
                    raise self.name_taken(holder)
                with self.changing(table_id) as (writer, table):
                    if table.state is not TableState.ACTIVE or table.name != before:
                        raise TableNotFoundError(
                            f"{table.label} is {table.state.value}, expected an active {before!r}; load the table again"
                        )
                    writer.set(table, name=name)
        except OSError as error:
            raise OwnerUnavailableError(f"cannot rename a table: {error}; try again") from error
