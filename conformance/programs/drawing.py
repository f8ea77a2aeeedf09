"""Draws the words of a program from a seed: small scopes first, each program with other weights (swarm testing), and
the heavy words in turn.

The draws never see an answer, so that a seed gives the same programs for every subject with the same capabilities.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, TypeVar

SWARM: Final = (0.0, 0.5, 1.0, 1.0, 2.0, 4.0)
"""The factors of a word's weight in one program: some words are missing, others are frequent."""
SMALL: Final = (3, 6)
"""The numbers of words of the first programs, whose failures are easy to read."""
FULL: Final = (3, 24)
SMALL_PROGRAMS: Final = 40
HEAVY_EVERY: Final = 16
"""One of so many programs is heavy."""

T = TypeVar("T")


def random_of(seed: int, number: int) -> Random:
    """The source of all draws of a run's program of that number."""
    return Random(f"{seed}/{number}")


def words(random: Random, weights: Mapping[str, float], number: int) -> tuple[str, ...]:
    """The words of the program of that number, drawn from its own subset of the alphabet."""
    mine = {word: weight * random.choice(SWARM) for word, weight in weights.items()}
    if not any(mine.values()):
        mine = dict(weights)
    length = random.randint(*(SMALL if number < SMALL_PROGRAMS else FULL))
    return tuple(random.choices(list(mine), list(mine.values()), k=length))


def heavy(cycle: Sequence[T], seed: int, number: int) -> T | None:
    """The heavy word of the program of that number: the next one of the cycle, which begins elsewhere for each seed.
    None if the program is an ordinary one. Rare words need a schedule: a weight may never draw them."""
    turn, rest = divmod(number, HEAVY_EVERY)
    if not cycle or rest != HEAVY_EVERY - 1:
        return None
    return cycle[(seed + turn) % len(cycle)]
