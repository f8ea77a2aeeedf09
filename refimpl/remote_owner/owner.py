"""A commit owner behind Unity Catalog's Delta API: `commit-owner serve` on another host, or another server of that API.

The table's files are reached from here by the same paths as at the server. What keeps a commit from being lost, or from
being made twice:

- a staged file is durable before it is proposed, and every proposal names its own (`refimpl.client.proposing`);
- a request whose answer was lost is sent again unchanged: a replay of a commit that landed is answered with success;
- where it is answered with a conflict instead (Unity Catalog forgets all but the newest commit: FB09), the ratified
  commits and the published log say whose the version is;
- as long as the version is undecided, the outcome is unknown: the API cannot withdraw a proposal;
- a commit is published durably before the server is told so, because then the server may forget it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from refimpl import log_path
from refimpl.catalog_messages import (
    FEATURE_PREFIX,
    AddCommit,
    AssertTableUuid,
    ListedTable,
    LoadedTable,
    SetLatestBackfilledVersion,
    StagedTable,
    StageTable,
    TablePage,
    Update,
    UpdateTable,
    WireCommit,
)
from refimpl.commit_owner import (
    Backfilled,
    MaintenancePolicy,
    NameTaken,
    NewTableDemands,
    Registered,
    ResolvedTable,
    TableState,
    TableSummary,
)
from refimpl.commits import (
    MAX_WINNERS,
    AttemptId,
    AttemptOutcome,
    CommitsAnswer,
    Conflict,
    DirectProposal,
    Landed,
    NotLanded,
    Outcome,
    Proposal,
    Ratified,
    RatifiedCommit,
    Rejected,
    RejectionReason,
    StagedProposal,
    VersionGap,
    is_attempt_id,
)
from refimpl.environment import Environment
from refimpl.errors import (
    CorruptLogError,
    DeltaError,
    InvalidRequestError,
    LocationError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from refimpl.log_path import Version
from refimpl.log_store import LogStore
from refimpl.remote_owner import documents
from refimpl.remote_owner.calls import TRIES, DeltaCalls, Done, Refusal, Transport
from refimpl.remote_owner.connection import Address, Connection, NoAnswerError
from refimpl.table_feature import CATALOG_MANAGED, CommitMode, TableFeature

logger = logging.getLogger(__name__)

PUBLISH_AFTER: Final = 8
"""Unpublished commits after which this client publishes: Unity Catalog takes ten, and does not publish by itself."""
PAGE: Final = 1000
TABLES_KEPT: Final = 10_000
"""Tables that are remembered by their ids; others are looked for in the list of all."""

_MANAGED_PROPERTY: Final = f"{FEATURE_PREFIX}{CATALOG_MANAGED.name}"
_STAGING: Final = CATALOG_MANAGED.staging_folder
_POLICY: Final = MaintenancePolicy(backfill_every=PUBLISH_AFTER, backlog_limit=10, hand_back=False)
"""The API does not tell the server's: so only what is always allowed, and Unity Catalog's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A table's three-part name."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table that was seen: neither its id nor its location ever changes, its name may."""

    table_id: str
    location: Path
    place: _Place


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found(_Table):
    """A table as the server describes it now."""

    loaded: LoadedTable

    @property
    def latest(self) -> Version | None:
        latest = self.loaded.latest_table_version
        return None if latest is None or latest < 0 else latest

    @property
    def commits(self) -> tuple[WireCommit, ...]:
        """Those that the server stores, oldest first."""
        return tuple(sorted(self.loaded.commits or (), key=lambda commit: commit.version))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A proposal as it is sent, each time with the same bytes."""

    version: Version
    file_name: str
    content: bytes
    body: bytes


class RemoteOwner:
    """A `CommitOwner` over HTTP, for tables with the feature catalogManaged and staged commits.

    Safe to share between threads, and across `fork`. All errors name the server.
    """

    def __init__(
        self,
        address: Address,
        environment: Environment,
        *,
        timeout: float = 30.0,
        connection: Transport | None = None,
    ) -> None:
        """`timeout`: seconds until a request counts as unanswered; longer than the server's own deadline.
        `connection`: instead of one over HTTP."""
        self.address = address
        self.name = address.catalog
        self._environment = environment
        self._calls = DeltaCalls(address, environment, connection or Connection(address, timeout=timeout))
        self._seen: dict[str, _Table] = {}
        """By id."""
        self._staged: dict[str, tuple[_Place, StagedTable]] = {}
        """Tables that this client creates."""
        self._doubtful: set[str] = set()
        """Tables of those that may be registered."""
        self._in_doubt: dict[AttemptId, _Request] = {}
        """Proposals of this process whose outcome is unknown."""

    def close(self) -> None:
        """Close this thread's connection."""
        self._calls.close()

    # Tables

    def resolve(self, reference: str | Path) -> ResolvedTable:
        if isinstance(reference, Path) or "/" in reference:
            return self._resolved(self._search(str(reference), lambda listed: _is_at(listed, Path(reference))))
        if is_attempt_id(reference):
            return self._resolved(self._known(reference))
        place = self._place(reference)
        found = self._calls.asked("GET", self._url(place), LoadedTable)
        if isinstance(found, Refusal):
            raise self._calls.not_found(found, f"{reference!r} ({place})")
        return self._resolved(self._met(place, found))

    def tables(self) -> Sequence[TableSummary]:
        summaries: list[TableSummary] = []
        for listed in self._listed():
            place = self._place_of(listed)
            loaded = self._calls.asked("GET", self._url(place), LoadedTable)
            if isinstance(loaded, LoadedTable):  # not dropped since, and not of another kind
                with contextlib.suppress(LocationError, UnsupportedFeatureError):
                    summaries.append(self._summary(self._met(place, loaded, must_exist=False)))
        return sorted(summaries, key=lambda table: table.name or "")

    def stage_table(
        self,
        name: str,
        feature: TableFeature,
        *,
        commit_mode: CommitMode | None = None,
        location: Path | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> ResolvedTable:
        if feature.path_access:
            raise self._calls.lacks(f"{feature.name} tables", f"use the feature {CATALOG_MANAGED.name}")
        if commit_mode not in (None, CommitMode.STAGED):
            raise self._calls.lacks(f"{commit_mode.value} commits", "use the commit mode staged")
        if location is not None:
            raise self._calls.lacks("a choice of the table's location", "leave it out; the server chooses one")
        if policy is not None:
            raise self._calls.lacks("a choice of the maintenance policy", "leave it out; the server has its own")
        place = self._place(name)
        request = msgspec.json.encode(StageTable(name=place.table))
        staged = self._calls.asked("POST", f"{self._schema_url(place)}/staging-tables", StagedTable, request)
        if isinstance(staged, Refusal):
            raise self._calls.refused(f"stage {name!r}", staged)
        at = self._location(staged.location, must_exist=False)
        try:
            LogStore(at, self._environment).create_folders(_STAGING)
        except OSError as error:
            raise LocationError(
                f"{self.address.server} wants the table at {at}, where this host cannot create it: {error}; mount the "
                f"server's storage here at the same path",
                location=str(at),
            ) from error
        self._staged[staged.table_id] = (place, staged)
        demanded = staged.required_protocol
        return ResolvedTable(
            table_id=staged.table_id,
            name=self._name(place),
            location=at,
            feature_name=CATALOG_MANAGED.name,
            commit_mode=CommitMode.STAGED,
            state=TableState.STAGING,
            policy=_POLICY,
            commits=CommitsAnswer(commits=(), latest_ratified_version=None),
            demands=NewTableDemands(
                reader_features=demanded.reader_features,
                writer_features=demanded.writer_features,
                properties={key: value for key, value in staged.required_properties.items() if value is not None},
            ),
        )

    def register_table(self, table_id: str, proposal: DirectProposal) -> Registered | NameTaken | Outcome:
        """The same request again, after a lost answer, is recognised by the table's id. After one, no refusal of a
        later request proves that there is no table: `OutcomeUnknown`."""
        if table_id not in self._staged:
            raise InvalidRequestError(
                f"the table {table_id} was not staged here at {self.address.server}; stage it again", table_id=table_id
            )
        try:
            return self._registered(table_id, proposal)
        except OutcomeUnknown:
            self._doubtful.add(table_id)
            raise
        except (InvalidRequestError, OwnerUnavailableError) as error:
            if table_id not in self._doubtful:
                raise
            raise OutcomeUnknown(f"{table_id} may or may not be registered: {error}", table_id=table_id) from error

    def _registered(self, table_id: str, proposal: DirectProposal) -> Registered | NameTaken | Outcome:
        place, staged = self._staged[table_id]
        body = msgspec.json.encode(documents.creation(place.table, staged, proposal.content))
        told = self._calls.asked("POST", f"{self._schema_url(place)}/tables", LoadedTable, body, lost=True)
        made = told
        if isinstance(told, Refusal):
            if told.status == HTTPStatus.CONFLICT:  # perhaps of this very table
                self._doubtful.add(table_id)
            made = self._calls.asked("GET", self._url(place), LoadedTable)
        is_mine = isinstance(made, LoadedTable) and made.metadata.table_uuid == table_id
        if isinstance(told, Refusal) and told.status != HTTPStatus.CONFLICT and not is_mine:
            return Rejected(reason=RejectionReason.OWNER_REFUSES, detail=f"{self.address.server}: {told}")
        if isinstance(made, Refusal):
            raise OwnerUnavailableError(f"the name {place} was taken, and is free again; create the table again")
        found = self._resolved(self._met(place, made))
        if not is_mine:
            return NameTaken(winner=found)
        del self._staged[table_id]
        self._doubtful.discard(table_id)
        commit = RatifiedCommit(
            version=0,
            attempt=proposal.attempt,
            commit_mode=CommitMode.DIRECT,
            in_commit_timestamp=documents.in_commit_timestamp(proposal.content) or 0,
            size=len(proposal.content),
            ratified_at=made.metadata.created_time or self._environment.now(),
        )
        return Registered(table=found, commit=commit)

    def drop_table(self, table_id: str) -> None:
        """The name is what the API drops: so the table that has it now is looked at first."""
        if self._staged.pop(table_id, None) is not None:
            return  # it has no name yet
        found = self._known(table_id)
        for retry in self._calls.tries():
            try:
                told = self._calls.once("DELETE", self._url(found.place), Done)
                if isinstance(told, Refusal) and told.status != HTTPStatus.NOT_FOUND:
                    raise self._calls.refused(f"drop {found.place}", told)
                return
            except NoAnswerError as error:  # it may be dropped, and another one may have its name since
                self._calls.pause(retry, error.retry_after)
                try:
                    found = self._known(table_id)
                except TableNotFoundError:
                    return
        raise OutcomeUnknown(
            f"{found.place} may or may not be dropped: {self.address.server} did not answer; look for it there",
            table_id=table_id,
        )

    # Commits

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        """Sent again, unchanged, while no answer comes, at most `TRIES` times; then `OutcomeUnknown`."""
        if not isinstance(proposal, StagedProposal):
            mode = "inline" if not isinstance(proposal, DirectProposal) else "direct"
            raise self._calls.lacks(f"{mode} commits", "stage the commit")
        log_path.checked(version)
        table = self._seen.get(table_id) or self._known(table_id)
        request = self._request(table, version, proposal)
        if isinstance(request, Rejected):
            return request
        self._in_doubt[proposal.attempt] = request
        try:
            outcome = self._proposed(table, request, proposal.attempt)
        except (InvalidRequestError, OwnerUnavailableError):  # nothing landed
            self._in_doubt.pop(proposal.attempt, None)
            raise
        self._in_doubt.pop(proposal.attempt, None)
        return outcome

    def _proposed(self, table: _Table, request: _Request, attempt: AttemptId) -> Outcome:
        lost: Exception | None = None
        unsent: DeltaError | None = None
        for retry in self._calls.tries():
            place = self._seen.get(table.table_id, table).place
            try:
                told = self._calls.once("POST", self._url(place), LoadedTable, request.body)
                outcome = self._meaning(table, request, told, was_lost=lost is not None)
            except (NoAnswerError, _Undecided) as error:
                lost = error
                self._calls.pause(retry, getattr(error, "retry_after", None))
            except OwnerUnavailableError as error:
                unsent = error
                self._calls.pause(retry, error.facts.get("retry_after"))
            except (DeltaError, OSError) as error:
                if lost is None:
                    raise
                raise self._unknown(table, request, attempt, error) from error
            else:
                if isinstance(told, LoadedTable):
                    self._publish_if_due(place, told)
                return outcome
        if lost is not None:
            raise self._unknown(table, request, attempt, lost) from lost
        assert unsent is not None
        raise unsent

    def _meaning(self, table: _Table, request: _Request, told: LoadedTable | Refusal, *, was_lost: bool) -> Outcome:
        """`was_lost`: an earlier send of the same request got no answer, so a refusal of this one proves nothing."""
        version = request.version
        if isinstance(told, LoadedTable):
            if not _shows(told, table.table_id, request):
                raise _Undecided(f"{self.address.server} answered success with another table or commit")
            return Ratified(commit=self._own_commit(request))
        if told.status == HTTPStatus.TOO_MANY_REQUESTS:
            if was_lost:
                self._publish(self._known(table.table_id), version - 1)
                raise _Undecided(str(told))
            return Rejected(reason=RejectionReason.BACKLOG_FULL, detail=f"{self.address.server}: {told.message}")
        now = self._known(table.table_id)
        if was_lost:
            decided = self._decided(now, request)
            if isinstance(decided, Landed):
                return Ratified(commit=decided.commit, replayed=True)
            if decided is None and told.kind != "UpdateRequirementConflictException":
                raise _Undecided(str(told))
        taken = told.kind == "CommitVersionConflictException" and not was_lost
        if taken or (now.latest is not None and now.latest >= version):
            return Conflict(latest_ratified_version=max(now.latest or 0, version), winners=_winners(now, version))
        detail = f"{self.address.server}: {told}"
        if told.kind == "UpdateRequirementConflictException":
            return Rejected(reason=RejectionReason.ATTEMPT_RESOLVED, detail=detail)
        if told.status != HTTPStatus.BAD_REQUEST:  # renamed meanwhile, or a server that contradicts itself
            raise OwnerUnavailableError(f"{detail}; nothing landed; try again")
        if version > (-1 if now.latest is None else now.latest) + 1:
            return VersionGap(latest_ratified_version=now.latest)
        return Rejected(reason=RejectionReason.OWNER_REFUSES, detail=detail)

    def _decided(self, found: _Found, request: _Request) -> AttemptOutcome | None:
        """Whose the version is; None: nobody's yet. Raises `OutcomeUnknown` where the log does not have it any more."""
        if found.latest is None or found.latest < request.version:
            return None
        listed = next((commit for commit in found.commits if commit.version == request.version), None)
        if listed is not None:
            mine = listed.file_name == request.file_name
        else:
            try:
                mine = self._log(found).read(log_path.commit(request.version)) == request.content
            except FileNotFoundError:
                raise OutcomeUnknown(
                    f"{found.place} is at version {found.latest}, and its log has no version {request.version} any "
                    f"more: whether {request.file_name} landed cannot be known; look for its changes in the table",
                    table_id=found.table_id,
                    version=request.version,
                ) from None
        return Landed(commit=self._own_commit(request)) if mine else NotLanded()

    def turn(self, table_id: str) -> AbstractContextManager[bool]:
        """The server has a queue of its own."""
        return nullcontext(False)

    def attempt_outcome(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        """From the ratified commits and the log. A proposal of this process that is still undecided is sent again: it
        may land by that. One of another process stays unknown until its version is taken.

        Raises `OutcomeUnknown` for every other error too: none of them proves that the attempt did not land.
        """
        if not is_attempt_id(attempt):
            raise InvalidRequestError(f"{attempt!r} is not an attempt id: give a lower-case uuid", attempt=attempt)
        try:
            outcome = self._resolved_attempt(table_id, attempt)
        except OutcomeUnknown:
            raise
        except (DeltaError, NoAnswerError, _Undecided, OSError) as error:
            raise OutcomeUnknown(
                f"the outcome of {attempt} is unknown: {error}; ask again", table_id=table_id, attempt=attempt
            ) from error
        self._in_doubt.pop(attempt, None)
        return outcome

    def _resolved_attempt(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        found = self._known(table_id, tries=1)
        pending = self._in_doubt.get(attempt)
        request = pending or self._staged_request(found, attempt)
        decided = self._decided(found, request)
        if decided is not None:
            return decided
        if pending is None:
            raise OutcomeUnknown(
                f"version {request.version} of {found.place} is not decided, and a request for {attempt} may be on its "
                f"way; {self.address.server} cannot withdraw it: ask again after version {request.version} is taken",
                table_id=table_id,
                version=request.version,
                attempt=attempt,
            )
        told = self._calls.once("POST", self._url(found.place), LoadedTable, pending.body)
        outcome = self._meaning(found, pending, told, was_lost=True)
        if isinstance(outcome, Ratified):
            return Landed(commit=outcome.commit)
        return NotLanded()

    def _staged_request(self, found: _Found, attempt: AttemptId) -> _Request:
        """Of an attempt of another process: its staged file has its id and its version in the name."""
        log = self._log(found)
        named = next((path for path in log.staged_listing(_STAGING) if path.uuid == attempt), None)
        if named is None:
            raise OutcomeUnknown(
                f"{found.place} has no staged file of the attempt {attempt}: it was never proposed, or lost and was "
                f"removed, or was published long ago; look for its changes in the table's history",
                table_id=found.table_id,
                attempt=attempt,
            )
        content = log.read_staged(_STAGING, named.name)
        return _Request(version=named.version, file_name=named.name, content=content, body=b"")

    def get_commits(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        for bound in (start, end):
            if bound is not None:
                log_path.checked(bound)
        if start is not None and end is not None and start > end:
            raise InvalidRequestError(f"the range from {start} to {end} is empty; give start <= end")
        found = self._known(table_id)
        return CommitsAnswer(commits=_ratified(found, start, end), latest_ratified_version=found.latest)

    # Publishing

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> Backfilled:
        if version is not None:
            log_path.checked(version)
        found = self._known(table_id)
        latest = found.latest
        if version is not None and (latest is None or version > latest):
            raise InvalidRequestError(f"version {version} of {found.place} is not ratified; its latest is {latest}")
        published = self._publish(found, latest if version is None else version)
        left = [commit.version for commit in found.commits]
        return Backfilled(through=latest if not left else left[0] - 1 + published, published=published)

    def _publish(self, found: _Found, through: Version | None, *, tries: int = TRIES) -> int:
        """Publish the stored commits up to `through`; how many.

        Order: each `<v>.json` with the staged bytes, durably and in order; then the report, upon which the server
        forgets them. A published file with other bytes stops it: `CorruptLogError`.
        """
        log, due = (
            self._log(found),
            [commit for commit in found.commits if through is None or commit.version <= through],
        )
        for commit in due:
            try:
                content = log.read_staged(_STAGING, commit.file_name)
            except FileNotFoundError:
                if log.published(commit.version):  # another client published and removed it
                    log.make_durable(log_path.commit(commit.version))
                    continue
                raise CorruptLogError(
                    f"version {commit.version} of {found.place} is ratified, and its staged file {commit.file_name} is "
                    f"missing; restore it",
                    path=str(log.folder / _STAGING / commit.file_name),
                    version=commit.version,
                ) from None
            log.publish(commit.version, content)
        if due:
            report = SetLatestBackfilledVersion(latest_published_version=due[-1].version)
            told = self._calls.asked(
                "POST", self._url(found.place), LoadedTable, _update(found.table_id, (report,)), tries=tries
            )
            if isinstance(told, Refusal):
                raise self._calls.refused(f"report version {due[-1].version} of {found.place} as published", told)
        return len(due)

    def _publish_if_due(self, place: _Place, loaded: LoadedTable) -> None:
        """The commit landed: that it could not be published is no reason to say otherwise."""
        if len(loaded.commits or ()) < PUBLISH_AFTER:
            return
        try:
            self._publish(self._met(place, loaded), None, tries=1)
        except (DeltaError, OSError) as error:
            logger.warning("publishing %s after a commit failed, the next one goes on: %s", place, error)

    # Changing the owner

    def take_over(
        self,
        location: Path,
        name: str,
        feature: TableFeature,
        version: Version,
        proposal: DirectProposal,
        *,
        commit_mode: CommitMode | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> NoReturn:
        raise self._calls.lacks("a take-over of existing tables", "run take-over on the host of the warehouse")

    def hand_back(self, table_id: str, version: Version, proposal: DirectProposal) -> NoReturn:
        raise self._calls.lacks("a hand-back", "run hand-back on the host of the warehouse")

    # Names, and what is known of tables

    def _place(self, name: str) -> _Place:
        parts = name.split(".")
        if not 1 <= len(parts) <= 3 or not all(parts):
            raise InvalidRequestError(
                f"invalid table name {name!r}; expected TABLE, SCHEMA.TABLE or CATALOG.SCHEMA.TABLE"
            )
        catalog, schema, table = [self.address.catalog, self.address.schema, ""][: 3 - len(parts)] + parts
        return _Place(catalog=catalog, schema=schema, table=table)

    def _name(self, place: _Place) -> str:
        """The shortest name by which it is found again."""
        if place.catalog != self.address.catalog:
            return str(place)
        return place.table if place.schema == self.address.schema else f"{place.schema}.{place.table}"

    def _url(self, place: _Place) -> str:
        return f"{self._schema_url(place)}/tables/{quote(place.table, safe='')}"

    def _schema_url(self, place: _Place) -> str:
        return self.address.schema_path(place.catalog, place.schema)

    def _known(self, table_id: str, *, tries: int = TRIES) -> _Found:
        """The table as the server describes it now, also under a new name. Raises `TableNotFoundError`."""
        seen = self._seen.get(table_id)
        if seen is not None:
            loaded = self._calls.asked("GET", self._url(seen.place), LoadedTable, tries=tries)
            if isinstance(loaded, LoadedTable) and loaded.metadata.table_uuid == table_id:
                return self._met(seen.place, loaded)
            if isinstance(loaded, Refusal) and loaded.status != HTTPStatus.NOT_FOUND:
                raise self._calls.refused(f"load {seen.place}", loaded)
            del self._seen[table_id]
        return self._search(table_id, lambda listed: listed.table_id == table_id)

    def _met(self, place: _Place, loaded: LoadedTable, *, must_exist: bool = True) -> _Found:
        if not _is_managed(loaded.metadata.properties):
            raise UnsupportedFeatureError(
                f"{place} at {self.address.server} is not a {CATALOG_MANAGED.name} table; read it by its path",
                features=(),
            )
        table_id, location = loaded.metadata.table_uuid, self._location(loaded.metadata.location, must_exist=must_exist)
        if len(self._seen) >= TABLES_KEPT:
            self._seen.clear()
        self._seen[table_id] = _Table(table_id=table_id, location=location, place=place)
        return _Found(table_id=table_id, location=location, place=place, loaded=loaded)

    def _search(self, reference: str, is_it: Callable[[ListedTable], bool]) -> _Found:
        """A table of the schema that is asked for by its id or path: found in the list of all."""
        for listed in self._listed():
            if is_it(listed):
                place = self._place_of(listed)
                found = self._calls.asked("GET", self._url(place), LoadedTable)
                if isinstance(found, LoadedTable):
                    return self._met(place, found)
        raise TableNotFoundError(
            f"{self.address.server} has no table {reference!r} in {self.address.catalog}.{self.address.schema}",
            reference=reference,
        )

    def _listed(self) -> Iterator[ListedTable]:
        """The tables of the schema, page by page."""
        query = {"catalog_name": self.address.catalog, "schema_name": self.address.schema, "max_results": str(PAGE)}
        token: str | None = None
        while True:
            given = query if token is None else {**query, "page_token": token}
            page = self._calls.asked("GET", f"{self.address.legacy}/tables?{urlencode(given)}", TablePage)
            if isinstance(page, Refusal):
                raise self._calls.not_found(page, f"{self.address.catalog}.{self.address.schema}")
            yield from page.tables
            if not page.next_page_token or page.next_page_token == token:
                return
            token = page.next_page_token

    def _place_of(self, listed: ListedTable) -> _Place:
        return _Place(catalog=self.address.catalog, schema=self.address.schema, table=listed.name)

    def _location(self, url: str, *, must_exist: bool) -> Path:
        parts = urlsplit(url)
        path = Path(unquote(parts.path))
        if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost") or not path.is_absolute():
            raise LocationError(
                f"{self.address.server} keeps the table at {url}; this client reads file: locations only", location=url
            )
        if must_exist and self._environment.files.stat(path) is None:
            raise LocationError(
                f"{self.address.server} keeps the table at {path}, which does not exist on this host; mount the "
                f"server's storage here at the same path",
                location=str(path),
            )
        return path

    def _log(self, found: _Table) -> LogStore:
        return LogStore(found.location, self._environment)

    def _resolved(self, found: _Found) -> ResolvedTable:
        return ResolvedTable(
            table_id=found.table_id,
            name=self._name(found.place),
            location=found.location,
            feature_name=CATALOG_MANAGED.name,
            commit_mode=CommitMode.STAGED,
            state=TableState.ACTIVE,
            policy=_POLICY,
            commits=CommitsAnswer(commits=_ratified(found, None, None), latest_ratified_version=found.latest),
        )

    def _summary(self, found: _Found) -> TableSummary:
        commits = found.commits
        return TableSummary(
            table_id=found.table_id,
            name=self._name(found.place),
            location=found.location,
            feature=CATALOG_MANAGED,
            commit_mode=CommitMode.STAGED,
            state=TableState.ACTIVE,
            policy=_POLICY,
            latest=found.latest,
            backfilled=found.latest if not commits else commits[0].version - 1,
        )

    # Requests and their answers

    def _request(self, found: _Table, version: Version, proposal: StagedProposal) -> _Request | Rejected:
        """What the commit is, and what it changes of the metadata: a server need not read the log."""
        log = self._log(found)
        try:
            content = log.read_staged(_STAGING, proposal.file_name)
        except FileNotFoundError:
            return Rejected(
                reason=RejectionReason.STAGED_FILE_MISSING, detail=f"{proposal.file_name} is not in {log.folder}"
            )
        try:
            timestamp = documents.in_commit_timestamp(content)
            changes = documents.changes(content, lambda: self._known(found.table_id).loaded)
        except CorruptLogError as error:
            return Rejected(reason=RejectionReason.MALFORMED_ACTIONS, detail=error.message)
        if timestamp is None:
            return Rejected(
                reason=RejectionReason.IN_COMMIT_TIMESTAMP, detail=f"{proposal.file_name} has no in-commit timestamp"
            )
        commit = WireCommit(
            version=version,
            timestamp=timestamp,
            file_name=proposal.file_name,
            file_size=len(content),
            file_modification_timestamp=log.modified(f"{_STAGING}/{proposal.file_name}") or self._environment.now(),
        )
        body = _update(found.table_id, (AddCommit(commit=commit), *changes))
        return _Request(version=version, file_name=proposal.file_name, content=content, body=body)

    def _own_commit(self, request: _Request) -> RatifiedCommit:
        """A commit that is known to be this proposal."""
        return RatifiedCommit(
            version=request.version,
            attempt=documents.attempt_in(request.file_name),
            commit_mode=CommitMode.STAGED,
            in_commit_timestamp=documents.in_commit_timestamp(request.content) or 0,
            size=len(request.content),
            ratified_at=self._environment.now(),
            file_name=request.file_name,
        )

    def _unknown(self, found: _Table, request: _Request, attempt: AttemptId, cause: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"version {request.version} of {found.place} may or may not be attempt {attempt}: {cause}; "
            f"ask attempt_outcome before committing this work again",
            table_id=found.table_id,
            version=request.version,
            attempt=attempt,
        )


class _Undecided(Exception):  # noqa: N818 - never leaves this module
    """An answer that says nothing of an earlier send of the same request."""


def _is_managed(properties: dict[str, str | None]) -> bool:
    return properties.get(_MANAGED_PROPERTY) == "supported"


def _is_at(listed: ListedTable, location: Path) -> bool:
    return listed.storage_location is not None and Path(unquote(urlsplit(listed.storage_location).path)) == location


def _ratified(found: _Found, start: Version | None, end: Version | None) -> tuple[RatifiedCommit, ...]:
    return tuple(
        RatifiedCommit(
            version=commit.version,
            attempt=documents.attempt_in(commit.file_name),
            commit_mode=CommitMode.STAGED,
            in_commit_timestamp=commit.timestamp,
            size=commit.file_size,
            ratified_at=commit.file_modification_timestamp,
            file_name=commit.file_name,
        )
        for commit in found.commits
        if (start is None or commit.version >= start) and (end is None or commit.version <= end)
    )


def _shows(told: LoadedTable, table_id: str, request: _Request) -> bool:
    """Whether an answer to a commit can be one of a server that has it."""
    listed = next((commit for commit in told.commits or () if commit.version == request.version), None)
    has_it = told.latest_table_version is not None and told.latest_table_version >= request.version
    return told.metadata.table_uuid == table_id and has_it and (listed is None or listed.file_name == request.file_name)


def _winners(found: _Found, version: Version) -> tuple[RatifiedCommit, ...]:
    """From `version` on, where the server still has it."""
    winners = _ratified(found, version, None)[:MAX_WINNERS]
    return winners if winners and winners[0].version == version else ()


def _update(table_id: str, updates: tuple[Update, ...]) -> bytes:
    return msgspec.json.encode(UpdateTable(requirements=(AssertTableUuid(uuid=table_id),), updates=updates))
