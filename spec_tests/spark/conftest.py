"""One Spark session for all tests, and a warehouse of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import refimpl
from refimpl.spark import DeltaConnection, connect, local_session
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session(
        cores=2,
        shuffle_partitions=1,
        max_failures=2,
        java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        settings={"spark.sql.session.timeZone": "UTC", "spark.log.level": "OFF"},
    )
    yield session
    session.stop()


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with refimpl.open(tmp_path / "warehouse") as opened:
        yield opened


@pytest.fixture
def delta(spark: SparkSession, warehouse: Warehouse) -> DeltaConnection:
    return connect(spark, warehouse)


@pytest.fixture
def time_zone(spark: SparkSession) -> Iterator[None]:
    """Whatever time zone a test sets, the next one finds UTC."""
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")
