"""The cases of the kit as items of pytest.

Inconclusive cases, and cases that the subject does not promise, are skipped with the reason. But a session fails at its
end if no case passed, or if a declared profile came to no verdict.
"""

import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from conformance.checkers.check import describe
from conformance.history.events import InvalidHistoryError
from conformance.interface.messages import Identity
from conformance.interface.results import (
    CaseResult,
    KnownFailure,
    UnusableError,
    Verdict,
    Violation,
    counted,
    size_in_words,
    size_options,
)
from conformance.interface.safe_text import one_line, visible
from conformance.interface.subject import AdapterError
from conformance.reports.recorded import began, read_history, sides, to_draw
from conformance.reports.stored import COMMAND
from conformance.reports.summary import in_full
from conformance.running import verdicts
from conformance.running.plan import PlannedCase, chosen_profile, plan, seconds
from conformance.running.worker_pool import Session

RESULT: Final = "commit_owner_case"
"""The attribute of a report that holds the result of its case as JSON, for other processes."""


class ConformanceFailure(Exception):  # noqa: N818  # pytest shows only its text
    """A requirement is violated."""


class Kit:
    """The plugin of one session. It is registered only if the options name a subject."""

    def __init__(self, config: pytest.Config) -> None:
        """Raises `pytest.UsageError` for invalid options."""
        self._config = config
        self.subject: str = config.getoption("commit_owner_subject")
        self.seed: int = config.getoption("commit_owner_seed")
        self.strict: bool = config.getoption("commit_owner_strict")
        self.known: tuple[KnownFailure, ...] = ()
        self._session: Session | None = None
        self._identity: Identity | None = None
        self._results: list[CaseResult] = []
        self._conclusion = ""
        known = config.getoption("commit_owner_known")
        try:
            self.profile = chosen_profile(
                config.getoption("commit_owner_profile"), config.getoption("commit_owner_programs"), "--commit-owner-"
            )
            self._timeout = seconds(config.getoption("commit_owner_timeout"), "--commit-owner-timeout")
            if known is not None:
                self.known = verdicts.read(Path(known))
        except UnusableError as error:
            raise pytest.UsageError(error.problem) from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """End the session here, with one message, if the subject cannot be tested."""
        if hasattr(self._config, "workerinput"):
            return  # the main process has checked the subject
        try:
            opened = self.session
            self._identity = opened.identity
            problem = opened.smoke().adapter
        except (UnusableError, AdapterError) as error:
            problem = error.problem
        if problem:
            raise pytest.UsageError(f"the subject {one_line(self.subject)}: {visible(problem)}")
        if self._config.pluginmanager.hasplugin("dsession"):
            self._close()  # the workers open their own subjects

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = Session(self.subject, timeout=self._timeout)
            self._config.add_cleanup(self._close)
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def pytest_report_header(self) -> str:
        who = "" if self._identity is None else f", {one_line(f'{self._identity.name} {self._identity.version}')}"
        return f"commit owner: {one_line(self.subject)}{who}, {size_in_words(self.profile.name)}, seed {self.seed}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the cases before `-k` and `-m` select items."""
        cases: Cases = Cases.from_parent(session, name="commit-owner", nodeid="commit-owner", kit=self)
        items.extend(cases.collect())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        if isinstance(item, Case) and item.result is not None and report.when == "call":
            slim = msgspec.structs.replace(item.result, history=None, others=())
            setattr(report, RESULT, msgspec.json.encode(slim).decode())
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the results, in the main process."""
        text = getattr(report, RESULT, None)
        if text is not None and not hasattr(self._config, "workerinput"):
            self._results.append(msgspec.json.decode(text, type=CaseResult))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail the session for problems that belong to no single item."""
        if hasattr(self._config, "workerinput") or self._config.option.collectonly or self._identity is None:
            return
        self._conclusion = self._conclude(self._identity)
        if self._conclusion and exitstatus == pytest.ExitCode.OK:
            nothing = not self._results
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED if nothing else pytest.ExitCode.TESTS_FAILED

    def _conclude(self, identity: Identity) -> str:
        if not self._results:
            return "no case of the kit was run"
        everything = plan(identity, self.profile, self.seed).order
        stale = verdicts.stale(self.known, self._results, everything)
        if stale:
            return f"known failures that are no longer true: {', '.join(entry.case for entry in stale)}"
        failed = verdicts.failing(self._results, strict=self.strict)
        without = verdicts.profiles_without_verdict(self._results, identity)
        if without:
            return verdicts.without_verdict_in_words(without)
        if not failed and not any(case.verdict is Verdict.PASSED for case in self._results):
            return "no case came to a verdict"
        return ""

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._conclusion:
            terminalreporter.section("commit owner", red=True)
            terminalreporter.line(visible(self._conclusion))


