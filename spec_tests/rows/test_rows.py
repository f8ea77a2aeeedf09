"""Appending and overwriting rows with the plain client."""

import contextlib
import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.errors import InvalidRequestError, OutcomeUnknown, OwnerUnavailableError
from refimpl.protocol.log_path import LOG_FOLDER
from refimpl.protocol.table_feature import CommitMode
from refimpl.rows.row_rules import RowRules
from refimpl.storage.files import PosixFiles
from refimpl.warehouse import Warehouse

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "month": pa.array([i % 12 for i in ids], pa.int32())}, schema=SCHEMA)


def ids(table: Table) -> list[int]:
    return sorted(table.snapshot().to_arrow(columns=["id"])["id"].to_pylist())


def data_files_of(table: Table) -> set[Path]:
    return set(table.location.rglob("*.parquet"))


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    return warehouse.create_table("sales", SCHEMA, partition_columns=["month"])


def test_names_that_differ_only_in_case_are_the_same(warehouse: Warehouse) -> None:
    """As in Delta, at any depth. Two names of one column are rejected."""
    member = pa.struct([("Key", pa.string()), pa.field("N", pa.int64(), nullable=False)])
    wanted = pa.schema(
        [("Id", pa.int64()), ("S", member), ("L", pa.list_(member)), ("M", pa.map_(pa.string(), member))]
    )
    table = warehouse.create_table("nested", wanted, partition_columns=["Id"])
    other = pa.struct([("n", pa.int32()), ("kEY", pa.dictionary(pa.int8(), pa.string()))])
    kinds = {"ID": pa.int32(), "s": other, "l": pa.large_list(other), "m": pa.map_(pa.string(), other)}
    x = {"n": 1, "kEY": "k"}
    table.append(pa.table({"m": [[("a", x)]], "l": [[x]], "s": [x], "ID": [7]}, pa.schema(kinds.items())))
    row = {"Id": 7, "S": {"Key": "k", "N": 1}}
    assert table.snapshot().to_arrow(["id", "s"]).to_pylist() == [row]
    table.merge(pa.table({"iD": [7, 8]}), "source.id = target.id").when_matched_update({"s": "target.S"}).execute()
    table.update({"ID": "id + 1"})
    assert table.snapshot().to_arrow(["Id", "S"]).to_pylist() == [{**row, "Id": 8}]
    for twice in ({"ID": [1], "Id": [1]}, {"Id": [1], "S": pa.array([{"Key": "a", "kEY": "b", "N": 1}])}):
        with pytest.raises(InvalidRequestError):
            table.append(pa.table(twice))


def test_rows_of_a_table_without_rules_enter_no_rules(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowRules, "of", Mock(side_effect=AssertionError("rules")))
    plain = warehouse.create_table("plain", SCHEMA)
    plain.append(rows(1))
    plain.overwrite(rows(2))
    assert ids(plain) == [2]
    with pytest.raises(AssertionError, match="rules"):
        warehouse.create_table("ruled", SCHEMA, properties={"delta.constraints.c": "id > 0"})


@pytest.mark.parametrize("what", [{"id": [1]}, [1], None, "abc", pa.array([1])], ids=lambda what: type(what).__name__)
def test_a_value_that_is_no_arrow_data_is_refused(table: Table, what: object) -> None:
    with pytest.raises(InvalidRequestError):
        table.append(what)
    assert table.snapshot().version == 0


def test_batches_and_streams_are_appended_too(table: Table) -> None:
    [batch] = rows(1, 2).to_batches()
    table.append(batch)
    table.append(rows(3).to_reader())
    assert ids(table) == [1, 2, 3]


def test_an_error_after_the_commit_deletes_no_file(table: Table) -> None:
    transaction = table.transaction()
    adds = transaction.data_file_writer().write_all([rows(1)])
    with pytest.raises(InvalidRequestError), transaction.deleting_unless_landed(adds):
        transaction.add(*adds)
        transaction.commit()
        transaction.commit()
    assert ids(table) == [1]


def failing_link(monkeypatch: pytest.MonkeyPatch, error: int) -> list[tuple[Path, bytes]]:
    """The first link to version 1 fails. Returns its target and bytes."""
    failed: list[tuple[Path, bytes]] = []

    def link(_files: PosixFiles, source: Path, target: Path) -> None:
        if target.name == log_path.commit(1) and not failed:
            failed.append((target, source.read_bytes()))
            raise OSError(error, os.strerror(error))
        os.link(source, target)

    monkeypatch.setattr(PosixFiles, "link", link)
    return failed


both_ways = pytest.mark.parametrize("owned", [False, True], ids=["filesystem", "direct"])


def with_link_commits(warehouse: Warehouse, *, owned: bool) -> Table:
    if owned:
        return warehouse.create_table("linked", SCHEMA, commit_mode=CommitMode.DIRECT)
    return create_filesystem_table(warehouse.directory / "linked", warehouse.environment, SCHEMA)


@both_ways
@pytest.mark.parametrize("error", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_a_link_whose_answer_was_lost_loses_no_row(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, owned: bool, error: int
) -> None:
    """The server of a network file system carries out the link after this host got an error, and looked for it."""
    table = with_link_commits(warehouse, owned=owned)
    failed = failing_link(monkeypatch, error)
    with contextlib.suppress(OutcomeUnknown):
        table.append(rows(1))
    for target, content in failed:
        if not target.exists():
            target.write_bytes(content)
    assert ids(table) == [1]


@both_ways
def test_a_link_that_is_not_visible_when_its_fsync_fails_loses_no_row(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, owned: bool
) -> None:
    """The link was made. A cleanup may have removed it since, or this host may not see it."""
    table, hidden = with_link_commits(warehouse, owned=owned), warehouse.directory / "hidden"
    real = PosixFiles.fsync_directory

    def fsync_directory(files: PosixFiles, path: Path) -> None:
        commit = path / log_path.commit(1)
        if commit.exists() and not hidden.exists():
            commit.rename(hidden)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(files, path)

    monkeypatch.setattr(PosixFiles, "fsync_directory", fsync_directory)
    with contextlib.suppress(OutcomeUnknown):
        table.append(rows(1))
    hidden.replace(table.location / LOG_FOLDER / log_path.commit(1))
    assert ids(table) == [1]


@both_ways
def test_a_link_that_certainly_failed_leaves_no_file(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, owned: bool
) -> None:
    table = with_link_commits(warehouse, owned=owned)
    failing_link(monkeypatch, errno.ENOSPC)
    with pytest.raises(OwnerUnavailableError):
        table.append(rows(1))
    assert data_files_of(table) == set()


def test_a_forked_child_deletes_no_file_of_its_parent(table: Table) -> None:
    """The child leaves the code of its parent by an exception, such as that of `sys.exit`."""
    transaction = table.transaction()
    writer = transaction.data_file_writer()
    adds = writer.write_all([rows(1)])
    with contextlib.suppress(SystemExit), transaction.deleting_unless_landed(adds):
        transaction.add(*adds)
        child = os.fork()
        if child == 0:
            writer.abort()
            raise SystemExit
        os.waitpid(child, 0)
        transaction.commit()
    if child == 0:
        os._exit(0)
    assert ids(table) == [1]
