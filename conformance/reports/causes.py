"""Groups findings by probable cause, for all reports: one defect of a subject can fail many cases.

A case counts for the sign that its history shows, whatever the check tested: a lost commit, changed content. The cases
of one check, on both table features and in all commit modes, are one finding.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import msgspec

from conformance.history import events
from conformance.history.events import InvalidHistoryError
from conformance.history.operations import Operation
from conformance.history_checkers.rules import Rule
from conformance.interface import results
from conformance.reports.recorded import Recorded, began, cut, in_letters, read_history
from conformance.reports.summary import direct_first, failing_cases, levels_of, simplest
from conformance.requirements.catalogue import BINDING
from conformance.scenario.running import REQUIREMENTS

TWO_RATIFIED: Final = "two-ratified"
_SIGNS: Final[dict[str, str]] = {
    TWO_RATIFIED: "two attempts are ratified as one version",
    Rule.LANDED_TWICE.value: "one attempt becomes two versions",
    Rule.RATIFIED_ELSEWHERE.value: "a proposal is ratified as another version than the proposed one",
    Rule.REFUSED_BUT_LANDED.value: "a proposal that was refused is in the log",
    Rule.NOT_PROPOSED.value: "the log has a commit that no client proposed as that version",
    Rule.RATIFIED_BUT_LOST.value: "a commit that was answered as ratified is not in the log",
    Rule.RATIFIED_OUT_OF_ORDER.value: "a version is ratified before the version below it",
    Rule.LOG_HAS_GAP.value: "a version is ratified although the version below it is missing",
    Rule.BACKFILL_NOT_DONE.value: "a request to backfill does not publish the commits",
    Rule.HANDED_BACK_UNPUBLISHED.value: "a table is handed back before its commits are published",
    Rule.PUBLISHED_TOO_EARLY.value: "a commit is published before it is ratified",
    Rule.PUBLISHED_OUT_OF_ORDER.value: "a commit is published before the commit below it",
    Rule.PUBLISHED_THEN_GONE.value: "a published commit disappears",
    Rule.DIRECT_BUT_INVISIBLE.value: "a direct commit is answered before its file is visible",
    Rule.CONTENT_CHANGED.value: "a ratified commit has other content than its writer proposed",
    Rule.REPLAY_REFUSED.value: "a repeated request of a committed attempt is not answered `ratified`",
    Rule.OUTCOME_WRONG.value: "an attempt is reported with an outcome that is not final",
    Rule.TOMBSTONE_IGNORED.value: "an attempt that was resolved as not landed is not rejected as such",
    Rule.COMMIT_FORGOTTEN.value: "the owner does not list an unpublished commit",
    Rule.STALE_READ.value: "an answer for the latest version is out of date",
    Rule.STALE_REFUSAL.value: "a refusal names a latest version that is out of date",
    Rule.FALSE_CONFLICT.value: "a conflict is answered although the version is free",
    Rule.FALSE_GAP.value: "a gap is answered although no version is missing",
    Rule.VERSION_CHANGED.value: "answers name different attempts for one version",
    Rule.NEVER_RATIFIED.value: "an answer or a file shows a version that is not in the log",
    Rule.REPORTED_TOO_EARLY.value: "an answer names a version before it is ratified",
    Rule.REFUSAL_CONTRADICTS_ITSELF.value: "a refusal contradicts itself",
    Rule.LISTED_BEYOND_LATEST.value: "an answer lists commits beyond its own latest version",
    Rule.CHECKPOINT_UNPUBLISHED.value: "a checkpoint or a compaction has versions that are not published",
    Rule.READ_UNPUBLISHED.value: "a reader by path reads a version that is not published",
}
"""The signs that a history can show, in words. A sign that explains others comes before them."""
_ANY_PROMISE: Final = "PROFILE-CORE-07"
"""Any broken promise violates it, such as a missing operation."""
_BY_REQUIREMENT: Final = {
    **{
        name: rules[0].value
        for name in {name for names in REQUIREMENTS.values() for name in names}
        - {_ANY_PROMISE, *REQUIREMENTS[Rule.READ_UNPUBLISHED]}  # a reader by path violates its own in another way, too
        if len(rules := [rule for rule, names in REQUIREMENTS.items() if name in names]) == 1
    },
    **dict.fromkeys(REQUIREMENTS[Rule.RATIFIED_ELSEWHERE], Rule.CONTENT_CHANGED.value),
}
"""For each requirement that only one rule can violate, the sign of its violation."""
_RESTART: Final = ("crash", "restart")
_NAMES: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{0,12}){1,4}|managedCommits?|catalogManaged|(?:MC|CM)-[A-Z]+-\d+")
"""Texts that differ between the table features in the same finding. An id at the end of a shortened text may be cut."""
_COMPARED: Final = 500
"""How many characters of an explanation are compared."""
_LONGEST: Final = 200
"""The length of a headline that repeats an explanation, in characters."""
_UNEXPLAINED: Final = results.Violation(requirements=(), message="The case failed, and does not say why.")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A check that shows the cause."""

    cases: tuple[results.CaseResult, ...]
    """The check's cases, one for each variant, the simplest first."""
    violation: results.Violation
    """The violation of the first case that shows the cause most directly."""
    others: tuple[results.Violation, ...] = ()
    """The other violations of the first case."""

    @property
    def case(self) -> results.CaseResult:
        return self.cases[0]


