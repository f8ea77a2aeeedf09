"""What all reports agree on: the verdict, the numbers, and the order of the findings.

A failed case may count as known, or as a warning; a run that proves nothing is never called conformant, whatever its
exit code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from conformance.requirements.catalogue import Level, load
from conformance.results import (
    CaseResult,
    Environment,
    KnownFailure,
    Layer,
    RequirementResult,
    RequirementVerdict,
    RunResult,
    Verdict,
    Violation,
    fails,
)
from conformance.safe_text import one_line


class Standing(StrEnum):
    """What a case does to the run."""

    FAILED = "failed"
    KNOWN = "known failure"
    """It failed, and is on the list of known failures."""
    WARNED = "warning"
    """Only advice, a SHOULD, is not followed."""
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"
    SKIPPED = "skipped"
    PASSED = "passed"


class Tone(StrEnum):
    """How a report shows the whole run."""

    GOOD = "good"
    WARNING = "warning"
    """Conformant, with a reservation."""
    BAD = "bad"
    UNKNOWN = "unknown"
    """Nothing is proven."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What to say first."""

    tone: Tone
    verdict: str
    """One or two words: `conformant`."""
    sentence: str
    """The verdict, and the numbers behind it."""
    brief: str
    """The same, without why the run stopped, for where that stands by itself."""
    short: str
    """The numbers alone, for a badge."""
    exit_meaning: str
    counted: str
    """What was run: cases, checks and what became of them."""
    requirements: dict[RequirementVerdict, int]
    cases: dict[Standing, int]
    subject: str
    """Name and version, on one line."""


EXIT_MEANINGS: Final = {
    0: "nothing that was checked is violated",
    1: "a requirement is violated",
    2: "no verdict: the call, the adapter or the selection is wrong",
    3: "incomplete: not everything was judged",
}


def comparable(result: RunResult) -> RunResult:
    """The result without what differs from run to run. Reports of equal comparable results are equal, byte by byte."""
    return msgspec.structs.replace(result, environment=Environment())


