"""Reports for CI systems: JUnit XML, with a suite for each family and a test case for each case; and a badge.

A case without a verdict is an `error`, never `skipped`: a run that tested nothing must not look green. Only known
failures, and cases that the subject does not promise, are skipped, with the reason.
"""

import json
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from conformance.interface.results import CaseResult, RunResult, counted, size_options
from conformance.interface.safe_text import one_line, visible
from conformance.reports.stored import COMMAND, run_command
from conformance.reports.summary import Standing, Tone, direct_first, in_full, reason_for, standing, summarise


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
