"""The simulation as tests of sabotages: every schedule of small scopes, every power cut.

Only the catalogue names this file; the simulation's own command runs the complete simulation.
"""

from itertools import islice
from typing import Final

import pytest

from conformance.simulation.explore import Report, depth_first
from conformance.simulation.operations import CHECKPOINTING, Operation, operations
from conformance.simulation.power import Budget, explore
from conformance.simulation.reference import STORAGE, SimulatedReference
from conformance.simulation.schedule_scopes import Outcome, Scope, ScopeRun, prepare, scopes

SCHEDULES: Final = 250
"""The maximum for each scope; most scopes have fewer."""

CUTS: Final = Budget(states=8)
TROUBLED: Final = Budget(states=1, deaths=True, failing_syncs=True)


@pytest.mark.parametrize("scope", scopes(), ids=lambda scope: scope.id)
def test_no_schedule_breaks_a_promise(scope: Scope) -> None:
    with SimulatedReference() as host:
        start = prepare(scope, host)
        for outcome in islice(depth_first(lambda: ScopeRun(scope, host, start), Report()), SCHEDULES):
            assert isinstance(outcome, Outcome)
            assert outcome.violations == ()


@pytest.mark.parametrize("operation", list(operations(STORAGE)), ids=lambda operation: operation.name)
def test_a_power_cut_loses_nothing(operation: Operation) -> None:
    with SimulatedReference(checkpointing=operation.kind == CHECKPOINTING) as host:
        assert explore(host, operation, CUTS, seed=1).violations == []


def test_power_cut_after_a_crash_or_a_failed_sync_loses_nothing() -> None:
    (operation,) = [operation for operation in operations(STORAGE) if operation.name == "commit/catalogManaged/inline"]
    with SimulatedReference() as host:
        assert explore(host, operation, TROUBLED, seed=1).violations == []
