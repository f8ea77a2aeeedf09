"""Tables in an S3-compatible store: log and data files are objects; the owner's ledger stays on its host."""

import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest

import refimpl
from refimpl.cli.output import ExitCode
from refimpl.client.data_maintenance import missing_files, optimize, vacuum
from refimpl.client.maintenance import write_checkpoint
from refimpl.client.ownership import hand_back
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.actions import DeletionVector
from refimpl.protocol.commit_owner import Maintenance, MaintenancePolicy
from refimpl.protocol.commits import Landed
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.table_feature import MANAGED_COMMIT, CommitMode
from refimpl.rows.data_files import DataFileWriter, read_file
from refimpl.rows.partition_values import decode_path
from refimpl.storage import object_store
from refimpl.storage.environment import Environment, HostLock, random_uuid
from refimpl.storage.files import PosixFiles
from refimpl.storage.log_store import LogStore
from refimpl.storage.object_store import ObjectFiles, StoreError, check_store, record_stores
from spec_tests.cli.conftest import CommandLine, cli
from spec_tests.rows.test_deletion_vectors import bitmap, stored
from spec_tests.server.conftest import SCHEMA, ids_in, rows
from spec_tests.support.faults import FailingFiles, watched_lock
from spec_tests.support.sampling import sampled

__all__ = ["cli"]

