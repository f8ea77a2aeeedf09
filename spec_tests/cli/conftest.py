"""The command line for tests, and a warehouse for it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import refimpl
from refimpl.cli.application import application
from refimpl.cli.options import WAREHOUSE_VARIABLE
from refimpl.cli.output import ExitCode
from refimpl.warehouse import Warehouse


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The output and the exit code of a call."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def refuses(self, message: str, code: ExitCode = ExitCode.USAGE) -> bool:
        """Whether the call ended with this exit code and a message that contains this text."""
        return self.code == code and message in " ".join(self.err.split())


CommandLine = Callable[..., Answer]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """Calls `commit-owner` with these arguments, in this process, in an empty directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv(WAREHOUSE_VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: object) -> Answer:
        result = CliRunner().invoke(application, [str(word) for word in words], prog_name="commit-owner")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return Answer(code=result.exit_code, out=result.stdout, err=result.stderr)

    return call


@pytest.fixture
def warehouse(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Warehouse]:
    """The warehouse that the environment variable names, opened. It has a root beside it."""
    (tmp_path / "lake").mkdir()
    directory = tmp_path / "warehouse"
    monkeypatch.setenv(WAREHOUSE_VARIABLE, str(directory))
    with refimpl.open(directory, roots=[tmp_path / "lake"], create=True) as opened:
        yield opened


@pytest.fixture
def sales(cli: CommandLine, warehouse: Warehouse) -> str:
    """An empty table with staged commits, published only on request."""
    made = cli("create", "sales", "-c", "id BIGINT, month INT", "-p", "month")
    assert made.code == 0, made.err
    assert cli("policy", "sales", "--backfill-every", "never").code == 0
    return "sales"


# Rows

if TYPE_CHECKING:
    from refimpl.client.transaction import Committed


def commit_rows(warehouse: Warehouse, table: str, *rows: dict[str, object]) -> "Committed":
    """Append the rows in one commit."""
    import pyarrow as pa

    committed = warehouse.table(table).append(pa.Table.from_pylist(list(rows)))
    assert committed is not None
    return committed
