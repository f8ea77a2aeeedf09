"""Makes failing programs smaller, without knowledge of their steps: steps are removed, or replaced by those that they
name as simpler, and fields set to their defaults, or halfway to them."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from conformance.programs.program import Program

TRIALS: Final = 400
"""The maximum number of runs in the search for the smallest program."""
SIZES: Final = (64, 16, 8, 4, 2, 1)
"""How many neighbouring steps are removed at once."""

P = TypeVar("P", bound=Program[Any])
R = TypeVar("R")


def smallest(program: P, failure: R, run: Callable[[P], R | None], trials: int = TRIALS) -> tuple[P, R]:
    """The smallest program that fails like this one, as far as that many runs show, with its failure. `run` returns the
    failure of a candidate, or None if it does not fail in the same way."""
    candidates = simpler(program)
    for _ in range(trials):
        candidate = next(candidates, None)
        if candidate is None:
            break
        shown = run(candidate)
        if shown is not None:
            program, failure = candidate, shown
            candidates = simpler(program)
    return program, failure


def simpler(program: P) -> Iterator[P]:
    """Programs with one simplification each, the largest first."""
    for steps in _simpler_steps(program.steps):
        yield msgspec.structs.replace(program, steps=steps)


def _simpler_steps(steps: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    length = len(steps)
    for size in SIZES:
        for start in range(length - size, -1, -size) if length >= size else ():
            yield steps[:start] + steps[start + size :]
    for name in ("table", "client"):
        plain = tuple(msgspec.structs.replace(step, **{name: 0}) if hasattr(step, name) else step for step in steps)
        if plain != steps:
            yield plain
    for index, step in enumerate(steps):
        for changed in _simpler_step(step):
            yield (*steps[:index], changed, *steps[index + 1 :])


def _simpler_step(step: Any) -> Iterator[Any]:
    yield from getattr(step, "simpler", tuple)()
    for attribute in msgspec.structs.fields(step):
        value = getattr(step, attribute.name)
        for simple in _simpler_value(value, attribute.default) if value != attribute.default else ():
            yield msgspec.structs.replace(step, **{attribute.name: simple})


def _simpler_value(value: Any, default: Any) -> Iterator[Any]:
    """The default, then values between the value and the default; of a list, or of lanes of steps, shorter ones."""
    if default is not msgspec.NODEFAULT and value != default:
        yield default
    base = default if isinstance(default, int) else 0
    if isinstance(value, int) and not isinstance(value, bool) and value != base:
        halfway, nearer = base + (value - base) // 2, value + (1 if value < base else -1)
        yield from (between for between in dict.fromkeys((halfway, nearer)) if between not in (value, default))
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield value[:index] + value[index + 1 :]
            smaller = _simpler_step(part) if isinstance(part, msgspec.Struct) else _simpler_value(part, part)
            yield from ((*value[:index], simple, *value[index + 1 :]) for simple in smaller)
