"""`power`: cut the reference's power at every effect, and print what was explored."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import msgspec

from conformance.command.output import counted, show, show_json
from conformance.simulation.jobs import Progress, add_jobs, in_order
from conformance.simulation.power import Budget, Result, Violation, explore
from conformance.simulation.power_scopes import FOLDING, scopes
from conformance.simulation.python_subject import PREFIX, PythonProcesses, split

QUICK: Final = Budget(states=8)
THOROUGH: Final = Budget(states=3000, deaths=True, states_in_recovery=2, failing_syncs=True)
FAILING: Final = Budget(states=1, states_in_recovery=24, failing_syncs=True)


def add(commands: Any) -> None:
    """Add the command to those of the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "power", help="cut the power at every effect; exit code 0 nothing lost, 1 violation, 2 usage error"
    )
    parser.add_argument(
        "scope",
        nargs="*",
        help="only operations whose name starts so, such as commit/catalogManaged; python:MODULE:CLASS: your owner",
    )
    parser.add_argument(
        "--thorough", action="store_true", help="many more disks of each cut, and cuts while the subject recovers"
    )
    parser.add_argument(
        "--failing-syncs",
        type=int,
        metavar="DEATHS",
        help="let each sync fail, then kill the process at N moments, restart it, and cut the power at each effect",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the choice of disks (default: 1)")
    add_jobs(parser)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from conformance.adapters.reference.simulated import SimulatedReference

    try:
        subject, wanted = split(options.scope, PythonProcesses)
    except (ImportError, AttributeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    budget = THOROUGH if options.thorough else QUICK
    if options.failing_syncs is not None:
        budget = replace(FAILING, deaths_after_failing=options.failing_syncs)
    known = [scope for scope in scopes(SimulatedReference.storage) if subject is None or subject.can_do(scope)]
    chosen = [scope for scope in known if not wanted or scope.name.startswith(tuple(wanted))]
    if not chosen:
        print(f"no scope begins so; there are {', '.join(scope.name for scope in known)}", file=sys.stderr)
        return 2
    results = []
    started = time.perf_counter()
    named = next((name for name in options.scope if name.startswith(PREFIX)), None)
    works = [_Work(named, scope.name, budget, options.seed) for scope in chosen]
    for result in in_order(_explored, works, options.jobs):
        results.append(result)
        if not options.json:
            _tell(result)
    states = sum(result.states for result in results)
    violations = sum(len(result.violations) for result in results)
    if options.json:
        show_json({"seed": options.seed, "states": states, "scopes": [_as_json(result) for result in results]})
    else:
        cuts = sum(result.cuts for result in results)
        show(
            f"{counted(len(results), 'scope')}, {counted(cuts, 'cut')}, {states:,} distinct states after a cut, "
            f"{counted(violations, 'violation')}, in {time.perf_counter() - started:.0f} s"
        )
    return 1 if violations else 0


@dataclass(frozen=True, slots=True)
class _Work:
    """One scope on one subject; None: the reference."""

    subject: str | None
    scope: str
    budget: Budget
    seed: int


def _explored(work: _Work) -> Result:
    from conformance.adapters.reference.simulated import SimulatedReference

    (scope,) = (scope for scope in scopes(SimulatedReference.storage) if scope.name == work.scope)
    subject = None if work.subject is None else PythonProcesses.named(work.subject)
    with subject or SimulatedReference(folding=scope.operation == FOLDING) as host:
        return explore(host, scope, work.budget, seed=work.seed, told=Progress(scope.name))


def _tell(result: Result) -> None:
    show(
        f"{result.scope:<32} {result.effects:>4} effects  {result.cuts:>4} cuts ({result.exhausted} exhausted)  "
        f"{result.states:>7,} distinct states  {result.judged:>5,} judged  "
        f"{counted(len(result.violations), 'violation')}"
    )
    for violation in result.violations:
        _tell_violation(violation)


def _tell_violation(violation: Violation) -> None:
    show(f"  {violation.requirement}: {violation.problem}")
    show(f"  the power went {violation.effect}, effect {violation.at} of the script; what had been asked:")
    for fact in violation.facts:
        show(f"    {fact}")
    for lost in violation.lost:
        show(f"  it took {lost}")


def _as_json(result: Result) -> Any:
    return msgspec.to_builtins(asdict(result))
