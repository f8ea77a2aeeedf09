"""The verdict on a round sees each kind of loss; a slice of the rounds that `spec_tests.processes.storm` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spec_tests.processes.table_record import Answer, Attempt, violations

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.processes
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_processes_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Every acknowledged commit is there once, every other is resolved, the published prefix is equal byte by byte."""
    ran = subprocess.run(
        [
            sys.executable,
            *("-m", "spec_tests.processes.storm"),
            *("--rounds", "20", "--seed", str(seed), "--directory", str(tmp_path / "w"), "--json"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["violations"] == []
    assert summary["rounds"] == 20
    assert summary["acknowledged"] > 10
    assert summary["killed_from_outside"] + sum(summary["deaths_by_effect"].values()) > 5


@dataclass
class World:
    """Versions 0 to 3; 4 attempts landed, one lost, one died and never landed. Nothing is wrong with it."""

    history: dict[int, str] = field(default_factory=lambda: {0: "a", 1: "b", 2: "c", 3: "d"})
    published: list[int] = field(default_factory=lambda: [0, 1])
    before: dict[int, str] = field(default_factory=lambda: {0: "a", 1: "b"})
    attempts: dict[str, Attempt] = field(
        default_factory=lambda: {
            "zero": Attempt("zero", 0, "a", Answer.RATIFIED),
            "one": Attempt("one", 1, "b", Answer.RATIFIED),
            "two": Attempt("two", 2, "c", Answer.IN_FLIGHT, resolved=True),
            "three": Attempt("three", 3, "d", Answer.RATIFIED, resolved=True),
            "lost": Attempt("lost", 2, "x", Answer.REFUSED),
            "died": Attempt("died", 4, "y", Answer.IN_FLIGHT, resolved=False),
        }
    )

    def verdict(self) -> list[str]:
        return list(violations(self.history, self.published, self.attempts, self.before))


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
    "a refused attempt is there": lambda w: w.attempts.update(lost=Attempt("lost", 2, "c", Answer.REFUSED)),
    "an attempt landed at another version": lambda w: w.attempts.update(one=Attempt("one", 2, "b", Answer.RATIFIED)),
    "an attempt landed twice": lambda w: w.history.update({4: "d"}),
    "a version was not proposed": lambda w: w.history.update({4: "unknown"}),
    "an attempt that never lands is there": lambda w: w.history.update({4: "y"}),
    "an attempt that landed is not there": lambda w: w.attempts.update(
        died=Attempt("died", 4, "y", Answer.IN_FLIGHT, resolved=True)
    ),
    "an attempt was not resolved": lambda w: w.attempts.update(died=Attempt("died", 4, "y", Answer.IN_FLIGHT)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_each_damage_is_seen(damage: Callable[[World], object]) -> None:
    world = World()
    damage(world)
    assert world.verdict() != []
