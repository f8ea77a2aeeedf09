"""The verdict of a run for a person at a shell."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

from conformance.command.output import counted, listed, show
from conformance.mutants.registry import all_mutants
from conformance.reports.bundle import bundle_name, finding_of, replay_command, run_command
from conformance.reports.summary import Evidence, Standing, evidence, reason_for, standing, summarise, twins_in_words
from conformance.requirements.catalogue import Profile, load, origin
from conformance.results import CaseResult, RequirementVerdict, RunResult, Violation
from conformance.safe_text import one_line

MOST_REQUIREMENTS: Final = 20
"""That are explained. The reports explain all."""
MOST_MUTANTS: Final = 3
"""That are named for comparison with one requirement."""
_LONGEST: Final = 600
_VERDICTS: Final = (
    RequirementVerdict.HELD,
    RequirementVerdict.VIOLATED,
    RequirementVerdict.WARNED,
    RequirementVerdict.INCONCLUSIVE,
)


def show_result(result: RunResult, folder: Path | None) -> None:
    """The violated requirements, each with its shortest case, and then the verdict. `folder`: of the reports."""
    shown = evidence(result)
    for found in shown[:MOST_REQUIREMENTS]:
        _show_requirement(result, found, folder)
    if len(shown) > MOST_REQUIREMENTS:
        more = sum(1 + len(each.twins) for each in shown[MOST_REQUIREMENTS:])
        show(f"... and {counted(more, 'more requirement')}: use --report FOLDER to get all\n")
    for entry in result.stale:
        show(
            f"stale known failure: {entry.case}: it did not fail as listed, or matches no case; remove it from the list"
        )
    _show_open(result)
    summary = summarise(result)
    show(f"{summary.subject} ({one_line(result.subject.named)}), profile {result.profile}, seed {result.seed}")
    if _is_a_story(result):
        show(result.stopped)
    else:
        for line in _coverage(result):
            show(line)
    show(summary.brief if _is_a_story(result) else summary.sentence)
    seconds = f"{result.environment.seconds:.1f} s; " if result.environment.seconds else ""
    show(f"{seconds}{summary.exit_meaning}")
    if folder is not None:
        show(f"report: {folder / 'index.html'}")


def _show_requirement(result: RunResult, found: Evidence, folder: Path | None) -> None:
    requirement = found.requirement
    place = origin(requirement.level, requirement.source, requirement.section)
    verdict = "violated" if requirement.verdict is RequirementVerdict.VIOLATED else "recommendation not followed"
    show(f"{requirement.requirement} ({place}): {verdict}")
    for text in (requirement.paraphrase, requirement.rule and f"{requirement.section}: {requirement.rule}"):
        if text:
            show(textwrap.fill(text, 110, initial_indent="  ", subsequent_indent="  "))
    for link in requirement.links:
        show(f"  source: {link.url}")
    if found.twins:
        show(f"  {twins_in_words(found)}")
    if found.findings:
        case, violation = found.findings[0]
        _show_case(result, case, violation)
        if len(found.findings) > 1:
            show(f"    and {counted(len(found.findings) - 1, 'more case')}")
        again = run_command(result, case)
        if folder is not None:
            again = replay_command(finding_of(folder, bundle_name(case)))
        show(f"    replay: {again}")
        if alike := _mutants_like(result, requirement.requirement):
            show(f"    compare: {', '.join(alike)}")
    show()


def _mutants_like(result: RunResult, requirement: str) -> list[str]:
    """Subjects that violate the same requirement, those first that are made to show it."""
    found = [each for each in all_mutants().values() if requirement in each.violates]
    found = [each for each in found if each.side == result.subject.side]
    names = [f"mutant:{each.id}" for each in sorted(found, key=lambda each: each.violates.index(requirement))]
    return [name for name in names if name != result.subject.named][:MOST_MUTANTS]


def _show_case(result: RunResult, case: CaseResult, violation: Violation) -> None:
    known = reason_for(result, case, violation)
    show(f"  {case.case}, {counted(case.operations, 'operation')}{f' (known: {one_line(known)})' if known else ''}")
    show(f"    {_cut(violation.message)}")
    if violation.expected and violation.expected not in violation.message:
        show(f"    expected: {_cut(violation.expected)}")
    if violation.observed and violation.observed not in violation.message:
        show(f"    observed: {_cut(violation.observed)}")


def _is_a_story(result: RunResult) -> bool:
    """Whether what stopped the run has lines of its own, as the first requests tell it."""
    return "\n" in result.stopped.strip()


def _show_open(result: RunResult) -> None:
    """Cases without a verdict, by reason. Why the run stopped is told with the verdict, and only there."""
    for kind in (Standing.INCONCLUSIVE, Standing.NOT_RUN):
        reasons: dict[str, list[str]] = {}
        for case in result.cases:
            if standing(result, case) is kind:
                reasons.setdefault(one_line(case.reason), []).append(case.case)
        for reason, cases in list(reasons.items())[:5]:
            why = "" if reason and reason in one_line(result.stopped) else f"{_cut(reason)}: "
            show(f"{kind}: {why}{counted(len(cases), 'case')}: {listed(cases, 2)}")
        if len(reasons) > 5:
            show(f"{kind}, for other reasons: {counted(sum(map(len, list(reasons.values())[5:])), 'case')}")


def _coverage(result: RunResult) -> list[str]:
    """For each declared profile, how many of its requirements came to which verdict."""
    of = {each.id: each.profile for each in load().requirements}
    lines, without = [], []
    for profile in [Profile.CORE.value, *(each for each in result.subject.profiles if each != Profile.CORE)]:
        found = [each.verdict for each in result.requirements if of.get(each.requirement) == profile]
        words = [f"{found.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in found]
        if words:
            lines.append(f"  {profile:<24} {', '.join(words)}")
        else:
            without.append(profile)
    if without:
        lines.append(f"  no case was about: {', '.join(without)}")
    return lines


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