class Cause(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Findings that probably come from one defect."""

    headline: str
    hints: tuple[str, ...]
    """What its cases have in common, in contrast to other cases."""
    requirements: tuple[results.RequirementResult, ...]
    """The requirements that its cases violate; the first describes the cause best."""
    evidence: tuple[Evidence, ...]
    """The checks that show the cause, the most direct first."""
    warning: bool = False
    """Whether the subject only ignores advice."""

    @cached_property
    def cases(self) -> tuple[results.CaseResult, ...]:
        return tuple(case for evidence in self.evidence for case in evidence.cases)


class _Member(msgspec.Struct, kw_only=True):
    """A case, or one program of it, that is evidence for one cause."""

    case: results.CaseResult
    violation: results.Violation
    others: tuple[results.Violation, ...]
    sign: str
    """A key of `_SIGNS`, or the first requirement of the violation."""
    restarted: bool
    """Whether the subject restarted before the violation."""
    recorded: Recorded | None
    warning: bool


def causes(result: results.RunResult) -> list[Cause]:
    """All causes of a run. The cause that most checks show comes first, ignored advice last."""
    levels = levels_of(result)
    members = []
    for case in failing_cases(result):
        recorded = recorded_of(case)
        violations = direct_first(case.violations) or [_UNEXPLAINED]
        for warning in (False, True):
            of_kind = [
                violation
                for violation in violations
                if results.fails(violation, levels, strict=result.strict) is not warning
            ]
            if of_kind:
                members.append(_member(case, of_kind, recorded, warning=warning))
    grouped = [_cause(result, group) for group in _groups(members)]
    grouped += _without_case(
        result, {requirement.requirement for cause in grouped for requirement in cause.requirements}
    )
    return sorted(grouped, key=_sort_key)


def _sort_key(cause: Cause) -> tuple[object, ...]:
    plain = min((evidence.violation.rule is not None for evidence in cause.evidence), default=True)
    operations = min((evidence.case.operations for evidence in cause.evidence), default=0)
    return cause.warning, not cause.evidence, -len(cause.evidence), plain, operations, cause.headline


def recorded_of(case: results.CaseResult) -> Recorded | None:
    """The case's history; None if no history can be read."""
    if case.history is None:
        return None
    try:
        return read_history(case.history)
    except InvalidHistoryError:
        return None


def _member(
    case: results.CaseResult, violations: list[results.Violation], recorded: Recorded | None, *, warning: bool
) -> _Member:
    signs = [violation.rule or _BY_REQUIREMENT.get("".join(violation.requirements[:1])) for violation in violations]
    sign = next((sign for sign in _SIGNS if sign in signs), None)
    pair = recorded is not None and _are_two_ratified(recorded)
    plainest = violations[0] if sign is None else violations[signs.index(sign)]
    others = tuple(violation for violation in violations if violation is not plainest)
    return _Member(
        case=case,
        violation=plainest,
        others=others,
        sign=TWO_RATIFIED if pair else sign or "".join(violations[0].requirements[:1]),
        restarted=_is_killed(case) or (recorded is not None and _follows_a_restart(recorded, [plainest, *others])),
        recorded=recorded,
        warning=warning,
    )


def _are_two_ratified(recorded: Recorded) -> bool:
    """Whether two different attempts were both answered as ratified for one version of one table."""
    first: dict[tuple[str, int], object] = {}
    return any(
        first.setdefault((step.table, step.answer.version), own := getattr(step.request, "attempt", None)) != own
        for step in recorded.steps
        if isinstance(step, Operation) and isinstance(step.answer, events.Ratified)
    )


def _is_killed(case: results.CaseResult) -> bool:
    """Whether the case kills processes at arbitrary times, which its history does not record."""
    return case.layer is results.Layer.PROCESSES and case.family == "restarts"


def _follows_a_restart(recorded: Recorded, violations: Iterable[results.Violation]) -> bool:
    """Whether the subject restarted before a wrong answer, or before the final log was read."""
    restart = min((fault.at for fault in recorded.faults if fault.kind in _RESTART), default=None)
    begun = {step.id: began(step) for step in recorded.steps}
    return restart is not None and any(
        violation.contradicting < 2 or any(begun.get(operation, 0) > restart for operation in violation.operations[:2])
        for violation in violations
    )


def _groups(members: Sequence[_Member]) -> list[list[_Member]]:
    """Groups of members that have the same sign, or the same explanation except for the table feature."""
    parents: dict[tuple[str, ...], tuple[str, ...]] = {}

    def root(token: tuple[str, ...]) -> tuple[str, ...]:
        while (parent := parents.setdefault(token, token)) != token:
            token = parent
        return token

    tokens = []
    for member in members:
        kind = "advice" if member.warning else ""
        text = _NAMES.sub("*", f"{member.violation.message[:_COMPARED]} {member.violation.expected[:_COMPARED]}")
        mine = (kind, "sign", member.sign)
        tokens.append(mine)
        parents[root((kind, member.case.check, text))] = root(mine)
    groups: dict[tuple[str, ...], list[_Member]] = {}
    for member, token in zip(members, tokens, strict=True):
        groups.setdefault(root(token), []).append(member)
    return list(groups.values())


def _cause(result: results.RunResult, members: list[_Member]) -> Cause:
    checks: dict[str, dict[str, _Member]] = {}
    for member in members:  # of programs of one case that show this cause, the simplest
        checks.setdefault(member.case.check, {}).setdefault(member.case.case, member)
    restarted = all(member.restarted for member in members)
    signs = Counter(member.sign for member in members if member.sign in _SIGNS)
    best = max(signs, key=lambda sign: (signs[sign], -list(_SIGNS).index(sign)), default="")
    groups = (list(group.values()) for group in checks.values())
    ordered = sorted(groups, key=lambda group: _plainness(group[0], best))
    named = Counter(
        name for member in members for shown in (member.violation, *member.others) for name in shown.requirements
    )
    first = ordered[0][0]
    requirements = [requirement for requirement in result.requirements if named[requirement.requirement]]
    own = first.violation.requirements[:1]
    requirements.sort(key=lambda requirement: (requirement.requirement not in own, requirement.level not in BINDING))
    violation = first.violation
    text = _SIGNS.get(best) or cut(in_letters(violation.message, first.recorded), _LONGEST).rstrip(".")
    return Cause(
        headline=f"After a restart: {text}" if restarted else text[:1].upper() + text[1:],
        hints=tuple(_hints(result, [member for group in ordered for member in group])),
        requirements=tuple(requirements),
        evidence=tuple(
            Evidence(cases=tuple(member.case for member in group), violation=group[0].violation, others=group[0].others)
            for group in ordered
        ),
        warning=members[0].warning,
    )


def _plainness(member: _Member, best: str) -> tuple[object, ...]:
    """A sort key: direct evidence for the headline first, then the simplest case."""
    return member.sign != best, member.violation.rule is not None, *simplest(member.case)


def _hints(result: results.RunResult, members: Sequence[_Member]) -> Iterable[str]:
    """What distinguishes the failing cases from passed ones."""
    checks = {member.case.check for member in members}
    failed = {(member.case.feature, member.case.commit_mode) for member in members}
    for index, of in ((0, "tables with {}"), (1, "{} commits")):
        only, rest = ({variant[at] for variant in failed} for at in (index, 1 - index))
        others = {  # verdicts of the variants that differ from the failed ones in this one respect
            case.verdict
            for case in result.cases
            for variant in [(case.feature, case.commit_mode)]
            if case.check in checks and variant[index] not in only and variant[1 - index] in rest
        }
        drawn = all(member.case.programs for member in members)  # a few programs of another variant prove little
        if len(only) == 1 and others == {results.Verdict.PASSED} and not drawn:
            yield f"only {of.format(*only)}: the same checks pass on the others"


def _without_case(result: results.RunResult, explained: set[str]) -> list[Cause]:
    """Causes for requirements that the result calls violated, but that no case in it shows."""
    shown = (results.RequirementVerdict.VIOLATED, results.RequirementVerdict.WARNED)
    left = [
        requirement
        for requirement in result.requirements
        if requirement.verdict in shown and requirement.requirement not in explained
    ]
    return [
        Cause(
            headline=requirement.paraphrase,
            hints=("the result holds no case that shows it",),
            requirements=(requirement,),
            evidence=(),
            warning=requirement.verdict is results.RequirementVerdict.WARNED,
        )
        for requirement in left
    ]


def variants_in_words(cases: Sequence[results.CaseResult]) -> str:
    """`managedCommit/staged`, or all variants of one or both table features."""
    modes: dict[str, list[str]] = {}
    for case in cases:
        modes.setdefault(case.feature, []).append(case.commit_mode)
    if len(modes) == 1:
        return "; ".join(f"{feature}/{', '.join(names)}" for feature, names in modes.items())
    return "both table features: " + "; ".join(f"{feature}/{', '.join(names)}" for feature, names in modes.items())
