"""The kit: the checker of histories, and the simulator."""

import cProfile
import gc
import pstats
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from conformance.history import events
from conformance.history.events import Answer, Event, Request
from conformance.history.files import read, write_events
from conformance.history.operations import operations
from conformance.history_checkers.check import judge
from conformance.history_checkers.columns import HistoryColumns
from conformance.simulation.explore import Report, by_priorities
from conformance.simulation.reference import SimulatedReference
from conformance.simulation.schedule_scopes import Scope, ScopeRun, prepare, scopes
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.measure import Options, Works
from spec_tests.conformance.simulated_histories import ended

TABLE = "orders"
CLIENTS = 16
HEADER = events.Header(
    schema=events.SCHEMA_VERSION,
    clock=events.Clock(unit="tick"),
    subject=events.Subject(name="simulated"),
    feature="catalogManaged",
    profiles=("core", "idempotent-retry", "attempt-outcome"),
)


class _Busy:
    """A table in use by sixteen clients, as a stream of events that are not kept in memory."""

    def __init__(self, operations: int) -> None:
        self.operations = operations
        self.random = Random(operations)
        self.log: list[str] = []
        self.unsure: list[tuple[str, int]] = []
        self.published = 0
        self.counts = dict.fromkeys(events.Counts.__struct_fields__, 0)

    def events(self) -> Iterator[Event]:
        yield HEADER
        now = 0
        in_flight: list[tuple[int, Answer]] = []
        for number in range(self.operations):
            if len(in_flight) == CLIENTS:
                now += 1
                done, answer = in_flight.pop(self.random.randrange(4))
                yield self._counted(ended(now, done, answer))
            now += 1
            request, answer = self._ask(number)
            yield self._counted(
                events.Invoke(at=now, id=number, client=f"c{number % CLIENTS}", table=TABLE, request=request)
            )
            in_flight.append((number, answer))
        for done, answer in in_flight:
            now += 1
            yield self._counted(ended(now, done, answer))
        for version, attempt in enumerate(self.log):
            yield self._counted(events.Witness(table=TABLE, version=version, attempt=attempt))
        yield events.Footer(counts=events.Counts(**self.counts), tables={TABLE: len(self.log)}, complete=True)

    def _counted(self, event: Event) -> Event:
        self.counts[str(type(event).__struct_config__.tag)] += 1
        return event

    def _ask(self, number: int) -> tuple[Request, Answer]:
        """A request takes effect when it is sent, which makes every such history correct."""
        chance = self.random.random()
        latest = len(self.log) - 1
        if chance < 0.45:
            return self._commit(f"{number:08x}-0000-4000-8000-{self.random.getrandbits(48):012x}", chance)
        if chance < 0.5 and self.unsure:
            attempt, version = self.unsure[number % len(self.unsure)]
            landed = version <= latest and self.log[version] == attempt
            if chance < 0.475:
                answer = events.Ratified(version=version) if landed else events.Conflict(latest=latest)
                return events.Commit(version=version, attempt=attempt), answer
            outcome = events.Landed(version=version) if landed else events.NotLanded()
            return events.AttemptOutcome(attempt=attempt), outcome
        if chance < 0.55:
            self.published = len(self.log)
            return events.BackfillToVersion(version=max(latest, 0)), events.Done()
        stored = range(self.published, len(self.log))
        entries = tuple(events.Entry(version=version, attempt=self.log[version]) for version in stored)
        return events.GetCommits(), events.Commits(latest=latest, commits=entries)

    def _commit(self, attempt: str, chance: float) -> tuple[Request, Answer]:
        latest = len(self.log) - 1
        if chance < 0.2 and latest >= 0:
            taken = max(0, latest - self.random.randrange(3))
            return events.Commit(version=taken, attempt=attempt), events.Conflict(latest=latest)
        if chance < 0.21:
            return events.Commit(version=latest + 2, attempt=attempt), events.Gap(latest=latest)
        if chance < 0.23 and latest >= 0:
            self.unsure = [*self.unsure[-50:], (attempt, latest)]
            return events.Commit(version=latest, attempt=attempt), events.Unknown()
        self.log.append(attempt)
        if chance < 0.25:
            self.unsure = [*self.unsure[-50:], (attempt, latest + 1)]
            return events.Commit(version=latest + 1, attempt=attempt), events.Unknown()
        return events.Commit(version=latest + 1, attempt=attempt), events.Ratified(version=latest + 1)


@contextmanager
def checker(options: Options) -> Iterator[Works]:
    """The checker of histories: operations per second, with and without reading the file, and memory per operation.

    The history is correct. Eight writers lose most races, repeat requests whose answer was lost, and look up outcomes.
    Eight readers read. Sixteen requests are open at any moment. Each figure is for the whole history. Five million
    operations are 11 million events (`--operations 5000000 --rounds 1`).
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "history.jsonl")
        count = _write(path, options.operations)
        measure.progress(f"{count} events, {path.stat().st_size / 1e6:.0f} MB")
        columns = HistoryColumns(operations(read(path)))
        tenth = max(options.operations // 10, 1000)
        small, larger = Path(directory, "small.jsonl"), Path(directory, "larger.jsonl")
        _write(small, tenth)
        _write(larger, 3 * tenth)
        memory = {
            "memory per operation (bytes)": _memory(small),
            "memory per operation, three times as many (bytes)": _memory(larger),
        }

        def rate(work: Callable[[], object]) -> Callable[[], float]:
            return lambda: columns.operations / measure.seconds(work) / 1000

        yield {
            "check, reading excluded (1000 op/s)": rate(lambda: _check(columns)),
            "read and pair, without judging (1000 op/s)": rate(lambda: sum(1 for _ in operations(read(path)))),
            "file to verdict (1000 op/s)": rate(lambda: _check(HistoryColumns(operations(read(path))))),
            "resident memory at the peak (MB)": lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
            "memory": lambda: memory,
        }


def _write(path: Path, count: int) -> int:
    """Write a history of so many operations; return the number of its events."""
    busy = _Busy(count)
    with path.open("wb") as stream:
        write_events(stream, busy.events())
    return sum(busy.counts.values()) + 2


def _check(columns: HistoryColumns) -> None:
    violations, _ = judge(columns)
    assert violations == []


def _memory(path: Path) -> float:
    """Bytes per operation at the peak, for columns and check together."""
    gc.collect()
    tracemalloc.start()
    columns = HistoryColumns(operations(read(path)))
    judge(columns)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / columns.operations


DEPTH = 3
LENGTH = 20


@contextmanager
def simulation(options: Options) -> Iterator[Works]:
    """Schedules of the two-writer scope per second of processor time, by commit mode.

    A schedule is a whole run: the files are restored, two processes of the owner open the ledger and commit, and the
    checkers judge the result. Priorities are random, so that no schedule is cheaper because of pruning. With
    `--profile 1`, also shows where the time goes.
    """
    with SimulatedReference() as host:
        works = {
            f"{scope.id} (1/s)": _rate(scope, host, options.schedules)
            for scope in scopes(lambda scope: scope.name == "two-writers")
        }
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(next(iter(works.values())))
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)
        yield works


def _rate(scope: Scope, host: SimulatedReference, schedules: int) -> Callable[[], float]:
    seeds = iter(range(sys.maxsize))

    def run() -> float:
        start = prepare(scope, host)
        began = time.process_time()
        runs = by_priorities(
            lambda: ScopeRun(scope, host, start),
            Report(),
            seed=next(seeds),
            schedules=schedules,
            depth=DEPTH,
            length=LENGTH,
        )
        for _ in runs:
            pass
        return schedules / (time.process_time() - began)

    return run
