"""A warehouse for each test, connected to the session that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from refimpl.spark import DeltaConnection, connect
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def delta(spark: SparkSession, warehouse: Warehouse) -> DeltaConnection:
    return connect(spark, warehouse)


@pytest.fixture
def time_zone(spark: SparkSession) -> Iterator[None]:
    """Resets the time zone that a test sets."""
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Ids 0 to 11, months 0 to 2, four rows each."""
    return spark.range(0, 12, numPartitions=2).selectExpr("id", "cast(id % 3 as int) month")


def lose_checkpoints(spark: SparkSession) -> None:
    """As if the executors that have the rows of local checkpoints were lost."""
    blocks = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().master()  # type: ignore[attr-defined]
    for number in spark._jsc.getPersistentRDDs():  # type: ignore[attr-defined]
        blocks.removeRdd(number, True)
