"""The prerequisites of tests with engines: a server of the Delta API in its own process, Java libraries, Delta
Spark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from filelock import FileLock

import refimpl
from conformance.adapters.engines import delta_spark
from conformance.adapters.jvm import jars
from conformance.adapters.jvm.jars import JarsError
from conformance.adapters.jvm.machine import NoJavaError
from refimpl.client.table import Table
from refimpl.spark import coordinator
from spec_tests.support.serving import SERVE, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def served(warehouse: Path, *options: str) -> Iterator[str]:
    """Start a server of this warehouse, whose catalog is `unity`; yield its URL. `options` are those of `commit-owner
    serve`. Skips the test without the extra `server`.
    """
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    with started(*SERVE, warehouse, *options) as (_, url):
        yield url


def needed_classpath(group: str, *, hadoop: bool = False) -> str:
    """The class path of a group (see `conformance.adapters.jvm.jars.GROUPS`), fetched once for all processes of a run.

    Skips the test if libraries and the Maven to fetch them are missing. A Maven that fails is a failure.
    """
    try:
        return jars.classpath(group, hadoop=hadoop)
    except JarsError as error:
        if shutil.which("mvn") is None:
            pytest.skip(f"no Maven: {error.problem}")
    folder = jars.folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        jars.fetch()
    return jars.classpath(group, hadoop=hadoop)


# Delta Spark


TINY: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.commitLock.enabled": "false",  # else the commits of one session never race
}
"""Settings for statements on a few rows, for which generating code would take most of the time."""


def needed_jars() -> str:
    """The class path of Delta Spark and its catalog client. Skips the test if they are missing."""
    return os.pathsep.join([needed_classpath("spark"), needed_classpath("unity")])


def delta_settings(classes: Path | None = None) -> dict[str, str]:
    """The Spark settings for Delta, empty if its jars are missing; the tests with Delta then report that."""
    try:
        path = needed_jars()
    except (JarsError, pytest.skip.Exception):
        return {}
    return {
        **coordinator.SETTINGS,
        "spark.driver.extraClassPath": path if classes is None else os.pathsep.join([path, str(classes)]),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",  # tests of them enable them
    }


class Engine:
    """Delta Spark on the tables of a warehouse."""

    def __init__(
        self, spark: SparkSession, warehouse: refimpl.Warehouse, properties: Mapping[str, str], prefix: str = ""
    ) -> None:
        """`properties`: those of an owned table. `prefix`: catalog and schema, before the name of
        each table; the catalog then chooses its location."""
        self.spark = spark
        self.warehouse = warehouse
        self.prefix = prefix
        self.properties = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of the result."""
        return [tuple(row) for row in self.spark.sql(statement).collect()]

    def location(self, name: str) -> Path:
        return self.warehouse.directory / name

    def create(self, name: str, columns: str = "id BIGINT, name STRING", *, owned: bool = True) -> Table:
        """Create a table with Delta Spark's CREATE; return it as our client sees it, through its owner."""
        properties = f" TBLPROPERTIES ({self.properties})" if owned else ""
        where = "" if self.prefix else f" LOCATION '{self.location(name)}'"
        self.sql(f"CREATE TABLE {self.prefix}{name} ({columns}) USING delta{where}{properties}")
        return self.table(name) if owned else Table.by_path(self.location(name))

    def insert(self, name: str, *rows: tuple[Any, ...]) -> None:
        self.sql(f"INSERT INTO {self.prefix}{name} VALUES {', '.join(map(str, rows))}")

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """All rows, sorted, as a session reads them that never read the table before."""
        self.forget()
        return sorted(self.sql(f"SELECT * FROM {self.prefix}{name}"))

    def table(self, name: str) -> Table:
        return self.warehouse.table(name if self.prefix else self.location(name))

    def latest(self, name: str) -> int | None:
        """The newest version that the owner has ratified."""
        table = self.warehouse.owner.resolve(name if self.prefix else self.location(name))
        return table.commits.latest_ratified_version

    def forget(self) -> None:
        """Clear Delta's cache of logs."""
        jvm: Any = self.spark.sparkContext._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """All rows, sorted, as our client reads them."""
    return sorted(tuple(row.values()) for row in table.snapshot().to_arrow().to_pylist())


def compile_catalog(classes: Path) -> None:
    """Compile the stand-in for Unity Catalog's connector. Skips the test if `javac` is missing."""
    needed_jars()
    try:
        delta_spark.compile_catalog(classes)
    except NoJavaError as error:
        pytest.skip(error.problem)


def catalog_session(spark: SparkSession, url: str) -> SparkSession:
    """A session of the same Spark in which the server's tables are `unity.default.NAME`."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.unity", delta_spark.CATALOG_CLASS)
    session.conf.set("spark.sql.catalog.unity.uri", url)
    session.conf.set("spark.sql.catalog.unity.token", "not-needed-on-loopback")
    return session
