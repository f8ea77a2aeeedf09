"""A soak test: many processes change the rows of one table, some are killed, and at the end a replay checks the log.

    python -m spec_tests.processes.soak --minutes 20 --seed 1 --spark 2
    python -m spec_tests.processes.soak --minutes 1 --spark 0 --json

Plain writers (in the warehouse, and through a server), Spark drivers and maintenance work on one table: append, DELETE,
UPDATE, MERGE, OPTIMIZE, VACUUM, checkpoints. A follower reads the change data feed, and with Spark a stream copies the
feed to another table. Every few seconds, a process (or the server) is killed with SIGKILL and started again.

Each operation is a function on rows, and its commit contains the number of the operation. At the end, the soak reads
the log as JSON, and applies the operation of each version to a dictionary. The rows must equal those of our snapshot,
of the follower, and of delta-rs. Every acknowledged operation must be in the log, at the version of its answer. No
operation may be there twice, and no rejected operation may be there.

Exit status: 0 no operation was lost, repeated or reordered; 1 a violation; 2 usage.
"""

import argparse
import contextlib
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

import refimpl
from refimpl.client.data_maintenance import optimize, vacuum
from refimpl.client.ownership import hand_back
from refimpl.client.table import Table
from refimpl.commit_owner import Maintenance, MaintenancePolicy
from refimpl.errors import CERTAINLY_NOT_COMMITTED, MaintenanceRefusedError, OutcomeUnknown, OwnerUnavailableError
from refimpl.log_path import LOG_FOLDER
from spec_tests.support.other_readers import by_delta_rs

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
PROGRESS_SECONDS: Final = 10
FOLLOWED: Final = "followed.json"
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
    """Records each operation before it is sent, and the answer afterwards. SIGKILL loses no record."""

    def __init__(self, directory: Path, number: int) -> None:
        self._file = (directory / f"{number}.jsonl").open("ab", buffering=0)
        self._stream = directory / STREAM
        self._random = random.Random(number)
        self._number = number * OPERATIONS_OF_A_PROCESS

    def note(self, what: str, **facts: Any) -> None:
        self._file.write(msgspec.json.encode(Line(what=what, **facts)) + b"\n")

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

    def follow(self, table: Table, file: Path) -> None:
        """Apply the changes since the last call, and save the result: after a crash, a follower continues from it."""
        newest = table.snapshot().version
        if newest == self.version:
            return
        changes = table.changes(self.version + 1, newest).read_all()
        self.fold(changes.rename_columns({"_change_type": "change", "_commit_version": "version"}))
        self.version = newest
        saved = file.with_suffix(".new")
        saved.write_bytes(msgspec.json.encode(self))
        saved.replace(file)

    def fold(self, changes: pa.Table) -> None:
        """Apply changes. Raises `AssertionError` for a change that contradicts earlier changes."""
        rank = {"delete": 0, "update_preimage": 0, "insert": 1, "update_postimage": 1}
        for change in sorted(changes.to_pylist(), key=lambda row: (row["version"], rank[row["change"]])):
            if rank[change["change"]] == 0:
                assert self.rows.pop(change["id"], None) == change["value"], change
            else:
                assert change["id"] not in self.rows, change
                self.rows[change["id"]] = change["value"]


def work(role: str, address: str, number: int, directory: Path) -> None:
    """Run one process until SIGTERM."""
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    recorder = Recorder(directory, number)
    try:
        step = _steps(role, address, directory, recorder)
        signal.signal(signal.SIGTERM, stop)
        while running:
            step()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        recorder.note("bug", text=f"{role}: {''.join(traceback.format_exception(error))}")


def _found(address: str) -> Table:
    """The table. Waits for the server, which may have been killed and may be starting again."""
    while True:
        with contextlib.suppress(OwnerUnavailableError):
            return refimpl.open(address).table(TABLE)
        time.sleep(0.2)


