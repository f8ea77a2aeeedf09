"""The layer `model`: generated scenarios find bad subjects in few steps, reproducibly, and accuse no good subject. A
history with a violation is shrunk to the operations that contradict each other.
"""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checkers.check import HistoryVerdict, check_events
from conformance.checks import all_checks
from conformance.history import events
from conformance.history.events import Event
from conformance.history.files import read_events
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.programs import history_shrinking, steps
from conformance.programs.cases import Generation, named, run_case, simpler
from conformance.results import CaseResult, Layer, Verdict, Violation
from conformance.scenario.check import Check, Variant
from conformance.scenario.running import violations_of
from spec_tests.conformance.drafts import CASES, Case, Draft, commit, log
from spec_tests.conformance.running.cases import case

GENERATED = [check for check in all_checks() if check.layer is Layer.MODEL]
REQUESTS = next(check for check in GENERATED if check.name == "any-sequence-of-requests")
RESTARTS = next(check for check in GENERATED if check.name == "any-sequence-with-restarts")
STAGED = Variant(feature="managedCommit", commit_mode="staged")
DIRECT = Variant(feature="managedCommit", commit_mode="direct")
INLINE = Variant(feature="catalogManaged", commit_mode="inline")


class RatifiesAnything(ModelOwner):
    """A proposal for an existing version replaces that version."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return None


class ForgetsAttemptsInACrash(ModelOwner):
    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.landed.clear()
        return answer


class IsWrongOnce(ModelOwner):
    """The ninth commit is ratified but answered otherwise; every other answer is correct."""

    ratified = 0

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        self.ratified += isinstance(answer, m.Ratified)
        return m.Gap() if self.ratified == 9 and isinstance(answer, m.Ratified) else answer


class Refuses(ModelOwner):
    def commit(self, client: str, request: m.Commit) -> m.Answer:
        return m.Rejected(reason="closed")


class TellsNothing(ModelOwner):
    """Carries out each request, but often sends no answer."""

    asked = 0

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.asked += 1
        answer = super().commit(client, request)
        return m.Unknown(reason="timeout") if self.asked % 3 == 0 else answer


class SaysHelloForever(ModelOwner):
    def commit(self, client: str, request: m.Commit) -> Any:
        return "ratified"


MAKES_PROGRAMS = """
from conformance.programs import machine, steps

class Printed:
    def begin(self, *, watched): print("begin", watched)
    def do(self, step): print(step)
    def end(self): print("end")

machine.generate(Printed(), list(machine.STRATEGIES), seed=1, count=20)
"""


def run(check: Check, variant: Variant, owner: ModelOwner, *, count: int = 10, **options: Any) -> CaseResult:
    return run_case(check, variant, InProcess(owner), seed=1, count=count, **options)


@pytest.mark.parametrize("check", GENERATED, ids=lambda check: check.name)
@pytest.mark.parametrize("variant", REQUESTS.variants(ModelOwner().hello("", m.Hello())), ids=str)
def test_the_model_owner_passes(check: Check, variant: Variant) -> None:
    result = run(check, variant, ModelOwner(), count=6)
    assert (result.verdict, result.reason) == (Verdict.PASSED, "")
    assert result.operations > 50
    assert result.history is None


def test_the_same_seed_gives_the_same_result() -> None:
    assert run(REQUESTS, STAGED, ModelOwner()) == run(REQUESTS, STAGED, ModelOwner())
    first, second = (run(REQUESTS, STAGED, RatifiesAnything()) for _ in range(2))
    assert msgspec.json.encode(first) == msgspec.json.encode(second)


def test_a_found_scenario_is_minimal() -> None:
    result = run(REQUESTS, STAGED, RatifiesAnything())
    assert result.verdict is Verdict.FAILED
    assert result.reproduction is not None
    program = steps.decode(result.reproduction)
    assert len(program.steps) <= 4
    for candidate in simpler(program):
        again = run(REQUESTS, STAGED, RatifiesAnything(), reproduction=steps.encode(candidate))
        assert again.verdict is not Verdict.FAILED or named(again) != named(result)


@pytest.mark.parametrize("variant", [STAGED, INLINE], ids=str)
def test_a_found_scenario_can_be_repeated_with_the_same_result(variant: Variant) -> None:
    """Only the attempts differ: a repetition makes new ones."""
    result = run(REQUESTS, variant, RatifiesAnything())
    again = run(REQUESTS, variant, RatifiesAnything(), reproduction=result.reproduction)
    assert again.verdict is Verdict.FAILED
    assert [violation.requirements for violation in again.violations] == [
        violation.requirements for violation in result.violations
    ]
    assert [violation.operations for violation in again.violations] == [
        violation.operations for violation in result.violations
    ]
    assert len((again.history or "").splitlines()) == len((result.history or "").splitlines())


def test_generated_steps_include_restarts() -> None:
    result = run(RESTARTS, INLINE, ForgetsAttemptsInACrash())
    assert result.verdict is Verdict.FAILED
    assert named(result) in ("PROFILE-RETRY-01", "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02")
    assert '"restart"' in (result.reproduction or "")


def test_a_single_failure_keeps_its_history() -> None:
    """The history is the evidence. The report adds that a repetition did not fail again."""
    result = run(REQUESTS, STAGED, IsWrongOnce())
    assert result.verdict is Verdict.FAILED
    assert named(result) == "MC-FEATURE-03"
    assert "a repetition of the same steps did not" in result.reason
    assert result.history is not None
    assert '"gap"' in result.history


def test_a_subject_that_rejects_everything_does_not_pass() -> None:
    result = run(REQUESTS, STAGED, Refuses())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "nothing was ratified" in result.reason


def test_a_subject_that_often_does_not_answer_is_not_accused() -> None:
    for check in GENERATED:
        for variant in (STAGED, INLINE, DIRECT):
            result = run(check, variant, TellsNothing(), count=4)
            assert result.verdict is not Verdict.FAILED, result.violations[0].message


def test_an_answer_outside_the_interface_ends_the_run() -> None:
    with pytest.raises(AdapterError, match="must be an answer of the interface"):
        run(REQUESTS, STAGED, SaysHelloForever())


def test_generation_leaves_no_files_in_the_working_directory(tmp_path: Path) -> None:
    """The same seed gives the same programs, whatever other libraries are loaded."""
    programs = []
    for also in ("", "import pandas, rich, typer"):
        command = [sys.executable, "-c", f"{also}\n{MAKES_PROGRAMS}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
        programs.append(done.stdout)
    assert programs[0] == programs[1] != ""
    assert list(tmp_path.iterdir()) == []


def test_generated_programs_differ() -> None:
    """A generator that derives each program from the one before would waste most of a quick run."""
    made: list[str] = []

    class Noted(Generation):
        def end(self) -> None:
            made.append(str(self._program))
            super().end()

    generation = Noted(REQUESTS, STAGED, InProcess(ModelOwner()), seed=3, count=10)
    REQUESTS.function(generation)
    assert len(set(made)) == len(made) == generation.executions == 10


def test_a_program_is_plain_json() -> None:
    text = '{"seed":1,"steps":[{"type":"create"},{"type":"commit","fate":"lost"},{"type":"resend","client":1}]}'
    program = steps.decode(text)
    assert program.steps[1] == steps.Commit(fate=steps.Fate.LOST)
    assert steps.encode(program) == text
    assert run(REQUESTS, STAGED, ModelOwner(), reproduction=text).verdict is Verdict.PASSED


def test_a_program_with_a_misspelt_step_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="comit"):
        steps.decode('{"seed":1,"steps":[{"type":"comit"}]}')


# A history is shrunk to the contradicting operations, and contains only recorded lines


BAD = [case for case in CASES if case.violates]


def judged(text: str) -> HistoryVerdict:
    return check_events(read(text))


def read(text: str) -> list[Event]:
    return list(read_events(io.BytesIO(text.encode())))


def failed(text: str) -> CaseResult:
    """A case that failed with the checkers' violations."""
    violations = tuple(violations_of(judged(text)))
    return case("c/c[managedCommit/staged]", Verdict.FAILED, layer=Layer.PROCESSES, violations=violations, history=text)


