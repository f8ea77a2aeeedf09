"""Memory of the driver while a version is replayed and a checkpoint written: by Spark's tasks, and by the driver alone.

    python -m spec_tests.benchmarks.log_replay [--files 1000000] [--few 10000] [--rounds 1] [--json]

The table is a filesystem table of so many files in ten commits. The Spark session has two executors in their own
processes. The driver is a Python process and a JVM, which is also the cluster's master and workers. Each measurement
runs in a new process and takes the peak of the resident memory. The memory for a table of few files is subtracted, so
the figure is the memory for the files.
"""

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from refimpl.client import checkpoint_writing
from refimpl.client.table import Table
from refimpl.protocol import log_path
from spec_tests.benchmarks import measure
from spec_tests.benchmarks.snapshot import filesystem_table

COMMITS: Final = 10
Figures = tuple[float, float, float]
"""Seconds, and megabytes of the Python process and of the JVM."""


def peak_megabytes(process: int | str) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def by_driver(location: Path, files: int, scratch: Path) -> Figures:
    start = time.perf_counter()
    assert checkpoint_writing.write(Table.by_path(location).snapshot()).actions == files + 2
    return time.perf_counter() - start, peak_megabytes("self"), 0.0


def by_spark(location: Path, files: int, scratch: Path) -> Figures:
    from refimpl.spark import connect
    from refimpl.spark.log_replay import SETTING
    from spec_tests.engines.spark_cluster import cluster_session

    spark = cluster_session(scratch)
    spark.conf.set(SETTING, "0")
    start = time.perf_counter()
    written = connect(spark).table_at(location).checkpoint()
    seconds = time.perf_counter() - start
    assert written.actions == files + 2
    python, jvm = peak_megabytes("self"), peak_megabytes(spark.sparkContext._gateway.proc.pid)
    spark.stop()
    return seconds, python, jvm


def alone(work: Callable[[Path, int, Path], Figures], location: Path, files: int) -> Figures:
    """The figures of the work in its own process. The checkpoint is deleted afterwards."""
    measure.progress(f"{work.__name__}: {files} files")
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        figures = pool.submit(work, location, files, Path(scratch)).result()
    for name in (log_path.classic_checkpoint(COMMITS), log_path.LAST_CHECKPOINT):
        (location / log_path.LOG_FOLDER / name).unlink()
    return figures


def main() -> int:
    options = measure.arguments("log replay and checkpoints on Spark", files=1_000_000, few=10_000, rounds=1)
    report = measure.Report(f"replay and checkpoint of {options.files} files, by Spark's tasks and by the driver")
    with tempfile.TemporaryDirectory() as name:
        tables = {files: Path(name) / str(files) for files in (options.few, options.files)}
        for files, location in tables.items():
            filesystem_table(location, COMMITS + 1, files // COMMITS)
        for work in (by_driver, by_spark):
            few, many = (
                [alone(work, location, files) for _ in range(options.rounds)] for files, location in tables.items()
            )
            label = work.__name__.replace("_", " ")
            report.add(f"{label}, time", [seconds for seconds, _, _ in many], "s")
            report.add(f"{label}, peak of the Python process", [python for _, python, _ in many], "MB")
            costs = [(b - a, y - x) for (_, a, x), (_, b, y) in zip(few, many, strict=True)]
            target = {"at_most": 64.0} if work is by_spark else {}
            report.add(f"{label}, of it for the files", [python for python, _ in costs], "MB", **target)
            if work is by_spark:
                report.add(f"{label}, peak of the driver's JVM", [jvm for _, _, jvm in many], "MB")
                report.add(f"{label}, of it for the files (JVM)", [jvm for _, jvm in costs], "MB")
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
