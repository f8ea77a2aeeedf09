"""The coordinator of a run: plans the cases, hands them out to workers, enforces time limits, and derives the
result."""

import datetime
import platform
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final, Protocol

from conformance.adapters.wire import same_identity
from conformance.interface.messages import INTERFACE_VERSION, Identity
from conformance.interface.results import (
    PROGRAMS,
    CaseResult,
    Environment,
    ExitCode,
    KnownFailure,
    Layer,
    RunResult,
    SubjectFacts,
    UnusableError,
    Verdict,
    size_in_words,
)
from conformance.interface.subject import TIMEOUT, AdapterError
from conformance.programs.running import MOST_VIOLATIONS
from conformance.running import verdicts
from conformance.running.plan import EVERYTHING, PROFILES, Plan, PlannedCase, RunProfile, Selection, plan
from conformance.running.worker import Alive, Defect, Open, Opened, Ran, Report, Smoke, Smoked, Unusable, is_remote
from conformance.running.worker_pool import SILENCE_SECONDS, Died, WorkerPool, WorkerProcess, run_case_of, why
from conformance.subjects.names import answer_seconds
from conformance.subjects.smoke import first_hello

OPENING_SECONDS: Final = 60.0
"""Seconds for starting a process and opening its subject, in addition to the timeout of one answer."""

RESERVE: Final = 0.1
"""The share of the budget that the programs of an engine leave: one of them may take long."""

NO_TIME: Final = "less than a tenth of the budget is left for programs; pass a larger --budget"

MOST_MISHAPS: Final = 3
"""After so many cases whose worker died or hung, the run stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run."""

    subject: str
    profile: RunProfile = PROFILES["quick"]
    seed: int = 0
    workers: int = 1
    selection: Selection = EVERYTHING
    known: tuple[KnownFailure, ...] = ()
    strict: bool = False
    fail_fast: bool = False
    timeout: float = TIMEOUT
    budget: float | None = None
    """The time budget in seconds; None: the profile's budget."""
    reproduction: str | None = None
    """For the replay of one case: the reproduction of the generated scenario that failed."""

    @property
    def budget_seconds(self) -> float:
        return self.profile.budget_seconds if self.budget is None else self.budget


class Watcher(Protocol):
    """Receives the progress of a run."""

    def begins(self, identity: Identity, planned: Plan, workers: int) -> None: ...

    def case(self, result: CaseResult, *, fails: bool, known: bool, seconds: float) -> None:
        """A case ended. `seconds`: the time since the run began."""
        ...

    def note(self, text: str) -> None:
        """A message for people."""
        ...


class _Stopped(Exception):  # noqa: N818  # a way to leave the loop
    """The run cannot continue."""

    def __init__(self, why: str, code: ExitCode = ExitCode.INCOMPLETE) -> None:
        super().__init__(why)
        self.why = why
        self.code = code


def execute(options: Options, watcher: Watcher) -> RunResult:
    """Run all cases. Raises `UnusableError` if no case could run: after a usage error, or if the subject cannot be
    opened. Ctrl-C (`KeyboardInterrupt`) and an expired budget end the run early; then the result says what is
    missing."""
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as scratch:
        return _Run(options, watcher, Path(scratch)).execute()


@dataclass(slots=True, kw_only=True)
class _State:
    """The state of a run."""

    identity: Identity
    planned: Plan
    everything: tuple[str, ...]
    """The names of all cases, selected or not."""
    pending: deque[PlannedCase]
    doing: dict[int, PlannedCase] = field(default_factory=dict)
    """The case of each worker, by the worker's number."""
    results: dict[str, CaseResult] = field(default_factory=dict)
    """Of each case that ended or has shown a violation: its worker may not come to the end."""
    problems: list[str] = field(default_factory=list)
    """The reasons why the run is incomplete."""
    mishaps: int = 0
    first_failure: float | None = None
    smoke: str = ""
    """The owner's errors in the first requests."""
    code: ExitCode = ExitCode.CONFORMANT
    """The exit code, if an event stopped the run."""


