"""The kit's owner for the reference's client: implements the protocol `CommitOwner` over the shared interface.

A request without an answer raises `OutcomeUnknown` if it may have changed something. A request that only reads is sent
again, as the client side of any owner does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from conformance.adapters.log_folder import content_of
from conformance.adapters.reference import translation
from conformance.interface import messages as m
from conformance.interface.messages import name_of
from conformance.models.groups import group_of
from refimpl.protocol import actions, commits, errors
from refimpl.protocol.actions import CommitInfo
from refimpl.protocol.commit_owner import (
    Backfilled,
    Maintenance,
    MaintenancePolicy,
    ResolvedTable,
    TableState,
    TableSummary,
)
from refimpl.protocol.groups import GroupRatified, GroupRefused, Member
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import TABLE_FEATURES, CommitMode, TableFeature

Ask = Callable[[str, m.Request], m.Answer]

QUESTIONS: Final = 3
"""How often a request that only reads is sent before the owner counts as unavailable."""

_COMMIT_MODES: Final = {commit_mode.value: commit_mode for commit_mode in CommitMode}
_JOBS: Final = {job.value: job for job in Maintenance}

Expected = TypeVar("Expected")


class AskedOwner:
    """A `CommitOwner` behind `ask`, on behalf of one simulated client."""

    def __init__(self, ask: Ask, client: str, name: str) -> None:
        self._ask = ask
        self._client = client
        self.name = name
        """The owner's name in the properties of its tables."""
        self.conf: Mapping[str, str] = {}
        self.changed: Version | None = None
        """The version of the latest ownership change that was ratified."""

    # Finding

    def resolve(self, reference: str | Path) -> ResolvedTable:
        by_path = isinstance(reference, Path) or "/" in reference
        request = m.LoadTable(path=str(reference)) if by_path else m.LoadTable(name=str(reference))
        return self._resolved(self._question(request, m.Table), reference, by_path=by_path)

    def resolve_together(self, references: Sequence[str | Path]) -> tuple[ResolvedTable, ...]:
        """Of tables that are named."""
        tables = self._question(m.LoadTables(names=tuple(map(str, references))), m.Tables).tables
        return tuple(self._resolved(table, name, by_path=False) for table, name in zip(tables, references, strict=True))

    def _resolved(self, table: m.Table, reference: str | Path, *, by_path: bool) -> ResolvedTable:
        if table.location is None:
            raise errors.InvalidRequestError(
                f"the owner does not return the location of {reference}; a client needs it"
            )
        feature, commit_mode = TABLE_FEATURES.get(table.feature), _COMMIT_MODES.get(table.commit_mode)
        if feature is None or commit_mode is None:
            named = f"{table.feature!r} with {table.commit_mode!r} commits"
            raise errors.UnsupportedFeatureError(
                f"this client does not support {named} tables", features=(table.feature,)
            )
        return ResolvedTable(
            table_id=table.table,
            name=None if by_path else str(reference),
            location=Path(table.location),
            feature_name=table.feature,
            commit_mode=commit_mode,
            state=TableState.ACTIVE,
            policy=self._policy(table.table),
            commits=commits.CommitsAnswer(
                commits=_stored(table.commits or ()), latest_ratified_version=_version(table.latest)
            ),
        )

    def _policy(self, table_id: str) -> MaintenancePolicy:
        """catalog-managed, "Maintenance Operations": if the owner does not answer, only the jobs that are always
        allowed."""
        answer = self._answer(m.MaintenancePolicy(table=table_id))
        if not isinstance(answer, m.Policy):
            return MaintenancePolicy()
        return MaintenancePolicy(allowed=frozenset(_JOBS[job] for job in answer.allowed if job in _JOBS))

    def tables(self) -> Sequence[TableSummary]:
        raise errors.InvalidRequestError("the shared interface has no list of all tables")

    # Creating and dropping

    def stage_table(self, *_: Any, **__: Any) -> NoReturn:
        raise errors.InvalidRequestError("the shared interface makes a table in one step: `create_table`")

    register_table = stage_table

    def create(self, request: m.CreateTable) -> m.Ratified | m.Conflict:
        """Create a table in one step. Raises `OutcomeUnknown`; the caller may then send the request again."""
        answer = self._once(request, version=0, attempt=request.attempt)
        if isinstance(answer, (m.Ratified, m.Conflict)):
            return answer
        raise _refusal(request, answer)

    def drop_table(self, table_id: str) -> None:
        self._expect(m.DropTable(table=table_id), m.Done)

    # Committing

    def commit(self, table_id: str, version: Version, proposal: commits.Proposal) -> commits.Outcome:
        return self._outcome(_request(table_id, version, proposal), proposal)

    def commit_group(self, members: Sequence[Member]) -> GroupRatified | GroupRefused:
        request = group_of([_request(member.table_id, member.version, member.proposal) for member in members])
        first = request.members[0]
        match answer := self._once(request, version=first.version, attempt=first.attempt):
            case m.GroupRatified():
                return GroupRatified(commits=())
            case m.GroupRefused(decided_by=index):
                outcome = self._said(answer.answer, request.members[index].version)
                return GroupRefused(decided_by=index, outcome=outcome, lost=answer.lost or (index,))
            case m.Rejected(retryable=True):  # the owner does not say in which table
                outcome = self._said(answer, first.version)
                return GroupRefused(decided_by=0, outcome=outcome, lost=tuple(range(len(members))))
            case _:
                raise _refusal(request, answer)

    def turn(self, table_id: str) -> AbstractContextManager[bool]:
        """Does not wait: the kit decides the order of the clients."""
        return nullcontext(False)

    def attempt_outcome(self, table_id: str, attempt: commits.AttemptId) -> commits.AttemptOutcome:
        answer = self._once(m.AttemptOutcome(table=table_id, attempt=attempt), attempt=attempt)
        match answer:
            case m.Landed(version=version):
                return commits.Landed(commit=_commit(version, attempt, CommitMode.STAGED))
            case m.NotLanded():
                return commits.NotLanded()
            case _:  # the owner resolves no attempts, so the outcome stays unknown
                raise errors.OutcomeUnknown(
                    f"the owner does not resolve {attempt}: it answered {_text_of(answer)}", attempt=attempt
                )

    def get_commits(
        self, table_id: str, start: Version | None = None, end: Version | None = None
    ) -> commits.CommitsAnswer:
        answer = self._question(m.GetCommits(table=table_id, start=start, end=end), m.Commits)
        return commits.CommitsAnswer(commits=_stored(answer.commits), latest_ratified_version=_version(answer.latest))

    def backfill_to_version(self, table_id: str, version: Version | None = None) -> Backfilled:
        target = self.get_commits(table_id).latest_ratified_version if version is None else version
        if target is not None:
            self._expect(m.BackfillToVersion(table=table_id, version=target), m.Done)
        return Backfilled(through=target, published=0)

    def report_published(self, table_id: str, through: Version) -> None:
        """Does nothing: the shared interface has no such report. An owner finds the published versions when it is asked
        to publish."""
        self.backfill_to_version(table_id, through)

    # Changing the owner

    def take_over(
        self,
        location: Path,
        name: str,
        feature: TableFeature,
        version: Version,
        proposal: commits.DirectProposal,
        *,
        commit_mode: CommitMode | None = None,
        policy: MaintenancePolicy | None = None,
    ) -> commits.Outcome:
        request = m.TakeOver(
            path=str(location),
            name=name,
            feature=feature.name,
            commit_mode=(commit_mode or CommitMode.STAGED).value,
            version=version,
            attempt=proposal.attempt,
            actions=translation.actions_of(proposal.content),
        )
        return self._change(request, proposal)

    def hand_back(self, table_id: str, version: Version, proposal: commits.DirectProposal) -> commits.Outcome:
        content = translation.actions_of(proposal.content)
        request = m.HandBack(table=table_id, version=version, attempt=proposal.attempt, actions=content)
        return self._change(request, proposal)

    def _change(self, request: m.TakeOver | m.HandBack, proposal: commits.DirectProposal) -> commits.Outcome:
        answer = self._outcome(request, proposal)
        if isinstance(answer, commits.Ratified):
            self.changed = answer.commit.version
        return answer

    # Asking

    def _outcome(self, request: m.Commit | m.TakeOver | m.HandBack, proposal: commits.Proposal) -> commits.Outcome:
        answer = self._once(request, version=request.version, attempt=request.attempt)
        match answer:
            case m.Ratified(version=version):
                return commits.Ratified(
                    commit=_commit(version, request.attempt, commits.COMMIT_MODE_OF[type(proposal)])
                )
            case m.Conflict() | m.Gap() | m.Rejected():
                return self._said(answer, request.version)
            case _:
                raise _refusal(request, answer)

    def _said(
        self, answer: m.Conflict | m.Gap | m.Rejected, version: Version
    ) -> commits.Conflict | commits.VersionGap | commits.Rejected:
        """Why a proposal of the version is not ratified."""
        match answer:
            case m.Conflict(latest=latest):
                latest = max(version, version if latest is None else latest)
                return commits.Conflict(latest_ratified_version=latest, winners=_stored(answer.winners or ()))
            case m.Gap(latest=latest):
                return commits.VersionGap(latest_ratified_version=_version(latest))
            case m.Rejected(reason=detail, retryable=retryable):
                # The interface has one rejection after which the same proposal may succeed later: a full backlog.
                reason = commits.RejectionReason.BACKLOG_FULL if retryable else commits.RejectionReason.OWNER_REFUSES
                return commits.Rejected(reason=reason, detail=detail)

    def _once(self, request: m.Request, *, attempt: commits.AttemptId, version: Version | None = None) -> m.Answer:
        """Send the request once. Raises `OutcomeUnknown` if no answer comes: it may have been executed."""
        answer = self._ask(self._client, request)
        if isinstance(answer, m.Unknown):
            raise errors.OutcomeUnknown(
                f"no answer to {name_of(request)}: {answer.reason}; ask attempt_outcome about {attempt}",
                table_id=getattr(request, "table", None),
                version=version,
                attempt=attempt,
            )
        return answer

    def _expect(self, request: m.Request, kind: type[Expected]) -> Expected:
        """The answer to a request that commits no version, and that its sender may send again."""
        answer = self._ask(self._client, request)
        if isinstance(answer, m.Unknown):
            raise errors.OwnerUnavailableError(f"no answer to {name_of(request)}: {answer.reason}; ask again")
        if not isinstance(answer, kind):
            raise _refusal(request, answer)
        return answer

    def _question(self, request: m.Request, kind: type[Expected]) -> Expected:
        answer = self._answer(request)
        if isinstance(answer, m.Unknown):
            raise errors.OwnerUnavailableError(
                f"no answer to {name_of(request)}, {QUESTIONS} times: {answer.reason}; try again"
            )
        if not isinstance(answer, kind):
            raise _refusal(request, answer)
        return answer

    def _answer(self, request: m.Request) -> m.Answer:
        for _ in range(QUESTIONS):
            answer = self._ask(self._client, request)
            if not isinstance(answer, m.Unknown):
                break
        return answer


