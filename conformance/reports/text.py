"""A run in plain text: what the console shows, and the summary of a job of a CI system."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from conformance.adapters.identity import COMMIT_MODE_OF
from conformance.interface.results import (
    CaseResult,
    RequirementVerdict,
    RunResult,
    Violation,
    counted,
    headline,
    listed,
    matches,
    size_in_words,
)
from conformance.interface.safe_text import block, escaped, one_line, visible
from conformance.programs.pinned import is_of_pinned
from conformance.programs.program import step_name
from conformance.reports.causes import Cause, causes, recorded_of, variants_in_words
from conformance.reports.recorded import in_letters
from conformance.reports.stored import bundle_name, finding_of, replay_command, run_command
from conformance.reports.summary import Standing, Tone, beyond_message, is_selection, reason_for, standing, summarise
from conformance.requirements.catalogue import Profile, load, origin
from conformance.running.verdicts import JUDGED

MOST_CAUSES: Final = 10
"""The maximum number of explained causes; the reports explain all."""
_LONGEST: Final = 600
_VERDICTS: Final = (
    RequirementVerdict.HELD,
    RequirementVerdict.VIOLATED,
    RequirementVerdict.WARNED,
    RequirementVerdict.INCONCLUSIVE,
)


def to_text(result: RunResult, folder: Path | None) -> str:
    """The probable causes, each with its simplest case, and then the verdict. `folder`: of the reports."""
    return visible("\n".join(_lines(result, folder)))


_SIGNS: Final = {Tone.GOOD: "✅", Tone.WARNING: "⚠️", Tone.BAD: "❌", Tone.UNKNOWN: "❓"}


def to_markdown(result: RunResult, folder: Path | None = None) -> str:
    """The verdict as a heading, and the text. `folder`: the folder of the reports, if it has bundles to replay."""
    summary = summarise(result)
    return f"# {_SIGNS[summary.tone]} {escaped(summary.sentence)}\n\n{block(to_text(result, folder), 'text')}\n"


def _lines(result: RunResult, folder: Path | None) -> Iterator[str]:
    shown = causes(result)
    for number, cause in enumerate(shown[:MOST_CAUSES], 1):
        yield from _cause_lines(result, number, cause, folder)
    if len(shown) > MOST_CAUSES:
        yield f"... and {counted(len(shown) - MOST_CAUSES, 'more probable cause')}: use --report FOLDER to get all\n"
    for entry in result.stale:
        judged = any(matches(entry.case, case.case) for case in result.cases)
        why = "it did not fail as listed" if judged else "there is no such case"
        named = f"{entry.case}, {entry.requirement}" if entry.requirement else entry.case
        yield f"stale known failure: {named}: {why}; remove it from the list"
    if not _is_a_story(result):
        yield from _open_lines(result)
    summary = summarise(result)
    yield f"{summary.subject} ({one_line(result.subject.named)}), {size_in_words(result.profile)}, seed {result.seed}"
    if result.selection:
        yield f"selection: {one_line(result.selection)}"
    if _is_a_story(result):
        yield result.stopped
    else:
        yield from _coverage(result)
        yield summary.counted
        yield from programs_in_words(result.cases)
    yield summary.brief if _is_a_story(result) else summary.sentence
    seconds = f"{result.environment.seconds:.1f} s; " if result.environment.seconds else ""
    yield f"{seconds}{summary.exit_meaning}"
    if folder is not None:
        yield f"report: {folder / 'index.html'}"


def _cause_lines(result: RunResult, number: int, cause: Cause, folder: Path | None) -> Iterator[str]:
    verdict = "not followed" if cause.warning else "violated"
    yield f"{number}. {cause.headline} ({verdict})"
    shown = [f"{counted(len(cause.evidence), 'check')}, {counted(len(cause.cases), 'case')}"] if cause.cases else []
    yield f"  {'; '.join([*shown, *cause.hints])}"
    for requirement in cause.requirements[:1]:
        source = origin(requirement.level, requirement.source, requirement.section)
        words = f"{requirement.requirement} ({source}): {requirement.paraphrase}"
        for text in (words, requirement.rule and f"{requirement.section}: {requirement.rule}"):
            if text:
                yield textwrap.fill(text, 110, initial_indent="  ", subsequent_indent="  ")
        for link in requirement.links:
            yield f"  source: {link.url}"
    if more := [requirement.requirement for requirement in cause.requirements[1:]]:
        yield f"  also {verdict}: {listed(more, 8)}"
    for evidence in cause.evidence[:1]:
        yield from _case_lines(result, evidence.case, evidence.violation, variants_in_words(evidence.cases))
        again = run_command(result, evidence.case)
        if folder is not None:
            again = replay_command(finding_of(folder, bundle_name(evidence.case)))
        yield f"    reproduce: {again}"
    if others := [evidence.case.check for evidence in cause.evidence[1:]]:
        yield f"  also shown by: {listed(others, 4)}"
    yield ""


def _case_lines(result: RunResult, case: CaseResult, violation: Violation, variants: str) -> Iterator[str]:
    known = reason_for(result, case, violation)
    yield f"  {case.case}, {counted(case.operations, 'operation')}{f' (known: {one_line(known)})' if known else ''}"
    if variants not in case.case:
        yield f"    the same on {variants}"
    recorded = recorded_of(case)
    yield f"    {_cut(in_letters(violation.message, recorded))}"
    composed = violation.message.endswith(headline(violation.expected, violation.observed))
    for name, text in ({} if composed else beyond_message(violation)).items():
        yield f"    {name.lower()}: {_cut(in_letters(text, recorded))}"


def _is_a_story(result: RunResult) -> bool:
    """Whether the reason for the stop has several lines, as a failure of the first requests has."""
    return "\n" in result.stopped.strip()


def _open_lines(result: RunResult) -> Iterator[str]:
    """Show the reasons of cases without a verdict and of skipped cases. The verdict line has the reason for a stop."""
    for kind in (Standing.INCONCLUSIVE, Standing.NOT_RUN):
        reasons: dict[str, list[str]] = {}
        for case in result.cases:
            if standing(result, case) is kind:
                reasons.setdefault(one_line(case.reason), []).append(case.case)
        for reason, cases in list(reasons.items())[:5]:
            why = "" if reason and reason in one_line(result.stopped) else f"{_cut(reason)}: "
            yield f"{kind}: {why}{counted(len(cases), 'case')}: {listed(cases, 2)}"
        if len(reasons) > 5:
            yield f"{kind}, for other reasons: {counted(sum(map(len, list(reasons.values())[5:])), 'case')}"
    for reason, number in Counter(one_line(case.unwatched) for case in result.cases if case.unwatched).items():
        yield f"note: the order in which files appear was not checked: {_cut(reason)} ({counted(number, 'case')})"
    skipped = Counter(one_line(case.reason) for case in result.cases if standing(result, case) is Standing.SKIPPED)
    if skipped:
        shown = [f"{_cut(reason)} ({counted(number, 'case')})" for reason, number in skipped.most_common(5)]
        more = len(skipped) - len(shown)
        yield f"skipped: {'; '.join(shown)}{f'; and for {more} more reasons' if more else ''}"


def _coverage(result: RunResult) -> list[str]:
    """The number of requirements with each verdict, for each declared profile."""
    of = {requirement.id: requirement.profile for requirement in load().requirements}
    modes = {declared.value: mode for declared, mode in COMMIT_MODE_OF.items()}
    lines, without = [], []
    for profile in [Profile.CORE.value, *(profile for profile in result.subject.profiles if profile != Profile.CORE)]:
        verdicts = [entry.verdict for entry in result.requirements if of.get(entry.requirement) == profile]
        words = [f"{verdicts.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in verdicts]
        if words:
            lines.append(f"  {profile:<24} {', '.join(words)}")
        elif cases := [case.verdict for case in _judged_in(result, modes.get(profile))]:
            tested = ", ".join(f"{cases.count(verdict)} {verdict}" for verdict in JUDGED if verdict in cases)
            tested = f"{counted(len(cases), 'case')} {cases[0]}" if len(set(cases)) == 1 else tested
            lines.append(f"  {profile:<24} {tested} (a commit mode; its requirements are counted under core)")
        else:
            without.append(profile)
    if without:
        where = "this selection" if is_selection(result) else "this run"
        lines.append(f"  declared profiles without a case in {where}: {', '.join(without)}")
    return lines


def _judged_in(result: RunResult, commit_mode: str | None) -> list[CaseResult]:
    """The cases in a commit mode that came to a verdict."""
    return [case for case in result.cases if case.verdict in JUDGED and case.commit_mode == commit_mode]


def programs_in_words(cases: Iterable[CaseResult]) -> list[str]:
    """How many programs were run, and the steps in them; empty if there were none."""
    programs: Counter[bool] = Counter()
    steps: Counter[str] = Counter()
    for case in cases:
        programs[is_of_pinned(case.check)] += case.programs
        for word, times in case.words.items():
            steps[step_name(word)] += times
    if not programs.total():
        return []
    kinds = {"generated": programs[False], "pinned": programs[True]}
    numbers = [f"{number:,} {kind}" for kind, number in kinds.items() if number]
    lines = [f"{counted(programs.total(), 'program')}: {', '.join(numbers)}"]
    if steps:
        lines.append(f"steps: {', '.join(f'{name} {times:,}' for name, times in steps.most_common())}")
    return lines


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
