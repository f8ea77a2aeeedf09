"""How much a run does: the one table of counts, and the limits of time.

Counts, not times, so that the same seed does the same on every machine. The budget is a limit beside them: a run that
reaches it is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from conformance.results import Layer
from conformance.running.errors import UnusableError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProfile:
    """What `--profile` chooses."""

    name: str
    about: str
    counts: Mapping[Layer, int]
    """By layer: how many generated scenarios, schedules or rounds each case of it consists of. 0: the layer is left
    out. An example is itself."""
    budget_seconds: float
    """Of wall-clock time, unless the user says otherwise."""


PROFILES: Final[Mapping[str, RunProfile]] = {
    profile.name: profile
    for profile in (
        RunProfile(
            name="quick",
            about="for every change: all examples, a few generated scenarios of each kind; about a minute",
            counts={Layer.EXAMPLE: 1, Layer.MODEL: 10, Layer.SIMULATION: 50, Layer.PROCESSES: 1},
            budget_seconds=300,
        ),
        RunProfile(
            name="standard",
            about="for a release, or every night: ten times as many generated scenarios",
            counts={Layer.EXAMPLE: 1, Layer.MODEL: 100, Layer.SIMULATION: 1_000, Layer.PROCESSES: 5},
            budget_seconds=3_600,
        ),
        RunProfile(
            name="thorough",
            about="for a protocol change: a hundred times as many; hours",
            counts={Layer.EXAMPLE: 1, Layer.MODEL: 1_000, Layer.SIMULATION: 10_000, Layer.PROCESSES: 25},
            budget_seconds=8 * 3_600,
        ),
    )
}


def profile_named(name: str) -> RunProfile:
    """Raises `UnusableError`."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UnusableError(f"unknown --profile {name!r}; choose one of {', '.join(PROFILES)}") from None


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str, option: str) -> float:
    """`90`, `90s`, `1.5m`, `2h`. Raises `UnusableError`, which names the option."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not (value := float(found[1]) * _SECONDS[found[2]]):
        raise UnusableError(f"invalid {option} {text!r}; expected a time above zero, such as 60s, 500ms, 5m or 2h")
    return value
