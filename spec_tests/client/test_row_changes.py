"""DELETE, UPDATE and MERGE with the plain client: the changed rows, the rewritten files, and the conflicts."""

import contextlib
import decimal
import errno
import io
import itertools
import math
import os
import random
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from refimpl.client.create import create_filesystem_table
from refimpl.client.merging import Merge
from refimpl.client.row_changes import DELETED, RowChange
from refimpl.client.table import Table
from refimpl.client.transaction import Transaction
from refimpl.protocol.actions import Cdc
from refimpl.protocol.errors import ConcurrentModificationError, CorruptDataError, CorruptionError, InvalidRequestError
from refimpl.rows import data_files
from refimpl.rows.data_files import DataFileWriter, StoredRows
from refimpl.rows.expression import condition, matching
from refimpl.schema.schema import Field, Struct
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32()), ("name", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true"}


def rows(*given: tuple[int | None, int | None, str | None]) -> pa.Table:
    return pa.table([list(column) for column in zip(*given, strict=True)], schema=SCHEMA)


KEY = "target.id = source.id"
SOURCE = rows((2, 1, "B"), (4, 2, "D"), (7, 3, "G"), (None, 1, "N"))
ROWS = rows((1, 1, "a"), (2, 1, None), (None, 1, "c"), (4, 2, "d"), (5, 2, "e"), (6, None, "f"))


def contents(table: Table) -> list[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in table.snapshot().to_arrow().to_pylist()]
    return sorted(rows, key=lambda row: tuple((value is not None, value) for value in row))


def data_files_of(table: Table) -> set[Path]:
    return set(table.location.rglob("*.parquet"))


def info_of(table: Table) -> dict[str, Any]:
    info = table.history(1)[0].info
    assert info is not None
    return info.fields


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    made = warehouse.create_table("sales", SCHEMA, partition_columns=["month"])
    made.append(ROWS)
    return made


class TestRows:
    @pytest.mark.parametrize(
        ("sql", "becomes"),
        [
            ("price * 2", "2.50"), ("2 * price", "2.50"), ("price + 1", "2.25"), ("price - -1", "2.25"),
            ("(price - 1) * 4", "1.00"), ("coalesce(price, 0)", "1.25"), ("coalesce(0, price)", "0.00"),
            ("CASE WHEN id = 1 THEN 7 ELSE price END", "7.00"), ("CASE WHEN id = 2 THEN 7.5 ELSE price END", "1.25"),
        ],
    )  # fmt: skip
    def test_update_computes_a_decimal_with_whole_numbers(self, warehouse: Warehouse, sql: str, becomes: str) -> None:
        price = pa.array([decimal.Decimal("1.25")], pa.decimal128(5, 2))
        priced = warehouse.create_table("priced", pa.schema({"id": pa.int64(), "price": price.type}))
        priced.append(pa.table({"id": [1], "price": price}))
        priced.update({"price": sql})
        assert priced.snapshot().to_arrow()["price"].to_pylist() == [decimal.Decimal(becomes)]

    def test_a_match_of_no_row_commits_only_at_write_serializable(self, warehouse: Warehouse) -> None:
        """DELTA.md#nothing-matched."""
        for level, version in (("Serializable", None), ("WriteSerializable", 2)):
            table = warehouse.create_table(level, SCHEMA, properties={"delta.isolationLevel": level})
            table.append(ROWS)
            files = data_files_of(table)
            assert table.delete("id = 99").version == version
            assert contents(table) == contents(warehouse.table(level))
            assert data_files_of(table) == files


LONG = {
    "a": ("38,2", "1.50"), "b": ("20,10", "2.5000000001"), "c": ("38,0", "9" * 38), "d": ("38,18", "-1E-18"),
    "e": ("38,38", "1E-38"), "f": ("38,38", "0.75"), "g": ("38,7", "1.0000015"), "q": ("20,15", "1.123456789012345"),
    "s": ("10,2", "0.25"),
}  # fmt: skip
"""The size and the value of each column."""


@pytest.fixture
def long_decimals(warehouse: Warehouse) -> Table:
    """One row of decimals, most of them long: Arrow has no type for the result of an operation on them."""
    kinds = {name: pa.decimal128(*map(int, size.split(","))) for name, (size, _) in LONG.items()}
    schema = pa.schema([*kinds.items(), ("l", pa.int64())])
    made = warehouse.create_table("long", schema)
    values = {name: pa.array([decimal.Decimal(text)], kinds[name]) for name, (_, text) in LONG.items()}
    made.append(pa.table({**values, "l": [2]}, schema=schema))
    return made


class TestLongDecimals:
    """The expected values are those of Spark 4.2."""

    @pytest.mark.parametrize(
        ("column", "sql", "becomes"),
        [
            ("a", "a * 2", "3.00"), ("a", "l * a", "3.00"), ("a", "a + 1", "2.50"), ("a", "a - s", "1.25"),
            ("a", "-a * s * 8", "-3.00"), ("c", "c - 1", "9" * 37 + "8"), ("c", "c * 1", "9" * 38),
            ("d", "a * b", "3.750000"), ("d", "b * b", "6.25000000050000000"), ("d", "d * 3", "0"), ("d", "d * d", "0"),
            ("a", "c - c + a", "1.50"), ("d", "coalesce(a, b) * 2", "3"), ("d", "a + d", "1.5"), ("c", "e * c", "1"),
            ("d", "g * g", "1.000003"), ("d", "-g * g", "-1.000003"), ("d", "CASE WHEN a > b THEN 1 ELSE 2 END", "2"),
            ("d", "f * -f", "-0.5625"), ("d", "a * f * f", "0.843750"), ("e", "f * f * f", "0.421875"),
            ("d", "l * q", "2.246913578025"), ("d", "l * s + q", "1.62345679"),
        ],
    )  # fmt: skip
    def test_an_operation_gives_the_digits_of_spark(
        self, long_decimals: Table, column: str, sql: str, becomes: str
    ) -> None:
        long_decimals.update({column: sql})
        assert long_decimals.snapshot().to_arrow()[column].to_pylist() == [decimal.Decimal(becomes)]

    @pytest.mark.parametrize("sql", ["c * 2", "c * c", "c * f", "c + c", "c + e"])
    def test_a_result_with_too_many_digits_is_rejected(self, long_decimals: Table, sql: str) -> None:
        with pytest.raises(InvalidRequestError, match=r"cannot compute 'c': .*38 digits"):
            long_decimals.update({"c": sql})
        assert long_decimals.snapshot().version == 1

    @pytest.mark.parametrize(
        ("where", "matches"),
        [("a > b", 0), ("c > d", 1), ("c = b", 0), ("a * b > 3", 1), ("d < l", 1), ("a + d > c", 0), ("e < a", 1),
         ("s * 8 > 1", 1), ("1 < s * 4", 0), ("s * 2 > 0.25", 1)],
    )  # fmt: skip
    def test_long_decimals_are_compared(self, long_decimals: Table, where: str, matches: int) -> None:
        snapshot = long_decimals.snapshot()
        compared = matching(snapshot.to_arrow(), condition(where, snapshot.schema))
        assert compared.to_pylist() == [bool(matches)]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int]]:
    """The columns of each read of a file from now on, and the number of its hidden columns."""
    read: list[tuple[list[str], int]] = []
    plain = StoredRows.read

    def recorded(stored: StoredRows, needed: Struct, hidden: Sequence[Field] = ()) -> pa.Table:
        read.append((list(needed.names), len(hidden)))
        return plain(stored, needed, hidden)

    monkeypatch.setattr(StoredRows, "read", recorded)
    return read


