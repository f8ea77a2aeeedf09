"""Writes through Spark against plain `df.write.parquet` of the same rows, both made durable.

    python -m spec_tests.benchmarks.spark_write [--rows 10000000] [--rounds 5] [--json]

Plain: Spark's own writer, then an fsync of every file and folder that it made. Ours: `saveAsTable`, from the frame to
the ratified version. An append of few rows is measured in two ways: as a job, and with the rows on the driver. Ratios
are plain / ours: above 1, ours is faster.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import refimpl
from refimpl.spark import DeltaConnection, connect, local_session
from spec_tests.benchmarks import measure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 20
CORES = os.cpu_count() or 1


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Rows of a long, a double, a string and a date. They are generated during the write, so that no reading
    is measured.
    """
    return spark.range(0, count, numPartitions=CORES).selectExpr(
        "id",
        "rand(1) * 1000 as value",
        "concat('name-', id % 1000000) as name",
        "date_add(date'2020-01-01', cast(id % 365 as int)) as day",
    )


def partitioned_rows(spark: SparkSession, count: int) -> DataFrame:
    return rows(spark, count).selectExpr("*", f"cast(id % {PARTITIONS} as int) as bucket")


def sync_tree(root: Path) -> None:
    """Sync everything below a directory, and the directory's own entry."""
    for path in (*root.rglob("*"), root, root.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


class Bench:
    """Each write goes to a new place, which is removed after the clock has stopped."""

    def __init__(self, delta: DeltaConnection, scratch: Path, count: int) -> None:
        self.delta = delta
        self.scratch = scratch
        self.flat = rows(delta.spark, count)
        self.parted = partitioned_rows(delta.spark, count)

    def plain(self, frame: DataFrame, *columns: str) -> float:
        location = self.scratch / uuid.uuid4().hex

        def write() -> None:
            frame.write.partitionBy(*columns).parquet(str(location))
            sync_tree(location)

        return self._seconds(write, location)

    def ours(self, frame: DataFrame, *columns: str) -> float:
        name = f"t{uuid.uuid4().hex}"

        def write() -> None:
            self.delta.write(frame).partitionBy(*columns).saveAsTable(name)

        seconds = self._seconds(write, None)
        made = self.delta.tables.required_warehouse().owner.resolve(name)
        self.delta.tables.required_warehouse().owner.drop_table(made.table_id)
        shutil.rmtree(made.location)
        return seconds

    def _seconds(self, write: Callable[[], object], location: Path | None) -> float:
        os.sync()
        start = time.perf_counter()
        write()
        seconds = time.perf_counter() - start
        if location is not None:
            shutil.rmtree(location)
        return seconds

    def small(self, *, on_driver: bool) -> float:
        """Append 100 rows: rows that are on the driver, or the same rows through a job."""
        spark = self.delta.spark
        frame = spark.range(0, 100, numPartitions=1).selectExpr("id", "cast(id as double) as value")
        frame = spark.createDataFrame(frame.toArrow()) if on_driver else frame
        return self._seconds(lambda: self.delta.write(frame).mode("append").saveAsTable("small"), None)


def main() -> int:
    options = measure.arguments("Spark writes against df.write.parquet", rows=10_000_000, rounds=5)
    spark = local_session(cores=CORES, memory="2g")
    with tempfile.TemporaryDirectory() as name, refimpl.open(Path(name) / "warehouse", create=True) as warehouse:
        delta = connect(spark, warehouse)
        warm = Bench(delta, Path(name), max(1, options.rows // 10))
        bench = Bench(delta, Path(name), options.rows)

        def works(b: Bench) -> dict[str, Callable[[], float]]:
            return {
                "plain": lambda: b.plain(b.flat),
                "ours": lambda: b.ours(b.flat),
                "plain, parted": lambda: b.plain(b.parted, "bucket"),
                "ours, parted": lambda: b.ours(b.parted, "bucket"),
                "small, job": lambda: b.small(on_driver=False),
                "small, driver": lambda: b.small(on_driver=True),
            }

        for _ in range(2):
            for work in works(warm).values():
                work()
        figures = measure.interleaved(options.rounds, works(bench))
    spark.stop()
    report = measure.Report(f"Spark writes of {options.rows:,} rows, {CORES} cores, durable on both sides")
    report.add_all(figures, "s")
    label = f"{PARTITIONS} partitions: plain / ours"
    report.add_ratio(label, figures["plain, parted"], figures["ours, parted"], "", at_least=1.0)
    report.add_ratio("unpartitioned: plain / ours", figures["plain"], figures["ours"], "", at_least=0.6)
    report.add_ratio("100 rows: a job / on the driver", figures["small, job"], figures["small, driver"], "")
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
