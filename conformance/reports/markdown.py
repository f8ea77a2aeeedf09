"""A summary in Markdown, for a CI job's summary or a pull request: the verdict, what is violated, how to see it again.

Whatever a subject chose is escaped: it makes no heading, no link, no mention and no HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from conformance.reports.bundle import bundle_name, finding_of, replay_command, run_command
from conformance.reports.causes import Cause, causes, mutants_like, recorded_of, variants_in_words
from conformance.reports.recorded import in_letters
from conformance.reports.summary import Standing, Tone, plural, reason_for, standing, summarise
from conformance.requirements.catalogue import origin
from conformance.results import CaseResult, RunResult, Violation
from conformance.safe_text import block, code, escaped

MOST_CASES: Final = 3
"""Checks of one cause. All of them are in the other reports."""
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
    yield f"- Cases: {escaped(summary.counted)}"
    yield ""
    found = causes(result)
    yield from _causes(result, folder, [each for each in found if not each.warning], "Violated")
    yield from _causes(result, folder, [each for each in found if each.warning], "Advice that is not followed")
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


def _causes(result: RunResult, folder: Path | None, found: list[Cause], heading: str) -> Iterator[str]:
    if found:
        names = {each.requirement for cause in found for each in cause.requirements}
        yield f"## {heading}: {plural(len(names), 'requirement')}, {plural(len(found), 'probable cause')}"
        yield ""
    for number, each in enumerate(found, 1):
        yield from _cause(result, number, each, folder)


def _cause(result: RunResult, number: int, cause: Cause, folder: Path | None) -> Iterator[str]:
    yield f"### {number}. {escaped(cause.headline)}"
    yield ""
    shown = [f"{plural(len(cause.evidence), 'check')}, {plural(len(cause.cases), 'case')}"] if cause.cases else []
    yield escaped("; ".join([*shown, *cause.hints])) + "."
    yield ""
    for requirement in cause.requirements[:1]:
        place = origin(requirement.level, requirement.source, requirement.section)
        yield f"> {escaped(requirement.paraphrase)}"
        yield f"> {escaped(requirement.requirement)} ({escaped(place)})"
        if requirement.rule:
            yield ">"
            yield f"> {escaped(requirement.section)}: {escaped(requirement.rule)}"
        if requirement.links:
            yield ""
            yield f"Source: {', '.join(f'[{escaped(each.title)}]({each.url})' for each in requirement.links)}"
        yield ""
    if len(cause.requirements) > 1:
        yield f"Violated too: {escaped(', '.join(each.requirement for each in cause.requirements[1:]))}."
        yield ""
    for found in cause.evidence[:MOST_CASES]:
        yield from _finding(result, found.case, found.violation, folder, variants_in_words(found.cases))
    if len(cause.evidence) > MOST_CASES:
        yield f"And in {plural(len(cause.evidence) - MOST_CASES, 'more check')}."
        yield ""
    if like := mutants_like(result, cause):
        yield f"Bad subjects with a similar defect: {', '.join(map(code, like))}."
        yield ""


def _finding(
    result: RunResult, case: CaseResult, violation: Violation, folder: Path | None, variants: str
) -> Iterator[str]:
    known = reason_for(result, case, violation)
    note = f" (known: {escaped(known)})" if known else ""
    message = escaped(_cut(in_letters(violation.message, recorded_of(case))))
    yield f"{code(case.case)} after {plural(case.operations, 'operation')}{note}: {message}"
    if variants not in case.case:
        yield ""
        yield f"The same on {escaped(variants)}."
    yield ""
    again = run_command(result, case) if folder is None else replay_command(finding_of(folder, bundle_name(case)))
    yield block(again)
    yield ""


def _cut(text: str) -> str:
    return (
        text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters; all in the other reports)"
    )


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
