"""Every command: exit codes without tracebacks, the form of the output, and the help."""

import datetime
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import refimpl
from refimpl import __version__
from refimpl.cli import output
from refimpl.cli.application import application
from refimpl.cli.options import duration_ms
from refimpl.cli.output import ExitCode, exit_code, message
from refimpl.client.maintenance import write_checkpoint
from refimpl.protocol import errors
from refimpl.protocol.in_commit_timestamp import checked, milliseconds
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine

SCRIPT = Path(sys.executable).with_name("commit-owner")


def _kinds(base: type[errors.DeltaError]) -> list[type[errors.DeltaError]]:
    return [base, *(kind for child in base.__subclasses__() for kind in _kinds(child))]


def test_every_error_class_has_an_exit_code() -> None:
    codes = {
        errors.OutcomeUnknown: {ExitCode.OUTCOME_UNKNOWN},
        errors.CorruptionError: {ExitCode.CORRUPTION},
        errors.OwnerUnavailableError: {ExitCode.UNAVAILABLE},
        errors.InvalidRequestError: {ExitCode.USAGE, ExitCode.REFUSED},
        errors.DeltaError: {ExitCode.REFUSED},
    }
    for kind in _kinds(errors.DeltaError)[1:]:
        (base, *_) = (base for base in codes if issubclass(kind, base))
        assert exit_code(kind("it is so")) in codes[base], kind


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OwnerUnavailableError("the disk is full"), ExitCode.UNAVAILABLE),
        (errors.CorruptLogError("0.json is malformed"), ExitCode.CORRUPTION),
        (errors.ConcurrentAppendError("rows were added"), ExitCode.REFUSED),
        (PermissionError(13, "Permission denied", "/somewhere"), ExitCode.UNAVAILABLE),
        (OSError(28, "No space left on device"), ExitCode.UNAVAILABLE),
        (FileNotFoundError(2, "No such file or directory", "/nowhere"), ExitCode.USAGE),
        (ZeroDivisionError("division by zero"), ExitCode.DEFECT),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_exception_ends_as_two_lines_and_an_exit_code(
    cli: CommandLine, sales: str, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: ExitCode
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(refimpl, "open", fail)
    answer = cli("commits", sales)
    assert answer.code == code
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) <= 2


def test_unknown_outcomes_and_corruption_name_the_next_command() -> None:
    assert "commit-owner verify" in message(errors.CorruptLogError("0.json is malformed"))
    assert "verify" not in message(errors.CorruptDataError("a.parquet is missing; restore the file"))
    error = errors.OutcomeUnknown("no answer came", table_id="t", version=3, attempt="a")
    assert "commit-owner resolve t a" in message(error)


@pytest.mark.parametrize("facts", [{"table_id": None, "attempt": "a"}, {"table_id": "t", "attempt": None}, {}])
def test_an_unresolvable_outcome_is_shown_with_the_next_step(facts: dict[str, object]) -> None:
    text = message(errors.OutcomeUnknown("no answer came", version=3, **facts))
    assert "resolve" not in text
    assert "None" not in text
    assert "read the table at its path" in text
    assert "commit-owner verify" in text


