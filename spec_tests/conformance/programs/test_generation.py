"""The layer `model`: generated scenarios find bad subjects in few steps, reproducibly, and accuse no good subject."""

import json
import time
from pathlib import Path
from typing import Any, get_args

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.interface import messages as m
from conformance.interface.results import CaseResult, RequirementVerdict, Verdict
from conformance.interface.subject import AdapterError
from conformance.models.groups import GroupOwner
from conformance.models.owner import ModelOwner, OwnedTable
from conformance.mutants import all_mutants, handler
from conformance.programs import client_steps, owner_words, pinned, running, steps
from conformance.programs.cases import run_case
from conformance.programs.client_steps import ClientProgram
from conformance.programs.owner_words import GROUPED, WEIGHTS, WORDS, OwnerFamily
from conformance.programs.program import NAMES, NotAProgramError, decode, encode
from conformance.programs.running import Generation, simpler, smallest
from conformance.programs.steps import OwnerProgram
from conformance.running import verdicts
from conformance.scenario.check import Check, Family, Variant

GENERATED = [check for check in all_checks() if check.name.startswith("any-") and check.side == "owner"]
REQUESTS = next(check for check in GENERATED if check.name == "any-sequence-of-requests")
RESTARTS = next(check for check in GENERATED if check.name == "any-sequence-with-restarts")
FAMILY = OwnerFamily(name="any")
STAGED = Variant(feature="managedCommit", commit_mode="staged")
DIRECT = Variant(feature="managedCommit", commit_mode="direct")
INLINE = Variant(feature="catalogManaged", commit_mode="inline")


class RatifiesAnything(ModelOwner):
    """A proposal for an existing version replaces that version."""

    def _refusal(self, table: OwnedTable, request: m.Commit, staged: str | None) -> m.Answer | None:
        return None


class IsWrongOnce(ModelOwner):
    """The ninth commit is ratified but answered otherwise; every other answer is correct."""

    ratified = 0

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        answer = super().commit(client, request)
        self.ratified += isinstance(answer, m.Ratified)
        return m.Gap() if self.ratified == 9 and isinstance(answer, m.Ratified) else answer


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


class Sleeps(ModelOwner):
    """Never answers a commit."""

    def commit(self, client: str, request: m.Commit) -> m.Answer:
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # noqa: BLE001  # it survives what it can
                continue


def named(result: CaseResult) -> str:
    """The first requirement of a failure."""
    return result.violations[0].requirements[0]


def run(check: Check, variant: Variant, owner: ModelOwner, *, count: int = 10, **options: Any) -> CaseResult:
    return run_case(check, variant, InProcess(owner), seed=1, count=count, **options)


def test_every_kind_of_step_has_a_name_for_readers() -> None:
    kinds = {kind.__name__.lower() for kind in get_args(client_steps.Step)} | set(owner_words.WEIGHTS)
    assert kinds <= NAMES.keys()
    assert len(set(NAMES.values())) == len(NAMES)


def test_the_same_seed_gives_the_same_result() -> None:
    first, second = (run(REQUESTS, STAGED, ModelOwner(), count=3) for _ in range(2))
    assert first == second
    first, second = (run(REQUESTS, STAGED, RatifiesAnything(), count=3) for _ in range(2))
    assert msgspec.json.encode(first) == msgspec.json.encode(second)


def test_a_found_scenario_is_minimal() -> None:
    result = run(REQUESTS, STAGED, RatifiesAnything())
    assert result.verdict is Verdict.FAILED
    assert result.reproduction is not None
    program = decode(result.reproduction, OwnerProgram, "owner")
    assert len(program.steps) <= 4
    for candidate in simpler(program):
        again = run(REQUESTS, STAGED, RatifiesAnything(), reproduction=encode(candidate))
        assert again.verdict is not Verdict.FAILED or named(again) != named(result)


@pytest.mark.parametrize("variant", [STAGED, INLINE], ids=str)
def test_a_found_scenario_can_be_repeated_with_the_same_result(variant: Variant) -> None:
    """Only the attempts differ: a repetition makes new ones."""
    result = run(REQUESTS, variant, RatifiesAnything(), most=1)
    again = run(REQUESTS, variant, RatifiesAnything(), reproduction=result.reproduction)
    assert again.verdict is Verdict.FAILED
    assert [violation.requirements for violation in again.violations] == [
        violation.requirements for violation in result.violations
    ]
    assert [violation.operations for violation in again.violations] == [
        violation.operations for violation in result.violations
    ]
    assert len((again.history or "").splitlines()) == len((result.history or "").splitlines())


