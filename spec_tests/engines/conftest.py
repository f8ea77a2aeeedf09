"""Delta Spark with a new warehouse for each test."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import refimpl
from refimpl.spark import coordinator
from spec_tests.engines.prerequisites import TINY, Engine, catalog_session, compile_catalog, needed_jars, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def delta_spark(request: pytest.FixtureRequest) -> "SparkSession":
    """A session of the test run's Spark, with Delta. Skips the test if the jars are missing."""
    needed_jars()
    session: SparkSession = request.getfixturevalue("spark").newSession()
    for key, value in TINY.items():
        session.conf.set(key, value)
    return session


@pytest.fixture
def engine(delta_spark: "SparkSession", warehouse: refimpl.Warehouse) -> Iterator[Engine]:
    """Delta Spark with our owner as its commit coordinator."""
    yield Engine(delta_spark, warehouse, coordinator.register(delta_spark, warehouse))
    for row in delta_spark.sql("SHOW TABLES IN default").collect():
        delta_spark.sql(f"DROP TABLE IF EXISTS default.{row.tableName}")
    delta_spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture
def catalog(delta_spark: "SparkSession", java_classes: Path, warehouse: refimpl.Warehouse) -> Iterator[Engine]:
    """Delta Spark with our server as its catalog: its tables are `unity.default.NAME`."""
    compile_catalog(java_classes)
    properties = {"delta.feature.catalogManaged": "supported", "delta.enableDeletionVectors": "false"}
    with served(warehouse.directory) as url:
        yield Engine(catalog_session(delta_spark, url), warehouse, properties, prefix="unity.default.")


@pytest.fixture(params=["engine", "catalog"])
def any_engine(request: pytest.FixtureRequest, delta_spark: "SparkSession") -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found
