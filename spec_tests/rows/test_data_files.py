"""Data files, which are written where they stay, and their statistics, of which every bound is correct:
DELTA.md#data-files-of-a-distributed-write, DELTA_SPARK.md#writing-data-files. Partition values, folder names and
action paths: DELTA.md#partition-values.
"""

import contextlib
import datetime as dt
import decimal
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refimpl.protocol.actions import Add, Cdc
from refimpl.protocol.errors import CorruptLogError, InvalidRequestError, InvalidTableError, UnsupportedFeatureError
from refimpl.rows import arrow_columns, partition_values
from refimpl.rows import data_files as d
from refimpl.rows import file_statistics as f
from refimpl.rows import partition_values as p
from refimpl.rows.data_files import read_file
from refimpl.rows.partition_values import FileLayout
from refimpl.schema import schema as s
from refimpl.schema.schema import DataType, Decimal, Primitive
from spec_tests.client.conftest import adding


def _naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # noqa: DTZ001 - the tests need timestamps without a zone


ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "name": ["a", None, "c", "d"],
        "month": pa.array([1, 1, 2, None], pa.int32()),
    }
)
SCHEMA = s.from_arrow(ROWS.schema)


def _layout(location: Path, schema: s.Struct, partition_columns: tuple[str, ...] = ()) -> FileLayout:
    return FileLayout(location=location, schema=schema, partition_columns=partition_columns)


def _on_disk(location: Path) -> set[str]:
    return {str(path.relative_to(location)) for path in location.rglob("*") if path.is_file()}


def _write(location: Path, table: pa.Table, partition_columns: tuple[str, ...] = (), **options: Any) -> list[Add]:
    """Write the table in two parts."""
    writer = d.DataFileWriter(_layout(location, s.from_arrow(table.schema), partition_columns), **options)
    return writer.write_all([table.slice(0, 1), table.slice(1)])


def _rows(location: Path, add: Add) -> list[dict[str, Any]]:
    return pq.read_table(partition_values.local_path(location, add.path), partitioning=None).to_pylist()


def test_a_file_is_named_by_task_and_uuid() -> None:
    """DELTA.md#data-file-names; DelayedCommitProtocol, "File Name"."""
    assert d.file_name(7, "u") == "part-00007-u.zstd.parquet"
    assert d.file_name(123456, "u", ".c000.zstd.parquet") == "part-123456-u.c000.zstd.parquet"
    assert d.file_name(7, "u", change=True) == "cdc-00007-u.zstd.parquet"


def test_change_data_files_have_their_own_folder() -> None:
    """DELTA.md#partition-folders; DelayedCommitProtocol, "New Task Temp File"."""
    assert d.file_folder([]) == ("", False)
    assert d.file_folder([("p", "1"), ("q", None)]) == ("p=1/q=__HIVE_DEFAULT_PARTITION__", False)
    assert d.file_folder([("__is_cdc", "false")]) == ("", False)
    assert d.file_folder([("__is_cdc", "false"), ("p", "1")]) == ("p=1", False)
    assert d.file_folder([("__is_cdc", "true")]) == ("_change_data", True)
    assert d.file_folder([("__is_cdc", "true"), ("p", "1")]) == ("_change_data/p=1", True)


