"""The owner's side of groups: all members in one transaction of the ledger.

Order: every staged file is durable before the request (its writer's duty), and is read before the lock; under the
lock, one transaction judges all members and records all or none. Its end is the commit point of the group, with one
sync. After it each table is published in its own order, under its own publishing lock, so a crash between two tables
leaves a backlog and no half group.

A group cannot deadlock with another one: it takes one lock, the owner's, once. It waits for it in the queue of the
process's proposals, as each of them does.

`owner.decide` judges each member. The rules for the group, pure functions at the end of this file, judge the verdicts:

1. the group: `check_members` of the protocol;
2. each message: all rules of a proposal alone, no direct commits, one table feature for all;
3. a group of which every attempt landed gets the same answer again;
4. an attempt that landed without the others is rejected;
5. one member that cannot be ratified stops all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec

from refimpl.catalog.owner import GroupPreconditionFailed, PreconditionFailed, TableDescription, UpdatePreconditions
from refimpl.owner import decide
from refimpl.owner.local import Decision
from refimpl.owner.records import Examined, TableRecord
from refimpl.owner.statements import View, Writer
from refimpl.owner.tables import commit_error, stored_commits
from refimpl.protocol import log_path
from refimpl.protocol.commit_owner import ResolvedTable
from refimpl.protocol.commits import (
    CommitsAnswer,
    DirectProposal,
    Outcome,
    Ratified,
    RatifiedCommit,
    Rejected,
    RejectionReason,
)
from refimpl.protocol.errors import OutcomeUnknown, OwnerUnavailableError, TableNotFoundError
from refimpl.protocol.groups import GroupRatified, GroupRefused, Member, check_members, check_readable
from refimpl.protocol.table_feature import CommitMode
from refimpl.served.catalog_requests import CatalogRequests, as_request
from refimpl.served.group import GroupCommit, Waiting

_MAX_READS: Final = 10
"""How often tables with direct commits are read again that change while they are read."""


Seen = TypeVar("Seen")
_Reading = Callable[[View, TableRecord, CommitsAnswer], Callable[[ResolvedTable], Seen]]
"""Reads more of a table in one read state; the result takes the table as its clients see it."""


@dataclass(slots=True, eq=False)
class _WaitingGroup(Waiting):
    """A group in the queue of proposals; `cached` and `examined` are its first member's."""

    others: tuple[Examined, ...] = ()
    tables: Sequence[TableRecord] = ()
    outcome: GroupRatified | GroupRefused | None = None
    ratified: list[TableRecord] = field(default_factory=list)
    """The tables before the group landed; empty if it did not land now."""


class TableGroups(CatalogRequests, GroupCommit):
    """An owner that ratifies groups: a `GroupOwner`."""

    def commit_group(self, members: Sequence[Member]) -> GroupRatified | GroupRefused:
        return self.propose_group(members, lambda _, examined: examined)

    def commit_group_if(
        self, members: Sequence[Member], preconditions: Sequence[UpdatePreconditions]
    ) -> GroupRatified | GroupRefused | GroupPreconditionFailed:
        outcome = self.propose_group(members, lambda index, examined: as_request(preconditions[index], examined))
        if isinstance(outcome, GroupRefused):
            # Only this request can get it: no other proposal has preconditions. Not a part of the client's protocol.
            failed = cast(object, outcome.outcome)
            if isinstance(failed, PreconditionFailed):
                return GroupPreconditionFailed(decided_by=outcome.decided_by, failed=failed)
        return outcome

    def propose_group(
        self, members: Sequence[Member], as_request: Callable[[int, Examined], Examined]
    ) -> GroupRatified | GroupRefused:
        """`as_request`: adds to a member, by its index, what a package around the core needs to judge it."""
        check_members(members)
        tables = [self._table_of(index, member) for index, member in enumerate(members)]
        refused = _refused(_message_flaws(members, tables))
        if refused is not None:
            return refused
        first = members[0]
        try:
            proposals = enumerate(zip(tables, members, strict=True))
            examined = [as_request(i, self.examine(t, m.version, m.proposal)) for i, (t, m) in proposals]
            group = _WaitingGroup(tables[0], examined[0], alone=True, others=tuple(examined[1:]), tables=tables)
            self.groups.decide(group)
        except (OSError, OutcomeUnknown, OwnerUnavailableError) as error:
            doing = f"commit to {', '.join(table.label for table in tables)} together"
            raise commit_error(error, doing, first.table_id, first.version, first.proposal.attempt) from error
        for table in group.ratified:
            self.backfill_if_due(table)
        assert group.outcome is not None
        return group.outcome

    def _table_of(self, index: int, member: Member) -> TableRecord:
        try:
            return self.cached_record(member.table_id)
        except TableNotFoundError as error:
            raise TableNotFoundError(
                f"member {index} of the group: {error}; every table of a group must be of this owner",
                table_id=member.table_id,
                member=index,
            ) from error

    def decide_waiting(self, waiting: Waiting) -> Decision:
        if not isinstance(waiting, _WaitingGroup):
            return super().decide_waiting(waiting)
        for table in waiting.tables:  # what an interrupted call left is settled in transactions of its own
            with self.ledger.read() as view:
                unsettled = self.required(view, table.table_id).promised
            if unsettled:
                with self.changing(table.table_id):
                    pass
        with self.ledger.write() as writer:
            outcome, ratified = self._decide_whole(writer, waiting)
        waiting.outcome, waiting.ratified = outcome, ratified  # after the transaction: it is durable now
        return Decision(
            outcome=outcome.outcome if isinstance(outcome, GroupRefused) else Ratified(commit=outcome.commits[0])
        )

    def _decide_whole(
        self, writer: Writer, group: _WaitingGroup
    ) -> tuple[GroupRatified | GroupRefused, list[TableRecord]]:
        tables = [self.required(writer, table.table_id) for table in group.tables]
        proposals = zip(tables, (group.examined, *group.others), strict=True)
        verdicts = [self.judge(writer, table, examined) for table, examined in proposals]
        outcome = _decide_group(verdicts, [table.label for table in tables])
        if outcome is not None:
            return outcome, []
        commits: list[RatifiedCommit] = []
        for table, verdict in zip(tables, verdicts, strict=True):
            assert isinstance(verdict, decide.Ratify)
            landed = self.ratify(writer, table, verdict).outcome
            assert isinstance(landed, Ratified)
            commits.append(landed.commit)
        return GroupRatified(commits=tuple(commits)), tables

    def resolve_together(self, references: Sequence[str | Path]) -> tuple[ResolvedTable, ...]:
        return self._together(references, lambda _view, _table, _answer: lambda resolved: resolved)

    def describe_together(self, references: Sequence[str | Path]) -> Sequence[TableDescription]:
        return self._together(references, self.describing)

    def _together(self, references: Sequence[str | Path], read: _Reading[Seen]) -> tuple[Seen, ...]:
        check_readable(references)
        for reference in references:  # ends an interrupted take-over, and adopts an announced table
            self.resolve(reference)
        for _ in range(_MAX_READS):
            seen = self._together_once(references, read)
            if seen is not None:
                return seen
        raise OwnerUnavailableError(
            f"{len(references)} tables changed during {_MAX_READS} reads, at least one by direct commits; read again"
        )

    def _together_once(self, references: Sequence[str | Path], read: _Reading[Seen]) -> tuple[Seen, ...] | None:
        """The state of one read transaction, or None to read again.

        `resolved` also asks the logs, which may show a member of a group that landed after that transaction. A table
        whose record moved meanwhile is answered as it was read; its newer files were not visible before. That holds
        unless a commit of it can be visible before it is recorded.
        """
        with self.ledger.read() as view:
            tables = [self.find(view, reference) for reference in references]
            stored = [stored_commits(view, table, None, None) for table in tables]
            finish = [read(view, table, answer) for table, answer in zip(tables, stored, strict=True)]
        answers = [self.resolved(table, answer) for table, answer in zip(tables, stored, strict=True)]
        with self.ledger.read() as view:
            moved = [self.required(view, table.table_id).latest != table.latest for table in tables]
        for index, table in enumerate(tables):
            if moved[index] and (table.promised or table.commit_mode is CommitMode.DIRECT):
                return None
            if moved[index]:
                answers[index] = msgspec.structs.replace(answers[index], commits=stored[index])
        return tuple(finished(answer) for finished, answer in zip(finish, answers, strict=True))


