"""Groups: proposals of several tables, of which all are ratified or none (PROFILES.md#transaction-group).

The worlds of the tables are independent, except that a group lands in all of its tables at the same moment. So an
answer about several tables is judged in each combination of their worlds in which no group landed in part.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Final, NamedTuple, TypeVar

from conformance.interface import messages as m
from conformance.oracle import owner
from conformance.oracle.owner import Contract, Facts, State, World, Worlds, Wrong

ATOMIC: Final = "PROFILE-GROUP-01"
NAMED: Final = "PROFILE-GROUP-02"
ONE_STATE: Final = "PROFILE-GROUP-03"
REPLAYED: Final = "PROFILE-GROUP-04"
PROGRESS: Final = "PROFILE-GROUP-05"
READ_TOGETHER: Final = "PROFILE-GROUP-07"
"""Of clients."""
MOST: Final = 4096
"""With more combinations an answer is not judged."""

T = TypeVar("T")
Link = Mapping[int, m.AttemptId]
"""The attempts of a group that can only land together, by the number of their table."""
Together = tuple[World, ...]
"""One possible state of several tables."""


class WrongMember(NamedTuple):
    """Why an answer is possible in no combination, and the number of the table that shows it."""

    table: int
    wrong: Wrong


def commits_of(request: m.CommitGroup) -> list[m.Commit]:
    """The members as the proposals that they are alone."""
    return [
        m.Commit(table=member.table, version=member.version, attempt=member.attempt, actions=member.actions,
                 staged_file=member.staged_file)
        for member in request.members
    ]  # fmt: skip


def parts_of(request: m.CommitGroup, answer: m.Answer, known: frozenset[m.AttemptId] = frozenset()) -> list[m.Answer]:
    """What the answer says about each member alone. `known`: attempts that may have landed before, of which the refusal
    of the group says nothing."""
    parts: list[m.Answer] = []
    for index, member in enumerate(request.members):
        match answer:
            case m.GroupRatified():
                parts.append(m.Ratified(version=member.version))
            case m.GroupRefused() | m.Rejected() | m.NotFound() | m.Unsupported() if member.attempt in known:
                parts.append(m.Unknown(reason="its group was refused"))
            case m.GroupRefused() if index == answer.decided_by:
                parts.append(answer.answer)
            case m.GroupRefused():
                parts.append(m.Rejected(reason=f"its group was refused for its member {answer.decided_by} (from 0)"))
            case _:
                parts.append(answer)
    return parts


def requests_of(request: m.TransactGroup | m.Snapshots) -> Sequence[m.Transact | m.Snapshot]:
    """A client's request about several tables, as the requests that it contains."""
    if isinstance(request, m.TransactGroup):
        return request.members
    return [m.Snapshot(table=table) for table in request.tables]


def answers_of(request: m.TransactGroup | m.Snapshots, answer: m.Answer) -> list[m.Answer] | None:
    """What a client's answer says about each table; None if it is about another number of tables."""
    parts: list[m.Answer]
    match answer:
        case m.GroupCommitted():
            parts = [m.Committed(version=version) for version in answer.versions]
        case m.SnapshotsRead():
            parts = list(answer.snapshots)
        case _:
            return [answer for _ in requests_of(request)]
    return parts if len(parts) == len(requests_of(request)) else None


def agree(worlds: Sequence[Worlds], links: Sequence[Link]) -> list[Worlds] | None:
    """The worlds of each table in which no group landed in part, or None."""
    settled = [owner.settled(possible) for possible in worlds]
    agreed: set[frozenset[tuple[int, bool]]] = {frozenset()}
    for table, possible in enumerate(settled):
        shown = {_landed(world, table, links) for world in possible}
        agreed = {
            before | more for before in agreed for more in shown
            if before.isdisjoint({(link, not landed) for link, landed in more})
        }  # fmt: skip
    if not agreed:
        return None
    return [
        frozenset(world for world in possible if any(_landed(world, table, links) <= whole for whole in agreed))
        for table, possible in enumerate(settled)
    ]


