"""A Spark driver with two executors on separate hosts; a fault disturbs each job while it runs.

    python -m spec_tests.engines.spark_cluster SCRATCH WAREHOUSE URL

SCRATCH is a folder for the cluster, and URL a server of the warehouse. Jobs commit through the local owner and through
the server. For each job, the program prints a line of JSON with its result and the number of attempts of its first
task. The hosts are loopback addresses, because Spark runs no speculative attempt on the host of the first attempt.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import refimpl
from refimpl.rows.data_files import GROUP_ROWS
from refimpl.spark import DeltaConnection, connect, local_session
from refimpl.spark.session import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTS: Final = ("127.0.0.2", "127.0.0.3")
ROWS: Final = GROUP_ROWS + 300_000
"""The number of rows of each task: a data file is begun long before the last row arrives."""
TASKS: Final = 2
PATIENCE: Final = 120.0

EXECUTOR, WORKER, SLOW = "executor", "worker", "slow"
SETTINGS: Final = {
    "spark.executor.memory": "768m",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),  # as the driver's
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True, kw_only=True)
class Disturbed:
    """The rows of a task as they arrive. The fault hits one attempt of task 0: a few batches before the end, or, if the
    job writes, as soon as task 0 has a data file.
    """

    fault: str
    notes: str
    """A folder for this job only."""
    written: str | None
    """The folder of the warehouse, if the job writes large data files."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() != 0:
            yield from batches
            return
        before = self._data_files()
        Path(self.notes, f"attempt-{context.taskAttemptId()}").touch()
        rows = 0
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if self.fault != SLOW and rows >= (ROWS - 100_000 if self.written else 1) and self._is_first():
                _wait(lambda: self.written is None or self._data_files() > before, "no data file was begun")
                self._strike()
        if self.fault == SLOW and self._is_first():
            _wait(lambda: Path(self.notes, "overtaken").exists(), "no speculative attempt overtook")
        elif self.fault == SLOW:
            Path(self.notes, "overtaken").touch()

    def _data_files(self) -> set[Path]:
        return set() if self.written is None else set(Path(self.written).rglob("part-00000-*.parquet"))

    def _is_first(self) -> bool:
        with contextlib.suppress(FileExistsError):
            Path(self.notes, "struck").touch(exist_ok=False)
            return True
        return False

    def _strike(self) -> None:
        if self.fault == EXECUTOR:
            executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
            os.kill(executor, signal.SIGKILL)
        os._exit(1)


def _wait(condition: Any, problem: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        time.sleep(0.01)


def cluster_session(scratch: Path) -> "SparkSession":
    """Start master, workers and driver in one JVM, with one executor of one core on each of `HOSTS`."""
    from pyspark import SparkContext

    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, JAVA_HOME=str(find_java()))
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    deploy, conf = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf()
    address = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1().address()
    masters = SparkContext._gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = f"spark://{address.hostPort()}"
    none = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    for host in HOSTS:
        work = str(scratch / host)
        deploy.worker.Worker.startRpcEnvAndEndpoint(host, 0, 0, 1, 1024, masters, work, none, conf, none)
    return local_session(settings={**SETTINGS, "spark.master": masters[0]})


class Jobs:
    """The jobs. Each prints a line of JSON."""

    def __init__(self, delta: DeltaConnection, spark: "SparkSession", scratch: Path, directory: Path) -> None:
        self.delta, self.spark, self.scratch, self.directory = delta, spark, scratch, directory

    def append(self, name: str, fault: str, start: int = 0) -> None:
        self._write("append", name, fault, start)

    def overwrite(self, name: str, fault: str, start: int = 0) -> None:
        self._write("overwrite", name, fault, start)

    def _write(self, mode: str, name: str, fault: str, start: int) -> None:
        rows = self.spark.range(start, start + TASKS * ROWS, numPartitions=TASKS)
        notes = self._notes(f"{mode}-{name}-{start}")
        frame = rows.mapInArrow(Disturbed(fault=fault, notes=notes, written=str(self.directory)).__call__, rows.schema)
        written = self.delta.write(frame).mode(mode).saveAsTable(name)
        assert written is not None
        _report(name, notes, version=written.version, rows=written.rows)

    def read(self, name: str) -> None:
        rows = self.delta.read.table(name)
        notes = self._notes(f"read-{name}")
        frame = rows.mapInArrow(Disturbed(fault=EXECUTOR, notes=notes, written=None).__call__, rows.schema)
        (totals,) = frame.selectExpr("count(*)", "sum(id)").collect()
        _report(name, notes, rows=totals[0], sum=totals[1])

    def merge(self, name: str) -> None:
        """Merge the rows 900 to 1099 into the rows 0 to 999."""
        self.delta.write(self.spark.range(0, 1000, numPartitions=4).selectExpr("id", "id * 2 fare")).saveAsTable(name)
        rows = self.spark.range(900, 1100, numPartitions=TASKS).selectExpr("id", "0L fare")
        notes = self._notes(f"merge-{name}")
        frame = rows.mapInArrow(Disturbed(fault=EXECUTOR, notes=notes, written=None).__call__, rows.schema)
        merge = self.delta.table(name).merge(frame, "target.id = source.id")
        metrics = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().metrics
        _report(name, notes, rows=metrics["numTargetRowsInserted"])

    def _notes(self, name: str) -> str:
        folder = self.scratch / name
        folder.mkdir()
        return str(folder)


def _report(name: str, notes: str, **figures: Any) -> None:
    attempts = len(list(Path(notes).glob("attempt-*")))
    print(json.dumps({"table": name, "job": Path(notes).name, "attempts": attempts, **figures}), flush=True)


def main() -> None:
    scratch, directory, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    spark = cluster_session(scratch)
    with refimpl.open(directory) as local, refimpl.open(url) as remote:
        jobs = Jobs(connect(spark, local), spark, scratch, directory)
        jobs.append("local", SLOW)
        jobs.overwrite("local", EXECUTOR)
        jobs = Jobs(connect(spark, remote), spark, scratch, directory)
        for number, fault in enumerate((EXECUTOR, WORKER, SLOW)):
            jobs.append("served", fault, number * TASKS * ROWS)
        jobs.read("served")
        jobs.merge("fares")
    spark.stop()


if __name__ == "__main__":
    main()