def test_an_unpartitioned_table_gets_one_file_with_all_rows(tmp_path: Path) -> None:
    [add] = _write(tmp_path, ROWS)
    assert _on_disk(tmp_path) == {add.path}
    assert _rows(tmp_path, add) == ROWS.to_pylist()
    assert add.partition_values == {}
    assert add.data_change
    status = (tmp_path / add.path).stat()
    assert (add.size, add.modification_time) == (status.st_size, status.st_mtime_ns // 1_000_000)
    assert json.loads(add.stats or "") == {
        "numRecords": 4,
        "minValues": {"id": 1, "name": "a", "month": 1},
        "maxValues": {"id": 4, "name": "d", "month": 2},
        "nullCount": {"id": 0, "name": 1, "month": 1},
    }


def test_files_in_partition_folders_lack_the_partition_columns(tmp_path: Path) -> None:
    adds = {add.partition_values["month"]: add for add in _write(tmp_path, ROWS, ("month",))}
    assert set(adds) == {"1", "2", None}
    assert adds["1"].path.startswith("month=1/part-00000-")
    assert adds[None].path.startswith("month=__HIVE_DEFAULT_PARTITION__/part-00000-")
    assert _rows(tmp_path, adds["1"]) == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert "month" not in json.loads(adds["1"].stats or "")["nullCount"]


def test_special_characters_are_escaped_and_then_encoded(tmp_path: Path) -> None:
    table = pa.table({"x": [1], "p": ["a:b c/%"]})
    [add] = _write(tmp_path, table, ("p",))
    [name] = _on_disk(tmp_path)
    assert name.startswith("p=a%3Ab c%2F%25/")
    assert add.path.startswith("p=a%253Ab%20c%252F%2525/")
    assert add.partition_values == {"p": "a:b c/%"}
    assert _rows(tmp_path, add) == [{"x": 1}]


DAYS, MICROSECONDS = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
EXTREMES = pa.table(
    {
        "date": pa.array([*DAYS, -141_428], pa.int32()).cast(pa.date32()),
        "timestamp": pa.array([*MICROSECONDS, 253_402_300_799_999_999]).cast(pa.timestamp("us", tz="UTC")),
        "timestamp_ntz": pa.array([*MICROSECONDS, -62_135_596_800_000_000]).cast(pa.timestamp("us")),
        "long": pa.array([*MICROSECONDS, 0]),
    }
)
"""The lowest and the highest value of the type, and one at the limit of Python's type."""


def test_values_outside_pythons_range_are_read_back(tmp_path: Path) -> None:
    """Timestamps below year 1 or above 9999 get no bounds: JSON readers could not parse them either."""
    [add] = _write(tmp_path, EXTREMES)
    schema = s.from_arrow(EXTREMES.schema)
    assert read_file(_layout(tmp_path, schema), add).equals(EXTREMES)
    statistics = json.loads(add.stats or "")
    assert statistics["minValues"] == {"long": -(2**63)}
    assert statistics["maxValues"] == {"long": 2**63 - 1}
    stored = [pq.read_metadata(tmp_path / add.path).schema.column(position).logical_type for position in (1, 2)]
    assert ["isAdjustedToUTC=true" in str(kind) for kind in stored] == [True, False]
    assert all("microseconds" in str(kind) for kind in stored)


@pytest.mark.parametrize("column", ["date", "timestamp", "timestamp_ntz"])
def test_a_partition_value_lies_in_the_years_1_to_9999(column: str, tmp_path: Path) -> None:
    table = EXTREMES.select([column]).append_column("row", pa.array([0, 1, 2]))
    for number in (0, 1):
        with pytest.raises(InvalidRequestError) as refused:
            _write(tmp_path, table.slice(number, 1), (column,))
        assert refused.value.column == column
    [add] = _write(tmp_path, table.slice(2), (column,))
    schema = s.from_arrow(table.schema)
    assert read_file(_layout(tmp_path, schema, (column,)), add).equals(table.slice(2))


def test_an_empty_string_in_a_required_partition_column_is_null(tmp_path: Path) -> None:
    schema = s.from_arrow(pa.schema([("id", pa.int64()), pa.field("month", pa.string(), nullable=False)]))
    layout = _layout(tmp_path, schema, ("month",))
    with pytest.raises(InvalidRequestError) as refused:
        d.DataFileWriter(layout).write_all([pa.table({"id": [1, 2], "month": ["01", ""]})])
    assert refused.value.column == "month"
    assert _on_disk(tmp_path) == set()
    assert len(d.DataFileWriter(layout).write_all([pa.table({"id": [1], "month": ["01"]})])) == 1


@given(
    rows=st.lists(st.tuples(st.sampled_from([1, 2, None]), st.sampled_from(["", "a", "b/", None])), max_size=40),
    cut=st.integers(1, 7),
    open_files=st.integers(1, 3),
    group_rows=st.integers(1, 9),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_keep_their_rows_and_order_in_each_partition(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[tuple[int | None, str | None]],
    cut: int,
    open_files: int,
    group_rows: int,
) -> None:
    location = tmp_path_factory.mktemp("table")
    for name, value in (
        ("BATCH_ROWS", 5),
        ("OPEN_FILES", open_files),
        ("GROUP_ROWS", group_rows),
        ("BUFFER_BYTES", 200),
    ):
        monkeypatch.setattr(d, name, value)
    table = pa.table(
        {
            "row": pa.array(range(len(rows)), pa.int64()),
            "p": pa.array([p for p, _ in rows], pa.int32()),
            "q": pa.array([q for _, q in rows], pa.string()),
        }
    )
    layout = _layout(location, s.from_arrow(table.schema), ("p", "q"))
    writer = d.DataFileWriter(layout)
    for batch in table.to_batches(max_chunksize=cut):
        writer.write(batch)
        assert len(writer._open) <= open_files
    bounds: dict[int, tuple[Any, Any]] = {}
    for add in writer.finish():
        assert isinstance(add, Add)
        numbers = [row["row"] for row in _rows(location, add)]
        assert numbers == sorted(numbers)
        assert json.loads(add.stats or "")["numRecords"] == len(numbers)
        p = add.partition_values["p"]
        bounds |= {number: (None if p is None else int(p), add.partition_values["q"]) for number in numbers}
    assert bounds == {number: (p, q or None) for number, (p, q) in enumerate(rows)}


def test_small_batches_become_one_row_group(tmp_path: Path) -> None:
    """DELTA_SPARK.md#row-groups: `write_batch` alone would write a row group for every batch."""
    writer = d.DataFileWriter(_layout(tmp_path, SCHEMA))
    for _ in range(300):
        writer.write(ROWS)
    [add] = writer.finish()
    footer = pq.read_metadata(tmp_path / add.path)
    assert (footer.num_rows, footer.num_row_groups) == (1200, 1)


def test_a_row_group_is_written_when_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "BATCH_ROWS", 4)
    monkeypatch.setattr(d, "GROUP_ROWS", 8)
    writer = d.DataFileWriter(_layout(tmp_path, SCHEMA))
    for _ in range(5):
        writer.write(ROWS)
    assert _on_disk(tmp_path)
    [add] = writer.finish()
    footer = pq.read_metadata(tmp_path / add.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [8, 8, 4]


def test_only_columns_with_repeated_values_get_a_dictionary(tmp_path: Path) -> None:
    """DELTA_SPARK.md#dictionaries: a dictionary for every column takes two and a half times as long."""
    count = 2000
    table = pa.table(
        {
            "unique": [f"name-{i}" for i in range(count)],
            "few": [f"kind-{i % 5}" for i in range(count)],
            "st": [{"few": i % 3, "unique": i} for i in range(count)],
            "ar": [[i % 3] for i in range(count)],
        }
    )
    [add] = _write(tmp_path, table)
    group = pq.read_metadata(tmp_path / add.path).row_group(0)
    encoded = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(group.num_columns)}
    assert encoded == {
        "unique": False, "few": True, "st.few": True, "st.unique": False, "ar.list.element": True,
    }  # fmt: skip


def test_files_then_folders_are_durable_before_the_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()))
    table = pa.table({"x": [1, 2], "p": [1, 2], "q": ["a", "b"]})
    adds = _write(tmp_path, table, ("p", "q"))
    files = {tmp_path / add.path for add in adds}
    assert set(synced[:2]) == files
    folders = {tmp_path, *(file.parent for file in files), *(file.parent.parent for file in files)}
    assert set(synced[2:]) == folders
    assert synced[-1] == tmp_path


