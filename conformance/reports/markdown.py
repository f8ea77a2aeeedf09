"""A summary in Markdown, for a CI job's summary or a pull request: the verdict, what is violated, how to see it again.

Whatever a subject chose is escaped: it makes no heading, no link, no mention and no HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from conformance.reports.bundle import bundle_name, finding_of, replay_command, run_command
from conformance.reports.summary import (
    Evidence,
    Standing,
    Tone,
    direct_first,
    evidence,
    failing_cases,
    levels_of,
    plural,
    reason_for,
    standing,
    summarise,
    twins_in_words,
)
from conformance.requirements.catalogue import Level, origin
from conformance.results import CaseResult, RequirementVerdict, RunResult, Violation
from conformance.safe_text import block, code, escaped

MOST_CASES: Final = 3
"""Of one requirement. All of them are in the other reports."""
MOST_OPEN: Final = 20
"""Cases without a verdict that are named."""
LONGEST: Final = 1_500
"""Characters of one explanation. GitHub takes 1 MiB for the summary of a job."""

_SIGNS: Final = {Tone.GOOD: "✅", Tone.WARNING: "⚠️", Tone.BAD: "❌", Tone.UNKNOWN: "❓"}


def to_markdown(result: RunResult, folder: Path | None = None) -> str:
    """`folder`: where the reports are, if there are bundles to replay from."""
    return "\n".join(_lines(result, folder)) + "\n"


def _lines(result: RunResult, folder: Path | None) -> Iterator[str]:
    summary = summarise(result)
    yield f"# {_SIGNS[summary.tone]} {escaped(summary.sentence)}"
    yield ""
    profiles = ", ".join(map(escaped, result.subject.profiles)) or "none"
    yield f"- Subject: {code(result.subject.named)} ({escaped(summary.subject)}), side {escaped(result.subject.side)}"
    yield f"- It declares: {profiles}"
    selection = f", only {code(result.selection)}" if result.selection else ""
    yield f"- Run: profile {escaped(result.profile)}, seed {result.seed}{selection}; {escaped(summary.exit_meaning)}"
    yield f"- Cases: {', '.join(f'{number:,} {where}' for where, number in summary.cases.items() if number) or 'none'}"
    yield ""
    yield from _requirements(result, folder, RequirementVerdict.VIOLATED, "Violated")
    yield from _requirements(result, folder, RequirementVerdict.WARNED, "Advice that is not followed")
    yield from _without_requirement(result, folder)
    yield from _stale(result)
    yield from _open(result)
    yield "The same run again:"
    yield ""
    yield block(run_command(result))
    kit = f"Kit {result.kit_version}, interface {result.interface_version}"
    environment = result.environment
    if environment.started:
        kit += f"; {environment.started}, {environment.seconds:.1f} s, {environment.platform}, {environment.python}"
    yield ""
    yield escaped(kit)


def _requirements(result: RunResult, folder: Path | None, verdict: RequirementVerdict, heading: str) -> Iterator[str]:
    found = [each for each in evidence(result) if each.requirement.verdict is verdict]
    if found:
        yield f"## {heading} ({sum(1 + len(each.twins) for each in found)})"
        yield ""
    for each in found:
        yield from _requirement(result, each, folder)


def _requirement(result: RunResult, found: Evidence, folder: Path | None) -> Iterator[str]:
    requirement = found.requirement
    place = origin(requirement.level, requirement.source, requirement.section)
    yield f"### {escaped(requirement.requirement)} ({escaped(place)})"
    yield ""
    yield f"> {escaped(requirement.paraphrase)}"
    if requirement.rule:
        yield ">"
        yield f"> {escaped(requirement.section)}: {escaped(requirement.rule)}"
    if requirement.links:
        yield ""
        yield f"Source: {', '.join(f'[{escaped(each.title)}]({each.url})' for each in requirement.links)}"
    yield ""
    if found.twins:
        yield f"{escaped(twins_in_words(found))}."
        yield ""
    for case, violation in found.findings[:MOST_CASES]:
        yield from _finding(result, case, violation, folder)
    if len(found.findings) > MOST_CASES:
        yield f"And in {plural(len(found.findings) - MOST_CASES, 'more case')}."
        yield ""


def _finding(result: RunResult, case: CaseResult, violation: Violation, folder: Path | None) -> Iterator[str]:
    known = reason_for(result, case, violation)
    note = f" (known: {escaped(known)})" if known else ""
    yield f"{code(case.case)} after {plural(case.operations, 'operation')}{note}: {escaped(_cut(violation.message))}"
    yield ""
    again = run_command(result, case) if folder is None else replay_command(finding_of(folder, bundle_name(case)))
    yield block(again)
    yield ""


def _cut(text: str) -> str:
    return (
        text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters; all in the other reports)"
    )


def _without_requirement(result: RunResult, folder: Path | None) -> Iterator[str]:
    """What failed, and names no requirement that the list of this run has."""
    levels: dict[str, Level] = levels_of(result)
    cases = [
        case
        for case in failing_cases(result)
        if not any(each in levels for violation in case.violations for each in violation.requirements)
    ]
    if cases:
        yield f"## Failed otherwise ({len(cases)})"
        yield ""
    for case in cases[:MOST_OPEN]:
        violation = next(iter(direct_first(case.violations)), Violation(requirements=(), message=case.title))
        yield from _finding(result, case, violation, folder)


def _stale(result: RunResult) -> Iterator[str]:
    if result.stale:
        yield f"## Known failures that are no longer true ({len(result.stale)})"
        yield ""
        for entry in result.stale:
            yield f"- {code(entry.case)}: {escaped(entry.reason)}"
        yield ""


def _open(result: RunResult) -> Iterator[str]:
    found = [case for case in result.cases if standing(result, case) in (Standing.INCONCLUSIVE, Standing.NOT_RUN)]
    if found:
        yield f"## Without a verdict ({len(found)})"
        yield ""
        for case in found[:MOST_OPEN]:
            yield f"- {code(case.case)}, {standing(result, case)}: {escaped(_cut(case.reason or result.stopped))}"
        if len(found) > MOST_OPEN:
            yield f"- and {plural(len(found) - MOST_OPEN, 'more case')}"
        yield ""
