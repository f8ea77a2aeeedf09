"""The owner: durable commits, many writers, and long histories."""

import hashlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
from filelock import FileLock

import refimpl
from refimpl.owner import ledger
from refimpl.owner.tables import LOCK_FILE
from refimpl.protocol import log_path
from refimpl.protocol.commits import InlineProposal, Ratified, StagedProposal
from refimpl.protocol.groups import GroupRatified, Member
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.storage.environment import host_lock
from refimpl.storage.locations import OWNER_FOLDER
from refimpl.storage.log_store import LogStore
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.measure import Options, Work, Works
from spec_tests.support.builders import ON_REQUEST, START, STATISTICS, addition, append, create, new_attempt
from spec_tests.support.faults import Faults

THREADS = 8
GROUPED = 4
"""The number of tables of the overlapping groups."""


@contextmanager
def commit(options: Options) -> Iterator[Works]:
    """Durable commits by one process, against the raw limit of the same storage.

    - Inline: against one SQLite FULL transaction with the same bytes under filelock's `FileLock`.
    - Staged: against the same, plus writing a file, an fsync of the file, and an fsync of its directory.
    - Group: two inline commits to two tables in one transaction, against one inline commit.
    - Threads: inline commits of 8 threads of one process, each with its own table, against one thread.

    Also measured: the transaction without any lock, and under the owner's own lock, which costs a tenth of a
    `FileLock`. The processor time and the syncs of a commit do not depend on the speed of the storage.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        programs = _programs(folder, stack)
        warehouse = stack.enter_context(refimpl.open(folder / "threads", create=True))
        yield {
            "commits": partial(_median_commits, programs, itertools.count(START + 1), options.commits),
            "threads": _threads(warehouse, max(1, options.commits // 4)),
            "syncs": _syncs,
        }


Program = Callable[[bytes, str], object]
"""Commits the content of an attempt."""


def _programs(folder: Path, stack: ExitStack) -> dict[str, Program]:
    warehouse = stack.enter_context(refimpl.open(folder / "warehouse", create=True))
    owner = warehouse.owner
    inline = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name="inline").table_id
    staged = create(warehouse, CATALOG_MANAGED, CommitMode.STAGED, name="staged").table_id
    log = LogStore(owner.resolve("staged").location, warehouse.environment)
    versions = {inline: itertools.count(1), staged: itertools.count(1)}
    database, lock = _raw_database(folder), host_lock(folder / "warehouse" / OWNER_FOLDER / LOCK_FILE)
    stack.callback(database.close)
    path_lock = FileLock(folder / "path-lock")
    (folder / "files").mkdir()

    def raw(content: bytes, attempt: str) -> None:
        with path_lock:
            _transaction(database, content)

    def raw_staged(content: bytes, attempt: str) -> None:
        _write_durably(folder / "files" / attempt, content)
        raw(content, attempt)

    def raw_by_descriptor(content: bytes, attempt: str) -> None:
        with lock():
            _transaction(database, content)

    def commit_inline(content: bytes, attempt: str) -> None:
        proposal = InlineProposal(attempt=attempt, content=content)
        assert isinstance(owner.commit(inline, next(versions[inline]), proposal), Ratified)

    def commit_staged(content: bytes, attempt: str) -> None:
        version = next(versions[staged])
        file_name = log.stage(CATALOG_MANAGED.staging_folder, version, attempt, content)
        outcome = owner.commit(staged, version, StagedProposal(attempt=attempt, file_name=file_name))
        assert isinstance(outcome, Ratified)

    pair = [create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name=name).table_id for name in ("debits", "credits")]
    pair_versions = itertools.count(1)

    def commit_group(content: bytes, attempt: str) -> None:
        version = next(pair_versions)
        proposals = (InlineProposal(attempt=own, content=content) for own in (attempt, new_attempt()))
        members = [Member(table_id=t, version=version, proposal=p) for t, p in zip(pair, proposals, strict=True)]
        assert isinstance(owner.commit_group(members), GroupRatified)

    return {
        "bare transaction": lambda content, attempt: _transaction(database, content),
        "raw inline": raw,
        "raw inline, descriptor lock": raw_by_descriptor,
        "inline": commit_inline,
        "group of two": commit_group,
        "raw staged": raw_staged,
        "staged": commit_staged,
    }


def _median_commits(programs: dict[str, Program], clock: Iterator[int], commits: int) -> dict[str, float]:
    figures = {}

    def made() -> tuple[bytes, str]:  # the writer's work, not the owner's
        return append(next(clock), stats=STATISTICS), new_attempt()

    for name, (wall, processor) in measure.in_turns(commits, programs, made).items():
        figures[f"{name} (us)"] = wall * 1e6
        figures[f"{name}, processor time (us)"] = processor * 1e6
    return figures


def _raw_database(folder: Path) -> apsw.Connection:
    database = apsw.Connection(str(folder / "raw.sqlite"))
    database.execute(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=2000;"
        "CREATE TABLE raw(version INTEGER PRIMARY KEY, content BLOB)"
    ).fetchall()
    return database


def _transaction(database: apsw.Connection, content: bytes) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO raw(content) VALUES (?)", (content,))
    database.execute("COMMIT")


def _write_durably(file: Path, content: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, content)
    os.fsync(fd)
    os.close(fd)
    fd = os.open(file.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _threads(warehouse: refimpl.Warehouse, commits: int) -> Work:
    """Inline commits per second of one thread, and of `THREADS` threads with a table each, whose proposals form
    groups."""
    tables = [
        create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name=f"t{number}").table_id for number in range(THREADS)
    ]
    versions = {table_id: itertools.count(1) for table_id in tables}

    def land(table_id: str) -> None:
        for _ in range(commits):
            version = next(versions[table_id])
            proposal = InlineProposal(attempt=new_attempt(), content=append(START + version, stats=STATISTICS))
            assert isinstance(warehouse.owner.commit(table_id, version, proposal), Ratified)
        warehouse.owner.close()  # the thread's connection

    def rate(chosen: list[str]) -> float:
        with ThreadPoolExecutor(len(chosen)) as pool:
            return len(chosen) * commits / measure.seconds(lambda: list(pool.map(land, chosen)))

    return lambda: {"one thread (commits/s)": rate(tables[:1]), f"{THREADS} threads (commits/s)": rate(tables)}


def _syncs() -> dict[str, float]:
    """The number of syncs that a commit waits for."""
    faults = Faults(durable=True, below_sqlite=True)
    syncs: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        refimpl.open(Path(name) / "warehouse", environment=faults.environment(), create=True) as warehouse,
    ):
        for commit_mode in (CommitMode.INLINE, CommitMode.STAGED):
            made = create(warehouse, CATALOG_MANAGED, commit_mode, name=commit_mode.value, commits=1)
            faults.seen.clear()
            made.land(10)
            count = sum(effect.startswith("fsync") for effect in faults.seen) / 10
            syncs[f"one {commit_mode.value} commit (syncs)"] = count
    return syncs


# Many writers


@contextmanager
def contention(options: Options) -> Iterator[Works]:
    """Many writer processes on one table.

    Fairness: every process commits transactions of one add action as fast as it can, for a number of seconds.

    - `slowest / fastest` compares how many transactions each process committed.
    - `p99 / fair share` compares the time of a transaction with 16 times the median of one writer alone, measured
      before and after.
    - `p99 / mean` compares it with the mean of the same round, so that other load does not count.

    - Groups: 8 processes commit to two of four tables at once, each pair of neighbours overlapping in one table.

    Against delta-rs both write the same one-row tables: a Parquet file and a commit each.
    """

    def peers(make: Callable[[str], Callable[[], object]]) -> float:
        with _contended() as directory:
            _, took = _transactions(make, directory, options.peer_writers, options.seconds)
            return len(took) / int(options.seconds)

    yield {
        "fairness": partial(_fairness, options.writers, options.seconds),
        "groups": partial(_groups, options.peer_writers, options.seconds),
        "one-row appends, ours (commits/s)": lambda: peers(_append_rows),
        "one-row appends, delta-rs (commits/s)": lambda: peers(_append_rows_by_peer),
    }


@contextmanager
def _contended() -> Iterator[str]:
    import deltalake
    import pyarrow

    with tempfile.TemporaryDirectory() as name:
        with refimpl.open(name, create=True) as warehouse:
            columns = {"id": "long"}
            warehouse.create_table("contended", columns, commit_mode=CommitMode.INLINE, policy=ON_REQUEST)
        deltalake.DeltaTable.create(str(Path(name) / "peer"), pyarrow.schema([("id", pyarrow.int64())]))
        yield name


def _fairness(writers: int, seconds: float) -> dict[str, float]:
    with _contended() as directory:
        _, alone = _transactions(_append_actions, directory, 1, seconds / 4)
        counts, took = _transactions(_append_actions, directory, writers, seconds)
        alone += _transactions(_append_actions, directory, 1, seconds / 4)[1]
    p99 = sorted(took)[int(len(took) * 0.99)]
    return {
        "transactions of all writers (commits/s)": len(took) / seconds,
        "slowest / fastest": min(counts) / max(counts),
        "p99 / fair share": p99 / (writers * statistics.median(alone)),
        "p99 / mean of the round": p99 / statistics.mean(took),
    }


def _groups(writers: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        with refimpl.open(name, create=True) as warehouse:
            for number in range(GROUPED):
                create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name=f"t{number}")
        clients: list[tuple[object, ...]] = [
            (partial(_commit_groups, number), name, seconds) for number in range(writers)
        ]
        counts = [len(took) for took in measure.at_once(_writer, clients)]
    return {
        "groups of all writers (commits/s)": sum(counts) / seconds,
        "groups, slowest / fastest": min(counts) / max(counts),
    }


def _commit_groups(number: int, directory: str) -> Callable[[], object]:
    """Transactions of one add action for each of two tables, in the order that the writer's number says."""
    warehouse = refimpl.open(directory, create=False)
    names = [f"t{number % GROUPED}", f"t{(number + 1) % GROUPED}"]

    def commit() -> None:
        with warehouse.transaction(*names) as group:
            for name in names:
                transaction = group.table(name).transaction(operation="WRITE")
                transaction.add(addition(stats=STATISTICS))
                transaction.commit()

    return commit