deltalake = pytest.importorskip("deltalake", reason="the extra `benchmark` is not installed")
obstore = pytest.importorskip("obstore", reason="the extra `object-stores` is not installed")
exceptions = pytest.importorskip("obstore.exceptions")
from_url = pytest.importorskip("obstore.store").from_url
pytest.importorskip("flask", reason="moto's server is not installed")
moto_server = pytest.importorskip("moto.server", reason="moto is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an S3 server in this process."""
    started = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"http://{host}:{port}"
    started.stop()


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store."""
    for key, value in {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(key, value)
    bucket = f"bucket-{random_uuid()}"
    urllib.request.urlopen(urllib.request.Request(f"{server}/{bucket}", method="PUT"))
    return f"s3://{bucket}/lake"


@pytest.fixture
def directory(tmp_path: Path, store: str) -> Path:
    """A warehouse with the store `s3`."""
    directory = tmp_path / "warehouse"
    refimpl.open(directory, create=True, stores={"s3": store}).close()
    return directory


@pytest.fixture
def lake(directory: Path) -> Iterator[refimpl.Warehouse]:
    with refimpl.open(directory) as opened:
        yield opened


def orders(lake: refimpl.Warehouse, **options: Any) -> Table:
    """A new table in the store. Its policy allows every maintenance job."""
    options = {"policy": MaintenancePolicy(allowed=frozenset(Maintenance)), **options}
    return lake.create_table("orders", SCHEMA, location=lake.directory / "s3.store" / "orders", **options)


def intercept(patcher: pytest.MonkeyPatch, call: str, act: Callable[[Callable[[], Any], str], Any]) -> None:
    """Each such call of the library runs `act` instead, with a function that carries it out, and with its key."""
    original = getattr(obstore, call)

    def called(store: Any, key: str = "", *rest: Any, **options: Any) -> Any:
        return act(lambda: original(store, key, *rest, **options), key)

    patcher.setattr(obstore, call, called)


def objects(url: str) -> set[str]:
    """The names of all objects below the store."""
    return {entry["path"] for page in obstore.list(from_url(url)) for entry in page}


def test_table_is_created_written_read_published_and_checkpointed(directory: Path, store: str) -> None:
    """Each step runs in another process. The host holds only the ledger."""
    location = directory / "s3.store" / "orders"
    log = "orders/_delta_log"
    with refimpl.open(directory) as warehouse:
        table = warehouse.create_table("orders", SCHEMA, partition_columns=["day"], location=location)
        assert objects(store) == {f"{log}/{0:020}.json"}
        for number in range(4):
            assert table.append(rows(2 * number, 2 * number + 1)) is not None
        warehouse.owner.backfill_to_version(table.table_id or "")
    with refimpl.open(directory) as warehouse:
        table = warehouse.table("orders")
        assert ids_in(table) == list(range(8))
        assert ids_in(table, version=2) == list(range(4))
        assert sorted(table.snapshot().to_arrow(["id"], "day = 1")["id"].to_pylist()) == [1, 3, 5, 7]
        write_checkpoint(table)
        table.overwrite(rows(9))
        assert ids_in(warehouse.table("orders")) == [9]
        assert [entry.version for entry in table.history()] == [5, 4, 3, 2, 1, 0]
    names = objects(store)
    assert {f"{log}/{version:020}.json" for version in range(5)} < names
    assert f"{log}/{4:020}.checkpoint.parquet" in names
    assert len([name for name in names if name.startswith("orders/day=")]) == 9
    assert not [name for name in names if ".tmp-" in name]
    assert (directory / "s3.store").is_file()


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("mode", sampled(CommitMode, 3))
def test_failed_put_of_a_commit_is_resolved(
    lake: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, mode: CommitMode, landed: bool
) -> None:
    """The put of the staged or of the published file fails, before or after its effect: the rows are in the table once
    or not at all.
    """
    failed: list[str] = []

    def put(carry_out: Callable[[], Any], key: str) -> None:
        fails = "/_delta_log/" in key and not failed
        if not fails or landed:
            carry_out()
        if fails:
            failed.append(key)
            raise exceptions.GenericError("the answer was lost")

    table = orders(lake, commit_mode=mode)
    with monkeypatch.context() as patched:
        intercept(patched, "put", put)
        try:
            table.append(rows(1))
            expected = [1]
        except OwnerUnavailableError:
            expected = []
        except OutcomeUnknown as unknown:
            outcome = lake.owner.attempt_outcome(table.table_id or "", unknown.attempt)
            expected = [1] if isinstance(outcome, Landed) else []
        lake.owner.backfill_to_version(table.table_id or "")
    assert failed
    assert ids_in(table) == expected
    table.append(rows(2))
    lake.owner.backfill_to_version(table.table_id or "")
    assert ids_in(lake.table("orders")) == [*expected, 2]


def late_puts(
    monkeypatch: pytest.MonkeyPatch, name: str, answer: Exception, *, most: int
) -> list[Callable[[], object]]:
    """The first `most` puts of a log file get this answer, and happen when the test calls them."""
    late: list[Callable[[], object]] = []

    def put(carry_out: Callable[[], Any], key: str) -> Any:
        if key.endswith(name) and len(late) < most:
            late.append(carry_out)
            raise answer
        return carry_out()

    intercept(monkeypatch, "put", put)
    return late


def test_put_that_lands_after_its_timeout_loses_no_row(
    lake: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In commit mode direct, the put is the commit point."""
    table = orders(lake, commit_mode=CommitMode.DIRECT)
    late = late_puts(monkeypatch, log_path.commit(1), exceptions.GenericError("timeout"), most=1)
    with suppress(OutcomeUnknown):
        table.append(rows(1))
    with suppress(exceptions.AlreadyExistsError):
        late[0]()
    table.append(rows(2))
    assert ids_in(lake.table("orders")) == [1, 2]


@pytest.mark.parametrize(
    "answer",
    [exceptions.GenericError("timeout"), exceptions.AlreadyExistsError("409 ConditionalRequestConflict")],
    ids=["none", "conflict"],
)
def test_data_files_stay_after_a_put_without_an_answer(
    lake: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    """The table has no owner. The client keeps the data files, because the log may name them later. S3 answers 409 to
    the repetition of a put that is still on its way."""
    table = hand_back(orders(lake, feature=MANAGED_COMMIT))
    late = late_puts(monkeypatch, log_path.commit(2), answer, most=99)
    with pytest.raises(OutcomeUnknown):
        table.append(rows(1))
    late[0]()
    assert ids_in(table) == [1]


def test_put_with_a_lost_answer_is_one_commit(lake: refimpl.Warehouse, store: str) -> None:
    """The library sends the put again; the store answers that the object exists."""
    location = lake.directory / "s3.store" / "orders"
    table = orders(lake)
    table.append(rows(1))
    log = LogStore(location, lake.environment)
    content = log.read(log_path.commit(0))
    assert log.put_if_absent(log_path.commit(0), content)
    assert not log.put_if_absent(log_path.commit(0), content + b"{}\n")
    assert log.read(log_path.commit(0)) == content
    with pytest.raises(CorruptLogError):
        log.publish(0, b"other")
    assert ids_in(table) == [1]


def test_object_has_the_same_time_in_a_list_and_alone(lake: refimpl.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A HEAD answers with whole seconds, the lists of some stores with milliseconds. A table without an owner is loaded
    again if its last commit has another time."""
    listed = obstore.list_with_delimiter

    def finer(*given: Any) -> dict[str, Any]:
        listing, ms = listed(*given), timedelta(milliseconds=123)
        return {
            **listing,
            "objects": [{**entry, "last_modified": entry["last_modified"] + ms} for entry in listing["objects"]],
        }

    monkeypatch.setattr(obstore, "list_with_delimiter", finer)
    table = orders(lake)
    assert table.log.listing() == [table.log.find(log_path.commit(0))]


def test_forked_process_gets_an_error(lake: refimpl.Warehouse, store: str) -> None:
    """Without the error, the child would wait forever for a thread that exists only in its parent."""
    table = orders(lake)
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            table.append(rows(1))
        except OwnerUnavailableError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    table.append(rows(2))
    assert ids_in(table) == [2]


def test_rows_are_changed_and_files_compacted(lake: refimpl.Warehouse, store: str) -> None:
    fed = {"delta.enableChangeDataFeed": "true"}
    location = lake.directory / "s3.store" / "orders"
    table = orders(lake, properties=fed)
    table.append(rows(1, 2))
    table.append(rows(3, 4))
    table.delete("id = 1")
    table.update({"day": "7"}, where="id = 2")
    assert optimize(table).removed == 2
    assert table.snapshot().to_arrow().sort_by("id").to_pydict() == {"id": [2, 3, 4], "day": [7, 1, 0]}
    assert [name for name in objects(store) if name.startswith("orders/_change_data/")]
    assert len(table.snapshot().files) == 1
    changes = [(row["_change_type"], row["id"]) for row in table.changes(3).read_all().to_pylist()]
    assert changes == [("delete", 1), ("update_preimage", 2), ("update_postimage", 2)]
    for condition, landed in (("id > 2", False), ("id > 1", True)):
        adding = table.transaction()
        adding.set_properties({"delta.constraints.low": condition})
        with contextlib.nullcontext() if landed else pytest.raises(InvalidRequestError, match="low"):
            adding.commit()
    assert missing_files(table) == (6, [])
    (add,) = table.snapshot().files.values()
    lake.environment.files.unlink(location / add.path)
    assert missing_files(table) == (6, [add.path])


def test_code_for_local_files_is_refused_and_writes_nothing(lake: refimpl.Warehouse, store: str) -> None:
    table = orders(lake, partition_columns=["day"])
    table.append(rows(1, 2))
    before = objects(store)
    (add, _) = table.snapshot().files.values()
    local = dataclasses.replace(table.snapshot().layout, objects=None)
    for work in (lambda: DataFileWriter(local).write_all([rows(3)]), lambda: read_file(local, add)):
        with pytest.raises(InvalidRequestError, match="object store"):
            work()
    assert (objects(store), table.snapshot().version) == (before, 1)


LATER = -86_400_000
"""ms: an age at which every object is old enough."""


def vacuumed(table: Any) -> set[str]:
    """The files that VACUUM deletes. A dry run lists the same files; with the default age, VACUUM finds none."""
    listed = vacuum(table, older_than=LATER, force=True)
    assert vacuum(table).files == ()
    assert vacuum(table, older_than=LATER, force=True, dry_run=False) == listed
    return set(listed.files)


@pytest.mark.parametrize("mode", sampled([CommitMode.STAGED, CommitMode.INLINE], 2))
def test_vacuum_keeps_files_of_versions_and_proposals(
    directory: Path, lake: refimpl.Warehouse, store: str, mode: CommitMode
) -> None:
    """The commits are ratified but not published, or staged but not ratified. The partition values have special
    characters.
    """
    schema = pa.schema({"id": pa.int64(), "p": pa.string()})
    values = ["a b", "a:b", "x%41", "ü/ö", None, "plain", "p=q"]
    allowed = MaintenancePolicy(allowed=frozenset(Maintenance), backfill_every=None)
    table = lake.create_table(
        "orders", schema, location=directory / "s3.store" / "orders", partition_columns=["p"], policy=allowed,
        commit_mode=mode, properties={"delta.enableChangeDataFeed": "true"},
    )  # fmt: skip
    table.append(pa.table({"id": range(7), "p": values}, schema=schema))
    staged = table.transaction()
    waiting = staged.data_file_writer().write_all([pa.table({"id": [99], "p": ["a:b"]}, schema=schema)])
    staged.add(*waiting)
    if mode is CommitMode.STAGED:
        gone = patch.object(lake.owner, "commit", side_effect=OwnerUnavailableError("gone"))
        with gone, suppress(OwnerUnavailableError, OutcomeUnknown):
            staged.commit()
    waits = {f"orders/{decode_path(add.path)}" for add in waiting}
    spared = waits if mode is CommitMode.STAGED else set()
    assert {f"orders/{path}" for path in vacuumed(table)} == waits - spared
    table.delete("id = 3")
    table.update({"p": "'a b'"}, "id = 1")
    assert [path for path in vacuumed(table) if "_change_data/" in path]
    active = {f"orders/{decode_path(add.path)}" for add in table.snapshot().files.values()}
    assert {name for name in objects(store) if name.endswith(".parquet")} == active | spared
    assert ids_in(lake.table("orders")) == [0, 1, 2, 4, 5, 6]


@pytest.mark.longer
def test_vacuum_keeps_other_tables_and_objects_that_are_no_paths(
    lake: refimpl.Warehouse, store: str, server: str
) -> None:
    """`orders//FILE` and `orders/FILE` are different objects, but the same path."""
    table = orders(lake)
    table.append(rows(1, 2))
    ((name, _),) = table.snapshot().files
    bucket = from_url(store)
    for key in ("inside/_delta_log/0.json", "inside/a/b.parquet", "inside2/c.parquet", ".hidden/d", "old.parquet"):
        obstore.put(bucket, f"orders/{key}", b"rows")
    assert vacuumed(table) == {"inside2/c.parquet", "old.parquet"}
    assert obstore.get(bucket, "orders/inside/a/b.parquet").bytes() == b"rows"
    obstore.put(bucket, "orders/old.parquet", b"rows")
    odd = f"{server}/{store.removeprefix('s3://')}/orders//{name}"
    urllib.request.urlopen(urllib.request.Request(odd, method="PUT", data=b"other"))
    with pytest.raises(OSError, match="invalid path"):
        vacuum(table, older_than=LATER, force=True, dry_run=False)
    assert obstore.get(bucket, "orders/old.parquet").bytes() == b"rows"
    assert ids_in(lake.table("orders")) == [1, 2]


def test_files_with_urls_are_read_and_kept(lake: refimpl.Warehouse, store: str) -> None:
    """Engines write the URLs of objects into the log, for clones and for deletion vectors."""
    pytest.importorskip("pyroaring")
    fed = {"delta.enableChangeDataFeed": "true"}
    table = orders(lake, properties=fed)
    table.append(rows(1, 2, 3))
    (add,) = table.snapshot().files.values()
    bucket = from_url(store)
    content = bitmap(1)
    obstore.put(bucket, "orders/a b.bin", b"\x01" + stored(content))
    vector = DeletionVector(
        storage_type="p", path_or_inline_dv=f"{store.replace('s3:', 's3a:')}/orders/a%20b.bin", offset=1,
        size_in_bytes=len(content), cardinality=1,
    )  # fmt: skip
    for path, chosen in ((f"{store}/orders/{add.path}", None), (f"{store}/orders/{add.path}", vector)):
        transaction = table.transaction()
        transaction.add_feature("deletionVectors")
        new = msgspec.structs.replace(add, path=path, deletion_vector=chosen, data_change=chosen is not None)
        transaction.remove(*transaction.read_whole_table(), data_change=chosen is not None)
        transaction.add(new)
        transaction.commit()
    obstore.put(bucket, "orders/old.parquet", b"rows")
    assert vacuumed(table) == {"old.parquet"}
    assert ids_in(lake.table("orders")) == [1, 3]
    changes = [(row["_change_type"], row["id"]) for row in table.changes(3).read_all().to_pylist()]
    assert changes == [("delete", 2)]


def test_store_inside_another_one_is_refused(directory: Path, store: str) -> None:
    for url in (store.rpartition("/")[0], f"{store}/", f"{store}/deep/er"):
        with pytest.raises(InvalidRequestError, match="is inside the store"):
            refimpl.open(directory, stores={"other": url})
    assert not (directory / "other.store").exists()
    for folder in (directory, directory / "_owner"):  # recorded by a release that allowed it
        (folder / "other.store").write_text(f"{store}/deep\n", encoding="utf-8")
    with pytest.raises(InvalidRequestError, match="is inside the store"):
        refimpl.open(directory)


@pytest.mark.longer
def test_interrupted_vacuum_is_repeated(lake: refimpl.Warehouse, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """VACUUM dies after each deletion in turn, also when the deletion's answer is lost."""
    table = orders(lake)
    table.append(rows(1, 2))
    for key in "abc":
        obstore.put(from_url(store), f"orders/{key}.parquet", b"rows")
    for number in range(2):
        left = [number]

        def delete(carry_out: Callable[[], Any], _key: str, left: list[int] = left) -> None:
            carry_out()
            if not left[0]:
                raise exceptions.GenericError("the answer was lost")
            left[0] -= 1

        with monkeypatch.context() as patched, pytest.raises(OSError, match="the answer was lost"):
            intercept(patched, "delete", delete)
            vacuum(table, older_than=LATER, force=True, dry_run=False)
    vacuum(table, older_than=LATER, force=True, dry_run=False)
    assert {name for name in objects(store) if name.endswith(".parquet")} == {
        f"orders/{path}" for path, _ in table.snapshot().files
    }
    assert ids_in(lake.table("orders")) == [1, 2]


@pytest.mark.longer
def test_delta_rs_reads_the_published_objects(lake: refimpl.Warehouse, store: str) -> None:
    table = orders(lake, feature=MANAGED_COMMIT, partition_columns=["day"])
    table.append(rows(1, 2))
    table.append(rows(3))
    lake.owner.backfill_to_version(table.table_id or "")
    table.append(rows(4))
    peer = deltalake.DeltaTable(f"{store}/orders")
    assert peer.version() in (2, 3)
    expected = list(range(1, peer.version() + 2))
    assert sorted(pa.table(peer.to_pyarrow_table())["id"].to_pylist()) == expected


def test_failed_commit_deletes_its_objects(lake: refimpl.Warehouse, store: str) -> None:
    table = orders(lake)
    before = objects(store)
    gone = patch.object(lake.owner, "commit", side_effect=OwnerUnavailableError("gone"))
    with gone, pytest.raises(OwnerUnavailableError):
        table.append(rows(1))
    assert {name for name in objects(store) - before if name.endswith(".parquet")} == set()


@pytest.mark.longer
def test_partition_value_too_long_for_a_key_is_refused(lake: refimpl.Warehouse, store: str) -> None:
    """A key in S3 has at most 1024 bytes, and contains the prefix of the store, the table and the file name."""
    schema = pa.schema({"id": pa.int64(), "p": pa.string()})
    location = lake.directory / "s3.store" / "orders"
    table = lake.create_table("orders", schema, location=location, partition_columns=["p"])

    def append(value: str) -> None:
        table.append(pa.table({"id": [1, 2], "p": ["short", value]}, schema=schema))

    append("x")
    (name,) = [name for name in objects(store) if "/p=x/" in name]
    longest = 1024 - len(f"{store.split('/', 3)[3]}/{name}") + 1
    append("ü" * (longest // 2) + "y" * (longest % 2))
    before = objects(store)
    with pytest.raises(InvalidRequestError, match=r"a key of 1025 bytes, .*: p=yyy.*; partition by something shorter"):
        append("y" * (longest + 1))
    assert (objects(store), table.snapshot().version) == (before, 2)


def test_store_is_named_on_the_command_line(tmp_path: Path, store: str, cli: CommandLine) -> None:
    lake = str(tmp_path / "lake")
    cli("init", lake, "--store", f"s3={store}")
    location = str(tmp_path / "lake" / "s3.store" / "orders")
    cli("create", "orders", "--columns", "id BIGINT", "-w", lake, "--location", location)
    assert cli("show", "orders", "-w", lake, "--json").json["owner"]["location"] == location
    assert cli("verify", "-w", lake).code == 0
    for wrong in ("s3", "s3=https://host"):
        assert cli("init", lake, "--store", wrong).code == ExitCode.USAGE
    assert f"orders/_delta_log/{0:020}.json" in objects(store)


@pytest.mark.parametrize(
    ("name", "url", "problem"),
    [
        ("a/b", "s3://bucket/x", "invalid store"),
        ("other", "https://bucket/x", "expected s3://bucket/prefix"),
        ("other", "s3://missing-bucket/x", "cannot be used"),
        ("other", "s3://{bucket}/a//b", r"invalid store s3://\S+/a//b: \S"),
        ("other", "s3://{bucket}/a/../b", "it means s3://bucket-[-0-9a-f]*/b: pass that"),
        ("other", "s3://{bucket}/my%20lake", "/my lake: pass that"),
        ("other", "s3://{bucket}/x?versionId=1", "/x: pass that"),
        ("other", "s3://KEY:SECRET@{bucket}/x", "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_invalid_or_unusable_store_is_refused(directory: Path, store: str, name: str, url: str, problem: str) -> None:
    bucket = store.split("/")[2]
    before = sorted(directory.rglob("*.store"))
    for folder in (directory, directory / "new"):
        with pytest.raises(InvalidRequestError, match=problem) as refused:
            refimpl.open(folder, create=True, stores={name: url.format(bucket=bucket)})
        assert "SECRET@" not in str(refused.value)
        assert "\n" not in str(refused.value)
    assert sorted(directory.rglob("*.store")) == before
    with pytest.raises(InvalidRequestError, match="choose another name"):
        refimpl.open(directory, stores={"new": store, "s3": f"{store}/elsewhere"})
    assert sorted(directory.rglob("*.store")) == before, "no store may be recorded if one is refused"
    refimpl.open(directory, stores={"s3": store}).close()


def test_second_of_two_concurrent_additions_of_a_store_is_refused(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second addition begins while the first one writes, and waits for the owner's lock."""
    write, begun, waits = object_store._write_durably, list[Future[None]](), Event()

    def hold(path: Path, real: HostLock) -> Iterator[None]:
        waits.set()
        with real():
            yield

    def add_another() -> None:
        environment = Environment(host_lock=watched_lock(hold))
        refimpl.open(tmp_path / "lake", create=True, stores={"s3": f"{store}/b"}, environment=environment)

    def write_late(path: Path, text: str) -> None:
        if not begun:
            begun.append(threads.submit(add_another))
            assert waits.wait(120)
        write(path, text)

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(object_store, "_write_durably", write_late)
        refimpl.open(tmp_path / "lake", create=True, stores={"s3": f"{store}/a"}).close()
    with pytest.raises(InvalidRequestError, match="exists; choose another name"):
        begun[0].result()
    for folder in (tmp_path / "lake", tmp_path / "lake" / "_owner"):
        assert (folder / "s3.store").read_text() == f"{store}/a\n"


def test_unreachable_store_is_refused(directory: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(InvalidRequestError, match=f"cannot be used: {store}: .*AWS_ENDPOINT_URL") as refused:
        refimpl.open(directory, stores={"other": store})
    assert "\n" not in str(refused.value)


def test_store_that_does_not_answer_is_not_corruption(
    directory: Path, lake: refimpl.Warehouse, store: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script handles the two errors differently."""
    table = orders(lake)
    table.append(rows(1))
    (add,) = table.snapshot().files.values()
    vector = DeletionVector(
        storage_type="p", path_or_inline_dv=f"{store}/orders/deletions.bin", size_in_bytes=1, cardinality=1
    )
    masked = msgspec.structs.replace(add, deletion_vector=vector)
    silent: list[str] = []

    def get(carry_out: Callable[[], Any], key: str) -> Any:
        if key.endswith(silent[-1]):
            raise exceptions.GenericError("no answer")
        return carry_out()

    intercept(monkeypatch, "get", get)
    files = table.environment.files
    assert isinstance(files, ObjectFiles)
    for ending in (".bin", ".parquet"):
        silent.append(ending)
        with pytest.raises(StoreError, match="no answer"):
            read_file(table.snapshot().layout, masked)
    answer = cli("rows", "orders", "-w", str(directory))
    assert answer.code == ExitCode.UNAVAILABLE
    assert "no answer; check the store" in answer.err


def test_store_is_recorded_durably_after_its_path_is_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever effect failed, the same call repeated records the store."""
    owner = tmp_path / "_owner"
    steps = [("create", ""), ("write", ""), ("fsync", ""), ("replace", "s.store")]
    expected = [(*step, folder) for folder in (tmp_path, owner) for step in (*steps, ("fsync_directory", ""))]
    for failing in range(len(expected) + 1):
        shutil.rmtree(owner, ignore_errors=True)
        (tmp_path / "s.store").unlink(missing_ok=True)
        owner.mkdir()
        files, seen = FailingFiles(), list[tuple[str, str, Path]]()

        def fails(operation: str, path: Path, failing: int = failing, seen: Any = seen) -> bool:
            folder = path if operation == "fsync_directory" else path.parent
            seen.append((operation, path.name if operation == "replace" else "", folder))
            return len(seen) == failing + 1

        files.fail_when = fails
        with monkeypatch.context() as patched, suppress(OSError):
            patched.setattr(object_store, "PosixFiles", lambda files=files: files)
            record_stores(owner, {"s": "s3://bucket"})
            assert failing == len(expected), "a failed effect must raise an error"
        assert seen == expected[: failing + 1]
        record_stores(owner, {"s": "s3://bucket"})
        assert [(folder / "s.store").read_text() for folder in (tmp_path, owner)] == ["s3://bucket\n"] * 2


def fails_at(call: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the given call of the library fail the `number`-th time."""
    calls = count(1)

    def fail(carry_out: Callable[[], Any], _key: str) -> Any:
        if next(calls) == number:
            raise exceptions.GenericError("down")
        return carry_out()

    intercept(monkeypatch, call, fail)


@pytest.mark.parametrize(("call", "number"), [("put", 1), ("put", 2), ("delete", 1)])
def test_store_that_fails_during_its_check_is_refused(
    store: str, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_at(call, number, monkeypatch)
    with pytest.raises(InvalidRequestError, match="down"):
        check_store("s3", store)


@pytest.mark.parametrize("call", ["head", "delete"])
def test_object_is_not_reported_missing_if_the_store_fails(
    store: str, tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ObjectFiles(PosixFiles(), {tmp_path: store})
    fails_at(call, 1, monkeypatch)
    with pytest.raises(OSError, match="down"):
        files.stat(tmp_path / "x") if call == "head" else files.unlink(tmp_path / "x")


def test_object_is_stored_at_the_end_of_its_block(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ObjectFiles(PosixFiles(), {tmp_path: store})
    whole, half, moved = (tmp_path / name for name in ("whole", "half", "moved"))
    with files.create(whole) as file:
        file.write(b"x")
    with pytest.raises(ZeroDivisionError), files.create(half) as file:
        file.write(b"x")
        raise ZeroDivisionError
    with monkeypatch.context() as patched, pytest.raises(OSError, match="down"), files.create(half) as file:
        fails_at("put", 1, patched)
        file.write(b"x")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="down"):
        fails_at("delete", 1, patched)
        files.replace(whole, moved)
    files.replace(whole, moved)
    assert [files.exists(str(path)) for path in (whole, half, moved)] == [False, False, True]


def test_missing_package_is_named(directory: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with refimpl.open(directory) as warehouse:
        warehouse.create_table("orders", SCHEMA, location=directory / "s3.store" / "orders")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with refimpl.open(directory) as warehouse:
        assert warehouse.tables() == ["orders"]
        with pytest.raises(InvalidRequestError, match="object-stores"):
            warehouse.table("orders").snapshot()


def test_store_that_ignores_put_conditions_is_refused(
    directory: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In such a store one commit could replace another."""
    plain = obstore.put

    def put(store: Any, key: str, content: bytes, **_: Any) -> Any:
        return plain(store, key, content)

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(InvalidRequestError, match="If-None-Match"):
        refimpl.open(directory, stores={"other": store})
    assert not (directory / "other.store").exists()
