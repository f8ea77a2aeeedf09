"""A tiny, strict commit owner in memory.

Independent of `refimpl.owner`: it is written from `refimpl.commit_owner` alone, so that a client
which works with it does not merely fit our own owner. Files of the log are real, through `LogStore`.
`refimpl`'s client must not care which of the two it talks to; `UnreliableOwner` stands before either.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from refimpl import actions, log_path
from refimpl.actions import CommitInfo, Metadata, Protocol
from refimpl.commit_owner import (
    Backfilled,
    MaintenancePolicy,
    NameTaken,
    Registered,
    ResolvedTable,
    TableState,
    TableSummary,
)
from refimpl.commits import (
    COMMIT_MODE_OF,
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
)
from refimpl.environment import Environment
from refimpl.errors import CorruptLogError, LocationError, TableNotFoundError
from refimpl.log_path import Version
from refimpl.log_store import LogStore
from refimpl.table_feature import TABLE_FEATURES, CommitMode, TableFeature, inconsistencies, missing_provenance


@dataclass(kw_only=True)
class _Table:
    table_id: str
    name: str | None
    location: Path
    feature: TableFeature
    commit_mode: CommitMode
    state: TableState
    policy: MaintenancePolicy
    log: LogStore
    commits: dict[Version, RatifiedCommit] = field(default_factory=dict)
    contents: dict[Version, bytes] = field(default_factory=dict)
    attempts: dict[AttemptId, Version] = field(default_factory=dict)
    tombstones: set[AttemptId] = field(default_factory=set)
    latest: Version | None = None
    published: Version | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None


class InMemoryOwner:
    """Implements `CommitOwner` for one process."""

    def __init__(self, root: Path, environment: Environment | None = None, *, name: str = "in-memory") -> None:
        self.name = name
        self._root = root
        self._environment = environment or Environment()
        self._tables: list[_Table] = []
        self._lock = threading.RLock()

    # Tables

    def resolve(self, reference: str | Path) -> ResolvedTable:
        with self._lock:
            for table in reversed(self._tables):
                live = table.state in (TableState.ACTIVE, TableState.TAKING_OVER)
                if str(reference) in (table.table_id, str(table.location)) and table.state is not TableState.DROPPED:
                    return self._resolved(table)
                if live and table.name == reference:
                    return self._resolved(table)
        raise TableNotFoundError(f"no table {str(reference)!r}", reference=str(reference))

    def tables(self) -> Sequence[TableSummary]:
        with self._lock:
            live = [t for t in self._tables if t.state is TableState.ACTIVE]
            return [
                TableSummary(
                    table_id=t.table_id,
                    name=t.name,
                    location=t.location,
                    feature=t.feature,
                    commit_mode=t.commit_mode,
                    state=t.state,
                    policy=t.policy,
                )
                for t in sorted(live, key=lambda t: t.name or "")
            ]

    def set_policy(self, table_id: str, policy: MaintenancePolicy) -> None:
        with self._lock:
            self._by_id(table_id).policy = policy

    def stage_table(
        self,
        name: str,
        feature: TableFeature,
        *,
        commit_mode: CommitMode | None = None,
        location: Path | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> ResolvedTable:
        with self._lock:
            table_id = self._environment.new_id()
            place = location or self._root / table_id
            if place.exists() and any(place.iterdir()):
                raise LocationError(f"{place} is not empty", path=str(place))
            table = self._new_table(table_id, name, place, feature, commit_mode, TableState.STAGING, policy)
            table.log.create_folders(feature.staging_folder)
            return self._resolved(table)

    def register_table(self, table_id: str, proposal: DirectProposal) -> Registered | NameTaken | Outcome:
        with self._lock:
            return self._register(table_id, proposal)

    def _register(self, table_id: str, proposal: DirectProposal) -> Registered | NameTaken | Outcome:
        table = self._by_id(table_id)
        if proposal.attempt in table.attempts:
            return Registered(table=self._resolved(table), commit=table.commits[0])
        if proposal.attempt in table.tombstones:
            return _rejected(RejectionReason.ATTEMPT_RESOLVED)
        for other in self._tables:
            if other is not table and other.name == table.name and other.state is TableState.ACTIVE:
                return NameTaken(winner=self._resolved(other))
        if not table.log.published(0):
            return VersionGap(latest_ratified_version=None)
        if table.log.read(log_path.commit(0)) != proposal.content:
            return Conflict(latest_ratified_version=0)
        flaw = self._flaw(table, 0, proposal, proposal.content)
        if flaw is not None:
            return flaw
        table.state = TableState.ACTIVE
        commit = self._record(table, 0, proposal, proposal.content, published=True)
        return Registered(table=self._resolved(table), commit=commit)

    def drop_table(self, table_id: str) -> None:
        with self._lock:
            self._by_id(table_id).state = TableState.DROPPED

    # Commits

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        with self._lock:
            return self._commit(table_id, version, proposal)

    def _commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        table = self._by_id(table_id)
        if proposal.attempt in table.attempts:
            return Ratified(commit=self._seen(table, table.attempts[proposal.attempt]), replayed=True)
        if proposal.attempt in table.tombstones:
            return _rejected(RejectionReason.ATTEMPT_RESOLVED)
        if table.state is not TableState.ACTIVE:
            return _rejected(RejectionReason.NOT_ACTIVE)
        if table.latest is not None and version <= table.latest:
            return self._conflict(table, version)
        if version != self._next(table):
            return VersionGap(latest_ratified_version=table.latest)
        if COMMIT_MODE_OF[type(proposal)] is not table.commit_mode and not isinstance(proposal, StagedProposal):
            return _rejected(RejectionReason.COMMIT_MODE_NOT_ALLOWED)
        content = self._content(table, version, proposal)
        if isinstance(content, Rejected):
            return content
        flaw = self._flaw(table, version, proposal, content)
        if flaw is not None:
            return flaw
        backlog = version - (-1 if table.published is None else table.published) - 1
        if backlog >= table.policy.backlog_limit:
            return _rejected(RejectionReason.BACKLOG_FULL)
        direct = isinstance(proposal, DirectProposal)
        if direct:
            self._backfill(table, version - 1)
            if not table.log.put_if_absent(log_path.commit(version), content):
                return _rejected(RejectionReason.HALTED)
        commit = self._record(table, version, proposal, content, published=direct)
        every = table.policy.backfill_every
        if every is not None and (version + 1) % every == 0:
            self._backfill(table, version)
        return Ratified(commit=commit)

    def _conflict(self, table: _Table, version: Version) -> Conflict:
        assert table.latest is not None
        end = min(table.latest, version + MAX_WINNERS - 1)
        winners = tuple(self._seen(table, v) for v in range(version, end + 1) if v in table.commits)
        known = len(winners) == end + 1 - version
        return Conflict(latest_ratified_version=table.latest, winners=winners if known else ())

    def _content(self, table: _Table, version: Version, proposal: Proposal) -> bytes | Rejected:
        if not isinstance(proposal, StagedProposal):
            return proposal.content
        if proposal.file_name != log_path.staged_commit(version, proposal.attempt):
            return _rejected(RejectionReason.BAD_FILE_NAME)
        try:
            return table.log.read_staged(table.feature.staging_folder, proposal.file_name)
        except FileNotFoundError:
            return _rejected(RejectionReason.STAGED_FILE_MISSING)

    def _flaw(self, table: _Table, version: Version, proposal: Proposal, content: bytes) -> Rejected | None:
        try:
            found = actions.decode(content, source="proposal")
        except CorruptLogError as error:
            return _rejected(RejectionReason.MALFORMED_ACTIONS, str(error))
        info = found[0]
        if not isinstance(info, CommitInfo):
            return _rejected(RejectionReason.COMMIT_INFO_NOT_FIRST)
        previous = table.commits[table.latest].in_commit_timestamp if table.latest in table.commits else -1
        if info.in_commit_timestamp is None or info.in_commit_timestamp <= previous:
            return _rejected(RejectionReason.IN_COMMIT_TIMESTAMP, f"{info.in_commit_timestamp} after {previous}")
        if missing_provenance(table.feature, info):
            return _rejected(RejectionReason.TXN_ID_MISSING)
        protocol = next((a for a in found if isinstance(a, Protocol)), table.protocol)
        metadata = next((a for a in found if isinstance(a, Metadata)), table.metadata)
        if protocol is None or metadata is None or inconsistencies(protocol, metadata):
            return _rejected(RejectionReason.INCONSISTENT_TABLE)
        if not table.feature.enabled_in(protocol):
            return _rejected(RejectionReason.OWNERSHIP_CHANGE)
        return None

    def _record(
        self, table: _Table, version: Version, proposal: Proposal, content: bytes, *, published: bool
    ) -> RatifiedCommit:
        found = actions.decode(content, source="proposal")
        info = found[0]
        assert isinstance(info, CommitInfo)
        commit = RatifiedCommit(
            version=version,
            attempt=proposal.attempt,
            commit_mode=COMMIT_MODE_OF[type(proposal)],
            in_commit_timestamp=info.in_commit_timestamp or 0,
            size=len(content),
            ratified_at=self._environment.now(),
            file_name=proposal.file_name if isinstance(proposal, StagedProposal) else None,
            content=None if published or isinstance(proposal, StagedProposal) else content,
        )
        table.commits[version], table.contents[version] = commit, content
        table.attempts[proposal.attempt] = version
        table.latest = version
        if published:
            table.published = version
        table.protocol = next((a for a in found if isinstance(a, Protocol)), table.protocol)
        table.metadata = next((a for a in found if isinstance(a, Metadata)), table.metadata)
        return commit

    def turn(self, table_id: str) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(False)

    def attempt_outcome(self, table_id: str, attempt: AttemptId) -> AttemptOutcome:
        with self._lock:
            table = self._by_id(table_id)
            if attempt in table.attempts:
                return Landed(commit=self._seen(table, table.attempts[attempt]))
            table.tombstones.add(attempt)
            return NotLanded()

    def get_commits(self, table_id: str, start: Version | None = None, end: Version | None = None) -> CommitsAnswer:
        with self._lock:
            table = self._by_id(table_id)
            if table.state is TableState.DROPPED:
                raise TableNotFoundError(f"{table_id} was dropped", reference=table_id)
            return self._answer(table, start, end)

    def _answer(self, table: _Table, start: Version | None, end: Version | None) -> CommitsAnswer:
        first = max(start or 0, 0 if table.published is None else table.published + 1)
        last = min(self._next(table) - 1, self._next(table) if end is None else end)
        listed = tuple(table.commits[v] for v in range(first, last + 1))
        return CommitsAnswer(commits=listed, latest_ratified_version=table.latest)

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> Backfilled:
        with self._lock:
            table = self._by_id(table_id)
            before = table.published
            self._backfill(table, self._next(table) - 1 if version is None else version)
            done = (table.published if table.published is not None else -1) - (before if before is not None else -1)
            return Backfilled(through=table.published, published=done)

    def _backfill(self, table: _Table, through: Version) -> None:
        start = 0 if table.published is None else table.published + 1
        for version in range(start, min(through, self._next(table) - 1) + 1):
            table.log.publish(version, table.contents[version])
            table.published = version

    # Ownership

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
    ) -> Outcome:
        with self._lock:
            return self._take_over(location, name, feature, version, proposal, commit_mode, policy)

    def _take_over(
        self,
        location: Path,
        name: str,
        feature: TableFeature,
        version: Version,
        proposal: DirectProposal,
        commit_mode: CommitMode | None,
        policy: MaintenancePolicy | None,
    ) -> Outcome:
        for table in self._tables:
            if proposal.attempt in table.attempts:
                return Ratified(commit=self._seen(table, version), replayed=True)
        changes = actions.decode(proposal.content, source="the change of owner")
        metadata = next((action for action in changes if isinstance(action, Metadata)), None)
        stamped_id = metadata and metadata.configuration.get(feature.table_id_property or "")
        table = self._new_table(
            stamped_id or self._environment.new_id(),
            name,
            location,
            feature,
            commit_mode,
            TableState.TAKING_OVER,
            policy,
        )
        flaw = self._flaw(table, version, proposal, proposal.content)
        taken = flaw is None and not table.log.put_if_absent(log_path.commit(version), proposal.content)
        if flaw is not None or taken:
            self._tables.remove(table)
            return flaw or Conflict(latest_ratified_version=version)
        table.state, table.published = TableState.ACTIVE, version
        table.log.create_folders(feature.staging_folder)
        return Ratified(commit=self._record(table, version, proposal, proposal.content, published=True))

    def hand_back(self, table_id: str, version: Version, proposal: DirectProposal) -> Outcome:
        with self._lock:
            return self._hand_back(table_id, version, proposal)

    def _hand_back(self, table_id: str, version: Version, proposal: DirectProposal) -> Outcome:
        table = self._by_id(table_id)
        if proposal.attempt in table.attempts:
            return Ratified(commit=self._seen(table, version), replayed=True)
        if not table.policy.hand_back:
            return _rejected(RejectionReason.OWNER_REFUSES)
        if table.latest is not None and version <= table.latest:
            return self._conflict(table, version)
        self._backfill(table, version - 1)
        if not table.log.put_if_absent(log_path.commit(version), proposal.content):
            return _rejected(RejectionReason.HALTED)
        table.state = TableState.HANDED_BACK
        return Ratified(commit=self._record(table, version, proposal, proposal.content, published=True))

    # Helpers

    def _new_table(
        self,
        table_id: str,
        name: str,
        location: Path,
        feature: TableFeature,
        commit_mode: CommitMode | None,
        state: TableState,
        policy: MaintenancePolicy | None,
    ) -> _Table:
        assert feature.name in TABLE_FEATURES
        table = _Table(
            table_id=table_id,
            name=name,
            location=location,
            feature=feature,
            commit_mode=commit_mode or CommitMode.STAGED,
            state=state,
            policy=policy or MaintenancePolicy(),
            log=LogStore(location, self._environment),
        )
        self._tables.append(table)
        return table

    def _seen(self, table: _Table, version: Version) -> RatifiedCommit:
        commit = table.commits[version]
        if table.published is not None and version <= table.published:
            return msgspec.structs.replace(commit, file_name=None, content=None)
        return commit

    def _next(self, table: _Table) -> Version:
        return 0 if table.latest is None else table.latest + 1

    def _by_id(self, table_id: str) -> _Table:
        for table in self._tables:
            if table.table_id == table_id:
                return table
        raise TableNotFoundError(f"no table {table_id}", reference=table_id)

    def _resolved(self, table: _Table) -> ResolvedTable:
        return ResolvedTable(
            table_id=table.table_id,
            name=table.name,
            location=table.location,
            feature_name=table.feature.name,
            commit_mode=table.commit_mode,
            state=table.state,
            policy=table.policy,
            commits=self._answer(table, None, None),
        )


def _rejected(reason: RejectionReason, detail: str = "") -> Rejected:
    return Rejected(reason=reason, detail=detail or reason.value)
