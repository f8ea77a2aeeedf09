"""The command `simulate`: every schedule and power cut of the reference."""

from __future__ import annotations

import logging
import multiprocessing
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from conformance.command.output import argument, examples, option, say, show
from conformance.interface.results import ExitCode, UnusableError, counted
from conformance.running.plan import seconds

if TYPE_CHECKING:
    from conformance.simulation import power, schedule_scopes
    from conformance.simulation.host import Host
    from conformance.simulation.operations import Operation

SECONDS_BETWEEN_LINES: Final = 15.0
"""Of progress."""
_EPILOG: Final = (
    examples("simulate explore two-writers --workers 2", "simulate power commit --failing-syncs 1")
    + "\n\nExit codes: 0 no violation · 1 violation · 2 usage error · 3 a scope was not finished"
)

ScopesArgument = Annotated[
    list[str] | None,
    argument(
        "SCOPE",
        "only scopes whose name begins with this text, such as `two-writers` (explore) or `commit/catalogManaged` "
        "(power)",
        show_default=False,
    ),
]
WorkersOption = Annotated[int, option("-n --workers N", "number of worker processes", min=1)]
SeedOption = Annotated[int, option("--seed N", "seed of the random choices")]


def register(application: typer.Typer) -> None:
    commands = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    application.add_typer(commands, name="simulate", epilog=_EPILOG, help=(
        "Simulate the reference: every interleaving of its effects, every power cut and lost answer of the disk."
    ))  # fmt: skip
    for command, example in (
        (explore, "simulate explore two-writers --workers 2"),
        (power_, "simulate power commit/catalogManaged/inline --failing-syncs 1"),
    ):
        commands.command(name=command.__name__.rstrip("_"), epilog=examples(example))(command)


def explore(
    scopes: ScopesArgument = None,
    quick: Annotated[bool, option("--quick", "skip the two largest situations (10 scopes)")] = False,
    budget: Annotated[str, option("--budget TIME", "maximum time for each scope, for example 90s or 5m")] = "120s",
    seed: SeedOption = 1,
    workers: WorkersOption = 1,
) -> None:
    """Run every schedule of small scopes, pruned by partial-order reduction."""
    from conformance.simulation import schedule_scopes

    known = [scope for scope in schedule_scopes.scopes() if not quick or scope.name in schedule_scopes.QUICK]
    chosen = _chosen([scope.id for scope in known], scopes)
    began = time.perf_counter()
    limit = seconds(budget, "--budget")
    results = _collected(partial(_explored, limit, seed), chosen, workers, _show_explored)
    bad = sum(result.bad for result in results)
    finished = sum(result.report.finished for result in results)
    schedules = sum(result.report.schedules for result in results)
    show(
        f"{counted(len(results), 'scope')}, {finished} finished, {schedules:,} schedules, "
        f"{counted(bad, 'bad schedule')}, in {time.perf_counter() - began:.0f} s"
    )
    incomplete = ExitCode.CONFORMANT if finished == len(results) else ExitCode.INCOMPLETE
    raise typer.Exit(ExitCode.VIOLATION if bad else incomplete)


def _explored(budget: float, seed: int, name: str) -> schedule_scopes.Explored:
    from conformance.simulation import schedule_scopes

    (scope,) = schedule_scopes.scopes(lambda candidate: candidate.id == name)
    with _host() as host:
        return schedule_scopes.explore_scope(host, scope, budget=budget, seed=seed, progress=_Progress(name))


def _show_explored(result: schedule_scopes.Explored) -> None:
    report = result.report
    space = "finished" if report.finished else f"NOT finished, then {counted(result.random, 'random schedule')}"
    show(
        f"{result.scope}: {counted(report.schedules, 'schedule')} of up to {report.longest} effects, "
        f"{counted(report.pruned, 'run')} pruned, {space}; {counted(result.outcomes, 'outcome')}; "
        f"{result.seconds:.1f} s"
    )
    for violation in result.violations:
        show(f"  {violation}")
    for line in result.effects:
        show(f"    {line}")


