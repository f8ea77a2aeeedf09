"""All schedules of a few clients, or many of them: depth first with pruning, or by random priorities.

Depth first, every run starts anew and follows a list of choices to the point where it turns off. Pruning keeps one
schedule of each class of schedules that differ only in the order of steps that commute (`schedule.dependent`): a run
turns off only where two steps raced (dynamic partial-order reduction, with happened-before as vector clocks), and never
begins with a step whose consequences were explored from a sibling (sleep sets). No class is lost: a step that
raced and could not be made there adds all clients that could go on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from conformance.simulation.schedule import Deadlock, Pending, Scheduler, Step, dependent, may_race

MAX_STEPS: Final = 2000
"""Of one run; more means that a client polls without end."""


Progress = Callable[[Callable[[], str]], None]
"""Called now and then with a function that says how far an exploration is."""


def no_progress(_so_far: Callable[[], str]) -> None:
    """Progress is not shown."""


class Run(Protocol):
    """One run from the start: started clients, and what they leave."""

    scheduler: Scheduler

    def finish(self, deadlock: str | None) -> object:
        """What came of it, after the last step."""
        ...

    def close(self) -> None: ...


class EndlessError(Exception):
    """A run has more than `MAX_STEPS` steps."""


@dataclass(slots=True)
class Report:
    """How much of a space was seen."""

    schedules: int = 0
    """Runs to their end."""
    pruned: int = 0
    """Runs that were given up because everything they could still do had been explored."""
    finished: bool = False
    """Whether nothing is left. Without pruning, or with: nothing that matters."""
    longest: int = 0
    """Steps of the longest run."""
    switches: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """How often a client was interrupted before an effect: (client, effect, next client)."""
    effects: set[tuple[str, str]] = field(default_factory=set)
    """What each client did: (client, effect)."""

    @property
    def switch_points(self) -> int:
        """Each kind of effect of each client, before which each of the others could go on."""
        clients = {client for client, _ in self.effects}
        return len(self.effects) * (len(clients) - 1)


@dataclass(slots=True)
class _Node:
    """A state on the way of the present run."""

    enabled: dict[str, Pending]
    sleep: dict[str, Step]
    todo: set[str]
    done: dict[str, Step] = field(default_factory=dict)
    chosen: str = ""
    step: Step | None = None
    clock: dict[str, int] = field(default_factory=dict)
    """By client: how far into the run its steps happened before the step made here, that step included."""


def depth_first(begin: Callable[[], Run], report: Report, *, pruned: bool = True) -> Iterator[object]:
    """The outcome of every schedule, one after the other; `report` grows meanwhile, and is `finished` at the end."""
    path: list[_Node] = []
    while True:
        run = begin()
        try:
            outcome, complete = _follow(run, path, report, pruned=pruned)
        finally:
            run.close()
        if complete:
            report.schedules += 1
            yield outcome
        else:
            report.pruned += 1
        if not _turn_off(path):
            report.finished = True
            return


def _turn_off(path: list[_Node]) -> bool:
    """Back to the last state where something else is to be tried; whether there is one."""
    while path:
        node = path[-1]
        if node.step is not None:
            node.done[node.chosen] = node.step
            node.step = None
        rest = sorted(node.todo - node.done.keys() - node.sleep.keys())
        if rest:
            node.chosen = rest[0]
            return True
        path.pop()
    return False


def _follow(run: Run, path: list[_Node], report: Report, *, pruned: bool) -> tuple[object, bool]:
    """Repeat the choices of `path`, whose last one is new, then go on to the end."""
    scheduler = run.scheduler
    for depth in range(len(path) - 1):
        scheduler.step(path[depth].chosen)
    if path:
        _make(scheduler, path, report, pruned=pruned)
    deadlock = None
    while True:
        try:
            enabled = scheduler.enabled()
        except Deadlock as found:
            deadlock = str(found)
            _blocked_races(scheduler, path)
            break
        if not enabled:
            break
        if len(path) >= MAX_STEPS:
            raise EndlessError(f"a run of more than {MAX_STEPS} steps; the last one is {path[-1].step}")
        sleep = _asleep(path[-1], pruned=pruned) if path else {}
        awake = [name for name in enabled if name not in sleep]
        if not awake:
            return None, False
        last = path[-1].chosen if path else ""
        chosen = last if last in awake else awake[0]
        path.append(_Node(enabled, sleep, {chosen} if pruned else set(enabled), chosen=chosen))
        _make(scheduler, path, report, pruned=pruned)
    report.longest = max(report.longest, len(path))
    return run.finish(deadlock), True


def _asleep(before: _Node, *, pruned: bool) -> dict[str, Step]:
    """Clients that need not begin in the state after `before`: their next step was explored before, and commutes."""
    if not pruned:
        return {}
    step = before.step
    assert step is not None
    known = {**before.sleep, **before.done}
    return {name: each for name, each in known.items() if not dependent(each, step)}


def _make(scheduler: Scheduler, path: list[_Node], report: Report, *, pruned: bool) -> None:
    """Make the chosen step of the last state, and see what it raced with."""
    node = path[-1]
    step = node.step = scheduler.step(node.chosen)
    report.effects.add((step.client, step.kind.value))
    if len(path) > 1 and (before := path[-2].chosen) != step.client and before in node.enabled:
        report.switches[before, node.enabled[before].kind.value, step.client] += 1
    if pruned:
        _races(path, len(path) - 1, step)


def _races(path: list[_Node], at: int, step: Step) -> None:
    """Give a turn, at every earlier state from which a step raced with this one, to this one's client."""
    clock: dict[str, int] = {}
    for index in range(at - 1, -1, -1):
        if path[index].step is not None and path[index].chosen == step.client:
            clock = dict(path[index].clock)
            break
    before = dict(clock)
    for index in range(at - 1, -1, -1):
        earlier = path[index]
        made = earlier.step
        assert made is not None
        if made.client == step.client or not dependent(made, step):
            continue
        if before.get(made.client, -1) < index and may_race(made, step):
            earlier.todo |= {step.client} if step.client in earlier.enabled else set(earlier.enabled)
        for name, value in earlier.clock.items():
            if clock.get(name, -1) < value:
                clock[name] = value
    clock[step.client] = at
    if at < len(path):
        path[at].clock = clock


