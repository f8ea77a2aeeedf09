"""The change data feed: a version plus its changes is a later version, and other readers see the same feed."""

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.client.create import create_filesystem_table
from refimpl.client.table import Table
from refimpl.protocol import log_path
from refimpl.protocol.actions import Remove, encode
from refimpl.protocol.errors import CorruptionError, InvalidRequestError, NotFoundInHistoryError
from refimpl.protocol.table_feature import MANAGED_COMMIT, CommitMode
from refimpl.schema.schema import Field, Primitive, Struct
from refimpl.storage.environment import Environment
from refimpl.warehouse import Warehouse
from spec_tests.client.conftest import ON_REQUEST
from spec_tests.support.builders import commit, redefine
from spec_tests.support.other_readers import by_delta_rs, by_duckdb

SCHEMA = pa.schema([("id", pa.int64()), ("month", pa.int32())])
FEED = {"delta.enableChangeDataFeed": "true"}

Rows = Counter[tuple[int | None, int | None]]


def rows(given: Iterable[tuple[int | None, int | None]]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "month": month} for number, month in given], schema=SCHEMA)


def at(table: Table, version: int) -> Rows:
    return Counter((row["id"], row["month"]) for row in table.snapshot(version=version).to_arrow().to_pylist())


def applied(before: Rows, feed: Iterable[dict[str, Any]]) -> Rows:
    after = Counter(before)
    for change in feed:
        joins = change["_change_type"] in ("insert", "update_postimage")
        after[change["id"], change["month"]] += 1 if joins else -1
    assert min(after.values(), default=0) >= 0, "a change removed a row that did not exist"
    return +after


ROWS = st.lists(st.tuples(st.integers(0, 9) | st.none(), st.integers(0, 2) | st.none()), min_size=1, max_size=6)
CONDITIONS = st.sampled_from(["id = 3", "id > 5", "month = 1", "id < 4 AND month <> 2", "id IS NULL", "id > month"])
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("overwrite"), ROWS),
    st.tuples(st.just("delete"), CONDITIONS),
    st.tuples(st.just("update"), CONDITIONS),
    st.tuples(st.just("merge"), ROWS),
)


def run(table: Table, operation: str, argument: Any) -> None:
    match operation:
        case "append":
            table.append(rows(argument))
        case "overwrite":
            table.overwrite(rows(argument))
        case "delete":
            table.delete(argument)
        case "update":
            table.update({"id": "id + 1", "month": "coalesce(month, 0) + 1"}, argument)
        case "merge":
            source = rows({number: (number, month) for number, month in argument}.values())
            merge = table.merge(source, "target.id = source.id").when_matched_delete("source.month = 0")
            merge = merge.when_matched_update_all().when_not_matched_insert_all()
            merge.when_not_matched_by_source_update({"month": 5}, "target.month = 2").execute()


def expected(before: Rows, operation: str, argument: Any) -> Rows:
    """Apply the same operation to plain tuples."""
    conditions = {
        "id = 3": lambda i, m: i == 3,
        "id > 5": lambda i, m: i is not None and i > 5,
        "month = 1": lambda i, m: m == 1,
        "id < 4 AND month <> 2": lambda i, m: i is not None and i < 4 and m is not None and m != 2,
        "id IS NULL": lambda i, m: i is None,
        "id > month": lambda i, m: i is not None and m is not None and i > m,
    }
    after: list[tuple[int | None, int | None]] = []
    if operation == "append":
        return before + Counter(argument)
    if operation == "overwrite":
        return Counter(argument)
    source = dict(argument) if operation == "merge" else {}
    for number, month in before.elements():
        if operation in ("delete", "update"):
            if not conditions[argument](number, month):
                after.append((number, month))
            elif operation == "update":
                after.append((None if number is None else number + 1, (month or 0) + 1))
        elif number is not None and number in source:
            if source[number] != 0:
                after.append((number, source[number]))
        else:
            after.append((number, 5 if month == 2 else month))
    keys = {number for number, _ in before if number is not None}
    return Counter(after) + Counter((n, m) for n, m in source.items() if n is None or n not in keys)