def plural(number: int, one: str, many: str = "") -> str:
    """`1 case`, `2 cases`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def standing(result: RunResult, case: CaseResult) -> Standing:
    """What the case does to the run, with its known failures and its strictness."""
    if case.verdict is not Verdict.FAILED:
        return _OTHERS[case.verdict]
    levels = levels_of(result)
    failing = [each for each in case.violations if fails(each, levels, strict=result.strict)]
    if case.violations and not failing:
        return Standing.WARNED
    return Standing.KNOWN if failing and all(reason_for(result, case, each) for each in failing) else Standing.FAILED


_OTHERS: Final = {
    Verdict.PASSED: Standing.PASSED,
    Verdict.INCONCLUSIVE: Standing.INCONCLUSIVE,
    Verdict.SKIPPED: Standing.SKIPPED,
    Verdict.NOT_RUN: Standing.NOT_RUN,
}


def levels_of(result: RunResult) -> dict[str, Level]:
    """How binding each requirement is, as the result says: it may come from another version of the kit."""
    return {each.requirement: each.level for each in result.requirements}


def reason_for(result: RunResult, case: CaseResult, violation: Violation) -> str:
    """Why the violation is accepted for now; empty if it is not a known failure."""
    return next((entry.reason or "known" for entry in result.known if entry.covers(case.case, violation)), "")


def failing_cases(result: RunResult) -> list[CaseResult]:
    """All that have a finding to show, known ones and warnings included, in the order in which they explain best."""
    return sorted((case for case in result.cases if case.verdict is Verdict.FAILED), key=simplest)


def simplest(case: CaseResult) -> tuple[int, int, str]:
    """An example says in its title what it is about, a generated case says nothing; then, the fewer operations."""
    return list(Layer).index(case.layer), case.operations, case.case


def side_of(requirement: RequirementResult) -> str:
    """Who has to meet it; empty if this version of the catalogue does not know it."""
    try:
        return load().requirement(requirement.requirement).side
    except KeyError:
        return ""


def summarise(result: RunResult) -> Summary:
    """The whole run."""
    requirements = Counter(each.verdict for each in result.requirements)
    cases = Counter(standing(result, case) for case in result.cases)
    tone, verdict = _verdict(result, requirements, cases)
    numbers = ", ".join(_numbers(requirements, cases))
    found = f"so far {numbers}" if not result.complete and requirements else numbers
    why = _why(result, tone)
    # what is violated comes first: why other cases are without a verdict can be long
    parts = (found, *why) if requirements[RequirementVerdict.VIOLATED] else (*why, found)
    return Summary(
        tone=tone,
        verdict=verdict,
        sentence=f"{verdict.capitalize()}: {'; '.join(parts)}.",
        brief=f"{verdict.capitalize()}: {numbers}.",
        short=", ".join(_short(requirements)) if tone is not Tone.UNKNOWN else verdict,
        exit_meaning=f"exit code {result.exit_code}: {_exit_meaning(result, requirements, cases)}",
        counted=_counted(result, cases),
        requirements={each: requirements[each] for each in RequirementVerdict},
        cases={each: cases[each] for each in Standing},
        subject=one_line(f"{result.subject.name} {result.subject.version}"),
    )


def _counted(result: RunResult, cases: Counter[Standing]) -> str:
    if not result.cases:
        return "no case"
    checks = plural(len({case.check for case in result.cases}), "check")
    standings = ", ".join(f"{cases[each]:,} {each}" for each in Standing if cases[each])
    return f"{plural(len(result.cases), 'case')} of {checks}, on each table feature and commit mode: {standings}"


def _exit_meaning(result: RunResult, requirements: Counter[RequirementVerdict], cases: Counter[Standing]) -> str:
    """Known failures are spoken of only where there is a list of them, and it is wrong."""
    meaning = EXIT_MEANINGS.get(result.exit_code, "not one of this kit")
    if result.exit_code == 1 and result.strict and not requirements[RequirementVerdict.VIOLATED]:
        meaning = "advice is not followed, and the run is strict"
    if result.exit_code != 1 or not result.stale:
        return meaning
    stale = "a known failure is no longer true"
    return f"{meaning}, and {stale}" if cases[Standing.FAILED] else stale


def _verdict(
    result: RunResult, requirements: Counter[RequirementVerdict], cases: Counter[Standing]
) -> tuple[Tone, str]:
    if result.exit_code == 1 or (result.exit_code == 0 and cases[Standing.FAILED]):
        return Tone.BAD, "not conformant"
    if result.exit_code == 3:
        return Tone.UNKNOWN, "incomplete"
    judged = requirements[RequirementVerdict.HELD] or requirements[RequirementVerdict.WARNED]
    if result.exit_code != 0 or not judged or not any(case.held for case in result.cases):
        return Tone.UNKNOWN, "no verdict"
    if not result.complete:
        return Tone.UNKNOWN, "incomplete"
    reserved = cases[Standing.KNOWN] or cases[Standing.WARNED] or cases[Standing.INCONCLUSIVE]
    return (Tone.WARNING if reserved else Tone.GOOD), "conformant"


def _why(result: RunResult, tone: Tone) -> list[str]:
    """What the numbers do not say."""
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
    """How many entries of the list are wrong."""
    number = len(list(stale))
    return f"{plural(number, 'known failure')} {'is' if number == 1 else 'are'} no longer true"


def _numbers(requirements: Counter[RequirementVerdict], cases: Counter[Standing]) -> list[str]:
    held, violated = requirements[RequirementVerdict.HELD], requirements[RequirementVerdict.VIOLATED]
    parts = [
        f"{plural(held, 'requirement')} {'holds' if held == 1 else 'hold'}",
        f"{violated or 'none'} {'is' if violated < 2 else 'are'} violated",
    ]
    if warned := requirements[RequirementVerdict.WARNED]:
        parts.append(
            f"{plural(warned, 'piece of advice', 'pieces of advice')} {'is' if warned == 1 else 'are'} not followed"
        )
    if inconclusive := requirements[RequirementVerdict.INCONCLUSIVE]:
        parts.append(f"{inconclusive:,} stayed inconclusive")
    if known := cases[Standing.KNOWN]:
        parts.append(f"{plural(known, 'case')} failed as listed")
    if not_run := cases[Standing.NOT_RUN]:
        parts.append(f"{plural(not_run, 'case')} {'was' if not_run == 1 else 'were'} not run")
    return parts


def _short(requirements: Counter[RequirementVerdict]) -> list[str]:
    violated, warned = requirements[RequirementVerdict.VIOLATED], requirements[RequirementVerdict.WARNED]
    parts = [f"{violated:,} violated"] if violated else []
    if warned:
        parts.append(plural(warned, "warning"))
    return [*parts, f"{requirements[RequirementVerdict.HELD]:,} hold"]


def direct_first(violations: Iterable[Violation]) -> list[Violation]:
    """What a scenario asked for, before what a checker concludes; otherwise as they come."""
    return sorted(violations, key=lambda violation: violation.rule is not None)
