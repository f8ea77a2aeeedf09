"""Rounds, medians and ratios, for all benchmarks.

On shared machines, absolute figures change several-fold between runs. So every claim is a ratio of two programs that
did the same work in the same run, in interleaved rounds. The claim is the median round. The spread, from the lowest to
the highest round, says how reliable it is.
"""

import argparse
import gc
import json
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One line of a report: `values` has one figure per round."""

    name: str
    values: Sequence[float]
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        low = self.at_least is None or self.median >= self.at_least
        return low and (self.at_most is None or self.median <= self.at_most)

    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"


@dataclass(slots=True)
class Report:
    """The output of one benchmark: figures, and claims with their targets."""

    title: str
    claims: list[Claim] = field(default_factory=list)

    def add(self, name: str, values: Sequence[float], unit: str, **target: float) -> None:
        self.claims.append(Claim(name=name, values=list(values), unit=unit, **target))

    def add_all(self, figures: Mapping[Any, Sequence[float]], unit: str, name: str = "{}", **target: float) -> None:
        """Add a line for each figure. Its key replaces the braces in `name`."""
        for key, values in figures.items():
            self.add(name.format(key), values, unit, **target)

    def add_ratio(
        self, name: str, values: Sequence[float], others: Sequence[float], unit: str = "x", **target: float
    ) -> None:
        """Add `values` divided by `others`, round by round."""
        self.add(name, [value / other for value, other in zip(values, others, strict=True)], unit, **target)

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "host": {"machine": platform.machine(), "python": platform.python_version()},
            "claims": [
                {
                    "name": c.name,
                    "unit": c.unit,
                    "median": c.median,
                    "lowest": min(c.values),
                    "highest": max(c.values),
                    "rounds": len(c.values),
                    "target": c.target() or None,
                    "holds": c.holds,
                }
                for c in self.claims
            ],
        }

    def finish(self, *, as_json: bool) -> int:
        """Print; exit code 1 if a target is missed."""
        if as_json:
            print(json.dumps(self.as_json(), indent=2))
        else:
            print(self.title)
            for c in self.claims:
                verdict = "" if not c.target() else f"  target {c.target()}: {'met' if c.holds else 'MISSED'}"
                spread = f"[{min(c.values):.4g} .. {max(c.values):.4g}]"
                print(f"  {c.name:<58} {c.median:>10.4g} {c.unit:<10} {spread}{verdict}")
        return 0 if all(c.holds for c in self.claims) else 1


def arguments(description: str, **numbers: int) -> argparse.Namespace:
    """Parse the usual options: `--rounds`, `--json`, and one integer option per keyword."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print JSON")
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"default {default}")
    return parser.parse_args()


def progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def seconds(work: Callable[[], object], before: Callable[[], object] = gc.collect) -> float:
    """The duration of the work."""
    before()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def at_once(target: Callable[..., None], seconds: float, clients: Sequence[tuple[object, ...]]) -> list[Any]:
    """The results of processes that begin together: one for each client, with its arguments, the seconds that it works,
    a barrier, and a queue for its result."""
    ready, results = SPAWN.Barrier(len(clients)), SPAWN.Queue()
    processes = [SPAWN.Process(target=target, args=(*client, seconds, ready, results)) for client in clients]
    for process in processes:
        process.start()
    measured = [results.get(timeout=seconds + 120) for _ in processes]
    for process in processes:
        process.join()
    return measured


def rotated(names: list[str], number: int) -> list[str]:
    """The order of the programs in a round."""
    return names[number % len(names) :] + names[: number % len(names)]


def interleaved(rounds: int, works: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run every program once per round, in rotating order; return its figures."""
    figures: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for number in range(rounds):
        for name in rotated(names, number):
            figures[name].append(works[name]())
        progress(f"round {number + 1} of {rounds}: " + ", ".join(f"{n} {v[-1]:.4g}" for n, v in figures.items()))
    return figures
