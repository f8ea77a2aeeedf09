"""The commands that test a subject: `run`, `smoke` and `replay`, and their progress display."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import partial
from importlib import metadata
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from conformance.command.output import (
    TIMEOUT_TEXT,
    ClasspathOption,
    JsonOption,
    SubjectArgument,
    TimeoutOption,
    argument,
    option,
    say,
    show,
    show_json,
)
from conformance.interface.results import CaseResult, ExitCode, RunResult, UnusableError, Verdict, counted
from conformance.interface.safe_text import one_line
from conformance.interface.subject import how_to_install
from conformance.running.plan import PROFILES, chosen_profile, profile_of_result, seconds

if TYPE_CHECKING:
    from conformance.interface.messages import Identity
    from conformance.reports import Finding
    from conformance.running.execution import Options
    from conformance.running.plan import Plan
    from conformance.subjects.smoke import Step

LINE_SECONDS: Final = 5.0
"""Seconds between two plain lines of progress."""
_LONGEST: Final = 240
_EXTRA_OF: Final = {"jinja2": "conformance", "py4j": "jvm", "pyspark": "jvm"}
"""The extra that installs a library, by library."""


ProfileOption = Annotated[str, option("--profile -p NAME", f"size of the run: {', '.join(PROFILES)}")]
SeedOption = Annotated[int, option("--seed N", "seed of the generated scenarios")]
WorkersOption = Annotated[
    str, option("-n --workers N", "number of worker processes, each with its own subject; or: auto")
]


def run(
    subject: SubjectArgument = None,
    classpath: ClasspathOption = None,
    profile: Annotated[
        str | None, option("--profile -p NAME", f"size of the run: {', '.join(PROFILES)} (default: quick)")
    ] = None,
    budget: Annotated[
        str | None,
        option(
            "--budget TIME",
            "maximum time (quick 5m, standard 1h, thorough 8h); a run that exceeds it is incomplete (exit code 3)",
        ),
    ] = None,
    programs: Annotated[
        int | None,
        option(
            "--programs N",
            "only programs: all pinned ones, and N generated ones for each family, table feature and commit mode (not "
            "with --profile; budget 1h)",
        ),
    ] = None,
    seed: SeedOption = 0,
    workers: WorkersOption = "auto",
    check: Annotated[
        list[str] | None,
        option("--check PATTERN", "only checks or cases with this name (repeatable; `*` matches any text)"),
    ] = None,
    requirement: Annotated[
        list[str] | None,
        option("--requirement ID", "only cases about this requirement (repeatable; `*` matches any text)"),
    ] = None,
    family: Annotated[
        list[str] | None, option("--family NAME", "only checks of this family (repeatable; all: `list families`)")
    ] = None,
    layer: Annotated[
        list[str] | None, option("--layer NAME", "only this layer: example, model or processes (repeatable)")
    ] = None,
    known: Annotated[Path | None, option("--known FILE", "list of known failures with reasons (TOML)")] = None,
    write_known: Annotated[
        Path | None, option("--write-known FILE", "write a list of known failures from this run")
    ] = None,
    report: Annotated[
        Path | None,
        option("--report FOLDER", "write the HTML page, JSON, JUnit, Markdown, badge and findings to this folder"),
    ] = None,
    json: JsonOption = False,
    strict: Annotated[bool, option("--strict", "also fail on a violated SHOULD")] = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
    fail_fast: Annotated[bool, option("--fail-fast", "stop at the first failure")] = False,
) -> None:
    """Test a subject against every requirement that applies to it.

    The verdict goes to stdout, progress to stderr. The same seed and subject give the same result, independent of
    the selection and of the number of workers. The exceptions are the layer `processes`, whose cases
    run concurrently, and engines, whose number of programs depends on time.
    """
    from conformance.reports import ReportFolder
    from conformance.running import verdicts
    from conformance.running.execution import Options, execute
    from conformance.running.plan import select

    named = subject_of(subject, classpath)
    require_libraries(named, report=report is not None)
    options = Options(
        subject=named,
        profile=chosen_profile(profile, programs),
        seed=seed,
        workers=number_of(workers),
        selection=select(check=check or (), requirement=requirement or (), family=family or (), layer=layer or ()),
        known=() if known is None else verdicts.read(known),
        strict=strict,
        fail_fast=fail_fast,
        timeout=seconds(timeout, "--timeout"),
        budget=None if budget is None else seconds(budget, "--budget"),
    )
    if write_known is not None:
        _must_be_new(write_known, known)
    with ExitStack() as stack:
        folder = None if report is None else stack.enter_context(ReportFolder(report))
        with interruptible():
            result = execute(options, Progress())
        unwritten = folder is not None and _unwritten(partial(folder.write, result))
        if write_known is not None:
            unwritten |= _unwritten(partial(_write_known, write_known, result))
    unwritten |= _unprinted(result, None if unwritten else report, json=json)
    raise typer.Exit(result.exit_code or (ExitCode.USAGE if unwritten else ExitCode.CONFORMANT))


def _unprinted(result: RunResult, folder: Path | None, *, json: bool) -> bool:
    """Print the result. Whether that failed: then the reason and the verdict are on stderr."""
    from conformance.reports import to_json
    from conformance.reports.text import to_text

    try:
        print(to_json(result), end="") if json else show(to_text(result, folder))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        say(f"error: the result cannot be printed: {error.strerror}")
        with redirect_stdout(sys.stderr):
            show(to_text(result, folder))
        return True
    return False


def _unwritten(write: Callable[[], object]) -> bool:
    """Whether writing failed. The reason is printed, because the verdict must not be lost."""
    from conformance.reports import ReportError

    try:
        write()
    except (OSError, ReportError) as error:
        say(f"error: {error}")
        return True
    return False


def subject_of(name: str | None, classpath: str | None = None) -> str:
    """The subject's name with the class path. Without a subject, raises `UnusableError` with the possible forms."""
    from conformance.subjects.names import FORMS

    if name is None or not name.strip():
        raise UnusableError(f"SUBJECT is required; it is one of\n{FORMS}")
    if classpath is None:
        return name
    if not name.startswith("jvm:"):
        raise UnusableError(f"--classpath works only with a subject jvm:CLASS, not with {name!r}")
    return f"{name} --classpath {shlex.quote(classpath)}"


