"""Transactions over several tables: a *group* of proposals, its *members*, one per table. All are ratified, or none.

managed-commits names such transactions as a reason for a commit owner. The form is that of a draft, delta-io/delta
issues 7437 and 7438 (table feature `multiTableTransaction`). Its action `transactionGroup` is not written: no released
protocol has the feature.

A group never lands in part. So an owner that resolves one member as not landed has resolved the group, and the outcome
of any member is the outcome of all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, TypeGuard

import msgspec

from refimpl.protocol.commit_owner import CommitOwner, ResolvedTable
from refimpl.protocol.commits import Conflict, Proposal, RatifiedCommit, Rejected, VersionGap
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.log_path import Version

MAX_MEMBERS: Final = 100
"""The most members of a group: the owner's lock is held while all of them are judged and recorded."""


class Member(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One table's part of a group. A direct proposal is rejected: its commit point is a file of its own, so it cannot
    wait for the other members."""

    table_id: str
    version: Version
    proposal: Proposal


class GroupRatified(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Every member is the version that it proposed."""

    commits: tuple[RatifiedCommit, ...]
    """In the order of the members."""
    replayed: bool = False
    """Whether these attempts had landed before this request."""


class GroupRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """No member was ratified, and nothing was changed."""

    decided_by: int
    """The index of the first member that cannot be ratified."""
    outcome: Conflict | VersionGap | Rejected
    """Its outcome. `RejectionReason.ATTEMPT_REUSED`: its attempt landed before, without the whole group."""
    lost: tuple[int, ...]
    """The indices of all members that could not have been ratified, ascending; `decided_by` is the first."""


def check_members(members: Sequence[Member]) -> None:
    """Raises `InvalidRequestError` for a number of members out of range, and for two of one table."""
    if not members:
        raise InvalidRequestError("a group without members; expected one proposal for each table")
    if len(members) > MAX_MEMBERS:
        raise InvalidRequestError(
            f"a group of {len(members)} members; expected at most {MAX_MEMBERS}: commit in several groups",
            limit=MAX_MEMBERS,
        )
    first: dict[str, int] = {}
    for index, member in enumerate(members):
        if first.setdefault(member.table_id, index) != index:
            raise InvalidRequestError(
                f"members {first[member.table_id]} and {index} of the group are of one table, {member.table_id}; "
                f"expected one member for each table: put their actions into one commit",
                member=index,
            )


def check_readable(references: Sequence[object]) -> None:
    """Raises `InvalidRequestError` for more tables than are read in one state."""
    if len(references) > MAX_MEMBERS:
        raise InvalidRequestError(
            f"{len(references)} tables to read in one state; expected at most {MAX_MEMBERS}", limit=MAX_MEMBERS
        )


class GroupOwner(CommitOwner, Protocol):
    """A commit owner that ratifies groups. All methods are safe to call from several processes."""

    def commit_group(self, members: Sequence[Member]) -> GroupRatified | GroupRefused:
        """Ratify all members at once, or none. Always returns `GroupRatified` for a group that landed.

        Raises `InvalidRequestError` for a group without members, with more than `MAX_MEMBERS`, or with two of one
        table; `TableNotFoundError` (fact `member`: its index) for a table that this owner does not have;
        `OutcomeUnknown`: `attempt_outcome` of any member decides for all.
        """
        ...

    def resolve_together(self, references: Sequence[str | Path]) -> tuple[ResolvedTable, ...]:
        """`resolve` for several tables in one state of the owner: of each group it shows all members or none.

        Raises the errors of `resolve`; `InvalidRequestError` for more than `MAX_MEMBERS` tables.
        """
        ...


def commits_groups(owner: CommitOwner) -> TypeGuard[GroupOwner]:
    """Whether the owner has the methods of a `GroupOwner`."""
    return callable(getattr(owner, "commit_group", None)) and callable(getattr(owner, "resolve_together", None))
