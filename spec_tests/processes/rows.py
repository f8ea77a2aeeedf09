"""A storm on rows: processes change the rows of one table, some are killed, and at the end a replay checks the log.

Plain writers (in the warehouse, and through a server), Spark drivers and maintenance work on one table: append, DELETE,
UPDATE, MERGE, OPTIMIZE, VACUUM, checkpoints. A follower reads the change data feed, and with Spark a stream copies the
feed to another table. Every few seconds, a process (or the server) is killed with SIGKILL and started again.

Each operation is a function on rows, and its commit contains the number of the operation. At the end, the run reads
the log as JSON, and applies the operation of each version to a dictionary. The rows must equal those of our snapshot,
of the follower, and of delta-rs. Every acknowledged operation must be in the log, at the version of its answer. No
operation may be there twice, and no rejected operation may be there.
"""

import contextlib
import json
import random
import re
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

import refimpl
from refimpl.client.data_maintenance import optimize, vacuum
from refimpl.client.ownership import hand_back
from refimpl.client.table import Table
from refimpl.demo.workers import Ended, Worker, WorkerPool
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.protocol.errors import (
    CERTAINLY_NOT_COMMITTED,
    MaintenanceRefusedError,
    OutcomeUnknown,
    OwnerUnavailableError,
    TableNotFoundError,
)
from refimpl.protocol.log_path import LOG_FOLDER
from spec_tests.processes.table_record import count

TABLE, COPY = "sales", "copy"
SCHEMA: Final = pa.schema([(name, pa.int64()) for name in ("id", "value", "part", "slot")])
PARTITIONS, SLOTS = 4, 31
"""The `part` and `slot` of a row are remainders of its id."""
MERGED_IDS: Final = 300
"""MERGE uses ids below this number; an append adds ids above it."""
PROPERTIES: Final = {
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": "7",
    "delta.deletedFileRetentionDuration": "interval 5 minutes",
}
OPERATIONS_OF_A_PROCESS: Final = 1_000_000
SECONDS_TO_STOP: Final = 120
SECONDS_OF_LAG: Final = 60
STREAM: Final = "stream"
BUSY: Final = "failed to connect back"
"""Spark's error if a task could not start within 10 s: the last copy is then tried again, up to `TRIES` times."""
TRIES: Final = 5
EVERYTHING_ALLOWED: Final = MaintenancePolicy(allowed=frozenset(Maintenance))
OPERATIONS: Final = ("append", "append", "append", "delete", "update", "merge")
_NUMBER: Final = re.compile(rb"id <> -(\d+)")
"""Each operation has a number. This condition, which is true for every row, puts the number into the log."""

