"""The verdict, the numbers and the order of the findings, for all reports.

A failed case may count as known, or as a warning. A run that proves nothing is never called conformant, whatever its
exit code.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from conformance.interface.results import (
    PROGRAMS,
    CaseResult,
    Environment,
    KnownFailure,
    Layer,
    RequirementResult,
    RequirementVerdict,
    RunResult,
    Verdict,
    Violation,
    counted,
    fails,
)
from conformance.interface.safe_text import one_line
from conformance.requirements.catalogue import Level, load


class Standing(StrEnum):
    """How a case counts for the run."""

    FAILED = "failed"
    KNOWN = "failed as listed"
    """The case failed, and the list of known failures has it."""
    WARNED = "against advice"
    """The subject only ignored advice (a SHOULD)."""
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"
    SKIPPED = "skipped"
    PASSED = "passed"


class Tone(StrEnum):
    """How a report shows the whole run."""

    GOOD = "good"
    WARNING = "warning"
    """Conformant, with warnings or inconclusive requirements; or only known failures."""
    BAD = "bad"
    UNKNOWN = "unknown"
    """The run proves nothing."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The first lines of a report."""

    tone: Tone
    verdict: str
    """One or two words: `conformant`."""
    sentence: str
    """The verdict, with the numbers."""
    brief: str
    """`sentence` without the reason why the run stopped, for reports that show the reason separately."""
    short: str
    """Only the numbers, for a badge."""
    exit_meaning: str
    counted: str
    """The numbers of cases and checks, and of each result."""
    requirements: dict[RequirementVerdict, int]
    cases: dict[Standing, int]
    subject: str
    """The subject's name and version, on one line."""


NO_VIOLATION: Final = "no violation in the selected cases"
"""The verdict `conformant` of a run that does not test all requirements."""
EXIT_MEANINGS: Final = {
    0: "no checked requirement is violated",
    1: "a requirement is violated",
    2: "no verdict: the call, the adapter or the selection is wrong",
    3: "incomplete: not everything was judged",
}


def comparable(result: RunResult) -> RunResult:
    """The result without values that differ from run to run. Equal comparable results have equal reports, byte by
    byte."""
    return msgspec.structs.replace(result, environment=Environment())


def standing(result: RunResult, case: CaseResult) -> Standing:
    """How the case counts for the run, with the run's known failures and strictness."""
    if case.verdict is not Verdict.FAILED:
        return _OTHERS[case.verdict]
    levels = levels_of(result)
    failing = [violation for violation in case.violations if fails(violation, levels, strict=result.strict)]
    if case.violations and not failing:
        return Standing.WARNED
    return (
        Standing.KNOWN
        if failing and all(reason_for(result, case, violation) for violation in failing)
        else Standing.FAILED
    )


_OTHERS: Final = {
    Verdict.PASSED: Standing.PASSED,
    Verdict.INCONCLUSIVE: Standing.INCONCLUSIVE,
    Verdict.SKIPPED: Standing.SKIPPED,
    Verdict.NOT_RUN: Standing.NOT_RUN,
}


def levels_of(result: RunResult) -> dict[str, Level]:
    """The level of each requirement, from the result: the result may come from another version of the kit."""
    return {requirement.requirement: requirement.level for requirement in result.requirements}


def reason_for(result: RunResult, case: CaseResult, violation: Violation) -> str:
    """The reason in the list of known failures; empty if the violation is not a known failure."""
    return next((entry.reason or "known" for entry in result.known if entry.covers(case.case, violation)), "")


def failing_cases(result: RunResult) -> list[CaseResult]:
    """All cases with a finding, also known failures and warnings; the most helpful first. A generated case stands here
    once for each of its failing programs."""
    failed = (case for case in result.cases if case.verdict is Verdict.FAILED)
    return sorted((shown for case in failed for shown in case.by_program()), key=simplest)


def simplest(case: CaseResult) -> tuple[int, int, str]:
    """A sort key. Examples come first, because their titles say what they test; then cases with fewer operations."""
    return list(Layer).index(case.layer), case.operations, case.case


def is_selection(result: RunResult) -> bool:
    """Whether the run was about selected cases or programs alone, so that its subject need not be conformant."""
    return bool(result.selection) or result.profile.startswith(PROGRAMS)


def side_of(requirement: RequirementResult) -> str:
    """The side that has to meet the requirement; empty if this version of the catalogue does not have it."""
    try:
        return load().requirement(requirement.requirement).side
    except KeyError:
        return ""


def summarise(result: RunResult) -> Summary:
    """The summary of a run."""
    requirements = Counter(requirement.verdict for requirement in result.requirements)
    cases = Counter(standing(result, case) for case in result.cases)
    tone, verdict = _verdict(result, requirements, cases)
    numbers = ", ".join(_numbers(requirements, cases, violations=verdict != NO_VIOLATION))
    so_far = f"so far {numbers}" if not result.complete and requirements else numbers
    why = _further_reasons(result, tone)
    # violations come first: the reasons of cases without a verdict can be long
    parts = (so_far, *why) if requirements[RequirementVerdict.VIOLATED] else (*why, so_far)
    return Summary(
        tone=tone,
        verdict=verdict,
        sentence=f"{verdict.capitalize()}: {'; '.join(parts)}.",
        brief=f"{verdict.capitalize()}: {numbers}.",
        short=_short(requirements, verdict) if tone is not Tone.UNKNOWN else verdict,
        exit_meaning=f"exit code {result.exit_code}: {_exit_meaning(result, requirements, cases)}",
        counted=_counted(result, cases),
        requirements={verdict: requirements[verdict] for verdict in RequirementVerdict},
        cases={standing: cases[standing] for standing in Standing},
        subject=one_line(f"{result.subject.name} {result.subject.version}"),
    )


