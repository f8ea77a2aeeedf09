"""Shared by all tests: properties are checked on the same examples in every run, however slow the machine is.

HYPOTHESIS_PROFILE=explore looks for 1,000 new examples of each instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from refimpl.warehouse import Warehouse

settings.register_profile(
    "repository",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("explore", settings.get_profile("repository"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repository"))


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2**31
"""Which must be free there; tests need less than half of that."""


def pytest_configure(config: pytest.Config) -> None:
    """Tests neither wait for a disk (what a power cut leaves of a file is tested on simulated ones), nor compile this
    repository in each of the hundreds of processes that they start, even where PYTHONDONTWRITEBYTECODE is set."""
    if hasattr(config, "workerinput"):
        return
    if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        for variable in ("PYTEST_DEBUG_TEMPROOT", "TMPDIR"):
            os.environ.setdefault(variable, str(MEMORY))
    if getattr(config.option, "numprocesses", None):  # not in a mutant's run
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the Spark session runs in one process: each further session costs as much as a hundred tests."""
    for item in items:
        if {"spark", "delta_spark"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On the class path of the session from the start: what is compiled into it later is found."""
    return tmp_path_factory.mktemp("java-classes")


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, java_classes: Path) -> Iterator[SparkSession]:
    """The one Spark session of a test process: a second one would be the first with other settings. A task that
    dies is tried once more. It has Delta, where that can be had, if tests of engines are among those of this run."""
    from refimpl.spark import local_session
    from spec_tests.engines.prerequisites import delta_settings

    engines = any(item.get_closest_marker("engines") for item in request.session.items)
    session = local_session(
        cores=2,
        shuffle_partitions=1,
        max_failures=2,
        java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        settings={
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "OFF",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # tables of a few rows are not worth compiling for
            **(delta_settings(java_classes) if engines else {}),
        },
    )
    yield session
    session.stop()


@pytest.fixture
def plain_py4j(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark session makes py4j translate the exceptions of every gateway of the process by classes of its own."""
    java_gateway = pytest.importorskip("py4j.java_gateway")
    protocol = pytest.importorskip("py4j.protocol")
    monkeypatch.setattr(java_gateway, "get_return_value", protocol.get_return_value)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--documents",
        type=Path,
        metavar="DIR",
        help="where the documents of the protocol are, at any depth, to compare the requirements with them",
    )


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    """An empty one of this host."""
    import refimpl

    with refimpl.open(tmp_path / "warehouse", create=True) as opened:
        yield opened