def _append_actions(directory: str) -> Callable[[], object]:
    """One transaction with one add action and no data file."""
    handle = refimpl.open(directory, create=False).table("contended")

    def append() -> object:
        transaction = handle.transaction(operation="WRITE")
        transaction.add(addition(stats=STATISTICS))
        return transaction.commit()

    return append


def _append_rows(directory: str) -> Callable[[], object]:
    """One row appended by the plain Python client."""
    import pyarrow

    handle = refimpl.open(directory, create=False).table("contended")
    row = pyarrow.table({"id": pyarrow.array([1], pyarrow.int64())})
    return lambda: handle.append(row)


def _append_rows_by_peer(directory: str) -> Callable[[], object]:
    """The same row appended by delta-rs, with more retries than it needs."""
    import deltalake
    import pyarrow

    row = pyarrow.table({"id": pyarrow.array([1], pyarrow.int64())})
    properties = deltalake.CommitProperties(max_commit_retries=10_000)
    return lambda: deltalake.write_deltalake(directory + "/peer", row, mode="append", commit_properties=properties)


def _writer(
    connection: Connection, make: Callable[[str], Callable[[], object]], directory: str, seconds: float
) -> None:
    write = make(directory)
    write()  # imports, connections and the first snapshot are not measured
    measure.wait_for_others(connection)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        write()
        took.append(time.perf_counter() - start)
    connection.send(took)


