"""Durable commits by one process, against the raw limit of the same storage, on the disk and on a RAM disk.

    python -m spec_tests.benchmarks.commit

- Inline: against one SQLite FULL transaction with the same bytes under filelock's `FileLock`.
- Staged: against the same, plus writing a file, an fsync of the file, and an fsync of its directory.
- Threads: inline commits of 8 threads of one process, each with its own table, against one thread.

Also measured: the transaction without any lock, and under the owner's own lock, which costs a tenth of a `FileLock`.

The programs alternate commit by commit, and a round's figure is the median commit. Other load then disturbs all of them
alike, and only a few commits. The processor time and the syncs of a commit do not depend on the speed of the storage.
"""

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
from filelock import FileLock

import refimpl
from refimpl.owner.local import LOCK_FILE, OWNER_FOLDER
from refimpl.protocol.commits import InlineProposal, Ratified, StagedProposal
from refimpl.protocol.table_feature import CommitMode
from refimpl.storage.environment import host_lock
from refimpl.storage.log_store import LogStore
from spec_tests.benchmarks import measure, table
from spec_tests.support.builders import create
from spec_tests.support.faults import Faults

RAM_DISK = Path("/dev/shm")
THREADS = 8


def raw_database(folder: Path) -> apsw.Connection:
    database = apsw.Connection(str(folder / "raw.sqlite"))
    database.execute(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=2000;"
        "CREATE TABLE raw(version INTEGER PRIMARY KEY, content BLOB)"
    ).fetchall()
    return database


def transaction(database: apsw.Connection, content: bytes) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO raw(content) VALUES (?)", (content,))
    database.execute("COMMIT")


