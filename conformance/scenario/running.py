"""Runs one case: a check on one variant of one subject. `REQUIREMENTS` maps the rules of the checkers to
requirements."""

from typing import Any, Final

from conformance.history.events import InvalidHistoryError
from conformance.history_checkers.check import HistoryVerdict, HistoryViolation
from conformance.history_checkers.rules import Rule
from conformance.interface.results import CaseResult, Verdict, Violation, only_strays
from conformance.interface.subject import AdapterError, Subject
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant, applies
from conformance.scenario.client import ClientScenario
from conformance.scenario.scenario import Inconclusive, Scenario, Stopped, Violated

REQUIREMENTS: Final[dict[Rule, tuple[str, ...]]] = {
    Rule.LOG_HAS_GAP: ("MC-COMMIT-01", "CM-COMMIT-07"),
    Rule.LANDED_TWICE: ("PROFILE-CORE-06",),
    Rule.NOT_PROPOSED: ("MC-FEATURE-02", "CM-FEATURE-01"),
    Rule.REFUSED_BUT_LANDED: ("MC-FEATURE-03", "CM-COMMIT-01"),
    Rule.RATIFIED_BUT_LOST: ("MC-COMMIT-02", "CM-COMMIT-08"),
    Rule.RATIFIED_ELSEWHERE: ("MC-API-03", "CM-CATALOG-03"),
    Rule.VERSION_CHANGED: ("MC-FEATURE-02", "CM-FEATURE-01"),
    Rule.CONTENT_CHANGED: ("MC-BACKFILL-01", "CM-PUBLISH-03", "MC-FEATURE-01"),
    Rule.NEVER_RATIFIED: ("MC-FILES-08", "CM-FILES-07"),
    Rule.REPLAY_REFUSED: ("PROFILE-RETRY-01",),
    Rule.OUTCOME_WRONG: ("PROFILE-OUTCOME-02", "PROFILE-OUTCOME-01"),
    Rule.TOMBSTONE_IGNORED: ("PROFILE-OUTCOME-02",),
    Rule.REFUSAL_CONTRADICTS_ITSELF: ("PROFILE-CORE-05",),
    Rule.LISTED_BEYOND_LATEST: ("MC-GET-02", "CM-GET-04"),
    Rule.RATIFIED_OUT_OF_ORDER: ("MC-COMMIT-01", "CM-COMMIT-07"),
    Rule.FALSE_CONFLICT: ("PROFILE-CORE-05",),
    Rule.FALSE_GAP: ("PROFILE-CORE-05",),
    Rule.STALE_READ: ("MC-READ-06", "CM-GET-04"),
    Rule.STALE_REFUSAL: ("PROFILE-CORE-07",),
    Rule.REPORTED_TOO_EARLY: ("MC-GET-02", "CM-GET-04"),
    Rule.PUBLISHED_TOO_EARLY: ("MC-FILES-08", "CM-FILES-07"),
    Rule.PUBLISHED_OUT_OF_ORDER: ("MC-BACKFILL-03", "CM-PUBLISH-06"),
    Rule.PUBLISHED_THEN_GONE: ("MC-FILES-08", "CM-FILES-07"),
    Rule.DIRECT_BUT_INVISIBLE: ("MC-COMMIT-05", "CM-COMMIT-05"),
    Rule.COMMIT_FORGOTTEN: ("MC-FILES-06", "MC-GET-01", "CM-STORE-09", "CM-GET-03"),
    Rule.BACKFILL_NOT_DONE: ("MC-BACKFILL-05", "PROFILE-CORE-10"),
    Rule.HANDED_BACK_UNPUBLISHED: ("MC-RELEASE-03", "CM-PUBLISH-06"),
    Rule.CHECKPOINT_UNPUBLISHED: ("MC-CHECKPOINT-03", "CM-MAINT-01"),
    Rule.READ_UNPUBLISHED: ("MC-READ-04", "CM-ACCESS-01"),
}

OF_A_LOSS: Final = ("MC-FEATURE-02", "CM-FEATURE-01")
"""Of a commit that was answered as ratified and is lost, if no answer shows that its version was ratified twice."""

OF_CLIENTS: Final[dict[Rule, tuple[str, ...]]] = {
    **REQUIREMENTS,
    Rule.STALE_READ: ("MC-READ-07", "CM-READ-05"),
    Rule.REPORTED_TOO_EARLY: ("MC-FILES-05", "CM-FILES-04"),
    Rule.NEVER_RATIFIED: ("MC-FILES-05", "CM-FILES-04"),
    Rule.LANDED_TWICE: ("PROFILE-UNKNOWN-01", "PROFILE-CLIENT-02"),
    Rule.REFUSED_BUT_LANDED: ("PROFILE-CLIENT-02",),
    Rule.RATIFIED_BUT_LOST: ("PROFILE-CLIENT-02",),
    Rule.RATIFIED_ELSEWHERE: ("PROFILE-CLIENT-02",),
    Rule.COMMIT_FORGOTTEN: (),
    Rule.PUBLISHED_THEN_GONE: (),
}
"""The same for a client under test, whose owner is the kit's own and correct. What is gone at the end, the client
deleted; each deletion is judged when it happens."""

OF_RESTARTS: Final = frozenset({Rule.RATIFIED_BUT_LOST, Rule.COMMIT_FORGOTTEN})
"""Rules whose violation by a restarted subject first of all breaks its promise of durability."""


class BrokenInCaseError(AdapterError):
    """The subject sent an invalid answer in a case that already shows a violation, which is in `result`."""

    def __init__(self, error: AdapterError, result: CaseResult) -> None:
        super().__init__(error.problem, error.received, error.expected)
        self.result = result

    def __reduce__(self) -> tuple[type[AdapterError], tuple[Any, ...]]:
        return type(self), (AdapterError(self.problem, self.received, self.expected), self.result)


