"""The client in one process: snapshots, conflict checks, row-level changes, and the ingestion of files."""

import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typer.testing import CliRunner

import refimpl
from refimpl.cli.application import application
from refimpl.client import checkpoint_writing
from refimpl.client.conflicts import ReadBasis, ReadPredicate, Reads, TransactionSummary, Winner, check
from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.protocol import actions, log_path
from refimpl.protocol.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove
from refimpl.protocol.commits import InlineProposal, Ratified
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.rows import predicate
from refimpl.schema import schema
from refimpl.schema.features import IsolationLevel
from refimpl.storage.environment import Environment
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.measure import Options, Works
from spec_tests.support.builders import START, STATISTICS, addition, append, create, new_attempt

# Snapshots


@contextmanager
def snapshot(options: Options) -> Iterator[Works]:
    """Loading a snapshot from JSON commits against delta-rs, refreshing one, and checkpoints of many files.

    - Load: a filesystem table of many one-add commits without a checkpoint, by a new handle each time, until the list
      of its files is complete.
    - Refresh: an owned table with a published history. Another client adds a commit; the figure is the time in which an
      existing snapshot becomes the newest one.
    - Checkpoint written: by a handle that has the snapshot, as the handle of delta-rs has, which syncs nothing.
    - Checkpoint loaded: the snapshot of a new handle, against reading the Parquet file into Arrow; and the same with
      all files listed, against making Python objects of the file's rows.
    """
    with tempfile.TemporaryDirectory() as name:
        location = Path(name) / "filesystem"
        _filesystem_table(location, options.commits)
        loads: dict[str, Callable[[], Sized]] = {
            "load, ours (s)": lambda: Table.by_path(location).snapshot().files,
            "load, delta-rs (s)": lambda: deltalake.DeltaTable(str(location)).file_uris(),
        }
        assert [len(load()) for load in loads.values()] == [options.commits - 1] * 2
        measure.progress("building two owned tables")
        lengths = {"100": 100, "many": options.commits}
        refreshes = {
            f"refresh after {label} commits (ms)": _refresh_of(Path(name) / label, length)
            for label, length in lengths.items()
        }
        measure.progress(f"building a table of {options.files} files")
        yield {
            **{name: measure.timed(partial(lambda load: len(load()), load)) for name, load in loads.items()},
            **{
                name: partial(lambda refresh: statistics.median(refresh() for _ in range(options.refreshes)), refresh)
                for name, refresh in refreshes.items()
            },
            **_checkpoints(Path(name) / "checkpointed", options.files),
        }


def _filesystem_table(location: Path, commits: int, files: int = 1) -> None:
    """A table with so many commits; each commit after the first adds so many files."""
    log = location / log_path.LOG_FOLDER
    log.mkdir(parents=True)
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    schema_string = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    first = [protocol, Metadata(id=new_attempt(), schema_string=schema_string)]
    for version in range(commits):
        operation = "WRITE" if version else "CREATE TABLE"
        info = CommitInfo({"timestamp": 1_700_000_000_000 + version, "operation": operation})
        rest = [addition(stats=STATISTICS) for _ in range(files)] if version else first
        (log / log_path.commit(version)).write_bytes(actions.encode([info, *rest]))


def _refresh_of(directory: Path, commits: int) -> Callable[[], float]:
    """Commits to an owned table, and returns the ms until a handle has the new version."""
    warehouse = refimpl.open(directory, create=True)
    table_id = create(warehouse, CATALOG_MANAGED, CommitMode.INLINE, name="history").table_id
    handle = refimpl.open(directory).table("history")

    def land(version: int) -> None:
        proposal = InlineProposal(attempt=new_attempt(), content=append(START + version, stats=STATISTICS))
        assert isinstance(warehouse.owner.commit(table_id, version, proposal), Ratified)

    for version in range(1, commits):
        land(version)
    warehouse.owner.backfill_to_version(table_id)
    newest = handle.snapshot().version

    def refresh() -> float:
        nonlocal newest
        newest += 1
        land(newest)
        start = time.perf_counter()
        assert handle.snapshot().version == newest
        return (time.perf_counter() - start) * 1000

    return refresh


