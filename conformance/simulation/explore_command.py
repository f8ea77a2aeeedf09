"""`explore`: run every schedule of small scopes on the reference, and print what was explored; `replay`: one again."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from conformance.command.output import counted, show, show_json
from conformance.simulation.bugs import Bug
from conformance.simulation.explore import Report, by_priorities, depth_first
from conformance.simulation.jobs import Exchange, Progress, add_jobs, in_order, untold
from conformance.simulation.python_subject import PREFIX, PythonClients, split
from conformance.simulation.scopes import Host, Outcome, Scope, ScopeRun, prepare
from conformance.simulation.scopes_catalogue import QUICK, scopes

DEPTH: Final = 3
"""Of random schedules: bugs that need so many orderings."""
VIOLATIONS_KEPT: Final = 5


@dataclass(slots=True, kw_only=True)
class Explored:
    """What was seen of one scope."""

    scope: Scope
    report: Report
    outcomes: int = 0
    """Different ones: by the answers."""
    seconds: float = 0.0
    random: int = 0
    """Schedules by random priorities, where the space was not finished."""
    bad: int = 0
    violations: list[str] = field(default_factory=list)
    """Of the bad schedules, the first few different ones."""


def explore(host: Host, scope: Scope, *, budget: float, seed: int, told: Exchange = untold) -> Explored:
    """Depth first for at most `budget` seconds; what is not finished then gets as many random schedules again."""
    start = prepare(scope, host)
    began = time.perf_counter()
    found = Explored(scope=scope, report=Report())
    answers: set[object] = set()

    def begin() -> ScopeRun:
        return ScopeRun(scope, host, start)

    def take(outcomes: Iterator[object]) -> Iterator[None]:
        for outcome in outcomes:
            assert isinstance(outcome, Outcome)
            answers.add(str(outcome.answers))
            found.bad += bool(outcome.violations)
            new = [each for each in outcome.violations if each not in found.violations]
            found.violations += new[: VIOLATIONS_KEPT - len(found.violations)]
            yield

    for _ in take(depth_first(begin, found.report)):
        told(lambda: counted(found.report.schedules, "schedule"))
        if time.perf_counter() - began > budget:
            break
    if not found.report.finished:
        found.random = found.report.schedules
        by_chance = by_priorities(
            begin, found.report, seed=seed, schedules=found.random, depth=DEPTH, length=found.report.longest
        )
        for _ in take(by_chance):
            pass
    found.outcomes, found.seconds = len(answers), time.perf_counter() - began
    return found


def add(commands: Any) -> None:
    """Add the commands to those of the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explore",
        help="run every schedule of small scopes; exit code 0 all clean, 1 violation, 2 usage error, 3 unfinished",
    )
    parser.add_argument(
        "scope",
        nargs="*",
        help="only scopes whose id starts so, such as two-writers[catalogManaged; python:MODULE:CLASS: your owner",
    )
    parser.add_argument("--quick", action="store_true", help="leave out the two largest situations")
    add_jobs(parser)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each scope (default: 120)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random schedules of an unfinished scope (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)
    again: argparse.ArgumentParser = commands.add_parser(
        "replay", help="run a recorded schedule again; exit code 0 clean, 1 still a violation, 2 usage error"
    )
    again.add_argument("file", type=Path, help="the fixture of a schedule, JSON")
    again.set_defaults(run=replay)


