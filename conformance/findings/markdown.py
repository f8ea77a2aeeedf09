"""The page, and one finding for those who maintain what was tested."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from conformance.findings.stored import Stored, Tested
from conformance.reports import labels
from conformance.reports.bundle import HISTORY
from conformance.reports.markdown_text import code, escaped
from conformance.reports.recorded import read_history
from conformance.reports.replaying import replay_command
from conformance.requirements.catalogue import load

NEW: Final = "new"
FOLDER: Final = Path("conformance/findings/found")
"""As seen from the top of the repository."""


def page(tested: Sequence[Tested], found: Sequence[Stored]) -> str:
    """Two tables: who was tested, and what was found in them."""
    rows = [
        f"| {code(run.subject)} | {_cell(run.version)} | {run.date} | {run.profile}, seed {run.seed}, "
        f"{run.cases} cases | {len(run.held)} | {_count(run.violated)} | {len(run.inconclusive)} |"
        for run in tested
    ]
    lines = [
        "| who was tested | version | on | with | requirements held | violated | inconclusive |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "| subject | what was found | violated | known before | see it again: `delta-commit-conformance replay ...` |",
        "|---|---|---|---|---|",
        *(_row(each) for each in sorted(found, key=lambda each: (each.subject, bool(each.about.known), each.id))),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return escaped(text).replace("|", "\\|")


def _count(violated: Sequence[str]) -> str:
    return f"**{len(violated)}**" if violated else "0"


def _row(stored: Stored) -> str:
    about = stored.about
    conditions = f" ({_cell(about.conditions)})" if about.conditions else ""
    known = _cell(about.known) if about.known else f"**{NEW}**"
    file = FOLDER / stored.id / "finding.json"
    return (
        f"| {code(stored.subject)} | {_cell(about.title)}{conditions} | {' '.join(about.requirements)} | {known} | "
        f"{code(str(file))} |"
    )


def report(stored: Stored) -> str:
    """One finding, complete: versions, the sentence, the steps, expected, observed, and how to see it again."""
    about, finding = stored.about, stored.finding
    violation = finding.violations[0]
    parts = [
        f"# {escaped(about.title)}",
        f"Versions: {escaped(about.versions)}. Found on {about.date} with version {finding.kit_version} of the "
        f"conformance kit for commit owners. " + (f"Known: {escaped(about.known)}." if about.known else "Not known."),
        "## What is asked for",
        "\n".join(_sentence(each) for each in about.requirements),
        "## Steps",
        *([f"Given: {escaped(about.conditions)}."] if about.conditions else []),
        _steps(stored),
        "## Expected",
        escaped(violation.expected or violation.message),
        "## Observed",
        escaped(violation.observed or violation.message),
        "## Cause",
        escaped(about.cause),
        "## Consequence",
        escaped(about.consequence),
        "## Again",
        code(replay_command(FOLDER / stored.id / "finding.json")),
    ]
    return "\n\n".join(parts) + "\n"


def _sentence(identifier: str) -> str:
    requirement = load().requirement(identifier)
    where = f"{requirement.source}, {requirement.section!r}"
    return f"- {escaped(requirement.paraphrase)} ({escaped(where)}; {identifier}, {requirement.level.value})"


def _steps(stored: Stored) -> str:
    history = stored.folder / HISTORY
    if not history.is_file():
        return "See the replay."
    steps = read_history(history.read_text("utf-8")).steps
    lines = []
    for number, step in enumerate(steps, 1):
        client = getattr(step, "client", "") or "somebody"
        lines.append(f"{number}. {escaped(client)}: {escaped(labels.asked(step))}: {escaped(labels.told(step))}")
    return "\n".join(lines)
