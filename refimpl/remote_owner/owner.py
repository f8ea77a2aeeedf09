"""A commit owner behind Unity Catalog's Delta API: `commit-owner serve` on another host, or another server of that API.

This host reaches the table's files by the same paths as the server. No commit is lost or committed twice, because:

- a staged file is durable before it is proposed, and every proposal has its own file (`refimpl.client.proposing`);
- a request whose answer was lost is sent again unchanged: the server answers the replay of a landed commit with
  success;
- if the server answers the replay with a conflict (Unity Catalog forgets all but the newest commit: FB09), the ratified
  commits and the published log decide whether the commit landed;
- as long as the version is undecided, the outcome is unknown: the API cannot withdraw a proposal;
- a commit is published durably before it is reported to the server, which may then forget it.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, NoReturn, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from refimpl.catalog.messages import (
    CATALOG_BASE,
    FEATURE_PREFIX,
    FORBIDDEN_JOBS,
    OPERATIONS,
    TRANSACTIONS,
    AddCommit,
    AssertTableUuid,
    CommitTransaction,
    ListedTable,
    LoadedTable,
    LoadedTables,
    LoadTables,
    SetLatestBackfilledVersion,
    StagedTable,
    StageTable,
    TableChange,
    TableIdentifier,
    TablePage,
    Update,
    UpdateTable,
    WireCommit,
    jobs_of,
    path_of,
)
from refimpl.protocol import commit_owner, log_path
from refimpl.protocol.commits import (
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
from refimpl.protocol.errors import (
    CorruptLogError,
    DeltaError,
    InvalidRequestError,
    LocationError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from refimpl.protocol.groups import GroupRatified, GroupRefused, Member, check_members, check_readable
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode, TableFeature
from refimpl.remote_owner import documents
from refimpl.remote_owner.connection import (
    TRIES,
    Address,
    Config,
    Connection,
    DeltaCalls,
    Done,
    NoAnswerError,
    Refusal,
    Transport,
)
from refimpl.storage.environment import Environment
from refimpl.storage.log_store import LogStore

logger = logging.getLogger(__name__)

PAGE: Final = 1000
TIMEOUT: Final = 30.0
"""Seconds until a request counts as unanswered; longer than the server's own deadline."""
TABLES_KEPT: Final = 10_000
"""Maximum number of tables remembered by id. Other tables are searched in the server's list."""

_MANAGED_PROPERTY: Final = f"{FEATURE_PREFIX}{CATALOG_MANAGED.name}"
_STAGING: Final = CATALOG_MANAGED.staging_folder
_POLICY: Final = commit_owner.MaintenancePolicy(
    backfill_every=commit_owner.CLIENT_PUBLISHES_AFTER, backlog_limit=commit_owner.UNPUBLISHED_COMMITS, hand_back=False
)
"""What is allowed by default, with Unity Catalog's limit. `FORBIDDEN_JOBS` of a server's answer restricts it, and
`allowed-maintenance-operations` adds jobs."""
_PERMISSIONS: Final = {job: operation for operation, jobs in OPERATIONS.items() for job in jobs}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FullName:
    """A table's three-part name."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A known table. Its id and its location never change; its name may change."""

    table_id: str
    location: Path
    name: _FullName


@dataclass(frozen=True, slots=True, kw_only=True)
class _CurrentTable(_Table):
    """A table as the server describes it now."""

    loaded: LoadedTable

    @property
    def latest(self) -> Version | None:
        latest = self.loaded.latest_table_version
        return None if latest is None or latest < 0 else latest

    @property
    def policy(self) -> commit_owner.MaintenancePolicy:
        forbidden = (self.loaded.metadata.properties.get(FORBIDDEN_JOBS) or "").split(",")
        allowed = frozenset(job for job in _POLICY.allowed if job.value not in forbidden)
        return msgspec.structs.replace(
            _POLICY, allowed=allowed | jobs_of(self.loaded.allowed_maintenance_operations or ())
        )

    @property
    def commits(self) -> tuple[WireCommit, ...]:
        """The commits that the server stores, oldest first."""
        return tuple(sorted(self.loaded.commits or (), key=lambda commit: commit.version))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A proposal with the bytes of its request, which are the same at every send."""

    version: Version
    file_name: str
    content: bytes
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Proposals that are sent together only, in the order of the members."""

    members: tuple[Member, ...]
    tables: tuple[_Table, ...]
    requests: tuple[_Request, ...]

    def request_of(self, attempt: AttemptId) -> _Request:
        """The member of this attempt."""
        found = (r for m, r in zip(self.members, self.requests, strict=True) if m.proposal.attempt == attempt)
        return next(found)


Proved = TypeVar("Proved")
Proved_co = TypeVar("Proved_co", covariant=True)


class _Send(Protocol[Proved_co]):
    """Sends a request once, and returns what its answer proves. `was_lost`: an earlier send was not answered. Raises
    `_Undecided` if that may still land."""

    def __call__(self, *, was_lost: bool) -> Proved_co: ...


