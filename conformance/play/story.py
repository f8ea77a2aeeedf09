"""A story: the steps of a scenario with their sentences, and what was there after each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from conformance.play.narration import sentence
from conformance.play.world import Happening, Scenario, View, World


@dataclass(frozen=True, slots=True)
class Step:
    """One step as people read it."""

    happening: Happening
    text: str
    rule: str | None
    """The id of a requirement."""
    view: View
    """What is there after it."""
    choices: tuple[str, ...]
    """What made it happen: all choices up to it."""


def steps_of(scenario: Scenario, choices: Sequence[str] | None = None) -> Iterator[Step]:
    """The steps of these choices, or of the scenario's own story."""
    with World(scenario) as world:
        yield from _steps(world, world.follow() if choices is None else map(world.choose, choices))


def _steps(world: World, made: Iterable[list[Happening]]) -> Iterator[Step]:
    before = world.view()
    for happenings in made:
        after = world.view()
        for happening in happenings:
            text, rule = sentence(happening, before, after, world.scenario.feature)
            yield Step(happening, text, rule, after, tuple(world.choices))
        before = after


def options_at(scenario: Scenario, choices: Sequence[str]) -> list[tuple[str, str]]:
    """What may be chosen after these choices, and what that means."""
    with _after(scenario, choices) as world:
        nexts = [(name, f"{name} goes next: {effect}") for name, effect in world.enabled().items()]
        return [*nexts, *((fault, fault) for fault in world.faults())]


def fork(scenario: Scenario, choices: Sequence[str], option: str) -> list[Step]:
    """The steps of these choices, then of `option`; then every client that is left goes on to its end."""
    with World(scenario) as world:
        return list(_steps(world, chain(map(world.choose, choices), _to_the_end(world, option))))


@contextmanager
def _after(scenario: Scenario, choices: Sequence[str]) -> Iterator[World]:
    with World(scenario) as world:
        for choice in choices:
            world.choose(choice)
        yield world


def forks_of(scenario: Scenario, choices: Sequence[str]) -> Iterator[tuple[str, list[Step]]]:
    """What else could have been chosen after these choices, and the steps from there on."""
    for option, _ in options_at(scenario, choices):
        if option != choices[-1]:
            with _after(scenario, choices) as world:
                yield option, list(_steps(world, _to_the_end(world, option)))


def _to_the_end(world: World, choice: str) -> Iterator[list[Happening]]:
    """One client after the other; the chosen one goes first."""
    yield world.choose(choice)
    while enabled := world.enabled():
        yield world.choose(choice if choice in enabled else next(iter(enabled)))
