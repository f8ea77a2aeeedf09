"""Known-bad subjects that only a schedule, an interrupted effect or a power cut exposes: whether each is found.

A tooth is one of them, with the scope that finds it and the requirement that it breaks. It is killed if that
requirement is named within the quick budget; the counterexample is made small: no client, request or switch of a
schedule can be left out, nothing that a power cut took can be given back, and an interruption is one effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from conformance.simulation import crash, power, traces
from conformance.simulation.crash_run import Processes
from conformance.simulation.explore import Report, by_priorities, depth_first
from conformance.simulation.power_run import Host as PowerHost
from conformance.simulation.power_scopes import Scope as Operation
from conformance.simulation.scopes import Host, Outcome, Scope, ScopeRun, prepare

RANDOM_SCHEDULES: Final = 150
DEPTH: Final = 3
MOST_SCHEDULES: Final = 1000
DISKS: Final = 8
"""Of each power cut; one of each, where a death or a failing sync comes before it."""
DEATHS: Final = 16
"""After each failing sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tooth:
    """A known-bad subject."""

    id: str
    title: str
    family: str
    """`schedule`, `crash` or `power`."""
    scope: str
    requirement: str
    hunt: Callable[[], Kill]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """How a hunt ended."""

    found: str | None
    """The requirement that was named; None: nothing was found."""
    tried: int
    """Schedules, interruptions or disks."""
    size: str = ""
    """Of the counterexample."""
    counterexample: tuple[str, ...] = ()
    """For people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A tooth and its hunt."""

    tooth: Tooth
    kill: Kill
    seconds: float

    @property
    def killed(self) -> bool:
        return self.kill.found == self.tooth.requirement


def judged(tooth: Tooth) -> Verdict:
    began = time.perf_counter()
    kill = tooth.hunt()
    return Verdict(tooth=tooth, kill=kill, seconds=time.perf_counter() - began)


def by_schedules(name: str, host: Host, scope: Scope, requirement: str) -> Kill:
    """Random schedules first, then all of them in order."""
    start = prepare(scope, host)
    runs: list[ScopeRun] = []

    def begin() -> ScopeRun:
        runs[:] = [ScopeRun(scope, host, start)]
        return runs[0]

    tried, others = 0, ""
    by_chance = by_priorities(begin, Report(), seed=0, schedules=RANDOM_SCHEDULES, depth=DEPTH, length=30)
    for outcome in chain(by_chance, depth_first(begin, Report())):
        assert isinstance(outcome, Outcome)
        tried += 1
        if requirement in outcome.requirements:
            steps = list(runs[0].scheduler.steps)
            trace = traces.shrunk(name, scope, host, steps, requirement)
            return Kill(found=requirement, tried=tried, size=_size(trace), counterexample=tuple(_told(trace)))
        others = others or min(outcome.requirements, default="")
        if tried == MOST_SCHEDULES:
            break
    return Kill(found=others or None, tried=tried)


def _size(trace: traces.Trace) -> str:
    requests = sum(len(each) for each in trace.requests.values())
    return (
        f"{len(trace.requests)} clients, {requests} requests, {trace.switches} switches, {len(trace.effects)} effects"
    )


def _told(trace: traces.Trace) -> Iterator[str]:
    at = 0
    for turn in trace.turns:
        first, at = trace.effects[at], at + turn.effects
        yield f"{turn.client} goes on for {turn.effects} effects, from `{first.partition(' ')[2]}`"
    yield from trace.violations


def by_crashes(host: Processes, scope: Operation) -> Kill:
    result = crash.explore(host, scope)
    if not result.violations:
        return Kill(found=None, tried=result.runs)
    bad = result.violations[0]
    came = f", and {bad.company} meanwhile" if bad.company else ""
    told = (f"effect {bad.at}, {bad.effect}: {bad.mode.value}{came}", *bad.facts, bad.problem)
    size = f"1 interruption, {len(bad.facts)} requests"
    return Kill(found=bad.requirement, tried=result.runs, size=size, counterexample=told)


def by_power(host: PowerHost, scope: Operation, *, deaths: bool = False, failing_syncs: bool = False) -> Kill:
    disks = 1 if deaths or failing_syncs else DISKS
    both = deaths and failing_syncs
    budget = power.Budget(
        states=disks,
        deaths=deaths and not both,
        failing_syncs=failing_syncs,
        deaths_after_failing=DEATHS if both else 0,
    )
    result = power.explore(host, scope, budget, seed=1)
    if not result.violations:
        return Kill(found=None, tried=result.starts)
    bad = result.violations[0]
    told = (f"the power goes {bad.effect}", *(f"it takes {each}" for each in bad.lost), *bad.facts, bad.problem)
    size = f"1 cut, {len(bad.lost)} things lost, {len(bad.facts)} requests"
    return Kill(found=bad.requirement, tried=result.starts, size=size, counterexample=told)