@pytest.mark.parametrize("partition_columns", [(), ("month",)])
def test_a_file_is_synced_with_all_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_columns: tuple[str, ...]
) -> None:
    """A Parquet file without its footer cannot be read."""
    synced: dict[Path, bytes] = {}

    def fsync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_file():
            synced[path] = path.read_bytes()

    monkeypatch.setattr(os, "fsync", fsync)
    adds = _write(tmp_path, ROWS, partition_columns)
    files = [partition_values.local_path(tmp_path, add.path) for add in adds]
    assert synced == {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_statistics_cover_all_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: int) -> None:
    """The NaN, the null or the extreme value may be in any row group."""
    rows = [{"x": 1.0, "n": 5, "s": [1]} for _ in range(6)]
    rows[2 * odd] = {"x": float("nan"), "n": 9, "s": None}
    table = pa.Table.from_pylist(rows, pa.schema([("x", pa.float64()), ("n", pa.int64()), ("s", pa.list_(pa.int64()))]))
    monkeypatch.setattr(d, "GROUP_ROWS", 2)
    monkeypatch.setattr(d, "BUFFER_BYTES", 1)
    writer = d.DataFileWriter(_layout(tmp_path, s.from_arrow(table.schema)))
    for at in range(3):
        writer.write(table.slice(2 * at, 2))
        writer._split_by_partition()
    [add] = writer.finish()
    assert isinstance(add, Add)
    footer = pq.read_metadata(tmp_path / add.path)
    assert footer.num_row_groups == 3
    bounded = [[column.is_stats_set for column in map(footer.row_group(at).column, range(3))] for at in range(3)]
    assert bounded == [[False, True, False]] * 3, "by such bounds, Spark's reader skips NaN: DELTA_SPARK.md"
    statistics = json.loads(add.stats or "")
    assert (statistics["minValues"], statistics["maxValues"]) == ({"n": 5}, {"n": 9})
    assert statistics["nullCount"] == {"x": 0, "n": 0, "s": 1}