Rows = dict[int, int]
"""The value of each id."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A function on rows. `slot` and `ids` select the rows."""

    number: int
    kind: str
    slot: int
    ids: tuple[int, ...]
    value: int

    @classmethod
    def made(cls, number: int, randomness: random.Random) -> "Operation":
        kind = randomness.choice(OPERATIONS)
        fresh = MERGED_IDS + 10 * number
        ids = range(fresh, fresh + 10) if kind == "append" else randomness.sample(range(MERGED_IDS), 8)
        slot = randomness.randrange(SLOTS)
        return cls(number=number, kind=kind, slot=slot, ids=tuple(ids), value=randomness.randrange(1_000))

    @property
    def name(self) -> str:
        return f"id <> -{self.number}"

    @property
    def condition(self) -> str:
        """Selects the rows of a DELETE or UPDATE."""
        return f"part = {self.slot % PARTITIONS} AND slot = {self.slot} AND {self.name}"

    @property
    def on(self) -> str:
        """Matches rows of the source and the target of a MERGE."""
        return f"target.id = source.id AND target.part = source.part AND target.{self.name}"

    @property
    def rows(self) -> pa.Table:
        """The rows of an append, or the source of a MERGE."""
        columns = {"id": self.ids, "value": [self.value] * len(self.ids)}
        divided = {
            "part": [row_id % PARTITIONS for row_id in self.ids],
            "slot": [row_id % SLOTS for row_id in self.ids],
        }
        return pa.table(columns | divided, SCHEMA)

    def apply(self, rows: Rows) -> None:
        """Apply the operation to the rows."""
        chosen = [row for row in rows if row % PARTITIONS == self.slot % PARTITIONS and row % SLOTS == self.slot]
        if self.kind == "delete":
            for row in chosen:
                del rows[row]
        elif self.kind == "update":
            rows |= {row: rows[row] + 1 for row in chosen}
        else:
            rows |= dict.fromkeys(self.ids, self.value)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a process."""

    what: str
    """sent, landed, nothing (no row matched), refused, unknown, did, bug"""
    number: int = -1
    operation: Operation | None = None
    version: int | None = None
    text: str = ""


# The processes


class Recorder:
    """Reports each operation before it is sent, and the answer afterwards. SIGKILL loses no report."""

    def __init__(self, connection: Connection, directory: Path, number: int) -> None:
        self._connection = connection
        self._stream = directory / STREAM
        self._random = random.Random(number)
        self._number = number * OPERATIONS_OF_A_PROCESS

    def note(self, what: str, **facts: Any) -> None:
        self._connection.send(Line(what=what, **facts))

    def step(self, run: Callable[[Operation], Any]) -> None:
        self._number += 1
        operation = Operation.made(self._number, self._random)
        self.note("sent", number=operation.number, operation=operation)
        with self._judging(operation.number):
            version = getattr(run(operation), "version", None)
            self.note("nothing" if version is None else "landed", number=operation.number, version=version)

    @contextlib.contextmanager
    def _judging(self, number: int) -> Iterator[None]:
        try:
            yield
        except OutcomeUnknown:
            self.note("unknown", number=number)
        except (*CERTAINLY_NOT_COMMITTED, MaintenanceRefusedError) as error:
            self.note("refused", number=number, text=type(error).__name__)
            if isinstance(error, OwnerUnavailableError):
                time.sleep(0.2)

    def maintain(self, table: Table) -> None:
        """Run OPTIMIZE and VACUUM; commits write the checkpoints."""
        with self._judging(-1):
            if self._random.random() < 0.5 or self._stream_lags():
                done = "optimize" if optimize(table).version is not None else "optimize of nothing"
            else:
                done = "vacuum" if vacuum(table, dry_run=False).files else "vacuum of nothing"
            self.note("did", text=done)
        time.sleep(0.2)

    def _stream_lags(self) -> bool:
        """Whether the stream is late. VACUUM would then delete files that the stream has not read, as the retention of
        the table permits. The folder of a stream exists before its first batch."""
        batches = list((self._stream / "commits").glob("[0-9]*"))
        newest = max((batch.stat().st_mtime for batch in batches), default=0)
        return self._stream.exists() and time.time() - newest > SECONDS_OF_LAG


def changed(table: Any, operation: Operation) -> Any:
    """The result of a DELETE or UPDATE."""
    if operation.kind == "delete":
        return table.delete(operation.condition)
    return table.update({"value": "value + 1"}, operation.condition)


def plain(table: Table) -> Callable[[Operation], Any]:
    """Operations of the plain client."""

    def run(operation: Operation) -> Any:
        if operation.kind == "append":
            return table.append(operation.rows, app=(operation.name, 0))
        if operation.kind != "merge":
            return changed(table, operation)
        merge = table.merge(operation.rows, on=operation.on)
        return merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return run


def spark(address: str) -> Callable[[Operation], Any]:
    """Operations of the pipeline on Spark."""
    from refimpl.spark import connect, local_session

    _found(address)
    delta = connect(local_session(cores=1), address)

    def run(operation: Operation) -> Any:
        table = delta.table(TABLE)
        frame = delta.spark.createDataFrame(operation.rows)
        if operation.kind == "append":
            options = {"txnAppId": operation.name, "txnVersion": 0}
            return delta.write(frame).mode("append").options(**options).saveAsTable(TABLE)
        if operation.kind != "merge":
            return changed(table, operation)
        return table.merge(frame, operation.on).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return run


def copy_changes(address: str, directory: Path) -> Callable[[], None]:
    """Streams the change data feed so far to another table, each row once."""
    from refimpl.spark import connect, local_session

    session = connect(local_session(cores=1), address).spark

    def run() -> None:
        changes = session.readStream.format("delta-owner").option("readChangeFeed", True).option("startingVersion", 1)
        columns = ("id", "value", "_change_type AS change", "_commit_version AS version")
        stream = changes.load(TABLE).selectExpr(*columns).writeStream.format("delta-owner")
        stream = stream.option("checkpointLocation", str(directory / STREAM)).trigger(availableNow=True)
        stream.start(COPY).awaitTermination()

    return run


class Followed(msgspec.Struct):
    """The rows after a version, computed from the change data feed."""

    version: int = 0
    rows: Rows = {}

    def follow(self, table: Table) -> bool:
        """Apply the changes since the last call; false if nothing changed."""
        newest = table.snapshot().version
        if newest == self.version:
            return False
        changes = table.changes(self.version + 1, newest).read_all()
        self.fold(changes.rename_columns({"_change_type": "change", "_commit_version": "version"}))
        self.version = newest
        return True

    def fold(self, changes: pa.Table) -> None:
        """Apply changes. Raises `AssertionError` for a change that contradicts earlier changes."""
        rank = {"delete": 0, "update_preimage": 0, "insert": 1, "update_postimage": 1}
        for change in sorted(changes.to_pylist(), key=lambda row: (row["version"], rank[row["change"]])):
            if rank[change["change"]] == 0:
                assert self.rows.pop(change["id"], None) == change["value"], change
            else:
                assert change["id"] not in self.rows, change
                self.rows[change["id"]] = change["value"]


def work(connection: Connection, role: str, *arguments: Any) -> None:
    """Run one process until a message arrives."""
    try:
        step = _steps(connection, role, *arguments)
        while not connection.poll():
            step()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        connection.send(Line(what="bug", text=f"{role}: {''.join(traceback.format_exception(error))}"))


def serve_warehouse(_: Connection, directory: Path, port: int) -> None:
    from refimpl.server.serving import Serving, serve

    serve(Serving(warehouse=directory, port=port, log_level="error"))


def _found(address: str) -> Table:
    """The table. Waits for the server, which may have been killed and may be starting again."""
    while True:
        with contextlib.suppress(OwnerUnavailableError):
            return refimpl.open(address).table(TABLE)
        time.sleep(0.2)


def _steps(
    connection: Connection, role: str, address: str, directory: Path, number: int, followed: Followed
) -> Callable[[], object]:
    if role == "stream":
        return copy_changes(address, directory)
    recorder = Recorder(connection, directory, number)
    if role == "spark":
        return partial(recorder.step, spark(address))
    table = _found(address)
    if role == "plain":
        return partial(recorder.step, plain(table))
    if role == "maintain":
        return partial(recorder.maintain, table)

    def follow() -> None:
        if followed.follow(table):
            connection.send(followed)
        time.sleep(0.2)

    return follow


# Starting, killing and checking the processes


class Summary(msgspec.Struct, kw_only=True):
    seed: int
    seconds: float = 0
    versions: int = 0
    rows: int = 0
    killed: dict[str, int] = {}
    answers: dict[str, int] = {}
    violations: list[str] = []

    def text(self) -> str:
        killed = sum(self.killed.values())
        return f"{self.versions} versions, {self.rows} rows, {killed} killed, {len(self.violations)} violations"


class RowsRun:
    """One run on a directory, for a number of seconds, with a number of Spark drivers."""

    def __init__(self, directory: Path, seed: int, drivers: int, report: Callable[[Summary], None]) -> None:
        self._directory = directory
        self._warehouse = directory / "warehouse"
        self._random = random.Random(seed)
        self._drivers = drivers
        self._report = report
        self._stopped = False
        self._started = 0
        self._pool = WorkerPool()
        self._running: list[tuple[str, str, Worker]] = []
        self._lines: list[Line] = []
        self._followed = Followed()
        self.summary = Summary(seed=seed)

    def stop(self, *_: object) -> None:
        """End after the next kill, and judge. Also a signal handler."""
        self._stopped = True

    def run(self, seconds: float) -> Summary:
        with refimpl.open(self._warehouse, create=True) as warehouse, self._pool:
            warehouse.create_table(
                TABLE, SCHEMA, partition_columns=["part"], properties=PROPERTIES, policy=EVERYTHING_ALLOWED
            )
            started = time.monotonic()
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            local, url = str(self._warehouse), f"http://127.0.0.1:{port}"
            roles = [("server", str(port)), ("plain", local), ("plain", local), ("plain", url)]
            roles += [("maintain", local), ("follow", local)]
            roles += [("spark", url if number % 2 else local) for number in range(self._drivers)]
            if self._drivers:
                (self._directory / STREAM).mkdir()
                roles.append(("stream", local))
            self._running = [(role, address, self._start(role, address)) for role, address in roles]
            while time.monotonic() - started < seconds and not self._stopped:
                self._collect(self._random.uniform(0.5, 5))
                self._kill()
                self.summary.seconds = round(time.monotonic() - started, 1)
                self.summary.versions = warehouse.table(TABLE).snapshot().version
                self._report(self.summary)
            self._end()
            self._judge(warehouse)
        return self.summary

    def _start(self, role: str, address: str) -> Worker:
        self._started += 1
        if role == "server":
            return self._pool.start(role, serve_warehouse, self._warehouse, int(address))
        return self._pool.start(role, work, role, address, self._directory, self._started, self._followed)

    def _kill(self) -> None:
        """Kill one process, and start it again. Seldom a Spark driver, because its start takes long."""
        index = self._random.randrange(len(self._running))
        role, address, worker = self._running[index]
        if role in ("spark", "stream") and self._random.random() < 0.8:
            return
        worker.kill()
        count(self.summary.killed, role)
        self._running[index] = role, address, self._start(role, address)

    def _collect(self, seconds: float) -> None:
        """Collect what the processes report during a time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for worker, message in self._pool.receive(left):
                if isinstance(message, Line):
                    self._lines.append(message)
                elif isinstance(message, Followed):
                    self._followed = message
                elif isinstance(message, Ended) and message.code != 0 and not worker.killed:
                    self.summary.violations.append(f"{worker.name} ended with code {message.code}: {message.error}")

    def _end(self) -> None:
        """End all processes, the server last, and collect what they reported, also those that were killed."""
        for role, _, worker in self._running:
            if role != "server":
                worker.send("end")
        deadline = time.monotonic() + SECONDS_TO_STOP
        while clients := [worker for worker in self._pool.running.values() if worker.name != "server"]:
            self._collect(0.2)
            if time.monotonic() > deadline:
                names = ", ".join(worker.name for worker in clients)
                self.summary.violations.append(f"{names} did not end within {SECONDS_TO_STOP} s")
                break
        for worker in self._pool.running.values():
            worker.kill()

    # The verdict

    def _judge(self, warehouse: refimpl.Warehouse) -> None:
        if self._drivers:
            self._copy_the_rest()
        table = hand_back(warehouse.table(TABLE))
        for line in self._lines:
            if line.what != "sent":
                count(self.summary.answers, line.text if line.what == "did" else line.what)
        rows, violations = replay(table.location / LOG_FOLDER, self._lines)
        self.summary.violations += violations
        self._compare(warehouse, table, rows)
        for text in self.summary.violations:
            print(text, file=sys.stderr)

    def _copy_the_rest(self) -> None:
        for tries_left in range(TRIES, 0, -1):
            try:
                copy_changes(str(self._warehouse), self._directory)()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                if BUSY in str(error) and tries_left > 1:
                    continue
                self.summary.violations.append(f"the stream: {error}")
            return

    def _compare(self, warehouse: refimpl.Warehouse, table: Table, rows: Rows) -> None:
        from spec_tests.support.other_readers import by_delta_rs  # no process needs it

        wanted = sorted(rows.items())
        followed, streamed = self._followed, Followed()
        try:
            followed.follow(table)
            if self._drivers:
                streamed.fold(warehouse.table(COPY).snapshot().to_arrow())
        except AssertionError as error:
            self.summary.violations.append(f"the changes contradict each other: {error}")
        except TableNotFoundError as error:
            self.summary.violations.append(f"the stream copied nothing: {error}")
        ours = table.snapshot().to_arrow()
        readers = {
            "our snapshot": sorted(zip(*(ours[name].to_pylist() for name in ("id", "value")), strict=True)),
            "the change data feed": sorted(followed.rows.items()),
            **({"the stream's table": sorted(streamed.rows.items())} if self._drivers else {}),
            "delta-rs": by_delta_rs(table.location, ("id", "value")),
        }
        for reader, read in readers.items():
            wrong = sorted(set(wanted) ^ set(read))
            if wanted != read:
                self.summary.violations.append(
                    f"{reader} has {len(read)} rows, the replay {len(wanted)}; {len(wrong)} differ, such as {wrong[:5]}"
                )
        self.summary.rows = len(rows)


