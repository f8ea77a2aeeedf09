"""Runs against subjects of every kind: verdicts, exit codes, misbehaviour, time; and their plans."""

import sys
import tempfile
from pathlib import Path

import pytest

from conformance import reports
from conformance.adapters.engines.delta_spark import DeltaSpark
from conformance.adapters.http import HttpServer
from conformance.adapters.in_process import InProcess
from conformance.checks import all_checks
from conformance.command.application import application
from conformance.interface import results
from conformance.interface.messages import Hello, Identity
from conformance.models.owner import ModelOwner
from conformance.running import execution, worker_pool
from conformance.running.execution import Options, execute
from conformance.running.plan import LAYERS, PROFILES, Plan, Selection, plan, profile_of_programs, seconds, select
from conformance.running.worker import DrivenSubject, Open, RunCase
from conformance.scenario.check import Family
from conformance.subjects.names import answer_seconds
from spec_tests.conformance.running.cases import ONE, Clock, identity

OURS = "python:spec_tests.conformance.running.subjects"
SMALL = Selection(check=(ONE.name,))
"""Five cases, one for each variant."""
LONG = 120.0
"""Seconds: longer than any subject needs for an answer, however busy the machine is."""


class Listener:
    """Records the events of a run."""

    def __init__(self) -> None:
        self.cases: list[tuple[str, bool, bool]] = []
        self.notes: list[str] = []
        self.workers = 0

    def begins(self, identity: Identity, planned: Plan, workers: int) -> None:
        self.workers = workers

    def case(self, result: results.CaseResult, *, fails: bool, known: bool, seconds: float) -> None:
        self.cases.append((result.case, fails, known))

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(subject: str, listener: Listener | None = None, **options: object) -> results.RunResult:
    settings = {"selection": SMALL, "timeout": LONG, **options}
    return execute(Options(subject=subject, **settings), listener or Listener())  # type: ignore[arg-type]


def verdicts_of(result: results.RunResult) -> set[results.Verdict]:
    return {case.verdict for case in result.cases}


# Verdicts


def test_a_correct_owner_is_conformant() -> None:
    listener = Listener()
    result = run("model", listener, workers=2)
    assert (result.exit_code, result.complete, result.stopped) == (results.ExitCode.CONFORMANT, True, "")
    assert verdicts_of(result) == {results.Verdict.PASSED}
    assert len(result.cases) == 5
    assert sorted(name for name, _, _ in listener.cases) == sorted(case.case for case in result.cases)
    assert listener.workers == 2
    assert result.subject.named == "model"
    held = {row.requirement for row in result.requirements if row.verdict is results.RequirementVerdict.HELD}
    assert held == {requirement for case in result.cases for requirement in case.requirements}


def test_a_wrong_owner_fails_and_the_requirement_is_named() -> None:
    listener = Listener()
    result = run(f"{OURS}:Wrong", listener)
    assert (result.exit_code, result.complete) == (results.ExitCode.VIOLATION, True)
    assert verdicts_of(result) == {results.Verdict.FAILED}
    assert all(fails and not known for _, fails, known in listener.cases)
    violated = {row.requirement for row in result.requirements if row.verdict is results.RequirementVerdict.VIOLATED}
    assert violated == {requirement for case in result.cases for v in case.violations for requirement in v.requirements}
    assert "PROFILE-CORE-05" in violated
    assert all(case.history for case in result.cases)
    assert result.environment.first_failure_seconds is not None


def test_results_depend_on_the_seed_and_not_on_the_number_of_workers() -> None:
    """The whole content of a failure is compared: messages, histories, reproductions of generated cases."""
    selection = Selection(check=(ONE.name, "any-sequence-of-requests[catalogManaged/inline]"))
    first, other = (run(f"{OURS}:Wrong", workers=workers, seed=11, selection=selection) for workers in (1, 2))
    text = reports.to_json(reports.comparable(first))
    assert text == reports.to_json(reports.comparable(other))
    assert "conformance-" not in text.replace("delta-commit-conformance-", "")
    again = run(f"{OURS}:Wrong", seed=12).cases
    assert [case.case for case in first.cases if case.check == ONE.name] == [case.case for case in again]
    assert not {case.history for case in first.cases} & {case.history for case in again}