def _checkpoints(location: Path, files: int) -> dict[str, Callable[[], float]]:
    """Works on a filesystem table whose files were added in ten commits."""
    _filesystem_table(location, 11, files // 10)
    log = location / log_path.LOG_FOLDER
    known, peer = Table.by_path(location).snapshot(), deltalake.DeltaTable(str(location))

    def forget() -> None:
        """Delete the checkpoint: delta-rs writes no second checkpoint of a version."""
        for name in (log_path.classic_checkpoint(10), log_path.LAST_CHECKPOINT):
            (log / name).unlink(missing_ok=True)

    def load() -> list[Add]:
        loaded = Table.by_path(location).snapshot().files
        assert len(loaded) == len(known.files)
        return loaded.values()  # type: ignore[return-value]

    def read() -> pa.Table:
        return pq.read_table(log / log_path.classic_checkpoint(10))

    return {
        "checkpoint, written by delta-rs (s)": lambda: measure.seconds(peer.create_checkpoint, before=forget),
        "checkpoint, written by ours (s)": measure.timed(lambda: checkpoint_writing.write(known)),
        "checkpoint, loaded by ours (s)": measure.timed(load),
        "checkpoint, all files listed by ours (s)": measure.timed(lambda: list(load())),
        "checkpoint, read by pyarrow (s)": measure.timed(read),
        "checkpoint, made objects by pyarrow (s)": measure.timed(lambda: read().to_pylist()),
    }


# Conflict checks

PARTITIONS = 100
SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"part","type":"integer","nullable":true,"metadata":{}}]}'
)
BASIS = ReadBasis(
    protocol=Protocol(min_reader_version=1, min_writer_version=2),
    metadata=Metadata(id="0", schema_string=SCHEMA, partition_columns=("part",)),
)


@contextmanager
def conflicts(options: Options) -> Iterator[Works]:
    """The conflict check of a transaction that lost to 1,000 commits of 100 files.

    The transaction read one partition of 100 by a condition, and removes files of it.

    - `other partitions`: every winner added files that the transaction did not read. Each of the 100,000 files is
      compared with the condition.
    - `removals`: every winner also removed files, none of which the transaction read or removes.
    - `blind appends`: the transaction may ignore the winners at WriteSerializable.

    The actions are decoded before the clock starts. The figures are milliseconds of processor time for all winners.
    """
    test = predicate.file_test("part = 0 AND id > 5", schema.parse(SCHEMA), ("part",))
    removed = [_remove(0, f"read-{number}") for number in range(10)]
    reads = Reads(
        predicates=(ReadPredicate(text=test.text, may_match=test.may_match_partition),),
        files=frozenset(action.key for action in removed),
    )
    summary = TransactionSummary.of(removed, reads, IsolationLevel.WRITE_SERIALIZABLE)
    yield {
        f"{name} (ms)": partial(_milliseconds, summary, _winners(options.winners, options.files, **kind))
        for name, kind in {
            "other partitions": {"blind": False, "removals": False},
            "other partitions and removals": {"blind": False, "removals": True},
            "blind appends": {"blind": True, "removals": False},
        }.items()
    }


def _add(part: int, name: str) -> Add:
    return Add(
        path=f"part={part}/{name}.parquet",
        partition_values={"part": str(part)},
        size=1,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":1}',
    )


def _remove(part: int, name: str) -> Remove:
    return Remove(path=f"part={part}/{name}.parquet", deletion_timestamp=1, data_change=True)


def _winners(commits: int, files: int, *, blind: bool, removals: bool) -> list[list[Action]]:
    made = []
    for version in range(1, commits + 1):
        info = CommitInfo({"inCommitTimestamp": version, "operation": "WRITE", "isBlindAppend": blind})
        content: list[Action] = [info]
        for number in range(files):
            part = 1 + (version + number) % (PARTITIONS - 1)
            content.append((_remove if removals and number % 2 == 0 else _add)(part, f"{version}-{number}"))
        made.append(content)
    return made


def _milliseconds(summary: TransactionSummary, commits: Sequence[Sequence[Action]]) -> float:
    start = time.process_time()
    basis = BASIS
    for version, content in enumerate(commits, 1):
        basis = check(summary, Winner(version=version, actions=content), basis)
    return (time.process_time() - start) * 1000