def _request(table_id: str, version: Version, proposal: commits.Proposal) -> m.Commit:
    if isinstance(proposal, commits.StagedProposal):
        return m.Commit(table=table_id, version=version, attempt=proposal.attempt, staged_file=proposal.file_name)
    content = translation.actions_of(proposal.content)
    return m.Commit(table=table_id, version=version, attempt=proposal.attempt, actions=content)


def _refusal(request: m.Request, answer: m.Answer) -> errors.DeltaError:
    """The error for an answer that is not a success."""
    match answer:
        case m.NotFound():
            return errors.TableNotFoundError(f"no such table: the owner's {name_of(request)} found none")
        case m.Rejected(retryable=True, reason=reason):
            return errors.OwnerUnavailableError(f"the owner rejects {name_of(request)} for now: {reason}")
        case m.Rejected() | m.Unsupported():
            return errors.InvalidRequestError(f"the owner rejects {name_of(request)}: {answer.reason}")
        case _:
            return errors.CorruptionError(f"invalid answer to {name_of(request)}: {_text_of(answer)}")


def _text_of(answer: m.Answer) -> str:
    return f"`{answer.__struct_config__.tag}`"


def _version(latest: Version | None) -> Version | None:
    """managed-commits, "Getting Un-backfilled Commits": -1 means that there is no version."""
    return None if latest is None or latest < 0 else latest