@pytest.mark.longer
def test_violated_advice_fails_only_a_strict_run() -> None:
    advice = "CM-CATALOG-05"
    selection = Selection(check=(ONE.name, *(check.name for check in all_checks() if advice in check.requirements)))
    for strict, code in ((False, results.ExitCode.CONFORMANT), (True, results.ExitCode.VIOLATION)):
        result = run("mutant:resolution-lacks-protocol-and-metadata", selection=selection, strict=strict)
        (verdict,) = [row for row in result.requirements if row.requirement == advice]
        assert verdict.verdict is results.RequirementVerdict.WARNED
        assert (result.exit_code, result.strict, result.complete) == (code, strict, True)


def test_an_owner_that_rejects_everything_is_never_green() -> None:
    result = run(f"{OURS}:Refusing")
    assert verdicts_of(result) == {results.Verdict.INCONCLUSIVE}
    assert result.exit_code == results.ExitCode.INCOMPLETE
    assert "came to a verdict" in result.stopped


def test_the_first_failure_can_end_the_run() -> None:
    result = run(f"{OURS}:Wrong", fail_fast=True)
    assert [case.verdict for case in result.cases] == [results.Verdict.FAILED] + [results.Verdict.NOT_RUN] * 4
    assert (result.exit_code, result.complete) == (results.ExitCode.VIOLATION, False)
    assert "--fail-fast" in result.stopped


# Subjects that misbehave


def test_output_of_a_subject_does_not_disturb_the_run() -> None:
    assert run(f"{OURS}:Printing").exit_code == results.ExitCode.CONFORMANT


def test_an_invalid_answer_stops_the_run() -> None:
    result = run(f"{OURS}:Babbling")
    assert (result.exit_code, result.complete) == (results.ExitCode.USAGE, False)
    assert "'ratified'" in result.stopped
    assert result.cases[0].case in result.stopped
    assert [case.verdict for case in result.cases] == [results.Verdict.INCONCLUSIVE] + [results.Verdict.NOT_RUN] * 4


@pytest.mark.longer
def test_a_subject_that_hangs_at_once_gets_no_further_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "SILENCE_SECONDS", 1.0)
    result = run(f"{OURS}:HangingAtOnce", timeout=0.5)
    assert result.exit_code == results.ExitCode.USAGE
    assert "no answer in" in result.stopped
    assert verdicts_of(result) == {results.Verdict.NOT_RUN}


def test_a_hanging_case_is_stopped_and_so_is_a_run_of_such_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "MOST_MISHAPS", 2)

    class Impatient(Listener):
        """Uses a short timeout once the subject has answered the first requests; then the subject hangs."""

        def begins(self, identity: Identity, planned: Plan, workers: int) -> None:
            monkeypatch.setattr(execution, "SILENCE_SECONDS", 0.1)

    result = run(f"{OURS}:Hanging", Impatient(), timeout=0.5)
    assert (result.exit_code, result.complete) == (results.ExitCode.INCOMPLETE, False)
    hung = [case for case in result.cases if case.verdict is results.Verdict.INCONCLUSIVE]
    assert len(hung) == execution.MOST_MISHAPS
    assert all("the subject hangs" in case.reason for case in hung)
    assert {case.verdict for case in result.cases[execution.MOST_MISHAPS :]} == {results.Verdict.NOT_RUN}


class Late(Listener):
    """Leaves one second of a budget of an hour when the cases begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._clock = Clock()
        self._started = self._clock.monotonic()
        monkeypatch.setattr(execution, "time", self._clock)

    def begins(self, identity: Identity, planned: Plan, workers: int) -> None:
        self._clock.ahead = 3_599.0 - (self._clock.monotonic() - self._started)


def test_a_worker_may_be_silent_for_the_time_of_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may need longer than `--timeout`. That does not count as hanging."""
    assert answer_seconds("engine:delta-spark", 10.0) == DeltaSpark.seconds
    assert answer_seconds("engine:delta-spark@1.0.0", 2 * DeltaSpark.seconds) == 2 * DeltaSpark.seconds
    assert answer_seconds("engine:delta-sparc", 10.0) == answer_seconds("model", 10.0) == 10.0
    monkeypatch.setattr(execution, "answer_seconds", lambda *_: 7_200.0)
    result = run(f"{OURS}:Hanging", Late(monkeypatch), budget=3_600.0)
    assert "the budget of 3600 s expired" in result.stopped
    assert verdicts_of(result) == {results.Verdict.NOT_RUN}


