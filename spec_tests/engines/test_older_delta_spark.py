"""Delta Spark 4.2 on our server, by Unity Catalog's older calls: UNITY_CATALOG.md#older-calls. It needs PySpark 4.1,
in a folder and a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from filelock import FileLock

import refimpl
from conformance.adapters.engines import delta_spark, wheels
from conformance.adapters.jvm import jars
from spec_tests.engines.prerequisites import needed_classpath, rows_of, served

DELTA: Final = "4.2.0"
JAR: Final = f"delta-spark_4.1_2.13-{DELTA}.jar"
PYSPARK: Final = wheels.folder("pyspark", "4.1.1")
SECONDS: Final = 300
SOURCE: Final = Path(__file__).with_name("older_connector") / "UCSingleCatalog.java"
PROGRAM: Final = """
import json, sys
from pyspark.sql import SparkSession

settings, statements = json.load(sys.stdin)
builder = SparkSession.builder.master("local[1]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
print(json.dumps([[list(row) for row in spark.sql(statement).collect()] for statement in statements]))
"""

pytestmark = [pytest.mark.engines, pytest.mark.processes, pytest.mark.xdist_group("older-clients")]


def needed_jars() -> str:
    """The class path of Delta Spark 4.2 with its client of the older calls. Skips the test if Maven is missing."""
    others, jar = needed_classpath("unity", delta=DELTA), jars.cache() / JAR
    with FileLock(jar.with_suffix(".lock")):
        if not jar.is_file():
            if (maven := shutil.which("mvn")) is None:
                pytest.skip(f"no Maven to fetch {JAR}")
            copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
            named = f"-Dartifact=io.delta:delta-spark_4.1_2.13:{DELTA}"
            subprocess.run([maven, "-B", "-q", copy, named, f"-DoutputDirectory={jar.parent}"], check=True, timeout=600)
    return os.pathsep.join([str(jar), others])


def on_spark(url: str, classpath: str, *statements: str) -> list[list[list[Any]]]:
    """The rows of each statement, in a new Spark session whose catalog `unity` is the server."""
    settings = {
        "spark.driver.extraClassPath": classpath,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.unity": delta_spark.CATALOG_CLASS,
        "spark.sql.catalog.unity.uri": url,
        "spark.sql.catalog.unity.token": "not-needed-on-loopback",
    }
    environment = {**os.environ, "PYTHONPATH": str(PYSPARK)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps([settings, statements]), text=True, capture_output=True,
        env=environment, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    rows: list[list[list[Any]]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def test_delta_spark_creates_a_table_appends_and_reads(warehouse: refimpl.Warehouse, tmp_path: Path) -> None:
    if not (PYSPARK / "pyspark").is_dir():
        pytest.skip(f"no PySpark 4.1; run: pip install --no-deps --target {PYSPARK} pyspark==4.1.1")
    path, classes = needed_jars(), tmp_path / "classes"
    delta_spark.compile_catalog(classes, SOURCE, os.pathsep.join([path, f"{PYSPARK}/pyspark/jars/*"]))
    ours = warehouse.create_table("ours", pa.schema([("id", pa.int64())]))
    ours.append(pa.table({"id": [1]}))
    with served(warehouse.directory) as url:
        rows = on_spark(
            url, os.pathsep.join([str(classes), path]),
            "CREATE TABLE unity.default.theirs (id BIGINT, name STRING) USING delta"
            " TBLPROPERTIES ('delta.feature.catalogManaged' = 'supported')",
            "INSERT INTO unity.default.theirs VALUES (1, 'a')",
            "INSERT INTO unity.default.theirs VALUES (2, 'b')",
            "INSERT INTO unity.default.ours VALUES (2)",
            "SELECT * FROM unity.default.theirs ORDER BY id",
            "SELECT * FROM unity.default.ours ORDER BY id",
        )  # fmt: skip
    assert rows[-2:] == [[[1, "a"], [2, "b"]], [[1], [2]]]
    theirs = warehouse.table("theirs")
    assert rows_of(theirs) == [(1, "a"), (2, "b")]
    assert rows_of(ours) == [(1,), (2,)]
    assert [theirs.snapshot().version, ours.snapshot().version] == [2, 2]
    assert "catalogManaged" in (theirs.snapshot().protocol.writer_features or ())
