"""Micro-batches written by the sink `delta-owner` against Spark's own Parquet sink, from the same files.

    python -m spec_tests.benchmarks.spark_stream [--rows 100000] [--batches 8] [--rounds 5] [--json]

A round runs one query into each sink, with one file of `rows` rows in each batch. The figure of a query is its median
batch (Spark's `triggerExecution`), without the first one, which starts Python processes. The Parquet sink syncs
nothing; ours syncs files, folders and commits. Ratios are ours / Parquet: below 1, ours is faster.
"""

import statistics
import sys
import tempfile
import uuid
from pathlib import Path

import refimpl
from refimpl.spark import connect, local_session
from spec_tests.benchmarks import measure


def main() -> int:
    options = measure.arguments("the streaming sink against Parquet's", rows=100_000, batches=8, rounds=5)
    spark = local_session(memory="2g")
    with tempfile.TemporaryDirectory() as name, refimpl.open(Path(name) / "warehouse", create=True) as warehouse:
        scratch = Path(name)
        connect(spark, warehouse)
        source = str(scratch / "source")
        rows = spark.range(0, options.rows, numPartitions=1)
        rows = rows.selectExpr("id", "rand(1) * 1000 as value", "concat('name-', id % 1000000) as name")
        for _ in range(options.batches + 1):
            rows.write.mode("append").parquet(source)

        def batch(form: str) -> float:
            sink = f"t{uuid.uuid4().hex}"
            stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(source)
            writer = stream.writeStream.format(form).option("checkpointLocation", str(scratch / f"{sink}-checkpoint"))
            query = writer.trigger(availableNow=True).start(str(scratch / sink) if form == "parquet" else sink)
            query.awaitTermination()
            times = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
            return float(statistics.median(times[1 : options.batches + 1]) / 1000)

        works = {"Parquet": lambda: batch("parquet"), "ours": lambda: batch("delta-owner")}
        measure.interleaved(1, works)
        figures = measure.interleaved(options.rounds, works)
    spark.stop()
    report = measure.Report(f"a micro-batch of {options.rows:,} rows")
    report.add_all(figures, "s")
    report.add_ratio("ours / Parquet", figures["ours"], figures["Parquet"], "", at_most=1.3)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
