"""Rounds, medians and ratios, for all benchmarks.

On shared machines, absolute figures change several-fold between runs. So every claim is a ratio of two works that were
done in the same run, in interleaved rounds. The claim is the median round. The spread, from the lowest to the highest
round, says how reliable it is.
"""

import argparse
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from multiprocessing.connection import Connection
from typing import Any

from refimpl.demo.workers import GO, Ended, WorkerPool

Options = argparse.Namespace
Work = Callable[[], float | Mapping[str, float]]
"""One round of one program: its figure, or several figures by their names."""
Works = Mapping[str, Work]
"""By the name of the figure, with its unit; the name of a work with several figures is only for order."""
Builder = Callable[[Options], AbstractContextManager[Works]]
"""Builds what the works of a benchmark need, and removes it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the table of claims: a figure or, with `per`, its ratio to another figure of the same round."""

    of: str
    _: KW_ONLY
    per: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    optional: bool = False
    """Whether some hosts cannot measure it."""

    def row(self, figures: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """Its row in the report."""
        values, name = list(figures[self.of]), self.of
        if self.per is not None:
            name = f"{self.of.rpartition(' (')[0]} / {self.per.rpartition(' (')[0]}"
            values = [value / other for value, other in zip(values, figures[self.per], strict=True)]
        median = statistics.median(values)
        low, high = self.at_least, self.at_most
        target = f">= {low:g}" if low is not None else f"<= {high:g}" if high is not None else None
        spread = {"lowest": min(values), "highest": max(values), "rounds": len(values)}
        holds = (low is None or median >= low) and (high is None or median <= high)
        return {"name": name, "median": median, **spread, "target": target, "holds": holds}


class Benchmark:
    """A row of the table of benchmarks, and what is claimed of its figures."""

    def __init__(self, module: str, options: Mapping[str, int], *claims: Claim, warm_up: int = 0) -> None:
        """`module`: it has a function of the benchmark's name, which builds what the works need, yields them, and
        removes it. `options`: those of the command, with their defaults; one is `rounds`. `warm_up`: rounds that do
        not count."""
        self.module = module
        self.options = options
        self.claims = claims
        self.warm_up = warm_up

    def run(self, begin: Builder, options: Options) -> list[dict[str, Any]]:
        """The rows of the report: the figures, and then the claims."""
        with begin(options) as works:
            interleaved(self.warm_up, works)
            figures = interleaved(options.rounds, works)
        claims = [
            claim for claim in self.claims if not claim.optional or {claim.of, claim.per or claim.of} <= figures.keys()
        ]
        claimed = {claim.of for claim in claims if claim.per is None}
        plain = [Claim(name) for name in figures if name not in claimed]
        return [claim.row(figures) for claim in (*plain, *claims)]


def show(title: str, rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> int:
    """Print the report; exit code 1 if a target is missed."""
    if as_json:
        host = {"machine": platform.machine(), "python": platform.python_version()}
        print(json.dumps({"title": title, "host": host, "claims": rows}, indent=2))
    else:
        print(title)
        for row in rows:
            met = "met" if row["holds"] else "MISSED"
            verdict = f"  target {row['target']}: {met}" if row["target"] else ""
            print(f"  {row['name']:<72} {row['median']:>10.4g} [{row['lowest']:.4g} .. {row['highest']:.4g}]{verdict}")
    return 0 if all(row["holds"] for row in rows) else 1


def progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def interleaved(rounds: int, works: Works) -> dict[str, list[float]]:
    """Run every work once per round, in rotating order; return its figures."""
    figures: dict[str, list[float]] = {}
    for number in range(rounds):
        for name in rotated(list(works), number):
            result = works[name]()
            for figure, value in (result if isinstance(result, Mapping) else {name: result}).items():
                figures.setdefault(figure, []).append(value)
        progress(f"round {number + 1} of {rounds}: " + ", ".join(f"{n} {v[-1]:.4g}" for n, v in figures.items()))
    return figures


def rotated(names: list[str], number: int) -> list[str]:
    """The order of the programs in a round."""
    return names[number % len(names) :] + names[: number % len(names)]


def seconds(work: Callable[[], object], before: Callable[[], object] = gc.collect) -> float:
    """The duration of the work."""
    before()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """A work whose figure is its duration in seconds."""
    return lambda: seconds(work)


def in_turns(
    calls: int, programs: Mapping[str, Callable[..., object]], arguments: Callable[[], Sequence[object]] = tuple
) -> dict[str, tuple[float, float]]:
    """The median call of each program: seconds, and seconds of processor time. The calls alternate, so that other load
    disturbs all programs alike. The time to make the arguments of a call is not measured."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for number in range(calls):
        for name in rotated(list(programs), number):
            given = arguments()
            start, processor = time.perf_counter(), time.process_time()
            programs[name](*given)
            took[name].append((time.perf_counter() - start, time.process_time() - processor))
    return {name: _medians(times) for name, times in took.items()}


def _medians(times: Iterable[tuple[float, float]]) -> tuple[float, float]:
    walls, processors = zip(*times, strict=True)
    return statistics.median(walls), statistics.median(processors)


def at_once(act: Callable[..., None], clients: Sequence[tuple[object, ...]], *, fork: bool = False) -> list[Any]:
    """The results of processes that begin together: one for each client, with a connection and the client's arguments.
    Each calls `wait_for_others` before it begins, and then sends its result. Raises if one fails."""
    with WorkerPool(fork=fork) as pool:
        workers = [pool.start(str(number), act, *client) for number, client in enumerate(clients)]
        messages = (message for _, message in pool.messages(300) if not isinstance(message, Ended))
        for _ in workers:
            assert next(messages) == GO
        for worker in workers:
            worker.send(GO)
        return [next(messages) for _ in workers]


def wait_for_others(connection: Connection) -> None:
    connection.send(GO)
    connection.recv()
