"""A one-row INSERT by Delta Spark: plain Delta, through our commit coordinator, and through our server as catalog.

    python -m spec_tests.benchmarks.delta_spark [--rounds 7] [--inserts 12] [--json]

Each round inserts into a new table of each kind; a figure is the round's median INSERT in ms. Plain Delta syncs
nothing; our owner syncs the staged file, the ledger and the published file within the INSERT. Delta 4.4 enables row
tracking by default for tables of a catalog, but not for others. Row tracking alone makes its INSERT several times as
slow, so each table is compared with one with the same setting. Needs Maven once (for the jars), and `javac` for the
server's part, which is skipped without it.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import refimpl
from conformance.adapters.jvm import jars
from refimpl.spark import coordinator, local_session
from spec_tests.benchmarks import measure
from spec_tests.engines.prerequisites import catalog_session, compile_catalog, delta_settings, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


IN_CATALOG: Final = {"delta.feature.catalogManaged": "supported"}
TRACKED: Final = {"delta.enableRowTracking": "true"}
UNTRACKED: Final = {"delta.enableRowTracking": "false"}
TRACKING_ROWS: Final = ", tracking rows"


class Bench:
    """Each call creates its own table, and drops it after the clock has stopped."""

    def __init__(self, location: Path, inserts: int) -> None:
        self.place = location
        self.inserts = inserts

    def in_place(self, spark: SparkSession, properties: dict[str, str]) -> float:
        name = f"t{uuid.uuid4().hex}"
        wanted = ", ".join(f"'{key}' = '{value}'" for key, value in {"delta.appendOnly": "false", **properties}.items())
        return self._milliseconds(spark, name, f"LOCATION '{self.place / name}' TBLPROPERTIES ({wanted})")

    def in_catalog(self, spark: SparkSession, properties: dict[str, str]) -> float:
        name = f"unity.default.t{uuid.uuid4().hex}"
        wanted = ", ".join(f"'{key}' = '{value}'" for key, value in {**IN_CATALOG, **properties}.items())
        return self._milliseconds(spark, name, f"TBLPROPERTIES ({wanted})")

    def _milliseconds(self, spark: SparkSession, name: str, where: str) -> float:
        spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta {where}")
        took = []
        for number in range(self.inserts):
            start = time.perf_counter()
            spark.sql(f"INSERT INTO {name} VALUES ({number}, 'x')")
            took.append(time.perf_counter() - start)
        spark.sql(f"DROP TABLE {name}")
        return statistics.median(took) * 1000


def main() -> int:
    options = measure.arguments("a one-row INSERT by Delta Spark", rounds=7, inserts=12)
    jars.fetch()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory, classes = Path(name) / "warehouse", Path(name) / "classes"
        classes.mkdir()
        warehouse = stack.enter_context(refimpl.open(directory, create=True))
        spark = local_session(cores=2, shuffle_partitions=1, settings=delta_settings(classes))
        stack.callback(spark.stop)
        owned = dict(coordinator.register(spark, warehouse))
        bench = Bench(directory, options.inserts)
        works: dict[str, Callable[[], float]] = {
            "plain Delta": lambda: bench.in_place(spark, {}),
            "our coordinator": lambda: bench.in_place(spark, owned),
        }
        if shutil.which("javac") is not None:
            compile_catalog(classes)
            session = catalog_session(spark, stack.enter_context(served(directory)))
            works["our server"] = lambda: bench.in_catalog(session, UNTRACKED)
            works["plain Delta" + TRACKING_ROWS] = lambda: bench.in_place(spark, TRACKED)
            works["our server" + TRACKING_ROWS] = lambda: bench.in_catalog(session, TRACKED)
        else:
            measure.progress("no javac: the server's part is skipped")
        measure.interleaved(3, works)  # warm-up
        figures = measure.interleaved(options.rounds, works)
    report = measure.Report(f"a one-row INSERT by Delta Spark, median of {options.inserts} per round")
    report.add_all(figures, "ms")
    limits = (("our coordinator", "", 1.1), ("our server", "", 1.3), ("our server", TRACKING_ROWS, 1.3))
    for label, beside, most in limits:
        if label + beside in figures:
            ours, plain = figures[label + beside], figures["plain Delta" + beside]
            report.add_ratio(f"{label} / plain Delta{beside}", ours, plain, "", at_most=most)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