def _transactions(
    make: Callable[[str], Callable[[], object]], directory: str, writers: int, seconds: float
) -> tuple[list[int], list[float]]:
    """The number of transactions of each writer, and the seconds of all of them. Raises if one fails."""
    measured = measure.at_once(_writer, [(make, directory, seconds)] * writers)
    return [len(took) for took in measured], [duration for took in measured for duration in took]


# Long histories

UNBACKFILLED = 9
"""The number of newest commits that the owner still stores, in every history."""

START_UP = """
import sys, time
import refimpl.warehouse
start = time.process_time()
warehouse = refimpl.open(sys.argv[1], create=False)
latest = warehouse.owner.resolve("history").commits.latest_ratified_version
print((time.process_time() - start) * 1000, latest)
"""
LENGTHS: Sequence[tuple[str, int | None]] = (("10", 10), ("1,000", 1000), ("100,000", 100_000), ("the most", None))


@contextmanager
def history(options: Options) -> Iterator[Works]:
    """`get_commits` and the owner's start-up, against the length of a table's history.

    Neither may depend on the length. The histories are written into the ledger in bulk: a million single commits would
    take ten minutes and leave the same rows.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        calls: dict[str, Callable[[], object]] = {}
        works: dict[str, Work] = {}
        for label, given in LENGTHS:
            length = given or options.longest
            directory = Path(name) / label
            table_id = _long_history(directory, length)
            owner = stack.enter_context(refimpl.open(directory, create=False)).owner

            def ask(owner: Any = owner, table_id: str = table_id) -> None:
                assert len(owner.get_commits(table_id).commits) == UNBACKFILLED

            calls[label] = ask
            works[f"start-up after {label} commits (ms)"] = partial(_start_up, directory, length)
        works["get_commits"] = lambda: {
            f"get_commits after {label} commits (us)": wall * 1e6
            for label, (wall, _) in measure.in_turns(options.calls, calls).items()
        }
        yield works


def _long_history(directory: Path, commits: int) -> str:
    """Create a warehouse with a table of so many ratified commits; return the table's id."""
    measure.progress(f"building a history of {commits} commits")
    warehouse = refimpl.open(directory, create=True)
    table_id = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name="history").table_id
    content = append(START + 1, stats=STATISTICS)
    digest = hashlib.sha256(content).digest()
    log = LogStore(warehouse.owner.resolve(table_id).location, warehouse.environment)
    newest_published = commits - UNBACKFILLED - 1
    if newest_published:
        log.put_if_absent(log_path.commit(newest_published), content)  # without it in the log, every call would list it
    warehouse.close()
    database = ledger.connect(directory / OWNER_FOLDER / ledger.FILE_NAME)

    def row(v: int) -> tuple[object, ...]:
        stored = (v, None) if v <= newest_published else (None, content)
        return (1, v, new_attempt(), "inline", digest, len(content), v + 1, v, *stored)

    with database:
        database.executemany("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", map(row, range(1, commits)))
        database.execute("UPDATE tables SET backfilled = ?", (newest_published,))
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    database.close()
    return table_id


def _start_up(directory: Path, commits: int) -> float:
    """The processor time, in ms, to open the owner and resolve the table, in a new process, after the imports."""
    done = subprocess.run([sys.executable, "-c", START_UP, str(directory)], capture_output=True, text=True, check=True)
    took, latest = done.stdout.split()
    assert int(latest) == commits - 1
    return float(took)
