"""DuckDB 1.5.5 after it lost a race: a deviation, and what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pytest

import refimpl
from conformance.proxy import FaultProxy
from spec_tests.engines.duckdb.attached import attached, rows_of
from spec_tests.engines.served import served

pytestmark = [pytest.mark.engines, pytest.mark.processes, pytest.mark.xdist_group("duckdb")]

TRIES: Final = 3


def test_duckdb_proposes_the_version_that_it_lost_again_until_it_connects_anew(tmp_path: Path) -> None:
    """It looks at a table once, and again only after a commit of its own: every INSERT after a lost race is refused."""
    with refimpl.open(tmp_path / "lake", create=True) as warehouse:
        table = warehouse.create_table("orders", pa.schema([("id", pa.int64())]))
        with served(warehouse.directory) as url, FaultProxy(url) as proxy:
            with attached(proxy.url) as loser:
                assert rows_of(loser, "orders") == []
                table.append(pa.table({"id": [1]}))
                for _ in range(TRIES):
                    with pytest.raises(duckdb.TransactionException):
                        loser.execute("INSERT INTO unity.default.orders VALUES (2)")
                refused = [each for each in proxy.exchanges if each.method == "POST" and each.status == 409]
                assert len(refused) >= TRIES, "version 1 once more, each time"
                assert rows_of(loser, "orders") == [], "nor does it read what won"
            with attached(proxy.url) as anew:
                anew.execute("INSERT INTO unity.default.orders VALUES (2)")
                assert rows_of(anew, "orders") == [(1,), (2,)]
        assert table.snapshot().version == 2