@pytest.mark.parametrize("partition_columns", [(), ("month",)])
@pytest.mark.parametrize("fails", [Path.is_file, Path.is_dir])
def test_a_failed_fsync_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_columns: tuple[str, ...], fails: Callable[[Path], bool]
) -> None:
    def full(fd: int) -> None:
        if fails(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            _write(tmp_path, ROWS, partition_columns)
    assert _on_disk(tmp_path) == set()
    assert len(_write(tmp_path, ROWS, partition_columns)) == (3 if partition_columns else 1)


def test_abort_deletes_only_the_files_of_this_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {add.path for add in _write(tmp_path, ROWS, ("month",))}
    monkeypatch.setattr(d, "BUFFER_BYTES", 1)
    writer = d.DataFileWriter(_layout(tmp_path, SCHEMA, ("month",)))
    writer.write(pa.concat_tables([ROWS] * d.BATCH_ROWS).combine_chunks())
    assert len(_on_disk(tmp_path)) == 2 * len(kept)
    writer.abort()
    assert _on_disk(tmp_path) == kept


def test_delete_removes_files_and_ignores_missing_ones(tmp_path: Path) -> None:
    adds = _write(tmp_path, pa.table({"x": [1, 2], "p": ["a b", "c:d"]}), ("p",))
    partition_values.local_path(tmp_path, adds[0].path).unlink()
    d.delete(_layout(tmp_path, SCHEMA), adds)
    assert _on_disk(tmp_path) == set()


def test_small_neighbours_in_time_are_rewritten_together() -> None:
    def file(name: str, time: int, rows: int | None = 1, size: int = 1000) -> Add:
        stats = None if rows is None else f'{{"numRecords":{rows}}}'
        return Add(path=name, size=size, modification_time=time, partition_values={}, data_change=True, stats=stats)

    def grouped(files: list[Add]) -> list[list[str]]:
        return [[add.path for add in group] for group in d.groups(files)]

    small = [file(f"m={month}/{9 - day}", day) for month in (1, 2) for day in range(4)]
    expected = [["m=1/9", "m=1/8"], ["m=1/7", "m=1/6"], ["m=2/9", "m=2/8"], ["m=2/7", "m=2/6"]]
    assert grouped(small) == grouped(small[::-1]) == expected
    alone = [file("unknown", 1, None), file("long", 2, d.TOGETHER_ROWS), file("wide", 3, 1, 2**30)]
    assert grouped([*alone, *(file(f"{n}", 4 + n) for n in range(2))]) == [["unknown"], ["long"], ["wide"], ["0", "1"]]
    assert {len(group) for group in d.groups([file(f"{n}", n) for n in range(1000)])} == {
        d.GROUP_FILES,
        1000 % d.GROUP_FILES,
    }
    assert d.groups([]) == []


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    assert list(d.listing(_layout(tmp_path / "gone", SCHEMA))) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        list(d.listing(_layout(tmp_path / "file", SCHEMA)))


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": [1], "nmae": ["x"]}),
        pa.table({"id": ["one"]}),
        pa.table({"id": [1.5]}),
        pa.table({"id": [1], "month": pa.array([2**40], pa.int64())}),
        pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused_and_leave_no_file(rows: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        d.DataFileWriter(_layout(tmp_path, SCHEMA)).write_all([rows])
    assert _on_disk(tmp_path) == set()
    narrower = pa.table({"id": pa.array([1], pa.int8())})
    assert len(d.DataFileWriter(_layout(tmp_path, SCHEMA)).write_all([narrower])) == 1


I64 = pa.int64()


@pytest.mark.parametrize(
    ("wanted", "given", "kept"),
    [
        (pa.float32(), pa.array([1.5]), pa.array([1.5], pa.float32())),
        (pa.decimal128(38, 2), pa.array([1.5]), pa.array([1])),
        (pa.float64(), pa.array([decimal.Decimal("1.5")]), pa.array([1.5], pa.float32())),
        (pa.bool_(), pa.array([2]), pa.array([True])),
        (pa.date32(), pa.array([1], pa.timestamp("us")), pa.array([86_400_000], pa.date64())),
        (pa.timestamp("us"), pa.array([1]), pa.array([1], pa.timestamp("ms"))),
        (pa.timestamp("us"), pa.array([1_001], pa.timestamp("ns")), pa.array([1_000], pa.timestamp("ns"))),
        (pa.timestamp("us"), pa.array([1], pa.timestamp("us", "Asia/Tokyo")), pa.nulls(1, pa.timestamp("ns"))),
        (pa.timestamp("us", "UTC"), pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("s", "Asia/Tokyo"))),
        (I64, pa.array(["12"]), pa.array([12], pa.uint8())),
        (pa.string(), pa.array([12]), pa.array(["12"], pa.large_string()).dictionary_encode()),
        (pa.struct([("a", I64)]), pa.array([{"a": 1, "b": 2}]), pa.array([{"a": 1}], pa.struct([("a", pa.int8())]))),
        (pa.list_(pa.struct([("a", I64)])), pa.array([[{"b": 2}]]), pa.array([[]], pa.large_list(pa.null()))),
        (pa.map_(pa.string(), I64), pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())), pa.nulls(1)),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_column_whose_values_would_change_is_refused(
    wanted: pa.DataType, given: pa.Array, kept: pa.Array, tmp_path: Path
) -> None:
    """Arrow would silently round, cut and reinterpret values, and drop members of structs."""
    schema = s.from_arrow(pa.schema([("x", wanted)]))
    with pytest.raises(InvalidRequestError) as refused:
        d.DataFileWriter(_layout(tmp_path, schema)).write_all([pa.table({"x": given})])
    assert refused.value.column == "x"
    assert _on_disk(tmp_path) == set()
    assert len(d.DataFileWriter(_layout(tmp_path, schema)).write_all([pa.table({"x": kept})])) == 1


def test_a_timestamp_without_a_zone_is_refused_with_a_remedy(tmp_path: Path) -> None:
    layout = _layout(tmp_path, s.from_arrow(pa.schema([("t", pa.timestamp("us", "UTC"))])))
    naive = pa.array([_naive(2024, 1, 1)], pa.timestamp("us"))
    with pytest.raises(InvalidRequestError, match="assume_timezone"):
        d.DataFileWriter(layout).write_all([pa.table({"t": naive})])
    assert len(d.DataFileWriter(layout).write_all([pa.table({"t": pc.assume_timezone(naive, "UTC")})])) == 1


REQUIRED = [
    (pa.field("x", pa.int64(), nullable=False), [None], [1], "x"),
    (pa.field("x", pa.struct([pa.field("y", pa.int64(), nullable=False)])), [{"y": None}], [None], "x.y"),
    (
        pa.field("x", pa.struct([("free", pa.int64()), pa.field("y", pa.int64(), nullable=False)])),
        [{"free": 1, "y": None}],
        [{"free": None, "y": 1}],
        "x.y",
    ),
    (pa.field("x", pa.list_(pa.field("element", pa.int64(), nullable=False))), [[None]], [None], "x.element"),
    (
        pa.field("x", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
        [[("k", None)]],
        [[("k", 1)], None],
        "x.value",
    ),
    (
        pa.field("x", pa.list_(pa.struct([pa.field("y", pa.int64(), nullable=False)]))),
        [[{"y": None}]],
        [[None], [{"y": 1}]],
        "x.element.y",
    ),
]


@pytest.mark.parametrize(("item", "bad", "good", "where"), REQUIRED)
def test_the_refusal_of_a_null_names_the_column(
    item: pa.Field, bad: list[Any], good: list[Any], where: str, tmp_path: Path
) -> None:
    schema = s.from_arrow(pa.schema([item]))
    nullable = arrow_columns.all_nullable(pa.schema([item]))
    with pytest.raises(InvalidRequestError) as refused:
        d.DataFileWriter(_layout(tmp_path, schema)).write_all(
            [pa.Table.from_pylist([{"x": value} for value in bad], schema=nullable)]
        )
    assert refused.value.column == where
    assert _on_disk(tmp_path) == set()
    [add] = d.DataFileWriter(_layout(tmp_path, schema)).write_all(
        [pa.Table.from_pylist([{"x": value} for value in good], schema=nullable)]
    )
    assert len(_rows(tmp_path, add)) == len(good)


def test_a_value_too_long_for_a_folder_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        _write(tmp_path, pa.table({"x": [1], "p": ["v" * 300]}), ("p",))
    assert _on_disk(tmp_path) == set()
    assert len(_write(tmp_path, pa.table({"x": [1], "p": ["v" * 200]}), ("p",))) == 1


def test_rows_marked_as_changes_become_change_actions(tmp_path: Path) -> None:
    """DELTA.md#task-messages; DelayedCommitProtocol, "buildActionFromAddedFile"."""
    table = pa.table({"x": [1, 2], "p": ["a", "a"], "__is_cdc": ["true", "false"]})
    writer = d.DataFileWriter(_layout(tmp_path, s.from_arrow(table.schema), ("__is_cdc", "p")), split=3)
    writer.write(table)
    by_kind = {type(action): action for action in writer.finish()}
    assert by_kind[Cdc].path.startswith("_change_data/p=a/cdc-00003-")
    assert by_kind[Add].path.startswith("p=a/part-00003-")
    assert by_kind[Cdc].partition_values == by_kind[Add].partition_values == {"p": "a"}
    assert not by_kind[Cdc].data_change


def _stats(tmp_path: Path, table: pa.Table, *, row_group_size: int = 1000) -> dict[str, Any]:
    path = tmp_path / "x.parquet"
    schema = s.from_arrow(table.schema)
    pq.write_table(table, path, row_group_size=row_group_size)
    computed: dict[f.Leaf, f.LeafStatistics] = {}
    for leaf, values in arrow_columns.without_footer_statistics(table, schema):
        computed.setdefault(leaf, f.LeafStatistics()).add(values)
    stats = f.from_footer(pq.read_metadata(path), schema, f.indexed(schema), computed)
    decoded: dict[str, Any] = json.loads(stats, parse_float=decimal.Decimal)
    return decoded


LISTS, MAPS = pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())
COLUMNS: dict[str, tuple[pa.Array, Any, Any, Any]] = {
    "l": (pa.array([3, 1, None]), 1, 3, 1),
    "s": (pa.array(["b", "a", None]), "a", "b", 1),
    "long": (pa.array(["x" * 5000, "a", None]), None, None, 1),  # beyond four kilobytes
    "d": (pa.array([decimal.Decimal("1.10"), decimal.Decimal("-2.00"), None]), "-2.00", "1.10", 1),
    "day": (pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1), None]), "0001-01-01", "2024-02-29", 1),
    "x": (pa.array([0.5, -0.5, None]), "-0.5", "0.5", 1),
    "over": (pa.array([1.0, math.inf, None]), None, None, 1),  # JSON has no infinity
    "under": (pa.array([1.0, -math.inf, None]), None, None, 1),
    "b": (pa.array([True, False, None]), None, None, 1),
    "raw": (pa.array([b"1", b"2", None]), None, None, 1),
    "null": (pa.nulls(3, pa.int64()), None, None, 3),
    "st": (pa.array([{"in": {"n": 1}}, {"in": None}, None]), {"in": {"n": 1}}, {"in": {"n": 1}}, {"in": {"n": 2}}),
    "st.in": (pa.array([7, 7, 7]), 7, 7, 0),  # no member of `st`
    "array": (pa.array([[1, None], None, []], LISTS), None, None, 1),
    "map": (pa.array([[("k", 1)], [], []], MAPS), None, None, 0),
}
"""The values of each column, its bounds and the number of its nulls."""