class TestFiles:
    def test_only_files_with_a_matching_row_are_read_and_rewritten(self, table: Table) -> None:
        """Month 2 has no files any more. Partition values and statistics exclude them before the client reads them."""
        for path in (table.location / "month=2").iterdir():
            path.unlink()
        table.delete("id = 2 AND month = 1")
        table.update({"name": "'x'"}, "id > 5")
        with pytest.raises(CorruptionError):
            table.delete("id = 5")

    def test_no_column_of_a_rewritten_file_is_read_twice(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        read = reads(monkeypatch)
        table.update({"name": "'x'"}, "id = 4")
        table.merge(rows((5, 2, "y")), KEY).when_matched_update_all().execute()
        table.delete("id = 1")
        assert read == [(["id"], 0), (["month", "name"], 0)] * 3
        assert contents(table)[-3:] == [(4, 2, "x"), (5, 2, "y"), (6, None, "f")]

    def test_a_whole_partition_is_deleted_without_reading_it(self, table: Table) -> None:
        for path in (table.location / "month=2").iterdir():
            path.unlink()
        changed = table.delete("month = 2")
        assert changed.metrics["numDeletedRows"] == 2
        assert (changed.metrics["numAddedFiles"], changed.metrics["numRemovedFiles"]) == (0, 1)

    def test_the_commit_info_is_as_delta_writes_it(self, table: Table) -> None:
        table.delete("id = 1")
        info = info_of(table)
        assert (info["operation"], info["operationParameters"]) == ("DELETE", {"predicate": '["id = 1"]'})
        metrics = info["operationMetrics"]
        names = ("numDeletedRows", "numCopiedRows", "numAddedFiles", "numRemovedFiles", "numAddedChangeFiles")
        assert [metrics[name] for name in names] == ["1", "2", "1", "1", "0"]
        assert info["isBlindAppend"] is False
        table.update({"name": "'x'"}, "month = 2")
        info = info_of(table)
        assert (info["operation"], info["operationParameters"]) == ("UPDATE", {"predicate": '["month = 2"]'})
        assert (info["operationMetrics"]["numUpdatedRows"], info["operationMetrics"]["numCopiedRows"]) == ("2", "0")


def test_a_commit_that_only_removes_files_needs_no_change_data(warehouse: Warehouse) -> None:
    """Change data that this and other processes already wrote is deleted and not committed."""
    table = warehouse.create_table("fed", SCHEMA, properties=FEED)
    table.append(ROWS)
    files = data_files_of(table)
    with RowChange(table.transaction(operation="DELETE")) as change:
        (add,) = change.snapshot.files.values()
        for adopted in (True, False):
            change.record(DELETED, ROWS)
            assert change._feed is not None
            change._feed.end_files()
            if adopted:
                change.adopt([], [action for action in change._feed.finish() if isinstance(action, Cdc)])
                change._feed = change._change_writer()
        change.remove(add)
        assert len(data_files_of(table)) == len(files) + 2
        change.commit({})
    assert data_files_of(table) == files
    assert len(table.changes(2).read_all()) == len(ROWS)


REFUSED: list[tuple[str, Callable[[Table], object]]] = [
    ("a condition that is not supported", lambda table: table.delete("id IN (SELECT 1)")),
    ("a random value", lambda table: table.update({"id": "rand()"})),
    ("an unknown function", lambda table: table.update({"id": "foo(id)"})),
    ("no column", lambda table: table.update({})),
    ("an unknown target", lambda table: table.update({"price": "1"})),
    ("a target twice", lambda table: table.update({"id": "1", "ID": "2"})),
    ("a fraction for an integer", lambda table: table.update({"id": "1.5"})),
    ("a float that is no integer", lambda table: table.update({"id": 1.5})),
    ("a number of too many digits", lambda table: table.update({"id": "id + 99999999999999999999"})),
    ("a number too long for Python", lambda table: table.update({"id": "id + " + "9" * 5000})),
    ("an overflow", lambda table: table.update({"month": "month + 2147483647"})),
    ("text for a number", lambda table: table.update({"id": "name"})),
    ("a merge without a clause", lambda table: merging(table).execute()),
    ("a merge by inequality", lambda table: merging(table, "target.id > source.id").when_matched_delete().execute()),
    ("an ambiguous key", lambda table: merging(table, "id = source.id").when_matched_delete().execute()),
    ("keys of two types", lambda table: merging(table, "target.name = source.id").when_matched_delete().execute()),
    ("an unknown key", lambda table: merging(table, "target.id = source.price").when_matched_delete().execute()),
    ("one alias", lambda table: table.merge(SOURCE, "a.id = a.id", source_alias="a", target_alias="A")),
    ("a source of Python's", lambda table: table.merge([1], KEY)),
    ("a clause that never applies", lambda table: merging(table).when_matched_delete().when_matched_update_all()),
    ("the target in an insert", lambda table: merging(table).when_not_matched_insert({"id": "target.id"}).execute()),
    ("a random clause", lambda table: merging(table).when_matched_delete("rand() < 1").execute()),
    (
        "an insert without all columns",
        lambda table: table.merge(SOURCE.drop_columns("name"), KEY).when_not_matched_insert_all().execute(),
    ),
]


def merging(table: Table, on: str = KEY) -> Merge:
    return table.merge(SOURCE, on)


@pytest.mark.parametrize(("what", "attempt"), REFUSED, ids=[name for name, _ in REFUSED])
def test_a_bad_request_leaves_no_version_and_no_file(
    table: Table, what: str, attempt: Callable[[Table], object]
) -> None:
    files = data_files_of(table)
    with pytest.raises(InvalidRequestError):
        attempt(table)
    assert table.snapshot().version == 1
    assert data_files_of(table) == files


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("id = 1"),
        lambda table: table.update({"id": "id + 1"}, "id = 1"),
        lambda table: (
            table.merge(rows((1, 1, "won"), (9, 9, "new")), KEY)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        ),
    ],
    ids=["delete", "update", "merge"],
)
def test_rows_that_cannot_be_written_are_an_error(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, change: Callable[[Table], object]
) -> None:
    """Each call of a writer fails once: with unchanged rows, changed rows and rows of the change data feed, and when
    the files are made durable. No version and no file remains."""
    table = warehouse.create_table("fed", SCHEMA, properties=FEED)
    table.append(ROWS)
    files, plain = data_files_of(table), {name: getattr(DataFileWriter, name) for name in ("write", "finish")}
    for number in itertools.count():
        calls = itertools.count()

        for name, call in plain.items():

            def fail_once(*arguments: Any, call: Any = call, calls: Any = calls, number: int = number) -> Any:
                if next(calls) == number:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return call(*arguments)

            monkeypatch.setattr(DataFileWriter, name, fail_once)
        try:
            change(table)
        except OSError:
            assert (table.snapshot().version, data_files_of(table)) == (1, files)
        else:
            assert next(calls) == number > 2, "the loop must reach every call"
            break


