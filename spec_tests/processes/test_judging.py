"""The verdict on a round sees each kind of loss, and no loss where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from spec_tests.processes.judging import Answer, Try, violations


@dataclass
class World:
    """Versions 0 to 3; 4 attempts landed, one lost, one died and never landed. Nothing is wrong with it."""

    history: dict[int, str] = field(default_factory=lambda: {0: "a", 1: "b", 2: "c", 3: "d"})
    published: list[int] = field(default_factory=lambda: [0, 1])
    before: dict[int, str] = field(default_factory=lambda: {0: "a", 1: "b"})
    tries: dict[str, Try] = field(
        default_factory=lambda: {
            "zero": Try("zero", 0, "a", Answer.RATIFIED),
            "one": Try("one", 1, "b", Answer.RATIFIED),
            "two": Try("two", 2, "c", Answer.IN_FLIGHT, resolved=True),
            "three": Try("three", 3, "d", Answer.RATIFIED, resolved=True),
            "lost": Try("lost", 2, "x", Answer.REFUSED),
            "died": Try("died", 4, "y", Answer.IN_FLIGHT, resolved=False),
        }
    )

    def verdict(self) -> list[str]:
        return list(violations(self.history, self.published, self.tries, self.before))


def test_a_world_where_nothing_was_lost_has_no_violation() -> None:
    assert World().verdict() == []
    assert World(published=[], before={}).verdict() == []
    assert World(published=[0, 1, 2, 3]).verdict() == []


DAMAGES: dict[str, Callable[[World], object]] = {
    "an acknowledged commit is gone": lambda w: w.history.pop(3),
    "an acknowledged commit has other bytes": lambda w: w.history.update({3: "z"}),
    "a version is missing in the middle": lambda w: w.history.pop(1),
    "a version changed": lambda w: w.before.update({1: "other"}),
    "a version that was seen is gone": lambda w: w.before.update({4: "e"}),
    "a published version is missing": lambda w: w.published.remove(0),
    "a published version is above the latest": lambda w: w.published.extend([2, 3, 4]),
    "a refused attempt is there": lambda w: w.tries.update(lost=Try("lost", 2, "c", Answer.REFUSED)),
    "an attempt landed at another version": lambda w: w.tries.update(one=Try("one", 2, "b", Answer.RATIFIED)),
    "an attempt landed twice": lambda w: w.history.update({4: "d"}),
    "nobody proposed a version": lambda w: w.history.update({4: "stranger"}),
    "an attempt that never lands is there": lambda w: w.history.update({4: "y"}),
    "an attempt that landed is not there": lambda w: w.tries.update(
        died=Try("died", 4, "y", Answer.IN_FLIGHT, resolved=True)
    ),
    "an attempt was not resolved": lambda w: w.tries.update(died=Try("died", 4, "y", Answer.IN_FLIGHT)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_each_damage_is_seen(damage: Callable[[World], object]) -> None:
    world = World()
    damage(world)
    assert world.verdict() != []
