"""Explores the schedules of a scope; shrinks a schedule that shows a violation, and runs it again."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, cast

import msgspec

from conformance.scenario.formatting import in_words
from conformance.simulation.explore import Progress, Report, by_priorities, depth_first, follow, no_progress
from conformance.simulation.host import Host
from conformance.simulation.schedule import Step
from conformance.simulation.schedule_scopes import Outcome, Scope, ScopeRun, prepare

DEPTH: Final = 3
"""The depth of random schedules: they find bugs that need this many orderings."""
VIOLATIONS_KEPT: Final = 5


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A client, and the number of its effects in this turn."""

    client: str
    effects: int


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a scope, with its outcome."""

    scope: str
    """The id of the scope."""
    requests: dict[str, tuple[int, ...]]
    """For each client, the numbers of its requests in the scope that it sends, starting with 0."""
    turns: tuple[Turn, ...]
    """The schedule. After these turns the clients continue, in the order of their names."""
    requirement: str
    violations: tuple[str, ...]
    effects: tuple[str, ...]
    """The effects, for people."""
    answers: dict[str, tuple[str, ...]]
    """The answers of each client, for people."""

    @property
    def choices(self) -> list[str]:
        """The schedule as one client for each effect."""
        return [turn.client for turn in self.turns for _ in range(turn.effects)]

    @property
    def switches(self) -> int:
        return max(0, len(self.turns) - 1)


Requests = dict[str, tuple[int, ...]]


def replayed(trace: Trace, scope: Scope, host: Host) -> Trace:
    """Replay the schedule. The result has the violations of the replay."""
    outcome, steps = _run(host, scope, trace.requests, trace.choices)
    return _trace(scope, trace.requests, trace.requirement, outcome, steps)


def shrunk(scope: Scope, host: Host, steps: Iterable[Step], requirement: str) -> Trace:
    """The schedule without all clients, requests and switches that the violation does not need. Without any one of the
    remaining ones, the violation disappears. Raises `ValueError` if the schedule does not show the violation."""
    start = prepare(scope, host)
    requests = {client: tuple(range(len(todo))) for client, todo in scope.requests(start).items()}
    smaller = _Shrinking(scope, host, requirement)
    if not smaller.shows(requests, [step.client for step in steps]):
        raise ValueError(f"this schedule of {scope.id} does not violate {requirement}")
    while smaller.without_a_client() or smaller.without_a_request() or smaller.without_a_switch():
        pass
    assert smaller.outcome is not None
    return _trace(scope, smaller.requests, requirement, smaller.outcome, smaller.steps)


class _Shrinking:
    """The smallest schedule so far."""

    def __init__(self, scope: Scope, host: Host, requirement: str) -> None:
        self._scope = scope
        self._host = host
        self._requirement = requirement
        self.requests: Requests = {}
        self.steps: list[Step] = []
        self.outcome: Outcome | None = None

    def shows(self, requests: Requests, clients: Sequence[str], *, fewer_switches: bool = False) -> bool:
        """Whether the candidate still shows the violation; then it becomes the smallest schedule."""
        outcome, steps = _run(self._host, self._scope, requests, clients)
        if self._requirement not in outcome.requirements:
            return False
        if fewer_switches and len(turns(steps)) >= len(turns(self.steps)):
            return False
        self.requests, self.steps, self.outcome = requests, steps, outcome
        return True

    def without_a_client(self) -> bool:
        return len(self.requests) > 1 and any(
            self.shows(
                {name: numbers for name, numbers in self.requests.items() if name != client},
                [step.client for step in self.steps if step.client != client],
            )
            for client in sorted(self.requests)
        )

    def without_a_request(self) -> bool:
        return any(
            self.shows(
                {**self.requests, client: tuple(other for other in numbers if other != number)},
                [step.client for step in self.steps],
            )
            for client, numbers in sorted(self.requests.items())
            if len(numbers) > 1
            for number in numbers
        )

    def without_a_switch(self) -> bool:
        """Join two turns of one client, before or after the turns between them."""
        turns_made = [[turn.client] * turn.effects for turn in turns(self.steps)]
        for at in range(len(turns_made) - 1):
            for moved in (
                [*turns_made[:at], turns_made[at + 1], turns_made[at], *turns_made[at + 2 :]],
                [*turns_made[:at], *turns_made[at + 1 :]],
            ):
                if self.shows(self.requests, [client for turn in moved for client in turn], fewer_switches=True):
                    return True
        return False


def turns(steps: Iterable[Step]) -> tuple[Turn, ...]:
    grouped = groupby(step.client for step in steps)
    return tuple(Turn(client=client, effects=len(list(group))) for client, group in grouped)


@dataclass(slots=True, kw_only=True)
class Explored:
    """The result of the exploration of one scope."""

    scope: str
    title: str
    report: Report
    outcomes: int = 0
    """The number of outcomes with different answers."""
    seconds: float = 0.0
    random: int = 0
    """The number of schedules with random priorities, if the space was not finished."""
    bad: int = 0
    violations: list[str] = field(default_factory=list)
    """The first few different violations."""
    trace: Trace | None = None
    """The trace of the first schedule with a violation."""

    def as_json(self) -> dict[str, Any]:
        report = self.report
        switches = [
            {"interrupted": client, "before": effect, "by": other, "times": times}
            for (client, effect, other), times in sorted(report.switches.items())
        ]
        return {
            "scope": self.scope, "title": self.title, "schedules": report.schedules, "pruned": report.pruned,
            "finished": report.finished, "random": self.random, "longest": report.longest, "outcomes": self.outcomes,
            "switches": switches, "switch_points": report.switch_points, "bad": self.bad,
            "violations": self.violations,
        }  # fmt: skip


def explore_scope(host: Host, scope: Scope, *, budget: float, seed: int, progress: Progress = no_progress) -> Explored:
    """Explore depth first for at most `budget` seconds. If the space is not finished, run the same number of random
    schedules."""
    start = prepare(scope, host)
    began = time.perf_counter()
    result = Explored(scope=scope.id, title=scope.title, report=Report())
    answers: set[str] = set()
    runs: list[ScopeRun] = []
    bad: list[tuple[list[Step], str]] = []

    def begin() -> ScopeRun:
        runs[:] = [ScopeRun(scope, host, start)]
        return runs[0]

    def take(outcomes: Iterator[object]) -> Iterator[None]:
        for outcome in cast(Iterator[Outcome], outcomes):
            answers.add(str(outcome.answers))
            if outcome.violations and not result.bad:
                bad.append((list(runs[0].scheduler.steps), min(outcome.requirements)))
            result.bad += bool(outcome.violations)
            new = [violation for violation in outcome.violations if violation not in result.violations]
            result.violations += new[: VIOLATIONS_KEPT - len(result.violations)]
            yield

    for _ in take(depth_first(begin, result.report)):
        progress(lambda: f"{result.report.schedules:,} schedules")
        if time.perf_counter() - began > budget:
            break
    if not result.report.finished:
        result.random = result.report.schedules
        by_chance = by_priorities(
            begin, result.report, seed=seed, schedules=result.random, depth=DEPTH, length=result.report.longest
        )
        for _ in take(by_chance):
            pass
    for steps, requirement in bad:
        result.trace = shrunk(scope, host, steps, requirement)
    result.outcomes, result.seconds = len(answers), time.perf_counter() - began
    return result


def _run(host: Host, scope: Scope, requests: Requests, clients: Sequence[str]) -> tuple[Outcome, list[Step]]:
    start = prepare(scope, host)
    wanted = {client: tuple(todo[at] for at in requests[client]) for client, todo in scope.requests(start).items()
              if client in requests}  # fmt: skip
    smaller = replace(scope, requests=lambda _start: wanted)
    outcome, steps = follow(lambda: ScopeRun(smaller, host, start), list(clients))
    return cast(Outcome, outcome), steps


def _trace(scope: Scope, requests: Requests, requirement: str, outcome: Outcome, steps: list[Step]) -> Trace:
    return Trace(
        scope=scope.id,
        requests=requests,
        turns=turns(steps),
        requirement=requirement,
        violations=outcome.violations,
        effects=tuple(str(step) for step in steps),
        answers={client: tuple(in_words(answer) for answer in answers) for client, answers in outcome.answers},
    )
