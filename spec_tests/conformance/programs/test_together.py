"""Requests at the same time. The owners here wait for each other, so that the race always happens."""

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
from conformance.programs import program, steps
from conformance.programs.cases import run_case
from conformance.programs.steps import Commit, Create, OwnerProgram, Read, Resolve, Single, Step, Together
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