LEAVES_A_GAP = "direct-commit-leaves-a-gap"


def test_a_family_goes_on_after_a_violation() -> None:
    """Each further violation is of another requirement, and has a program of its own, which shows it again."""
    result = run(REQUESTS, DIRECT, handler(LEAVES_A_GAP), count=6)
    assert (result.programs, len(result.violations), len(result.others)) == (6, 2, 1)
    shown = result.by_program()
    assert len({named(program) for program in shown}) == len({program.history for program in shown}) == 2
    for program in shown:
        again = run(REQUESTS, DIRECT, handler(LEAVES_A_GAP), reproduction=program.reproduction)
        assert (named(again), again.operations) == (named(program), program.operations)


def test_a_family_can_end_at_the_first_violation() -> None:
    """Its first violation is the same, with the same history."""
    first = run(REQUESTS, DIRECT, handler(LEAVES_A_GAP), count=6, most=1)
    whole = run(REQUESTS, DIRECT, handler(LEAVES_A_GAP), count=6)
    assert first.programs < whole.programs
    assert (first.reproduction, first.history) == (whole.reproduction, whole.history)
    assert (first.violations, first.others) == (whole.violations[:1], ())


def requirements(result: CaseResult) -> dict[RequirementVerdict, set[str]]:
    """The requirements of a run of this case alone, by verdict."""
    known: dict[RequirementVerdict, set[str]] = {}
    for entry in verdicts.requirement_results([result], ModelOwner().hello("", m.Hello())):
        known.setdefault(entry.verdict, set()).add(entry.requirement)
    return known


def test_the_other_requirements_of_a_failed_family_are_held() -> None:
    result = run(REQUESTS, STAGED, handler("crash-requests-are-ignored"), count=6)
    known = requirements(result)
    assert known[RequirementVerdict.VIOLATED] == {"PROFILE-HARNESS-01"}
    assert known[RequirementVerdict.HELD] == set(result.requirements) - {"PROFILE-HARNESS-01"}
    passed = requirements(run(REQUESTS, STAGED, ModelOwner(), count=6))
    assert known[RequirementVerdict.HELD] == passed[RequirementVerdict.HELD] - {"PROFILE-HARNESS-01"}


@pytest.mark.parametrize("owner", [handler("rejects-staged-commits"), RatifiesAnything()], ids=["all", "most"])
def test_a_subject_whose_programs_fail_holds_nothing(owner: ModelOwner) -> None:
    result = run(REQUESTS, STAGED, owner)
    assert result.verdict is Verdict.FAILED
    assert not requirements(result).get(RequirementVerdict.HELD)


def test_generated_steps_include_restarts() -> None:
    result = run(RESTARTS, INLINE, handler("restart-forgets-attempts"), count=60, shrink=False)
    assert result.verdict is Verdict.FAILED
    assert named(result) in ("PROFILE-RETRY-01", "PROFILE-OUTCOME-01", "PROFILE-OUTCOME-02")
    assert any(kind in (result.reproduction or "") for kind in ('"restart"', '"crash"'))


def test_a_single_failure_keeps_its_history() -> None:
    """The history is the evidence. The report adds that a repetition did not fail again."""
    result = run(REQUESTS, STAGED, IsWrongOnce(), count=60, most=1)
    assert result.verdict is Verdict.FAILED
    assert named(result) in ("PROFILE-CORE-05", "PROFILE-RETRY-01")
    assert "a repetition of the same steps did not" in result.reason
    assert result.history is not None
    assert '"gap"' in result.history


def test_each_failing_program_says_whether_it_can_be_repeated() -> None:
    class IsAlsoWrongOnce(RatifiesAnything):
        commits = 0

        def commit(self, client: str, request: m.Commit) -> m.Answer:
            answer = super().commit(client, request)
            self.commits += isinstance(answer, m.Ratified)
            return m.Gap() if self.commits == 3 and isinstance(answer, m.Ratified) else answer

    first, *others = run(REQUESTS, DIRECT, IsAlsoWrongOnce()).by_program()
    assert "a repetition of the same steps did not" in first.reason
    assert others
    assert {program.reason for program in others} == {""}


def test_a_subject_that_often_does_not_answer_is_not_accused() -> None:
    for number, check in enumerate(GENERATED):
        result = run(check, (STAGED, INLINE, DIRECT)[number % 3], TellsNothing(), count=4)
        assert result.verdict is not Verdict.FAILED, result.violations[0].message


