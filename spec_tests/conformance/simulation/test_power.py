"""The reference loses nothing to a power cut at any effect; an owner that leaves out one fsync does, and is found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.adapters.reference.simulated import SimulatedReference
from conformance.adapters.reference.simulated_variants import VARIANTS, PowerVariant
from conformance.requirements.catalogue import load
from conformance.simulation.__main__ import main
from conformance.simulation.power import Budget, Result, explore
from conformance.simulation.power_scopes import FOLDING, Scope, scopes
from conformance.simulation.teeth import DEATHS

SLOW = {"taken-name-not-synced", "name-in-doubt-kept", "staged-again-not-synced", "equal-file-believed"}
"""Beyond half a second of processor time: `python -m conformance.simulation teeth` has them."""
SCOPES = {scope.name: scope for scope in scopes(SimulatedReference.storage)}


def cut(scope: Scope, host: SimulatedReference, states: int, **more: Any) -> Result:
    with host:
        return explore(host, scope, Budget(states=states, states_in_recovery=2, **more), seed=1)


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
    result = cut(SCOPES[name], SimulatedReference(), 4)
    assert result.violations == []
    assert result.cuts > 20
    assert result.states > result.cuts // 2
    assert 0 < result.judged <= result.starts


def test_nor_does_it_while_the_ledger_folds_its_write_ahead_log() -> None:
    scope = next(scope for scope in SCOPES.values() if scope.operation == FOLDING)
    result = cut(scope, SimulatedReference(folding=True), 4)
    without = cut(scope, SimulatedReference(), 1)
    assert result.violations == []
    assert result.effects > without.effects, "the database is written and synced too"


def test_a_process_that_dies_before_the_power_goes_loses_nothing_either() -> None:
    """What it wrote and did not sync is seen by whoever starts next: nothing may be answered on the strength of it."""
    result = cut(SCOPES["commit/catalogManaged/inline"], SimulatedReference(), 4, deaths=True)
    assert result.violations == []
    assert result.recoveries > 10
    assert result.cuts > 5 * result.recoveries


def test_a_sync_that_failed_is_not_believed_when_it_is_asked_for_again() -> None:
    """STORAGE.md#failed-fsync: after a failed fsync stop; a retried fsync lies."""
    whole = cut(SCOPES["commit/catalogManaged/inline"], SimulatedReference(), 2)
    result = cut(SCOPES["commit/catalogManaged/inline"], SimulatedReference(), 2, failing_syncs=True)
    assert result.violations == []
    assert result.cuts > 2 * whole.cuts


@pytest.mark.parametrize(
    "variant", [each for each in VARIANTS if each.name not in SLOW], ids=lambda variant: variant.name
)
def test_one_step_of_durability_less_is_found(variant: PowerVariant) -> None:
    needs: dict[str, int] = {"deaths": variant.deaths, "failing_syncs": variant.failing_syncs}
    if all(needs.values()):
        needs = {"failing_syncs": True, "deaths_after_failing": DEATHS}
    result = cut(SCOPES[variant.scope], variant.start(), 1 if any(needs.values()) else 8, **needs)
    assert [violation.requirement for violation in result.violations] == [variant.requirement]
    assert result.violations[0].scope == variant.scope
    assert result.violations[0].effect


def test_every_variant_breaks_a_requirement_of_the_catalogue() -> None:
    known = {requirement.id for requirement in load().requirements}
    assert {variant.requirement for variant in VARIANTS} <= known
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)


def test_the_command_prints_what_was_explored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", "commit/catalogManaged/inline", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [scope["scope"] for scope in told["scopes"]] == ["commit/catalogManaged/inline"]
    assert told["states"] == told["scopes"][0]["states"] > 10
    assert told["scopes"][0]["violations"] == []
    assert main(["power", "no-such-scope"]) == 2
    assert "commit/catalogManaged/inline" in capsys.readouterr().err


def test_the_same_seed_cuts_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for _ in range(2):
        main(["power", "resolve/managedCommit", "--seed", "3", "--json"])
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