class RemoteOwner:
    """A `CommitOwner` over HTTP, for tables with the feature catalogManaged and staged commits.

    Safe to share between threads, and across `fork`. All errors name the server.
    """

    def __init__(self, address: Address, environment: Environment, *, connection: Transport | None = None) -> None:
        """`connection`: a replacement for the HTTP connection."""
        self.address = address
        self.name = address.catalog
        self.conf: Mapping[str, str] = {}
        self._environment = environment
        self._calls = DeltaCalls(address, environment, connection or Connection(address, timeout=TIMEOUT))
        self._seen: dict[str, _Table] = {}
        """Known tables, by id."""
        self._staged: dict[str, tuple[_FullName, StagedTable]] = {}
        """Tables that this client is creating, by id."""
        self._doubtful: set[str] = set()
        """Ids in `_staged` whose registration may have succeeded."""
        self._endpoints: frozenset[str] | None = None
        """The calls that the server has; None until it was asked."""
        self._groups_in_doubt: dict[AttemptId, _Group] = {}
        """The groups of this process whose outcome is unknown, by each attempt."""
        self._in_doubt: dict[AttemptId, _Request] = {}
        """Proposals of this process whose outcome is unknown."""

    def close(self) -> None:
        """Close this thread's connection."""
        self._calls.close()

    # Tables

    def resolve(self, reference: str | Path) -> commit_owner.ResolvedTable:
        if isinstance(reference, Path) or "/" in reference:
            return self._resolved(
                self._search(str(reference), lambda listed: path_of(listed.storage_location or "") == Path(reference))
            )
        if is_attempt_id(reference):
            return self._resolved(self._load_known(reference))
        full_name = self._full_name(reference)
        current = self._calls.call("GET", self._url(full_name), LoadedTable)
        if isinstance(current, Refusal):
            raise self._calls.not_found(current, f"{reference!r} ({full_name})")
        return self._resolved(self._remember(full_name, current))

    def tables(self) -> Sequence[commit_owner.TableSummary]:
        summaries: list[commit_owner.TableSummary] = []
        for listed in self._listed():
            full_name = self._full_name_of(listed)
            loaded = self._calls.call("GET", self._url(full_name), LoadedTable)
            if isinstance(loaded, LoadedTable):  # not dropped in the meantime, and of a supported kind
                with contextlib.suppress(LocationError, UnsupportedFeatureError):
                    summaries.append(self._summary(self._remember(full_name, loaded, must_exist=False)))
        return sorted(summaries, key=lambda table: table.name or "")

    def stage_table(
        self,
        name: str,
        feature: TableFeature,
        *,
        commit_mode: CommitMode | None = None,
        location: Path | None = None,
        policy: commit_owner.MaintenancePolicy | None = None,
    ) -> commit_owner.ResolvedTable:
        if feature.path_access:
            raise self._calls.lacks(f"{feature.name} tables", f"use the feature {CATALOG_MANAGED.name}")
        if commit_mode not in (None, CommitMode.STAGED):
            raise self._calls.lacks(f"{commit_mode.value} commits", "use the commit mode staged")
        if location is not None:
            raise self._calls.lacks("a choice of the table's location", "leave it out; the server chooses one")
        if policy is not None:
            raise self._calls.lacks("a choice of the maintenance policy", "leave it out; the server has its own")
        full_name = self._full_name(name)
        request = msgspec.json.encode(StageTable(name=full_name.table))
        staged = self._calls.call("POST", f"{self._schema_url(full_name)}/staging-tables", StagedTable, request)
        if isinstance(staged, Refusal):
            raise self._calls.refused(f"stage {name!r}", staged)
        at = self._location(staged.location, must_exist=False)
        try:
            LogStore(at, self._environment).create_folders(_STAGING)
        except OSError as error:
            raise LocationError(
                f"{self.address.server} stores the table at {at}, which this host cannot create: {error}; mount the "
                f"server's storage here at the same path",
                location=str(at),
            ) from error
        self._staged[staged.table_id] = (full_name, staged)
        demanded = staged.required_protocol
        return commit_owner.ResolvedTable(
            table_id=staged.table_id,
            name=self._name(full_name),
            location=at,
            feature_name=CATALOG_MANAGED.name,
            commit_mode=CommitMode.STAGED,
            state=commit_owner.TableState.STAGING,
            policy=_POLICY,
            commits=CommitsAnswer(commits=(), latest_ratified_version=None),
            demands=commit_owner.NewTableDemands(
                reader_features=demanded.reader_features,
                writer_features=demanded.writer_features,
                properties={key: value for key, value in staged.required_properties.items() if value is not None},
            ),
        )

    def register_table(
        self, table_id: str, proposal: DirectProposal
    ) -> commit_owner.Registered | commit_owner.NameTaken | Outcome:
        """After a lost answer, the table may exist, under its name or, after a rename, under another one. The client
        searches the server's tables for the id, then repeats the request. From then on, a rejected request does not
        prove that the table does not exist: `OutcomeUnknown`."""
        if table_id not in self._staged:
            raise InvalidRequestError(
                f"the table {table_id} was not staged here at {self.address.server}; stage it again", table_id=table_id
            )
        try:
            if table_id in self._doubtful:
                with contextlib.suppress(TableNotFoundError):
                    return self._registered(self._search(table_id, lambda it: it.table_id == table_id), proposal)
            return self._register(table_id, proposal)
        except OutcomeUnknown:
            self._doubtful.add(table_id)
            raise
        except (InvalidRequestError, OwnerUnavailableError) as error:
            if table_id not in self._doubtful:
                raise
            raise OutcomeUnknown(f"{table_id} may or may not be registered: {error}", table_id=table_id) from error

    def _register(
        self, table_id: str, proposal: DirectProposal
    ) -> commit_owner.Registered | commit_owner.NameTaken | Outcome:
        full_name, staged = self._staged[table_id]
        body = msgspec.json.encode(documents.creation(full_name.table, staged, proposal.content))
        answer = self._calls.call("POST", f"{self._schema_url(full_name)}/tables", LoadedTable, body, lost=True)
        loaded = answer
        if isinstance(answer, Refusal):
            if answer.status == HTTPStatus.CONFLICT:  # the name may belong to this very table
                self._doubtful.add(table_id)
            loaded = self._calls.call("GET", self._url(full_name), LoadedTable)
        is_mine = isinstance(loaded, LoadedTable) and loaded.metadata.table_uuid == table_id
        if isinstance(answer, Refusal) and answer.status != HTTPStatus.CONFLICT and not is_mine:
            return Rejected(reason=RejectionReason.OWNER_REFUSES, detail=f"{self.address.server}: {answer}")
        if isinstance(loaded, Refusal):
            raise OwnerUnavailableError(f"the name {full_name} was taken, and is free again; create the table again")
        if not isinstance(answer, Refusal) and not is_mine:
            raise OutcomeUnknown(
                f"{self.address.server} answered the creation of {full_name} with another table, "
                f"{loaded.metadata.table_uuid}",
                table_id=table_id,
            )
        current = self._remember(full_name, loaded)
        if not is_mine:
            return commit_owner.NameTaken(winner=self._resolved(current))
        return self._registered(current, proposal)

    def _registered(self, current: _CurrentTable, proposal: DirectProposal) -> commit_owner.Registered:
        self._staged.pop(current.table_id, None)
        self._doubtful.discard(current.table_id)
        commit = RatifiedCommit(
            version=0,
            attempt=proposal.attempt,
            commit_mode=CommitMode.DIRECT,
            in_commit_timestamp=documents.in_commit_timestamp(proposal.content) or 0,
            size=len(proposal.content),
            ratified_at=current.loaded.metadata.created_time or self._environment.now(),
        )
        return commit_owner.Registered(table=self._resolved(current), commit=commit)

    def drop_table(self, table_id: str) -> None:
        """The API drops a table by its name, so the name that the table has now is looked up first. With the id,
        `commit-owner serve` does not drop the next table of this name if the request arrives again later.

        After a lost answer, or if the name is gone, the server is asked whether it has a table of this id.
        """
        if self._staged.pop(table_id, None) is not None:
            return  # it has no name yet
        current = self._load_known(table_id)
        problem: Exception | None = None
        doubtful = False
        try:
            for retry in self._calls.tries():
                try:
                    answer = self._calls.call_once("DELETE", f"{self._url(current.name)}?table-id={table_id}", Done)
                    if not isinstance(answer, Refusal):
                        return
                    problem = self._calls.refused(f"drop {current.name}", answer)
                    if not answer.is_gone:
                        break
                    self._calls.pause(retry, None)
                except NoAnswerError as error:
                    problem, doubtful = error, True
                    self._calls.pause(retry, error.retry_after)
                current = self._load_known(table_id)  # its name may have changed, and belong to another table
        except TableNotFoundError:
            return
        except (InvalidRequestError, OwnerUnavailableError) as error:
            problem = error
        assert problem is not None
        if not doubtful:
            raise problem
        raise OutcomeUnknown(
            f"{current.name} may or may not be dropped: a request was not answered; the last problem: {problem}; "
            f"if {self.address.server} still has the table, drop it again",
            table_id=table_id,
        ) from problem

    # Commits

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        """Without an answer, the request is sent again unchanged, at most `TRIES` times; then raises
        `OutcomeUnknown`. A later call with the same proposal is another repetition."""
        if not isinstance(proposal, StagedProposal):
            mode = "inline" if not isinstance(proposal, DirectProposal) else "direct"
            raise self._calls.lacks(f"{mode} commits", "stage the commit")
        log_path.checked(version)
        sent = self._in_doubt.get(proposal.attempt)
        if sent is not None and sent.version != version:
            sent = None
        try:
            table = self._seen.get(table_id) or self._load_known(table_id)
            request = sent or self._request(table, version, proposal)
            if isinstance(request, Rejected):
                return request
            self._in_doubt[proposal.attempt] = request
            outcome = self._propose(table, request, proposal.attempt, was_sent=sent is not None)
        except (InvalidRequestError, OwnerUnavailableError) as error:
            if sent is not None:
                raise self._unknown(table_id, sent, proposal.attempt, error) from error
            self._in_doubt.pop(proposal.attempt, None)  # nothing landed
            raise
        self._in_doubt.pop(proposal.attempt, None)
        return outcome

    def _propose(self, table: _Table, request: _Request, attempt: AttemptId, *, was_sent: bool) -> Outcome:
        def send(*, was_lost: bool) -> tuple[Outcome, _FullName, LoadedTable | Refusal]:
            full_name = self._seen.get(table.table_id, table).name
            answer = self._calls.call_once("POST", self._url(full_name), LoadedTable, request.body)
            return self._meaning(table, request, answer, was_lost=was_lost), full_name, answer

        unknown = partial(self._unknown, table.table_id, request, attempt)
        outcome, full_name, answer = self._send_until_sure(send, was_sent=was_sent, unknown=unknown)
        if isinstance(answer, LoadedTable):
            self._publish_if_due(full_name, answer)
        return outcome

    def _send_until_sure(
        self, send: _Send[Proved], *, was_sent: bool, unknown: Callable[[Exception], OutcomeUnknown]
    ) -> Proved:
        """What the first send proves whose answer decides. `was_sent`: an earlier call of this process sent the same
        request. Raises `unknown(...)` if a send was not answered and no later one decides."""
        lost: Exception | None = _Undecided("an earlier request was not answered") if was_sent else None
        unsent: DeltaError | None = None
        for retry in self._calls.tries():
            try:
                return send(was_lost=lost is not None)
            except (NoAnswerError, _Undecided) as error:
                lost = error
                self._calls.pause(retry, getattr(error, "retry_after", None))
            except OwnerUnavailableError as error:
                unsent = error
                self._calls.pause(retry, error.facts.get("retry_after"))
            except (DeltaError, OSError) as error:
                if lost is None:
                    raise
                raise unknown(error) from error
        if lost is not None:
            raise unknown(lost) from lost
        assert unsent is not None
        raise unsent

    def _meaning(self, table: _Table, request: _Request, answer: LoadedTable | Refusal, *, was_lost: bool) -> Outcome:
        """The outcome that an answer proves.

        `was_lost`: an earlier send of the same request got no answer, so a rejection of this one proves nothing.
        """
        version = request.version
        if isinstance(answer, LoadedTable):
            if not _shows(answer, table.table_id, request):
                raise _Undecided(f"{self.address.server} answered success with another table or commit")
            return Ratified(commit=self._own_commit(request))
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            if was_lost:
                self._publish(self._load_known(table.table_id), version - 1)
                raise _Undecided(str(answer))
            return Rejected(reason=RejectionReason.BACKLOG_FULL, detail=f"{self.address.server}: {answer.message}")
        taken = answer.kind == "CommitVersionConflictException" and not was_lost
        try:
            now = self._after(answer, table)
        except (InvalidRequestError, OwnerUnavailableError) as error:
            if taken:
                return Conflict(latest_ratified_version=version)  # perhaps by this request itself, which arrived twice
            if isinstance(error, OwnerUnavailableError):  # an earlier arrival of this request may have landed
                raise _Undecided(f"{answer}; then {error}") from error
            if isinstance(error, TableNotFoundError) and self._is_published(table, request):
                return Ratified(commit=self._own_commit(request), replayed=True)
            raise
        if was_lost:
            decided = self._decided(now, request)
            if isinstance(decided, Landed):
                return Ratified(commit=decided.commit, replayed=True)
            if decided is None and answer.kind != "UpdateRequirementConflictException":
                raise _Undecided(str(answer))
        is_final = answer.status == HTTPStatus.BAD_REQUEST  # no other version helps, also if this one is taken by now
        if taken or (not is_final and now.latest is not None and now.latest >= version):
            return Conflict(latest_ratified_version=max(now.latest or 0, version), winners=_winners(now, version))
        detail = f"{self.address.server}: {answer}"
        if answer.kind == "UpdateRequirementConflictException":
            return Rejected(reason=RejectionReason.ATTEMPT_RESOLVED, detail=detail)
        if answer.is_gone or not is_final:  # renamed, or the server contradicts itself
            raise OwnerUnavailableError(f"{detail}; nothing landed; try again")
        if version > (-1 if now.latest is None else now.latest) + 1:
            return VersionGap(latest_ratified_version=now.latest)
        return Rejected(reason=RejectionReason.OWNER_REFUSES, detail=detail)

    def _after(self, refusal: Refusal, table: _Table) -> _CurrentTable:
        """The table after a rejected commit; from the answer, if it has the table."""
        loaded = refusal.table
        if loaded is None or loaded.metadata.table_uuid != table.table_id:
            return self._load_known(table.table_id)
        return self._remember(self._seen.get(table.table_id, table).name, loaded)

    def _decided(self, current: _CurrentTable, request: _Request) -> AttemptOutcome | None:
        """The outcome of a proposal; None while its version is not taken. Raises `OutcomeUnknown` if the log no longer
        has this version."""
        if current.latest is None or current.latest < request.version:
            return None
        listed = next((commit for commit in current.commits if commit.version == request.version), None)
        if listed is not None:
            mine = listed.file_name == request.file_name
        else:
            try:
                mine = self._log(current).read(log_path.commit(request.version)) == request.content
            except FileNotFoundError:
                raise OutcomeUnknown(
                    f"{current.name} is at version {current.latest}, and its log has no version {request.version} any "
                    f"more: whether {request.file_name} landed cannot be known; look for its changes in the table",
                    table_id=current.table_id,
                    version=request.version,
                ) from None
        return Landed(commit=self._own_commit(request)) if mine else NotLanded()

    def _is_published(self, table: _Table, request: _Request) -> bool:
        """Whether a table that the server no longer has got the proposal before: the request arrived twice, and the
        table was dropped in between. `commit-owner serve` publishes all commits of a table before it drops it.

        Raises `OutcomeUnknown` if the log does not show it. The log only shows that the commit did not land if the
        staged file is still beside it: otherwise the files were deleted, and perhaps others written in their place.
        """
        log = self._log(table)
        try:
            is_published = log.published(request.version)
            if is_published and log.holds(log_path.commit(request.version), request.content):
                return True
            is_past = not is_published and log.newest_version() >= request.version
            if not is_past and log.staged_size(_STAGING, request.file_name) is not None:
                return False
            problem = f"its log has no version {request.version} any more" if is_past else "its files are gone"
        except OSError as error:
            problem = f"its log cannot be read: {error}"
        raise OutcomeUnknown(f"{table.name} was dropped, and {problem}: whether {request.file_name} landed is unknown")

    # Transactions over several tables

    def _check_transactions(self) -> None:
        """Raise `InvalidRequestError`, unless the server says that it has transactions over several tables."""
        if self._endpoints is None:
            query = urlencode({"catalog": self.address.catalog, "protocol-versions": "1.0"})
            answer = self._calls.call("GET", f"{self.address.delta}/config?{query}", Config)
            if isinstance(answer, Refusal):
                raise self._calls.refused("load the configuration", answer)
            self._endpoints = frozenset(answer.endpoints)
        for call in ("commit", "load"):
            if f"POST {TRANSACTIONS}/{call}" not in self._endpoints:
                raise self._calls.lacks("transactions over several tables", "read and commit each table by itself")

    def _transactions_url(self, call: str) -> str:
        return self.address.delta + f"{TRANSACTIONS}/{call}".removeprefix("/v1").replace(
            "{catalog}", quote(self.address.catalog, safe="")
        )

    def commit_group(self, members: Sequence[Member]) -> GroupRatified | GroupRefused:
        """Without an answer, the request is sent again unchanged, at most `TRIES` times; then raises `OutcomeUnknown`.
        No member is ever sent alone."""
        self._check_transactions()
        check_members(members)
        tables: list[_Table] = []
        requests: list[_Request] = []
        for index, member in enumerate(members):
            if not isinstance(member.proposal, StagedProposal):
                raise self._calls.lacks("inline and direct commits", "stage the commit")
            tables.append(self._seen.get(member.table_id) or self._load_known(member.table_id))
            request = self._request(tables[-1], log_path.checked(member.version), member.proposal)
            if isinstance(request, Rejected):
                return GroupRefused(decided_by=index, outcome=request, lost=(index,))
            requests.append(request)
        group = _Group(members=tuple(members), tables=tuple(tables), requests=tuple(requests))
        attempts = [member.proposal.attempt for member in members]
        was_sent = attempts[0] in self._groups_in_doubt
        self._groups_in_doubt |= dict.fromkeys(attempts, group)
        try:
            unknown = partial(self._unknown, tables[0].table_id, requests[0], attempts[0])
            outcome = self._send_until_sure(partial(self._send_group, group), was_sent=was_sent, unknown=unknown)
        except (InvalidRequestError, OwnerUnavailableError) as error:
            if was_sent:
                raise self._unknown(tables[0].table_id, requests[0], attempts[0], error) from error
            self._forget(group)  # nothing landed
            raise
        self._forget(group)
        if isinstance(outcome, GroupRatified):
            for table, request in zip(tables, requests, strict=True):
                if request.version % commit_owner.CLIENT_PUBLISHES_AFTER == 0:
                    with contextlib.suppress(DeltaError):  # the group landed
                        current = self._load_known(table.table_id, tries=1)
                        self._publish_if_due(current.name, current.loaded)
        return outcome

    def _forget(self, group: _Group) -> None:
        for member in group.members:
            self._groups_in_doubt.pop(member.proposal.attempt, None)

    def _send_group(self, group: _Group, *, was_lost: bool) -> GroupRatified | GroupRefused:
        """The outcome that one send proves. `was_lost`: an earlier send was not answered, and may still arrive; then
        only a version that another commit has proves that the group did not land. Raises `_Undecided`."""
        changes = tuple(self._change(*each) for each in zip(group.tables, group.requests, strict=True))
        body = msgspec.json.encode(CommitTransaction(table_changes=changes))
        answer = self._calls.call_once("POST", self._transactions_url("commit"), Done, body)
        if not isinstance(answer, Refusal):
            commits = tuple(self._own_commit(request) for request in group.requests)
            return GroupRatified(commits=commits, replayed=was_lost)
        current = [self._load_known(table.table_id) for table in group.tables]
        lost = tuple(
            index
            for index, (request, now) in enumerate(zip(group.requests, current, strict=True))
            if now.latest is not None and now.latest >= request.version
        )
        if was_lost:
            decided = [self._decided(current[index], group.requests[index]) for index in lost]
            if any(isinstance(outcome, Landed) for outcome in decided):
                commits = tuple(self._own_commit(request) for request in group.requests)
                return GroupRatified(commits=commits, replayed=True)
            if not lost and answer.kind != "UpdateRequirementConflictException":
                raise _Undecided(str(answer))
        detail = f"{self.address.server}: {answer}"
        if lost and answer.status == HTTPStatus.CONFLICT:
            taken = current[lost[0]].latest
            assert taken is not None
            return GroupRefused(decided_by=lost[0], outcome=Conflict(latest_ratified_version=taken), lost=lost)
        at = answer.member if answer.member is not None and 0 <= answer.member < len(current) else 0
        others = tuple(sorted({*lost, at}))
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            reason = RejectionReason.BACKLOG_FULL
        elif answer.status == HTTPStatus.CONFLICT:
            reason = RejectionReason.ATTEMPT_RESOLVED
        else:
            reason = RejectionReason.OWNER_REFUSES
        return GroupRefused(decided_by=at, outcome=Rejected(reason=reason, detail=detail), lost=others)

    def _change(self, table: _Table, request: _Request) -> TableChange:
        name = self._seen.get(table.table_id, table).name
        update = msgspec.json.decode(request.body, type=UpdateTable)
        identifier = TableIdentifier(namespace=(name.schema,), name=name.table)
        return TableChange(identifier=identifier, updates=update.updates, requirements=update.requirements)

    def resolve_together(self, references: Sequence[str | Path]) -> tuple[commit_owner.ResolvedTable, ...]:
        self._check_transactions()
        check_readable(references)
        ids = [self.resolve(reference).table_id for reference in references]
        names = [self._seen[table_id].name for table_id in ids]
        request = LoadTables(identifiers=tuple(TableIdentifier(namespace=(n.schema,), name=n.table) for n in names))
        answer = self._calls.call("POST", self._transactions_url("load"), LoadedTables, msgspec.json.encode(request))
        if isinstance(answer, Refusal):
            raise self._calls.not_found(answer, ", ".join(map(str, names)))
        if [loaded.metadata.table_uuid for loaded in answer.tables] != ids:
            raise OwnerUnavailableError(f"{self.address.server} has other tables of these names now; read them again")
        pairs = zip(names, answer.tables, strict=True)
        return tuple(self._resolved(self._remember(name, loaded)) for name, loaded in pairs)

    def turn(self, table_id: str) -> AbstractContextManager[bool]:
        """Takes no turn: the server has its own queue."""
        return nullcontext(False)

    def attempt_outcome(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        """The outcome, from the ratified commits and the log. An undecided proposal of this process is sent again, and
        may land then. The outcome of another process's proposal stays unknown until its version is taken.

        Raises `OutcomeUnknown` also for every other error: no error proves that the attempt did not land.
        """
        if not is_attempt_id(attempt):
            raise InvalidRequestError(f"{attempt!r} is not an attempt id; expected a lower-case UUID", attempt=attempt)
        try:
            outcome = self._resolve_attempt(table_id, attempt)
        except OutcomeUnknown:
            raise
        except (DeltaError, NoAnswerError, _Undecided, OSError) as error:
            raise OutcomeUnknown(
                f"the outcome of {attempt} is unknown: {error}; ask again", table_id=table_id, attempt=attempt
            ) from error
        self._in_doubt.pop(attempt, None)
        if attempt in self._groups_in_doubt:
            self._forget(self._groups_in_doubt[attempt])
        return outcome

    def _resolve_attempt(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        current = self._load_known(table_id, tries=1)
        pending, group = self._in_doubt.get(attempt), self._groups_in_doubt.get(attempt)
        own = None if group is None else group.request_of(attempt)
        request = own or pending or self._staged_request(current, attempt)
        decided = self._decided(current, request)
        if decided is not None:
            return decided
        if group is not None:  # as a whole: a member alone must not land
            together = self._send_group(group, was_lost=True)
            return Landed(commit=self._own_commit(request)) if isinstance(together, GroupRatified) else NotLanded()
        if pending is None:
            raise OutcomeUnknown(
                f"version {request.version} of {current.name} is not decided, and a request for {attempt} may still "
                f"arrive; {self.address.server} cannot withdraw it: ask again after another commit to the table",
                table_id=table_id,
                version=request.version,
                attempt=attempt,
            )
        answer = self._calls.call_once("POST", self._url(current.name), LoadedTable, pending.body)
        outcome = self._meaning(current, pending, answer, was_lost=True)
        if isinstance(outcome, Ratified):
            return Landed(commit=outcome.commit)
        return NotLanded()

    def _staged_request(self, current: _CurrentTable, attempt: AttemptId) -> _Request:
        """The request of another process's attempt. The name of its staged file has the attempt id and the version."""
        log = self._log(current)
        named = next((path for path in log.staged_listing(_STAGING) if path.uuid == attempt), None)
        if named is None:
            raise OutcomeUnknown(
                f"{current.name} has no staged file of the attempt {attempt}: it was never proposed, or it lost and "
                f"its file was removed, or it was published long ago; look for its changes in the table's history",
                table_id=current.table_id,
                attempt=attempt,
            )
        content = log.read_staged(_STAGING, named.name)
        return _Request(version=named.version, file_name=named.name, content=content, body=b"")

    def get_commits(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        log_path.check_range(start, end)
        current = self._load_known(table_id)
        return CommitsAnswer(commits=_ratified(current, start, end), latest_ratified_version=current.latest)

    # Publishing

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> commit_owner.Backfilled:
        if version is not None:
            log_path.checked(version)
        current = self._load_known(table_id)
        latest = current.latest
        if version is not None and (latest is None or version > latest):
            raise InvalidRequestError(f"version {version} of {current.name} is not ratified; the latest is {latest}")
        published = self._publish(current, latest if version is None else version)
        left = [commit.version for commit in current.commits]
        return commit_owner.Backfilled(through=latest if not left else left[0] - 1 + published, published=published)

    def _publish(self, current: _CurrentTable, through: Version | None, *, tries: int = TRIES) -> int:
        """Publish the stored commits up to `through`, and return their number.

        Durability order: each `<v>.json` with the staged bytes, durable, in order of version; then the report, after
        which the server may forget the commits. A published file with other bytes stops it: `CorruptLogError`.
        """
        due = _ratified(current, None, through)
        self._log(current).publish_ratified(_STAGING, due)
        if due:
            self._report(current, due[-1].version, tries=tries)
        return len(due)

    def report_published(self, table_id: str, through: Version) -> None:
        self._report(self._load_known(table_id), log_path.checked(through), tries=TRIES)

    def _report(self, current: _CurrentTable, through: Version, *, tries: int) -> None:
        report = SetLatestBackfilledVersion(latest_published_version=through)
        body = _update(current.table_id, (report,))
        answer = self._calls.call("POST", self._url(current.name), LoadedTable, body, tries=tries)
        if isinstance(answer, Refusal):
            raise self._calls.refused(f"report version {through} of {current.name} as published", answer)

    def _publish_if_due(self, full_name: _FullName, loaded: LoadedTable) -> None:
        """Publish after a commit landed. A failure to publish does not change the commit's outcome."""
        if len(loaded.commits or ()) < commit_owner.CLIENT_PUBLISHES_AFTER:
            return
        try:
            self._publish(self._remember(full_name, loaded), None, tries=1)
        except (DeltaError, OSError) as error:
            logger.warning("publishing %s after a commit failed; the next commit tries again: %s", full_name, error)

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
        policy: commit_owner.MaintenancePolicy | None = None,
    ) -> NoReturn:
        raise self._calls.lacks("a take-over of existing tables", "run take-over on the host of the warehouse")

    def hand_back(self, table_id: str, version: Version, proposal: DirectProposal) -> NoReturn:
        raise self._calls.lacks("a hand-back", "run hand-back on the host of the warehouse")

    # Names, and known tables

    def _full_name(self, name: str) -> _FullName:
        parts = name.split(".")
        if not 1 <= len(parts) <= 3 or not all(parts):
            raise InvalidRequestError(
                f"invalid table name {name!r}; expected TABLE, SCHEMA.TABLE or CATALOG.SCHEMA.TABLE"
            )
        catalog, schema, table = [self.address.catalog, self.address.schema, ""][: 3 - len(parts)] + parts
        return _FullName(catalog=catalog, schema=schema, table=table)

    def _name(self, full_name: _FullName) -> str:
        """The shortest name that finds the table again."""
        if full_name.catalog != self.address.catalog:
            return str(full_name)
        return full_name.table if full_name.schema == self.address.schema else f"{full_name.schema}.{full_name.table}"

    def _url(self, full_name: _FullName) -> str:
        return f"{self._schema_url(full_name)}/tables/{quote(full_name.table, safe='')}"

    def _schema_url(self, full_name: _FullName) -> str:
        return self.address.schema_path(full_name.catalog, full_name.schema)

    def _load_known(self, table_id: str, *, tries: int = TRIES) -> _CurrentTable:
        """The table as the server describes it now, also after a rename. Raises `TableNotFoundError`."""
        seen = self._seen.get(table_id)
        if seen is not None:
            loaded = self._calls.call("GET", self._url(seen.name), LoadedTable, tries=tries)
            if isinstance(loaded, LoadedTable) and loaded.metadata.table_uuid == table_id:
                return self._remember(seen.name, loaded)
            if isinstance(loaded, Refusal) and not loaded.is_gone:
                raise self._calls.refused(f"load {seen.name}", loaded)
            self._seen.pop(table_id, None)
        return self._search(table_id, lambda listed: listed.table_id == table_id)

    def _remember(self, full_name: _FullName, loaded: LoadedTable, *, must_exist: bool = True) -> _CurrentTable:
        if loaded.metadata.properties.get(_MANAGED_PROPERTY) != "supported":
            raise UnsupportedFeatureError(
                f"{full_name} at {self.address.server} is not a {CATALOG_MANAGED.name} table; read it by its path",
                features=(),
            )
        outside = next((commit.file_name for commit in loaded.commits or () if "/" in commit.file_name), None)
        if outside is not None:
            raise InvalidRequestError(
                f"{self.address.server} lists the commit file {outside!r} of {full_name}; expected a file name in "
                f"the table's staging folder"
            )
        table_id, location = loaded.metadata.table_uuid, self._location(loaded.metadata.location, must_exist=must_exist)
        if len(self._seen) >= TABLES_KEPT:
            self._seen.clear()
        self._seen[table_id] = _Table(table_id=table_id, location=location, name=full_name)
        return _CurrentTable(table_id=table_id, location=location, name=full_name, loaded=loaded)

    def _search(self, reference: str, is_it: Callable[[ListedTable], bool]) -> _CurrentTable:
        """Find a table of the schema by its id or path, in the list of all tables. The name may mean another table by
        the time it is loaded."""
        for listed in self._listed():
            if is_it(listed):
                full_name = self._full_name_of(listed)
                current = self._calls.call("GET", self._url(full_name), LoadedTable)
                if isinstance(current, LoadedTable) and listed.table_id in (None, current.metadata.table_uuid):
                    return self._remember(full_name, current)
        raise TableNotFoundError(
            f"{self.address.server} has no table {reference!r} in {self.address.catalog}.{self.address.schema}",
            reference=reference,
        )

    def _listed(self) -> Iterator[ListedTable]:
        """The tables of the schema, page by page."""
        query = {"catalog_name": self.address.catalog, "schema_name": self.address.schema, "max_results": str(PAGE)}
        token: str | None = None
        pages: set[str | None] = set()
        while token not in pages:
            pages.add(token)
            given = query if token is None else {**query, "page_token": token}
            page = self._calls.call("GET", f"{self.address.path}{CATALOG_BASE}/tables?{urlencode(given)}", TablePage)
            if isinstance(page, Refusal):
                raise self._calls.not_found(page, f"{self.address.catalog}.{self.address.schema}")
            yield from page.tables
            if not page.next_page_token:
                return
            token = page.next_page_token

    def _full_name_of(self, listed: ListedTable) -> _FullName:
        return _FullName(catalog=self.address.catalog, schema=self.address.schema, table=listed.name)

    def _location(self, url: str, *, must_exist: bool) -> Path:
        path = path_of(url)
        if path is None:
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

    def _log(self, current: _Table) -> LogStore:
        return LogStore(current.location, self._environment)

    def _resolved(self, current: _CurrentTable) -> commit_owner.ResolvedTable:
        return commit_owner.ResolvedTable(
            table_id=current.table_id,
            name=self._name(current.name),
            location=current.location,
            feature_name=CATALOG_MANAGED.name,
            commit_mode=CommitMode.STAGED,
            state=commit_owner.TableState.ACTIVE,
            policy=current.policy,
            permissions=_PERMISSIONS,
            commits=CommitsAnswer(commits=_ratified(current, None, None), latest_ratified_version=current.latest),
        )

    def _summary(self, current: _CurrentTable) -> commit_owner.TableSummary:
        commits = current.commits
        return commit_owner.TableSummary(
            table_id=current.table_id,
            name=self._name(current.name),
            location=current.location,
            feature=CATALOG_MANAGED,
            commit_mode=CommitMode.STAGED,
            state=commit_owner.TableState.ACTIVE,
            policy=current.policy,
            latest=current.latest,
            backfilled=current.latest if not commits else commits[0].version - 1,
        )

    # Requests and their answers

    def _request(self, current: _Table, version: Version, proposal: StagedProposal) -> _Request | Rejected:
        """The request with the commit, and its changes to the metadata, so that a server need not read the log."""
        log = self._log(current)
        try:
            content = log.read_staged(_STAGING, proposal.file_name)
        except FileNotFoundError:
            return Rejected(
                reason=RejectionReason.STAGED_FILE_MISSING, detail=f"{proposal.file_name} is not in {log.folder}"
            )
        try:
            timestamp = documents.in_commit_timestamp(content)
            changes = documents.changes(
                content,
                lambda: self._load_known(current.table_id).loaded,
                partial(self._properties_in_log, current, version),
            )
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
        body = _update(current.table_id, (AddCommit(commit=commit), *changes))
        return _Request(version=version, file_name=proposal.file_name, content=content, body=body)

    def _properties_in_log(self, table: _Table, version: Version, loaded: LoadedTable) -> Mapping[str, str]:
        """The properties before this version; none if the log no longer has the commit that set them."""
        staged = {commit.version: f"{_STAGING}/{commit.file_name}" for commit in loaded.commits or ()}
        with contextlib.suppress(FileNotFoundError, CorruptLogError):
            for earlier in range(version - 1, -1, -1):
                content = self._log(table).read(staged.get(earlier) or log_path.commit(earlier))
                found = documents.configuration_in(content)
                if found is not None:
                    return found
        return {}

    def _own_commit(self, request: _Request) -> RatifiedCommit:
        """The ratified commit of this proposal."""
        timestamp = documents.in_commit_timestamp(request.content) or 0
        return _staged(request.version, request.file_name, timestamp, len(request.content), self._environment.now())

    def _unknown(self, table_id: str, request: _Request, attempt: AttemptId, cause: Exception) -> OutcomeUnknown:
        seen = self._seen.get(table_id)
        label = table_id if seen is None else seen.name
        return OutcomeUnknown(
            f"version {request.version} of {label} may or may not be attempt {attempt}: {cause}; "
            f"ask attempt_outcome before committing this work again",
            table_id=table_id,
            version=request.version,
            attempt=attempt,
        )


class _Undecided(Exception):  # noqa: N818 - never leaves this module
    """An answer that does not decide the outcome of an earlier send of the same request."""


def _ratified(current: _CurrentTable, start: Version | None, end: Version | None) -> tuple[RatifiedCommit, ...]:
    return tuple(
        _staged(
            commit.version, commit.file_name, commit.timestamp, commit.file_size, commit.file_modification_timestamp
        )
        for commit in current.commits
        if (start is None or commit.version >= start) and (end is None or commit.version <= end)
    )


def _staged(version: Version, file_name: str, timestamp: int, size: int, ratified_at: int) -> RatifiedCommit:
    return RatifiedCommit(
        version=version,
        attempt=documents.attempt_in(file_name),
        commit_mode=CommitMode.STAGED,
        in_commit_timestamp=timestamp,
        size=size,
        ratified_at=ratified_at,
        file_name=file_name,
    )


def _shows(answer: LoadedTable, table_id: str, request: _Request) -> bool:
    """Whether an answer agrees with a landed commit."""
    listed = next((commit for commit in answer.commits or () if commit.version == request.version), None)
    has_it = answer.latest_table_version is not None and answer.latest_table_version >= request.version
    return (
        answer.metadata.table_uuid == table_id and has_it and (listed is None or listed.file_name == request.file_name)
    )


def _winners(current: _CurrentTable, version: Version) -> tuple[RatifiedCommit, ...]:
    """The commits from `version` on; none if the server no longer stores `version`."""
    winners = _ratified(current, version, None)[:MAX_WINNERS]
    return winners if winners and winners[0].version == version else ()


def _update(table_id: str, updates: tuple[Update, ...]) -> bytes:
    return msgspec.json.encode(UpdateTable(requirements=(AssertTableUuid(uuid=table_id),), updates=updates))
