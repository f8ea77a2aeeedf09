"""Derives the verdicts on requirements, profiles and the run from the results of the cases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from conformance import results
from conformance.interface.messages import Identity
from conformance.interface.subject import GONE
from conformance.requirements.catalogue import BINDING, Level, Profile, Requirement, Side, load
from conformance.requirements.lookup import place_of
from conformance.results import CaseResult, Layer, RequirementResult, RequirementVerdict, Verdict, Violation
from conformance.scenario.check import OTHER_FEATURE
from conformance.scenario.formatting import NO_SUCH_JOB

JUDGED: Final = (Verdict.PASSED, Verdict.FAILED)
FAILED_OTHERWISE: Final = "a case that is evidence for it failed for another reason"
_LIMIT_OF_NAMES: Final = 3
_NO_ANSWER: Final = re.compile(rf"\b(?:{GONE}: |no answer within |HTTP status )")
"""Matches the reasons that adapters give when no answer arrived."""


def fails(violation: Violation, *, strict: bool = False) -> bool:
    """Like `results.fails`, with the levels of the catalogue."""
    levels = {requirement: load().requirement(requirement).level for requirement in violation.requirements}
    return results.fails(violation, levels, strict=strict)


def failing(cases: Iterable[CaseResult], *, strict: bool = False) -> list[CaseResult]:
    """The cases that make the subject not conformant."""
    return [case for case in cases if any(fails(violation, strict=strict) for violation in case.violations)]


def requirement_results(cases: Iterable[CaseResult], identity: Identity) -> tuple[RequirementResult, ...]:
    """One result for each requirement, in the catalogue's order."""
    evidence: dict[str, list[CaseResult]] = {}
    against: dict[str, list[CaseResult]] = {}
    for case in cases:
        if case.verdict in (Verdict.SKIPPED, Verdict.NOT_RUN):
            continue
        for requirement in case.requirements:
            evidence.setdefault(requirement, []).append(case)
        for requirement in dict.fromkeys(name for violation in case.violations for name in violation.requirements):
            against.setdefault(requirement, []).append(case)
    return tuple(
        _result(requirement, evidence.get(requirement.id, []), against.get(requirement.id, []), identity)
        for requirement in load().requirements
    )


def _result(
    requirement: Requirement, evidence: list[CaseResult], against: list[CaseResult], identity: Identity
) -> RequirementResult:
    verdict, note = _verdict(requirement, evidence, against, identity)
    names = dict.fromkeys([case.case for case in against] + [case.case for case in evidence])
    level, source, section, paraphrase = _bound_by(requirement, identity)
    place = place_of(source, section)
    return RequirementResult(
        requirement=requirement.id,
        level=level,
        section=section,
        source=source,
        paraphrase=paraphrase,
        rule=place.text,
        links=tuple(results.Link(title=link.title, url=link.url) for link in place.links),
        verdict=verdict,
        cases=tuple(names),
        note=note,
    )


def _bound_by(requirement: Requirement, identity: Identity) -> tuple[Level, str, str, str]:
    """The level, document, section and paraphrase of a requirement, for this subject. If a public contract of the
    subject demands a promise too, they come from the contract."""
    contract = requirement.contract
    if contract is not None and contract.promise in identity.promises:
        return Level.MUST, contract.document, contract.section, contract.paraphrase
    return requirement.level, requirement.source, requirement.passage, requirement.paraphrase


def _verdict(
    requirement: Requirement, evidence: list[CaseResult], against: list[CaseResult], identity: Identity
) -> tuple[RequirementVerdict, str]:
    if against and requirement.level in BINDING:
        return RequirementVerdict.VIOLATED, ""
    if against and requirement.level is Level.SHOULD:
        return RequirementVerdict.WARNED, ""
    passed = any(case.held for case in evidence)
    if passed and any(_ended_early(case) for case in evidence):
        return RequirementVerdict.INCONCLUSIVE, FAILED_OTHERWISE
    if passed:
        return RequirementVerdict.HELD, ""
    if evidence:
        reasons = dict.fromkeys(case.reason or "it failed for another reason" for case in evidence)
        return RequirementVerdict.INCONCLUSIVE, "; ".join(list(reasons)[:_LIMIT_OF_NAMES])
    excuse = not_applicable(requirement, identity)
    if excuse:
        return RequirementVerdict.NOT_APPLICABLE, excuse
    if requirement.untestable:
        return RequirementVerdict.NOT_CHECKED, f"nothing that can be observed shows it: {requirement.untestable}"
    return RequirementVerdict.NOT_CHECKED, "no case of this run is evidence"


def _ended_early(case: CaseResult) -> bool:
    """Whether an example failed. Its remaining steps did not run, so requirements without a violation have no verdict.
    A generated case is different: its other programs test the same requirements."""
    return case.verdict is Verdict.FAILED and case.layer is Layer.EXAMPLE and not case.held


def not_applicable(requirement: Requirement, identity: Identity) -> str:
    """Why the requirement does not bind the subject; empty if it does."""
    if (requirement.side is Side.OWNER) != (identity.side == "owner"):
        return f"binds a {requirement.side}; the subject is of the side {identity.side}"
    offered = [
        feature for feature in OTHER_FEATURE if feature in identity.features and identity.commit_modes.get(feature)
    ]
    if offered and all(requirement.id.startswith(OTHER_FEATURE[feature]) for feature in offered):
        return f"binds another table feature; the subject offers {', '.join(offered)} only"
    if requirement.profile is not Profile.CORE and requirement.profile.value not in identity.profiles:
        return f"is a promise of {requirement.profile}, which the subject does not declare"
    return ""


def profiles_without_verdict(cases: Sequence[CaseResult], identity: Identity) -> tuple[str, ...]:
    """Declared profiles without any case that came to a verdict."""
    open_profiles = []
    for profile in identity.profiles:
        about = [case for case in cases if case.verdict is not Verdict.SKIPPED and _is_about(case, profile)]
        if about and not any(case.verdict in JUDGED for case in about):
            open_profiles.append(profile)
    return tuple(open_profiles)


def _is_about(case: CaseResult, profile: str) -> bool:
    return any(load().requirement(requirement).profile.value == profile for requirement in case.requirements)


def without_verdict_in_words(profiles: Sequence[str]) -> str:
    one = len(profiles) == 1
    return (
        f"no case of the declared profile{'' if one else 's'} {', '.join(profiles)} came to a verdict: the subject "
        "refused or did not answer"
    )


def too_little(cases: Sequence[CaseResult]) -> tuple[str, ...]:
    """The reasons why the run is not enough to call a subject conformant; empty if it is enough.

    A subject may reject many requests; the other cases judge it. But if fewer than half of the cases come to a verdict,
    the passed cases prove little. If the subject died or did not answer, its behaviour is unknown. A client need not
    support everything: for a client that only reads, the cases about reading are enough."""
    judged = sum(case.verdict in JUDGED for case in cases)
    open_ = [case for case in cases if case.verdict is Verdict.INCONCLUSIVE and not case.reason.startswith(NO_SUCH_JOB)]
    silent = [case for case in open_ if _NO_ANSWER.search(case.reason)]
    problems = []
    if silent:
        number = "1 case" if len(silent) == 1 else f"{len(silent)} cases"
        problems.append(f"{number} ended because no answer came; the first is {silent[0].case}: {silent[0].reason}")
    if judged and len(open_) > judged:
        problems.append(f"only {judged} of {judged + len(open_)} cases came to a verdict, fewer than half")
    return tuple(problems)
