"""Explores schedules of a few clients: all of them depth first with pruning, or many of them by random priorities.

Depth first, every run starts anew and follows the choices of an earlier run up to a branching point. Schedules that
differ only in the order of commuting steps (`schedule.dependent`) form a class; pruning keeps one schedule of each
class. A run branches only where two steps raced (dynamic partial-order reduction, with happened-before as vector
clocks). It never continues with a step that a sibling has explored already (sleep sets). No class is lost: if the
racing client could not run at the branching point, all clients that could run there are explored.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from conformance.simulation.schedule import Deadlock, Pending, Scheduler, Step, dependent, may_race

MAX_STEPS: Final = 2000
"""The greatest number of steps of one run. In a longer run a client polls without end."""


Progress = Callable[[Callable[[], str]], None]
"""Called from time to time with a function that returns the progress of an exploration as text."""


def no_progress(_so_far: Callable[[], str]) -> None:
    """Show no progress."""


class Run(Protocol):
    """One run: clients that have started, and the result that they leave."""

    scheduler: Scheduler

    def finish(self, deadlock: str | None) -> object:
        """The outcome, after the last step."""
        ...

    def close(self) -> None: ...


class EndlessError(Exception):
    """A run has more than `MAX_STEPS` steps."""


@dataclass(slots=True)
class Report:
    """How much of a space was explored."""

    schedules: int = 0
    """The number of complete runs."""
    pruned: int = 0
    """The number of runs that ended early because all their continuations had been explored."""
    finished: bool = False
    """Whether all schedules were explored; with pruning, one schedule of each class."""
    longest: int = 0
    """The number of steps of the longest run."""


@dataclass(slots=True)
class _Node:
    """A state of the present run."""

    enabled: dict[str, Pending]
    sleep: dict[str, Step]
    todo: set[str]
    done: dict[str, Step] = field(default_factory=dict)
    chosen: str = ""
    step: Step | None = None
    clock: dict[str, int] = field(default_factory=dict)
    """The vector clock of the step made here: for each client, the position of its last step that happened before this
    step, or is this step."""


def depth_first(begin: Callable[[], Run], report: Report, *, pruned: bool = True) -> Iterator[object]:
    """The outcomes of all schedules, one after the other. `report` is updated meanwhile, and `finished` at the end."""
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
        if not _backtrack(path):
            report.finished = True
            return


def _backtrack(path: list[_Node]) -> bool:
    """Go back to the last state with an unexplored choice. Returns whether there is one."""
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
    """Repeat the choices of `path`, whose last choice is new; then continue to the end."""
    scheduler = run.scheduler
    for depth in range(len(path) - 1):
        scheduler.step(path[depth].chosen)
    if path:
        _make(scheduler, path, pruned=pruned)
    deadlock = None
    while True:
        try:
            enabled = _enabled(scheduler)
        except Deadlock as error:
            deadlock = str(error)
            _blocked_races(scheduler, path)
            break
        if not enabled:
            break
        sleep = _asleep(path[-1], pruned=pruned) if path else {}
        awake = [name for name in enabled if name not in sleep]
        if not awake:
            return None, False
        last = path[-1].chosen if path else ""
        chosen = last if last in awake else awake[0]
        path.append(_Node(enabled, sleep, {chosen} if pruned else set(enabled), chosen=chosen))
        _make(scheduler, path, pruned=pruned)
    report.longest = max(report.longest, len(path))
    return run.finish(deadlock), True


def _enabled(scheduler: Scheduler) -> dict[str, Pending]:
    """The next effects of the clients that can continue. Raises `EndlessError` after too many steps."""
    enabled = scheduler.enabled()
    if enabled and len(scheduler.steps) >= MAX_STEPS:
        raise EndlessError(f"a run of more than {MAX_STEPS} steps; the last one is {scheduler.steps[-1]}")
    return enabled


def _asleep(before: _Node, *, pruned: bool) -> dict[str, Step]:
    """The sleep set of the state after `before`: clients whose next step was explored before, and commutes."""
    if not pruned:
        return {}
    step = before.step
    assert step is not None
    known = {**before.sleep, **before.done}
    return {name: other for name, other in known.items() if not dependent(other, step)}


def _make(scheduler: Scheduler, path: list[_Node], *, pruned: bool) -> None:
    """Make the chosen step of the last state, and record its races."""
    node = path[-1]
    step = node.step = scheduler.step(node.chosen)
    if pruned:
        _races(path, len(path) - 1, step)


def _races(path: list[_Node], at: int, step: Step) -> None:
    """At every earlier state whose step raced with this step, also explore this step's client."""
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
    """Record the races of deadlocked clients with the holders of the locks that they wait for."""
    for name, pending in scheduler.pending().items():
        _races(path, len(path), Step(name, pending.kind, pending.target, pending.invokes))


def by_priorities(
    begin: Callable[[], Run], report: Report, *, seed: int, schedules: int, depth: int, length: int
) -> Iterator[object]:
    """Runs with random priorities. The client with the highest priority makes the next step; at `depth` - 1 random
    steps it gets the lowest priority. One run finds a bug that needs `depth` orderings among n clients and k steps with
    a probability of at least 1 / (n * k ** (depth - 1)). `length`: the expected number of steps of a run."""
    for number in range(schedules):
        chance = random.Random(f"{seed}/{number}")  # for schedules, not for secrets
        run = begin()
        try:
            deadlock = _by_chance(run.scheduler, chance, depth, length)
            report.schedules += 1
            report.longest = max(report.longest, len(run.scheduler.steps))
            outcome = run.finish(deadlock)
        finally:
            run.close()
        yield outcome


def _by_chance(scheduler: Scheduler, chance: random.Random, depth: int, length: int) -> str | None:
    names = sorted(scheduler.pending())
    chance.shuffle(names)
    priority = {name: depth + rank for rank, name in enumerate(names)}
    changes = {chance.randrange(1, max(2, length)): depth - 1 - number for number in range(1, depth)}
    try:
        while enabled := _enabled(scheduler):
            chosen = max(enabled, key=lambda name: priority[name])
            lowered = changes.pop(len(scheduler.steps), None)
            if lowered is not None:
                priority[chosen] = lowered
                chosen = max(enabled, key=lambda name: priority[name])
            scheduler.step(chosen)
    except Deadlock as error:
        return str(error)
    return None


def follow(begin: Callable[[], Run], choices: list[str]) -> tuple[object, list[Step]]:
    """One run that follows a list of choices as far as possible. It skips a choice whose client is blocked. After the
    list, the last client continues, then the others by name. Returns the outcome and the steps."""
    run = begin()
    try:
        deadlock = _by_choices(run.scheduler, choices)
        return run.finish(deadlock), list(run.scheduler.steps)
    finally:
        run.close()


def _by_choices(scheduler: Scheduler, choices: list[str]) -> str | None:
    last = ""
    try:
        for name in choices:
            if name in scheduler.enabled():
                scheduler.step(name)
                last = name
        while enabled := _enabled(scheduler):
            last = last if last in enabled else min(enabled)
            scheduler.step(last)
    except Deadlock as error:
        return str(error)
    return None
