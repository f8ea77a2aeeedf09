"""Reads through Spark against plain `spark.read.parquet` of the same files.

    python -m spec_tests.benchmarks.spark_read [--rows 10000000] [--rounds 7] [--json]

Both sides aggregate every column of every row. Plain Spark gets the folder. Ours goes from the table's name to its
snapshot, its files and the rows. Also measured are a query for one partition and, without a target, a table of many
small files: plain Spark lists one folder, ours passes every file name to Spark. Ratios are plain / ours: above 1, ours
is faster.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import refimpl
from refimpl.rows import data_files
from refimpl.spark import connect, local_session
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.spark_write import CORES, partitioned_rows, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from refimpl.warehouse import Warehouse

SMALL_FILES = 500


def aggregate(frame: "DataFrame") -> float:
    """The seconds to read every value of every row."""
    start = time.perf_counter()
    frame.selectExpr("sum(id)", "sum(value)", "max(name)", "max(day)", "count(*)").collect()
    return time.perf_counter() - start


def many_small_files(warehouse: "Warehouse") -> None:
    import pyarrow as pa

    days = pa.array([1] * 1000, pa.date32())
    batch = pa.table({"id": pa.array(range(1000)), "value": [0.5] * 1000, "name": ["n"] * 1000, "day": days})
    table = warehouse.create_table("small", batch.schema)
    transaction = table.transaction()
    layout = transaction.snapshot.layout
    for _ in range(SMALL_FILES):
        transaction.add(*data_files.DataFileWriter(layout).write_all([batch]))
    transaction.commit()


def main() -> int:
    options = measure.arguments("Spark reads against spark.read.parquet", rows=10_000_000, rounds=7)
    spark = local_session(cores=CORES, memory="2g")
    with tempfile.TemporaryDirectory() as name, refimpl.open(Path(name) / "warehouse", create=True) as warehouse:
        delta = connect(spark, warehouse)
        delta.write(rows(spark, options.rows)).saveAsTable("flat")
        delta.write(partitioned_rows(spark, options.rows)).partitionBy("bucket").saveAsTable("parted")
        many_small_files(warehouse)
        os.sync()

        def plain(table: str, condition: str = "true") -> float:
            start = time.perf_counter()
            frame = spark.read.parquet(str(delta.tables.by_name(table).location)).where(condition)
            return time.perf_counter() - start + aggregate(frame)

        def ours(table: str, condition: str = "true") -> float:
            start = time.perf_counter()
            frame = delta.read.where(condition).table(table)
            return time.perf_counter() - start + aggregate(frame)

        works: dict[str, Callable[[], float]] = {}
        for label, table, condition in (
            ("unpartitioned", "flat", "true"),
            ("20 partitions", "parted", "true"),
            ("one partition of 20", "parted", "bucket = 7"),
            (f"{SMALL_FILES} small files", "small", "true"),
        ):
            works[f"plain, {label}"] = partial(plain, table, condition)
            works[f"ours, {label}"] = partial(ours, table, condition)
        for _ in range(2):
            for work in works.values():
                work()
        figures = measure.interleaved(options.rounds, works)
    spark.stop()
    report = measure.Report(f"Spark reads of {options.rows:,} rows, {CORES} cores")
    report.add_all(figures, "s")
    for label in [label.removeprefix("plain, ") for label in works if label.startswith("plain")]:
        target = {} if "small" in label else {"at_least": 0.95}
        report.add_ratio(f"{label}: plain / ours", figures[f"plain, {label}"], figures[f"ours, {label}"], "", **target)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
