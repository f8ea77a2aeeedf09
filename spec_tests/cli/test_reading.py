"""The commands `rows`, with its formats, and `ingest`."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
import pty
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from typer.testing import CliRunner

from refimpl.cli.application import application
from refimpl.cli.output import ExitCode
from refimpl.protocol.errors import InvalidRequestError
from refimpl.rows import data_files
from refimpl.rows.input_files import InputFiles
from refimpl.schema.schema import from_arrow
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


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "day.csv"
    path.write_text("month,id\n1,10\n1,NA\n2,20\n")
    return path


def _rows(warehouse: Warehouse, table: str) -> list[tuple[object, ...]]:
    rows = warehouse.table(table).snapshot().to_arrow(columns=["id", "month"]).to_pylist()
    return sorted((row["month"], row["id"] or 0) for row in rows)


def test_csv_files_become_one_commit_with_the_tables_types(
    cli: CommandLine, warehouse: Warehouse, sales: str, day: Path, tmp_path: Path
) -> None:
    again = shutil.copy(day, tmp_path / "again.csv")
    answer = cli("ingest", sales, day, again, "--null", "NA", "--json")
    assert answer.code == ExitCode.OK, answer.err
    assert (answer.json["version"], answer.json["rows"], answer.json["tries"]) == (1, 6, 1)
    assert _rows(warehouse, sales) == [(1, 0), (1, 0), (1, 10), (1, 10), (2, 20), (2, 20)]


def test_invalid_rows_are_rejected_and_nothing_lands(
    cli: CommandLine, warehouse: Warehouse, sales: str, tmp_path: Path
) -> None:
    (tmp_path / "more.csv").write_text("id,month,colour\n1,1,red\n")
    (tmp_path / "text.csv").write_text("id,month\nten,1\n")
    assert cli("ingest", sales, tmp_path / "more.csv").refuses("colour")
    text = cli("ingest", sales, tmp_path / "text.csv")
    assert text.code == ExitCode.USAGE
    assert all(word in text.err for word in ("text.csv, row 1 below", "'ten'", "'id'", "long", "--null ten"))
    (tmp_path / "ragged.csv").write_text("id,month\n1,1\n2,2,2\n")
    assert cli("ingest", sales, tmp_path / "ragged.csv").refuses("Row #3: Expected 2 columns, got 3: 2,2,2")
    assert warehouse.owner.resolve(sales).commits.latest_ratified_version == 0


def test_an_append_without_rows_commits_nothing(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    Path("header.csv").write_text("id,month\n")
    answer = cli("ingest", sales, "header.csv", "--json")
    assert (answer.code, answer.json["version"], answer.json["rows"]) == (ExitCode.OK, None, 0)
    assert warehouse.owner.resolve(sales).commits.latest_ratified_version == 0


def test_missing_columns_become_null_only_with_the_option(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    Path("ids.csv").write_text("ID\n1\n")
    refused = cli("ingest", sales, "ids.csv")
    assert refused.refuses("'month'")
    assert refused.refuses("--fill-missing")
    assert cli("ingest", sales, "ids.csv", "--fill-missing").code == ExitCode.OK
    assert warehouse.table(sales).snapshot().to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,s,d,t\n1,x,1.23,2026-01-01T00:00:00+01:00\n2,caf\xe9,,\n", "Row #3: CSV conversion error to string"),
        (b"id,s,d,t\n1,x,1.239,\n", "row 1 below the header, column 'd': invalid value '1.239'; expected"),
        (b"id,s,d,t\n1,x,,\n,x,,\n", "row 2 below the header, column 'id': null, but the column must not be null"),
        (b'id,s,d,t\n1,"x,,\n2,y,,\n', "has 1 quotes; expected an even number"),
        (b'id,s,d,t\n1,"x\ny,,\n2,"y",,\n', "line 4: misplaced quote"),
        (b'id,s,d,t\n1,"x\n2,y,,\n3,z"z,,\n', "line 4: misplaced quote"),
        (b'id,s,d,t\n1,5" disk,,\n2,6" disk,,\n', "line 2: misplaced quote"),
        (b'id,s,d,t\n1,"x" ,,\n', "line 2: misplaced quote"),
        (b"id,s,d,t\n-1,x,,\n", "CHECK constraint 'positive'"),
        (b"id,s,d,t\n1,x,,2026-02-30\n", "column 't': invalid value '2026-02-30'; expected a time such as"),
        ("id,s,d,t\n1,x,,\n".encode("utf-16"), "expected a complete CSV file in UTF-8"),
        (b"id,s,d,t\n1,x\x1b[2J\n", "\\x1b[2J"),
    ],
)
def test_a_fault_is_named_and_leaves_no_file(
    cli: CommandLine, warehouse: Warehouse, content: bytes, message: str
) -> None:
    columns = "id BIGINT NOT NULL, s STRING, d DECIMAL(10,2), t TIMESTAMP"
    assert cli("create", "t", "-c", columns, "--property", "delta.constraints.positive=id > 0").code == ExitCode.OK
    Path("f.csv").write_bytes(content)
    assert cli("ingest", "t", "f.csv").refuses(message)
    table = warehouse.table("t")
    assert table.snapshot().version == 0
    assert [path for path in table.location.rglob("*.parquet") if "_delta_log" not in path.parts] == []


def test_other_dialects_are_options(cli: CommandLine, warehouse: Warehouse) -> None:
    assert cli("create", "t", "-c", "a STRING, b STRING").code == ExitCode.OK
    Path("f.csv").write_text('a;b\n"caf\u00e9"";";NULL\n5,disk;x\n')
    options = ("--delimiter", ";", "--null", "NULL")
    answer = cli("ingest", "t", "f.csv", *options)
    assert answer.code == ExitCode.OK, answer.err
    rows = [(row["a"], row["b"]) for row in warehouse.table("t").snapshot().to_arrow().to_pylist()]
    assert rows == [('caf\u00e9";', None), ("5,disk", "x")]


def test_ingest_reads_what_rows_wrote(cli: CommandLine, warehouse: Warehouse) -> None:
    values = {
        "STRING": ["", None, 'a,"b"\r\n\\', " NULL "],
        "BIGINT": [2**63 - 1, -(2**63), None],
        "INT": [2**31 - 1, None],
        "SMALLINT": [-(2**15), None],
        "TINYINT": [127, None],
        "DOUBLE": [0.1, -0.0, 5e-324, 2.0**60, math.inf, -math.inf, math.nan],
        "FLOAT": [16777216.0, 123456792.0, 2.0**-149, math.inf, None],
        "DECIMAL(38,18)": [Decimal("-0.000000000000000001"), Decimal("99999999999999999999.5"), None],
        "BOOLEAN": [True, False, None],
        "DATE": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None],
        "TIMESTAMP": [datetime.datetime(1500, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC), None],
        "TIMESTAMP_NTZ": [datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), None],  # noqa: DTZ001
        "BINARY": [b"", b"\x00\xff", None],
    }
    columns = {f"c{number}": kind for number, kind in enumerate(values)}
    for name in ("t", "u"):
        made = cli("create", name, "-c", ", ".join(f"{column} {kind}" for column, kind in columns.items()))
        assert made.code == ExitCode.OK, made.err
    longest = max(map(len, values.values()))
    given = {name: (values[kind] + [None] * longest)[:longest] for name, kind in columns.items()}
    table = warehouse.table("t")
    table.append(pa.table(given, table.snapshot().to_arrow().schema))
    written = CliRunner().invoke(application, ["rows", "t", "-w", str(warehouse.directory)])
    Path("t.csv").write_bytes(written.stdout_bytes)  # unlike `stdout`, with CR LF
    answer = cli("ingest", "u", "t.csv")
    assert answer.code == ExitCode.OK, answer.err
    written, read = (warehouse.table(name).snapshot().to_arrow().to_pydict() for name in ("t", "u"))
    assert repr(read) == repr(written)  # NaN equals itself


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    contents = [pa.table({"a": [1, 2], "b": [3, 4]}), pa.table({"b": [3, 4, 5], "a": [1, 2, 6]})]
    arrow_csv.write_csv(contents[0], path)
    files = InputFiles.of([path])
    typed = files.typed(from_arrow(contents[0].schema))
    assert sum(batch.num_rows for batch in typed.batches()) == 2
    arrow_csv.write_csv(contents[1], path)
    with pytest.raises(InvalidRequestError, match="was changed while it was read"):
        list(typed.batches())