def _landed(world: World, table: int, links: Sequence[Link]) -> frozenset[tuple[int, bool]]:
    return frozenset(
        (number, world.landed(link[table]) is not None) for number, link in enumerate(links) if table in link
    )


def too_many(worlds: Sequence[Worlds]) -> bool:
    return prod(len(owner.settled(possible)) for possible in worlds) > MOST


def _combinations(worlds: Sequence[Worlds], links: Sequence[Link]) -> Iterator[Together]:
    """Those with the most commits first, because their errors are the most useful."""
    for combination in product(*(owner.most_first(owner.settled(possible)) for possible in worlds)):
        shown = [_landed(world, table, links) for table, world in enumerate(combination)]
        if all(len({landed for one in shown for number, landed in one if number == link}) < 2
               for link in range(len(links))):  # fmt: skip
            yield combination


def _apart(combinations: Sequence[Together], count: int) -> list[Worlds]:
    return [frozenset(combination[table] for combination in combinations) for table in range(count)]


def judge(
    worlds: Sequence[Worlds], links: Sequence[Link], contract: Contract, request: m.CommitGroup, answer: m.Answer,
    facts: Sequence[Facts], *, whole: bool,
) -> list[Worlds] | WrongMember:  # fmt: skip
    """The worlds of the members' tables after the answer. `whole`: no attempt was sent in any other group, or alone."""
    combinations = list(_combinations(worlds, links))
    if isinstance(answer, m.Unknown):
        possible = [*combinations, *_with_group(combinations, contract, request)]
        opened = [tuple(map(owner.opened, combination, commits_of(request))) for combination in possible]
        return _apart(opened, len(worlds))
    judged = [_rule(combination, contract, request, answer, facts, whole=whole) for combination in combinations]
    return _kept(judged, len(worlds))


def lost(worlds: Sequence[Worlds], links: Sequence[Link], contract: Contract, request: m.CommitGroup) -> list[Worlds]:
    """The group was processed, and its answer was lost."""
    combinations = list(_combinations(worlds, links))
    return _apart([*combinations, *_with_group(combinations, contract, request)], len(worlds))


def _with_group(combinations: Sequence[Together], contract: Contract, request: m.CommitGroup) -> Iterator[Together]:
    """The combinations after the group landed, where it can."""
    for combination in combinations:
        after = [
            world.with_next(member.version, member.attempt) if world.state is State.OWNED else None
            for world, member in zip(combination, request.members, strict=True)
        ]
        landed = tuple(world for world in after if world is not None)
        if len(landed) == len(after) and contract.commit_mode != "direct":
            yield landed


def _kept(judged: Sequence[Together | WrongMember], count: int) -> list[Worlds] | WrongMember:
    possible = [outcome for outcome in judged if not isinstance(outcome, WrongMember)]
    return _apart(possible, count) if possible else next(one for one in judged if isinstance(one, WrongMember))