class Cases(pytest.Collector):
    """All cases for the subject."""

    def __init__(self, *, kit: Kit, **options: Any) -> None:
        super().__init__(**options)
        self._kit = kit

    def collect(self) -> "Iterator[Case]":
        kit = self._kit
        for planned in plan(kit.session.identity, kit.profile, kit.seed).cases:
            yield Case.from_parent(self, name=planned.name, planned=planned, kit=kit)


class Case(pytest.Item):
    """One case."""

    def __init__(self, *, planned: PlannedCase, kit: Kit, **options: Any) -> None:
        super().__init__(**options)
        self._planned = planned
        self._kit = kit
        self.result: CaseResult | None = None

    def runtest(self) -> None:
        try:
            result = self.result = self._kit.session.run(self._planned)
        except AdapterError as error:
            raise pytest.UsageError(f"the subject {one_line(self._kit.subject)}: {visible(error.problem)}") from None
        failing = bool(verdicts.failing([result], strict=self._kit.strict))
        if failing and verdicts.is_known(result, self._kit.known, strict=self._kit.strict):
            pytest.xfail("; ".join(_reasons(result, self._kit.known)))
        if failing:
            raise ConformanceFailure(self._explanation(result))
        if result.verdict is Verdict.FAILED:
            self.warn(pytest.PytestWarning(self._explanation(result)))
        elif result.verdict is not Verdict.PASSED:
            pytest.skip(f"{result.verdict}: {one_line(result.reason)}")

    def _explanation(self, result: CaseResult) -> str:
        return explanation(result, self._kit.subject, self._kit.profile.name, self._kit.seed)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, ConformanceFailure | pytest.UsageError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return Path("commit-owner"), None, self.name


def explanation(result: CaseResult, subject: str, profile: str, seed: int) -> str:
    """What contradicts what, for the person who reads the output of the tests; and the command that shows it again."""
    parts = []
    for shown in result.by_program():
        parts += [f"{shown.case}, after {counted(shown.operations, 'operation')}", shown.title]
        for violation in shown.violations:
            parts += in_full(violation)
        if shown.history is not None:
            parts.append("\n".join(["What happened:", *_happened(shown.history, shown.violations[0])]))
        if shown.reason:
            parts.append(f"Note: {shown.reason}")
    words = [COMMAND, "run", *size_options(profile), "--seed", str(seed), "--check", result.case, "--", subject]
    parts.append(f"Again: {shlex.join(words)}")
    return visible("\n\n".join(parts))


def _happened(history: str, violation: Violation) -> list[str]:
    """A line for each operation around the contradiction, whose sides are marked."""
    try:
        recorded = read_history(history)
    except InvalidHistoryError as error:
        return [f"  the history cannot be read: {error.problem}"]
    marked, shown = sides(recorded, violation), to_draw(recorded, violation)
    left_out = len(recorded.steps) - len(shown)
    lines = [(began(step), f"{'>' if step.id in marked else ' '} {describe(step)}") for step in shown]
    lines += [(fault.at, f"  fault: {fault.kind}") for fault in recorded.faults]
    texts = [text for _, text in sorted(lines)]
    return [*texts, f"  ... and {left_out} more"] if left_out else texts


def _reasons(result: CaseResult, known: tuple[KnownFailure, ...]) -> list[str]:
    reasons = [
        entry.reason for violation in result.violations for entry in known if entry.covers(result.case, violation)
    ]
    return list(dict.fromkeys(reasons))
