"""One case again, exactly as it was."""

from __future__ import annotations

from importlib import metadata

from conformance.checks.registry import all_checks
from conformance.reports.bundle import Finding
from conformance.results import RunResult, Verdict
from conformance.running import verdicts
from conformance.running.errors import ExitCode, UnusableError
from conformance.running.execution import Options
from conformance.running.profiles import profile_named
from conformance.running.selection import Selection


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
