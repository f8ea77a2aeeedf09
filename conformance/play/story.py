"""A scenario as a story: run by the simulator, and run again with other choices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from conformance.play.narration import decides, intention, sentence
from conformance.play.world import OWNER, Scenario, World
from conformance.player.story import Happening, Step, Story


def story_of(scenario: Scenario) -> Story:
    return Story(
        name=scenario.name,
        title=scenario.title,
        about=scenario.about,
        ends=scenario.ends,
        clients=tuple(scenario.clients),
        others=(OWNER,),
        steps=tuple(steps_of(scenario)),
        forks=ScenarioForks(scenario),
    )


def steps_of(scenario: Scenario, choices: Sequence[str] | None = None) -> Iterator[Step]:
    """The steps of these choices, or of the scenario's own story."""
    with World(scenario) as world:
        yield from _steps(world, world.follow() if choices is None else map(world.choose, choices))


def _steps(world: World, made: Iterable[list[Happening]]) -> Iterator[Step]:
    before = world.view()
    for happenings in made:
        after = world.view()
        for each in happenings:
            text, rule = sentence(each, before, after, world.scenario.feature)
            yield Step(each, text, rule, after, tuple(world.choices), decides(each))
        before = after


class ScenarioForks:
    """A scenario with other choices than its own."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def options(self, choices: Sequence[str]) -> list[tuple[str, str]]:
        """Every client that can go next, and every fault."""
        with self._after(choices) as world:
            nexts = [(name, f"{name} goes next: {intention(effect)}") for name, effect in world.enabled().items()]
            return [*nexts, *((fault, fault) for fault in world.faults())]

    def follow(self, choices: Sequence[str], option: str) -> list[Step]:
        """After the option every client that is left goes on to its end."""
        with self._after(choices) as world:
            return list(_steps(world, _to_the_end(world, option)))

    @contextmanager
    def _after(self, choices: Sequence[str]) -> Iterator[World]:
        with World(self._scenario) as world:
            for choice in choices:
                world.choose(choice)
            yield world


def _to_the_end(world: World, choice: str) -> Iterator[list[Happening]]:
    """One client after the other; the chosen one goes first."""
    yield world.choose(choice)
    while enabled := world.enabled():
        yield world.choose(choice if choice in enabled else next(iter(enabled)))
