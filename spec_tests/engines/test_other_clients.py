"""Clients of other authors that create, append to and read a table of our server, by the kit's adapters: Delta Kernel
4.3 and 4.4, and Sail. Delta Spark and DuckDB have files of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

import refimpl
from conformance.adapters.engines.delta_kernel import DeltaKernel
from conformance.adapters.engines.engine import EngineClient
from conformance.adapters.engines.sail import Sail
from conformance.adapters.uc.server import CATALOG, SCHEMA
from conformance.interface import messages as m
from conformance.models import proposals
from spec_tests.engines.prerequisites import served

C = TypeVar("C", bound=EngineClient)

pytestmark = [
    pytest.mark.engines,
    pytest.mark.processes,
    pytest.mark.usefixtures("plain_py4j"),
    pytest.mark.xdist_group("other-clients"),
]
COLUMNS = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture
def url(warehouse: refimpl.Warehouse) -> Iterator[str]:
    """Our server, with the kit's names of catalog and schema."""
    with served(warehouse.directory, "--catalog", CATALOG, "--schema", SCHEMA) as url:
        yield url


@pytest.fixture
def client(url: str, tmp_path: Path) -> Iterator[Callable[..., EngineClient]]:
    """Starts an engine that works on our server, not on the kit's. Skips the test if the engine is missing."""
    started: list[EngineClient] = []

    def start(engine: type[C], version: str | None = None) -> C:
        if problem := engine.missing(version):
            pytest.skip(problem)
        client = engine(lambda _, __: m.Unknown(), tmp_path, version)
        started.append(client)
        client.url = url
        return client

    yield start
    for client in started:
        client.close()


@pytest.mark.parametrize(("version", "creates"), [("4.3.1", False), ("4.4.0", True)])
def test_kernel_creates_a_table_appends_and_reads(
    client: Callable[..., DeltaKernel], warehouse: refimpl.Warehouse, version: str, *, creates: bool
) -> None:
    """Kernel 4.3 cannot register a table by the Delta API."""
    kernel = client(DeltaKernel, version)
    actions = proposals.version_0("catalogManaged", "created", "table")
    create = m.CreateTable(
        name="orders", feature="catalogManaged", commit_mode="staged", attempt="created", actions=actions
    )
    created = kernel.create_table("creator", create)
    assert isinstance(created, m.Ratified if creates else m.Unsupported)
    if not creates:
        warehouse.create_table(f"{SCHEMA}.orders", COLUMNS)
    for number in (1, 2):
        adds = (m.DataFile(path=f"{number}.parquet"),)
        answer = kernel.transact("writer", m.Transact(table="orders", marker=str(number), adds=adds))
        assert answer == m.Committed(version=number)
    read = kernel.snapshot("reader", m.Snapshot(table="orders"))
    assert isinstance(read, m.SnapshotRead)
    assert (read.version, read.files) == (2, ("1.parquet", "2.parquet"))
    ours = warehouse.table(f"{SCHEMA}.orders").snapshot()
    assert (ours.version, sorted(add.path for add in ours.files.values())) == (2, ["1.parquet", "2.parquet"])


def test_sail_appends_and_reads(client: Callable[..., Sail], warehouse: refimpl.Warehouse) -> None:
    """Sail 0.7.2 registers a new table before it writes version 0: UNITY_CATALOG.md#sail."""
    session = client(Sail).connection("writer")
    with pytest.raises(Exception, match=r"40[45]"):
        session.sql(f"CREATE TABLE {CATALOG}.{SCHEMA}.refused (id BIGINT) USING delta").collect()
    table = warehouse.create_table(f"{SCHEMA}.orders", COLUMNS)
    table.append(pa.table({"id": [1], "part": ["ours"]}, schema=COLUMNS))
    session.sql(f"INSERT INTO {CATALOG}.{SCHEMA}.orders VALUES (2, 'sail')").collect()
    rows = sorted(tuple(row) for row in session.sql(f"SELECT id, part FROM {CATALOG}.{SCHEMA}.orders").collect())
    assert rows == [(1, "ours"), (2, "sail")]
    assert sorted(table.snapshot().to_arrow()["part"].to_pylist()) == ["ours", "sail"]
    assert warehouse.tables() == [f"{SCHEMA}.orders"]
