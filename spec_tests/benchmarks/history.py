"""`get_commits` and the owner's start-up, against the length of a table's history.

    python -m spec_tests.benchmarks.history

Neither may depend on the length. The histories are written into the ledger in bulk: a million single commits would take
ten minutes and leave the same rows.
"""

import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import refimpl
from refimpl.owner import ledger
from refimpl.protocol import log_path
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.log_store import LogStore
from refimpl.warehouse import HostOwner
from spec_tests.benchmarks import measure, table

UNBACKFILLED = 9
"""The number of newest commits that the owner still stores, in every history."""

START = """
import sys, time
import refimpl.warehouse
start = time.process_time()
warehouse = refimpl.open(sys.argv[1], create=False)
latest = warehouse.owner.resolve("history").commits.latest_ratified_version
print((time.process_time() - start) * 1000, latest)
"""


def build(directory: Path, commits: int) -> str:
    """Create a warehouse with a table of so many ratified commits; return the table's id."""
    warehouse = refimpl.open(directory, create=True)
    table_id = table.create(warehouse, "history", CommitMode.INLINE)
    content = table.one_add(2)
    digest = hashlib.sha256(content).digest()
    log = LogStore(warehouse.owner.resolve(table_id).location, warehouse.environment)
    newest_published = commits - UNBACKFILLED - 1
    if newest_published:
        log.put_if_absent(log_path.commit(newest_published), content)  # without it in the log, every call would list it
    warehouse.close()
    database = ledger.connect(directory / "_owner" / ledger.FILE_NAME)

    def row(v: int) -> tuple[object, ...]:
        stored = (v, None) if v <= newest_published else (None, content)
        return (1, v, table.new_id(), "inline", digest, len(content), v + 1, v, *stored)

    with database:
        database.executemany("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", map(row, range(1, commits)))
        database.execute("UPDATE tables SET backfilled = ?", (newest_published,))
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    database.close()
    return table_id


def microseconds(owners: dict[str, tuple[HostOwner, str]], calls: int) -> dict[str, float]:
    """The median time of so many calls to each owner. The calls alternate, so that other load disturbs all owners
    alike.
    """
    took: dict[str, list[float]] = {name: [] for name in owners}
    names = list(owners)
    for number in range(calls):
        for name in measure.rotated(names, number):
            owner, table_id = owners[name]
            start = time.perf_counter()
            answer = owner.get_commits(table_id)
            took[name].append((time.perf_counter() - start) * 1e6)
            assert len(answer.commits) == UNBACKFILLED, answer
    return {name: statistics.median(times) for name, times in took.items()}


def start_up_ms(directory: Path, commits: int) -> float:
    """The processor time to open the owner and resolve the table, in a new process, after the imports."""
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
        opened = {str(length): refimpl.open(directory, create=False) for length, (directory, _) in tables.items()}
        owners = {str(length): (opened[str(length)].owner, table_id) for length, (_, table_id) in tables.items()}
        rounds = [microseconds(owners, options.calls) for _ in range(options.rounds)]
        for warehouse in opened.values():
            warehouse.close()
        starts = measure.interleaved(
            options.rounds, {str(n): partial(start_up_ms, d, n) for n, (d, _) in tables.items()}
        )
    report = measure.Report("get_commits and start-up against the length of history")
    for name in owners:
        report.add(f"get_commits, {name} commits", [times[name] for times in rounds], "us")
    longest, shortest = str(lengths[-1]), str(lengths[0])
    ratios = [times[shortest] / times[longest] for times in rounds]
    report.add(f"get_commits, as fast after {longest} as after {shortest}", ratios, "x", at_least=0.8)
    for name, values in starts.items():
        target = {"at_most": 100.0} if name == longest else {}
        report.add(f"start-up, {name} commits", values, "ms", **target)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