OPERATIONS: list[Callable[[Table], object]] = [
    lambda table: table.delete("month < 500000000"),
    lambda table: table.update({"id": "id + 1"}, "month < 500000000"),
    lambda table: (
        table.merge(rows(*((n, 1, "m") for n in range(5, 30_000, 2500))), KEY).when_matched_delete().execute()
    ),
]


@pytest.mark.longer
@pytest.mark.parametrize("change", OPERATIONS, ids=["delete", "update", "merge"])
@pytest.mark.parametrize("fault", ["unreadable", "full", "interrupt"])
def test_failure_among_files_that_are_rewritten_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Table], object], fault: str
) -> None:
    """The operation fails as a whole, names the file, and leaves neither a version nor a data file."""
    draw = random.Random(1)
    table = create_filesystem_table(tmp_path / "t", Environment(), SCHEMA)
    for first in range(0, 30_000, 5000):
        table.append(rows(*((first + n, draw.randrange(10**9), f"{draw.random()}") for n in range(5000))))
    files, limits = data_files_of(table), resource.getrlimit(resource.RLIMIT_FSIZE)
    damaged = table.location / sorted(files)[1]
    with contextlib.ExitStack() as stack:
        if fault == "unreadable":
            damaged.write_bytes(damaged.read_bytes()[:-100])
        elif fault == "full":
            stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        else:
            stack.enter_context(monkeypatch.context()).setattr(RowChange, "remove", Mock(side_effect=KeyboardInterrupt))
        expected = {"unreadable": CorruptDataError, "full": OSError, "interrupt": KeyboardInterrupt}[fault]
        with pytest.raises(expected) as caught:
            change(table)
    named = {"unreadable": damaged.name, "full": str(table.location / "part-"), "interrupt": ""}[fault]
    assert named in str(caught.value)
    assert (table.snapshot().version, data_files_of(table)) == (6, files)