def _steps(role: str, address: str, directory: Path, recorder: Recorder) -> Callable[[], None]:
    if role == "spark":
        return partial(recorder.step, spark(address))
    if role == "stream":
        return copy_changes(address, directory)
    table = _found(address)
    if role == "plain":
        return partial(recorder.step, plain(table))
    if role == "maintain":
        return partial(recorder.maintain, table)
    file = directory / FOLLOWED
    followed = msgspec.json.decode(file.read_bytes(), type=Followed) if file.exists() else Followed()

    def follow() -> None:
        followed.follow(table, file)
        time.sleep(0.2)

    return follow


# Starting, killing and checking the processes


class Summary(msgspec.Struct, kw_only=True):
    seed: int
    seconds: float = 0
    versions: int = 0
    rows: int = 0
    killed: Counter[str] = msgspec.field(default_factory=Counter)
    answers: Counter[str] = msgspec.field(default_factory=Counter)
    violations: list[str] = []


class Soak:
    """The processes on one warehouse."""

    def __init__(self, directory: Path, seed: int, drivers: int) -> None:
        self._records = directory / "records"
        self._records.mkdir()
        self._warehouse = directory / "warehouse"
        self._random = random.Random(seed)
        self._drivers = drivers
        self._started = 0
        self._server: subprocess.Popen[str] | None = None
        self._port = 0
        self._url = ""
        self._running: dict[int, tuple[str, str, subprocess.Popen[bytes]]] = {}
        self.summary = Summary(seed=seed)

    def run(self, seconds: float, report: Callable[[Summary], None]) -> Summary:
        with refimpl.open(self._warehouse, create=True) as warehouse:
            warehouse.create_table(
                TABLE, SCHEMA, partition_columns=["part"], properties=PROPERTIES, policy=EVERYTHING_ALLOWED
            )
            started = time.monotonic()
            try:
                self._serve()
                local = str(self._warehouse)
                drivers = [("spark", self._url if number % 2 else local) for number in range(self._drivers)]
                writers = [("plain", local), ("plain", local), ("plain", self._url)]
                others = [("maintain", local), ("follow", local)]
                streams = [("stream", local)] if drivers else []
                if streams:
                    (self._records / STREAM).mkdir()
                for index, (role, reference) in enumerate([*writers, *others, *drivers, *streams]):
                    self._start(index, role, reference)
                while time.monotonic() - started < seconds:
                    time.sleep(self._random.uniform(0.5, 5))
                    self._kill()
                    self.summary.seconds = round(time.monotonic() - started, 1)
                    self.summary.versions = warehouse.table(TABLE).snapshot().version
                    report(self.summary)
            finally:
                self._stop()
            self._judge(warehouse)
        return self.summary

    def _serve(self) -> None:
        command = [sys.executable, "-c", "import sys; from refimpl.cli import main; sys.exit(main())", "serve"]
        options = ["-w", str(self._warehouse), "--port", str(self._port), "--log-level", "error"]
        self._server = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        self._url = json.loads(self._server.stdout.readline())["url"]
        self._port = int(self._url.rsplit(":", 1)[1].split("/")[0].split("?")[0])

    def _start(self, index: int, role: str, reference: str) -> None:
        self._started += 1
        command = [sys.executable, "-m", "spec_tests.processes.soak", "--worker", role, reference, str(self._started)]
        process = subprocess.Popen([*command, str(self._records)], stderr=subprocess.DEVNULL)
        self._running[index] = (role, reference, process)

    def _kill(self) -> None:
        """Kill one process, and start it again. Seldom a Spark driver, because its start takes long."""
        chosen = self._random.choice([*self._running, "server"])
        if chosen == "server":
            assert self._server is not None
            self._server.kill()
            self._server.wait()
            self.summary.killed["server"] += 1
            self._serve()
            return
        assert isinstance(chosen, int)
        role, reference, process = self._running[chosen]
        if role in ("spark", "stream") and self._random.random() < 0.8:
            return
        process.kill()
        process.wait()
        self.summary.killed[role] += 1
        self._start(chosen, role, reference)

    def _stop(self) -> None:
        for _, _, process in self._running.values():
            process.terminate()
        for role, _, process in self._running.values():
            try:
                process.wait(timeout=SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                self.summary.violations.append(f"a {role} process did not stop within {SECONDS_TO_STOP} s")
                process.kill()
                process.wait()
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    # The verdict

    def _judge(self, warehouse: refimpl.Warehouse) -> None:
        try:
            if self._drivers:
                copy_changes(str(self._warehouse), self._records)()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            self.summary.violations.append(f"the stream: {error}")
        table = hand_back(warehouse.table(TABLE))
        lines = [
            msgspec.json.decode(line, type=Line)
            for file in sorted(self._records.glob("*.jsonl"))
            for line in file.read_bytes().splitlines()
        ]
        self.summary.answers = Counter(
            line.text if line.what == "did" else line.what for line in lines if line.what != "sent"
        )
        violations = self.summary.violations
        violations += [line.text for line in lines if line.what == "bug"]
        sent = {line.number: line.operation for line in lines if line.operation is not None}
        rows: Rows = {}
        versions: dict[int, int] = {}
        for file in sorted((table.location / LOG_FOLDER).glob(f"{'[0-9]' * 20}.json")):
            version, content = int(file.stem), file.read_bytes()
            info = next(line["commitInfo"] for line in map(json.loads, content.splitlines()) if "commitInfo" in line)
            numbers = {int(number) for number in _NUMBER.findall(content)}
            for number in numbers:
                operation = sent.get(number)
                if number in versions or operation is None:
                    violations.append(
                        f"version {version} has operation {number}, which was {versions.get(number, 'never')}"
                    )
                    continue
                versions[number] = version
                operation.apply(rows)
            if len(numbers) != 1 and (numbers or info["operation"] in ("WRITE", "DELETE", "UPDATE", "MERGE")):
                violations.append(f"version {version} ({info['operation']}) has the operations {sorted(numbers)}")
        for line in lines:
            expected = {"landed": line.version, "nothing": None, "refused": None}
            if line.number > 0 and line.what in expected and versions.get(line.number) != expected[line.what]:
                violations.append(
                    f"operation {line.number} was answered {line}, but is version {versions.get(line.number)}"
                )
        self._compare(warehouse, table, rows)

    def _compare(self, warehouse: refimpl.Warehouse, table: Table, rows: Rows) -> None:
        wanted = sorted(rows.items())
        file = self._records / FOLLOWED
        followed, streamed = msgspec.json.decode(file.read_bytes(), type=Followed), Followed()
        try:
            followed.follow(table, file)
            if self._drivers:
                streamed.fold(warehouse.table(COPY).snapshot().to_arrow())
        except AssertionError as error:
            self.summary.violations.append(f"the changes contradict each other: {error}")
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


def main(arguments: list[str] | None = None) -> int:
    description, _, epilog = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="soak", description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20, help="duration in minutes (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the operations and kills (default: 1)")
    parser.add_argument("--spark", type=int, default=2, metavar="N", help="number of Spark drivers (default: 2)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        role, address, number, records = options.worker
        work(role, address, int(number), Path(records))
        return 0
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    last = 0.0

    def report(summary: Summary) -> None:
        nonlocal last
        if summary.seconds - last > PROGRESS_SECONDS:
            last = summary.seconds
            print(f"{last / 60:.1f} min: {summary.versions} versions", file=sys.stderr, flush=True)

    summary = Soak(directory, options.seed, options.spark).run(options.minutes * 60, report)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
    else:
        print(f"{summary.seconds / 60:.1f} min: {summary.versions} versions, {summary.rows} rows at the end")
        for name, counts in (("killed", summary.killed), ("answers", summary.answers)):
            print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
        print(f"violations: {len(summary.violations)}")
        for text in summary.violations:
            print(text)
    if summary.violations:
        print(f"kept: {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
