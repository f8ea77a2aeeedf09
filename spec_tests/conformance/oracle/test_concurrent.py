"""Which answers to concurrent requests are possible: those of some order that agrees with their times."""

import pytest

from conformance.interface import messages as m
from conformance.oracle.concurrent import Impossible, Overlapping, judge
from conformance.oracle.owner import Contract, World, Worlds

CONTRACT = Contract(
    feature="managedCommit", commit_mode="staged", profiles=frozenset({"core", "attempt-outcome"}), promises=frozenset()
)
CREATED: Worlds = frozenset({World(log=("zero",))})


def commit(attempt: str, answer: m.Answer, begun: int, ended: int) -> Overlapping:
    return Overlapping(m.Commit(table="orders", version=1, attempt=attempt, actions=()), answer, begun, ended)


def read(latest: int, begun: int, ended: int) -> Overlapping:
    entries = tuple(m.CommitEntry(version=version) for version in range(1, latest + 1))
    return Overlapping(m.GetCommits(table="orders"), m.Commits(commits=entries, latest=latest), begun, ended)


WON, LOST, LATE = m.Ratified(version=1), m.Conflict(latest=1), m.NotLanded()


def logs(worlds: Worlds | Impossible) -> set[tuple[str, ...]]:
    assert isinstance(worlds, frozenset)
    return {world.log for world in worlds}


def test_one_of_two_commits_wins() -> None:
    assert logs(judge(CREATED, CONTRACT, [commit("a", LOST, 1, 3), commit("b", WON, 2, 4)])) == {("zero", "b")}


def test_two_winners_are_possible_in_no_order() -> None:
    outcome = judge(CREATED, CONTRACT, [commit("a", WON, 1, 3), commit("b", WON, 2, 4)])
    assert isinstance(outcome, Impossible)
    assert "MC-COMMIT-02" in outcome.wrong.requirements


def test_a_request_that_ended_earlier_comes_first() -> None:
    assert isinstance(judge(CREATED, CONTRACT, [commit("a", LOST, 1, 2), commit("b", WON, 3, 4)]), Impossible)
    assert isinstance(judge(CREATED, CONTRACT, [commit("a", WON, 1, 2), read(0, 3, 4)]), Impossible)


@pytest.mark.parametrize("latest", [0, 1])
def test_a_concurrent_read_shows_either_state(latest: int) -> None:
    assert logs(judge(CREATED, CONTRACT, [commit("a", WON, 1, 4), read(latest, 2, 3)])) == {("zero", "a")}


def test_an_answer_that_was_lost_leaves_every_order_open() -> None:
    unknown = m.Unknown(reason="timeout")
    assert logs(judge(CREATED, CONTRACT, [commit("a", unknown, 1, 4), read(0, 2, 3)])) == {("zero",), ("zero", "a")}


def test_an_attempt_that_was_looked_up_does_not_land() -> None:
    look_up = Overlapping(m.AttemptOutcome(table="orders", attempt="a"), LATE, 2, 3)
    outcome = judge(CREATED, CONTRACT, [commit("a", WON, 1, 4), look_up])
    assert isinstance(outcome, Impossible)
    assert "PROFILE-OUTCOME-02" in outcome.wrong.requirements