class _Run:
    def __init__(self, options: Options, watcher: Watcher, scratch: Path) -> None:
        self._options = options
        self._watcher = watcher
        self._scratch = scratch
        self._answer_seconds = answer_seconds(options.subject, options.timeout)
        self._salt = f"_{secrets.token_hex(3)}" if is_remote(options.subject) else ""
        self._started = time.monotonic()
        self._at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

    def execute(self) -> RunResult:
        with WorkerPool(self._scratch) as pool:
            first = pool.start()
            identity = self._open(pool, first)
            state = self._plan(identity)
            with _stopping(state):
                self._smoke(pool, first, state)
                wanted = self._workers(identity, len(state.pending))
                self._watcher.begins(identity, state.planned, wanted)
                for _ in range(1, wanted):
                    self._send_open(pool.start())
                self._hand_out(pool, state)
        return self._conclude(state)

    # Opening

    def _send_open(self, worker: WorkerProcess) -> None:
        options = self._options
        worker.give(
            Open(subject=options.subject, timeout=options.timeout, directory=str(worker.directory), salt=self._salt)
        )

    def _open(self, pool: WorkerPool, worker: WorkerProcess) -> Identity:
        self._send_open(worker)
        report = self._answer(pool, "open", OPENING_SECONDS)
        if isinstance(report, Unusable) and report.expected:
            raise UnusableError(f"the adapter is broken:\n{first_hello(report.received, report.expected)}")
        if not isinstance(report, Opened):
            raise UnusableError(_problem(report, "the subject could not be opened"))
        worker.silent_since = None
        return report.identity

    def _answer(self, pool: WorkerPool, what: str, silence: float) -> Report | Died:
        """The next message of the only worker. It may be silent for `silence` seconds plus the timeout of one
        answer."""
        while True:
            left, limit = self._left(), silence + self._answer_seconds
            news = pool.news(max(0.0, min(left, limit)))
            if news is None and left < limit:
                raise UnusableError(
                    f"the budget of {self._options.budget_seconds:g} s expired before the subject "
                    f"{self._options.subject!r} could {what}; pass a larger --budget",
                    exit_code=ExitCode.INCOMPLETE,
                )
            if news is None:
                raise UnusableError(f"the subject {self._options.subject!r} did not {what}: no answer in {limit:.0f} s")
            if not isinstance(news[1], Alive):
                return news[1]

    def _smoke(self, pool: WorkerPool, worker: WorkerProcess, state: _State) -> None:
        """Stop the run if the subject does not implement the interface. Other errors of an owner are left to the
        cases."""
        worker.give(Smoke())
        try:
            report = self._answer(pool, "answer the first requests", SILENCE_SECONDS)
        except UnusableError as error:
            raise _Stopped(error.problem, error.exit_code) from error
        if not isinstance(report, Smoked):
            raise _Stopped(_problem(report, "the first requests"), ExitCode.USAGE)
        if report.report.adapter:
            raise _Stopped(f"the adapter is broken:\n{report.report.adapter}", ExitCode.USAGE)
        state.smoke = report.report.owner
        worker.silent_since = None

    def _workers(self, identity: Identity, cases: int) -> int:
        """The number of workers. If all workers share one process, and cases can crash it, only one worker is
        possible."""
        if is_remote(self._options.subject) and "harness-control" in identity.profiles and self._options.workers > 1:
            self._watcher.note("one worker: all would share the one process of the subject, and some cases crash it")
            return 1
        return max(1, min(self._options.workers, cases))

    def _plan(self, identity: Identity) -> _State:
        options = self._options
        everything = plan(identity, options.profile, options.seed)
        planned = everything.selected(options.selection)
        if not planned.cases:
            raise UnusableError(_nothing(planned, options, identity))
        return _State(identity=identity, planned=planned, everything=everything.order, pending=deque(planned.in_turn()))

    # Handing out

    def _hand_out(self, pool: WorkerPool, state: _State) -> None:
        while state.pending or state.doing:
            for worker in pool.workers:
                while worker.silent_since is None and state.pending:
                    self._give(worker, state)
            news = pool.news(self._seconds_to_deadline(pool, state))
            if news is not None:
                self._handle(pool, state, *news)
            self._check_deadlines(pool, state)

    def _give(self, worker: WorkerProcess, state: _State) -> None:
        case = state.pending.popleft()
        seconds = self._seconds_for_programs(case, state)
        if seconds is not None and self._left() < RESERVE * self._options.budget_seconds:
            state.problems.append(NO_TIME)
            self._record(state, case.without_verdict(Verdict.NOT_RUN, NO_TIME))
            return
        state.doing[worker.number] = case
        first_alone = self._options.fail_fast and not self._options.known
        most = 1 if first_alone else MOST_VIOLATIONS + len(self._options.known)
        worker.give(run_case_of(case, self._options.reproduction, most, seconds))

    def _seconds_for_programs(self, case: PlannedCase, state: _State) -> float | None:
        """How long the programs of the case may run; None: until all have run. An engine needs seconds for a program,
        or minutes if it retries a lost race without limit. So each family gets an equal share of half of what is left
        of the budget, unless `--programs` asks for a number."""
        profile = self._options.profile.name
        if not self._options.subject.startswith("engine:") or profile.startswith(PROGRAMS):
            return None
        if case.check.layer is not Layer.MODEL or self._options.reproduction is not None:
            return None
        families = 1 + sum(other.check.layer is Layer.MODEL for other in state.pending)
        return self._left() / 2 / families

    def _handle(self, pool: WorkerPool, state: _State, worker: WorkerProcess, report: Report | Died) -> None:
        if isinstance(report, Alive):
            if report.found is not None:
                self._found(state, report.found)
            return
        worker.silent_since = None
        match report:
            case Opened(identity=identity):
                try:
                    same_identity(state.identity, identity, f"the subject {self._options.subject!r}")
                except AdapterError as error:
                    raise _Stopped(error.problem, ExitCode.USAGE) from error
            case Ran(result=result):
                del state.doing[worker.number]
                self._record(state, result)
            case Unusable(problem=problem, result=shown):
                case_ = state.doing.pop(worker.number, None)
                if case_ is not None:
                    self._record(state, shown or case_.without_verdict(Verdict.INCONCLUSIVE, problem))
                where = f"{case_.name}: " if case_ is not None else ""
                raise _Stopped(f"{where}{problem}", ExitCode.USAGE)
            case Defect(where=where):
                self._watcher.note(where)
                self._mishap(state, worker, why(report))
            case Died():
                pool.reap(worker)
                self._mishap(state, worker, why(report))
                self._replace(pool, state)

    def _mishap(self, state: _State, worker: WorkerProcess, what: str) -> None:
        """Record that a case, or the opening of the subject, ended without a verdict because its worker died or
        hung."""
        case = state.doing.pop(worker.number, None)
        name = "while the subject was opened" if case is None else case.name
        state.problems.append(f"{name}: {what}")
        if case is not None:
            self._record(state, state.results.get(case.name) or case.without_verdict(Verdict.INCONCLUSIVE, what))
        state.mishaps += 1
        if state.mishaps >= MOST_MISHAPS:
            raise _Stopped(f"the run stopped after {MOST_MISHAPS} such cases")

    def _replace(self, pool: WorkerPool, state: _State) -> None:
        if state.pending:
            self._send_open(pool.start())

    def _found(self, state: _State, result: CaseResult) -> None:
        state.results[result.case] = result
        if state.first_failure is None and verdicts.failing([result], strict=self._options.strict):
            state.first_failure = round(time.monotonic() - self._started, 3)

    def _record(self, state: _State, result: CaseResult) -> None:
        self._found(state, result)
        seconds = time.monotonic() - self._started
        fails = bool(verdicts.failing([result], strict=self._options.strict))
        known = verdicts.is_known(result, self._options.known, strict=self._options.strict)
        self._watcher.case(result, fails=fails, known=known, seconds=seconds)
        if fails and not known and self._options.fail_fast:
            raise _Stopped("--fail-fast: stopped at the first failure")

    # The clock

    def _left(self) -> float:
        return self._started + self._options.budget_seconds - time.monotonic()

    def _seconds_to_deadline(self, pool: WorkerPool, state: _State) -> float:
        """Seconds until the next deadline."""
        return max(0.0, min([self._left(), *(self._may_be_silent(worker, state) for worker in pool.workers)]))

    def _may_be_silent(self, worker: WorkerProcess, state: _State) -> float:
        """For how many more seconds the worker may be silent."""
        if worker.silent_since is None:
            return self._left()
        limit = SILENCE_SECONDS if worker.number in state.doing else OPENING_SECONDS
        return worker.silent_since + limit + self._answer_seconds - time.monotonic()

    def _check_deadlines(self, pool: WorkerPool, state: _State) -> None:
        if self._left() <= 0:
            raise _Stopped(f"the budget of {self._options.budget_seconds:g} s expired")
        for worker in list(pool.workers):
            if self._may_be_silent(worker, state) <= 0:
                pool.reap(worker)
                self._mishap(state, worker, "no answer for a long time: the subject hangs")
                self._replace(pool, state)

    # The conclusion

    def _conclude(self, state: _State) -> RunResult:
        options = self._options
        cases = self._cases(state)
        without = verdicts.profiles_without_verdict(cases, state.identity)
        if without and state.code is ExitCode.CONFORMANT:
            state.problems.append(verdicts.without_verdict_in_words(without))
        if state.code is ExitCode.CONFORMANT and not state.problems:
            state.problems += verdicts.too_little(tuple(state.results.values()))
        if state.smoke and not verdicts.failing(cases):
            state.problems.append(f"no case failed, but the first requests did: {state.smoke}")
        stale = verdicts.stale(options.known, cases, state.everything)
        return RunResult(
            kit_version=metadata.version("delta-commit-owner"),
            interface_version=INTERFACE_VERSION,
            subject=_facts(options.subject, state.identity),
            profile=options.profile.name,
            seed=options.seed,
            selection=str(options.selection),
            complete=not state.problems,
            stopped="; ".join(dict.fromkeys(state.problems)),
            strict=options.strict,
            cases=cases,
            requirements=verdicts.requirement_results(cases, state.identity),
            known=options.known,
            stale=stale,
            environment=Environment(
                started=self._at,
                seconds=round(time.monotonic() - self._started, 3),
                python=platform.python_version(),
                platform=f"{platform.system()} {platform.machine()}",
                first_failure_seconds=state.first_failure,
            ),
            exit_code=self._exit_code(state, cases, stale),
        )

    def _exit_code(self, state: _State, cases: tuple[CaseResult, ...], stale: tuple[KnownFailure, ...]) -> ExitCode:
        if state.code is ExitCode.USAGE:
            return ExitCode.USAGE
        strict = self._options.strict
        unknown = [
            case
            for case in verdicts.failing(cases, strict=strict)
            if not verdicts.is_known(case, self._options.known, strict=strict)
        ]
        if unknown or stale:
            return ExitCode.VIOLATION
        if state.problems or not any(case.held for case in cases):
            return ExitCode.INCOMPLETE
        return ExitCode.CONFORMANT

    def _cases(self, state: _State) -> tuple[CaseResult, ...]:
        """The results in the order of the plan, whichever worker ran them."""
        why = state.problems[-1] if state.problems else ""
        return tuple(
            state.results.get(case.name) or case.without_verdict(Verdict.NOT_RUN, why) for case in state.planned.cases
        ) + tuple(state.planned.skipped)


@contextmanager
def _stopping(state: _State) -> Iterator[None]:
    """Add the reason for an early end to the run's result."""
    try:
        yield
    except _Stopped as stopped:
        state.problems.append(stopped.why)
        state.code = stopped.code
    except KeyboardInterrupt:
        state.problems.append("interrupted")
        state.code = ExitCode.INCOMPLETE


def _problem(report: Report | Died, what: str) -> str:
    return report.problem if isinstance(report, Unusable) else f"{what}: {why(report)}"


def _facts(named: str, identity: Identity) -> SubjectFacts:
    return SubjectFacts(
        named=named,
        name=identity.name,
        version=identity.version,
        side=identity.side,
        profiles=identity.profiles,
        commit_modes=identity.commit_modes,
        promises=identity.promises,
    )


def _nothing(planned: Plan, options: Options, identity: Identity) -> str:
    what = f"{options.selection} selects" if options.selection else f"{size_in_words(options.profile.name)} has"
    if planned.skipped:
        reasons = dict.fromkeys(case.reason for case in planned.skipped)
        return f"nothing to run: {what} {len(planned.skipped)} checks, and none applies: {'; '.join(list(reasons)[:3])}"
    return f"nothing to run: {what} no check for a subject of the side {identity.side!r}"
