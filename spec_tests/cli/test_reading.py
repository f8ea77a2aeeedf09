"""The command `rows`, and its formats."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from refimpl.cli.output import ExitCode
from refimpl.rows import data_files
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine, commit_rows

EACH_FORMAT = """
import sys
from refimpl.cli import run
for words in ("", " --format csv", " --format jsonl"):
    sys.argv = ["commit-owner", *f"rows wide{words}".split()]
    try:
        run()
    except SystemExit as end:
        assert not end.code
"""
TYPES = (
    "id INT, name STRING, price DECIMAL(38,18), f FLOAT, d DOUBLE, raw BINARY, day DATE, at TIMESTAMP, "
    "tags ARRAY<STRING>, m MAP<INT,DOUBLE>"
)
ODD = {
    "id": [1, 2],
    "name": ["", None],
    "price": pa.array([Decimal("1E-18"), None], pa.decimal128(38, 18)),
    "f": pa.array([0.1, None], pa.float32()),
    "d": [float("-inf"), float("nan")],
    "raw": [b"\x00\xff", b""],
    "day": pa.array([3_000_000, -800_000], pa.int32()).cast(pa.date32()),
    "at": pa.array([1, None]).cast(pa.timestamp("us", "UTC")),
    "tags": [["a,b", None], []],
    "m": pa.array([[(1, 0.5)], []], pa.map_(pa.int32(), pa.float64())),
}


def in_terminal(code: str) -> tuple[int, str]:
    """The exit code and the output of Python code in a terminal of 80 columns."""
    terminal, inside = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment)
    os.close(inside)
    text = b""
    while part := _read(terminal):
        text += part
    os.close(terminal)
    return process.wait(), text.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the process has closed it
        return b""


@pytest.fixture
def odd(cli: CommandLine, warehouse: Warehouse) -> str:
    cli("create", "odd", "-c", TYPES)
    warehouse.table("odd").append(pa.table(ODD))
    return "odd"


def test_text_formats_keep_every_value(cli: CommandLine, odd: str) -> None:
    header, first, second = csv.reader(io.StringIO(cli("rows", odd).out))
    assert header == list(ODD)
    small, time = "0.000000000000000001", "1970-01-01 00:00:00.000001Z"
    assert first == ["1", "", small, "0.1", "-Infinity", "00ff", "10183-09-21", time, '["a,b",null]', '{"1":0.5}']
    assert second == ["2", "", "", "", "NaN", "", "-0221-09-04", "", "[]", "{}"]
    assert [line.split(",")[1] for line in cli("rows", odd).out.splitlines()[1:]] == ['""', ""]
    lines = cli("rows", odd, "--format", "jsonl").out.splitlines()
    one, two = (json.loads(line, parse_float=Decimal) for line in lines)
    assert (one["price"], one["d"], one["m"]) == (Decimal(small), "-Infinity", {"1": Decimal("0.5")})
    assert (two["name"], two["d"], two["m"]) == (None, "NaN", {})
    assert cli("rows", odd, "--json").json == list(map(json.loads, lines))


@pytest.mark.parametrize(
    ("options", "shown"),
    [((), "id,month\n"), (("--format", "table"), "id  month\n"), (("--format", "jsonl"), ""), (("--json",), "[]\n")],
)
def test_an_empty_table_shows_its_header(cli: CommandLine, sales: str, options: tuple[str, ...], shown: str) -> None:
    assert cli("rows", sales, *options).out == shown


def test_a_null_in_a_single_column_is_no_empty_line(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    commit_rows(warehouse, sales, {"id": None, "month": 1})
    assert cli("rows", sales, "--columns", "ID").out == 'id\n""\n'


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2_000_000_000], pa.int32()).cast(pa.date32()),
        pa.array([-9_200_000_000_000_000_000], pa.timestamp("us")),
        pa.StructArray.from_arrays([pa.array([2_000_000_000], pa.int32()).cast(pa.date32())], ["d"]),
    ],
    ids=["date", "time", "member"],
)
def test_a_time_that_text_cannot_show_is_refused(cli: CommandLine, warehouse: Warehouse, column: pa.Array) -> None:
    rows = pa.table({"far": column})
    warehouse.create_table("t", rows.schema).append(rows)
    refused = cli("rows", "t", "--format", "jsonl")
    assert (refused.code, refused.out) == (ExitCode.USAGE, "")
    assert "the column 'far' has a" in " ".join(refused.err.split())


def test_rows_selects_rows_columns_and_versions(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    first = commit_rows(warehouse, sales, {"id": 1, "month": 1}, {"id": 2, "month": 1})
    commit_rows(warehouse, sales, {"id": 3, "month": 2})
    assert cli("rows", sales, "--where", "id > 1", "-c", "month,id").out == "month,id\n1,2\n2,3\n"
    for option in (("--version", 1), ("--timestamp", first.in_commit_timestamp)):
        assert len(cli("rows", sales, *option, "--json").json) == 2


def test_reading_ends_at_the_limit(
    cli: CommandLine, warehouse: Warehouse, sales: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "BATCH_ROWS", 2)
    commit_rows(warehouse, sales, *({"id": number, "month": 1} for number in range(5)))
    commit_rows(warehouse, sales, {"id": 1, "month": 2})
    table = warehouse.table(sales)
    (table.location / max(add.path for add in table.snapshot().files.values())).unlink()
    assert [len(cli("rows", sales, "-n", count, "--json").json) for count in (0, 1, 2, 3, 5)] == [0, 1, 2, 3, 5]
    assert cli("rows", sales).refuses("is missing", ExitCode.CORRUPTION)


@pytest.mark.processes
def test_a_terminal_gets_lines_that_fit_and_no_control_characters(cli: CommandLine, warehouse: Warehouse) -> None:
    cli("create", "wide", "-c", ", ".join(f"column{number} STRING" for number in range(9)))
    commit_rows(warehouse, "wide", *({"column0": "\x1b[31mred\n", "column1": "x" * 50} for _ in range(101)))

    code, text = in_terminal(EACH_FORMAT)
    assert code == ExitCode.OK
    lines = text.splitlines()
    assert max(map(len, lines[:101])) <= 80
    assert "\\u001b[31mred\\u000a" in lines[1]
    assert lines[101].startswith("not shown: the columns column5, ")
    assert lines[102].startswith("… more rows")
    assert "\x1b[31m" not in text
    assert "column0,column1," in text and '{"column0":' in text
