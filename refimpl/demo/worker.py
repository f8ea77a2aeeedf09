"""One process of the demonstration, `python -m refimpl.demo.worker TASK`: creates, ingests, or reads.

`processes` describes its commands and events.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import refimpl
from refimpl.client.create import Creation
from refimpl.client.table import Table
from refimpl.commit_owner import MaintenancePolicy, NameTaken, Registered
from refimpl.commits import COMMIT_MODE_OF, Conflict, DirectProposal, Outcome, Proposal, Ratified, StagedProposal
from refimpl.demo.processes import Create, Event, Hold, Ingest, ReadBack, Watch
from refimpl.demo.source import NULL
from refimpl.environment import Environment
from refimpl.errors import DeltaError, NameTakenError
from refimpl.log_path import Version
from refimpl.owner.local import LocalOwner
from refimpl.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from refimpl.client.schema import Struct

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
"""For short jobs, a quick start matters more than optimized code."""
PAUSE_SECONDS: Final = 0.05
"""Pause between two reads of the watcher: the writers need the processors."""


class Channel:
    """The connection to the process that started this one, over standard input and output."""

    def __init__(self) -> None:
        # Output of Spark, Java and libraries goes to the standard error: the channel carries events only.
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._commands: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Read the file descriptor directly: a thread that waits in `sys.stdin` disturbs the interpreter's shutdown."""
        pending = b""
        while received := os.read(0, 65536):
            *commands, pending = (pending + received).split(b"\n")
            for command in commands:
                self._commands.put(command.decode())
        os._exit(1)  # the parent process is gone: exit at once, as if killed

    def report(self, kind: str, **facts: Any) -> None:
        os.write(self._out, msgspec.json.encode(Event(kind=kind, facts=facts)) + b"\n")

    def wait(self) -> str:
        """Wait for the next command."""
        return self._commands.get()

    def has_command(self) -> bool:
        return not self._commands.empty()


class ObservedOwner(LocalOwner):
    """The owner of a process of the demonstration: it reports its proposals, and pauses at the `holds`."""

    def __init__(self, warehouse: str, environment: Environment, channel: Channel, holds: Sequence[Hold] = ()) -> None:
        super().__init__(Path(warehouse), environment)
        self._channel = channel
        self._holds = list(holds)
        self.parts_done = 0

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        facts: dict[str, Any] = {
            "version": version,
            "attempt": proposal.attempt,
            "commit_mode": COMMIT_MODE_OF[type(proposal)].value,
            "staged_file": proposal.file_name if isinstance(proposal, StagedProposal) else None,
        }
        self._channel.report("proposing", **facts)
        self._hold(facts, ratified=False)
        outcome = super().commit(table_id, version, proposal)
        if isinstance(outcome, Ratified):
            self._hold(facts, ratified=True)
        elif isinstance(outcome, Conflict):
            self._channel.report("lost", **facts, latest=outcome.latest_ratified_version)
        return outcome

    def _hold(self, facts: dict[str, Any], *, ratified: bool) -> None:
        """Pause if a hold requires it. The outcome is not reported: the parent process must ask the owner."""
        hold = Hold(part=self.parts_done, ratified=ratified)
        if hold in self._holds:
            self._holds.remove(hold)
            self._channel.report("holding", **facts)
            self._channel.wait()

    def register_table(
        self, table_id: str, proposal: DirectProposal, *, properties: Mapping[str, str] | None = None
    ) -> Registered | NameTaken | Outcome:
        self._channel.report("proposing", version=0, attempt=proposal.attempt, commit_mode="direct", staged_file=None)
        return super().register_table(table_id, proposal, properties=properties)


def create(task: Create, channel: Channel) -> None:
    """Race to create the table. Then append the id of the winner's table, as this process sees it, to the journal.

    The command arrives after the first phase. By then every process has its own folder for its version 0, and they race
    for the name.
    """
    import pyarrow as pa

    environment = Environment()
    owner = ObservedOwner(task.warehouse, environment, channel)
    journal = Table.resolve(task.journal, owner, environment)
    journal.snapshot()  # read it now, so that the append after the race is quick
    creation = Creation.begin(
        owner,
        environment,
        task.table,
        task.schema_string,
        partition_columns=[task.partition_column],
        feature=CATALOG_MANAGED,
        commit_mode=CommitMode.STAGED,
        policy=MaintenancePolicy(backfill_every=task.backfill_every),
    )
    channel.report("ready")
    channel.wait()
    started = time.perf_counter()
    try:
        won, table_id = True, creation.finish().table_id
    except NameTakenError as error:
        won, table_id = False, error.facts["winner"].table_id
    milliseconds = round((time.perf_counter() - started) * 1000)
    channel.report("created" if won else "beaten", table_id=table_id, milliseconds=milliseconds)
    row = {"process": os.getpid(), "won": won, "table_id": table_id, "milliseconds": milliseconds}
    committed = journal.append(pa.Table.from_pylist([row]))
    assert committed is not None
    channel.report("noted", version=committed.version)
    owner.close()


