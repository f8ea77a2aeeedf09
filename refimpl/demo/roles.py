"""What the demonstration's processes do. Each reports events, pairs of a kind and facts, and waits for messages."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import refimpl
from refimpl.client.create import Creation
from refimpl.client.table import Table
from refimpl.demo.source import ROWS, Source
from refimpl.protocol.commit_owner import MaintenancePolicy, NameTaken, Registered
from refimpl.protocol.commits import Conflict, DirectProposal, Outcome, Proposal, Ratified
from refimpl.protocol.errors import NameTakenError
from refimpl.protocol.log_path import Version
from refimpl.protocol.table_feature import CATALOG_MANAGED, CommitMode
from refimpl.schema.schema import from_arrow
from refimpl.storage.environment import Environment
from refimpl.warehouse import HostOwner, Warehouse

if TYPE_CHECKING:
    from refimpl.spark import DeltaConnection

JOURNAL, BACKFILL_EVERY = "race", 5
PROPOSING, RATIFIED = "proposing", "ratified"
"""Where a writer pauses: its staged file is durable, but not proposed; its commit is ratified, but not answered."""


class ObservedOwner(HostOwner):
    """Reports each proposal and each lost race. Pauses at the `holds`, until a message or SIGKILL arrives."""

    def __init__(self, directory: Path, connection: Connection) -> None:
        super().__init__(directory, Environment())
        self._connection = connection
        self.holds: set[str] = set()

    def commit(self, table_id: str, version: Version, proposal: Proposal) -> Outcome:
        facts = {"version": version, "attempt": proposal.attempt, "file": getattr(proposal, "file_name", None)}
        self._report(PROPOSING, facts)
        outcome = super().commit(table_id, version, proposal)
        if isinstance(outcome, Ratified):
            self._report(RATIFIED, facts)
        elif isinstance(outcome, Conflict):
            self._report("lost", facts | {"latest": outcome.latest_ratified_version})
        return outcome

    def _report(self, kind: str, facts: dict[str, Any]) -> None:
        self._connection.send((kind, facts))
        if kind in self.holds:
            self.holds.discard(kind)
            self._connection.recv()

    def register_table(
        self, table_id: str, proposal: DirectProposal, *, properties: Mapping[str, str] | None = None
    ) -> Registered | NameTaken | Outcome:
        self._report(PROPOSING, {"version": 0, "attempt": proposal.attempt})
        return super().register_table(table_id, proposal, properties=properties)


def create(connection: Connection, directory: Path, name: str, source: Source) -> None:
    """Race for the name with a version 0 in a folder of its own. Then append the outcome to the journal."""
    import pyarrow as pa

    environment, policy = Environment(), MaintenancePolicy(backfill_every=BACKFILL_EVERY)
    shape: dict[str, Any] = {"feature": CATALOG_MANAGED, "commit_mode": CommitMode.STAGED, "policy": policy}
    shape["partition_columns"] = [source.partition_column]
    with closing(ObservedOwner(directory, connection)) as owner:
        journal = Table.resolve(JOURNAL, owner, environment)
        journal.snapshot()  # read it now, so that the append after the race is quick
        creation = Creation.begin(owner, environment, name, from_arrow(source.schema).to_json(), **shape)
        connection.send(("ready", {}))
        connection.recv()
        started = time.perf_counter()
        try:
            won, table_id = True, creation.finish().table_id
        except NameTakenError as error:
            won, table_id = False, error.facts["winner"].table_id
        facts = {"won": won, "table_id": table_id, "milliseconds": round((time.perf_counter() - started) * 1000)}
        connection.send(("finished", facts))
        journal.append(pa.Table.from_pylist([{"process": os.getpid(), **facts}]))


def ingest(connection: Connection, directory: Path, name: str, source: Source) -> None:
    """Append the parts through Spark as they arrive with their `holds`, one commit for each; end at None."""
    owner = ObservedOwner(directory, connection)
    with Warehouse(directory, owner, Environment()) as warehouse:
        delta = _spark(warehouse)
        connection.send(("idle", {}))
        while (message := connection.recv()) is not None:
            part, owner.holds = message
            written = delta.write(delta.spark.read.parquet(source.files[part])).mode("append").saveAsTable(name)
            assert written is not None
            connection.send(("idle", {"version": written.version, "part": part, "rows": written.rows}))
        delta.spark.stop()


def _spark(warehouse: Warehouse) -> DeltaConnection:
    """Spark with one core, because several processes run at once; a quick start matters more than optimized code."""
    from refimpl.spark import connect, local_session

    java, settings = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m", {"spark.sql.session.timeZone": "UTC"}
    return connect(local_session(cores=1, memory="768m", java_options=java, settings=settings), warehouse)


def watch(connection: Connection, directory: Path, name: str, source: Source) -> None:
    """Refresh, and read the rows of each new version, until a message arrives; then read once more."""
    import pyarrow as pa

    reads, version, last, column = 0, -1, False, source.partition_column
    with refimpl.open(directory) as warehouse:
        table = warehouse.table(name)
        while not last:
            last = connection.poll(0.05)  # the writers need the processors
            snapshot, reads = table.snapshot(), reads + 1
            if snapshot.version != version:
                version = snapshot.version
                another = next(other for other in snapshot.schema.names if other != column)  # a column of the files
                values = snapshot.to_arrow(columns=[column, another])[column].cast(pa.string()).value_counts()
                parts = {str(value["values"]): value["counts"] for value in values.to_pylist()}
                facts = {"version": version, "timestamp": snapshot.in_commit_timestamp or 0, "parts": parts}
                connection.send(("saw", facts))
    connection.send(("watched", {"reads": reads}))


def read_back(connection: Connection, directory: Path, name: str, source: Source) -> None:
    """Let Spark compute the totals of each part from the newest version, and count the rows of an earlier version."""
    from pyspark.sql import functions

    from refimpl.spark.frames import quoted

    with refimpl.open(directory) as warehouse:
        delta = _spark(warehouse)
        earlier = connection.recv()
        part = functions.col(quoted(source.partition_column)).cast("string")
        totals = [getattr(functions, function)(quoted(column)) for column, function in source.aggregates]
        grouped = delta.read.table(name).groupBy(part).agg(functions.count(functions.lit(1)), *totals)
        rows = grouped.toDF("part", ROWS, *map("_".join, source.aggregates)).collect()
        facts = {"version": warehouse.table(name).snapshot().version, "parts": {row[0]: row.asDict() for row in rows}}
        count = delta.read.option("versionAsOf", earlier).table(name).count()
        connection.send(("totals", facts | {"earlier_rows": count}))
        delta.spark.stop()