def test_a_file_without_a_matching_row_may_be_damaged_in_other_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a file with a matching row, all columns of the next one are read at once."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    table = create_filesystem_table(tmp_path / "t", Environment(), SCHEMA)
    table.append(rows((1, 1, "a"), (5, 1, "a")))
    (known,) = data_files_of(table)
    table.append(rows((0, 1, "b"), (2, 1, "c")))
    (damaged,) = data_files_of(table) - {known}
    content = bytearray((table.location / damaged).read_bytes())
    content[pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(2).data_page_offset + 40] ^= 1
    (table.location / damaged).write_bytes(content)
    assert table.delete("id = 1").metrics["numDeletedRows"] == 1
    with pytest.raises(CorruptDataError):
        table.delete("id = 2")


def test_overlapping_changes_leave_the_allocator_of_the_process(tmp_path: Path) -> None:
    before = pa.default_memory_pool().backend_name
    table = create_filesystem_table(tmp_path / "t", Environment(), SCHEMA)
    with RowChange(table.transaction(operation="DELETE")) as outer:
        with RowChange(table.transaction(operation="DELETE")):
            pass
        assert pa.default_memory_pool().backend_name == "jemalloc"
        assert outer.workers > 1
    assert pa.default_memory_pool().backend_name == before


@pytest.mark.parametrize("change", ["delete", "update", "merge", "merge of some matches"])
def test_small_files_are_rewritten_together(tmp_path: Path, change: str) -> None:
    """Every second file has a row that changes, which statistics do not show; the other files stay."""
    table = create_filesystem_table(tmp_path / "t", Environment(), SCHEMA)
    for first in range(0, 320, 10):
        middle = "m" if first % 20 else "x"
        table.append(rows((first, 1, "a"), (first + 4, 1, middle), (first + 8, 1, "z")))
    files, source = set(table.snapshot().files), rows(*((n, 9, "x") for n in range(4, 320, 5)))
    if change == "merge":
        done = table.merge(source, f"{KEY} AND source.name = target.name").when_matched_update_all().execute()
    elif change == "merge of some matches":
        done = table.merge(source, KEY).when_matched_update_all("target.name = 'x'").execute()
    else:
        done = table.delete("name = 'x'") if change == "delete" else table.update({"month": 9}, "name = 'x'")
    left = set(table.snapshot().files)
    assert (len(files - left), len(left - files)) == (16, 4)
    copied = "numTargetRowsCopied" if change.startswith("merge") else "numCopiedRows"
    assert done.metrics[copied] == 32
    changed = [(first + 4, 9, "x") for first in range(0, 320, 20)] if change != "delete" else []
    assert [row for row in contents(table) if row[1] == 9 or row[2] == "x"] == changed
    assert len(contents(table)) == 80 + len(changed)


