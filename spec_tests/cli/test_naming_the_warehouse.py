"""Which warehouse a command works on: the option, then the variable, then the current directory; never by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

import refimpl
from refimpl.cli.options import WAREHOUSE_VARIABLE, columns_of_sql
from refimpl.cli.output import ExitCode
from spec_tests.cli.conftest import CommandLine


def _with_table(directory: Path, name: str) -> Path:
    with refimpl.open(directory, create=True) as warehouse:
        warehouse.create_table(name, columns_of_sql("id INT"))
    return directory


def test_the_option_names_it(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, str(_with_table(tmp_path / "variable", "a")))
    wanted = _with_table(tmp_path / "option", "b")
    assert [table["name"] for table in cli("show", "--json", "-w", wanted).json] == ["b"]


def test_the_variable_names_it(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, str(_with_table(tmp_path / "variable", "a")))
    assert [table["name"] for table in cli("show", "--json").json] == ["a"]


def test_the_current_directory_serves_if_it_is_one(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_with_table(tmp_path / "here", "c"))
    assert [table["name"] for table in cli("show", "--json").json] == ["c"]


def test_without_any_of_them_nothing_is_made(cli: CommandLine) -> None:
    answer = cli("show")
    assert answer.code == ExitCode.USAGE
    assert "commit-owner init" in answer.err
    assert list(Path.cwd().iterdir()) == []


def test_a_directory_without_an_owner_is_refused_and_stays_as_it_is(cli: CommandLine, tmp_path: Path) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    answer = cli("verify", "-w", place)
    assert answer.code == ExitCode.USAGE
    assert list(place.iterdir()) == []
