"""The driver of a streaming query is killed at each step of a batch and started again: each row is in the table once.

    python -m spec_tests.engines.test_stream_kills WAREHOUSE [STEP BATCH]

runs the query, and kills its driver with its JVM at the given step of the given batch.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refimpl

ROWS = 6
"""The number of commits. Each has one file, and each file is a batch."""
SCHEMA = pa.schema([("id", pa.int64())])
STEPS = ("written", "before commit", "after commit")
"""The moments of the kills: the data files are durable; all tasks have reported; the version is ratified, but Spark
does not know it yet. In each, the end of the batch is in Spark's checkpoint.
"""
DRIVER = "KILLED_STREAM_DRIVER"


@pytest.mark.engines
@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.xdist_group("stream-kills")
def test_each_row_is_there_once_after_a_kill_at_each_step(tmp_path: Path) -> None:
    with refimpl.open(tmp_path / "warehouse", create=True) as warehouse:
        source = warehouse.create_table("source", SCHEMA)
        for number in range(ROWS):
            source.append(pa.table({"id": [number]}, schema=SCHEMA))
        for batch, step in enumerate(STEPS):
            assert run(tmp_path, step, str(batch)) == -signal.SIGKILL, step
        assert run(tmp_path) == 0
        sink = warehouse.table("sink")
        copied = Counter(sink.snapshot().to_arrow()["id"].to_pylist())
        assert copied == Counter(range(ROWS))
        (recorded,) = sink.snapshot().transactions.values()
        assert recorded.version == ROWS - 1
        batches = [entry.parameters["epochId"] for entry in sink.history() if entry.operation == "STREAMING UPDATE"]
        assert batches == [str(number) for number in reversed(range(ROWS))]


def run(folder: Path, *arguments: str) -> int:
    """Run a driver; return its exit code. Its output goes to a file: a pipe would stay open while any child process
    runs.
    """
    command = [sys.executable, "-m", __name__, str(folder), *arguments]
    with (folder / "output.txt").open("w+") as output:
        driver = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            code = driver.wait(timeout=300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
        output.seek(0)
        assert code in (0, -signal.SIGKILL), output.read()[-3000:]
    return code


def kill_driver() -> None:
    """Kill the driver, its JVM and this process of Python, so that no process can clean up."""
    os.killpg(int(os.environ[DRIVER]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main(given: str, step: str = "", number: str = "-1") -> None:
    import refimpl.spark
    from refimpl.spark import data_source

    folder, batch = Path(given), int(number)
    os.environ[DRIVER] = str(os.getpid())
    spark = refimpl.spark.local_session(cores=1, java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    warehouse = refimpl.open(folder / "warehouse")
    refimpl.spark.connect(spark, warehouse)

    class Writer(data_source._StreamWriter):
        def write(self, iterator: Any) -> Any:
            from pyspark import TaskContext

            message = super().write(iterator)
            context = TaskContext.get()
            assert context is not None
            if step == "written" and context.getLocalProperty("streaming.sql.batchId") == str(batch):
                kill_driver()
            return message

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - PySpark's name
            if (step, batch) == ("before commit", batchId):
                kill_driver()
            super().commit(messages, batchId)
            if (step, batch) == ("after commit", batchId):
                kill_driver()

    class Source(data_source.DeltaOwnerSource):
        connection = data_source.Connection.of(warehouse)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - PySpark's name
            return Writer(super().streamWriter(schema, overwrite).work)

    spark.dataSource.register(Source)
    rows = spark.readStream.format("delta-owner").option("maxFilesPerTrigger", 1).load("source")
    writer = rows.writeStream.format("delta-owner").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start("sink").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