@pytest.mark.longer
@pytest.mark.parametrize("wide", ["name", "key"])
@pytest.mark.parametrize("change", ["delete", "update", "update of all", "merge", "merge by source"])
def test_files_that_are_large_only_in_memory_are_rewritten_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, wide: str
) -> None:
    """Each file has 1 MiB of one repeated text, in a column that is read first or last. One group has 4 files."""
    monkeypatch.setattr(data_files, "TOGETHER_BYTES", 2 * 2**20)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    table = create_filesystem_table(
        tmp_path / "t", Environment(), pa.schema({"id": pa.int64(), "n": pa.int64(), wide: pa.string()})
    )
    text = "w" * 2**18
    for first in range(0, 64, 4):
        table.append(pa.table({"id": range(first, first + 4), "n": range(4), wide: [text] * 4}))
    files, before, most = set(table.snapshot().files), pa.total_allocated_bytes(), 0
    plain = StoredRows.read

    def measured(stored: StoredRows, needed: Struct, hidden: Sequence[Field] = ()) -> pa.Table:
        nonlocal most
        rows = plain(stored, needed, hidden)
        most = max(most, pa.total_allocated_bytes() - before)
        return rows

    monkeypatch.setattr(StoredRows, "read", measured)
    read_first = "" if wide == "name" else " AND target.key LIKE 'w%'"
    where = f"n = 1{read_first.replace('target.', '')}"
    merge = table.merge(pa.table({"id": range(1, 64, 4)}), KEY + read_first).when_matched_update({"n": 9})
    if change == "merge by source":
        merge.when_not_matched_by_source_delete("target.n = 3")
    if change.startswith("merge"):
        merge.execute()
    elif change == "delete":
        table.delete(where)
    else:
        table.update({"n": 9}, where if change == "update" else None)
    monkeypatch.setattr(StoredRows, "read", plain)
    changed = table.snapshot()
    assert (len(files - set(changed.files)), len(set(changed.files) - files)) == (16, 16)
    rows_now = changed.to_arrow().sort_by("id")
    values = {"delete": [0, 2, 3], "update of all": [9] * 4, "merge by source": [0, 9, 2]}.get(change, [0, 9, 2, 3])
    assert rows_now["n"].to_pylist() == values * 16
    assert pc.all(pc.equal(rows_now[wide], text)).as_py()
    assert most < 3.5 * 2**20, "the limit and one file"


