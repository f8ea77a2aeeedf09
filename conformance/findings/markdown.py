"""The page of findings, and the report of one finding for the maintainers of its subject."""

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from conformance.findings.stored import Stored
from conformance.history.events import FileLook
from conformance.history_checkers.check import describe_answer, describe_request
from conformance.interface.results import RequirementVerdict, RunResult, Violation
from conformance.interface.safe_text import code, escaped
from conformance.reports.recorded import Recorded, Step, began, ended, in_letters, read_history
from conformance.reports.stored import HISTORY, replay_command
from conformance.requirements.catalogue import Level, load, origin, place_of


def item(title: str, when: str, requirements: Sequence[str], known: str, again: str) -> str:
    """One item of the page: title, conditions, violated requirements, and the command that reproduces it."""
    before = f"Known: {escaped(known)}." if known else "**New.**"
    facts = f"{when} {_levels(requirements)} {before}".strip()
    wrapped = textwrap.fill(
        facts, 100, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return f"- **{escaped(title)}.**\n{wrapped}\n  {again}"


def _levels(requirements: Sequence[str]) -> str:
    """The violated requirements and advice, in words."""
    advice = [name for name in requirements if load().requirement(name).level is Level.SHOULD]
    binding = [requirement for requirement in requirements if requirement not in advice]
    parts = [("Violates", binding), ("Does not follow the advice", advice)]
    return " ".join(f"{what} {', '.join(names)}." for what, names in parts if names)


FOLDER: Final = Path("conformance/findings/found")
"""The folder of findings, relative to the root of the repository."""


def page(tested: Sequence[RunResult], findings: Sequence[Stored], folder: Path = FOLDER) -> str:
    """The tested subjects with their findings. `folder`: of the findings."""
    parts = [
        "| subject | version | date | run | held | violated | inconclusive |\n|---|---|---|---|---|---|---|",
        *map(_row, tested),
    ]
    text = "\n".join(parts)
    for subject in sorted({finding.subject for finding in findings}):
        mine = [finding for finding in findings if finding.subject == subject]
        mine.sort(key=lambda finding: (bool(finding.about.known), finding.id))
        text += f"\n\n### {code(subject)}\n\n" + "\n".join(_entry(finding, folder) for finding in mine)
    return text + "\n"


def _row(run: RunResult) -> str:
    counts = Counter(entry.verdict for entry in run.requirements)
    held, violated, unclear = (counts[RequirementVerdict(it)] for it in ("held", "violated", "inconclusive"))
    return (
        f"| {code(run.subject.named)} | {_cell(run.subject.version)} | {run.environment.started[:10]} | {run.profile}, "
        f"seed {run.seed}, {len(run.cases)} cases | {held} | {f'**{violated}**' if violated else 0} | {unclear} |"
    )


def _cell(text: str) -> str:
    return escaped(text).replace("|", "\\|")


def _entry(stored: Stored, folder: Path) -> str:
    about = stored.about
    when = f"When: {escaped(about.conditions)}." if about.conditions else ""
    again = code(replay_command(folder / stored.id / "finding.json"))
    return item(about.title, when, about.requirements, about.known, again)


def report(stored: Stored, folder: Path = FOLDER) -> str:
    """One finding, complete: versions, title, steps, expected, observed, and its reproduction, for the maintainers."""
    about, finding = stored.about, stored.finding
    violation, recorded = _main(stored), read_history((stored.folder / HISTORY).read_text("utf-8"))
    others = [requirement for requirement in about.requirements if requirement not in violation.requirements]
    parts = [
        f"# {escaped(about.title)}",
        f"Versions: {escaped(about.versions)}. Found on {about.date} with version {finding.kit_version} of the "
        f"conformance kit for commit owners. " + (f"Known: {escaped(about.known)}." if about.known else "New."),
        "## Requirements",
        "\n".join(
            _sentence(requirement) for requirement in about.requirements if requirement in violation.requirements
        ),
        *(f"> {escaped(quote)}" for quote in about.quotes),
        *([f"Other scenarios of the kit fail for the same cause: {', '.join(others)}."] if others else []),
        "## Steps",
        *([f"Given: {escaped(about.conditions)}."] if about.conditions else []),
        _steps(recorded, violation),
        "## Expected",
        escaped(violation.expected or violation.message),
        "## Observed",
        escaped(in_letters(violation.observed or violation.message, recorded)),
        "## Cause",
        escaped(about.cause),
        "## Consequence",
        escaped(about.consequence),
        "## Replay",
        code(replay_command(folder / stored.id / "finding.json")),
    ]
    return "\n\n".join(parts) + "\n"


def _main(stored: Stored) -> Violation:
    """The main violation of the finding: that of its first requirement."""
    violations = stored.finding.violations
    return next(
        (violation for violation in violations if stored.about.requirements[0] in violation.requirements), violations[0]
    )


def _sentence(identifier: str) -> str:
    requirement = load().requirement(identifier)
    where = origin(requirement.level, requirement.source, requirement.passage)
    links = place_of(requirement.source, requirement.passage).links
    read = f": {', '.join(f'[{escaped(link.title)}]({link.url})' for link in links)}" if links else ""
    return f"- {escaped(requirement.paraphrase)} ({identifier}, {escaped(where)}){read}"


def _steps(recorded: Recorded, violation: Violation) -> str:
    """The steps, in the order of their answers: a delayed request is placed where it took effect. Repeated listings and
    steps after the violation are omitted, and the final log, if it could be read, is added."""
    last = max(violation.operations, default=len(recorded.steps))
    steps = [step for step in recorded.steps if step.id <= last]
    steps.sort(key=lambda step: (math.inf if (end := ended(step)) is None else end, step.id))
    steps = [step for before, step in zip([None, *steps], steps, strict=False) if not _repeats(before, step)]
    lines = [
        f"{number}. {escaped(in_letters(_line(step), recorded))}{_sent_early(steps[: number - 1], step)}"
        for number, step in enumerate(steps, 1)
    ]
    log = ", ".join(f"version {witness.version} is {witness.attempt or 'older'}" for witness in recorded.log)
    final = f"\n\nThe final state of the owner and the log: {escaped(in_letters(log, recorded))}." if log else ""
    return "\n".join(lines) + final


def _repeats(before: Step | None, step: Step) -> bool:
    return isinstance(step, FileLook) and isinstance(before, FileLook) and before.published == step.published


def _line(step: Step) -> str:
    if isinstance(step, FileLook):
        return f"published in the log: {', '.join(str(file.version) for file in step.published) or 'nothing'}"
    answer = "no answer" if step.answer is None else describe_answer(step.answer)
    return f"{step.client or 'unnamed client'}: {describe_request(step.request)}: {answer}"


def _sent_early(before: Sequence[Step], step: Step) -> str:
    sooner = [number for number, earlier in enumerate(before, 1) if (ended(earlier) or 0) > began(step)]
    return f" (sent before step {sooner[0]} was answered)" if sooner else ""
