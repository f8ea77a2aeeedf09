"""The simulation as checks that a mutant meets after the tests: every schedule of small scopes, every power cut.

Not collected by itself (the command of the simulation runs all of it): the mutation run names this file.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import pytest

from conformance.adapters.reference.simulated import SimulatedReference
from conformance.adapters.reference.simulated_clients import SimulatedClients
from conformance.simulation.explore import Report, depth_first
from conformance.simulation.power import Budget, explore
from conformance.simulation.power_scopes import FOLDING
from conformance.simulation.power_scopes import Scope as PowerScope
from conformance.simulation.power_scopes import scopes as power_scopes
from conformance.simulation.scopes import Outcome, Scope, ScopeRun, prepare
from conformance.simulation.scopes_catalogue import scopes

SCHEDULES: Final = 250
"""Of each scope; most have fewer."""

CUTS: Final = Budget(states=8)
TROUBLED: Final = Budget(states=1, deaths=True, failing_syncs=True)
TROUBLED_SCOPES: Final = ("commit/catalogManaged/inline",)


@pytest.mark.parametrize("scope", scopes(), ids=lambda scope: scope.id)
def test_no_schedule_breaks_a_promise(scope: Scope) -> None:
    with SimulatedClients() as host:
        start = prepare(scope, host)
        for outcome in islice(depth_first(lambda: ScopeRun(scope, host, start), Report()), SCHEDULES):
            assert isinstance(outcome, Outcome)
            assert outcome.violations == ()


POWER_SCOPES: Final = list(power_scopes(SimulatedReference.storage))


@pytest.mark.parametrize("scope", POWER_SCOPES, ids=lambda scope: scope.name)
def test_a_power_cut_loses_nothing(scope: PowerScope) -> None:
    with SimulatedReference(folding=scope.operation == FOLDING) as host:
        assert explore(host, scope, CUTS, seed=1).violations == []


@pytest.mark.parametrize("name", TROUBLED_SCOPES)
def test_nor_after_a_death_or_a_sync_that_failed(name: str) -> None:
    (scope,) = [each for each in POWER_SCOPES if each.name == name]
    with SimulatedReference(folding=scope.operation == FOLDING) as host:
        assert explore(host, scope, TROUBLED, seed=1).violations == []
