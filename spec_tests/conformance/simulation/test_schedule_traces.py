"""Bad owners that only a schedule exposes: found, made small, written down, run again."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from conformance.adapters.reference.simulated_clients import SimulatedClients
from conformance.adapters.reference.simulated_schedules import ScheduleVariant
from conformance.adapters.reference.simulated_teeth import SCHEDULES as VARIANTS
from conformance.simulation import traces
from conformance.simulation.__main__ import main
from conformance.simulation.explore import Report, Run, by_priorities, depth_first, follow
from conformance.simulation.schedule import Step
from conformance.simulation.scopes import Outcome, Scope, ScopeRun, prepare
from conformance.simulation.scopes_catalogue import scopes
from conformance.simulation.traces import Trace

SLOW = {
    "asks-then-replaces",
    "backfillers-divide-the-versions",
    "latest-by-a-second-look",
    "publishes-in-place",
    "forgets-before-it-publishes",
    "recorded-before-it-is-visible",
    "publishes-the-newest-first",
    "resolves-from-an-old-look",
    "decided-outside-the-transaction",
}
"""Beyond half a second of processor time: `python -m conformance.simulation teeth` has them."""


def scope_of(variant: ScheduleVariant) -> Scope:
    (found,) = scopes(lambda each: each.id == variant.scope)
    return found


def found_by_exploring(variant: ScheduleVariant, host: SimulatedClients) -> tuple[list[Step], Outcome]:
    """The first schedule that shows what the variant violates."""
    scope = scope_of(variant)
    start = prepare(scope, host)
    runs: list[ScopeRun] = []

    def begin() -> Run:
        runs[:] = [ScopeRun(scope, host, start)]
        return runs[0]

    by_chance = by_priorities(begin, Report(), seed=0, schedules=150, depth=3, length=30)
    for outcome in chain(by_chance, depth_first(begin, Report())):
        assert isinstance(outcome, Outcome)
        if variant.requirement in outcome.requirements:
            return list(runs[0].scheduler.steps), outcome
    pytest.fail(f"no schedule of {scope.id} violates {variant.requirement}")


@pytest.mark.parametrize("variant", [each for each in VARIANTS if each.name not in SLOW], ids=lambda each: each.name)
def test_a_bad_owner_is_found_by_a_small_schedule_and_the_reference_passes_it(variant: ScheduleVariant) -> None:
    scope = scope_of(variant)
    with variant.host() as host:
        steps, _ = found_by_exploring(variant, host)
        trace = traces.shrunk(variant.name, scope, host, steps, variant.requirement)
        assert trace.violations
        assert traces.replayed(trace, scope, host) == trace
        assert len(trace.turns) <= len(traces.turns(steps))
    with SimulatedClients() as good:
        assert traces.replayed(trace, scope, good).violations == ()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.name)
def test_a_bad_owner_is_faultless_while_nobody_interrupts_anybody(variant: ScheduleVariant) -> None:
    """Otherwise it would be no work for a scheduler."""
    scope = scope_of(variant)
    with variant.host() as host:
        start = prepare(scope, host)
        for first in scope.requests(start):
            outcome, steps = follow(lambda: ScopeRun(scope, host, start), [first] * 500)
            assert isinstance(outcome, Outcome)
            assert variant.needs_clocks or variant.requirement not in outcome.requirements
            assert len(traces.turns(steps)) == len(scope.requests(start))


def a_trace(tmp_path: Path) -> tuple[Trace, Path]:
    variant = VARIANTS[0]
    with variant.host() as host:
        steps, _ = found_by_exploring(variant, host)
        trace = traces.shrunk(variant.name, scope_of(variant), host, steps, variant.requirement)
    file = tmp_path / "trace.json"
    file.write_bytes(traces.to_json(trace))
    return trace, file


def test_a_trace_survives_its_file_and_is_replayed_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, file = a_trace(tmp_path)
    assert traces.from_json(file.read_bytes()) == trace
    assert main(["replay", str(file)]) == 1
    assert trace.requirement in capsys.readouterr().out
    file.write_text(json.dumps({**json.loads(file.read_text()), "subject": "reference"}))
    assert main(["replay", str(file)]) == 0
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 99}))
    assert main(["replay", str(file)]) == 2
    assert "schema 99" in capsys.readouterr().err


def test_the_command_says_what_was_explored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "two-writers[catalogManaged,inline", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["scopes"]
    assert (found["scope"], found["finished"], found["bad"]) == ("two-writers[catalogManaged,inline]", True, 0)
    assert found["schedules"] == 6
    assert {each["by"] for each in found["switches"]} == {"alice", "bob"}
    assert 0 < len(found["switches"]) < found["switch_points"]
    assert main(["explore", "two-writers[catalogManaged,inline"]) == 0
    assert "1 scope, 1 finished, 6 schedules, 0 bad schedules" in capsys.readouterr().out


def test_an_unfinished_scope_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "creators-of-a-name[catalogManaged,inline", "--budget", "0"]) == 3
    assert "NOT finished, then 1 at random" in capsys.readouterr().out


def test_a_scope_that_is_none_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "nothing"]) == 2
    assert "two-writers[managedCommit,staged]" in capsys.readouterr().err