def test_bounds_and_counts_of_every_kind_of_column(tmp_path: Path) -> None:
    stats = _stats(tmp_path, pa.table({name: values for name, (values, *_) in COLUMNS.items()}))
    assert stats["numRecords"] == 3
    for position, tree in enumerate(("minValues", "maxValues", "nullCount"), start=1):
        expected = {name: case[position] for name, case in COLUMNS.items() if case[position] is not None}
        found = {name: str(v) if isinstance(v, decimal.Decimal) else v for name, v in stats[tree].items()}
        assert found == expected, tree


def test_a_row_group_without_a_null_count_leaves_the_columns_unknown() -> None:
    counted, unknown = (
        mock.Mock(statistics=mock.Mock(has_null_count=has, null_count=1, min=1, max=2)) for has in (True, False)
    )
    for groups in ((counted, unknown), (unknown, counted)):
        column = f.LeafStatistics()
        for group in groups:
            column.merge(group)
        assert (column.nulls, column.low, column.high) == (None, 1, 2)


@pytest.mark.parametrize("nan", [0, 1, 2])
def test_a_column_with_nan_gets_no_bounds(nan: int) -> None:
    values = [pa.chunked_array([[1.0, None], [number]]) for number in (3.0, 2.0, 4.0)]
    column = f.LeafStatistics()
    for chunk in values:
        column.add(chunk)
    assert (column.bounded, column.low, column.high, column.nulls) == (True, 1.0, 4.0, 3)
    values[nan] = pa.chunked_array([[1.0, math.nan]])
    column = f.LeafStatistics()
    for chunk in values:
        column.add(chunk)
    assert (column.bounded, column.nulls) == (False, 2)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_bounds_of_zero_hold_both_zeros(zero: float) -> None:
    """As in Parquet: some readers order -0.0 below 0.0, and would skip the file for `x = 0`."""
    column = f.LeafStatistics()
    column.add(pa.chunked_array([[zero]]))
    assert (str(column.low), str(column.high)) == ("-0.0", "0.0")


