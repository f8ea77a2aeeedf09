"""What a new user tries first: the entry points of `refimpl` with valid and invalid values, and other systems."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refimpl
from refimpl.cli.output import ExitCode, exit_code
from refimpl.protocol.commit_owner import MaintenancePolicy
from refimpl.protocol.errors import InvalidRequestError
from refimpl.protocol.table_feature import MANAGED_COMMIT
from refimpl.storage import files
from refimpl.warehouse import Warehouse
from spec_tests.support.sampling import sampled

Policy: Any = MaintenancePolicy
COMMAND = "from refimpl.cli import main; main()"
EACH_COMMAND = """
import sys
from refimpl.cli import run
_, warehouse, *calls = sys.argv
for words in calls:
    sys.argv = ["commit-owner", *words.split(), "-w", warehouse]
    try:
        run()
    except SystemExit as end:
        print(f"exit {end.code or 0}", file=sys.stderr)
"""
"""Runs each argument after the first one as a command, and shows its exit code."""
LOOKS = ("show", "log orders", "rows orders", "verify")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    opened = refimpl.open(tmp_path / "lake", create=True)
    opened.create_table("orders", {"id": "long", "price": "decimal(10,2)", "day": pa.date32()})
    return opened


def _id(warehouse: Warehouse) -> str:
    identifier = warehouse.table("orders").table_id
    assert identifier is not None
    return identifier


def test_a_schema_may_be_types_by_column(warehouse: Warehouse) -> None:
    schema = warehouse.table("orders").snapshot().schema
    assert str(schema) == "struct<id:long,price:decimal(10,2),day:date>"


def test_a_time_may_be_a_datetime_a_text_or_milliseconds(warehouse: Warehouse) -> None:
    orders = warehouse.table("orders")
    orders.append(pa.table({"id": [1]}))
    moment = datetime.fromtimestamp(orders.snapshot(version=0).timestamp / 1000, UTC)
    in_utc = moment.replace(tzinfo=None).isoformat()
    for given in (moment, moment.isoformat(), in_utc, orders.snapshot(version=0).timestamp):
        assert orders.snapshot(timestamp=given).version == 0
    with pytest.raises(InvalidRequestError, match="with a time zone"):
        orders.snapshot(timestamp=moment.replace(tzinfo=None))


def test_a_repeated_column_is_named(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidRequestError, match="repeat columns: 'id'"):
        warehouse.table("orders").append(pa.table([[1], [2]], ["id", "id"]))


@pytest.mark.parametrize(
    "call",
    [
        lambda warehouse: warehouse.table(None),
        lambda warehouse: warehouse.table(b"orders"),
        lambda warehouse: warehouse.create_table(None, {"id": "long"}),
        lambda warehouse: warehouse.create_table("t", {"id": int}),
        lambda warehouse: warehouse.create_table("t", {"id": "BIGINT"}),
        lambda warehouse: warehouse.create_table("t", {1: "long"}),
        lambda warehouse: warehouse.create_table("t", [("id", "long")]),
        lambda warehouse: warehouse.create_table("t", None),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, feature="managedCommit"),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, commit_mode="inline"),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, partition_columns="id"),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, partition_columns=None),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, properties=["a"]),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, location=3),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, policy={"allowed": []}),
        lambda warehouse: warehouse.create_table("t", {"id": "long"}, policy=Policy(backfill_every=True)),
        lambda warehouse: warehouse.owner.set_policy(_id(warehouse), Policy(allowed=frozenset({"vaccum"}))),
        lambda warehouse: warehouse.owner.set_policy(_id(warehouse), Policy(backlog_limit=2.5)),
        lambda warehouse: warehouse.owner.set_policy(_id(warehouse), Policy(hand_back=None)),
        lambda warehouse: warehouse.table("orders").append(pa.table({"id": [1]}), app="x"),
        lambda warehouse: warehouse.table("orders").alter(properties="a=b"),
        lambda warehouse: warehouse.table("orders").alter(remove="delta.x"),
        lambda warehouse: warehouse.table("orders").changes("a"),
        lambda warehouse: warehouse.table("orders").history("x"),
        lambda warehouse: warehouse.table("orders").snapshot(timestamp=1.5),
        lambda warehouse: warehouse.table("orders").snapshot().to_arrow("id"),
        lambda warehouse: refimpl.open_table(None),
        lambda warehouse: refimpl.open_table(""),
        lambda warehouse: refimpl.register_owner(None, print),
        lambda warehouse: refimpl.register_owner("x", None),
        lambda warehouse: refimpl.open(None),  # type: ignore[call-overload]
        lambda warehouse: refimpl.open(""),
        lambda warehouse: refimpl.open(__file__),
        lambda warehouse: refimpl.open(f"{__file__}/folder"),
    ],
)
def test_an_invalid_value_is_named(warehouse: Warehouse, call: Callable[[Warehouse], object]) -> None:
    with pytest.raises(InvalidRequestError, match="expected"):
        call(warehouse)
    assert warehouse.tables() == ["orders"]


def test_the_package_and_its_objects_describe_themselves(warehouse: Warehouse) -> None:
    assert "open" in dir(refimpl)
    assert repr(warehouse) == f"<Warehouse {warehouse.directory}>"
    assert repr(refimpl.open("http://127.0.0.1:1", token="t")) == "<RemoteWarehouse http://127.0.0.1:1 (unity.default)>"
    assert "orders" in repr(warehouse.table("orders"))


@pytest.mark.parametrize("lost", ["_owner", "_owner/ledger.sqlite"])
@pytest.mark.parametrize("create", [False, True])
def test_a_lost_ledger_is_damage(warehouse: Warehouse, lost: str, create: bool) -> None:
    warehouse.close()
    path = warehouse.directory / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(refimpl.protocol.errors.CorruptLedgerError) as raised:
        refimpl.open(warehouse.directory, create=create)
    assert exit_code(raised.value) == ExitCode.CORRUPTION


def test_the_lost_ledger_of_an_owner_with_a_name_is_damage(tmp_path: Path) -> None:
    opened = refimpl.open(tmp_path, create=True, name="lake-2")
    opened.create_table("deep", {"id": "long"}, feature=MANAGED_COMMIT, location=tmp_path / "a" / "b" / "deep")
    opened.close()
    shutil.rmtree(tmp_path / "_owner")
    for create in (False, True):
        with pytest.raises(refimpl.protocol.errors.CorruptLedgerError, match="is missing"):
            refimpl.open(tmp_path, create=create)
    assert not (tmp_path / "_owner").exists()


@pytest.mark.parametrize("wanted", [{"name": " "}, {"name": 3}, {"conf": {"token": "x"}}, {"conf": "a"}])
def test_a_refused_owner_leaves_no_warehouse(tmp_path: Path, wanted: Any) -> None:
    with pytest.raises(InvalidRequestError):
        refimpl.open(tmp_path / "lake", create=True, **wanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    "missing_and_unwritable",
    sampled([
        ("", "."), ("-shm", "."), ("", "_owner/ledger.sqlite"), ("-wal", "."), ("", "_owner/ledger.sqlite-wal"),
    ], 3),
)  # fmt: skip
def test_a_warehouse_that_cannot_be_written_is_shown(
    warehouse: Warehouse, missing_and_unwritable: tuple[str, str]
) -> None:
    """Root may write everywhere, unless its process lacks the capability."""
    missing, unwritable = missing_and_unwritable
    warehouse.table("orders").append(pa.table({"id": [1]}))
    warehouse.close()
    wrapper = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    if wrapper and shutil.which("setpriv") is None:
        pytest.skip("root needs setpriv")
    if missing:
        (warehouse.directory / f"_owner/ledger.sqlite{missing}").unlink()
    subprocess.run(["chmod", "-R", "a-w", warehouse.directory / unwritable], check=True)
    try:
        commands = [*LOOKS, "drop -y orders"]
        call = [*wrapper, sys.executable, "-c", EACH_COMMAND, str(warehouse.directory), *commands]
        done = subprocess.run(call, capture_output=True, text=True)
        lines = done.stderr.splitlines()
        if missing == "-wal":  # it may have held the newest commits
            assert lines[1::2] == ["exit 2"] * len(commands), done
            assert all("ledger.sqlite-wal is missing" in line for line in lines[::2]), done
        else:
            assert [line for line in lines if line.startswith("exit ")] == ["exit 0"] * len(LOOKS) + ["exit 3"], done
    finally:
        subprocess.run(["chmod", "-R", "u+w", warehouse.directory], check=True)


@pytest.mark.processes
def test_other_encodings_get_a_clear_answer(warehouse: Warehouse) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    warehouse.create_table("t", {"é😀": "long"}, properties=mapped)
    call = [sys.executable, "-c", COMMAND, "show", "t", "-w", str(warehouse.directory)]
    done = subprocess.run(call, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert (done.returncode, b"\\u00e9\\ud83d\\ude00" in done.stdout) == (0, True), done


@pytest.mark.processes
@pytest.mark.parametrize("system", ["win32", "cygwin", "freebsd14"])
@pytest.mark.parametrize(
    "command, imports",
    [
        ("C:\\Scripts\\commit-owner.exe", "from refimpl.cli import main; main()"),
        ("/usr/bin/commit-owner", "from refimpl.cli import main; main()"),
        ("-m", "import refimpl"),  # python -m refimpl
        ("/usr/bin/delta-commit-conformance", "from conformance.command import main; main()"),
        ("application.py", "import refimpl"),
    ],
)
def test_another_system_is_refused_in_one_sentence(system: str, command: str, imports: str) -> None:
    code = f"import sys; sys.platform, sys.argv = {system!r}, [{command!r}]; {imports}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert f"runs on Linux and macOS, not on {system}" in lines[-1]
    assert (done.returncode, len(lines) == 1) == ((1, False) if command == "application.py" else (2, True)), done


def test_a_full_sync_is_used_where_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(files, "FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: calls.append(("full", command)))
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append(("plain", 0)))
    with files.PosixFiles().create(tmp_path / "new") as file:
        file.fsync()
    files.PosixFiles().fsync_directory(tmp_path)
    assert calls == [("full", 51)] * 2

    def unsupported(descriptor: int, command: int) -> None:
        raise OSError

    monkeypatch.setattr(fcntl, "fcntl", unsupported)
    files.PosixFiles().fsync(tmp_path / "new")
    assert calls[2:] == [("plain", 0)]