def _stored(listed: Iterable[m.CommitEntry]) -> tuple[commits.RatifiedCommit, ...]:
    return tuple(_of_entry(entry) for entry in sorted(listed, key=lambda entry: entry.version))


def _of_entry(entry: m.CommitEntry) -> commits.RatifiedCommit:
    content = None if entry.actions is None else content_of(entry.actions)
    commit_mode = CommitMode.STAGED if content is None else CommitMode.INLINE
    time = _time_in(content, entry.version) if entry.in_commit_timestamp is None else entry.in_commit_timestamp
    return _commit(entry.version, "", commit_mode, file_name=entry.file_name, content=content, time=time)


def _time_in(content: bytes | None, version: Version) -> int:
    """The in-commit timestamp; 0 if the entry does not hold it. Readers use the entry's time only for commits before
    in-commit timestamps were enabled, and no owner stores such commits."""
    if content is None:
        return 0
    try:
        first = next(iter(actions.decode(content, source=f"the inline commit of version {version}")), None)
    except errors.CorruptLogError:  # the reader of the commit reports the error
        return 0
    return (first.in_commit_timestamp or 0) if isinstance(first, CommitInfo) else 0


def _commit(
    version: Version,
    attempt: commits.AttemptId,
    commit_mode: CommitMode,
    *,
    file_name: str | None = None,
    content: bytes | None = None,
    time: int = 0,
) -> commits.RatifiedCommit:
    return commits.RatifiedCommit(
        version=version,
        attempt=attempt,
        commit_mode=commit_mode,
        in_commit_timestamp=time,
        size=len(content or b""),
        ratified_at=0,
        file_name=file_name,
        content=content,
    )
