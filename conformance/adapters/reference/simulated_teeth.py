"""Every known-bad variant of the reference that needs the simulator to be found, in one catalogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from conformance.adapters.reference import simulated_variants
from conformance.adapters.reference.simulated import SimulatedReference
from conformance.adapters.reference.simulated_crashes import CRASH_VARIANTS, CrashVariant
from conformance.adapters.reference.simulated_more_schedules import MORE_VARIANTS
from conformance.adapters.reference.simulated_processes import SimulatedProcesses
from conformance.adapters.reference.simulated_schedules import VARIANTS, ScheduleVariant
from conformance.adapters.reference.simulated_variants import PowerVariant
from conformance.simulation.power_scopes import Scope as Operation
from conformance.simulation.power_scopes import scopes as operations
from conformance.simulation.scopes_catalogue import scopes
from conformance.simulation.teeth import Kill, Tooth, by_crashes, by_power, by_schedules


def _operation(name: str) -> Operation:
    return next(scope for scope in operations(SimulatedReference.storage) if scope.name == name)


def _tooth(variant: ScheduleVariant | CrashVariant | PowerVariant, family: str, hunt: Callable[[], Kill]) -> Tooth:
    return Tooth(
        id=variant.name,
        title=variant.title,
        family=family,
        scope=variant.scope,
        requirement=variant.requirement,
        hunt=hunt,
    )


def _schedule(variant: ScheduleVariant) -> Tooth:
    def hunt() -> Kill:
        (scope,) = scopes(lambda each: each.id == variant.scope)
        with variant.host() as host:
            return by_schedules(variant.name, host, scope, variant.requirement)

    return _tooth(variant, "schedule", hunt)


def _crash(variant: CrashVariant) -> Tooth:
    def hunt() -> Kill:
        with variant.host() as host:
            return by_crashes(host, _operation(variant.scope))

    return _tooth(variant, "crash", hunt)


def _power(variant: PowerVariant) -> Tooth:
    def hunt() -> Kill:
        with variant.start() as host:
            scope = _operation(variant.scope)
            return by_power(host, scope, deaths=variant.deaths, failing_syncs=variant.failing_syncs)

    return _tooth(variant, "power", hunt)


SCHEDULES: Final = (*VARIANTS, *MORE_VARIANTS)
TEETH: Final = (
    *map(_schedule, SCHEDULES),
    *map(_crash, CRASH_VARIANTS),
    *map(_power, simulated_variants.VARIANTS),
)


def hunted(subject: str, family: str, scope: str) -> Kill:
    """Hunt a variant, or the `reference`, once more where a variant was found. Raises `KeyError` for none."""
    found = {tooth.id: tooth for tooth in TEETH if tooth.family == family and tooth.scope == scope}
    if subject != "reference":
        return found[subject].hunt()
    if family == "crash":
        with SimulatedProcesses() as processes:
            return by_crashes(processes, _operation(scope))
    deaths = any(each.deaths for each in simulated_variants.VARIANTS if each.scope == scope)
    with SimulatedReference() as host:
        return by_power(host, _operation(scope), deaths=deaths)
