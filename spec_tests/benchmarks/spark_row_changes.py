"""DELETE, UPDATE and MERGE by our pipeline on Spark, against plain Spark that finds and rewrites the same files.

    python -m spec_tests.benchmarks.spark_row_changes [--rows 10000000] [--files 1000] [--rounds 5] [--json]

The table is a filesystem table of sorted rows. Each operation changes half of the rows of 1% of the files. Plain Spark
searches all files for matching rows, reads the files that have some, writes the new rows to one folder, and syncs it,
without a log or a commit. Ours ends with the commit. Every round changes a new copy, made of links, because no file is
changed.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from refimpl.spark import DeltaConnection, connect, local_session
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.row_changes import build, rows
from spec_tests.benchmarks.spark_write import CORES, sync_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATIONS = ("DELETE", "UPDATE", "MERGE")


def ours(delta: DeltaConnection, location: Path, operation: str, where: str, news: "DataFrame") -> None:
    table = delta.table_at(location)
    if operation == "DELETE":
        table.delete(where)
    elif operation == "UPDATE":
        table.update({"price": "price + 1"}, where)
    else:
        merge = table.merge(news, "target.id = source.id").whenMatchedUpdateAll()
        merge.whenNotMatchedInsertAll().execute()


def plain(delta: DeltaConnection, location: Path, operation: str, where: str, news: "DataFrame") -> None:
    from pyspark.sql import functions

    spark = delta.spark
    everything = spark.read.parquet(str(location)).withColumn("file", functions.input_file_name())
    matched = everything.join(news.select("id"), "id", "left_semi") if operation == "MERGE" else everything.where(where)
    files = [row.file for row in matched.select("file").distinct().collect()]
    touched = spark.read.parquet(*files)
    if operation == "DELETE":
        result = touched.where(f"NOT ({where})")
    elif operation == "UPDATE":
        result = touched.withColumn("price", functions.expr(f"if({where}, price + 1, price)"))
    else:
        result = touched.join(news, "id", "left_anti").unionByName(news)
    result.write.parquet(str(location / "result"))
    sync_tree(location / "result")


def main() -> int:
    options = measure.arguments("row-level changes on Spark", rounds=5, files=1_000, rows=10_000_000)
    per_file = options.rows // options.files
    touched = max(1, options.files // 100)
    first = options.files // 2 * per_file
    where = f"id >= {first} AND id < {first + touched * per_file} AND month < 4"
    delta = connect(local_session(cores=CORES, memory="3g"))
    news = delta.spark.createDataFrame(rows(first, touched * per_file)).where("month < 4").cache()
    left = {"DELETE": options.rows - news.count(), "UPDATE": options.rows, "MERGE": options.rows}
    report = measure.Report(f"changes on Spark in {touched} of {options.files} files, {options.rows:,} rows")
    with tempfile.TemporaryDirectory() as name:
        base, copy = Path(name) / "base", Path(name) / "copy"
        measure.progress("building the table")
        build(base, options.files, per_file)
        for operation in OPERATIONS:

            def work(who: str, operation: str = operation) -> float:
                shutil.copytree(base, copy, copy_function=os.link)
                os.sync()
                start = time.perf_counter()
                (ours if who == "ours" else plain)(delta, copy, operation, where, news)
                took = time.perf_counter() - start
                if who == "ours":
                    assert delta.read.load(copy).count() == left[operation]
                shutil.rmtree(copy)
                return took

            work("ours"), work("plain")  # warm-up of Spark
            figures = measure.interleaved(
                options.rounds,
                {who: lambda who=who: work(who) for who in ("ours", "plain")},  # type: ignore[misc]
            )
            report.add_all(figures, "s", f"{operation}, {{}}")
            ratios = [mine / peer for mine, peer in zip(figures["ours"], figures["plain"], strict=True)]
            report.add(f"{operation}, ours / plain Spark", ratios, "x", at_most=1.3)
    delta.spark.stop()
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
