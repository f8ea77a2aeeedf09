"""`take-over` and `hand-back`."""

from __future__ import annotations

from pathlib import Path

import pytest

from refimpl.cli.output import ExitCode
from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.environment import Environment
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine

COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


@pytest.mark.parametrize("feature", ["managedCommit", "catalogManaged"])
def test_a_filesystem_table_is_taken_over_and_handed_back(
    cli: CommandLine, warehouse: Warehouse, tmp_path: Path, feature: str
) -> None:
    """managed-commits, "Converting an existing filesystem based table to managed-commit table" and the reverse."""
    location = tmp_path / "lake" / "orders"
    create_filesystem_table(location, Environment(), COLUMNS)
    taken = cli("take-over", location, "orders", "--feature", feature, "--json")
    assert taken.code == ExitCode.OK, taken.err
    assert (taken.json["version"], taken.json["feature"]) == (1, feature)
    assert cli("show", "orders", "--json").json["owner"]["feature"] == feature
    back = cli("hand-back", "orders", "--json")
    assert back.json == {"location": str(location), "version": 2}
    assert Table.by_path(location).snapshot().feature is None
    assert cli("show", "orders").code == ExitCode.USAGE
    assert "version 3" in cli("take-over", location, "orders").out
    assert "version 4" in cli("hand-back", "orders").out


def test_a_table_outside_the_roots_is_not_taken_over(cli: CommandLine, warehouse: Warehouse, tmp_path: Path) -> None:
    location = tmp_path / "strange"
    create_filesystem_table(location, Environment(), COLUMNS)
    answer = cli("take-over", location, "orders")
    assert answer.code == ExitCode.USAGE
    assert str(location) in answer.err
    assert Table.by_path(location).snapshot().version == 0
    assert warehouse.tables() == []


def test_only_a_table_is_taken_over(cli: CommandLine, warehouse: Warehouse, tmp_path: Path) -> None:
    assert cli("take-over", tmp_path / "lake" / "nothing", "orders").code == ExitCode.USAGE
    assert warehouse.tables() == []


def test_a_table_that_has_an_owner_is_not_taken_over(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    answer = cli("take-over", warehouse.table(sales).location, "other")
    assert answer.code in (ExitCode.USAGE, ExitCode.REFUSED)
    assert warehouse.tables() == [sales]


def test_an_unknown_table_cannot_be_handed_back(cli: CommandLine, warehouse: Warehouse) -> None:
    assert cli("hand-back", "nothing").code == ExitCode.USAGE
