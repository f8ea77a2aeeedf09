"""A warehouse for each test, connected to the session that all tests share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from refimpl.spark import DeltaConnection, connect
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def delta(spark: SparkSession, warehouse: Warehouse) -> DeltaConnection:
    return connect(spark, warehouse)


TIME_ZONE = "spark.sql.session.timeZone"
MODE = "spark.sql.sources.partitionOverwriteMode"


@contextmanager
def settings(spark: SparkSession, changed: Mapping[str, str]) -> Iterator[None]:
    """The session with other settings."""
    before = {key: spark.conf.get(key, None) for key in changed}
    for key, value in changed.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Ids 0 to 11, months 0 to 2, four rows each."""
    return spark.range(0, 12, numPartitions=2).selectExpr("id", "cast(id % 3 as int) month")


def lose_checkpoints(spark: SparkSession) -> None:
    """As if the executors that have the rows of local checkpoints were lost."""
    blocks = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().master()  # type: ignore[attr-defined]
    for number in spark._jsc.getPersistentRDDs():  # type: ignore[attr-defined]
        blocks.removeRdd(number, True)