def require_libraries(subject: str, *, report: bool = False) -> None:
    """Raises `UnusableError` if a library is missing that the worker processes need for this subject."""
    needed = [*(["jinja2"] if report else []), *(["py4j", "pyspark"] if subject.startswith("jvm:") else [])]
    for library in needed:
        require_library(library, _EXTRA_OF[library])


def require_library(library: str, extra: str) -> None:
    """Raises `UnusableError` if the library is missing. `extra`: the extra that installs it."""
    if importlib.util.find_spec(library) is None:
        raise UnusableError(f"the library {library} is missing; install it: {how_to_install(extra)}")


@contextmanager
def interruptible() -> Iterator[Event]:
    """Ctrl-C ends a run with its results so far, and so does SIGTERM, with which CI systems cancel; also if SIGINT is
    ignored, as in background jobs of a shell. Either sets the event: `execute` then ends in order, and so must the
    caller."""
    interrupted = Event()

    def interrupt(*_: Any) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def number_of(workers: str) -> int:
    if workers == "auto":
        return max(1, min(os.cpu_count() or 1, 4))
    if not workers.isdecimal() or not int(workers):
        raise UnusableError(f"invalid --workers {workers!r}; expected a number >= 1, or auto")
    return int(workers)


def _must_be_new(file: Path, known: Path | None) -> None:
    """Raises `UnusableError` if the list exists, because its users wrote the reasons in it."""
    if file.exists() and (known is None or file.resolve() != known.resolve()):
        raise UnusableError(f"{file} already exists; pass it with --known too to keep its reasons, or delete it")


def _write_known(file: Path, result: RunResult) -> None:
    from conformance.running import verdicts

    if not result.complete:
        say(f"{file} was not written: the run is incomplete")
        return
    file.write_text(verdicts.generate(result.subject.named, result.cases, result.known, strict=result.strict), "utf-8")
    failures = sum(line == "[[known-failure]]" for line in file.read_text("utf-8").splitlines())
    say(f"{file}: {counted(failures, 'known failure')}; fill in the empty reasons, then run with --known {file}")


# Smoke test and replay


def smoke(
    subject: SubjectArgument = None,
    classpath: ClasspathOption = None,
    json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
) -> None:
    """Send a subject the first requests, and separate adapter errors from owner errors.

    Exit code 0: no error; 1: an answer that the first requests rule out; 2: the adapter is broken, no verdict is
    possible; 3: incomplete.
    """
    from conformance.running.worker_pool import Session
    from conformance.subjects.smoke import first_hello

    named = subject_of(subject, classpath)
    require_libraries(named)
    try:
        with Session(named, timeout=seconds(timeout, "--timeout")) as session:
            report = session.smoke()
    except UnusableError as error:
        if not error.expected:
            raise
        _show_first_hello(first_hello(error.received, error.expected), json=json)
        raise typer.Exit(ExitCode.USAGE) from None
    if json:
        show_json({"ok": report.ok, "adapter": report.adapter, "owner": report.owner, "steps": report.steps})
    else:
        show(str(report))
    if report.adapter:
        raise typer.Exit(ExitCode.USAGE)
    if report.owner:
        raise typer.Exit(ExitCode.VIOLATION)
    raise typer.Exit(ExitCode.CONFORMANT if report.ok else ExitCode.INCOMPLETE)


def _show_first_hello(step: Step, *, json: bool) -> None:
    """Show an invalid first answer to `hello`; such a subject has no name, and gets no further requests."""
    if json:
        show_json({"ok": False, "adapter": str(step), "owner": "", "steps": [step]})
    else:
        show(f"the adapter is broken; fix it to get a verdict\n{step}")


