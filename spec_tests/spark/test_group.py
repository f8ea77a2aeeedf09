"""Two data frames in one transaction: `delta.transaction`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refimpl.protocol.errors import ConcurrentModificationError, InvalidRequestError
from refimpl.spark import DeltaConnection
from refimpl.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = ("orders", "stock")


@pytest.fixture
def tables(delta: DeltaConnection, rows: DataFrame) -> DeltaConnection:
    for name in NAMES:
        delta.write(rows).saveAsTable(name)
    return delta


def counts(delta: DeltaConnection) -> list[int]:
    return [delta.read.table(name).count() for name in NAMES]


def files(warehouse: Warehouse) -> set[Path]:
    return {*warehouse.directory.rglob("*.parquet")}


def test_two_frames_land_at_once_and_see_one_read_point(tables: DeltaConnection, rows: DataFrame) -> None:
    with tables.transaction(*NAMES) as tx:
        tx.write(rows).mode("append").saveAsTable("orders")
        tables.write(rows.limit(5)).mode("append").saveAsTable("orders")
        assert tx.read.table("orders").count() == 12
        tx.table("stock").delete("id < 4")
        assert counts(tables) == [17, 12]
    assert counts(tables) == [29, 8]
    assert {name: (done.version, done.rebased_over) for name, done in tx.committed.items()} == {
        "orders": (2, 1), "stock": (1, 0),
    }  # fmt: skip


def test_failed_transaction_leaves_no_rows_and_no_files(
    tables: DeltaConnection, rows: DataFrame, warehouse: Warehouse
) -> None:
    before = files(warehouse)
    with pytest.raises(InvalidRequestError, match="cannot create a table"), tables.transaction(*NAMES) as tx:
        tx.write(rows).mode("append").saveAsTable("orders")
        tx.write(rows).saveAsTable("missing")
    with pytest.raises(InvalidRequestError, match="takes no paths"), tables.transaction() as tx:
        tx.write(rows).mode("append").save(warehouse.directory / "orders")
    assert (files(warehouse), counts(tables)) == (before, [12, 12])
    with pytest.raises(ConcurrentModificationError), tables.transaction() as tx:
        tx.write(rows).mode("append").saveAsTable("orders")
        tx.write(rows).mode("overwrite").saveAsTable("stock")
        tables.write(rows.limit(1)).mode("append").saveAsTable("stock")
    assert counts(tables) == [12, 13]
