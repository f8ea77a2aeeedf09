"""What a new user tries first: the entry points of `refimpl` with valid and invalid values, and other systems. Then
tables that are opened by their paths, through the owner that they name: managed-commits, "Managed Commit Enablement".
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refimpl
from refimpl.care.verify import verify
from refimpl.cli.output import ExitCode, exit_code
from refimpl.client.create import create_filesystem_table
from refimpl.client.ownership import hand_back, take_over
from refimpl.client.table import Table
from refimpl.protocol.commit_owner import CommitOwner, MaintenancePolicy
from refimpl.protocol.errors import InvalidRequestError, PathAccessError, TableNotFoundError
from refimpl.protocol.table_feature import MANAGED_COMMIT
from refimpl.storage import files
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse, owner_names
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


SCHEMA = pa.schema([("id", pa.int64())])
ROWS = pa.table({"id": [1]})
ON_REQUEST = MaintenancePolicy(backfill_every=None)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_names, "_builders", {"refimpl": refimpl.warehouse_owner})
    monkeypatch.setattr(owner_names, "_owners", {})


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[tuple[Warehouse, Warehouse]]:
    """Two owners, that may both take over tables below one folder."""
    (tmp_path / "plain").mkdir()
    with (
        refimpl.open(tmp_path / "a", create=True, roots=[tmp_path / "plain"]) as first,
        refimpl.open(
            tmp_path / "b", create=True, roots=[tmp_path / "plain"], name="lake-2", conf={"warehouse": f"{tmp_path}/b"}
        ) as second,
    ):
        yield first, second


def test_a_table_is_opened_through_the_owner_that_it_names(lakes: tuple[Warehouse, Warehouse]) -> None:
    refimpl.register_owner("lake-2", refimpl.warehouse_owner)
    for lake, conf in zip(lakes, (None, f'{{"warehouse":"{lakes[1].directory}"}}'), strict=True):
        made = lake.create_table("orders", SCHEMA, feature=MANAGED_COMMIT, policy=ON_REQUEST)
        made.append(ROWS)
        table = refimpl.open_table(made.location)
        assert (table.table_id, table.snapshot().version) == (made.table_id, 1)
        assert Table.by_path(made.location).snapshot().version == 0
        assert table.append(ROWS).version == 2  # type: ignore[union-attr]
        properties = table.snapshot().metadata.configuration
        assert properties["delta.managedCommit.commitOwner"] == lake.owner.name
        assert properties.get("delta.managedCommit.commitOwnerConf") == conf
        assert refimpl.open_table(str(made.location)).owner is table.owner


def test_the_warehouse_around_the_table_completes_its_configuration(tmp_path: Path) -> None:
    with refimpl.open(tmp_path, create=True, conf={"endpoint": "x"}) as lake:
        made = lake.create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
        assert refimpl.open_table(made.location).table_id == made.table_id


def test_a_builder_returns_an_owner(lakes: tuple[Warehouse, Warehouse]) -> None:
    refimpl.register_owner("lake-2", lambda name, conf: None)  # type: ignore[arg-type,return-value]
    made = lakes[1].create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
    with pytest.raises(InvalidRequestError, match="returned None; expected an owner"):
        refimpl.open_table(made.location)


def test_a_builder_may_register_owners(lakes: tuple[Warehouse, Warehouse]) -> None:
    def build(_: str, conf: Mapping[str, str]) -> CommitOwner:
        refimpl.register_owner("another", refimpl.warehouse_owner)
        return lakes[1].owner

    refimpl.register_owner("lake-2", build)
    assert owner_names.owner_named("lake-2", {}) is lakes[1].owner


def test_one_owner_is_kept_for_each_configuration(lakes: tuple[Warehouse, Warehouse]) -> None:
    built: list[Mapping[str, str]] = []

    def build(name: str, conf: Mapping[str, str]) -> CommitOwner:
        built.append(conf)
        return refimpl.warehouse_owner(name, {"warehouse": str(lakes[1].directory)})

    refimpl.register_owner("lake-2", build)
    refimpl.register_owner("lake-2", build)
    one, two = {"b": "2", "a": "1"}, {"a": "1"}
    assert owner_names.owner_named("lake-2", one) is owner_names.owner_named("lake-2", dict(reversed(one.items())))
    assert owner_names.owner_named("lake-2", two) is not owner_names.owner_named("lake-2", one)
    assert built == [one, two]
    for name, other in (("lake-2", refimpl.warehouse_owner), ("refimpl", build)):
        with pytest.raises(InvalidRequestError, match="is registered already"):
            refimpl.register_owner(name, other)


def test_an_owner_is_found_as_an_entry_point(
    lakes: tuple[Warehouse, Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lakes[1].create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
    with pytest.raises(InvalidRequestError, match="unknown commit owner 'lake-2'; expected one of refimpl"):
        refimpl.open_table(made.location)
    entry = EntryPoint(name="lake-2", value="refimpl:warehouse_owner", group=owner_names.ENTRY_POINTS)
    monkeypatch.setattr(owner_names, "entry_points", lambda group: EntryPoints([entry]).select(group=group))
    assert refimpl.open_table(made.location).table_id == made.table_id


def test_tables_without_such_an_owner(lakes: tuple[Warehouse, Warehouse], tmp_path: Path) -> None:
    plain = create_filesystem_table(tmp_path / "plain" / "t", Environment(), SCHEMA)
    assert refimpl.open_table(plain.location).owner is None
    with pytest.raises(PathAccessError):
        refimpl.open_table(lakes[0].create_table("managed", SCHEMA).location)
    with pytest.raises(TableNotFoundError):
        refimpl.open_table(tmp_path / "nothing")
    owned = take_over(plain, lakes[0].owner, "t", MANAGED_COMMIT)
    with pytest.raises(InvalidRequestError, match="its configuration has no 'warehouse'"):
        refimpl.open_table(owned.location)
    hand_back(owned)
    assert refimpl.open_table(plain.location).owner is None
    wrong = take_over(plain, lakes[0].owner, "t", MANAGED_COMMIT, owner_conf={"warehouse": str(lakes[1].directory)})
    with pytest.raises(InvalidRequestError, match="is called 'lake-2'; expected 'refimpl'"):
        refimpl.open_table(wrong.location)


def test_the_name_is_kept_and_cannot_change_once_it_is_used(lakes: tuple[Warehouse, Warehouse], tmp_path: Path) -> None:
    for lake in lakes:
        lake.create_table("orders", SCHEMA, feature=MANAGED_COMMIT)
    for name, conf in (("other", None), (" ", None), (None, {"password": "x"})):
        with pytest.raises(InvalidRequestError):
            refimpl.open(tmp_path / "b", name=name, conf=conf)
    with refimpl.open(tmp_path / "b") as again:
        assert (again.owner.name, again.owner.conf) == ("lake-2", {"warehouse": f"{tmp_path}/b"})
        assert verify(again.owner) == []