def replay(
    file: Annotated[Path, argument("FINDING.json", "finding.json from a bundle that `run --report` wrote")],
    subject: Annotated[
        str | None, option("--subject SUBJECT", "another subject than the finding's", show_default=False)
    ] = None,
    json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
) -> None:
    """Replay the case of a finding, on the same subject or on another one.

    Exit code 0: the case passes; 1: it still fails; 2: invalid file or subject; 3: no verdict.
    """
    from conformance.reports import read_finding
    from conformance.running.execution import execute

    finding = read_finding(file)
    for remark in remarks(finding, subject):
        say(f"note: {remark}")
    options = options_of(finding, subject=subject, timeout=seconds(timeout, "--timeout"))
    require_libraries(options.subject)
    with interruptible():
        result = execute(options, Progress())
    _unprinted(result, None, json=json)
    raise typer.Exit(replay_code(result))


def options_of(finding: Finding, *, subject: str | None, timeout: float) -> Options:
    """The options of a run of the finding's case alone. `subject` replaces the finding's. Raises `UnusableError`
    for a check that this version of the kit does not have, or a reproduction that it cannot read."""
    from conformance.checks import all_checks
    from conformance.programs.cases import check_reproduction
    from conformance.programs.program import NotAProgramError
    from conformance.running.execution import Options
    from conformance.running.plan import Selection

    check = next((check for check in all_checks() if check.name == finding.check), None)
    if check is None:
        raise UnusableError(
            f"this version of the kit has no check {finding.check!r}; the finding is from version {finding.kit_version}"
        )
    try:
        if finding.reproduction is not None:
            check_reproduction(check, finding.reproduction)
    except NotAProgramError as error:
        raise UnusableError(
            f"the finding's `reproduction` cannot be replayed: {error.problem}. The finding is from version "
            f"{finding.kit_version} of the kit; find the violation again with `run`"
        ) from error
    return Options(
        subject=subject or finding.subject.named,
        profile=profile_of_result(finding.profile),
        seed=finding.seed,
        selection=Selection(check=(finding.case,)),
        strict=finding.strict,
        timeout=timeout,
        reproduction=finding.reproduction,
    )


def remarks(finding: Finding, subject: str | None) -> list[str]:
    """The reasons why the replay may differ from the finding."""
    reasons = []
    kit = metadata.version("delta-commit-owner")
    if finding.kit_version != kit:
        reasons.append(f"the finding is from version {finding.kit_version} of the kit; this is {kit}")
    if subject is not None and subject != finding.subject.named:
        reasons.append(f"the finding is about {finding.subject.named}; this is {subject}")
    return reasons


def replay_code(result: RunResult) -> ExitCode:
    """The exit code of `replay`: 1 if the case still fails, 0 if it passes, another one without a verdict."""
    from conformance.running import verdicts

    if result.exit_code == ExitCode.USAGE:
        return ExitCode.USAGE
    if verdicts.failing(result.cases, strict=result.strict):
        return ExitCode.VIOLATION
    judged = [case for case in result.cases if case.verdict is not Verdict.SKIPPED]
    passed = bool(judged) and all(case.verdict in verdicts.JUDGED for case in judged)
    return ExitCode.CONFORMANT if passed else ExitCode.INCOMPLETE


# Progress


class Progress:
    """Prints a line for the first failure of each check that no earlier line says, and lines of progress."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self.failed = 0
        self._shown: set[tuple[str, bool, bool]] = set()
        self._last = time.monotonic()

    def begins(self, identity: Identity, planned: Plan, workers: int) -> None:
        self.total = len(planned.cases)
        skipped = f", {len(planned.skipped)} skipped" if planned.skipped else ""
        say(
            f"{one_line(identity.name)} {one_line(identity.version)}, {identity.side}: "
            f"{counted(self.total, 'case')}{skipped}, {counted(workers, 'worker')}"
        )

    def case(self, result: CaseResult, *, fails: bool, known: bool, seconds: float) -> None:
        self.done += 1
        kind = "known failure" if known else "warning"
        if fails and not known:
            kind = f"FAILED after {seconds:.1f} s{'' if self.failed else ', the first failure'}"
            self.failed += 1
        if fails or result.verdict is Verdict.FAILED:
            failure = _failure(result)
            alike = {(words, fails, known) for words in (result.check, failure)}
            if alike.isdisjoint(self._shown):
                say(f"{kind}: {result.case}: {failure}")
                self._shown |= alike
        self._moved()

    def note(self, text: str) -> None:
        say(f"note: {text}")

    def _moved(self) -> None:
        if self.done == self.total or time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            say(f"{self.done} of {counted(self.total, 'case')}, {self.failed} failed")


def _failure(result: CaseResult) -> str:
    from conformance.reports.summary import direct_first

    first = direct_first(result.violations)[0]
    message = one_line(first.message)
    cut = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ..."
    return f"{', '.join(first.requirements)}: {cut}"
