"""The rules for groups, as pure functions. `owner.decide` judges each member; these judge the verdicts.

1. the group: `check_members` of the protocol;
2. each message: all rules of a proposal alone, no direct commits, one table feature for all;
3. a group of which every attempt landed gets the same answer again;
4. an attempt that landed without the others is rejected;
5. one member that cannot be ratified stops all.
"""

from collections.abc import Sequence

from refimpl.owner import decide
from refimpl.owner.records import TableRecord
from refimpl.protocol import log_path
from refimpl.protocol.commits import DirectProposal, Outcome, Ratified, Rejected, RejectionReason
from refimpl.protocol.groups import GroupRatified, GroupRefused, Member

Verdict = decide.Ratify | Outcome


def message_flaws(members: Sequence[Member], tables: Sequence[TableRecord]) -> list[Rejected | None]:
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


def decide_group(verdicts: Sequence[Verdict], labels: Sequence[str]) -> GroupRatified | GroupRefused | None:
    """Rules 3 to 5: the outcome of a group; None: ratify all members. `labels`: the tables, for messages."""
    landed = [verdict.commit for verdict in verdicts if isinstance(verdict, Ratified)]
    if len(landed) == len(verdicts):
        return GroupRatified(commits=tuple(landed), replayed=True)
    return refused(
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


def refused(verdicts: Sequence[Verdict | None]) -> GroupRefused | None:
    """The refusal by the first member that cannot be ratified; None: no member stops the group."""
    stops = [
        (index, verdict)
        for index, verdict in enumerate(verdicts)
        if verdict is not None and not isinstance(verdict, decide.Ratify | Ratified)
    ]
    if not stops:
        return None
    return GroupRefused(decided_by=stops[0][0], outcome=stops[0][1], lost=tuple(index for index, _ in stops))