def _counted(result: RunResult, cases: Counter[Standing]) -> str:
    if not result.cases:
        return "no case"
    checks = counted(len({case.check for case in result.cases}), "check")
    checks += ", on each table feature and commit mode" if len(result.cases) > 1 else ""
    standings = ", ".join(f"{cases[standing]:,} {standing}" for standing in Standing if cases[standing])
    return f"{counted(len(result.cases), 'case')} of {checks}: {standings}"


def _exit_meaning(result: RunResult, requirements: Counter[RequirementVerdict], cases: Counter[Standing]) -> str:
    """The meaning of the exit code. It mentions known failures only if an entry of their list is outdated."""
    meaning = EXIT_MEANINGS.get(result.exit_code, "not one of this kit")
    if result.exit_code == 1 and result.strict and not requirements[RequirementVerdict.VIOLATED]:
        meaning = "advice is not followed, and the run is strict"
    if result.exit_code == 0 and cases[Standing.KNOWN]:
        return "only known failures"
    if result.exit_code == 3 and result.complete:
        return "no case passed"
    if result.exit_code != 1 or not result.stale:
        return meaning
    stale = "a known failure is no longer true"
    return f"{meaning}, and {stale}" if cases[Standing.FAILED] else stale


def _verdict(
    result: RunResult, requirements: Counter[RequirementVerdict], cases: Counter[Standing]
) -> tuple[Tone, str]:
    if result.exit_code == 1 and result.stale and not cases[Standing.FAILED]:
        return Tone.BAD, "outdated list of known failures"
    if result.exit_code == 1 or (result.exit_code == 0 and cases[Standing.FAILED]):
        return Tone.BAD, "not conformant"
    if result.exit_code == 3 and not result.complete:
        return Tone.UNKNOWN, "incomplete"
    judged = requirements[RequirementVerdict.HELD] or requirements[RequirementVerdict.WARNED]
    if result.exit_code != 0 or not judged or not any(case.held for case in result.cases):
        return Tone.UNKNOWN, "no verdict"
    if not result.complete:
        return Tone.UNKNOWN, "incomplete"
    if cases[Standing.KNOWN]:
        return Tone.WARNING, "only known failures"
    reserved = cases[Standing.WARNED] or requirements[RequirementVerdict.INCONCLUSIVE]
    return (Tone.WARNING if reserved else Tone.GOOD), NO_VIOLATION if is_selection(result) else "conformant"


def _further_reasons(result: RunResult, tone: Tone) -> list[str]:
    """The reasons for the verdict that the numbers do not show."""
    parts = []
    if result.stopped:
        parts.append(one_line(result.stopped).rstrip("."))
    elif tone is Tone.UNKNOWN and not result.cases:
        parts.append("no case was run")
    elif tone is Tone.UNKNOWN and not any(case.held for case in result.cases):
        parts.append("no case passed")
    elif not result.complete:
        parts.append("not everything was run")
    if result.stale:
        parts.append(stale_in_words(result.stale))
    return parts


def stale_in_words(stale: Iterable[KnownFailure]) -> str:
    """How many entries of the list are outdated."""
    number = len(list(stale))
    return f"{counted(number, 'known failure')} {'is' if number == 1 else 'are'} no longer true"


def _numbers(requirements: Counter[RequirementVerdict], cases: Counter[Standing], *, violations: bool) -> list[str]:
    held, violated = requirements[RequirementVerdict.HELD], requirements[RequirementVerdict.VIOLATED]
    parts = [f"{counted(held, 'requirement')} {'holds' if held == 1 else 'hold'}"]
    if violations:
        parts.append(f"{violated or 'none'} {'is' if violated < 2 else 'are'} violated")
    if warned := requirements[RequirementVerdict.WARNED]:
        parts.append(
            f"{counted(warned, 'piece of advice', 'pieces of advice')} {'is' if warned == 1 else 'are'} not followed"
        )
    if inconclusive := requirements[RequirementVerdict.INCONCLUSIVE]:
        parts.append(f"{inconclusive:,} {'is' if inconclusive == 1 else 'are'} inconclusive")
    if known := cases[Standing.KNOWN]:
        new = f", {counted(cases[Standing.FAILED], 'new failure')}" if cases[Standing.FAILED] else ""
        parts.append(f"{counted(known, 'case')} failed as listed{new}")
    if not_run := cases[Standing.NOT_RUN]:
        parts.append(f"{counted(not_run, 'case')} {'was' if not_run == 1 else 'were'} not run")
    return parts


def _short(requirements: Counter[RequirementVerdict], verdict: str) -> str:
    violated, warned = requirements[RequirementVerdict.VIOLATED], requirements[RequirementVerdict.WARNED]
    parts = [f"{violated:,} violated"] if violated else []
    if warned:
        parts.append(counted(warned, "warning"))
    where = " in the selected cases" if verdict == NO_VIOLATION else ""
    return ", ".join([*parts, f"{requirements[RequirementVerdict.HELD]:,} hold{where}"])


def direct_first(violations: Iterable[Violation]) -> list[Violation]:
    """The violations of the scenario's own expectations, then those that a checker derived; otherwise in their
    order."""
    return sorted(violations, key=lambda violation: violation.rule is not None)


def beyond_message(violation: Violation) -> dict[str, str]:
    """The parts of the violation that its message leaves out, by their names."""
    parts = {"Expected": violation.expected, "Observed": violation.observed}
    return {name: text for name, text in parts.items() if text and text not in violation.message}


def in_full(violation: Violation) -> list[str]:
    """The violation with its requirements, and the parts of it that its message leaves out."""
    more = [f"{name}: {text}" for name, text in beyond_message(violation).items()]
    return [f"{', '.join(violation.requirements)}: {violation.message}", *more]
