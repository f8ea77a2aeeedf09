"""Which cases a run consists of, in which order, and with which seeds.

Cheap layers come first, and of every check one variant, so that most bugs are known within seconds. The seed of a case
follows from the run's seed and the case's name alone: neither the selection nor the number of workers changes what a
case does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from conformance.checks.registry import all_checks
from conformance.interface.messages import Identity
from conformance.results import CaseResult, Layer, Verdict
from conformance.running.profiles import RunProfile
from conformance.running.selection import EVERYTHING, Selection
from conformance.scenario.check import Check, Variant, applies

LAYERS: Final = (Layer.EXAMPLE, Layer.MODEL, Layer.SIMULATION, Layer.PROCESSES)
"""Cheapest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """One check on one variant: what a worker is told to do."""

    name: str
    check: Check
    variant: Variant
    seed: int
    count: int
    """Of generated scenarios, schedules or rounds; 1 for an example."""
    requirements: tuple[str, ...]
    """Those of the check that the subject is held to on this variant."""

    def without_verdict(self, verdict: Verdict, reason: str) -> CaseResult:
        return result_of(self.check, self.variant, self.requirements, verdict, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    cases: tuple[PlannedCase, ...]
    skipped: tuple[CaseResult, ...]
    """Checks for this side that cannot be run on the subject, and why."""

    def in_turn(self) -> list[PlannedCase]:
        """The order in which the cases are run: of every check one variant, then of every check another one. What a
        check finds it mostly finds on all of them, so that the first failure comes early."""
        by_check: dict[str, list[PlannedCase]] = {}
        for case in self.cases:
            by_check.setdefault(case.check.name, []).append(case)
        turns: dict[str, int] = {}
        for number, cases in enumerate(by_check.values()):
            first = number % len(cases)
            turns.update({case.name: turn for turn, case in enumerate(cases[first:] + cases[:first])})
        return sorted(self.cases, key=lambda case: (LAYERS.index(case.check.layer), turns[case.name]))

    @property
    def order(self) -> tuple[str, ...]:
        """The names of all cases, as reports list them."""
        return tuple(case.name for case in self.cases) + tuple(case.case for case in self.skipped)


def plan(identity: Identity, profile: RunProfile, seed: int, selection: Selection = EVERYTHING) -> Plan:
    """Every case of the kit that applies to the subject, of those selected. It may be empty."""
    cases: list[PlannedCase] = []
    skipped: list[CaseResult] = []
    for check in _in_order(all_checks()):
        if check.side != identity.side or not profile.counts[check.layer]:
            continue
        variants = check.variants(identity)
        if not variants and selection.takes(check, f"{check.family}/{check.name}", check.requirements):
            skipped.append(result_of(check, None, (), Verdict.SKIPPED, why_not(check, identity)))
        for variant in variants:
            case = planned(check, variant, identity, profile, seed)
            if not selection.takes(check, case.name, case.requirements):
                continue
            if case.requirements or not check.requirements:
                cases.append(case)
            else:
                reason = "the subject is held to none of its requirements here"
                skipped.append(case.without_verdict(Verdict.SKIPPED, reason))
    return Plan(cases=tuple(cases), skipped=tuple(skipped))


def planned(check: Check, variant: Variant, identity: Identity, profile: RunProfile, seed: int) -> PlannedCase:
    """The case of that check on that variant."""
    name = check.case(variant)
    return PlannedCase(
        name=name,
        check=check,
        variant=variant,
        seed=case_seed(seed, name),
        count=profile.counts[check.layer],
        requirements=tuple(each for each in check.requirements if applies(each, identity, variant)),
    )


def case_seed(seed: int, case: str) -> int:
    """48 bits: whole in every reader of JSON."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\n{case}".encode(), digest_size=6).digest())


def why_not(check: Check, identity: Identity) -> str:
    """Why a check has no case for the subject."""
    missing = sorted(profile.value for profile in check.needs if profile.value not in identity.profiles)
    if missing:
        return f"needs {' and '.join(missing)}, which the subject does not declare"
    wanted = ", ".join(f"{feature}/{commit_mode}" for feature in check.features for commit_mode in check.commit_modes)
    return f"the subject offers none of {wanted}"


def result_of(
    check: Check, variant: Variant | None, requirements: tuple[str, ...], verdict: Verdict, reason: str
) -> CaseResult:
    """Of a case that came to no verdict."""
    return CaseResult(
        case=f"{check.family}/{check.name}" if variant is None else check.case(variant),
        check=check.name,
        title=check.title,
        family=check.family.value,
        layer=check.layer,
        feature="" if variant is None else variant.feature,
        commit_mode="" if variant is None else variant.commit_mode,
        requirements=requirements,
        verdict=verdict,
        reason=reason,
    )


def _in_order(checks: Iterable[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: LAYERS.index(check.layer))
