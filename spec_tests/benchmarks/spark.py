"""The pipeline on Spark against plain Spark: writes, reads, micro-batches, row-level changes, and Delta Spark."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import refimpl
from refimpl.rows import data_files
from refimpl.spark import DeltaConnection, connect, coordinator, local_session
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.client import MATCH, OPERATIONS, UPDATE, ChangedTable
from spec_tests.benchmarks.measure import Options, Work, Works

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from refimpl.warehouse import Warehouse

PARTITIONS: Final = 20
SMALL_FILES: Final = 500
CORES: Final = os.cpu_count() or 1


@contextmanager
def _warehouse(memory: str = "2g") -> Iterator[tuple[DeltaConnection, Warehouse, Path]]:
    """A session, connected to a new warehouse in a folder that the works may use."""
    spark = local_session(cores=CORES, memory=memory)
    with tempfile.TemporaryDirectory() as name, refimpl.open(Path(name) / "warehouse", create=True) as warehouse:
        yield connect(spark, warehouse), warehouse, Path(name)
        spark.stop()


def _rows(spark: SparkSession, count: int) -> DataFrame:
    """Rows of a long, a double, a string and a date. They are generated during the write: no reading is measured."""
    return spark.range(0, count, numPartitions=CORES).selectExpr(
        "id",
        "rand(1) * 1000 as value",
        "concat('name-', id % 1000000) as name",
        "date_add(date'2020-01-01', cast(id % 365 as int)) as day",
    )


def _parted(spark: SparkSession, count: int) -> DataFrame:
    return _rows(spark, count).selectExpr("*", f"cast(id % {PARTITIONS} as int) as bucket")


def _sync_tree(root: Path) -> None:
    """Sync everything below a directory, and the directory's own entry."""
    for path in (*root.rglob("*"), root, root.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _new_name() -> str:
    return f"t{uuid.uuid4().hex}"


@contextmanager
def spark_write(options: Options) -> Iterator[Works]:
    """Writes through Spark against plain `df.write.parquet` of the same rows, both made durable.

    Plain: Spark's own writer, then an fsync of every file and folder that it made. Ours: `saveAsTable`, from the frame
    to the ratified version. An append of few rows is measured in two ways: as a job, and with the rows on the driver.
    Ratios are plain / ours: above 1, ours is faster.
    """
    with _warehouse() as (delta, warehouse, scratch):

        def plain(frame: DataFrame, *columns: str) -> float:
            location = scratch / _new_name()

            def write() -> None:
                frame.write.partitionBy(*columns).parquet(str(location))
                _sync_tree(location)

            took = measure.seconds(write, before=os.sync)
            shutil.rmtree(location)
            return took

        def ours(frame: DataFrame, *columns: str) -> float:
            name = _new_name()
            took = measure.seconds(lambda: delta.write(frame).partitionBy(*columns).saveAsTable(name), before=os.sync)
            made = warehouse.owner.resolve(name)
            warehouse.owner.drop_table(made.table_id)
            shutil.rmtree(made.location)
            return took

        def small(*, on_driver: bool) -> float:
            frame = delta.spark.range(0, 100, numPartitions=1).selectExpr("id", "cast(id as double) as value")
            frame = delta.spark.createDataFrame(frame.toArrow()) if on_driver else frame
            return measure.seconds(lambda: delta.write(frame).mode("append").saveAsTable("small"), before=os.sync)

        def works(count: int) -> dict[str, Work]:
            flat, parted = _rows(delta.spark, count), _parted(delta.spark, count)
            return {
                "unpartitioned, plain (s)": lambda: plain(flat),
                "unpartitioned, ours (s)": lambda: ours(flat),
                "20 partitions, plain (s)": lambda: plain(parted, "bucket"),
                "20 partitions, ours (s)": lambda: ours(parted, "bucket"),
                "100 rows, by a job (s)": lambda: small(on_driver=False),
                "100 rows, on the driver (s)": lambda: small(on_driver=True),
            }

        measure.interleaved(2, works(max(1, options.rows // 10)))
        yield works(options.rows)


@contextmanager
def spark_read(options: Options) -> Iterator[Works]:
    """Reads through Spark against plain `spark.read.parquet` of the same files.

    Both sides aggregate every column of every row. Plain Spark gets the folder. Ours goes from the table's name to its
    snapshot, its files and the rows. So does the data source, through which SQL views read. Also measured are a query
    for one partition, and a table of many small files: plain Spark lists one folder, ours passes every file name to
    Spark. Ratios are plain / ours: above 1, ours is faster.
    """
    with _warehouse() as (delta, warehouse, _):
        delta.write(_rows(delta.spark, options.rows)).saveAsTable("flat")
        delta.write(_parted(delta.spark, options.rows)).partitionBy("bucket").saveAsTable("parted")
        _many_small_files(warehouse)
        os.sync()

        def plain(table: str, condition: str) -> DataFrame:
            return delta.spark.read.parquet(str(warehouse.table(table).location)).where(condition)

        def ours(table: str, condition: str) -> DataFrame:
            return delta.read.where(condition).table(table)

        def source(table: str, condition: str) -> DataFrame:
            return delta.spark.read.format("delta-owner").load(table).where(condition)

        def aggregated(read: Callable[[str, str], DataFrame], table: str, condition: str) -> None:
            read(table, condition).selectExpr("sum(id)", "sum(value)", "max(name)", "max(day)", "count(*)").collect()

        yield {
            f"{label}, {who} (s)": measure.timed(partial(aggregated, read, table, condition))
            for label, table, condition in (
                ("unpartitioned", "flat", "true"),
                ("20 partitions", "parted", "true"),
                ("one partition of 20", "parted", "bucket = 7"),
                ("500 small files", "small", "true"),
            )
            for who, read in {"plain": plain, "ours": ours, "data source": source}.items()
            if who != "data source" or label == "unpartitioned"
        }


def _many_small_files(warehouse: Warehouse) -> None:
    days = pa.array([1] * 1000, pa.date32())
    batch = pa.table({"id": pa.array(range(1000)), "value": [0.5] * 1000, "name": ["n"] * 1000, "day": days})
    transaction = warehouse.create_table("small", batch.schema).transaction()
    for _ in range(SMALL_FILES):
        transaction.add(*data_files.DataFileWriter(transaction.snapshot.layout).write_all([batch]))
    transaction.commit()


@contextmanager
def spark_stream(options: Options) -> Iterator[Works]:
    """Micro-batches written by the sink `delta-owner` against Spark's own Parquet sink, from the same files.

    A round runs one query into each sink, with one file of `rows` rows in each batch. The figure of a query is its
    median batch (Spark's `triggerExecution`), without the first one, which starts Python processes. The Parquet sink
    syncs nothing; ours syncs files, folders and commits. Ratios are ours / Parquet: below 1, ours is faster.
    """
    with _warehouse() as (delta, _, scratch):
        spark, source = delta.spark, str(scratch / "source")
        rows = spark.range(0, options.rows, numPartitions=1)
        rows = rows.selectExpr("id", "rand(1) * 1000 as value", "concat('name-', id % 1000000) as name")
        for _ in range(options.batches + 1):
            rows.write.mode("append").parquet(source)

        def batch(form: str) -> float:
            sink = _new_name()
            stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(source)
            writer = stream.writeStream.format(form).option("checkpointLocation", str(scratch / f"{sink}-checkpoint"))
            query = writer.trigger(availableNow=True).start(str(scratch / sink) if form == "parquet" else sink)
            query.awaitTermination()
            times = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
            return float(statistics.median(times[1 : options.batches + 1]) / 1000)

        yield {"Parquet (s)": lambda: batch("parquet"), "ours (s)": lambda: batch("delta-owner")}


@contextmanager
def spark_row_changes(options: Options) -> Iterator[Works]:
    """DELETE, UPDATE and MERGE by our pipeline on Spark, against plain Spark that finds and rewrites the same files.

    The table is a filesystem table of sorted rows. Each operation changes half of the rows of 1% of the files. Plain
    Spark searches all files for matching rows, reads the files that have some, writes the new rows to one folder, and
    syncs it, without a log or a commit. Ours ends with the commit. Every round changes a new copy, made of links,
    because no file is changed.
    """
    with _warehouse("3g") as (delta, _, scratch):
        changed = ChangedTable(scratch, options.files, options.rows)
        news = delta.spark.createDataFrame(changed.news).cache()
        news.count()

        def ours(operation: str, location: Path) -> None:
            table = delta.table_at(location)
            if operation == "DELETE":
                table.delete(changed.where)
            elif operation == "UPDATE":
                table.update(UPDATE, changed.where)
            else:
                table.merge(news, MATCH).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

        def plain(operation: str, location: Path) -> None:
            from pyspark.sql import functions

            every = delta.spark.read.parquet(str(location)).withColumn("file", functions.input_file_name())
            merges = operation == "MERGE"
            matched = every.join(news.select("id"), "id", "left_semi") if merges else every.where(changed.where)
            touched = delta.spark.read.parquet(*[row.file for row in matched.select("file").distinct().collect()])
            if operation == "DELETE":
                result = touched.where(f"NOT ({changed.where})")
            elif operation == "UPDATE":
                result = touched.withColumn("price", functions.expr(f"if({changed.where}, price + 1, price)"))
            else:
                result = touched.join(news, "id", "left_anti").unionByName(news)
            result.write.parquet(str(location / "result"))
            _sync_tree(location / "result")

        def work(act: Callable[[str, Path], None], operation: str) -> float:
            return changed.measured(partial(act, operation), operation, linked=True)[0]

        yield {
            f"{operation}, {who} (s)": partial(work, act, operation)
            for operation in OPERATIONS
            for who, act in {"ours": ours, "plain": plain}.items()
        }


IN_CATALOG: Final = {"delta.feature.catalogManaged": "supported"}
TRACKED: Final = {"delta.enableRowTracking": "true"}
UNTRACKED: Final = {"delta.enableRowTracking": "false"}


@contextmanager
def delta_spark(options: Options) -> Iterator[Works]:
    """A one-row INSERT by Delta Spark: plain Delta, through our commit coordinator, and through our server as catalog.

    Each round inserts into a new table of each kind; a figure is the round's median INSERT. Plain Delta syncs nothing;
    our owner syncs the staged file, the ledger and the published file within the INSERT. Delta 4.4 enables row tracking
    by default for tables of a catalog, but not for others. Row tracking alone makes its INSERT several times as slow,
    so each table is compared with one with the same setting. Needs Maven once (for the jars), and `javac` for the
    server's part, which is skipped without it.
    """
    from conformance.adapters.jvm import jars
    from spec_tests.engines.prerequisites import catalog_session, compile_catalog, delta_settings, served

    jars.fetch()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory, classes = Path(name) / "warehouse", Path(name) / "classes"
        classes.mkdir()
        warehouse = stack.enter_context(refimpl.open(directory, create=True))
        spark = local_session(cores=2, shuffle_partitions=1, settings=delta_settings(classes))
        stack.callback(spark.stop)
        owned = dict(coordinator.register(spark, warehouse))

        def inserts(session: SparkSession, properties: dict[str, str], *, in_catalog: bool = False) -> float:
            table = _new_name()
            given = {**(IN_CATALOG if in_catalog else {"delta.appendOnly": "false"}), **properties}
            where = "" if in_catalog else f"LOCATION '{directory / table}'"
            table = f"unity.default.{table}" if in_catalog else table
            wanted = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
            session.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING delta {where} TBLPROPERTIES ({wanted})")
            took = []
            for number in range(options.inserts):
                start = time.perf_counter()
                session.sql(f"INSERT INTO {table} VALUES ({number}, 'x')")
                took.append(time.perf_counter() - start)
            session.sql(f"DROP TABLE {table}")
            return statistics.median(took) * 1000

        works: dict[str, Work] = {
            "plain Delta (ms)": lambda: inserts(spark, {}),
            "our coordinator (ms)": lambda: inserts(spark, owned),
        }
        if shutil.which("javac") is not None:
            compile_catalog(classes)
            session = catalog_session(spark, stack.enter_context(served(directory)))
            works["our server (ms)"] = lambda: inserts(session, UNTRACKED, in_catalog=True)
            works["plain Delta, tracking rows (ms)"] = lambda: inserts(spark, TRACKED)
            works["our server, tracking rows (ms)"] = lambda: inserts(session, TRACKED, in_catalog=True)
        else:
            measure.progress("no javac: the server's part is skipped")
        yield works