def run(options: argparse.Namespace) -> int:
    try:
        subject, wanted = split(options.scope, PythonClients)
    except (ImportError, AttributeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    chosen = scopes(lambda each: not wanted or each.id.startswith(tuple(wanted)))
    if options.quick:
        chosen = [scope for scope in chosen if scope.name in QUICK]
    if subject is not None:
        chosen = [scope for scope in chosen if subject.can(scope)]
    if not chosen:
        print(f"no scope begins so; there are {', '.join(each.id for each in scopes())}", file=sys.stderr)
        return 2
    results = []
    began = time.perf_counter()
    named = next((name for name in options.scope if name.startswith(PREFIX)), None)
    works = [_Work(named, scope.id, options.budget, options.seed) for scope in chosen]
    for found in in_order(_explored, works, options.jobs):
        results.append(found)
        if not options.json:
            _tell(found)
    seconds = time.perf_counter() - began
    bad = sum(each.bad for each in results)
    unfinished = [each.scope.id for each in results if not each.report.finished]
    if options.json:
        show_json({"seed": options.seed, "scopes": [_as_json(each) for each in results]})
    else:
        schedules = sum(each.report.schedules for each in results)
        show(
            f"{counted(len(results), 'scope')}, {len(results) - len(unfinished)} finished, {schedules:,} schedules, "
            f"{counted(bad, 'bad schedule')}, in {seconds:.0f} s"
        )
    return 1 if bad else 3 if unfinished else 0


@dataclass(frozen=True, slots=True)
class _Work:
    """One scope on one subject; None: the reference."""

    subject: str | None
    scope: str
    budget: float
    seed: int


def _explored(work: _Work) -> Explored:
    from conformance.adapters.reference.simulated_clients import SimulatedClients

    (scope,) = scopes(lambda each: each.id == work.scope)
    subject = None if work.subject is None else PythonClients.named(work.subject)
    with subject or SimulatedClients() as host:
        return explore(host, scope, budget=work.budget, seed=work.seed, told=Progress(scope.id))


def _tell(found: Explored) -> None:
    report = found.report
    space = "finished" if report.finished else f"NOT finished, then {found.random} at random to depth {DEPTH}"
    show(
        f"{found.scope.id}: {counted(report.schedules, 'schedule')} of up to {report.longest} effects, "
        f"{counted(report.pruned, 'run')} given up as known, {space}; {counted(found.outcomes, 'outcome')}, "
        f"{len(report.switches)} of {report.switch_points} switch points; {found.seconds:.1f} s"
    )
    for each in found.violations:
        show(f"  {each}")


def _as_json(found: Explored) -> dict[str, Any]:
    report = found.report
    switches = [
        {"interrupted": client, "before": effect, "by": other, "times": times}
        for (client, effect, other), times in sorted(report.switches.items())
    ]
    return {
        "scope": found.scope.id,
        "title": found.scope.title,
        "schedules": report.schedules,
        "given_up_as_known": report.pruned,
        "finished": report.finished,
        "random": found.random,
        "longest": report.longest,
        "outcomes": found.outcomes,
        "switches": switches,
        "switch_points": report.switch_points,
        "bad": found.bad,
        "violations": found.violations,
    }


def replay(options: argparse.Namespace) -> int:
    """A schedule, or a bug that a power cut or an interruption showed."""
    from conformance.adapters.reference.simulated_schedules import host_named
    from conformance.simulation import bugs, traces

    try:
        with contextlib.suppress(msgspec.ValidationError):  # then it is a schedule
            return _replay_bug(bugs.from_json(options.file.read_bytes()))
        trace = traces.from_json(options.file.read_bytes())
        (scope,) = scopes(lambda each: each.id == trace.scope)
        host = host_named(trace.subject)
    except (OSError, ValueError, KeyError, msgspec.DecodeError) as error:
        print(f"{options.file} cannot be replayed: {error}", file=sys.stderr)
        return 2
    with host:
        again = traces.replayed(trace, scope, cast(Host, host))
    for effect in again.effects:
        show(f"  {effect}")
    for client, answers in again.answers.items():
        show(f"{client} heard {'; '.join(answers)}")
    for violation in again.violations:
        show(violation)
    return 1 if again.violations else 0


def _replay_bug(bug: Bug) -> int:
    from conformance.adapters.reference.simulated_teeth import hunted

    kill = hunted(bug.subject, bug.family, bug.scope)
    show(f"{bug.subject} in {bug.scope}, {kill.tried} tried: {kill.found or 'nothing is violated'}")
    for line in kill.counterexample:
        show(f"  {line}")
    return 0 if kill.found is None else 1