def _blocked_races(scheduler: Scheduler, path: list[_Node]) -> None:
    """Deadlocked clients raced with the holders of what they wait for."""
    for name, each in scheduler.pending().items():
        _races(path, len(path), Step(name, each.kind, each.target, each.invokes))


def by_priorities(
    begin: Callable[[], Run], report: Report, *, seed: int, schedules: int, depth: int, length: int
) -> Iterator[object]:
    """Runs in which the client of the highest priority goes on, and which `depth` - 1 times at random steps gets the
    lowest. A bug that needs `depth` orderings among n clients and k steps is found by one run with a probability of at
    least 1 / (n * k ** (depth - 1)). `length`: how many steps a run is expected to have."""
    for number in range(schedules):
        chance = random.Random(f"{seed}/{number}")  # schedules, no secrets
        run = begin()
        try:
            deadlock = _by_chance(run.scheduler, chance, depth, length, report)
            report.schedules += 1
            report.longest = max(report.longest, len(run.scheduler.steps))
            outcome = run.finish(deadlock)
        finally:
            run.close()
        yield outcome


def _by_chance(scheduler: Scheduler, chance: random.Random, depth: int, length: int, report: Report) -> str | None:
    names = sorted(scheduler.pending())
    chance.shuffle(names)
    priority = {name: depth + rank for rank, name in enumerate(names)}
    changes = {chance.randrange(1, max(2, length)): depth - 1 - each for each in range(1, depth)}
    last = ""
    try:
        while enabled := scheduler.enabled():
            if len(scheduler.steps) >= MAX_STEPS:
                raise EndlessError(f"a run of more than {MAX_STEPS} steps; the last one is {scheduler.steps[-1]}")
            chosen = max(enabled, key=lambda name: priority[name])
            lowered = changes.pop(len(scheduler.steps), None)
            if lowered is not None:
                priority[chosen] = lowered
                chosen = max(enabled, key=lambda name: priority[name])
            if last != chosen and last in enabled:
                report.switches[last, enabled[last].kind.value, chosen] += 1
            report.effects.add((chosen, enabled[chosen].kind.value))
            scheduler.step(chosen)
            last = chosen
    except Deadlock as found:
        return str(found)
    return None


def follow(
    begin: Callable[[], Run], choices: list[str], watch: Callable[[Any], None] = lambda _run: None
) -> tuple[object, list[Step]]:
    """One run by a list of choices, as far as it can be followed: a blocked client is passed over, and at the end the
    last client continues, then the others by name. `watch` is called before the first step and after each. Returns the
    outcome and the steps."""
    run = begin()
    try:
        deadlock = _by_choices(run.scheduler, choices, lambda: watch(run))
        return run.finish(deadlock), list(run.scheduler.steps)
    finally:
        run.close()


def _by_choices(scheduler: Scheduler, choices: list[str], watch: Callable[[], None]) -> str | None:
    last = ""
    watch()
    try:
        for name in choices:
            if name in scheduler.enabled():
                scheduler.step(name)
                watch()
                last = name
        while enabled := scheduler.enabled():
            if len(scheduler.steps) >= MAX_STEPS:
                raise EndlessError(f"a run of more than {MAX_STEPS} steps; the last one is {scheduler.steps[-1]}")
            last = last if last in enabled else min(enabled)
            scheduler.step(last)
            watch()
    except Deadlock as found:
        return str(found)
    return None