def test_a_lost_staged_file_is_corruption(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    from spec_tests.cli.conftest import commit_rows

    commit_rows(warehouse, sales, {"id": 1, "month": 1})
    for staged in (warehouse.table(sales).location / "_delta_log" / "_staged_commits").iterdir():
        staged.unlink()
    assert cli("log", sales).code in (ExitCode.CORRUPTION, ExitCode.OK)
    assert cli("show", sales).code == ExitCode.CORRUPTION
    assert cli("backfill", sales).code == ExitCode.CORRUPTION


@pytest.mark.longer
@pytest.mark.processes
def test_the_console_script_is_this_command_line(tmp_path: Path) -> None:
    made = subprocess.run([SCRIPT, "init", tmp_path / "w", "--json"], capture_output=True, text=True, check=True)
    assert str(tmp_path / "w") in made.stdout
    assert made.stderr == ""
    refused = subprocess.run([SCRIPT, "show", "nothing", "-w", tmp_path / "w"], capture_output=True, text=True)
    assert refused.returncode == ExitCode.USAGE
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.longer
@pytest.mark.processes
def test_a_logged_warning_is_a_line_on_stderr(warehouse: Warehouse, sales: str) -> None:
    table = warehouse.table(sales)
    path = table.location / "_delta_log" / write_checkpoint(table).name
    path.write_bytes(b"PAR1")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([SCRIPT, *words, "-w", warehouse.directory], capture_output=True, text=True, check=True)

    (line,) = run("checkpoint", sales, "--checksum").stderr.splitlines()
    assert line.startswith("warning: ")
    assert path.name in line
    shown = run("show", sales)
    assert (shown.stderr, shown.stdout.count(path.name)) == ("", 1)


@pytest.mark.longer
@pytest.mark.processes
def test_closed_pipe_ends_a_command_without_a_message(tmp_path: Path) -> None:
    """`commit-owner show | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    refimpl.open(tmp_path / "w", create=True).close()
    for words in (["show"], ["verify"]):
        process = subprocess.run([SCRIPT, *words, "-w", tmp_path / "w"], stdout=writing, stderr=subprocess.PIPE)
        assert (process.returncode, process.stderr) == (128 + signal.SIGPIPE, b"")
    os.close(writing)


@pytest.mark.processes
def test_the_command_line_starts_without_arrow_spark_or_the_owner() -> None:
    """The commands import heavy modules only when they run, so `commit-owner --help` is quick."""
    listed = subprocess.run(
        [sys.executable, "-c", "import refimpl.cli.application, sys; print(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {"pyarrow", "pyspark", "pandas", "apsw", "sqlglot", "filelock", "refimpl.owner", "refimpl.warehouse"}
    assert heavy.isdisjoint(listed)


# Output


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "1970-01-01 00:00:00.000Z"),
        (1_795_232_058_477, "2026-11-21 03:34:18.477Z"),
        (None, "-"),
        (10**18, f"{10**18} ms"),
    ],
)
def test_moments_are_in_utc_with_their_milliseconds(milliseconds: int | None, shown: str) -> None:
    assert output.moment(milliseconds) == shown


@pytest.mark.parametrize(("number", "shown"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (3_000_000_000, "3.0 GB")])
def test_sizes_have_a_unit(number: int, shown: str) -> None:
    assert output.size(number) == shown


@pytest.mark.parametrize(
    ("given", "milliseconds"), [("5ms", 5), ("90s", 90_000), ("24h", 86_400_000), ("7d", 604_800_000)]
)
def test_lengths_of_time_have_a_unit(given: str, milliseconds: int) -> None:
    assert duration_ms(given) == milliseconds


def test_moments_without_a_zone_are_utc() -> None:
    assert checked("2026-11-21T03:34:18.477") == checked("2026-11-21T05:34:18.477+02:00") == 1_795_232_058_477
    assert checked("1795232058477") == 1_795_232_058_477


def test_fraction_of_a_millisecond_is_cut_off() -> None:
    """Otherwise a later commit could be found. `timestampAsOf` cuts it off, too."""
    moment = datetime.datetime.fromisoformat("2026-11-21T03:34:18.477999+00:00")
    assert checked(moment.isoformat()) == milliseconds(moment) == 1_795_232_058_477
    assert milliseconds(moment.replace(year=1969)) % 1000 == 477
    exact = [datetime.datetime.fromtimestamp(0, datetime.UTC).replace(microsecond=ms * 1000) for ms in range(1000)]
    assert [milliseconds(time) for time in exact] == list(range(1000))


def test_a_table_in_a_pipe_has_no_padding_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    output.TextTable(columns=("n", "text"), rows=[(1000, "a"), (2, "[bold]literally[/bold]")], right=("n",)).show()
    assert capsys.readouterr().out == "    n  text\n1,000  a\n    2  [bold]literally[/bold]\n"


def test_a_long_value_is_complete_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.TextTable(columns=("text", "n"), rows=[("x" * 5000, 1), ("y", 2)]).show()
    assert capsys.readouterr().out.splitlines() == ["text  n", "x" * 5000 + "  1", "y     2"]


def test_column_names_are_printed_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.TextTable(columns=(">year", "=a", "[bold]b[/bold]"), rows=[("1", "2", "3")]).show()
    assert capsys.readouterr().out.splitlines()[0].split() == [">year", "=a", "[bold]b[/bold]"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2024, "2024"),
        (True, "true"),
        (0.5, "0.5"),
        (b"\x00\xff", "00ff"),
        (None, ""),
        ("null", "null"),
        ("", '""'),
        ([1, None, b"\x01"], "[1, null, 01]"),
        ({"a": True, "b": "x"}, "{a: true, b: x}"),
        ([("k", 1000)], "[k -> 1000]"),
    ],
)
def test_table_values_are_shown_unchanged(value: object, shown: str) -> None:
    assert output.cell(value) == shown


# Calls that are refused

FILES: dict[str, bytes] = {
    "rows.csv": b"id,month\n1,1\n", "rows.json": b"{}", "latin-1.csv": "caf\u00e9\n1\n".encode("latin-1"),
    "empty.csv": b"", "blank.csv": b"\n\n", "turned.csv": b"month,id\n1,1\n", "twice.csv": b"id,ID\n1,1\n",
    "no.csv.gz": b"no gzip", "ids.csv": b"id\n1\n",
    "folder.csv/_SUCCESS": b"",
}  # fmt: skip
REFUSED = """
=> Usage: commit-owner
comits => did you mean 'commits'
show sails => 'sails'
show sales --version 3 => version 3
show sales --timestamp 1999-12-31 => 1999-12-31
show sales --timestamp yesterday => 'yesterday'
show sales --timestamp 2026-01-01 --version 1 => mutually exclusive
show --version 0 => need a TABLE
log sales --limit 0 => not '0'
log sales --limit ten => not 'ten'
commits sales --start -1 => -1
commits sales --start 3 --end 1 => is empty
commits sales --start x => not 'x'
resolve sales 7 => '7' is not an attempt id
hand-back nothing => 'nothing'
drop sales => --yes
init place --root nowhere => nowhere
init place --store s3=s3://a/x --store s3=s3://b/y => s3://a/x and s3://b/y
create other => --columns
create other -c id => id BIGINT NOT NULL
create other -c 'id INT DEFAULT 3' => DEFAULT 3
create other -c 'id INTERVAL DAY' => INTERVAL
create other -c 'id INT, id INT' => id
create other -c 'id INT' -p month => month
create other -c 'id INT' --feature unmanaged => 'unmanaged'
create other -c 'id INT' --commit-mode sideways => 'sideways'
create other -c 'id INT' --feature managedCommit --commit-mode inline => inline
policy sales --backfill-every 0 => 0
policy sales --backfill-every often => 'often'
create other -c 'id INT' --property novalue => 'novalue'
create other -c 'id INT' --location /etc/sales => /etc/sales
ingest sales latin-1.csv => 'utf-8' codec can't decode
create other -c 'id INT' --property delta.logRetentionDuration=7d => 'interval 7 days'
alter sales => property
alter sales --property a=b --type month=BIGINT => delta.enableTypeWidening=true
alter sales --type month => 'month'
alter sales --type 'month=BIGINT, x INT' => expected one Spark SQL type
alter sales --type 'month=BIGINT NOT NULL' => expected one Spark SQL type
alter sales --type 'month=ARRAY<INT>' => array
alter sales --type month=FOO => unknown type 'FOO'
alter sales --type nothing=INT => 'nothing'
alter sales --property delta.columnMapping.mode=id => mode
alter sales --remove-property x => 'x'
backfill sales --to -1 => -1
cleanup sales --older-than soon => 'soon'
repair --older-than old => 'old'
policy sales --backlog-limit 0 => backlog
policy sales --backfill-every -1 => '-1'
policy sales --allow mowing => 'mowing'
policy sales --allow optimize,vacuum --forbid vacuum => both name vacuum
rows sales --columns nope => 'nope'; the columns are id, month
rows sales --limit -1 => not '-1'
rows sales --version 9 => latest version is 0
rows sales --version 0 --timestamp 1 => mutually exclusive
rows sales --timestamp noon => 'noon'; expected ISO 8601
rows sales --format xml => 'xml'; expected one of table, csv
rows sales --json --format csv => mutually exclusive
ingest sales => missing argument
ingest sales rows.csv --delimiter :: => '::'
ingest sales nowhere.csv => nowhere.csv
ingest sales rows.json => *.csv
ingest sales rows.parquet => *.csv
ingest sales rows.csv --mode upsert => 'upsert'
ingest sales empty.csv => empty.csv cannot be read: Empty CSV file
ingest sales blank.csv => blank.csv
ingest sales rows.csv turned.csv => turned.csv has the columns month, id
ingest sales twice.csv => twice
ingest sales no.csv.gz => no.csv.gz cannot be read: Not a gzipped file
ingest sales ids.csv => lack the columns 'month'
ingest sales rows.csv ./rows.csv => rows.csv is given twice; pass it once
ingest nothing rows.csv => 'nothing'
init http://h:1 => invalid folder 'http:/h:1'; expected a path
ingest sales pipe.csv => pipe.csv is not a file
ingest sales folder.csv => give its files
ingest sales {long}.csv => xxx
"""
"""A call, and a part of its message."""


@pytest.fixture
def files(cli: CommandLine) -> set[Path]:
    """Files in the current directory for these calls."""
    for name, content in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content)
    parquet.write_table(pa.table({"id": [1], "month": [1]}), "rows.parquet")
    os.mkfifo("pipe.csv")
    return set(Path().rglob("*"))


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_refused_call_says_what_is_wrong_and_changes_nothing(
    cli: CommandLine, warehouse: Warehouse, sales: str, files: set[Path], row: str
) -> None:
    """It changes no table and writes no file."""
    words, _, wanted = row.replace("{long}", "x" * 300).partition("=> ")
    answer = cli(*shlex.split(words))
    assert answer.code == ExitCode.USAGE, answer
    assert wanted in " ".join((answer.out + answer.err).split())
    assert not answer.out or not words
    assert warehouse.tables() == [sales]
    assert warehouse.owner.resolve(sales).commits.latest_ratified_version == 0
    assert set(Path().rglob("*")) == files
    assert not list(warehouse.directory.rglob("*.parquet"))


# Help

COMMANDS = sorted(
    {command.name or command.callback.__name__ for command in application.registered_commands if command.callback}
)
ISSUED = {
    *("demo", "init", "create", "ingest", "show", "log", "commits", "backfill", "checkpoint", "cleanup"),
    *("take-over", "hand-back", "drop", "verify", "repair", "backup", "resolve", "policy"),
    *("optimize", "vacuum", "serve", "undrop", "alter"),
    "rows",
}
SERVES = {"serve"}
"""This command runs until it is stopped, and its first line is always JSON."""


def test_list_of_commands_is_complete() -> None:
    assert set(COMMANDS) == ISSUED


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_description_and_an_example(cli: CommandLine, command: str) -> None:
    answer = cli(command, "--help")
    assert "<bool>" not in answer.out
    assert answer.code == ExitCode.OK
    assert f"Usage: commit-owner {command}" in answer.out
    assert re.search(rf"Examples?:[\s\S]*commit-owner {command}", answer.out)
    assert ("--json" in answer.out) == (command not in SERVES)
    assert max(len(line) for line in answer.out.splitlines()) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_a_usage_error_in_two_lines(cli: CommandLine, command: str) -> None:
    answer = cli(command, "--no-such-option")
    assert answer.code == ExitCode.USAGE
    assert answer.out == ""
    first, second = answer.err.splitlines()
    assert first.startswith("error: no such option: --no-such-option")
    assert second == f"see: commit-owner {command} --help"


def test_help_lists_every_command_and_every_exit_code(cli: CommandLine) -> None:
    answer = cli("--help")
    assert answer.code == ExitCode.OK
    for command in COMMANDS:
        assert re.search(rf"│ {command}\s", answer.out), command
    help_text = " ".join(answer.out.split())
    for code in ExitCode:
        assert re.search(rf"[:·] {code.value} ", help_text), code


def test_version_option_shows_the_package_version(cli: CommandLine) -> None:
    answer = cli("--version")
    assert (answer.code, answer.out) == (ExitCode.OK, f"commit-owner {__version__}\n")
