"""The command `replay`."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer

from conformance.checks.registry import all_checks
from conformance.command.options import TIMEOUT_TEXT, JsonOption, TimeoutOption
from conformance.command.output import say
from conformance.command.progress import progress
from conformance.command.running import interruptible
from conformance.command.summary import show_result
from conformance.reports import read_finding, to_json
from conformance.reports.bundle import Finding
from conformance.results import RunResult, Verdict
from conformance.running import verdicts
from conformance.running.errors import ExitCode, UnusableError
from conformance.running.execution import Options, execute
from conformance.running.plan import Selection
from conformance.running.profiles import profile_named, seconds

_EPILOG: Final = """Examples:

delta-commit-conformance replay report/findings/some-case/finding.json

delta-commit-conformance replay finding.json 'stdio:./my-owner --debug'"""


def register(application: typer.Typer) -> None:
    application.command(epilog=_EPILOG)(replay)


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FINDING.json", help="finding.json from a bundle that `run --report` wrote")
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="SUBJECT", help="other subject (default: the finding's own)", show_default=False),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="SUBJECT", help="same as the argument SUBJECT")
    ] = None,
    json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_TEXT,
) -> None:
    """Replay the case of a finding, on the same subject or on another one.

    Exit code 0: the case passes; 1: it still fails; 2: invalid file or subject; 3: no verdict.
    """
    if other is not None and subject is not None and other != subject:
        raise UnusableError(f"two subjects given: {other!r} and --subject {subject!r}; pass one of them")
    subject = subject or other
    finding = read_finding(file)
    for remark in remarks(finding, subject):
        say(f"note: {remark}")
    options = options_of(finding, subject=subject, timeout=seconds(timeout, "--timeout"))
    with interruptible(), progress() as watcher:
        result = execute(options, watcher)
    if json:
        print(to_json(result), end="")
    else:
        show_result(result, None)
    raise typer.Exit(replay_code(result))


def options_of(finding: Finding, *, subject: str | None, timeout: float) -> Options:
    """The run that consists of the finding's case alone. `subject`: instead of the finding's. Raises `UnusableError`
    for a check that this version of the kit does not have."""
    if finding.check not in {check.name for check in all_checks()}:
        raise UnusableError(
            f"this version of the kit has no check {finding.check!r}; the finding is from version {finding.kit_version}"
        )
    return Options(
        subject=subject or finding.subject.named,
        profile=profile_named(finding.profile),
        seed=finding.seed,
        selection=Selection(check=(finding.case,)),
        strict=finding.strict,
        timeout=timeout,
        reproduction=finding.reproduction,
    )


def remarks(finding: Finding, subject: str | None) -> list[str]:
    """Why the replay may not show what the finding showed."""
    found = []
    kit = metadata.version("delta-commit-owner")
    if finding.kit_version != kit:
        found.append(f"the finding is from version {finding.kit_version} of the kit; this is {kit}")
    if subject is not None and subject != finding.subject.named:
        found.append(f"the finding is about {finding.subject.named}; this is {subject}")
    return found


def replay_code(result: RunResult) -> ExitCode:
    """As `replay` promises: 1 if the case still fails, 0 if it passes; a case without a verdict is neither."""
    if result.exit_code == ExitCode.USAGE:
        return ExitCode.USAGE
    if verdicts.failing(result.cases, strict=result.strict):
        return ExitCode.VIOLATION
    judged = [case for case in result.cases if case.verdict is not Verdict.SKIPPED]
    passed = bool(judged) and all(case.verdict in verdicts.JUDGED for case in judged)
    return ExitCode.CONFORMANT if passed else ExitCode.INCOMPLETE
