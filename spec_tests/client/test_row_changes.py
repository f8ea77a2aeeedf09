"""DELETE, UPDATE and MERGE with the plain client: which rows change, which files, and which conflicts end them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refimpl
from refimpl.client.table import Table
from refimpl.errors import CorruptionError, InvalidRequestError
from refimpl.warehouse import Warehouse

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32()), ("name", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true"}


def rows(*given: tuple[int | None, int | None, str | None]) -> pa.Table:
    return pa.table([list(column) for column in zip(*given, strict=True)], schema=SCHEMA)


ROWS = rows((1, 1, "a"), (2, 1, None), (None, 1, "c"), (4, 2, "d"), (5, 2, "e"), (6, None, "f"))


def contents(table: Table) -> list[tuple[Any, ...]]:
    found = [tuple(row.values()) for row in table.snapshot().to_arrow().to_pylist()]
    return sorted(found, key=lambda row: tuple((value is not None, value) for value in row))


def data_files_of(table: Table) -> set[Path]:
    return set(table.location.rglob("*.parquet"))


def info_of(table: Table) -> dict[str, Any]:
    info = table.history(1)[0].info
    assert info is not None
    return info.fields


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return refimpl.open(tmp_path / "lake", create=True)


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    made = warehouse.create_table("sales", SCHEMA, partition_columns=["month"])
    made.append(ROWS)
    return made


class TestRows:
    @pytest.mark.parametrize(
        ("where", "deleted"),
        [
            ("id = 2", {2}),
            ("id > 1 AND month = 1", {2}),
            ("name <> 'a'", {None, 4, 5, 6}),
            ("NOT name = 'a'", {None, 4, 5, 6}),
            ("id IS NULL OR month IS NULL", {None, 6}),
            ("month = 2", {4, 5}),
            ("month <> 2", {1, 2, None}),
            ("id > month", {2, 4, 5}),
            (None, {1, 2, None, 4, 5, 6}),
        ],
    )
    def test_delete_removes_the_rows_for_which_the_condition_is_true(
        self, table: Table, where: str | None, deleted: set[int | None]
    ) -> None:
        """DELTA.md#null-condition."""
        changed = table.delete(where)
        assert {row[0] for row in contents(table)} == {1, 2, None, 4, 5, 6} - deleted
        assert changed.metrics["numDeletedRows"] == len(deleted)
        assert changed.version == 2

    @pytest.mark.parametrize(
        ("values", "where", "changed"),
        [
            ({"name": "'x'"}, "id = 2", {(2, 1, None): (2, 1, "x")}),
            ({"NAME": "name || '!'"}, "id < 3", {(1, 1, "a"): (1, 1, "a!")}),
            ({"month": "month + 1"}, "id = 4", {(4, 2, "d"): (4, 3, "d")}),
            ({"id": "month", "month": "NULL"}, "id = 5", {(5, 2, "e"): (2, None, "e")}),
            ({"id": "-id * 2 - 1"}, "id = 6", {(6, None, "f"): (-13, None, "f")}),
            ({"name": "coalesce(name, upper('none'))"}, "id <= 2", {(2, 1, None): (2, 1, "NONE")}),
            ({"name": "CASE WHEN id = 4 THEN 'four' ELSE name END"}, "month = 2", {(4, 2, "d"): (4, 2, "four")}),
            ({"name": None}, "name = 'f'", {(6, None, "f"): (6, None, None)}),
            ({"id": 9}, "id IS NULL", {(None, 1, "c"): (9, 1, "c")}),
        ],
    )
    def test_update_sets_columns_from_the_old_row(
        self, table: Table, values: dict[str, Any], where: str, changed: dict[Any, Any]
    ) -> None:
        before = contents(table)
        table.update(values, where)
        expected = [changed.get(row, row) for row in before]
        assert set(contents(table)) == set(expected)
        assert len(contents(table)) == len(expected)

    def test_update_without_a_condition_changes_all_rows(self, table: Table) -> None:
        changed = table.update({"name": "'x'"})
        assert {row[2] for row in contents(table)} == {"x"}
        assert changed.metrics["numUpdatedRows"] == 6

    def test_nothing_matched_commits_nothing_but_at_write_serializable(self, warehouse: Warehouse) -> None:
        """DELTA.md#nothing-matched."""
        for level, version in (("Serializable", None), ("WriteSerializable", 2)):
            table = warehouse.create_table(level, SCHEMA, properties={"delta.isolationLevel": level})
            table.append(ROWS)
            files = data_files_of(table)
            assert table.delete("id = 99").version == version
            assert contents(table) == contents(warehouse.table(level))
            assert data_files_of(table) == files


