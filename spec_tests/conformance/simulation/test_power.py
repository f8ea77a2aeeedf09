"""The reference loses nothing to a power cut at any effect."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.simulated_reference.processes import SimulatedProcesses
from conformance.simulation.power import Budget, Result, explore
from spec_tests.conformance.simulation.hunting import operation_named


def cut(name: str, states: int, *, checkpointing: bool = False, **more: Any) -> Result:
    with SimulatedProcesses(checkpointing=checkpointing) as host:
        return explore(host, operation_named(name), Budget(states=states, states_in_recovery=2, **more), seed=1)


@pytest.mark.parametrize(
    "name",
    [
        "first-start/catalogManaged/inline",
        "commit/catalogManaged/staged",
        "commit/managedCommit/direct",
        "take-over/managedCommit/staged",
    ],
)
def test_the_reference_loses_nothing(name: str) -> None:
    result = cut(name, 4)
    assert result.violations == []
    assert result.cuts > 20
    assert result.states > result.cuts // 2
    assert 0 < result.judged <= result.starts


def test_nor_while_the_ledger_checkpoints_its_write_ahead_log() -> None:
    result = cut("fold/catalogManaged/inline", 4, checkpointing=True)
    assert result.violations == []
    assert result.effects > cut("fold/catalogManaged/inline", 1).effects, "the database is written and synced too"


def test_a_death_before_the_cut_loses_nothing() -> None:
    """The next process sees what was written and not synced: no answer may rely on it."""
    result = cut("commit/catalogManaged/inline", 4, deaths=True)
    assert result.violations == []
    assert result.recoveries > 10
    assert result.cuts > 5 * result.recoveries


def test_a_failed_sync_is_not_believed_when_repeated() -> None:
    """STORAGE.md#failed-fsync: after a failed fsync stop; a retried fsync lies."""
    whole = cut("commit/catalogManaged/inline", 2)
    result = cut("commit/catalogManaged/inline", 2, failing_syncs=True)
    assert result.violations == []
    assert result.cuts > 2 * whole.cuts