def test_a_budget_too_small_to_open_the_subject_is_an_error() -> None:
    with pytest.raises(results.UnusableError) as refused:
        run("model", budget=0.001)
    assert refused.value.exit_code is results.ExitCode.INCOMPLETE
    assert "the budget of 0.001 s expired" in refused.value.problem
    with pytest.raises(results.UnusableError) as refused:
        run("modell", budget=LONG)
    assert refused.value.exit_code is results.ExitCode.USAGE


def test_a_dead_worker_is_reported_with_its_last_output() -> None:
    result = run(f"{OURS}:Dying", workers=2)
    assert (result.exit_code, result.complete) == (results.ExitCode.INCOMPLETE, False)
    died = [case for case in result.cases if "SIGKILL" in case.reason]
    assert len(died) == execution.MOST_MISHAPS
    assert all(case.verdict is results.Verdict.INCONCLUSIVE and "out of luck" in case.reason for case in died)


def test_a_violation_is_kept_although_the_worker_dies_in_the_same_family() -> None:
    only = Selection(check=("any-sequence-of-requests[managedCommit/staged]",))
    result = run(f"{OURS}:DyingAfterAViolation", selection=only)
    (case,) = result.cases
    assert (case.verdict, bool(case.history)) == (results.Verdict.FAILED, True)
    assert (result.exit_code, result.complete) == (results.ExitCode.VIOLATION, False)


def test_a_crashing_subject_is_not_conformant() -> None:
    served = f"stdio:{sys.executable} -m conformance serve {OURS}:DyingSometimes"
    result = run(served, selection=Selection(check=("pinned-programs-of-stale-reads[managedCommit/staged]", ONE.name)))
    assert any(case.verdict is results.Verdict.PASSED for case in result.cases)
    assert (result.exit_code, result.complete) == (results.ExitCode.INCOMPLETE, False)
    assert "exit code 7" in result.stopped


def test_a_changed_identity_is_found_on_reopening() -> None:
    result = run(f"{OURS}:Fickle")
    assert result.exit_code == results.ExitCode.USAGE
    assert "version was" in result.stopped
    assert "changed between" in result.stopped


def test_state_outside_the_folder_is_an_adapter_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run would find the tables of the first."""
    monkeypatch.setenv("ELSEWHERE", str(tmp_path))
    result = run(f"{OURS}:Elsewhere", selection=SMALL)
    assert (result.exit_code, verdicts_of(result)) == (results.ExitCode.USAGE, {results.Verdict.NOT_RUN})
    assert "state outside $CONFORMANCE_DIRECTORY" in result.stopped
    with pytest.raises(SystemExit) as ended:
        application(["smoke", f"{OURS}:Elsewhere"])
    assert ended.value.code == results.ExitCode.USAGE


def test_a_defect_of_the_kit_is_reported_and_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker fails because the case's table feature does not exist; the subject is not at fault."""
    listener = Listener()
    monkeypatch.setattr(worker_pool, "RunCase", _broken)
    result = run("model", listener)
    assert (result.exit_code, result.complete) == (results.ExitCode.INCOMPLETE, False)
    assert "a defect of the kit" in result.stopped
    assert any("Traceback" in note for note in listener.notes)


def _broken(**fields: object) -> object:
    from conformance.running.worker import RunCase

    return RunCase(**{**fields, "check": "no-such-check"})  # type: ignore[arg-type]


# Time and interruption


def test_ctrl_c_keeps_the_results_so_far() -> None:
    class Interrupts(Listener):
        def case(self, result: results.CaseResult, *, fails: bool, known: bool, seconds: float) -> None:
            super().case(result, fails=fails, known=known, seconds=seconds)
            if len(self.cases) == 2:
                raise KeyboardInterrupt

    result = run("model", Interrupts())
    assert [case.verdict for case in result.cases] == [results.Verdict.PASSED] * 2 + [results.Verdict.NOT_RUN] * 3
    assert (result.exit_code, result.complete, result.stopped) == (results.ExitCode.INCOMPLETE, False, "interrupted")


# One subject for all workers


