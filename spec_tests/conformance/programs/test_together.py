"""Requests at the same time: the answers that are possible in some order, and owners that wait for each other, so
that the race always happens.
"""

from contextlib import suppress
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any

import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface import messages as m
from conformance.interface.results import CaseResult, Verdict
from conformance.models.owner import ModelOwner
from conformance.mutants import all_mutants
from conformance.mutants.beyond_examples import AnswersConcurrently
from conformance.oracle.owner import Contract, World, Worlds
from conformance.programs import program, steps
from conformance.programs.cases import run_case
from conformance.programs.steps import Commit, Create, OwnerProgram, Read, Resolve, Single, Step, Together
from conformance.programs.together import Impossible, Overlapping, judge_together
from conformance.scenario.check import Variant

CHECK = next(check for check in all_checks() if check.name == "any-sequence-of-requests")
STAGED = Variant(feature="managedCommit", commit_mode="staged")
DIRECT = Variant(feature="managedCommit", commit_mode="direct")
Lanes = tuple[tuple[Single, ...], ...]


def racing(name: str) -> InProcess:
    """The subject of that name, which lets another request pass where it would only sleep."""
    owner: Any = all_mutants()[name].make()
    meeting = Barrier(2)

    def let_others() -> None:
        owner.lock.release()
        with suppress(BrokenBarrierError):
            meeting.wait(0.05)
        owner.lock.acquire()

    owner._let_others = let_others
    return InProcess(owner)


def run(subject: InProcess, *program_steps: Step, variant: Variant = STAGED) -> CaseResult:
    text = program.encode(OwnerProgram(format=2, side="owner", family="x", seed=1, steps=program_steps))
    return run_case(CHECK, variant, subject, reproduction=text)


RACES: dict[str, tuple[Lanes, Variant]] = {
    "a-commit-overtakes-a-commit": (((Commit(),), (Commit(client=1),)), STAGED),
    "a-replay-overtakes-its-commit": (((Commit(),), (steps.Resend(),)), STAGED),
    "a-lookup-overtakes-a-commit": (((Commit(),), (Resolve(),)), STAGED),
    "a-drop-overtakes-a-commit": (((Commit(),), (steps.Drop(),)), DIRECT),
}


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found_by_its_lanes(name: str) -> None:
    lanes, variant = RACES[name]
    result = run(racing(name), Create(), Together(lanes=lanes, gap_ms=10), variant=variant)
    assert result.verdict is Verdict.FAILED
    assert result.violations[0].requirements[0] in all_mutants()[name].violates


@pytest.mark.parametrize("lanes", [
    *(lanes for lanes, _ in RACES.values()), ((Read(), Read()), (steps.Backfill(),), (Commit(), Read())),
    ((Commit(),), (Commit(table=1),)), ((Create(),), (Create(),)),
])  # fmt: skip
@pytest.mark.parametrize("variant", [STAGED, DIRECT], ids=str)
def test_a_correct_owner_is_not_accused(lanes: Lanes, variant: Variant) -> None:
    around = (Create(), Create(table=1), Commit(), Together(lanes=lanes), Commit(), Read(), Resolve())
    result = run(InProcess(AnswersConcurrently()), *around, variant=variant)
    assert (result.verdict, result.violations) == (Verdict.PASSED, ())


class OneAtATime(ModelOwner):
    """Notices a request that arrives during another one."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = Lock()
        self.commits = 0

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        assert self.busy.acquire(blocking=False)
        self.commits += 1
        answer = super().commit(client, request)
        self.busy.release()
        return answer


def test_other_subjects_get_the_requests_one_after_the_other() -> None:
    owner = OneAtATime()
    result = run(InProcess(owner), Create(), Together(lanes=((Commit(), Commit()), (Commit(),))))
    assert (result.verdict, owner.commits) == (Verdict.PASSED, 3)


def test_at_most_six_requests_are_sent() -> None:
    class Counting(AnswersConcurrently):
        commits = 0

        def commit(self, client: str, request: m.Commit) -> m.Answer:
            Counting.commits += 1
            return super().commit(client, request)

    run(InProcess(Counting()), Create(), Together(lanes=((Commit(),) * 5,) * 4))
    assert Counting.commits == 6


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
    assert logs(judge_together(CREATED, CONTRACT, [commit("a", LOST, 1, 3), commit("b", WON, 2, 4)])) == {("zero", "b")}


def test_two_winners_are_possible_in_no_order() -> None:
    outcome = judge_together(CREATED, CONTRACT, [commit("a", WON, 1, 3), commit("b", WON, 2, 4)])
    assert isinstance(outcome, Impossible)
    assert "MC-COMMIT-02" in outcome.wrong.requirements


def test_a_request_that_ended_earlier_comes_first() -> None:
    assert isinstance(judge_together(CREATED, CONTRACT, [commit("a", LOST, 1, 2), commit("b", WON, 3, 4)]), Impossible)
    assert isinstance(judge_together(CREATED, CONTRACT, [commit("a", WON, 1, 2), read(0, 3, 4)]), Impossible)


@pytest.mark.parametrize("latest", [0, 1])
def test_a_concurrent_read_shows_either_state(latest: int) -> None:
    assert logs(judge_together(CREATED, CONTRACT, [commit("a", WON, 1, 4), read(latest, 2, 3)])) == {("zero", "a")}


def test_an_answer_that_was_lost_leaves_every_order_open() -> None:
    unknown = m.Unknown(reason="timeout")
    assert logs(judge_together(CREATED, CONTRACT, [commit("a", unknown, 1, 4), read(0, 2, 3)])) == {
        ("zero",),
        ("zero", "a"),
    }


def test_an_attempt_that_was_looked_up_does_not_land() -> None:
    look_up = Overlapping(m.AttemptOutcome(table="orders", attempt="a"), LATE, 2, 3)
    outcome = judge_together(CREATED, CONTRACT, [commit("a", WON, 1, 4), look_up])
    assert isinstance(outcome, Impossible)
    assert "PROFILE-OUTCOME-02" in outcome.wrong.requirements
