"""DuckDB 1.5.5 as a client of our server: it reads and writes tables of our client, alone and with concurrent
clients.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import refimpl
from refimpl import Warehouse
from refimpl.client.ownership import hand_back, take_over
from refimpl.client.table import Table
from refimpl.protocol.table_feature import CATALOG_MANAGED
from spec_tests.engines.prerequisites import served
from spec_tests.support.other_readers import attached, rows_of
from spec_tests.support.serving import Fault, FaultProxy, Match

pytestmark = [pytest.mark.engines, pytest.mark.processes, pytest.mark.xdist_group("duckdb")]

SCHEMA: Final = pa.schema([("id", pa.int64()), ("who", pa.string())])
COMMIT: Final = Match(method="POST", body="add-commit")
DUCKS, ROWS, CLIENTS = 8, 2, 2


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with refimpl.open(tmp_path_factory.mktemp("warehouse"), create=True) as warehouse:
        yield warehouse


@pytest.fixture(scope="module")
def url(warehouse: Warehouse) -> Iterator[str]:
    with served(warehouse.directory) as url:
        yield url


def created(warehouse: Warehouse, name: str) -> Table:
    return warehouse.create_table(name, SCHEMA)


def append(table: Table, number: int) -> None:
    table.append(pa.table({"id": [number], "who": ["client"]}, schema=SCHEMA))


def by_client(table: Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["who"]) for row in table.snapshot().to_arrow().to_pylist())


def test_duckdb_and_our_client_read_each_others_rows(warehouse: Warehouse, url: str) -> None:
    table = created(warehouse, "orders")
    append(table, 1)
    with attached(url) as duck:
        assert rows_of(duck, "orders") == [(1, "client")]
        duck.execute("INSERT INTO unity.default.orders VALUES (2, 'duckdb'), (3, 'duckdb')")
        append(table, 4)
        assert rows_of(duck, "orders") == by_client(table)
    assert by_client(table) == [(1, "client"), (2, "duckdb"), (3, "duckdb"), (4, "client")]
    assert table.snapshot().version == 3
    assert warehouse.owner.resolve("orders").commits.latest_ratified_version == 3


@pytest.mark.parametrize("fault", list(Fault))
def test_duckdb_writes_a_row_once_with_any_fault(warehouse: Warehouse, url: str, fault: Fault) -> None:
    name = f"faulty_{fault.name.lower()}"
    table = created(warehouse, name)
    with FaultProxy(url, patience=0.01) as proxy, attached(proxy.url) as duck:
        proxy.next(fault, match=COMMIT)
        duck.execute(f"INSERT INTO unity.default.{name} VALUES (1, 'duckdb')")
        assert proxy.counts() == {fault: 1}
        assert rows_of(duck, name) == [(1, "duckdb")]
    assert by_client(table) == [(1, "duckdb")]
    assert table.snapshot().version == 1


def test_duckdb_writes_to_a_table_after_a_take_over(warehouse: Warehouse, url: str) -> None:
    """DuckDB looks for the owner's table id in the log, although the owner's answer has it. The owner had the table
    before, under another id.
    """
    free = hand_back(created(warehouse, "free"))
    taken = take_over(free, warehouse.owner, "taken", CATALOG_MANAGED)
    append(taken, 1)
    with attached(url) as duck:
        duck.execute("INSERT INTO unity.default.taken VALUES (2, 'duckdb')")
        assert rows_of(duck, "taken") == by_client(taken) == [(1, "client"), (2, "duckdb")]


def test_duckdb_finds_the_last_of_many_tables(warehouse: Warehouse, url: str) -> None:
    """DuckDB requests no further pages of the list, and treats the first page as complete."""
    for number in range(101):
        created(warehouse, f"many_{number:03d}")
    with attached(url) as duck:
        duck.execute("INSERT INTO unity.default.many_100 VALUES (1, 'duckdb')")
        assert rows_of(duck, "many_100") == [(1, "duckdb")]


PINNED: Final = "pinned-programs-of-clients-in-"


def test_duckdb_violates_only_the_known_requirements(tmp_path: Path) -> None:
    """For example, it deletes the data file of a commit that landed, and repeats a lost version on one connection."""
    report = tmp_path / "report"
    command = [sys.executable, "-m", "conformance", "run", "engine:duckdb", "--budget", "1h", "--report", str(report)]
    families = ("unknown-outcomes-and-replays", "conflicts", "ownership-change")
    slices = ["--check", f"{PINNED}*", *(word for family in families for word in ("--family", family))]
    done = subprocess.run([*command, *slices], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    cases = json.loads((report / "result.json").read_text())["cases"]
    violated = {
        (case["check"], name)
        for case in cases
        for violation in case.get("violations", ())
        for name in violation["requirements"]
    }
    assert violated == {
        *((f"{PINNED}unknown-outcomes-and-replays", name) for name in ("LOG-37", "PROFILE-UNKNOWN-01")),
        *((f"{PINNED}unknown-outcomes-and-replays", name) for name in ("PROFILE-CLIENT-02", "PROFILE-UNKNOWN-03")),
        *((f"{PINNED}conflicts", name) for name in ("CONFLICT-RETRY-05", "PROFILE-CLIENT-02")),
    }
