"""Reports for CI systems: JUnit XML, with a suite for each family and a test case for each case; a badge; and a summary
in Markdown for a job or a pull request, with the verdict, the violations, and the commands that reproduce them.

A case without a verdict is an `error`, never `skipped`: a run that tested nothing must not look green. Only known
failures, and cases that the subject does not promise, are skipped, with the reason. In Markdown, every text of a
subject is escaped, so it cannot become a heading, a link, a mention or HTML.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from conformance.interface.results import CaseResult, RunResult, Violation, counted, size_in_words, size_options
from conformance.interface.safe_text import block, code, escaped, one_line, visible
from conformance.reports.causes import Cause, causes, mutants_like, recorded_of, variants_in_words
from conformance.reports.recorded import in_letters
from conformance.reports.stored import COMMAND, bundle_name, finding_of, replay_command, run_command
from conformance.reports.summary import Standing, Tone, direct_first, in_full, reason_for, standing, summarise
from conformance.requirements.catalogue import origin


def to_junit(result: RunResult) -> str:
    """The XML document. It has the time of the run, not of each case."""
    summary = summarise(result)
    root = ElementTree.Element("testsuites", name=f"{COMMAND}: {summary.subject}")
    families: dict[str, list[CaseResult]] = {}
    for case in result.cases:
        families.setdefault(case.family, []).append(case)
    for family, cases in families.items():
        suite = _suite(root, result, family)
        for case in cases:
            _case(suite, result, case)
    _run_itself(root, result)
    for suite in root:
        _count(suite, [suite])
    _count(root, list(root))
    if result.environment.seconds:
        root.set("time", f"{result.environment.seconds:.3f}")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, result: RunResult, name: str) -> ElementTree.Element:
    suite = ElementTree.SubElement(root, "testsuite", name=visible(name))
    if result.environment.started:
        suite.set("timestamp", visible(result.environment.started))
    properties = ElementTree.SubElement(suite, "properties")
    size, number = size_options(result.profile)
    facts = {
        "subject": result.subject.named,
        size.removeprefix("--"): number,
        "seed": str(result.seed),
        "kit": result.kit_version,
    }
    for key, value in facts.items():
        ElementTree.SubElement(properties, "property", name=key, value=visible(value))
    return suite


def _case(suite: ElementTree.Element, result: RunResult, case: CaseResult) -> None:
    element = ElementTree.SubElement(suite, "testcase", classname=visible(case.family), name=visible(case.case))
    where = standing(result, case)
    if where is Standing.FAILED:
        _append(element, "failure", _headline(case), _explanation(result, case), kind="violation")
    elif where is Standing.KNOWN:
        reasons = dict.fromkeys(filter(None, (reason_for(result, case, violation) for violation in case.violations)))
        _append(element, "skipped", f"known failure: {'; '.join(reasons)}", _explanation(result, case))
    elif where is Standing.WARNED:
        ElementTree.SubElement(element, "system-out").text = visible(f"warning: {_explanation(result, case)}")
    elif where is Standing.SKIPPED:
        _append(element, "skipped", case.reason or "the subject does not promise it", "")
    elif where in (Standing.INCONCLUSIVE, Standing.NOT_RUN):
        reason = case.reason or result.stopped or "the kit does not say why"
        _append(element, "error", f"{where}: {reason}", case.title, kind=where.replace(" ", "-"))


def _append(element: ElementTree.Element, tag: str, message: str, text: str, kind: str = "") -> None:
    child = ElementTree.SubElement(element, tag, message=one_line(message))
    if kind:
        child.set("type", kind)
    if text:
        child.text = visible(text)


def _headline(case: CaseResult) -> str:
    if not case.violations:
        return "failed"
    first = direct_first(case.violations)[0]
    return f"{', '.join(first.requirements)}: {first.message}"


def _explanation(result: RunResult, case: CaseResult) -> str:
    parts = []
    for shown in case.by_program():
        parts.append(f"Check: {shown.title} After {counted(shown.operations, 'operation')}:")
        parts += ["\n".join(in_full(violation)) for violation in direct_first(shown.violations)]
        if shown.reason:
            parts.append(f"Note: {shown.reason}")
    parts.append(f"Replay: {run_command(result, case)}")
    return "\n\n".join(parts)


def _run_itself(root: ElementTree.Element, result: RunResult) -> None:
    """Results that belong to no single case: stale known failures, and a run that proves nothing."""
    summary = summarise(result)
    red = any(element.tag in ("failure", "error") for element in root.iter())
    if not result.stale and (red or summary.tone in (Tone.GOOD, Tone.WARNING)):
        return
    suite = _suite(root, result, "the-run")
    for entry in result.stale:
        element = ElementTree.SubElement(suite, "testcase", classname="known-failures", name=visible(entry.case))
        message = f"stale: {entry.case} did not fail like that, or matches no case; remove it from the list"
        _append(element, "failure", message, f"Its reason was: {entry.reason}", kind="stale-known-failure")
    if not red and not result.stale:
        element = ElementTree.SubElement(suite, "testcase", classname="the-run", name="verdict")
        _append(element, "error", summary.sentence, summary.exit_meaning, kind=summary.verdict.replace(" ", "-"))


def _count(element: ElementTree.Element, suites: Sequence[ElementTree.Element]) -> None:
    counts = {
        "tests": "testcase",
        "failures": "testcase/failure",
        "errors": "testcase/error",
        "skipped": "testcase/skipped",
    }
    for attribute, path in counts.items():
        element.set(attribute, str(sum(len(suite.findall(path)) for suite in suites)))


# The badge: what a shields.io endpoint serves

LABEL: Final = "delta conformance"
COLOURS: Final = {Tone.GOOD: "brightgreen", Tone.WARNING: "yellow", Tone.BAD: "red", Tone.UNKNOWN: "lightgrey"}


def to_badge(result: RunResult) -> str:
    """JSON of the endpoint schema, version 1. `isError` forbids a page to choose another colour for a bad result."""
    summary = summarise(result)
    badge = {
        "schemaVersion": 1,
        "label": LABEL,
        "message": summary.short,
        "color": COLOURS[summary.tone],
        "isError": summary.tone in (Tone.BAD, Tone.UNKNOWN),
    }
    return json.dumps(badge, indent=1) + "\n"


# Markdown


MOST_CASES: Final = 3
"""How many checks of one cause are shown. The other reports show all."""
MOST_OPEN: Final = 20
"""How many cases without a verdict are named."""
LONGEST: Final = 1_500
"""The length of one explanation, in characters. GitHub limits the summary of a job to 1 MiB."""

_SIGNS: Final = {Tone.GOOD: "✅", Tone.WARNING: "⚠️", Tone.BAD: "❌", Tone.UNKNOWN: "❓"}


def to_markdown(result: RunResult, folder: Path | None = None) -> str:
    """The summary. `folder`: the folder of the reports, if it has bundles to replay."""
    return "\n\n".join(_blocks(result, folder)) + "\n"


def _blocks(result: RunResult, folder: Path | None) -> Iterator[str]:
    """The blocks of the summary, between which blank lines stand."""
    summary, subject, environment = summarise(result), result.subject, result.environment
    yield f"# {_SIGNS[summary.tone]} {escaped(summary.sentence)}"
    profiles = ", ".join(map(escaped, subject.profiles)) or "none"
    selection = f", only {code(result.selection)}" if result.selection else ""
    yield (
        f"- Subject: {code(subject.named)} ({escaped(summary.subject)}), side {escaped(subject.side)}\n"
        f"- It declares: {profiles}\n"
        f"- Run: {escaped(size_in_words(result.profile))}, seed {result.seed}{selection}; "
        f"{escaped(summary.exit_meaning)}\n"
        f"- Cases: {escaped(summary.counted)}"
    )
    all_causes = causes(result)
    yield from _causes(result, folder, [cause for cause in all_causes if not cause.warning], "Violated")
    yield from _causes(result, folder, [cause for cause in all_causes if cause.warning], "Advice that is not followed")
    if result.stale:
        yield f"## Known failures that are no longer true ({len(result.stale)})"
        yield "\n".join(f"- {code(entry.case)}: {escaped(entry.reason)}" for entry in result.stale)
    yield from _open(result)
    yield "The same run again:"
    yield block(run_command(result))
    kit = f"Kit {result.kit_version}, interface {result.interface_version}"
    if environment.started:
        kit += f"; {environment.started}, {environment.seconds:.1f} s, {environment.platform}, {environment.python}"
    yield escaped(kit)


def _causes(result: RunResult, folder: Path | None, listed: list[Cause], heading: str) -> Iterator[str]:
    if listed:
        names = {requirement.requirement for cause in listed for requirement in cause.requirements}
        yield f"## {heading}: {counted(len(names), 'requirement')}, {counted(len(listed), 'probable cause')}"
    for number, cause in enumerate(listed, 1):
        yield from _cause(result, number, cause, folder)


def _cause(result: RunResult, number: int, cause: Cause, folder: Path | None) -> Iterator[str]:
    yield f"### {number}. {escaped(cause.headline)}"
    shown = [f"{counted(len(cause.evidence), 'check')}, {counted(len(cause.cases), 'case')}"] if cause.cases else []
    yield escaped("; ".join([*shown, *cause.hints])) + "."
    for requirement in cause.requirements[:1]:
        source = origin(requirement.level, requirement.source, requirement.section)
        rule = f"\n>\n> {escaped(requirement.section)}: {escaped(requirement.rule)}" if requirement.rule else ""
        yield f"> {escaped(requirement.paraphrase)}\n> {escaped(requirement.requirement)} ({escaped(source)}){rule}"
        if requirement.links:
            yield f"Source: {', '.join(f'[{escaped(link.title)}]({link.url})' for link in requirement.links)}"
    if len(cause.requirements) > 1:
        verdict = "not followed" if cause.warning else "violated"
        others = ", ".join(requirement.requirement for requirement in cause.requirements[1:])
        yield f"Also {verdict}: {escaped(others)}."
    for evidence in cause.evidence[:MOST_CASES]:
        yield from _finding(result, evidence.case, evidence.violation, folder, variants_in_words(evidence.cases))
    if len(cause.evidence) > MOST_CASES:
        yield f"And in {counted(len(cause.evidence) - MOST_CASES, 'more check')}."
    if like := mutants_like(result, cause):
        yield f"Bad subjects with a similar defect: {', '.join(map(code, like))}."


def _finding(
    result: RunResult, case: CaseResult, violation: Violation, folder: Path | None, variants: str
) -> Iterator[str]:
    known = reason_for(result, case, violation)
    note = f" (known: {escaped(known)})" if known else ""
    message = escaped(_cut(in_letters(violation.message, recorded_of(case))))
    yield f"{code(case.case)} after {counted(case.operations, 'operation')}{note}: {message}"
    if variants not in case.case:
        yield f"The same on {escaped(variants)}."
    again = run_command(result, case) if folder is None else replay_command(finding_of(folder, bundle_name(case)))
    yield block(again)


def _cut(text: str) -> str:
    return (
        text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters; all in the other reports)"
    )


def _open(result: RunResult) -> Iterator[str]:
    cases = [case for case in result.cases if standing(result, case) in (Standing.INCONCLUSIVE, Standing.NOT_RUN)]
    if cases:
        yield f"## Without a verdict ({len(cases)})"
        lines = [
            f"- {code(case.case)}, {standing(result, case)}: {escaped(_cut(case.reason or result.stopped))}"
            for case in cases[:MOST_OPEN]
        ]
        more = [f"- and {counted(len(cases) - MOST_OPEN, 'more case')}"] if len(cases) > MOST_OPEN else []
        yield "\n".join(lines + more)