def noisy() -> str:
    """A long history in which one read is stale."""
    draft = Draft(log=log(*(f"a{version}" for version in range(12))))
    for version in range(12):
        at = 20 * version
        draft.asked.append(commit(f"a{version}", version, at, at + 1))
        for reader in range(8):
            latest = 2 if (version, reader) == (9, 3) else version
            commits = tuple(events.Entry(version=number, attempt=f"a{number}") for number in range(latest + 1))
            seen, answer = at + 2 * (reader + 1), events.Commits(latest=latest, commits=commits)
            draft.ask(f"r{reader}", seen, seen + 1, events.GetCommits(), answer)
        draft.faults.append(events.Fault(at=at + 18, kind="noise"))
    return draft.text()


def test_a_long_history_becomes_two_operations_and_the_log() -> None:
    text = noisy()
    small = history_shrinking.shrunk(failed(text))
    assert small.history is not None
    assert len(text.splitlines()) > 200
    kept = read(small.history)
    assert len([event for event in kept if isinstance(event, events.Invoke)]) <= 3
    assert len(small.violations) == 1
    assert {violation.rule.value for violation in judged(small.history).violations} == {small.violations[0].rule}


@pytest.mark.parametrize("fixture", BAD, ids=lambda fixture: fixture.file)
def test_a_shrunk_history_has_the_same_violation_and_only_recorded_lines(fixture: Case) -> None:
    text = fixture.path.read_text(encoding="utf-8")
    whole = failed(text)
    small = history_shrinking.shrunk(whole)
    assert small.history is not None
    assert len(small.history) <= len(text)
    assert small.violations[0] == whole.violations[0]
    assert {flaw.rule for flaw in judged(small.history).violations} <= {flaw.rule for flaw in judged(text).violations}
    kept, before = read(small.history), read(text)
    requests = [event for event in kept if isinstance(event, events.Invoke | events.Ok | events.Fail | events.Info)]
    assert all(event in before for event in requests)


def test_an_incomplete_history_is_not_shrunk() -> None:
    """No conclusion can be drawn from an incomplete history."""
    text = noisy()
    cut = "".join(text.splitlines(keepends=True)[:-5])
    unfinished = msgspec.structs.replace(failed(text), history=cut)
    assert history_shrinking.shrunk(unfinished) == unfinished


def test_a_failure_without_a_checkers_violation_keeps_its_history() -> None:
    text = BAD[0].path.read_text(encoding="utf-8")
    by_demand = Violation(requirements=("MC-COMMIT-01",), message="an answer was wrong")
    changed = msgspec.structs.replace(failed(text), violations=(by_demand,))
    assert history_shrinking.shrunk(changed) == changed