def test_an_answer_outside_the_interface_ends_the_run() -> None:
    with pytest.raises(AdapterError, match="must be an answer of the interface"):
        run(REQUESTS, STAGED, SaysHelloForever())


def test_the_same_seed_draws_the_same_programs() -> None:
    identity = ModelOwner().hello("", m.Hello())
    first, second = ([FAMILY.draw(seed, number, identity, STAGED) for seed in (1, 2) for number in range(100)]
                     for _ in range(2))  # fmt: skip
    assert first == second
    assert len({encode(program) for program in first}) == len(first)
    drawn = {word for program in first for word in program.words if not word.startswith("heavy")}
    assert drawn == {word for word in WEIGHTS if FAMILY.offers((word,), identity, STAGED)}


def test_only_families_of_groups_draw_groups() -> None:
    """So the programs of a seed are the same for owners with and without the profile."""
    plain, grouped = ModelOwner().hello("", m.Hello()), GroupOwner().hello("", m.Hello())
    assert all(FAMILY.draw(3, number, plain, STAGED) == FAMILY.draw(3, number, grouped, STAGED) for number in range(60))
    groups = OwnerFamily(name="x", groups=True)
    words = {word for number in range(60) for word in groups.draw(3, number, grouped, STAGED).words}
    assert set(GROUPED) < words < {*GROUPED, *WEIGHTS}


def test_the_first_programs_are_small() -> None:
    identity = ModelOwner().hello("", m.Hello())
    assert all(len(FAMILY.draw(1, number, identity, STAGED).words) <= 6 for number in range(40))


def test_a_subject_that_hangs_ends_the_case_with_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "STEP_SECONDS", 0.05)
    result = run(REQUESTS, STAGED, Sleeps())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no answer within 0.05 s: " in result.reason


def test_a_program_is_plain_json() -> None:
    text = (
        '{"format":2,"side":"owner","family":"restarts","seed":1,'
        '"steps":[{"type":"create"},{"type":"commit","fate":"lost"},{"type":"resend","client":1}]}'
    )
    program = decode(text, OwnerProgram, "owner")
    assert program.steps[1] == steps.Commit(fate=steps.Fate.LOST)
    assert encode(program) == text
    assert run(REQUESTS, STAGED, ModelOwner(), reproduction=text).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a program"),
        ('{"seed":1,"steps":[]}', "not a program"),
        ('{"format":1,"side":"owner","family":"x","seed":1,"steps":[]}', "of format 1"),
        ('{"format":2,"side":"client","family":"x","seed":1,"steps":[]}', "for side 'client'"),
        ('{"format":2,"side":"owner","family":"x","seed":1,"steps":[{"type":"comit"}]}', "comit"),
    ],
)
def test_a_text_that_is_no_program_is_named(text: str, problem: str) -> None:
    with pytest.raises(NotAProgramError, match=problem):
        decode(text, OwnerProgram, "owner")


# Laws of steps, oracle and shrinker


def bounded(step: steps.Step) -> steps.Step:
    """The step with small numbers: a size, a count or a time is not what makes it valid."""
    numbers = {field.name: getattr(step, field.name) for field in msgspec.structs.fields(step)}
    small: dict[str, Any] = {name: number % 12 if number > 0 else -(-number % 12) for name, number in numbers.items()
             if isinstance(number, int) and not isinstance(number, bool)}  # fmt: skip
    if isinstance(step, steps.Together):
        small["lanes"] = tuple(tuple(map(bounded, lane)) for lane in step.lanes)
    return msgspec.structs.replace(step, **small)


ANY_STEP: st.SearchStrategy[steps.Step] = st.from_type(steps.Step).map(bounded)  # type: ignore[arg-type]
ANY_PROGRAM = st.lists(ANY_STEP, max_size=9).map(
    lambda drawn: OwnerProgram(format=2, side="owner", family="any", seed=1, steps=tuple(drawn))
)
LAW = hypothesis.settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)


@LAW
@hypothesis.given(ANY_PROGRAM)
def test_every_step_is_valid_after_any_others(program: OwnerProgram) -> None:
    variant = (STAGED, INLINE, DIRECT)[len(program.steps) % 3]
    result = run(RESTARTS, variant, ModelOwner(), reproduction=encode(program))
    assert result.verdict is not Verdict.FAILED, result.violations[0].message