def test_timestamps_are_widened_to_whole_milliseconds(tmp_path: Path) -> None:
    moment = _naive(2024, 1, 1, 12, 0, 0, 123456)
    values = {"ntz": moment, "old": _naive(1960, 1, 1, 0, 0, 0, 1), "whole": _naive(2024, 1, 1)}
    zoned = pa.array([moment.replace(tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC"))
    plain = {name: pa.array([value], pa.timestamp("us")) for name, value in values.items()}
    stats = _stats(tmp_path, pa.table({"ts": zoned, **plain}))
    assert {name: (low, stats["maxValues"][name]) for name, low in stats["minValues"].items()} == {
        "ts": ("2024-01-01T12:00:00.123Z", "2024-01-01T12:00:00.124Z"),
        "ntz": ("2024-01-01T12:00:00.123", "2024-01-01T12:00:00.124"),
        "old": ("1960-01-01T00:00:00.000", "1960-01-01T00:00:00.001"),
        "whole": ("2024-01-01T00:00:00.000", "2024-01-01T00:00:00.000"),
    }


def test_pythons_last_timestamp_has_no_upper_bound() -> None:
    last = _naive(9999, 12, 31, 23, 59, 59, 999999)
    assert f.upper_bound(last) is None
    assert f.lower_bound(last) == "9999-12-31T23:59:59.999"


@given(st.text(alphabet=st.sampled_from("ab\U0010ffff\ud7ff"), max_size=80))
def test_truncated_bounds_of_strings_are_still_bounds(text: str) -> None:
    low, high = f.lower_bound(text), f.upper_bound(text)
    assert low.encode() <= text.encode() <= high.encode()
    assert len(low) <= 32
    if len(text) <= 32:
        assert (low, high) == (text, text)


def test_long_strings_are_truncated_to_32_characters() -> None:
    assert f.lower_bound("ü" * 40) == "ü" * 32
    assert f.upper_bound("ü" * 40) == "ü" * 32 + "\U0010ffff"


def _wide(columns: int) -> s.Struct:
    inner = s.Struct(fields=(s.Field(name="x", type=s.Primitive(name="long")),) * 2)
    plain = tuple(s.Field(name=f"c{i}", type=s.Primitive(name="long")) for i in range(columns))
    return s.Struct(fields=(s.Field(name="st", type=inner), *plain))


@pytest.mark.parametrize(
    "stats", ["{", "[]", "1", "[" * 10**5, '{"numRecords":"1"}', None], ids=lambda text: str(text)[:9]
)
def test_unusable_statistics_have_no_record_count(stats: str | None) -> None:
    assert f.record_count(adding("x", stats=stats)) is None


def test_the_first_32_columns_are_indexed_by_default() -> None:
    wide = _wide(50)
    assert ("c29",) in f.indexed(wide)
    assert ("c31",) not in f.indexed(wide)
    assert ("c49",) in f.indexed(wide, {"delta.dataSkippingNumIndexedCols": "-1"})
    assert f.indexed(wide, {"delta.dataSkippingNumIndexedCols": "0"}) == frozenset()
    with pytest.raises(InvalidTableError):
        f.indexed(wide, {"delta.dataSkippingNumIndexedCols": "many"})


def test_a_table_can_name_the_indexed_columns() -> None:
    stats = f.indexed(
        _wide(50), {"delta.dataSkippingStatsColumns": "st, `c49`", "delta.dataSkippingNumIndexedCols": "1"}
    )
    assert stats == {("st", "x"), ("c49",)}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [-(2**63), 2**63 - 1, None]),
        (pa.float64(), [0.1, 5e-324, -0.0, math.inf]),
        (pa.float32(), [0.1, 1 + 2**-24, 1 + 3 * 2**-24]),
        (pa.string(), ["", "ä\0'", "NaN"]),
        (pa.binary(), [b"", b"\xff\0"]),
        (pa.bool_(), [True, False]),
        (pa.decimal128(38, 38), [decimal.Decimal("-1E-38")]),
        (pa.decimal128(38, 0), [decimal.Decimal(10**38 - 1)]),
        (pa.date32(), [dt.date.min, dt.date.max]),
        (pa.timestamp("us", "UTC"), [dt.datetime(year, 12, 31, 23, 59, 59, 999999, dt.UTC) for year in (1, 9999)]),
    ],
)
def test_scalars_are_those_of_arrow(kind: pa.DataType, values: list[Any]) -> None:
    for value in values:
        made = arrow_columns.scalar(value, kind)
        assert (made.type, repr(made.as_py())) == (kind, repr(pa.scalar(value, kind).as_py()))