def _rule(
    worlds: Together, contract: Contract, request: m.CommitGroup, answer: m.Answer, facts: Sequence[Facts], *,
    whole: bool,
) -> Together | WrongMember:  # fmt: skip
    """One line for each demand on the answer to a group."""
    commits = commits_of(request)
    landed = [world.landed(commit.attempt) for world, commit in zip(worlds, commits, strict=True)]
    before = [index for index, version in enumerate(landed) if version is not None]
    if isinstance(answer, m.GroupRatified):
        if before and len(before) < len(commits):
            what = "an attempt of the group landed before without the others: the group is refused"
            return WrongMember(before[0], Wrong((REPLAYED, ATOMIC, "PROFILE-CORE-06"), what, landed[before[0]]))
        after = [
            owner.ratified(world, commit, commit.version, version, fact)
            for world, commit, version, fact in zip(worlds, commits, landed, facts, strict=True)
        ]
        for index, outcome in enumerate(after):
            if isinstance(outcome, Wrong):
                what = f"the group is refused, because of member {index}: {outcome.expected}"
                return WrongMember(index, outcome._replace(requirements=(*outcome.requirements, ATOMIC), expected=what))
        return tuple(world for world in after if isinstance(world, World))
    refusal = answer.answer if isinstance(answer, m.GroupRefused) else answer
    if isinstance(refusal, m.Rejected) and refusal.retryable:
        return worlds
    replayed = all(
        world.replayed(commit.attempt, commit.version) and not world.is_gone and commit.attempt not in fact.altered
        for world, commit, fact in zip(worlds, commits, facts, strict=True)
    )
    if replayed and whole and "idempotent-retry" in contract.profiles:
        what = "all attempts of the group landed: `group_ratified`, again"
        return WrongMember(0, Wrong((REPLAYED, "PROFILE-RETRY-01"), what, landed[0]))
    return _refusal(worlds, contract, commits, answer, facts) if isinstance(answer, m.GroupRefused) else worlds


def _refusal(
    worlds: Together, contract: Contract, commits: Sequence[m.Commit], answer: m.GroupRefused, facts: Sequence[Facts]
) -> Together | WrongMember:
    """The member that decided cannot be ratified, and all that lost a race are named, if any are."""
    index, outcome = answer.decided_by, answer.answer
    numbers = range(len(commits))
    if index not in numbers or not set(answer.lost) <= set(numbers) or (answer.lost and index not in answer.lost):
        what = f"the numbers of members are 0 to {len(commits) - 1}, and the one that decided is among those that lost"
        return WrongMember(0, Wrong((NAMED, "PROFILE-CORE-03"), what))
    world, commit = worlds[index], commits[index]
    if world.landed(commit.attempt) is None or commit.version > world.newest + 1:
        judged = owner.commit(world, contract, commit, outcome, facts[index])
        if isinstance(judged, Wrong):
            return WrongMember(index, judged._replace(requirements=(NAMED, *judged.requirements)))
    for other in numbers:
        taken = worlds[other].state is State.OWNED and commits[other].version <= worlds[other].newest
        fresh = worlds[other].landed(commits[other].attempt) is None
        if isinstance(outcome, m.Conflict) and answer.lost and taken and fresh and other not in answer.lost:
            what = f"member {other} lost too: version {commits[other].version} of its table is taken"
            return WrongMember(other, Wrong((NAMED,), what, commits[other].version))
    return worlds


def load_tables(
    worlds: Sequence[Worlds], links: Sequence[Link], contract: Contract, answers: Sequence[m.Answer],
    facts: Sequence[Facts],
) -> list[Worlds] | WrongMember:  # fmt: skip
    """All tables of one answer, in one state."""
    judged: list[Together | WrongMember] = []
    for combination in _combinations(worlds, links):
        after = [
            owner.load_table(world, contract, answer, fact)
            for world, answer, fact in zip(combination, answers, facts, strict=True)
        ]
        wrong = [(table, outcome) for table, outcome in enumerate(after) if isinstance(outcome, Wrong)]
        judged += [
            WrongMember(table, outcome._replace(requirements=(*outcome.requirements, ONE_STATE)))
            for table, outcome in wrong[:1]
        ]
        judged += [] if wrong else [tuple(world for world in after if isinstance(world, World))]
    return _kept(judged, len(worlds))


def half_shown(members: Mapping[T, m.Version], shown: Mapping[T, m.Version | None]) -> bool:
    """Whether one answer shows a group that landed in some of its tables, and not in the others. `members`: the version
    of the group, by table; `shown`: the latest version in the answer, by table."""
    seen = {
        (latest if latest is not None else -1) >= members[table] for table, latest in shown.items() if table in members
    }
    return len(seen) > 1