@LAW
@hypothesis.given(ANY_PROGRAM, st.data())
def test_a_smaller_program_still_fails(program: OwnerProgram, data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from([type(step) for step in program.steps] or [steps.Read]))

    def fails(candidate: OwnerProgram) -> bool | None:
        return any(isinstance(step, wanted) for step in candidate.steps) or None

    if fails(program):
        small, _ = smallest(program, True, fails, trials=2000)
        assert small.steps == (wanted(),)
        assert list(simpler(small)) == [msgspec.structs.replace(small, steps=())]


# Pinned programs


STORED = [
    (family, side, text) for family in Family for side in ("owner", "client") for text in pinned.texts(family, side)
]
PINNED = [check for check in all_checks() if check.name.startswith("pinned-programs")]
OF_OWNERS = next(check for check in PINNED if check.side == "owner")
TOMBSTONE = """{"format": 2, "side": "owner", "family": "restarts", "seed": 1, "title": "a tombstone stays", "words":
 ["restart"], "requirements": ["PROFILE-OUTCOME-02"], "steps": [{"type": "create"}, {"type": "land"}, {"type": "commit",
 "fate": "delayed"}, {"type": "resolve", "unsettled": true}, {"type": "restart"}, {"type": "deliver"}]}"""


def ran(make: type[ModelOwner], *texts: str) -> tuple[CaseResult, Generation]:
    with InProcess(make()) as subject:
        variant = Variant(feature="managedCommit", commit_mode="staged")
        g = Generation(OF_OWNERS, variant, subject, seed=0, count=1)
        g.run_stored(OwnerFamily(name="restarts"), texts)
        return g.result(), g


@pytest.mark.parametrize(("family", "side", "text"), STORED)
def test_every_file_contains_programs_of_its_family(family: Family, side: str, text: str) -> None:
    program = decode(text, OwnerProgram if side == "owner" else ClientProgram, side)  # type: ignore[arg-type]
    assert program.family == family
    assert program.title
    assert program.requirements
    assert side == "client" or set(program.words) <= set(WORDS)


def test_every_file_has_a_check() -> None:
    assert PINNED
    assert len(PINNED) == len({(family, side) for family, side, _ in STORED})


def test_a_failed_program_is_named_by_its_title() -> None:
    failed, _ = ran(all_mutants()["crash-forgets-tombstones"].make, TOMBSTONE)
    assert (failed.verdict, failed.title) == (Verdict.FAILED, "a tombstone stays")
    assert failed.violations[0].requirements[0] == "PROFILE-OUTCOME-02"


def test_a_refused_replay_contradicts_the_earlier_answer_about_its_attempt() -> None:
    text = """{"format": 2, "side": "owner", "family": "restarts", "seed": 1, "title": "found out", "words": ["resend"],
     "requirements": ["PROFILE-RETRY-01"], "steps": [{"type": "create"}, {"type": "commit", "fate": "lost"},
     {"type": "resolve", "client": 1}, {"type": "resend"}]}"""
    failed, _ = ran(all_mutants()["replay-is-a-conflict"].make, text)
    assert failed.history is not None
    events = [json.loads(line) for line in failed.history.splitlines()]
    asked = {event["id"]: event["request"] for event in events if "request" in event}
    refused, earlier = failed.violations[0].operations
    assert (asked[refused]["op"], asked[earlier]["op"]) == ("commit", "attempt_outcome")
    assert asked[refused]["attempt"] == asked[earlier]["attempt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TOMBSTONE.replace('"format": 2', '"format": 1'), "a program of format 1; this version of the kit reads 2"),
        ("[3]", "not a program"),
        (TOMBSTONE.replace("deliver", "unheard"), "invalid program"),
    ],
)
def test_what_is_not_a_program_is_skipped_and_counted(text: str, problem: str) -> None:
    result, g = ran(ModelOwner, text, TOMBSTONE, TOMBSTONE)
    assert (result.verdict, g.drawn, len(g.inconclusive)) == (Verdict.PASSED, 2, 1)
    assert problem in g.inconclusive[0]


def test_a_program_for_another_subject_is_left_out() -> None:
    other = TOMBSTONE.replace('"seed"', '"variant": "catalogManaged/inline", "seed"')
    assert ran(ModelOwner, other)[0].verdict is Verdict.SKIPPED
    assert ran(ModelOwner, other, TOMBSTONE)[1].drawn == 1


def test_a_file_that_is_no_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text('{"format": 2')
    [text] = pinned.texts("limits", "owner", tmp_path)
    assert ran(ModelOwner, text)[1].inconclusive
    assert "limits.json" in text
