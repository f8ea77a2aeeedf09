"""`get_commits` and the owner's start-up, against the length of a table's history.

    python -m spec_tests.benchmarks.history

Both must not depend on it. The histories are written into the ledger in bulk: a million commits one by
one would take ten minutes and leave the same rows.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import refimpl
from refimpl.owner import ledger
from refimpl.table_feature import Way
from spec_tests.benchmarks import measure, table

UNBACKFILLED = 9
"""The newest commits of every history are still stored by the owner."""

START = """
import sys, time
import refimpl.warehouse
start = time.perf_counter()
warehouse = refimpl.open(sys.argv[1], create=False)
latest = warehouse.owner.resolve("history").commits.latest_ratified_version
print((time.perf_counter() - start) * 1000, latest)
"""


def build(directory: Path, commits: int) -> str:
    """A warehouse with a table of so many ratified commits; the table's id."""
    warehouse = refimpl.open(directory, create=True)
    table_id = table.create(warehouse, "history", Way.INLINE)
    content = table.one_add(1)
    warehouse.close()
    database = ledger.connect(directory / "_owner" / ledger.FILE_NAME)
    rows = (
        (
            1,
            v,
            table.new_id(),
            "inline",
            bytes(32),
            len(content),
            v + 1,
            v,
            *((v, None) if v < commits - UNBACKFILLED else (None, content)),
        )
        for v in range(1, commits)
    )
    with database:
        database.executemany("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        database.execute("UPDATE tables SET backfilled = ?", (commits - UNBACKFILLED - 1,))
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    database.close()
    return table_id


def get_commits_per_second(directory: Path, table_id: str, calls: int) -> float:
    with refimpl.open(directory, create=False) as warehouse:
        start = time.perf_counter()
        for _ in range(calls):
            answer = warehouse.owner.get_commits(table_id)
        elapsed = time.perf_counter() - start
    assert len(answer.commits) == UNBACKFILLED, answer
    return calls / elapsed


def start_up_ms(directory: Path, commits: int) -> float:
    """Opening the owner and resolving the table, in a new process, after the imports."""
    done = subprocess.run([sys.executable, "-c", START, str(directory)], capture_output=True, text=True, check=True)
    took, latest = done.stdout.split()
    assert int(latest) == commits - 1
    return float(took)


def main() -> int:
    options = measure.arguments("get_commits against the length of history", rounds=7, calls=2000, longest=1_000_000)
    lengths = [n for n in (10, 1000, 100_000) if n < options.longest] + [options.longest]
    with tempfile.TemporaryDirectory() as name:
        tables: dict[int, tuple[Path, str]] = {}
        for length in lengths:
            measure.progress(f"building a history of {length} commits")
            directory = Path(name) / str(length)
            tables[length] = directory, build(directory, length)
        works = {str(n): (lambda d=d, t=t: get_commits_per_second(d, t, options.calls)) for n, (d, t) in tables.items()}
        found = measure.interleaved(options.rounds, works)
        starts = measure.interleaved(
            options.rounds, {str(n): (lambda d=d, n=n: start_up_ms(d, n)) for n, (d, _) in tables.items()}
        )
    report = measure.Report("get_commits and start-up against the length of history")
    for name, values in found.items():
        report.add(f"get_commits, {name} commits", values, "calls/s")
    longest, shortest = str(lengths[-1]), str(lengths[0])
    ratios = [a / b for a, b in zip(found[longest], found[shortest], strict=True)]
    report.add(f"get_commits, {longest} / {shortest} commits", ratios, "x", at_least=0.8)
    for name, values in starts.items():
        target = {"at_most": 100.0} if name == longest else {}
        report.add(f"start-up, {name} commits", values, "ms", **target)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