def ingest(task: Ingest, channel: Channel) -> None:
    """Append each part as one commit."""
    from pyspark.sql.functions import col

    import refimpl.spark
    from refimpl.spark.frames import quoted

    spark = _session("ingest")
    environment = Environment()
    owner = ObservedOwner(task.warehouse, environment, channel, task.holds)
    warehouse = Warehouse(Path(task.warehouse), owner, environment)
    delta = refimpl.spark.connect(spark, warehouse)
    part = col(quoted(task.partition_column)).cast("string")
    file, parts = _rows(spark, task, warehouse.table(task.table).snapshot().schema), task.parts
    while parts:
        rows = file.where(part.isin(parts)).persist()
        for value in parts:
            channel.report("writing", part=value)
            written = delta.write(rows.where(part == value)).mode("append").saveAsTable(task.table)
            assert written is not None
            owner.parts_done += 1
            channel.report("committed", part=value, version=written.version, rows=written.rows)
        rows.unpersist()
        channel.report("idle")
        parts = msgspec.json.decode(channel.wait(), type=list[str])
    warehouse.close()
    spark.stop()


def _session(name: str) -> SparkSession:
    """A session with one core, because several processes run at the same time."""
    from refimpl.spark.session import local_session

    return local_session(
        app_name=name, cores=1, memory="768m", java_options=JAVA_OPTIONS, settings={"spark.sql.session.timeZone": "UTC"}
    )


def _rows(spark: SparkSession, task: Ingest, schema: Struct) -> DataFrame:
    """The rows of the file, with the table's columns. Spark reports a CSV file with another header."""
    from refimpl.spark.frames import spark_schema

    if not task.is_csv:
        return spark.read.parquet(task.path)
    reader = spark.read.schema(spark_schema(schema)).option("header", True).option("enforceSchema", False)
    return reader.option("nullValue", NULL).option("mode", "FAILFAST").csv(task.path)


def watch(task: Watch, channel: Channel) -> None:
    """Refresh, and read every row of each new version, until a command arrives; then read once more."""
    from pyarrow import string

    reads = versions = 0
    version = timestamp = -1
    parts: dict[str, int] = {}
    faults: list[str] = []
    with refimpl.open(task.warehouse) as warehouse:
        table = warehouse.table(task.table)
        channel.report("ready")
        last = False
        while not last:
            last = channel.has_command()
            snapshot = table.snapshot()
            reads += 1
            if snapshot.version != version:
                column = task.partition_column
                another = next(name for name in snapshot.schema.names if name != column)  # a column of the files
                values = snapshot.to_arrow(columns=[column, another])[column].cast(string())
                before = version, timestamp, parts
                parts = {str(item["values"]): item["counts"] for item in values.value_counts().to_pylist()}
                version, timestamp = snapshot.version, snapshot.in_commit_timestamp or 0
                faults += _faults(task, before, (version, timestamp, parts))
                versions += 1
                channel.report("saw", version=version, parts=len(parts), rows=sum(parts.values()))
            time.sleep(PAUSE_SECONDS)
    channel.report("watched", reads=reads, versions=versions, last=version, faults=faults)


_Seen = tuple[int, int, dict[str, int]]
"""Version, in-commit timestamp, and the rows of each part."""


def _faults(task: Watch, before: _Seen, seen: _Seen) -> Iterator[str]:
    """The faults of a snapshot. It must hold whole parts, one for each version, and no fewer than before."""
    version, timestamp, parts = seen
    if version < before[0]:
        yield f"version {version} came after version {before[0]}"
    if timestamp <= before[1]:
        yield f"the in-commit timestamp {timestamp} of version {version} is not after {before[1]}"
    if len(parts) != version:
        yield f"version {version} holds {len(parts)} parts, but each version adds one"
    for part in before[2].keys() - parts.keys():
        yield f"version {version} has lost part {part}"
    for part, rows in parts.items():
        if rows != task.rows.get(part):
            yield f"version {version} holds {rows} rows of part {part}, but the input has {task.rows.get(part)}"


def read_back(task: ReadBack, channel: Channel) -> None:
    """Let Spark compute the totals of each part from the newest version, and count the rows of an earlier version."""
    from pyspark.sql import functions

    import refimpl.spark
    from refimpl.spark.frames import quoted

    spark = _session("read back")
    with refimpl.open(task.warehouse) as warehouse:
        delta = refimpl.spark.connect(spark, warehouse)
        channel.report("ready")
        channel.wait()
        latest = warehouse.table(task.table).snapshot().version
        totals = (
            delta.read.table(task.table)
            .groupBy(functions.col(quoted(task.partition_column)).cast("string").alias("part"))
            .agg(*_aggregates(task))
        )
        parts = {row["part"]: row.asDict(recursive=True) for row in totals.collect()}
        channel.report("totals", version=latest, parts=parts)
        earlier = delta.read.option("versionAsOf", task.earlier_version).table(task.table)
        channel.report("earlier", version=task.earlier_version, rows=earlier.count())
    spark.stop()


def _aggregates(task: ReadBack) -> list[Column]:
    from pyspark.sql import functions

    from refimpl.spark.frames import quoted

    aggregates = [functions.count(functions.lit(1)).alias("rows")]
    for name, function, columns in (("counts", functions.count, task.counted), ("sums", functions.sum, task.summed)):
        if columns:
            aggregates.append(
                functions.struct(*(function(quoted(column)).alias(column) for column in columns)).alias(name)
            )
    return aggregates


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Create | Ingest | Watch | ReadBack)
    channel = Channel()
    try:
        match task:
            case Create():
                create(task, channel)
            case Ingest():
                ingest(task, channel)
            case Watch():
                watch(task, channel)
            case ReadBack():
                read_back(task, channel)
    except DeltaError as error:
        channel.report("failed", error=f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
