"""Schedules of the two-writer scope per second on one core, and where the time goes.

    python -m spec_tests.benchmarks.simulation                  schedules per second of processor time, by commit mode
    python -m spec_tests.benchmarks.simulation --profile 1      also where the time goes

A schedule is a whole run: the files are restored, two processes of the owner open the ledger and commit, and the
checkers judge the result. Processor time is measured because the machine is shared. Priorities are random, so that no
schedule is cheaper because of pruning.
"""

import cProfile
import pstats
import sys
import time
from collections.abc import Callable

from conformance.simulation.explore import Report, by_priorities
from conformance.simulation.reference.clients import SimulatedClients
from conformance.simulation.schedule_scopes import Scope, ScopeRun, prepare, scopes
from spec_tests.benchmarks import measure

PER_SECOND = 200
DEPTH = 3
LENGTH = 20


def rate(scope: Scope, host: SimulatedClients, schedules: int) -> Callable[[], float]:
    """Schedules per second of processor time."""
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


def main() -> int:
    options = measure.arguments((__doc__ or "").partition("\n")[0], rounds=5, schedules=200, profile=0)
    report = measure.Report("simulated schedules of two writers, per core")
    selected = scopes(lambda scope: scope.name == "two-writers")
    with SimulatedClients() as host:
        works = {scope.id: rate(scope, host, options.schedules) for scope in selected}
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(works[selected[0].id])
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)
        report.add_all(measure.interleaved(options.rounds, works), "1/s", at_least=PER_SECOND)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
