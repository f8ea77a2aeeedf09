"""Many writer processes on one table.

    python -m spec_tests.benchmarks.contention            fairness of 16 writers
    python -m spec_tests.benchmarks.contention --peer 1   also 8 writers against delta-rs (`deltalake`)

Fairness: every process commits transactions of one add action as fast as it can, for a number of seconds.

- `slowest / fastest` compares how many transactions each process committed.
- `p99 / fair share` compares the time of a transaction with 16 times the median of one writer alone, measured before
  and after.
- `p99 / mean` compares it with the mean of the same round, so that other load does not count.

Against delta-rs both write the same one-row tables: a Parquet file and a commit each.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import refimpl
from refimpl.protocol.table_feature import CommitMode
from spec_tests.benchmarks import measure, table


def append_actions(directory: str) -> Callable[[], object]:
    """One transaction with one add action and no data file."""
    handle = refimpl.open(directory, create=False).table("contended")

    def append() -> object:
        transaction = handle.transaction(operation="WRITE")
        transaction.add(table.add())
        return transaction.commit()

    return append


def append_rows(directory: str) -> Callable[[], object]:
    """One row appended by the plain Python client."""
    import pyarrow

    handle = refimpl.open(directory, create=False).table("contended")
    row = pyarrow.table({"id": pyarrow.array([1], pyarrow.int64())})
    return lambda: handle.append(row)


def append_rows_by_peer(directory: str) -> Callable[[], object]:
    """The same row appended by delta-rs, with more retries than it needs."""
    import deltalake
    import pyarrow

    row = pyarrow.table({"id": pyarrow.array([1], pyarrow.int64())})
    properties = deltalake.CommitProperties(max_commit_retries=10_000)
    return lambda: deltalake.write_deltalake(directory + "/peer", row, mode="append", commit_properties=properties)


def writer(
    make: Callable[[str], Callable[[], object]], directory: str, seconds: float, ready: Any, results: Any
) -> None:
    write = make(directory)
    write()  # imports, connections and the first snapshot are not measured
    ready.wait()
    took: list[float] = []
    failures = 0
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        try:
            write()
        except Exception as error:  # noqa: BLE001 - the benchmark counts failures of any kind
            failures += 1
            print(f"failed: {error!r}", file=sys.stderr)
        took.append(time.perf_counter() - start)
    results.put((took, failures))


def run(make: Callable[[str], Callable[[], object]], directory: str, writers: int, seconds: float) -> list[Any]:
    """The measurements of each writer: (seconds of each transaction, failures)."""
    return measure.at_once(writer, seconds, [(make, directory)] * writers)


def commits_per_second(measured: list[Any], seconds: float) -> float:
    return float(sum(len(took) - failures for took, failures in measured) / seconds)


def fairness(report: measure.Report, rounds: int, seconds: int, writers: int) -> None:
    slowest, tail, even, landed = list[float](), list[float](), list[float](), list[float]()
    failed = 0
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            with refimpl.open(name, create=True) as warehouse:
                table.create(warehouse, "contended", CommitMode.INLINE)
            alone = run(append_actions, name, 1, seconds / 4)[0][0]
            measured = run(append_actions, name, writers, seconds)
            alone += run(append_actions, name, 1, seconds / 4)[0][0]
        counts = [len(took) for took, _ in measured]
        everything = sorted(t for took, _ in measured for t in took)
        fair_share = writers * statistics.median(alone)
        slowest.append(min(counts) / max(counts))
        p99 = everything[int(len(everything) * 0.99)]
        tail.append(p99 / fair_share)
        even.append(p99 / statistics.mean(everything))
        landed.append(commits_per_second(measured, seconds))
        failed += sum(failures for _, failures in measured)
        measure.progress(
            f"round {number + 1} of {rounds}: {landed[-1]:.0f} commits/s, slowest/fastest {slowest[-1]:.2f}, "
            f"p99 {tail[-1]:.1f} fair shares of {fair_share * 1000:.1f} ms, {failed} failures"
        )
    report.add(f"{writers} writers, landed", landed, "commits/s")
    report.add(f"{writers} writers, slowest / fastest", slowest, "x", at_least=0.5)
    report.add(f"{writers} writers, p99 / fair share", tail, "x", at_most=12)
    report.add(f"{writers} writers, p99 / mean of the round", even, "x")
    report.add(f"{writers} writers, failures", [float(failed)], "commits", at_most=0)


def against_peer(report: measure.Report, rounds: int, seconds: int, writers: int) -> None:
    import deltalake
    import pyarrow

    ours: list[float] = []
    peer: list[float] = []
    schema = pyarrow.schema([("id", pyarrow.int64())])
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            with refimpl.open(name, create=True) as warehouse:
                table.create(warehouse, "contended", CommitMode.INLINE)
            deltalake.DeltaTable.create(str(Path(name) / "peer"), schema)
            ours.append(commits_per_second(run(append_rows, name, writers, seconds), seconds))
            peer.append(commits_per_second(run(append_rows_by_peer, name, writers, seconds), seconds))
        measure.progress(f"round {number + 1} of {rounds}: {ours[-1]:.0f} and {peer[-1]:.0f} commits/s")
    report.add(f"{writers} writers, one-row appends", ours, "commits/s")
    report.add(f"{writers} writers, the same by delta-rs", peer, "commits/s")
    report.add_ratio(f"{writers} writers, ours / delta-rs", ours, peer, at_least=5)


def main() -> int:
    options = measure.arguments("many writers on one table", rounds=5, seconds=6, writers=16, peer=1, peer_writers=8)
    report = measure.Report("writer processes on one table")
    fairness(report, options.rounds, options.seconds, options.writers)
    if options.peer:
        against_peer(report, options.rounds, options.seconds, options.peer_writers)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