class TestFiles:
    def test_only_files_with_a_matching_row_are_read_and_rewritten(self, table: Table) -> None:
        """Month 2 goes missing: neither partition values nor statistics lead there."""
        for path in (table.location / "month=2").iterdir():
            path.unlink()
        table.delete("id = 2 AND month = 1")
        table.update({"name": "'x'"}, "id > 5")
        with pytest.raises(CorruptionError):
            table.delete("id = 5")

    def test_a_whole_partition_is_deleted_without_a_read(self, table: Table) -> None:
        for path in (table.location / "month=2").iterdir():
            path.unlink()
        changed = table.delete("month = 2")
        assert changed.metrics["numDeletedRows"] == 2
        assert (changed.metrics["numAddedFiles"], changed.metrics["numRemovedFiles"]) == (0, 1)

    def test_the_commit_info_is_as_delta_writes_it(self, table: Table) -> None:
        table.delete("id = 1")
        info = info_of(table)
        assert (info["operation"], info["operationParameters"]) == ("DELETE", {"predicate": '["id = 1"]'})
        metrics = info["operationMetrics"]
        names = ("numDeletedRows", "numCopiedRows", "numAddedFiles", "numRemovedFiles", "numAddedChangeFiles")
        assert [metrics[name] for name in names] == ["1", "2", "1", "1", "0"]
        assert info["isBlindAppend"] is False
        table.update({"name": "'x'"}, "month = 2")
        info = info_of(table)
        assert (info["operation"], info["operationParameters"]) == ("UPDATE", {"predicate": '["month = 2"]'})
        assert (info["operationMetrics"]["numUpdatedRows"], info["operationMetrics"]["numCopiedRows"]) == ("2", "0")

    def test_change_data_files_hold_both_images(self, warehouse: Warehouse) -> None:
        table = warehouse.create_table("fed", SCHEMA, partition_columns=["month"], properties=FEED)
        table.append(ROWS)
        assert list(table.location.glob("_change_data/**/*.parquet")) == []
        table.update({"month": "3"}, "id = 4")
        found = sorted(path.parent.name for path in table.location.glob("_change_data/*/cdc-00000-*.parquet"))
        assert found == ["month=2", "month=3"]
        table.delete("month = 1")
        assert len(list(table.location.glob("_change_data/**/*.parquet"))) == 2


REFUSED: list[tuple[str, Callable[[Table], object]]] = [
    ("no SQL, with the position", lambda table: table.delete("id >")),
    ("an unknown column", lambda table: table.delete("price = 1")),
    ("a value that does not fit", lambda table: table.delete("id = 'one'")),
    ("a random condition", lambda table: table.delete("id < rand()")),
    ("a condition on the time", lambda table: table.delete("current_timestamp() > '2026-01-01'")),
    ("a subquery", lambda table: table.delete("id IN (SELECT 1)")),
    ("a random value", lambda table: table.update({"id": "rand()"})),
    ("an unknown function", lambda table: table.update({"id": "foo(id)"})),
    ("no column", lambda table: table.update({})),
    ("an unknown target", lambda table: table.update({"price": "1"})),
    ("a target twice", lambda table: table.update({"id": "1", "ID": "2"})),
    ("a fraction for an integer", lambda table: table.update({"id": "1.5"})),
    ("an overflow", lambda table: table.update({"month": "month + 2147483647"})),
    ("text for a number", lambda table: table.update({"id": "name"})),
]


@pytest.mark.parametrize(("what", "attempt"), REFUSED, ids=[name for name, _ in REFUSED])
def test_a_bad_request_leaves_no_version_and_no_file(
    table: Table, what: str, attempt: Callable[[Table], object]
) -> None:
    files = data_files_of(table)
    with pytest.raises(InvalidRequestError):
        attempt(table)
    assert table.snapshot().version == 1
    assert data_files_of(table) == files


def test_a_refused_condition_names_its_position(table: Table) -> None:
    with pytest.raises(InvalidRequestError, match="line 1, column 11"):
        table.delete("month = 1 >")
    with pytest.raises(InvalidRequestError, match="position 19"):
        table.delete("id = 1 AND name < uuid()")


def test_an_append_only_table_keeps_its_rows(warehouse: Warehouse) -> None:
    table = warehouse.create_table("log", SCHEMA, properties={"delta.appendOnly": "true"})
    table.append(ROWS)
    for attempt in (lambda: table.delete("id = 99"), lambda: table.update({"id": 1})):
        with pytest.raises(InvalidRequestError, match="append-only"):
            attempt()
    assert table.snapshot().version == 1
