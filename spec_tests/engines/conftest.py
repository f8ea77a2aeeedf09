"""Delta Spark with a new warehouse for each test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import refimpl
from refimpl.spark import coordinator
from spec_tests.engines.prerequisites import TINY, Engine, needed_jars

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