def test_changes_of_many_files_equal_those_of_one(tmp_path: Path) -> None:
    """The same rows and counts, whether threads rewrite twenty files at once or one thread rewrites one."""
    content = [rows(*((n, n % 7, f"{n}") for n in range(first, first + 500))) for first in range(0, 10_000, 500)]
    results = []
    for name, parts in {"many": content, "one": [pa.concat_tables(content)]}.items():
        table = create_filesystem_table(tmp_path / name, Environment(), SCHEMA, properties=FEED)
        for part in parts:
            table.append(part)
        begin = table.snapshot().version + 1
        merge = table.merge(rows(*((n, 1, "m") for n in range(0, 12_000, 9))), KEY)
        done = [
            table.update({"id": "id + 20000"}, "month = 3 AND id > 600"),
            table.delete("month = 5 OR id < 700"),
            merge.when_matched_update_all().when_not_matched_insert_all().execute(),
        ]
        names = "numUpdatedRows", "numDeletedRows", "numTargetRowsInserted", "numTargetRowsUpdated"
        counts = [{name: each.metrics.get(name) for name in names} for each in done]
        order = [("id", "ascending"), ("_change_type", "ascending"), ("_commit_version", "ascending")]
        changes = table.changes(begin).read_all().sort_by(order).select(["id", "month", "name", "_change_type"])
        results.append((counts, table.snapshot().to_arrow().sort_by("id").to_pylist(), changes.to_pylist()))
    assert results[0] == results[1]
    assert results[0][0][0]["numUpdatedRows"] > 1000


def test_an_append_only_table_keeps_its_rows(warehouse: Warehouse) -> None:
    table = warehouse.create_table("log", SCHEMA, properties={"delta.appendOnly": "true"})
    table.append(ROWS)
    merge = table.merge(rows((99, 1, "a")), KEY)
    merge.when_matched_update_all().when_not_matched_insert_all()
    for attempt in (lambda: table.delete("id = 99"), lambda: table.update({"id": 1}), merge.execute):
        with pytest.raises(InvalidRequestError, match="append-only"):
            attempt()
    assert table.snapshot().version == 1


