"""Known-bad variants that only a schedule, a crash or a power cut exposes: a slice of them here, all by one command."""

from __future__ import annotations

import json

import pytest

from conformance.adapters.reference.simulated_crashes import CRASH_VARIANTS, CrashVariant
from conformance.adapters.reference.simulated_processes import SimulatedProcesses
from conformance.adapters.reference.simulated_teeth import TEETH
from conformance.requirements.catalogue import load
from conformance.simulation.__main__ import main
from conformance.simulation.crash import explore
from conformance.simulation.power_scopes import scopes
from conformance.simulation.teeth import Tooth, judged

SLOW = {
    "lock-with-a-lease",
    "description-decides",
    "error-of-a-link-believed",
    "hand-back-without-promise",
    "hand-back-recorded-first",
}
"""Beyond half a second of processor time: the command has them."""
QUICK = [tooth for tooth in TEETH if tooth.family == "crash" and tooth.id not in SLOW]
"""The other two families have tests of their own."""


@pytest.mark.parametrize("tooth", QUICK, ids=lambda tooth: tooth.id)
def test_an_owner_that_an_interruption_breaks_is_found_by_what_it_violates(tooth: Tooth) -> None:
    verdict = judged(tooth)
    assert verdict.killed, verdict.kill
    assert verdict.kill.found == tooth.requirement
    assert verdict.kill.counterexample[0].startswith("effect ")


@pytest.mark.parametrize("variant", CRASH_VARIANTS, ids=lambda variant: variant.name)
def test_such_an_owner_is_faultless_while_nothing_interrupts_it(variant: CrashVariant) -> None:
    """Otherwise interruptions would not be what finds it: it is started again once, after the operation."""
    scope = next(each for each in scopes(SimulatedProcesses.storage) if each.name == variant.scope)
    with variant.host() as host:
        result = explore(host, scope, ())
    assert result.states == 1
    assert result.violations == []


def test_there_are_at_least_25_and_each_breaks_a_requirement_of_the_catalogue() -> None:
    assert len(TEETH) > 50
    assert len({tooth.id for tooth in TEETH}) == len(TEETH)
    assert {tooth.requirement for tooth in TEETH} <= {requirement.id for requirement in load().requirements}
    assert {tooth.family for tooth in TEETH} == {"schedule", "crash", "power"}
    assert all(tooth.title for tooth in TEETH)


def test_the_command_says_how_each_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["teeth", "linked-before-synced"]) == 0
    told = capsys.readouterr().out
    assert "killed by MC-BACKFILL-01 in commit/managedCommit/direct" in told
    assert "it takes content of" in told
    assert main(["teeth", "direct-recorded-first", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["teeth"]
    assert (found["killed"], found["size"]) == (True, "1 interruption, 4 requests")
    assert main(["teeth", "no-such-variant"]) == 2
    assert "lock-not-taken" in capsys.readouterr().err