@given(st.lists(OPERATIONS, min_size=1, max_size=5), st.booleans())
def test_a_version_plus_its_changes_is_the_later_version(operations: list[tuple[str, Any]], partitioned: bool) -> None:
    """This holds for each pair of versions. Each operation also gives the same rows as the same operation on plain
    tuples.
    """
    with tempfile.TemporaryDirectory() as folder:
        columns = ["month"] if partitioned else []
        table = create_filesystem_table(
            Path(folder) / "t", Environment(), SCHEMA, partition_columns=columns, properties=FEED
        )
        model = [Counter[tuple[int | None, int | None]]()]
        for operation, argument in operations:
            before = table.snapshot().version
            run(table, operation, argument)
            wanted = expected(model[-1], operation, argument)
            if table.snapshot().version == before:
                assert wanted == model[-1], "an operation that changes rows must commit"
            else:
                model.append(wanted)
            assert at(table, len(model) - 1) == model[-1]
        for first in range(len(model) - 1):
            for last in range(first + 1, len(model)):
                assert applied(model[first], table.changes(first + 1, last).read_all().to_pylist()) == model[last]


def busy(table: Table) -> Table:
    table.append(rows([(1, 1), (2, 1), (3, 2)]))
    table.update({"id": "id + 10"}, "id = 2")
    table.delete("id = 1")
    table.delete("month = 2")
    table.merge(
        rows([(12, 2), (5, 5)]), "target.id = source.id"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    table.overwrite(rows([(7, 7)]))
    return table


def feed_of(table: Table, first: int = 1, last: int | None = None) -> list[tuple[Any, ...]]:
    """The sorted changes, without their times."""
    changes = table.changes(first, last).read_all().drop_columns("_commit_timestamp").to_pylist()
    return sorted(((row["_commit_version"], row["_change_type"], row["id"], row["month"]) for row in changes), key=str)


BUSY = [
    (1, "insert", 1, 1), (1, "insert", 2, 1), (1, "insert", 3, 2),
    (2, "update_postimage", 12, 1), (2, "update_preimage", 2, 1),
    (3, "delete", 1, 1),
    (4, "delete", 3, 2),
    (5, "insert", 5, 5), (5, "update_postimage", 12, 2), (5, "update_preimage", 12, 1),
    (6, "delete", 12, 2), (6, "delete", 5, 5), (6, "insert", 7, 7),
]  # fmt: skip


def fed(warehouse: Warehouse, **options: Any) -> Table:
    """A table with the feed. The owner publishes its commits only when a test asks for it."""
    options = {"partition_columns": ["month"], "properties": FEED, "policy": ON_REQUEST} | options
    return warehouse.create_table("fed", SCHEMA, **options)


@pytest.mark.parametrize("commit_mode", [CommitMode.STAGED, CommitMode.INLINE], ids=str)
def test_ratified_commits_are_in_the_feed_before_they_are_published(
    warehouse: Warehouse, commit_mode: CommitMode
) -> None:
    """The feed has the in-commit timestamps of the commits."""
    table = busy(fed(warehouse, commit_mode=commit_mode))
    assert table.log.published_versions() == {0}
    assert feed_of(warehouse.table("fed")) == sorted(BUSY, key=str)
    times = {row["_commit_version"]: row["_commit_timestamp"] for row in table.changes(1).read_all().to_pylist()}
    stamped = {entry.version: entry.info and entry.info.in_commit_timestamp for entry in table.history()}
    assert {version: round(time.timestamp() * 1000) for version, time in times.items()} == {
        version: stamped[version] for version in times
    }


def test_other_readers_see_the_same_rows_and_the_same_feed(warehouse: Warehouse) -> None:
    """delta-rs and DuckDB read a table whose commits are published; delta-rs also reads the feed."""
    table = busy(fed(warehouse, feature=MANAGED_COMMIT))
    assert table.table_id is not None
    warehouse.owner.backfill_to_version(table.table_id)
    assert by_delta_rs(table.location) == by_duckdb(table.location) == [(7, 7)]
    feed = pa.table(deltalake.DeltaTable(table.location).load_cdf(starting_version=1, ending_version=6).read_all())
    names = ("_commit_version", "_change_type", "id", "month")
    theirs = [tuple(row[name] for name in names) for row in feed.select(list(names)).to_pylist()]
    assert sorted(theirs, key=str) == feed_of(table) == sorted(BUSY, key=str)


@pytest.mark.parametrize("updated", ["0", "1"])
def test_a_merge_that_changed_no_row_has_an_empty_feed(warehouse: Warehouse, updated: str) -> None:
    """A MERGE of Delta Spark that changes no row still replaces files, without change data:
    DELTA.md#inferred-changes.
    """
    table = fed(warehouse, partition_columns=[])
    table.append(rows([(1, 1)]))
    metrics = {"numTargetRowsInserted": "0", "numTargetRowsUpdated": updated, "numTargetRowsDeleted": "0"}
    commit(
        table,
        lambda t: t.remove(*t.read_whole_table()),
        lambda t: t.add(*t.data_file_writer().write_all([rows([(1, 1)])])),
        operation="MERGE",
        metrics=metrics,
    )
    replaced = [] if updated == "0" else [(2, "delete", 1, 1), (2, "insert", 1, 1)]
    assert feed_of(table, 2) == replaced


def test_a_time_range_selects_the_commits_in_it(warehouse: Warehouse) -> None:
    """A start between two commits selects the later one. An end in the future selects the newest commit."""
    table = busy(fed(warehouse))
    times = {entry.version: entry.timestamp for entry in table.history()}

    def read(start: int, end: int | None = None) -> list[int]:
        feed = table.changes(from_timestamp=start, to_timestamp=end).read_all()["_commit_version"]
        return sorted(set(feed.to_pylist()))

    assert read(times[3], times[5]) == [3, 4, 5]
    assert read(times[3] + 1, times[6] + 99) == [4, 5, 6]
    assert read(0, times[1]) == [1]
    with pytest.raises(NotFoundInHistoryError):
        read(times[6] + 1)


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [
        ({}, InvalidRequestError),
        ({"from_version": 1, "from_timestamp": 1}, InvalidRequestError),
        ({"from_version": 1, "to_version": 2, "to_timestamp": 1}, InvalidRequestError),
        ({"from_version": 3, "to_version": 2}, InvalidRequestError),
        ({"from_timestamp": "noon"}, InvalidRequestError),
        ({"from_version": 1, "to_timestamp": "noon"}, InvalidRequestError),
        ({"from_version": 99}, NotFoundInHistoryError),
        ({"from_version": 1, "to_version": 99}, NotFoundInHistoryError),
    ],
)
def test_a_range_outside_the_history_is_rejected(
    warehouse: Warehouse, bounds: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        busy(fed(warehouse)).changes(**bounds)


def test_rows_of_a_removed_file_have_the_partition_values_of_its_add(tmp_path: Path) -> None:
    """The protocol permits a `remove` without partition values. The client takes them from the version before."""
    table = create_filesystem_table(tmp_path / "t", Environment(), SCHEMA, partition_columns=["month"], properties=FEED)
    table.append(rows([(1, 7)]))
    (add,) = table.snapshot().files.values()
    table.log.put_if_absent(log_path.commit(2), encode([Remove(path=add.path, data_change=True, deletion_timestamp=1)]))
    assert feed_of(table, 2) == [(2, "delete", 1, 7)]


def test_removal_of_an_inactive_file_is_no_change(tmp_path: Path) -> None:
    """The path was never added, or removed before; the optional fields of `remove` are missing."""
    table = create_filesystem_table(tmp_path / "t", Environment(), SCHEMA, partition_columns=["month"], properties=FEED)
    table.append(rows([(1, 7)]))
    (add,) = table.snapshot().files.values()
    for version, path in enumerate(["never", add.path, add.path], start=2):
        table.log.put_if_absent(log_path.commit(version), encode([Remove(path=path, data_change=True)]))
    assert feed_of(table, 1) == [(1, "insert", 1, 7), (3, "delete", 1, 7)]


def test_versions_with_the_feed_off_are_rejected(warehouse: Warehouse) -> None:
    """DELTA.md#feed-was-off: the feed is on at the commit that enables it."""
    table = fed(warehouse, properties={})
    table.append(rows([(1, 1)]))
    for value in ("true", "false"):
        table.alter(properties={"delta.enableChangeDataFeed": value})
        table.append(rows([(2, 2)]))
    assert feed_of(table, 2, 3) == [(3, "insert", 2, 2)]
    for first, last in ((1, 3), (2, 4), (2, None), (5, 5)):
        with pytest.raises(InvalidRequestError, match="was off"):
            table.changes(first, last)


def test_the_property_turns_the_feed_on_without_the_feature(tmp_path: Path) -> None:
    """DELTA.md#change-feed."""
    location = create_filesystem_table(tmp_path / "t", Environment(), SCHEMA, properties=FEED).location
    first = location / "_delta_log" / log_path.commit(0)
    first.write_text(first.read_text(encoding="utf-8").replace('"changeDataFeed"', '"appendOnly"'), encoding="utf-8")
    table = Table.by_path(location)
    table.append(rows([(1, 1), (2, 1)]))
    table.delete("id = 1")
    assert feed_of(table, 0) == [(1, "insert", 1, 1), (1, "insert", 2, 1), (2, "delete", 1, 1)]
    first.write_text(first.read_text(encoding="utf-8").replace('name\\":\\"month', 'name\\":\\"_change_type'), "utf-8")
    with pytest.raises(InvalidRequestError, match="'_change_type'"):
        Table.by_path(location).changes(0)
    with pytest.raises(InvalidRequestError, match="'_change_type'"):
        Table.by_path(location).delete("id = 2")


def test_a_range_over_an_incompatible_schema_change_is_rejected(warehouse: Warehouse) -> None:
    """DELTA.md#feed-schema: in the changes before a column was added, the column is null."""
    table = fed(warehouse, partition_columns=[])
    table.append(rows([(1, 1)]))
    text = Field(name="name", type=Primitive(name="string"))
    wider = Struct(fields=(*table.snapshot().schema.fields, text)).to_json()
    commit(table, lambda t: redefine(t, schema_string=wider))
    assert table.changes(1).read_all()["name"].to_pylist() == [None]
    other = Struct(fields=(table.snapshot().schema["id"],)).to_json()
    commit(table, lambda t: t.remove(*t.read_whole_table()), lambda t: redefine(t, schema_string=other))
    with pytest.raises(InvalidRequestError, match="'month' would be dropped"):
        table.changes(1)
    assert table.changes(1, 2).read_all().num_rows == 1


def test_a_struct_with_a_required_member_may_be_null(warehouse: Warehouse) -> None:
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    table = warehouse.create_table("nested", pa.schema([("s", kind)]), properties=FEED)
    table.append(pa.table({"s": pa.array([{"a": 1}, None], kind)}))
    assert table.changes(1).read_all()["s"].to_pylist() == [{"a": 1}, None]


def test_a_table_with_a_reserved_column_cannot_enable_the_feed(warehouse: Warehouse) -> None:
    """DELTA.md#change-feed: the feed has columns of its own."""
    schema = pa.schema([("id", pa.int64()), ("_Commit_Version", pa.int64())])
    with pytest.raises(InvalidRequestError, match="_Commit_Version"):
        warehouse.create_table("clash", schema, properties=FEED)
    table = warehouse.create_table("clash", schema)
    with pytest.raises(InvalidRequestError, match="_Commit_Version"):
        table.transaction().set_properties(FEED)


def test_an_error_names_the_missing_file_of_the_feed(warehouse: Warehouse) -> None:
    table = busy(fed(warehouse))
    next(table.location.glob("_change_data/month=1/*.parquet")).unlink()
    with pytest.raises(CorruptionError, match=r"cdc-00000-.* is missing"):
        table.changes(1).read_all()