def replay(log: Path, lines: Sequence[Line]) -> tuple[Rows, list[str]]:
    """The rows after the operations of the log's versions, and the violations of the processes' reports."""
    violations = [line.text for line in lines if line.what == "bug"]
    sent = {line.number: line.operation for line in lines if line.operation is not None}
    rows: Rows = {}
    versions: dict[int, int] = {}
    for file in sorted(log.glob(f"{'[0-9]' * 20}.json")):
        version, content = int(file.stem), file.read_bytes()
        info = next(line["commitInfo"] for line in map(json.loads, content.splitlines()) if "commitInfo" in line)
        numbers = {int(number) for number in _NUMBER.findall(content)}
        for number in numbers:
            operation, before = sent.get(number), versions.get(number, "never")
            if number in versions or operation is None:
                violations.append(f"version {version} has operation {number}, which was {before}")
                continue
            versions[number] = version
            operation.apply(rows)
        if len(numbers) != 1 and (numbers or info["operation"] in ("WRITE", "DELETE", "UPDATE", "MERGE")):
            violations.append(f"version {version} ({info['operation']}) has the operations {sorted(numbers)}")
    for line in lines:
        expected, found = {"landed": line.version, "nothing": None, "refused": None}, versions.get(line.number)
        if line.number > 0 and line.what in expected and found != expected[line.what]:
            violations.append(f"operation {line.number} was answered {line}, but is version {found}")
    return rows, violations