class TestMerge:
    @pytest.mark.parametrize("columns", [[], ["key"]], ids=["plain", "partitioned"])
    def test_float_keys_are_compared_as_by_spark(self, warehouse: Warehouse, columns: list[str]) -> None:
        """Arrow joins floats by their bits, and the NaN of 0 / 0 has another sign than Python's NaN."""
        schema = pa.schema([("key", pa.float64()), ("id", pa.int64())])
        table = warehouse.create_table("f", schema, partition_columns=columns)
        table.append(pa.table({"key": [math.nan, -0.0, None, 1.0]}))
        merge = table.merge(pa.table({"key": [-math.nan, 0.0, None, 2.0]}), "target.key = source.key")
        merge.when_matched_delete().when_not_matched_insert({"key": "source.key"}).execute()
        assert sorted(map(str, table.snapshot().to_arrow()["key"].to_pylist())) == ["1.0", "2.0", "None", "None"]

    def test_a_key_after_the_year_9999_matches(self, warehouse: Warehouse) -> None:
        """Python has no such time; Spark has."""
        rows = pa.table({"key": pa.array([2**58, 0], pa.timestamp("us", "UTC")), "n": [1, 2]})
        table = warehouse.create_table("f", rows.schema)
        table.append(rows)
        merge = table.merge(rows, "target.key = source.key").when_matched_update({"n": "target.n + 10"})
        merge.when_not_matched_insert_all().execute()
        assert table.snapshot().to_arrow()["n"].to_pylist() == [11, 12]

    def test_a_message_shows_times_after_the_year_9999(self, warehouse: Warehouse) -> None:
        year_10183, day = pa.array([3_000_000], pa.int32()).cast(pa.date32()), "10183-09-21"
        rows = pa.table({"n": [1], "key": year_10183, "days": pa.array([[year_10183[0]]], pa.list_(pa.date32()))})
        table = warehouse.create_table("f", rows.schema, properties={"delta.constraints.positive": "n > 0"})
        table.append(rows)
        with pytest.raises(InvalidRequestError, match=f"'key': '{day}', 'days': \\['{day}'\\]"):
            table.update({"n": "-n"})
        twice = table.merge(pa.concat_tables([rows, rows]), "target.key = source.key").when_matched_update_all()
        with pytest.raises(InvalidRequestError, match=f"2 rows of the source .* key = '{day}'"):
            twice.execute()

    @pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
    def test_functions_take_the_sources_text_in_another_type(self, table: Table, kind: pa.DataType) -> None:
        """As pandas and Polars give it, also as a member of a struct."""
        text = pa.array(["ß"]).cast(kind)
        source = pa.table({"id": [1], "name": text, "of": pa.StructArray.from_arrays([text], names=["text"])})
        merge = table.merge(source, KEY)
        merge.when_matched_update({"name": "target.name || source.name || upper(source.of.text)"}).execute()
        assert (1, 1, "aßSS") in contents(table)

    def test_a_struct_is_rejected_as_a_key(self, warehouse: Warehouse) -> None:
        rows = pa.table({"key": [{"a": 1}], "id": [1]})
        table = warehouse.create_table("s", rows.schema)
        table.append(rows)
        for on in ("target.key = source.key", "target.id = source.key", "target.key = source.id"):
            with pytest.raises(InvalidRequestError, match="compare its members"):
                table.merge(rows, on).when_matched_delete().execute()
        assert table.merge(rows, "target.key.a = source.key.a").when_matched_delete().execute().version == 2

    def test_only_files_that_can_hold_a_key_are_read(self, table: Table) -> None:
        for path in (table.location / "month=2").iterdir():
            path.unlink()
        keys = SOURCE.filter(pc.field("id") == 2)
        assert table.merge(keys, KEY).when_matched_delete().execute().version == 2
        with pytest.raises(CorruptionError):
            table.merge(keys, KEY).when_not_matched_by_source_delete().execute()

    def test_every_part_of_the_merge_condition_is_applied(self, table: Table) -> None:
        """The client also uses every part to choose the files that it reads."""
        for path in (table.location / "month=2").iterdir():
            path.unlink()
        on = "target.id = source.id AND target.month = 1 AND target.name <> source.name"
        for source, version in ((rows((1, 1, "a"), (4, 2, "x")), None), (rows((1, 1, "x")), 2)):
            assert table.merge(source, on).when_matched_delete().execute().version == version

    def test_the_error_for_several_matches_names_the_key(self, table: Table) -> None:
        """DELTA.md#several-matches."""
        twice = pa.concat_tables([SOURCE, SOURCE])
        with pytest.raises(InvalidRequestError, match="id = 2"):
            table.merge(twice, KEY).when_matched_update_all().execute()
        with pytest.raises(InvalidRequestError, match="id = 2"):
            table.merge(twice, KEY).when_not_matched_by_source_delete().execute()
        assert table.snapshot().version == 1
        table.merge(twice, KEY).when_matched_delete().execute()
        assert {row[0] for row in contents(table)} == {1, None, 5, 6}
        table.merge(twice, KEY).when_not_matched_insert_all("source.id = 7").execute()
        assert [row[0] for row in contents(table)].count(7) == 2

    def test_the_commit_info_is_as_delta_writes_it(self, table: Table) -> None:
        merge = table.merge(SOURCE, KEY).when_matched_update_all("source.id > 2")
        merge.when_matched_delete().when_not_matched_insert_all().execute()
        info = info_of(table)
        assert info["operation"] == "MERGE"
        assert info["operationParameters"] == {
            "predicate": '["target.id = source.id"]',
            "matchedPredicates": '[{"predicate": "source.id > 2", "actionType": "update"}, {"actionType": "delete"}]',
            "notMatchedPredicates": '[{"actionType": "insert"}]',
            "notMatchedBySourcePredicates": "[]",
        }
        metrics = info["operationMetrics"]
        names = ("SourceRows", "OutputRows", "TargetRowsInserted", "TargetFilesAdded", "TargetFilesRemoved")
        assert [metrics[f"num{name}"] for name in names] == ["4", "6", "2", "4", "2"]