def test_scalar_out_of_range_fails_as_in_arrow() -> None:
    with pytest.raises(pa.ArrowInvalid, match="128"):
        arrow_columns.scalar(128, pa.int8())


def _kind(name: str) -> DataType:
    return Decimal(precision=38, scale=4) if name == "decimal" else Primitive(name=name)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(min_size=1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "byte": st.integers(-128, 127),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal": st.decimals(-(10**33), 10**33, places=4, allow_nan=False, allow_infinity=False),
}


@pytest.mark.parametrize("name", sorted(VALUES))
@given(data=st.data())
def test_a_value_is_unchanged_after_a_round_trip_as_text(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    text = p.to_text(value, _kind(name))
    assert text
    assert p.from_text(text, _kind(name)) == value


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, "boolean", "true"),
        (7, "short", "7"),
        (decimal.Decimal("1E+3"), "decimal", "1000"),
        (dt.date(33, 4, 3), "date", "0033-04-03"),
        (_naive(33, 4, 3, 1, 2, 3, 4), "timestamp_ntz", "0033-04-03 01:02:03.000004"),
        (
            dt.datetime(2024, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=9))),
            "timestamp",
            "2023-12-31T16:00:00.000000Z",
        ),
        (math.inf, "double", "Infinity"),
        (-math.inf, "double", "-Infinity"),
        (math.nan, "double", "NaN"),
        (0.5, "double", "0.5"),
    ],
)
def test_values_have_the_spelling_of_the_protocol(value: Any, kind: str, text: str) -> None:
    assert p.to_text(value, _kind(kind)) == text


