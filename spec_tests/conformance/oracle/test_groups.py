"""Which answers about groups are possible: a group lands in all of its tables, or in none."""

import pytest

from conformance.interface import messages as m
from conformance.oracle import groups
from conformance.oracle.groups import WrongMember
from conformance.oracle.owner import NOTHING, Contract, State, World, Worlds

CONTRACT = Contract(
    feature="managedCommit", commit_mode="staged", promises=frozenset(),
    profiles=frozenset({"core", "attempt-outcome", "idempotent-retry", "transaction-group"}),
)  # fmt: skip
EMPTY: Worlds = frozenset({World(log=("zero",))})
FIRST: Worlds = frozenset({World(log=("zero", "a"))})
SECOND: Worlds = frozenset({World(log=("zero", "b"))})
TAKEN: Worlds = frozenset({World(log=("zero", "other"))})
LINK = {0: "a", 1: "b"}
GROUP = m.CommitGroup(
    members=(
        m.GroupMember(table="orders", version=1, attempt="a", actions=()),
        m.GroupMember(table="stock", version=1, attempt="b", actions=()),
    )
)


def refused(member: int, answer: m.Conflict | m.Gap | m.Rejected, *lost: int) -> m.GroupRefused:
    return m.GroupRefused(decided_by=member, answer=answer, lost=lost)


def judged(first: Worlds, second: Worlds, answer: m.Answer) -> list[Worlds] | WrongMember:
    links = [LINK] if (first, second) in ((EMPTY, EMPTY), (FIRST, SECOND)) else []
    return groups.judge(
        [first, second], links, CONTRACT, GROUP, answer, [NOTHING, NOTHING], whole=bool(links)
    )  # fmt: skip


@pytest.mark.parametrize(("first", "second", "answer", "requirement"), [
    (EMPTY, TAKEN, m.GroupRatified(), groups.ATOMIC),
    (FIRST, EMPTY, m.GroupRatified(), groups.REPLAYED),
    (FIRST, SECOND, refused(0, m.Conflict()), groups.REPLAYED),
    (FIRST, SECOND, m.Rejected(), groups.REPLAYED),
    (EMPTY, TAKEN, refused(0, m.Conflict()), groups.NAMED),
    (EMPTY, TAKEN, refused(1, m.Gap()), groups.NAMED),
    (EMPTY, TAKEN, refused(2, m.Conflict()), groups.NAMED),
    (TAKEN, TAKEN, refused(0, m.Conflict(), 0), groups.NAMED),
    (EMPTY, TAKEN, refused(1, m.Conflict(), 0), groups.NAMED),
    (EMPTY, frozenset({World(log=("zero",), never=frozenset({"b"}))}), m.GroupRatified(), groups.ATOMIC),
    (EMPTY, frozenset({World(log=("zero",), state=State.DROPPED)}), m.GroupRatified(), groups.ATOMIC),
])  # fmt: skip
def test_an_impossible_answer_is_wrong(first: Worlds, second: Worlds, answer: m.Answer, requirement: str) -> None:
    outcome = judged(first, second, answer)
    assert isinstance(outcome, WrongMember)
    assert requirement in outcome.wrong.requirements


@pytest.mark.parametrize(("first", "second", "answer", "after"), [
    (EMPTY, EMPTY, m.GroupRatified(), [FIRST, SECOND]),
    (FIRST, SECOND, m.GroupRatified(), [FIRST, SECOND]),
    (FIRST, SECOND, m.Rejected(retryable=True), [FIRST, SECOND]),
    (EMPTY, TAKEN, refused(1, m.Conflict(latest=1), 1), [EMPTY, TAKEN]),
    (EMPTY, TAKEN, refused(1, m.Conflict(), 0, 1), [EMPTY, TAKEN]),
    (TAKEN, TAKEN, refused(1, m.Conflict()), [TAKEN, TAKEN]),
    (EMPTY, EMPTY, refused(1, m.Rejected()), [EMPTY, EMPTY]),
    (FIRST, EMPTY, refused(0, m.Rejected()), [FIRST, EMPTY]),
    (FIRST, EMPTY, m.Rejected(), [FIRST, EMPTY]),
])  # fmt: skip
def test_a_possible_answer_leaves_its_state(
    first: Worlds, second: Worlds, answer: m.Answer, after: list[Worlds]
) -> None:  # fmt: skip
    assert judged(first, second, answer) == after


def test_a_lost_answer_leaves_all_or_none() -> None:
    first, second = groups.lost([EMPTY, EMPTY], [LINK], CONTRACT, GROUP)
    assert (first, second) == (EMPTY | FIRST, EMPTY | SECOND)
    assert groups.agree([FIRST, second], [LINK]) == [FIRST, SECOND]
    assert groups.agree([EMPTY, second], [LINK]) == [EMPTY, EMPTY]
    assert groups.agree([FIRST, EMPTY], [LINK]) is None
    assert groups.lost([EMPTY, TAKEN], [LINK], CONTRACT, GROUP) == [EMPTY, TAKEN]


def test_a_group_whose_outcome_is_open_lands_in_both_tables_later() -> None:
    outcome = judged(EMPTY, EMPTY, m.Unknown())
    assert isinstance(outcome, list)
    shown = groups.agree([FIRST, outcome[1]], [LINK])
    assert shown is not None
    assert {world.log for world in shown[1]} == {("zero", "b")}


def table(reference: str, latest: int) -> m.Table:
    commits = tuple(m.CommitEntry(version=version) for version in range(1, latest + 1))
    return m.Table(table=reference, feature="managedCommit", commit_mode="staged", latest=latest, commits=commits)


@pytest.mark.parametrize(("first", "second", "possible"), [(0, 0, True), (1, 1, True), (0, 1, False), (1, 0, False)])
def test_an_answer_about_both_tables_shows_one_state(first: int, second: int, possible: bool) -> None:
    worlds = groups.lost([EMPTY, EMPTY], [LINK], CONTRACT, GROUP)
    answers = [table("orders", first), table("stock", second)]
    outcome = groups.load_tables(worlds, [LINK], CONTRACT, answers, [NOTHING, NOTHING])
    assert isinstance(outcome, list) is possible
    if isinstance(outcome, WrongMember):
        assert groups.ONE_STATE in outcome.wrong.requirements
    assert groups.half_shown({0: 1, 1: 1}, {0: first, 1: second}) is not possible
