"""`delete`, `update`, `merge`, `changes`."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from refimpl.cli.output import ExitCode
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine, commit_rows


@pytest.fixture
def sales(cli: CommandLine, warehouse: Warehouse) -> None:
    properties = ("--property", "delta.enableChangeDataFeed=true")
    assert cli("create", "sales", "-c", "id BIGINT, name STRING", *properties).code == ExitCode.OK
    commit_rows(warehouse, "sales", {"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"})


@pytest.fixture
def news(tmp_path: Path) -> Path:
    path = tmp_path / "news.parquet"
    parquet.write_table(pa.table({"id": [2, 9], "name": ["B", "N"]}), path)
    return path


def rows(warehouse: Warehouse) -> list[tuple[int, str | None]]:
    records = warehouse.table("sales").snapshot().to_arrow().to_pylist()
    return sorted((row["id"], row["name"]) for row in records)


@pytest.mark.usefixtures("sales")
def test_rows_are_changed_and_the_changes_shown(cli: CommandLine, warehouse: Warehouse, news: Path) -> None:
    answer = cli("update", "sales", "--set", "name = name || '='", "--set", "id=id+10", "--where", "name = 'a'")
    assert answer.out == "committed version 2 of sales: updated 1 row\n"
    assert cli("delete", "sales", "--where", "name <> 'a='").out == "committed version 3 of sales: deleted 1 row\n"
    merged = cli("merge", "sales", news, "--on", "target.id = source.id", "--json").json
    assert (merged["version"], merged["metrics"]["numTargetRowsUpdated"]) == (4, 1)
    assert rows(warehouse) == [(2, "B"), (9, "N"), (11, "a=")]
    feed = cli("changes", "sales", "--from", 2, "--json").json
    assert [(row["_commit_version"], row["_change_type"], row["id"]) for row in feed[:3]] == [
        (2, "update_preimage", 1),
        (2, "update_postimage", 11),
        (3, "delete", 3),
    ]
    assert len(feed) == 6
    assert len(cli("changes", "sales", "--from-time", "2020-01-01", "--limit", 2, "--json").json) == 2
    shown = cli("changes", "sales", "--from", 3, "--to", 3)
    assert "delete" in shown.out
    assert "update_postimage" not in shown.out


@pytest.mark.usefixtures("sales")
@pytest.mark.parametrize(
    ("actions", "left"),
    [
        (["--matched", "delete", "--not-matched", "ignore"], [1, 3]),
        (["--matched", "ignore"], [1, 2, 3, 9]),
        (["--not-matched-by-source", "delete"], [2, 9]),
    ],
)
def test_merge_applies_its_actions(
    cli: CommandLine, warehouse: Warehouse, news: Path, actions: list[str], left: list[int]
) -> None:
    assert cli("merge", "sales", news, "--on", "target.id = source.id", *actions).code == ExitCode.OK
    assert [number for number, _ in rows(warehouse)] == left


@pytest.mark.usefixtures("sales")
def test_nothing_matched_is_no_commit(cli: CommandLine, warehouse: Warehouse) -> None:
    assert cli("delete", "sales", "--where", "id = 99").out == "no row matches; nothing was committed to sales\n"
    assert cli("delete", "sales", "--where", "id = 99", "--json").json["version"] is None
    assert cli("delete", "sales", "--all", "--json").json["metrics"]["numDeletedRows"] == 3
    assert cli("changes", "sales", "--from", 0, "--to", 0).out == "no changes in sales\n"
    assert rows(warehouse) == []


@pytest.mark.usefixtures("sales")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["delete", "sales"], "--where"),
        (["delete", "sales", "--where", "id = 1", "--all"], "--all"),
        (["delete", "sales", "--where", "id ="], "line 1, column"),
        (["delete", "sales", "--where", "price = 1"], "price"),
        (["update", "sales", "--set", "name", "--all"], "COLUMN=SQL"),
        (["update", "sales", "--set", "name = 1", "--set", "name = 2", "--all"], "twice"),
        (["update", "sales", "--set", "id = rand()", "--all"], "deterministic"),
        (["merge", "sales", "news.csv", "--on", "target.id = source.id"], "parquet"),
        (["merge", "sales", "news.parquet", "--on", "target.id = source.id", "--matched", "drop"], "drop"),
        (["merge", "sales", "missing.parquet", "--on", "target.id = source.id"], "missing.parquet"),
        (["changes", "sales"], "--from N"),
        (["changes", "sales", "--from", "9"], "version 9"),
        (["changes", "sales", "--from-time", "noon"], "noon"),
    ],
)
def test_invalid_call_names_the_error_and_changes_nothing(
    cli: CommandLine, warehouse: Warehouse, words: list[str], said: str
) -> None:
    answer = cli(*words)
    assert answer.code == ExitCode.USAGE
    assert said in answer.err
    assert warehouse.table("sales").snapshot().version == 1
