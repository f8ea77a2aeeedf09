"""Settings and fixtures of all tests. Each run checks properties on the same examples, however slow the machine is.

HYPOTHESIS_PROFILE=full checks 60 examples of each property instead of 15; =explore 1,000 new ones.
"""

import gc
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from spec_tests.support.builders import FEATURES_AND_COMMIT_MODES, OwnedTable, create, name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from refimpl.warehouse import Warehouse

settings.register_profile(
    "repository",
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("full", settings.get_profile("repository"), max_examples=60)
settings.register_profile("explore", settings.get_profile("repository"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repository"))


typer.testing._get_command = cache(typer.main.get_command)
"""`CliRunner` would build all commands of an application for each call, which takes longer than the call itself."""

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2**31
"""The space that must be free there. The tests need less than half of it."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For each Java process: it ends before more compilation pays off."""


def pytest_configure(config: pytest.Config) -> None:
    """Tests do not wait for a disk: power cuts are tested on simulated disks. And the hundreds of processes that tests
    start share compiled code, even if PYTHONDONTWRITEBYTECODE is set."""
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("JAVA_TOOL_OPTIONS", SHORT_LIVED)
    if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        for variable in ("PYTEST_DEBUG_TEMPROOT", "TMPDIR"):
            os.environ.setdefault(variable, str(MEMORY))
    if getattr(config.option, "numprocesses", None):  # not in the run of a sabotage
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """While tests are collected, the garbage collector takes a third of the time and finds nothing. After that, it
    leaves out the objects of the collected tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


SAMPLE = 5
"""The number of cases of one test that have no mark `longer`. The kit's tests choose their own samples."""


def sample(items: list[pytest.Item]) -> None:
    """Mark the cases of each test as `longer`, except `SAMPLE` of them. Tests with other engines keep all cases."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.nodeid.startswith("spec_tests/conformance/") and {"longer", "engines"}.isdisjoint(
            mark.name for mark in item.iter_markers()
        ):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        kept = {number * (len(cases) - 1) // (SAMPLE - 1) for number in range(SAMPLE)}
        for number, case in enumerate(cases):
            if len(cases) > SAMPLE and number not in kept:
                case.add_marker(pytest.mark.longer)


@pytest.hookimpl(tryfirst=True)  # before pytest reads the marks, and xdist the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with a Spark session need the mark `engines`. Run them in one process, because another session takes as
    long as a hundred tests. Run those of Delta Spark, which are long, in a second process. All tests with Spark come
    first, so that no process has to run long tests alone at the end."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures or "delta_spark" in fixtures:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.xdist_group("delta-spark" if "delta_spark" in fixtures else "spark"))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    sample(items)
    part = config.getoption("--slice")
    if part is not None:
        number, _, parts = part.partition("/")
        if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
            raise pytest.UsageError(f"invalid --slice={part}; expected K/N with 1 <= K <= N, such as 1/3")
        items[:] = items[int(number) - 1 :: int(parts)]


@pytest.fixture(scope="session")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the class path of the session. The session also finds classes that are compiled into it later."""
    return tmp_path_factory.mktemp("java-classes")


@pytest.fixture(scope="session")
def spark(java_classes: Path) -> "Iterator[SparkSession]":
    """The only Spark session of a test process: creating a second one would only change the settings of the first. A
    failed task is tried twice. The session has Delta, if its jars are available."""
    from refimpl.spark import local_session
    from spec_tests.engines.prerequisites import delta_settings

    session = local_session(
        cores=2,
        shuffle_partitions=1,
        max_failures=2,
        settings={
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "OFF",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # tables of a few rows are not worth compiling
            **delta_settings(java_classes),
        },
    )
    yield session
    session.stop()


@pytest.fixture
def plain_py4j(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo a side effect of Spark sessions: py4j translates the exceptions of all gateways to PySpark's classes."""
    java_gateway = pytest.importorskip("py4j.java_gateway")
    protocol = pytest.importorskip("py4j.protocol")
    monkeypatch.setattr(java_gateway, "get_return_value", protocol.get_return_value)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", metavar="K/N", help="run only the tests K, K+N, K+2N, ...: --slice=1/3")
    parser.addoption(
        "--documents",
        type=Path,
        metavar="DIR",
        help="folder with the documents of the protocol, at any depth, to compare the requirements with them",
    )


@pytest.fixture
def warehouse(tmp_path: Path) -> "Iterator[Warehouse]":
    """An empty warehouse on this host."""
    import refimpl

    with refimpl.open(tmp_path / "warehouse", create=True) as opened:
        yield opened


@pytest.fixture(params=FEATURES_AND_COMMIT_MODES, ids=lambda pair: name_of(*pair))
def table(request: pytest.FixtureRequest, warehouse: "Warehouse") -> OwnedTable:
    """A table with version 0, which is backfilled only on request. One for each table feature and commit mode."""
    return create(warehouse, *request.param)


@pytest.fixture(
    params=[p for p in FEATURES_AND_COMMIT_MODES if p[1].value != "direct"], ids=lambda pair: name_of(*pair)
)
def delayed(request: pytest.FixtureRequest, warehouse: "Warehouse") -> OwnedTable:
    """The same for the commit modes in which a ratified commit may be unpublished."""
    return create(warehouse, *request.param)
