"""Known-bad variants of the reference that only a schedule or an interruption exposes.

A mutant names the scope that finds it and the requirement that it violates. It is killed if the quick budget finds a
violation of that requirement. Counterexamples of power cuts are minimal: with any one of the lost changes kept, there
is no violation. Those of interruptions have one, at one effect.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from unittest import mock

from conformance.simulation import power
from conformance.simulation.disk import Disk, SimulatedFiles
from conformance.simulation.explore import Report, by_priorities, depth_first
from conformance.simulation.operations import Operation, operations
from conformance.simulation.reference import STORAGE, Change, Patch, SimulatedReference, unchanged
from conformance.simulation.schedule import Step
from conformance.simulation.schedule_scopes import DEPTH, Outcome, Scope, ScopeRun, prepare, scopes
from refimpl.storage.environment import Environment

RANDOM_SCHEDULES: Final = 150
MOST_SCHEDULES: Final = 1000
DISKS: Final = 8
"""The number of disk states for each power cut. It is 1 if a death or a failed sync comes before the cut."""
DEATHS: Final = 16
"""The number of deaths that are tried after each failed sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """The result of a hunt."""

    found: str | None
    """The violated requirement; None if no violation was found."""
    size: str = ""
    """The size of the counterexample."""
    counterexample: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mutant:
    """A bad owner."""

    id: str
    scope: str
    """The id of a scope of schedules, or the name of an operation, in which the mutant is found."""
    requirement: str
    change: Change = unchanged
    patch: Patch = contextlib.nullcontext

    def host(self) -> SimulatedReference:
        return SimulatedReference(change=self.change, patch=self.patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleMutant(_Mutant):
    """A bad owner that only a schedule exposes."""

    family = "schedule"

    def hunt(self) -> Hunt:
        scope = scope_of(self)
        with self.host() as host:
            steps, outcome = first_bad_schedule(host, scope, self.requirement)
            if steps is None:
                return Hunt(found=min(outcome.requirements, default=None) if outcome else None)
        assert outcome is not None
        turns = [f"{client} does {len(effects)} effects, from `{effects[0]}`" for client, effects in turns_of(steps)]
        size = f"{len(turns) - 1} switches, {len(steps)} effects"
        return Hunt(found=self.requirement, size=size, counterexample=(*turns, *outcome.violations))


def scope_of(mutant: ScheduleMutant) -> Scope:
    (scope,) = scopes(lambda candidate: candidate.id == mutant.scope)
    return scope


def first_bad_schedule(
    host: SimulatedReference, scope: Scope, requirement: str
) -> tuple[list[Step] | None, Outcome | None]:
    """The first schedule that violates the requirement: its steps and its outcome. Without such a schedule: no steps,
    and the first other bad outcome. Random schedules are tried first, then all in order, up to a
    limit.
    """
    start = prepare(scope, host)
    runs: list[ScopeRun] = []

    def begin() -> ScopeRun:
        runs[:] = [ScopeRun(scope, host, start)]
        return runs[0]

    by_chance = by_priorities(begin, Report(), seed=0, schedules=RANDOM_SCHEDULES, depth=DEPTH, length=30)
    other = None
    for tried, outcome in enumerate(cast(Iterator[Outcome], chain(by_chance, depth_first(begin, Report()))), 1):
        if requirement in outcome.requirements:
            return list(runs[0].scheduler.steps), outcome
        other = other or (outcome if outcome.violations else None)
        if tried == MOST_SCHEDULES:
            break
    return None, other


def turns_of(steps: Iterable[Step]) -> list[tuple[str, list[str]]]:
    """The clients in turn, each with its effects until the next one's turn."""
    grouped = groupby(steps, key=lambda step: step.client)
    return [(client, [str(step).partition(" ")[2] for step in group]) for client, group in grouped]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMutant(_Mutant):
    """A bad owner that only a power cut, a death or a lost answer of the disk exposes."""

    make_files: type[SimulatedFiles] = SimulatedFiles
    connection: Callable[[Any, Callable[[], Disk]], Any] = lambda database, _disk: database
    """Changes a connection; also gets a function that returns the current disk."""
    checkpointing: bool = False
    deaths: bool = False
    """Whether a process must die before the cut."""
    lost_answers: bool = False
    """Whether an answer of the disk must be lost before the death."""
    failing_syncs: bool = False
    """Whether a sync must fail before the cut, or before the death."""
    family = "power"

    def host(self) -> SimulatedReference:
        host = SimulatedReference(
            patch=self.patch, make_files=self.make_files, checkpointing=self.checkpointing,
            change_database=lambda database: self.connection(database, lambda: host.disk),
        )  # fmt: skip
        return host

    def hunt(self) -> Hunt:
        with self.host() as host:
            result = power.explore(host, operation_named(self.scope), self.budget, seed=1)
        if not result.violations:
            return Hunt(found=None)
        (bad,) = result.violations
        return Hunt(
            found=bad.requirement,
            size=f"1 cut, {len(bad.lost)} things lost, {len(bad.exchanges)} requests",
            counterexample=(
                f"interruption: {bad.effect}",
                *(f"lost: {x}" for x in bad.lost),
                *bad.exchanges,
                bad.problem,
            ),
        )

    @property
    def budget(self) -> power.Budget:
        both = self.deaths and self.failing_syncs
        return power.Budget(
            states=1 if self.deaths or self.failing_syncs else DISKS,
            deaths=self.deaths and not both,
            lost_answers=self.lost_answers,
            failing_syncs=self.failing_syncs,
            deaths_after_failing=DEATHS if both else 0,
        )


Mutant = ScheduleMutant | PowerMutant
M = TypeVar("M", bound=_Mutant)
T = TypeVar("T")


def operation_named(name: str) -> Operation:
    return next(operation for operation in operations(STORAGE) if operation.name == name)


# How variants are made


def recorded(
    mutants: list[M], kind: type[M], field: str, scope: str, requirement: str, *method: Any, **more: Any
) -> Callable[[T], T]:
    """Add a mutant to the list. Its `field` is the decorated code or, if `method` names a class and one of its methods,
    a patch of this method. Its id is the name of the code.
    """

    def record(code: T) -> T:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", code.__name__).lower().replace("_", "-")  # type: ignore[attr-defined]
        more[field] = (lambda: mock.patch.object(*method, code)) if method else code
        mutants.append(kind(id=name, scope=scope, requirement=requirement, **more))
        return code

    return record


class Wrapped:
    """Files or a connection with one method changed by a subclass."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def connected(environment: Environment, wrap: Callable[[Any], Any]) -> Environment:
    connect = environment.connect
    assert connect is not None
    return replace(environment, connect=lambda path: wrap(connect(path)))


def with_lock(
    environment: Environment, lock: Callable[[Callable[[], Any]], Callable[[], contextlib.AbstractContextManager[Any]]]
) -> Environment:
    """The environment with another lock: `lock` makes it from the ordinary lock."""

    def host_lock(path: Path) -> Any:
        return lock(environment.host_lock(path))

    return replace(environment, host_lock=host_lock)