RACES: list[tuple[str, Callable[[Table], object], Callable[[Table], object], str | None, str | None]] = [
    (
        "UPDATE against DELETE of the same file",
        lambda table: table.update({"name": "'lost'"}, "id = 1"),
        lambda table: table.delete("id = 2"),
        "ConcurrentAppend",
        "ConcurrentAppend",
    ),
    (
        "UPDATE against DELETE of the whole partition",
        lambda table: table.update({"name": "'lost'"}, "month = 1 AND id = 1"),
        lambda table: table.delete("month = 1"),
        "ConcurrentDeleteRead",
        "ConcurrentDeleteRead",
    ),
    (
        "DELETE against an append that may match",
        lambda table: table.delete("id = 1"),
        lambda table: table.append(rows((100, 2, "won"))),
        "ConcurrentAppend",
        None,
    ),
    (
        "MERGE by partition against an append to another one",
        lambda table: merging(table, f"{KEY} AND target.month = source.month").when_matched_update_all().execute(),
        lambda table: table.append(rows((100, 8, "won"))),
        None,
        None,
    ),
    (
        "MERGE without source rows against an append",
        lambda table: merging(table).when_not_matched_by_source_delete().execute(),
        lambda table: table.append(rows((100, 8, "won"))),
        "ConcurrentAppend",
        None,
    ),
]
"""The loser, the winner, and the conflict at Serializable and at WriteSerializable. `test_conflicts` has the
other pairs."""


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
@pytest.mark.parametrize("race", RACES, ids=[race[0] for race in RACES])
def test_the_conflict_rules_decide_a_race(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, race: Any, level: str
) -> None:
    """The winner commits between the loser's last file and its proposal. The error names the winner's operation and the
    rule.
    """
    table = warehouse.create_table(
        "raced", SCHEMA, partition_columns=["month"], properties={"delta.isolationLevel": level, **FEED}
    )
    table.append(ROWS)
    _, loser, winner, *rules = race
    rule = rules[level == "WriteSerializable"]
    commit, raced, files = Transaction.commit_if_needed, [], set[Path]()

    def after_the_winner(transaction: Transaction) -> object:
        if not raced:
            raced.append(True)
            written = data_files_of(table)
            winner(warehouse.table("raced"))
            files.update(data_files_of(table) - written)
        return commit(transaction)

    before = data_files_of(table)
    monkeypatch.setattr(Transaction, "commit_if_needed", after_the_winner)
    if rule is None:
        loser(table)
        assert table.snapshot().version == 3
        assert "won" in {row[2] for row in contents(table)}
        return
    with pytest.raises(ConcurrentModificationError) as caught:
        loser(table)
    operation = info_of(table)["operation"]
    assert (caught.value.facts["rule"], caught.value.facts["operation"]) == (rule, operation)
    assert f"({operation})" in str(caught.value)
    assert rule in str(caught.value)
    assert table.snapshot().version == 2
    assert data_files_of(table) == before | files, "the loser's files are deleted"
