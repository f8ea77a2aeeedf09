"""Every kind of failure has one exit code, and none shows a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refimpl import errors
from refimpl.cli import history
from refimpl.cli.output import ExitCode, exit_code, message
from refimpl.warehouse import Warehouse
from spec_tests.cli.conftest import CommandLine

SCRIPT = Path(sys.executable).with_name("commit-owner")


def _kinds(base: type[errors.DeltaError]) -> list[type[errors.DeltaError]]:
    return [base, *(kind for child in base.__subclasses__() for kind in _kinds(child))]


@pytest.mark.parametrize("kind", _kinds(errors.DeltaError)[1:], ids=lambda kind: kind.__name__)
def test_every_error_of_the_project_says_what_a_script_should_do(kind: type[errors.DeltaError]) -> None:
    code = exit_code(kind("it is so"))
    if issubclass(kind, errors.OutcomeUnknown):
        assert code is ExitCode.OUTCOME_UNKNOWN
    elif issubclass(kind, errors.CorruptionError):
        assert code is ExitCode.CORRUPTION
    elif issubclass(kind, errors.OwnerUnavailableError):
        assert code is ExitCode.UNAVAILABLE
    elif issubclass(kind, errors.InvalidRequestError):
        assert code in (ExitCode.USAGE, ExitCode.REFUSED)
    else:
        assert code is ExitCode.REFUSED


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
def test_whatever_happens_inside_ends_as_two_lines_and_a_code(
    cli: CommandLine, sales: str, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: ExitCode
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(history, "opened", fail)
    answer = cli("commits", sales)
    assert answer.code == code
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) <= 2


def test_an_unknown_outcome_is_answered_with_the_command_that_resolves_it() -> None:
    error = errors.OutcomeUnknown("no answer came", table_id="t", version=3, attempt="a")
    assert "commit-owner resolve t a" in message(error)


@pytest.mark.parametrize("facts", [{"table_id": None, "attempt": "a"}, {"table_id": "t", "attempt": None}, {}])
def test_an_unknown_outcome_that_no_owner_can_resolve_is_answered_with_how_to_look(facts: dict[str, object]) -> None:
    text = message(errors.OutcomeUnknown("no answer came", version=3, **facts))
    assert "resolve" not in text
    assert "None" not in text
    assert "commit-owner show PATH --by-path" in text
    assert "commit-owner verify" in text


def test_a_damaged_ledger_stops_everything(cli: CommandLine, warehouse: Warehouse) -> None:
    warehouse.close()
    warehouse.owner.ledger.path.write_bytes(b"this is not a database, and it is long enough to be looked at" * 40)
    answer = cli("show")
    assert answer.code == ExitCode.CORRUPTION
    assert "backup" in answer.err


def test_a_lost_staged_file_is_corruption(cli: CommandLine, warehouse: Warehouse, sales: str) -> None:
    from spec_tests.cli.rows import commit_rows

    commit_rows(warehouse, sales, {"id": 1, "month": 1})
    for staged in (warehouse.table(sales).location / "_delta_log" / "_staged_commits").iterdir():
        staged.unlink()
    assert cli("log", sales).code in (ExitCode.CORRUPTION, ExitCode.OK)
    assert cli("show", sales).code == ExitCode.CORRUPTION
    assert cli("backfill", sales).code == ExitCode.CORRUPTION


@pytest.mark.processes
def test_the_console_script_is_this_command_line(tmp_path: Path) -> None:
    made = subprocess.run([SCRIPT, "init", tmp_path / "w", "--json"], capture_output=True, text=True, check=True)
    assert str(tmp_path / "w") in made.stdout
    assert made.stderr == ""
    refused = subprocess.run([SCRIPT, "show", "nothing", "-w", tmp_path / "w"], capture_output=True, text=True)
    assert refused.returncode == ExitCode.USAGE
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.processes
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """`commit-owner show | head -1`: a closed pipe is no error."""
    reading, writing = os.pipe()
    os.close(reading)
    subprocess.run([SCRIPT, "init", tmp_path / "w"], capture_output=True, check=True)
    for words in (["show"], ["show", "--json"], ["verify"]):
        process = subprocess.run([SCRIPT, *words, "-w", tmp_path / "w"], stdout=writing, stderr=subprocess.PIPE)
        assert (process.returncode, process.stderr) == (128 + signal.SIGPIPE, b"")
    os.close(writing)


@pytest.mark.processes
def test_the_command_line_starts_without_arrow_spark_or_the_owner() -> None:
    """Heavy imports are inside the commands, so that `commit-owner --help` is quick."""
    listed = subprocess.run(
        [sys.executable, "-c", "import refimpl.cli.application, sys; print(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {"pyarrow", "pyspark", "pandas", "apsw", "sqlglot", "filelock", "refimpl.owner", "refimpl.warehouse"}
    assert heavy.isdisjoint(listed)
