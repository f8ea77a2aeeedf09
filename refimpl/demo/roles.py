"""What the demonstration's processes do. Each reports events, pairs of a kind and facts, and waits for messages."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import refimpl
from refimpl.client.create import Creation
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.commits import Outcome, Proposal, Ratified
from refimpl.protocol.errors import NameTakenError
from refimpl.protocol.log_path import Version
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from refimpl.spark import DeltaConnection

FLIGHTS, MONTH, BACKFILL_EVERY = "flights", "month", 5
PROPOSING, RATIFIED = "proposing", "ratified"
"""Where a writer pauses: its staged file is durable, but not proposed; its commit is ratified, but not answered."""


def pause(warehouse: Warehouse, connection: Connection, holds: set[str]) -> None:
    """Report each of the `holds` that a commit of this process reaches, and wait there for a message or SIGKILL."""
    commit = warehouse.owner.commit

    def report(kind: str, facts: dict[str, Any]) -> None:
        if kind in holds:
            holds.discard(kind)
            connection.send((kind, facts))
            connection.recv()

    def observed(table_id: str, version: Version, proposal: Proposal) -> Outcome:
        facts = {"version": version, "attempt": proposal.attempt, "file": getattr(proposal, "file_name", None)}
        report(PROPOSING, facts)
        outcome = commit(table_id, version, proposal)
        if isinstance(outcome, Ratified):
            report(RATIFIED, facts)
        return outcome

    warehouse.owner.commit = observed  # type: ignore[method-assign]


def create(connection: Connection, directory: Path, file: str) -> None:
    """Race for the table's name with a version 0 in a folder of its own."""
    from pyarrow import parquet

    with refimpl.open(directory) as warehouse:
        policy = MaintenancePolicy(backfill_every=BACKFILL_EVERY)
        place, schema = (warehouse.owner, warehouse.environment, FLIGHTS), parquet.read_schema(file)
        creation = Creation.begin(*place, schema, partition_columns=[MONTH], policy=policy)
        connection.send(("ready", {}))
        connection.recv()
        try:
            won, table_id = True, creation.finish().table_id
        except NameTakenError as error:
            won, table_id = False, error.facts["winner"].table_id
        connection.send(("finished", {"won": won, "table_id": table_id}))


def ingest(connection: Connection, directory: Path) -> None:
    """Append the files through Spark as they arrive with their `holds`, one commit for each; end at None."""
    holds: set[str] = set()
    with refimpl.open(directory) as warehouse:
        pause(warehouse, connection, holds)
        delta = _spark(warehouse)
        connection.send(("idle", {}))
        while (message := connection.recv()) is not None:
            month, file, wanted = message
            holds |= wanted
            written = delta.write(delta.spark.read.parquet(file)).mode("append").saveAsTable(FLIGHTS)
            assert written is not None
            connection.send(("idle", {"version": written.version, "month": month, "rows": written.rows}))
        delta.spark.stop()


def _spark(warehouse: Warehouse) -> DeltaConnection:
    """Spark with one core, because several processes run at once; a quick start matters more than optimized code."""
    from refimpl.spark import connect, local_session

    java, settings = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m", {"spark.sql.session.timeZone": "UTC"}
    return connect(local_session(cores=1, memory="768m", java_options=java, settings=settings), warehouse)


def watch(connection: Connection, directory: Path) -> None:
    """Refresh, and read the rows of each new version, until a message arrives; then read once more."""
    seen: list[dict[str, Any]] = []
    last = False
    with refimpl.open(directory) as warehouse:
        table = warehouse.table(FLIGHTS)
        while not last:
            last = connection.poll(0.05)  # the writers need the processors
            snapshot = table.snapshot()
            if not seen or snapshot.version != seen[-1]["version"]:
                another = next(name for name in snapshot.schema.names if name != MONTH)  # a column of the files
                values = snapshot.to_arrow(columns=[MONTH, another])[MONTH].value_counts().to_pylist()
                months = {value["values"]: value["counts"] for value in values}
                seen.append({"version": snapshot.version, "timestamp": snapshot.timestamp, "months": months})
    connection.send(("watched", {"seen": seen}))


def read_back(connection: Connection, directory: Path) -> None:
    """Let Spark compute the totals of each month from the newest version."""
    from pyspark.sql import functions

    with refimpl.open(directory) as warehouse:
        delta = _spark(warehouse)
        columns = connection.recv()
        sums = [functions.sum(column).alias(f"{column}_sum") for column in columns]
        count = functions.count(functions.lit(1)).alias("count_all")
        rows = delta.read.table(FLIGHTS).groupBy(MONTH).agg(count, *sums).toArrow().to_pylist()
        version = warehouse.table(FLIGHTS).snapshot().version
        connection.send(("totals", {"version": version, "months": rows}))
        delta.spark.stop()