def run_case(
    check: Check, variant: Variant, subject: Subject, *, seed: int = 0, salt: str = "", host: ClientHost | None = None
) -> CaseResult:
    """Run the check once. Raises only `AdapterError`, if the subject does not implement the interface, or
    `BrokenInCaseError`, if a violation was recorded before that.

    `host`: the address of the kit's owner for a client under test, with which the subject was opened.
    """
    name = check.case(variant)
    if check.side == "owner":
        return _run(check, variant, subject, Scenario(subject, variant, name=name, seed=seed, salt=salt))
    if host is None:
        raise ValueError(f"{name} is for clients: it needs the host with which the subject was opened")
    scenario = ClientScenario(subject, variant, host, name=name, seed=seed, salt=salt)
    try:
        return _run(check, variant, subject, scenario)
    finally:
        scenario.close()


def _run(check: Check, variant: Variant, subject: Subject, scenario: Scenario) -> CaseResult:
    ended: Stopped | AdapterError | None = None
    try:
        check.function(scenario)
    except (Stopped, AdapterError) as stopped:
        ended = stopped
    return finish(check, variant, subject, scenario, ended)


def finish(
    check: Check, variant: Variant, subject: Subject, scenario: Scenario, ended: Stopped | AdapterError | None = None
) -> CaseResult:
    """The result of a finished scenario; `ended` is the exception that stopped it, if any. A recorded violation counts
    even if the scenario was stopped, or its final logs cannot be read. Raises as `run_case` does."""
    broken = ended if isinstance(ended, AdapterError) else None
    reason = ended.reason if isinstance(ended, Inconclusive) else ""
    operations = scenario.recording.writer.operations
    try:
        unseen = scenario.conclude()
    except AdapterError as error:
        broken, scenario.broken = broken or error, True
        unseen = scenario.conclude()
    except Stopped as stopped:
        unseen = str(stopped)
    try:
        scenario.violations += _judge(scenario)
    except InvalidHistoryError as error:
        unseen = unseen or f"the history cannot be judged: {error.problem}"
    verdict, reason = Verdict.PASSED, reason or unseen
    if scenario.violations or isinstance(ended, Violated):
        verdict, reason = Verdict.FAILED, reason if only_strays(scenario.violations) else ""
    elif reason:
        verdict = Verdict.INCONCLUSIVE
    result = _result(check, variant, subject, scenario, verdict, reason, operations)
    if broken is None:
        return result
    raise BrokenInCaseError(broken, result) if verdict is Verdict.FAILED else broken


def _result(
    check: Check, variant: Variant, subject: Subject, scenario: Scenario, verdict: Verdict, reason: str, operations: int
) -> CaseResult:
    failed = verdict is Verdict.FAILED
    return check.result(
        variant,
        check.held(subject.identity, variant),
        verdict,
        reason,
        violations=tuple(scenario.violations),
        operations=operations,
        history=scenario.recording.text if failed else None,
    )


def _judge(scenario: Scenario) -> list[Violation]:
    """The violations that the checkers find in the history. Raises `InvalidHistoryError`."""
    verdict = scenario.recording.judge()
    named = [violation for breach in verdict.violations if (violation := _named(breach, scenario)) is not None]
    return scenario.audit() + named


def _named(breach: HistoryViolation, scenario: Scenario) -> Violation | None:
    """The breach as a violation of the catalogue's requirements; None if none of them applies to the subject."""
    named = OF_CLIENTS if isinstance(scenario, ClientScenario) else REQUIREMENTS
    if breach.rule is Rule.READ_UNPUBLISHED and isinstance(scenario, ClientScenario) and _informed(breach, scenario):
        return None
    broken = scenario.attributed(_requirements(breach, named))
    if scenario.mortal and breach.rule in OF_RESTARTS:
        broken = ("PROFILE-DURABLE-01", *broken)
    held = tuple(requirement for requirement in broken if applies(requirement, scenario.identity, scenario.variant))
    if not held:
        return None
    where = scenario.recording.difference(breach.message) if breach.rule is Rule.CONTENT_CHANGED else ""
    return _violation(breach, held, where)


def violations_of(verdict: HistoryVerdict) -> list[Violation]:
    """The violations in a history without its subject: a rule violates all its requirements of the table feature."""
    foreign = "MC-" if verdict.header.feature == "catalogManaged" else "CM-"
    return [
        _violation(breach, tuple(name for name in _requirements(breach, REQUIREMENTS) if not name.startswith(foreign)))
        for breach in verdict.violations
    ]


def _requirements(breach: HistoryViolation, named: dict[Rule, tuple[str, ...]]) -> tuple[str, ...]:
    alone = breach.rule is Rule.RATIFIED_BUT_LOST and breach.contradicting < 2
    return OF_A_LOSS if alone and named is REQUIREMENTS else named[breach.rule]


def _violation(breach: HistoryViolation, requirements: tuple[str, ...], where: str = "") -> Violation:
    return Violation(
        requirements=requirements,
        message=f"{breach.message} They differ: {where}." if where else breach.message,
        expected=breach.requirement,
        observed=where,
        operations=tuple(operation.id for operation in breach.operations),
        contradicting=breach.contradicting,
        rule=breach.rule.value,
        table=breach.table,
        version=breach.version,
    )


def _informed(breach: HistoryViolation, scenario: ClientScenario) -> bool:
    """Whether a client that got a path asked the owner of that table, and so knew its unpublished commits."""
    return any(operation.id in scenario.informed for operation in breach.operations)
