"""The processes that read: one all the time and without Spark, one at the end with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import refimpl
from refimpl.demo.tasks import ReadBack, Watch

if TYPE_CHECKING:
    from pyspark.sql import Column

    from refimpl.client.snapshot import Snapshot

PAUSE_SECONDS = 0.05
"""Between two looks: the writers need the processors more."""


def watch(task: Watch, tell: Callable[..., None], word_came: Callable[[], bool]) -> None:
    """Refresh, and where there is a new version read it whole, until the word comes; then once more."""
    with refimpl.open(task.warehouse) as warehouse:
        table = warehouse.table(task.table)
        seen = _Seen(task=task)
        tell("ready")
        last = False
        while not last:
            last = word_came()
            snapshot = table.snapshot()
            seen.looks += 1
            if snapshot.version != seen.version:
                seen.examine(snapshot)
                tell("saw", version=snapshot.version, parts=len(seen.parts), rows=sum(seen.parts.values()))
            time.sleep(PAUSE_SECONDS)
        tell("watched", looks=seen.looks, versions=seen.versions, last=seen.version, faults=seen.faults)


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What the reader has seen, and what was wrong with it."""

    task: Watch
    version: int = -1
    timestamp: int = -1
    parts: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    versions: int = 0
    faults: list[str] = field(default_factory=list)

    def examine(self, snapshot: Snapshot) -> None:
        """Whole parts only, one for each version, never fewer than before."""
        from pyarrow import string

        column = self.task.partition_column
        another = next(name for name in snapshot.schema.names if name != column)  # one that is in the files
        values = snapshot.to_arrow(columns=[column, another])[column].cast(string())
        counted = {str(item["values"]): item["counts"] for item in values.value_counts().to_pylist()}
        timestamp = snapshot.in_commit_timestamp or 0
        where = f"version {snapshot.version}"
        if snapshot.version < self.version:
            self.faults.append(f"{where} came after version {self.version}")
        if timestamp <= self.timestamp:
            self.faults.append(f"the in-commit timestamp {timestamp} of {where} is not after {self.timestamp}")
        if len(counted) != snapshot.version:
            self.faults.append(f"{where} holds {len(counted)} parts, but each version adds one")
        self.faults += [f"{where} has lost part {part}" for part in self.parts if part not in counted]
        self.faults += [
            f"{where} holds {rows} rows of part {part}, which has {self.task.rows.get(part)}"
            for part, rows in counted.items()
            if rows != self.task.rows.get(part)
        ]
        self.version, self.timestamp, self.parts = snapshot.version, timestamp, counted
        self.versions += 1


def read_back(task: ReadBack, tell: Callable[..., None], wait: Callable[[], str]) -> None:
    """Totals of each part, by Spark, from the newest version; and the rows of an earlier version."""
    from pyspark.sql import functions

    import refimpl.spark
    from refimpl.demo.ingesting import session
    from refimpl.spark.frames import quoted

    spark = session("read back")
    with refimpl.open(task.warehouse) as warehouse:
        delta = refimpl.spark.connect(spark, warehouse)
        tell("ready")
        wait()
        latest = warehouse.table(task.table).snapshot().version
        totals = (
            delta.read.table(task.table)
            .groupBy(functions.col(quoted(task.partition_column)).cast("string").alias("part"))
            .agg(*_aggregates(task))
        )
        parts = {row["part"]: row.asDict(recursive=True) for row in totals.collect()}
        tell("totals", version=latest, parts=parts)
        earlier = delta.read.option("versionAsOf", task.earlier_version).table(task.table)
        tell("earlier", version=task.earlier_version, rows=earlier.count())
    spark.stop()


def _aggregates(task: ReadBack) -> list[Column]:
    from pyspark.sql import functions

    from refimpl.spark.frames import quoted

    found = [functions.count(functions.lit(1)).alias("rows")]
    for name, function, columns in (("counts", functions.count, task.counted), ("sums", functions.sum, task.summed)):
        if columns:
            found.append(functions.struct(*(function(quoted(column)).alias(column) for column in columns)).alias(name))
    return found