def test_workers_share_a_subject_at_a_url_but_runs_use_different_tables() -> None:
    """The second run's tables have the same names with another salt."""
    model = InProcess(ModelOwner())
    with HttpServer(model.ask) as server:
        listener = Listener()
        for _ in range(2):
            result = run(server.url, listener, workers=2)
            assert result.exit_code == results.ExitCode.CONFORMANT, result.stopped
        assert listener.workers == 1, "a case that crashes the subject would disturb other workers"
        assert any("one worker" in note for note in listener.notes)
    assert model.ask("kit", Hello()) == model.identity


# A subject in a worker


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sets the temporary folder of its process."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())


def opened(subject: str, directory: Path) -> DrivenSubject:
    return DrivenSubject(Open(subject=subject, timeout=LONG, directory=str(directory), salt=""))


def one(seed: int = 1) -> RunCase:
    return RunCase(check=ONE.name, feature="catalogManaged", commit_mode="staged", seed=seed, count=1)


def test_a_case_does_not_depend_on_the_cases_before_it(tmp_path: Path) -> None:
    driven = opened(f"{OURS}:Wrong", tmp_path)
    first = driven.run(one(1))
    driven.run(one(2))
    assert driven.run(one(1)) == first
    driven.close()


# The plan: order, seeds and selection


QUICK = PROFILES["quick"]
OWNER = identity("staged", "inline", "idempotent-retry")


def test_fast_layers_come_first_and_core_families_before_others() -> None:
    cases = plan(OWNER, QUICK, 7).cases
    layers = [LAYERS.index(case.check.layer) for case in cases]
    assert layers == sorted(layers)
    families = [list(Family).index(case.check.family) for case in cases if case.check.layer is results.Layer.EXAMPLE]
    assert families == sorted(families)
    assert cases[0].check.layer is results.Layer.EXAMPLE


def test_a_case_is_evidence_only_for_requirements_of_the_subject() -> None:
    """Requirements of another table feature or of undeclared profiles are excluded."""
    cases = plan(identity("staged"), QUICK, 0).cases
    assert cases
    for planned in cases:
        other = "CM-" if planned.variant.feature == "managedCommit" else "MC-"
        assert not [
            requirement for requirement in planned.requirements if requirement.startswith((other, "PROFILE-RETRY"))
        ]


def test_checks_of_undeclared_promises_are_skipped_with_the_reason() -> None:
    needing = [check for check in all_checks() if check.side == "owner" and check.needs]
    assert needing
    skipped = {case.check: case for case in plan(identity(), QUICK, 0).skipped}
    for check in needing:
        assert skipped[check.name].verdict is results.Verdict.SKIPPED
        assert "does not declare" in skipped[check.name].reason


@pytest.mark.parametrize(
    "pattern",
    [
        ONE.name,
        f"concurrent-writers/{ONE.name}",
        f"concurrent-writers/{ONE.name}[managedCommit/staged]",
        f"{ONE.name}[catalogManaged/staged]",
        f"*/{ONE.name}[*/staged]",
    ],
)
def test_a_check_is_selected_by_name_by_case_or_by_pattern(pattern: str) -> None:
    chosen = plan(OWNER, QUICK, 0).selected(select(check=[pattern])).cases
    assert chosen
    assert {case.check.name for case in chosen} == {ONE.name}
    if "staged" in pattern:
        assert {case.variant.commit_mode for case in chosen} == {"staged"}


@pytest.mark.parametrize("text", ["", "0", "0s", "-5s", "5d", "a minute", "1e3", "inf"])
def test_an_invalid_duration_names_its_option(text: str) -> None:
    with pytest.raises(results.UnusableError, match="--budget"):
        seconds(text, "--budget")
    durations = {"90": 90, "60s": 60, "1.5m": 90, "2h": 7200, "500ms": 0.5}
    assert {duration: seconds(duration, "--budget") for duration in durations} == durations


def test_a_number_of_programs_runs_programs_alone_and_says_of_which_words() -> None:
    chosen = select(check=["any-sequence-*"], family=["restarts"])
    result = run("model", profile=profile_of_programs(3), selection=chosen)
    assert {(case.layer, case.programs, bool(case.words)) for case in result.cases} == {(results.Layer.MODEL, 3, True)}