# Row-level changes

OPERATIONS = ("DELETE", "UPDATE", "MERGE")
ALL_FILES = {"DELETE": "DELETE in all files", "UPDATE": "UPDATE in all files", "MERGE": "MERGE of 1% of the rows"}
EVERYWHERE = "month = 3"
"""A condition that an eighth of the rows of each file fulfils."""
COLUMNS = pa.schema([("id", pa.int64()), ("month", pa.int32()), ("price", pa.float64()), ("name", pa.string())])
UPDATE = {"price": "price + 1"}
MATCH = "target.id = source.id"


class ChangedTable:
    """A filesystem table of sorted rows in many files. Each operation changes half of the rows of 1% of the files, in
    a new copy of the table."""

    def __init__(self, folder: Path, files: int, row_count: int) -> None:
        per_file = row_count // files
        touched = max(1, files // 100)
        first = files // 2 * per_file
        self._base, self._copy = folder / "base", folder / "copy"
        self.where = f"id >= {first} AND id < {first + touched * per_file} AND month < 4"
        self.news = _rows(first, touched * per_file).filter(pc.less(pc.field("month"), 4))
        self.spread = _rows_of(pa.array(range(0, row_count, 100), pa.int64()))
        everywhere = (row_count + 4) // 8
        self._left = {
            "DELETE": row_count - self.news.num_rows,
            ALL_FILES["DELETE"]: row_count - everywhere,
            "read one row": 1,
        }
        for operation in ("UPDATE", "MERGE", ALL_FILES["UPDATE"], ALL_FILES["MERGE"], "read all rows"):
            self._left[operation] = row_count
        measure.progress("building the table")
        made = create_filesystem_table(self._base, Environment(), COLUMNS)
        for number in range(files):
            made.append(_rows(number * per_file, per_file))

    def measured(self, act: Callable[[Path], object], operation: str, *, linked: bool = False) -> tuple[float, float]:
        """Seconds, and seconds of processor time. `linked`: the copy is of links, and may have no log of the result."""
        shutil.copytree(self._base, self._copy, copy_function=os.link if linked else shutil.copy2)
        os.sync()
        start, processor = time.perf_counter(), time.process_time()
        result = act(self._copy)
        took = time.perf_counter() - start, time.process_time() - processor
        assert not isinstance(result, pa.Table) or result.num_rows == self._left[operation]
        newest = Table.by_path(self._copy).snapshot()
        if newest.version > Table.by_path(self._base).snapshot().version:
            assert newest.to_arrow(columns=["id"]).num_rows == self._left[operation]
        shutil.rmtree(self._copy)
        return took


def _rows(first: int, count: int) -> pa.Table:
    return _rows_of(pa.arange(first, first + count))


def _rows_of(ids: pa.Array) -> pa.Table:
    columns = [ids, pc.cast(pc.bit_wise_and(ids, 7), pa.int32()), pc.divide(pc.cast(ids, pa.float64()), 7.0)]
    return pa.table([*columns, pc.binary_join_element_wise("name", pc.cast(ids, pa.string()), "-")], schema=COLUMNS)


@contextmanager
def row_changes(options: Options) -> Iterator[Works]:
    """DELETE, UPDATE and MERGE by copy on write, against delta-rs.

    The table is a filesystem table of sorted rows in many files. Three operations change half of the rows of 1% of the
    files, three change rows in all files, and two read. Every round works on a new copy through a new handle, so the
    snapshot, the search and the commit are included. Our client makes its files and its commit durable; delta-rs syncs
    nothing. Peak memory is that of a new process, with its imports.
    """
    with tempfile.TemporaryDirectory() as name:
        changed = ChangedTable(Path(name), options.files, options.rows)

        def merged(table: Any, rows: pa.Table) -> object:
            merge = table.merge(rows, MATCH, source_alias="source", target_alias="target")
            return merge.when_matched_update_all().when_not_matched_insert_all().execute()

        def our_act(operation: str, location: Path) -> object:
            return ACTS[operation](Table.by_path(location))

        def peer_act(operation: str, location: Path) -> object:
            found = deltalake.DeltaTable(str(location))
            match operation:
                case "UPDATE":
                    return found.update(updates=UPDATE, predicate=changed.where)
                case "UPDATE in all files":
                    return found.update(updates=UPDATE, predicate=EVERYWHERE)
                case "read all rows":
                    return found.to_pyarrow_table()
                case "read one row":
                    return found.to_pyarrow_table(filters=[("id", "=", 5)])
                case _:
                    return ACTS[operation](found)

        ACTS: dict[str, Callable[[Any], object]] = {  # noqa: N806 - a constant of this table
            "DELETE": lambda table: table.delete(changed.where),
            "UPDATE": lambda table: table.update(UPDATE, changed.where),
            "MERGE": lambda table: merged(table, changed.news),
            ALL_FILES["DELETE"]: lambda table: table.delete(EVERYWHERE),
            ALL_FILES["UPDATE"]: lambda table: table.update(UPDATE, EVERYWHERE),
            ALL_FILES["MERGE"]: lambda table: merged(table, changed.spread),
            "read all rows": lambda table: table.snapshot().to_arrow(),
            "read one row": lambda table: table.snapshot().to_arrow(where="id = 5"),
        }

        def work(who: str, act: Callable[[str, Path], object], operation: str) -> dict[str, float]:
            took, processor = changed.measured(partial(act, operation), operation)
            return {f"{operation}, {who} (s)": took, f"{operation}, {who}, processor time (s)": processor}

        works: dict[str, Callable[[], Any]] = {
            f"{operation}, {who}": partial(work, who, act, operation)
            for operation in ACTS
            for who, act in {"ours": our_act, "delta-rs": peer_act}.items()
        }
        opened = {
            "ours": "from refimpl.client.table import Table; table = Table.by_path",
            "delta-rs": "from deltalake import DeltaTable; table = DeltaTable",
        }
        for who, opening in opened.items():
            code = f"import re, sys; {opening}(sys.argv[1]); table.delete({EVERYWHERE!r})"
            # not `ru_maxrss`, which starts with that of the parent
            code += "; print(int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]) / 1024)"

            def memory(code: str = code) -> float:
                peaks: list[float] = []

                def child(location: Path) -> None:
                    words = [sys.executable, "-c", code, str(location)]
                    peaks.append(float(subprocess.run(words, check=True, capture_output=True, text=True).stdout))

                changed.measured(child, ALL_FILES["DELETE"])
                return peaks[0]

            works |= {f"DELETE in all files, {who}, peak memory (MB)": memory}
        yield works


# Ingestion


@contextmanager
def ingest(options: Options) -> Iterator[Works]:
    """Ingestion of CSV files in this process, against DuckDB's COPY to Parquet.

    DuckDB reads the same file and writes a Parquet file, which it does not sync; both run in this process. Our part is
    the command without the start of Python: it checks each byte, writes a data file with statistics, makes it durable,
    and commits. The last figure is the processor time of the whole command for two rows, with the start of Python.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        big, two = root / "big.csv", root / "two.csv"
        big.write_text(_csv(options.rows))
        two.write_text(_csv(2))
        refimpl.open(root / "lake", create=True).close()
        warehouse, database = ["-w", str(root / "lake")], duckdb.connect()

        def call(*words: str) -> None:
            done = CliRunner().invoke(application, [*words, *warehouse])
            assert done.exit_code == 0, done.output

        def command() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start = "from refimpl.cli import main; main()"
            words = [sys.executable, "-c", start, "ingest", "orders", str(two), *warehouse]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

        copy = f"COPY (SELECT * FROM read_csv('{big}')) TO '{root / 'big.parquet'}'"
        call("create", "orders", "--columns", "id BIGINT, month INT, price DOUBLE, name STRING, day DATE")
        yield {
            "ours (s)": measure.timed(lambda: call("ingest", "orders", str(big))),
            "DuckDB (s)": measure.timed(lambda: database.execute(copy)),
            "two rows: processor time of the command (s)": command,
        }


def _csv(count: int) -> str:
    draw = random.Random(1)
    lines = (
        f"{number},{number % 12},{draw.random() * 1000:.4f},customer {draw.randrange(10**9):09d},"
        f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}\n"
        for number in range(count)
    )
    return "id,month,price,name,day\n" + "".join(lines)
