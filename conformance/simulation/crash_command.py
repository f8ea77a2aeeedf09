"""`crash`: interrupt the reference at every effect, in four ways, and print what was explored."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from conformance.command.output import counted, show, show_json
from conformance.simulation.crash import Mode, Result, Violation, explore
from conformance.simulation.jobs import add_jobs, in_order
from conformance.simulation.power_scopes import FOLDING, scopes
from conformance.simulation.python_subject import PREFIX, PythonProcesses, split


def add(commands: Any) -> None:
    """Add the command to those of the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "crash", help="interrupt every effect in four ways; exit code 0 nothing lost, 1 violation, 2 usage error"
    )
    parser.add_argument(
        "scope",
        nargs="*",
        help="only operations whose name starts so, such as commit/catalogManaged; python:MODULE:CLASS: your owner",
    )
    parser.add_argument(
        "--mode",
        action="append",
        choices=[mode.value for mode in Mode],
        help="only this kind of interruption (repeatable)",
    )
    add_jobs(parser)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from conformance.adapters.reference.simulated_processes import SimulatedProcesses

    try:
        subject, wanted = split(options.scope, PythonProcesses)
    except (ImportError, AttributeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    known = [scope for scope in scopes(SimulatedProcesses.storage) if subject is None or subject.can_do(scope)]
    chosen = [scope for scope in known if not wanted or scope.name.startswith(tuple(wanted))]
    if not chosen:
        print(f"no scope begins so; there are {', '.join(scope.name for scope in known)}", file=sys.stderr)
        return 2
    modes = [Mode(mode) for mode in options.mode or Mode]
    results, started = [], time.perf_counter()
    named = next((name for name in options.scope if name.startswith(PREFIX)), None)
    works = [_Work(named, scope.name, tuple(modes)) for scope in chosen]
    for result in in_order(_explored, works, options.jobs):
        results.append(result)
        if not options.json:
            _tell(result, modes)
    violations = sum(len(result.violations) for result in results)
    if options.json:
        show_json({"scopes": [_as_json(result) for result in results]})
    else:
        effects, runs = sum(result.effects for result in results), sum(result.runs for result in results)
        states = sum(result.states for result in results)
        show(
            f"{counted(len(results), 'operation')}, {counted(effects, 'effect')} x {counted(len(modes), 'way')} = "
            f"{counted(runs, 'interruption')}, {states:,} distinct states started from, "
            f"{counted(violations, 'violation')}, in {time.perf_counter() - started:.0f} s"
        )
    return 1 if violations else 0


@dataclass(frozen=True, slots=True)
class _Work:
    """One operation on one subject; None: the reference."""

    subject: str | None
    scope: str
    modes: tuple[Mode, ...]


def _explored(work: _Work) -> Result:
    from conformance.adapters.reference.simulated_processes import SimulatedProcesses

    (scope,) = (scope for scope in scopes(SimulatedProcesses.storage) if scope.name == work.scope)
    subject = None if work.subject is None else PythonProcesses.named(work.subject)
    with subject or SimulatedProcesses(folding=scope.operation == FOLDING) as host:
        return explore(host, scope, work.modes)


def _tell(result: Result, modes: list[Mode]) -> None:
    commit_modes = "  ".join(f"{result.interrupted[mode]:>4} {mode.value}" for mode in modes)
    show(
        f"{result.scope:<32} {result.effects:>4} effects:  {commit_modes};  {result.states:>5,} states  "
        f"{result.judged:>5,} judged  {counted(len(result.violations), 'violation')}"
    )
    for violation in result.violations:
        _tell_violation(violation)


def _tell_violation(violation: Violation) -> None:
    came = f", and {violation.company} meanwhile" if violation.company else ""
    show(f"  {violation.requirement}: {violation.problem}")
    show(f"  effect {violation.at}, {violation.effect}: {violation.mode.value}{came}; what had been asked:")
    for fact in violation.facts:
        show(f"    {fact}")


def _as_json(result: Result) -> Any:
    return msgspec.to_builtins(replace(result, interrupted=dict(result.interrupted)))