def power_(
    scopes: ScopesArgument = None,
    thorough: Annotated[
        bool, option("--thorough", "many more disk states of each cut, and cuts during recovery")
    ] = False,
    failing_syncs: Annotated[
        int | None,
        option(
            "--failing-syncs N",
            "fail each sync, then kill the process at N moments, restart it, and cut the power at each effect",
            min=1,
            show_default=False,
        ),
    ] = None,
    seed: SeedOption = 1,
    workers: WorkersOption = 1,
) -> None:
    """Cut the power at every effect of every operation, and restart from each possible disk state.

    It also loses each answer of the disk once, and kills the process after it."""
    from conformance.simulation.power import Budget

    budget = Budget(states=8, lost_answers=True)
    if thorough:
        budget = Budget(states=3000, lost_answers=True, deaths=True, states_in_recovery=2, failing_syncs=True)
    if failing_syncs is not None:
        budget = Budget(states=1, states_in_recovery=24, failing_syncs=True, deaths_after_failing=failing_syncs)
    started, chosen = time.perf_counter(), _operations(scopes)
    results = _collected(partial(_cut, budget, seed), chosen, workers, _show_cut)
    states = sum(result.states for result in results)
    cuts = sum(result.cuts for result in results)
    violations = sum(len(result.violations) for result in results)
    show(
        f"{counted(len(results), 'scope')}, {counted(cuts, 'cut')}, {states:,} distinct states after a cut, "
        f"{counted(violations, 'violation')}, in {time.perf_counter() - started:.0f} s"
    )
    raise typer.Exit(ExitCode.VIOLATION if violations else ExitCode.CONFORMANT)


def _cut(budget: power.Budget, seed: int, name: str) -> power.Result:
    from conformance.simulation.power import explore

    with _host(_operation(name)) as host:
        return explore(host, _operation(name), budget, seed=seed, progress=_Progress(name))


def _show_cut(result: power.Result) -> None:
    show(
        f"{result.scope:<32} {result.effects:>4} effects  {result.cuts:>4} cuts ({result.exhausted} exhausted)  "
        f"{result.states:>7,} distinct states  {result.judged:>5,} judged  "
        f"{counted(len(result.violations), 'violation')}"
    )
    for violation in result.violations:
        show(f"  {violation.requirement}: {violation.problem}")
        show(f"  interruption: {violation.effect}, effect {violation.at} of the script; requests and answers before:")
        for line in (*violation.exchanges, *(f"lost: {lost}" for lost in violation.lost)):
            show(f"    {line}")


# Scopes


def _host(operation: Operation | None = None) -> Host:
    """`operation`: the operation that will be interrupted."""
    from conformance.simulation.operations import CHECKPOINTING
    from conformance.simulation.reference import SimulatedReference

    return SimulatedReference(checkpointing=operation is not None and operation.kind == CHECKPOINTING)


def _operation(name: str) -> Operation:
    from conformance.simulation.operations import operations
    from conformance.simulation.reference import STORAGE

    return next(operation for operation in operations(STORAGE) if operation.name == name)


def _operations(beginnings: Sequence[str] | None) -> list[str]:
    from conformance.simulation.operations import operations
    from conformance.simulation.reference import STORAGE

    return _chosen([operation.name for operation in operations(STORAGE)], beginnings)


def _chosen(known: Sequence[str], beginnings: Sequence[str] | None) -> list[str]:
    chosen = [name for name in known if not beginnings or name.startswith(tuple(beginnings))]
    if not chosen:
        names = ", ".join(dict.fromkeys(re.split(r"[\[/]", name)[0] for name in known))
        raise UnusableError(
            f"no scope begins with {' or '.join(map(repr, beginnings or ()))}; the scopes begin with {names}"
        )
    return chosen


# Work in several processes

Done = TypeVar("Done")


def _collected(
    function: Callable[[str], Done], names: Sequence[str], workers: int, shown: Callable[[Done], None]
) -> list[Done]:
    """The results of `function`, each shown as soon as it is known."""
    results = []
    for result in _in_order(function, names, workers):
        results.append(result)
        shown(result)
    return results


def _in_order(function: Callable[[str], Done], names: Sequence[str], workers: int) -> Iterator[Done]:
    """The results of `function` in order, each as soon as all earlier ones are done. Worker processes are spawned, not
    forked, so that they do not inherit the state of this process."""
    if workers == 1 or len(names) == 1:
        _silence_reference()
        yield from map(function, names)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(names)), mp_context=fresh, initializer=_silence_reference) as pool:
        yield from pool.map(function, names)


def _silence_reference() -> None:
    """Silence the reference's warnings of disk failures, which are intended here."""
    logging.getLogger("refimpl").addHandler(logging.NullHandler())


@dataclass
class _Progress:
    """Prints the progress of one scope to stderr periodically."""

    name: str
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.now()

    def __call__(self, so_far: Callable[[], str]) -> None:
        now = self.now()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            say(f"{self.name}: {so_far()} so far")
            sys.stderr.flush()