_Verdict = decide.Ratify | Outcome


def _message_flaws(members: Sequence[Member], tables: Sequence[TableRecord]) -> list[Rejected | None]:
    """Rule 2: what is wrong with each message itself. `tables`: of the members, in their order."""
    return [
        decide.message_flaw(log_path.checked(member.version), member.proposal) or _kind_flaw(member, table, tables[0])
        for member, table in zip(members, tables, strict=True)
    ]


def _kind_flaw(member: Member, table: TableRecord, first: TableRecord) -> Rejected | None:
    if isinstance(member.proposal, DirectProposal):
        return Rejected(
            reason=RejectionReason.COMMIT_MODE_NOT_ALLOWED,
            detail=f"a direct commit of {table.label} is visible at once and cannot wait for the other members of its "
            f"group; only staged and inline commits can be in one",
        )
    if table.feature is not first.feature:
        return Rejected(
            reason=RejectionReason.OWNER_REFUSES,
            detail=f"{table.label} is a {table.feature.name} table, but {first.label} of the same group is a "
            f"{first.feature.name} table, and their readers differ in what they see; expected one table feature",
        )
    return None


def _decide_group(verdicts: Sequence[_Verdict], labels: Sequence[str]) -> GroupRatified | GroupRefused | None:
    """Rules 3 to 5: the outcome of a group; None: ratify all members. `labels`: the tables, for messages."""
    landed = [verdict.commit for verdict in verdicts if isinstance(verdict, Ratified)]
    if len(landed) == len(verdicts):
        return GroupRatified(commits=tuple(landed), replayed=True)
    return _refused(
        [
            _landed_alone(verdict, label) if isinstance(verdict, Ratified) else verdict
            for verdict, label in zip(verdicts, labels, strict=True)
        ]
    )


def _landed_alone(verdict: Ratified, label: str) -> Rejected:
    commit = verdict.commit
    return Rejected(
        reason=RejectionReason.ATTEMPT_REUSED,
        detail=f"attempt {commit.attempt} is version {commit.version} of {label} already, and other members of this "
        f"group have not landed; every try of a group needs new attempt ids",
    )


def _refused(verdicts: Sequence[_Verdict | None]) -> GroupRefused | None:
    """The refusal by the first member that cannot be ratified; None: no member stops the group."""
    stops = [
        (index, verdict)
        for index, verdict in enumerate(verdicts)
        if verdict is not None and not isinstance(verdict, decide.Ratify | Ratified)
    ]
    if not stops:
        return None
    return GroupRefused(decided_by=stops[0][0], outcome=stops[0][1], lost=tuple(index for index, _ in stops))
