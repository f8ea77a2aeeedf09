"""Work in several processes, results in the order of the work: the output of a command does not depend on how many."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final, TypeVar

from conformance.command.output import say

TELLS_EVERY: Final = 15.0
"""Seconds between two lines about how far one piece of work is."""

Work = TypeVar("Work")
Done = TypeVar("Done")

Exchange = Callable[[Callable[[], str]], None]
"""Hears how far a piece of work is, and asks for it in words if it wants them."""


def untold(_so_far: Callable[[], str]) -> None:
    """Nobody wants to know."""


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """`--jobs`, the same for every command."""
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default: 1)")


def in_order(function: Callable[[Work], Done], works: Sequence[Work], jobs: int) -> Iterator[Done]:
    """`function` of each, as soon as those before it are done. With more than one job both are pickled, and a process
    is a new one, so that nothing of this one is in it."""
    if jobs <= 1 or len(works) <= 1:
        yield from map(function, works)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(works)), mp_context=fresh) as pool:
        yield from pool.map(function, works)


class Progress:
    """Says now and then, beside the result, how far a piece of work is."""

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now = now
        self._told = now()

    def __call__(self, so_far: Callable[[], str]) -> None:
        """`so_far` is asked only when something is said."""
        now = self._now()
        if now - self._told >= TELLS_EVERY:
            self._told = now
            say(f"{self._name}: {so_far()} so far")
            sys.stderr.flush()