def write_durably(file: Path, content: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, content)
    os.fsync(fd)
    os.close(fd)
    fd = os.open(file.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def measured(folder: Path, rounds: int, commits: int) -> dict[str, list[tuple[float, float]]]:
    """For each program, the median commit of each round: (seconds, seconds of processor time)."""
    warehouse = refimpl.open(folder / "warehouse", create=True)
    owner = warehouse.owner
    inline = table.create(warehouse, "inline", CommitMode.INLINE)
    staged = table.create(warehouse, "staged", CommitMode.STAGED)
    log = LogStore(owner.resolve("staged").location, warehouse.environment)
    versions = {inline: itertools.count(1), staged: itertools.count(1)}
    database, lock = raw_database(folder), host_lock(folder / "warehouse" / OWNER_FOLDER / LOCK_FILE)
    path_lock = FileLock(folder / "path-lock")
    (folder / "files").mkdir()

    def raw(content: bytes, attempt: str) -> None:
        with path_lock:
            transaction(database, content)

    def raw_staged(content: bytes, attempt: str) -> None:
        write_durably(folder / "files" / attempt, content)
        raw(content, attempt)

    def raw_by_descriptor(content: bytes, attempt: str) -> None:
        with lock():
            transaction(database, content)

    def commit_inline(content: bytes, attempt: str) -> None:
        proposal = InlineProposal(attempt=attempt, content=content)
        assert isinstance(owner.commit(inline, next(versions[inline]), proposal), Ratified)

    def commit_staged(content: bytes, attempt: str) -> None:
        version = next(versions[staged])
        file_name = log.stage(table.FEATURE.staging_folder, version, attempt, content)
        outcome = owner.commit(staged, version, StagedProposal(attempt=attempt, file_name=file_name))
        assert isinstance(outcome, Ratified)

    works: dict[str, Callable[[bytes, str], None]] = {
        "bare transaction": lambda content, attempt: transaction(database, content),
        "raw inline": raw,
        "raw inline, descriptor lock": raw_by_descriptor,
        "inline": commit_inline,
        "raw staged": raw_staged,
        "staged": commit_staged,
    }
    names = list(works)
    by_name: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for number in range(rounds):
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for index in range(commits):
            content = table.one_add(number * commits + index + 2)  # making these is the writer's work, not the owner's
            for name in measure.rotated(names, index):
                attempt = table.new_id()
                start, processor = time.perf_counter(), time.process_time()
                works[name](content, attempt)
                took[name].append((time.perf_counter() - start, time.process_time() - processor))
        for name, times in took.items():
            by_name[name].append(tuple(statistics.median(column) for column in zip(*times, strict=True)))
        medians = ", ".join(f"{name} {values[-1][0] * 1e6:.0f}" for name, values in by_name.items())
        measure.progress(f"round {number + 1} of {rounds}, microseconds: {medians}")
    warehouse.close()
    database.close()
    return by_name


def threads_of_one_process(folder: Path, rounds: int, commits: int) -> dict[str, list[float]]:
    """Inline commits per second of one thread, and of `THREADS` threads with a table each, whose proposals form
    groups.
    """
    with refimpl.open(folder, create=True) as warehouse:
        tables = [table.create(warehouse, f"t{number}", CommitMode.INLINE) for number in range(THREADS)]
        versions = {table: itertools.count(1) for table in tables}

        def land(table_id: str) -> None:
            for _ in range(commits):
                version = next(versions[table_id])
                proposal = InlineProposal(attempt=table.new_id(), content=table.one_add(version + 1))
                assert isinstance(warehouse.owner.commit(table_id, version, proposal), Ratified)
            warehouse.owner.close()  # the thread's connection

        def rate(chosen: list[str]) -> float:
            with ThreadPoolExecutor(len(chosen)) as pool:
                start = time.perf_counter()
                list(pool.map(land, chosen))
                return len(chosen) * commits / (time.perf_counter() - start)

        works = {"one thread": lambda: rate(tables[:1]), f"{THREADS} threads": lambda: rate(tables)}
        return measure.interleaved(rounds, works)


def syncs_of(folder: Path) -> dict[str, float]:
    """The number of syncs that a commit waits for."""
    faults = Faults(durable=True, below_sqlite=True)
    syncs: dict[str, float] = {}
    with refimpl.open(folder, environment=faults.environment(), create=True) as warehouse:
        for commit_mode in (CommitMode.INLINE, CommitMode.STAGED):
            made = create(warehouse, table.FEATURE, commit_mode, name=commit_mode.value, commits=1)
            faults.seen.clear()
            made.land(10)
            syncs[commit_mode.value] = sum(effect.startswith("fsync") for effect in faults.seen) / 10
    return syncs


def main() -> int:
    options = measure.arguments("durable commits against the raw limit", rounds=9, commits=200)
    report = measure.Report("durable commits by one process: the median commit")
    places = {"disk": tempfile.gettempdir()} | ({"RAM disk": str(RAM_DISK)} if RAM_DISK.is_dir() else {})
    for storage, parent in places.items():
        with tempfile.TemporaryDirectory(dir=parent) as name:
            medians = measured(Path(name), options.rounds, options.commits)
        for work, values in medians.items():
            report.add(f"{storage}: {work}", [wall * 1e6 for wall, _ in values], "us")
            report.add(f"{storage}: {work}, processor time", [cpu * 1e6 for _, cpu in values], "us")
        target = {"at_least": 0.7} if storage == "disk" else {}  # a RAM disk has no syncs to wait for
        pairs = {"raw inline": "inline", "raw staged": "staged", "raw inline, descriptor lock": "inline"}
        for raw, ours in pairs.items():
            ratios = [b[0] / a[0] for a, b in zip(medians[ours], medians[raw], strict=True)]
            report.add(f"{storage}: {ours} against {raw}", ratios, "x", **({} if "descriptor" in raw else target))
        for raw in ("raw inline", "raw inline, descriptor lock"):
            ratios = [a[1] / b[1] for a, b in zip(medians["inline"], medians[raw], strict=True)]
            report.add(
                f"{storage}: processor time of inline against {raw}", ratios, "x",
                **({} if "descriptor" in raw else {"at_most": 1.5}),
            )  # fmt: skip
        with tempfile.TemporaryDirectory(dir=parent) as name:
            rates = threads_of_one_process(Path(name), options.rounds, max(1, options.commits // 4))
        report.add_all(rates, "commits/s", f"{storage}: inline, {{}}")
        single, many = rates.values()
        report.add_ratio(f"{storage}: {THREADS} threads against one", many, single)
    with tempfile.TemporaryDirectory() as name:
        for commit_mode, count in syncs_of(Path(name) / "warehouse").items():
            report.add(
                f"syncs of one {commit_mode} commit", [count], "syncs", at_most=1 if commit_mode == "inline" else 3
            )
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
