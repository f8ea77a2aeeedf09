"""conformance, layer 2: generated scenarios find bad subjects in few steps, reproducibly, and accuse no subject that
uses a freedom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.adapters.in_process import InProcess
from conformance.checks.registry import all_checks
from conformance.generated import steps
from conformance.generated.running import Generation, named, run_case, simpler
from conformance.interface import messages as m
from conformance.interface.subject import AdapterError
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.results import CaseResult, Layer, Verdict
from conformance.scenario.check import Check, Variant

GENERATED = [check for check in all_checks() if check.layer is Layer.MODEL]
REQUESTS = next(check for check in GENERATED if check.name == "any-sequence-of-requests")
RESTARTS = next(check for check in GENERATED if check.name == "any-sequence-with-restarts")
STAGED = Variant(feature="managedCommit", commit_mode="staged")
DIRECT = Variant(feature="managedCommit", commit_mode="direct")
INLINE = Variant(feature="catalogManaged", commit_mode="inline")


class RatifiesAnything(ModelOwner):
    """A proposal of a version that is taken takes its place."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return None


class ForgetsAttemptsInACrash(ModelOwner):
    def restart(self, client: str, request: m.Restart) -> m.Answer:
        answer = super().restart(client, request)
        for table in self.tables.values():
            table.landed.clear()
        return answer


class IsWrongOnce(ModelOwner):
    """Ratifies its ninth commit and says that it did not, and is right from then on."""

    ratified = 0

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        self.ratified += isinstance(answer, m.Ratified)
        return m.Gap() if self.ratified == 9 and isinstance(answer, m.Ratified) else answer


class Refuses(ModelOwner):
    def commit(self, client: str, request: m.Commit) -> m.Answer:
        return m.Rejected(reason="closed")


class TellsNothing(ModelOwner):
    """Does what it is asked, and often does not say so."""

    asked = 0

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        self.asked += 1
        answer = super().commit(client, request)
        return m.Unknown(reason="timeout") if self.asked % 3 == 0 else answer


class SaysHelloForever(ModelOwner):
    def commit(self, client: str, request: m.Commit) -> Any:
        return "ratified"


MAKES_PROGRAMS = """
from conformance.generated import machine, steps

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


def test_what_is_found_is_small_and_no_step_of_it_can_be_left_out() -> None:
    result = run(REQUESTS, STAGED, RatifiesAnything())
    assert result.verdict is Verdict.FAILED
    assert result.reproduction is not None
    program = steps.decode(result.reproduction)
    assert len(program.steps) <= 4
    for candidate in simpler(program):
        again = run(REQUESTS, STAGED, RatifiesAnything(), reproduction=steps.encode(candidate))
        assert again.verdict is not Verdict.FAILED or named(again) != named(result)


@pytest.mark.parametrize("variant", [STAGED, INLINE], ids=str)
def test_what_is_found_can_be_run_again_and_shows_the_same(variant: Variant) -> None:
    """But for the attempts, which are new ones."""
    result = run(REQUESTS, variant, RatifiesAnything())
    again = run(REQUESTS, variant, RatifiesAnything(), reproduction=result.reproduction)
    assert again.verdict is Verdict.FAILED
    assert [each.requirements for each in again.violations] == [each.requirements for each in result.violations]
    assert [each.operations for each in again.violations] == [each.operations for each in result.violations]
    assert len((again.history or "").splitlines()) == len((result.history or "").splitlines())


def test_a_program_that_fails_on_one_owner_passes_on_another() -> None:
    found = run(REQUESTS, STAGED, RatifiesAnything())
    again = run(REQUESTS, STAGED, ModelOwner(), reproduction=found.reproduction)
    assert again.verdict is Verdict.PASSED
    assert again.reproduction is None


def test_restarts_are_among_the_steps() -> None:
    result = run(RESTARTS, INLINE, ForgetsAttemptsInACrash())
    assert result.verdict is Verdict.FAILED
    assert named(result) in ("PROFILE-RETRY-01", "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02")
    assert '"restart"' in (result.reproduction or "")


def test_a_single_failure_keeps_its_history() -> None:
    """The history proves it; the report adds that it could not be repeated."""
    result = run(REQUESTS, STAGED, IsWrongOnce())
    assert result.verdict is Verdict.FAILED
    assert named(result) == "MC-FEATURE-03"
    assert "did not happen again" in result.reason
    assert result.history is not None
    assert '"gap"' in result.history


def test_a_subject_that_refuses_everything_is_not_green() -> None:
    result = run(REQUESTS, STAGED, Refuses())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "nothing was ratified" in result.reason


def test_a_subject_that_often_does_not_answer_is_not_accused() -> None:
    for check in GENERATED:
        for variant in (STAGED, INLINE, DIRECT):
            result = run(check, variant, TellsNothing(), count=4)
            assert result.verdict is not Verdict.FAILED, result.violations[0].message


def test_a_subject_that_does_not_speak_the_interface_ends_the_run() -> None:
    with pytest.raises(AdapterError, match="must be an answer of the interface"):
        run(REQUESTS, STAGED, SaysHelloForever())


def test_nothing_is_left_behind_where_the_kit_was_started(tmp_path: Path) -> None:
    """Nor does it matter what else is loaded: the same seed makes the same programs."""
    programs = []
    for also in ("", "import pandas, rich, typer"):
        command = [sys.executable, "-c", f"{also}\n{MAKES_PROGRAMS}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
        programs.append(done.stdout)
    assert programs[0] == programs[1] != ""
    assert list(tmp_path.iterdir()) == []


def test_programs_differ() -> None:
    """An engine that makes each of them out of another one would waste most of a quick run."""
    made: list[str] = []

    class Noted(Generation):
        def end(self) -> None:
            made.append(str(self._program))
            super().end()

    generation = Noted(REQUESTS, STAGED, InProcess(ModelOwner()), seed=3, count=10)
    REQUESTS.function(generation)
    assert len(set(made)) == len(made) == 10


def test_a_count_is_a_number_of_scenarios() -> None:
    """Hypothesis makes no more, and no fewer."""
    generation = Generation(REQUESTS, STAGED, InProcess(ModelOwner()), seed=3, count=7)
    REQUESTS.function(generation)
    assert generation.executions == 7


def test_a_program_is_plain_json() -> None:
    text = '{"seed":1,"steps":[{"type":"create"},{"type":"commit","fate":"lost"},{"type":"resend","client":1}]}'
    program = steps.decode(text)
    assert program.steps[1] == steps.Commit(fate=steps.Fate.LOST)
    assert steps.encode(program) == text
    assert run(REQUESTS, STAGED, ModelOwner(), reproduction=text).verdict is Verdict.PASSED


def test_a_program_with_a_misspelt_step_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="comit"):
        steps.decode('{"seed":1,"steps":[{"type":"comit"}]}')