@pytest.mark.parametrize("text", ["2024-01-01 16:00:00", "2024-01-01T16:00:00.000000Z", "2024-01-01 17:00:00+01:00"])
def test_a_timestamp_without_a_zone_is_read_as_utc(text: str) -> None:
    assert p.from_text(text, _kind("timestamp")) == dt.datetime(2024, 1, 1, 16, tzinfo=dt.UTC)


def test_null_and_the_empty_string_both_mean_null() -> None:
    """DELTA.md#partition-values."""
    assert p.to_text(None, _kind("string")) is None
    assert p.to_text("", _kind("string")) is None
    assert p.from_text("", _kind("long")) is None
    assert p.from_text(None, _kind("string")) is None
    assert p.folder([("p", None)]) == p.folder([("p", "")]) == "p=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", "long"),
        ("2024-13-01", "date"),
        ("maybe", "boolean"),
        ("1.x", "decimal"),
        ("x", "float"),
        ("1_000", "long"),
        ("\u0661", "integer"),
        ("1_0.5", "double"),
        ("1_0.5", "decimal"),
        ("+10000-01-01", "date"),
        ("0000-01-01", "date"),
        ("-0001-12-31", "date"),
        ("+10000-01-01 00:00:00", "timestamp"),
    ],
)
def test_text_that_is_no_value_of_the_type_is_a_corrupt_log(text: str, kind: str) -> None:
    with pytest.raises(CorruptLogError):
        p.from_text(text, _kind(kind))


def test_a_folder_is_hive_escaped_and_a_path_url_encoded() -> None:
    """Delta writes `p=a%253Ab%20c` for the value `a:b c`, whose folder is `p=a%3Ab c`."""
    folder = p.folder([("p", "a:b c"), ("q", "50%/#?")])
    assert folder == "p=a%3Ab c/q=50%25%2F%23%3F"
    assert p.encode_path(folder) == "p=a%253Ab%20c/q=50%2525%252F%2523%253F"
    assert p.decode_path(p.encode_path(folder)) == folder


@given(st.lists(st.tuples(st.text(min_size=1), st.text()), min_size=1, max_size=3))
def test_a_folder_name_is_unchanged_after_encoding_and_decoding(values: list[tuple[str, str]]) -> None:
    folder = p.folder(values)
    parts = folder.split("/")
    assert len(parts) == len(values)
    assert not any(part in (".", "..") or "\0" in part or part.startswith("/") for part in parts)
    encoded = p.encode_path(folder)
    assert encoded.isascii()
    assert ":" not in encoded
    assert p.decode_path(encoded) == folder


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("p=a%253Ab/x%20y.parquet", "/data/orders/p=a%3Ab/x y.parquet"),
        ("a?b#c.parquet", "/data/orders/a?b#c.parquet"),
        ("/else%20where/x.parquet", "/else where/x.parquet"),
        ("file:///else%20where/x.parquet", "/else where/x.parquet"),
        ("file:/elsewhere/x.parquet", "/elsewhere/x.parquet"),
        ("file://localhost/elsewhere/x.parquet", "/elsewhere/x.parquet"),
        ("s3://bucket/x.parquet", UnsupportedFeatureError),
        ("file://another/x.parquet", UnsupportedFeatureError),
        ("file://[bucket/x.parquet", CorruptLogError),
    ],
)
def test_data_files_are_relative_or_absolute_on_this_host(path: str, expected: str | type[Exception]) -> None:
    with contextlib.nullcontext() if isinstance(expected, str) else pytest.raises(expected):
        assert str(p.local_path(Path("/data/orders"), path)) == expected
