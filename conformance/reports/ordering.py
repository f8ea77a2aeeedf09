"""In which order findings are told, the same on the console, in the summary and on the page.

The sentence that names a bug comes first: what a scenario asked for and did not get, before what the checkers conclude
from a whole history, which a reader has to follow; then the shortest: an owner that is badly broken fails most cases,
and what long ones show is a consequence of what short ones show. A finding that both table features have is told once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from conformance.reports.summary import failing_cases, fails, levels_of, simplest
from conformance.results import CaseResult, Layer, RequirementResult, RequirementVerdict, RunResult, Violation

FEATURES: Final = {"MC-": "managed commits", "CM-": "catalog-managed"}
"""By the prefix of a requirement that binds one table feature alone."""

_NAMES: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{0,12}){1,4}|managedCommits?|catalogManaged|(?:MC|CM)-[A-Z]+-\d+")
"""What the same finding of two table features cannot have in common; an id at the end of a cut text may be cut."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement that is violated, or advice that is not followed, with what shows it, the plainest first."""

    requirement: RequirementResult
    findings: tuple[tuple[CaseResult, Violation], ...]
    """One for each case."""
    twins: tuple[RequirementResult, ...] = ()
    """Those of the other table feature that the same explanation is about."""


def direct_first(violations: Iterable[Violation]) -> list[Violation]:
    """What a scenario asked for, before what a checker concludes; otherwise as they come."""
    return sorted(violations, key=lambda violation: violation.rule is not None)


def evidence(result: RunResult) -> list[Evidence]:
    """All that a run has against its subject, in the order of all reports; advice comes last."""
    told = (RequirementVerdict.VIOLATED, RequirementVerdict.WARNED)
    found, levels = _findings(result), levels_of(result)
    ordered = []
    for place, requirement in enumerate(result.requirements):
        if requirement.verdict in told:
            name = requirement.requirement
            findings = sorted(found.get(name, []), key=lambda pair: (*_plainness(name, *pair), *simplest(pair[0])))
            warning = not fails(Violation(requirements=(name,), message=""), levels, strict=result.strict)
            plainness = [_plainness(name, *pair) for pair in findings] or [_NOTHING]
            shortest = findings[0][0].operations if findings else 0
            key = (warning, plainness[0], shortest, -plainness.count(plainness[0]), place)
            ordered.append((key, Evidence(requirement=requirement, findings=tuple(findings))))
    ordered.sort(key=lambda pair: pair[0])
    return _folded([each for _, each in ordered])


def in_order(result: RunResult) -> list[str]:
    """The same requirements by name, those that are told with another one right behind it."""
    return [each.requirement for found in evidence(result) for each in (found.requirement, *found.twins)]


def twins_in_words(found: Evidence) -> str:
    """`The same for catalog-managed: CM-LOG-02`; empty if there are none."""
    names = ", ".join(each.requirement for each in found.twins)
    return f"The same for {FEATURES[found.twins[0].requirement[:3]]}: {names}" if names else ""


def _findings(result: RunResult) -> dict[str, list[tuple[CaseResult, Violation]]]:
    """By requirement: of each case the violation that says most plainly that it is violated."""
    found: dict[str, list[tuple[CaseResult, Violation]]] = {}
    for case in failing_cases(result):
        for name in dict.fromkeys(each for violation in case.violations for each in violation.requirements):
            about = [violation for violation in case.violations if name in violation.requirements]
            plainest = min(about, key=lambda violation, name=name: _plainness(name, case, violation))  # type: ignore[misc]
            found.setdefault(name, []).append((case, plainest))
    return found


_NOTHING: Final = (2, 2, len(Layer))


def _plainness(name: str, case: CaseResult, violation: Violation) -> tuple[int, int, int]:
    """How little the violation says of the requirement: least for one that an example asked for, and that it names."""
    named_first = violation.requirements[0] == name
    return int(violation.rule is not None), int(not named_first), list(Layer).index(case.layer)


def _folded(ordered: list[Evidence]) -> list[Evidence]:
    kept: list[Evidence] = []
    for each in ordered:
        place = next((place for place, other in enumerate(kept) if _are_twins(other, each)), None)
        if place is None:
            kept.append(each)
        else:
            kept[place] = msgspec.structs.replace(kept[place], twins=(*kept[place].twins, each.requirement))
    return kept


def _are_twins(one: Evidence, other: Evidence) -> bool:
    """Whether what is told first of each is the same but for the table feature."""
    first, second = one.requirement, other.requirement
    if {first.requirement[:3], second.requirement[:3]} != set(FEATURES) or first.verdict is not second.verdict:
        return False
    return bool(one.findings and other.findings) and _told(*one.findings[0]) == _told(*other.findings[0])


def _told(case: CaseResult, violation: Violation) -> tuple[str, ...]:
    texts = (violation.message, violation.expected, violation.observed)
    return case.check, violation.rule or "", *(_NAMES.sub("*", text) for text in texts)
