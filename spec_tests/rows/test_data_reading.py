"""The rows of a snapshot: partition values, evolved schemas, conditions, locations of files."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refimpl.protocol.actions import Add
from refimpl.protocol.errors import CorruptionError, CorruptLogError, InvalidRequestError, UnsupportedFeatureError
from refimpl.rows.arrow_columns import is_ancient
from refimpl.schema import schema as delta_schema
from spec_tests.support.written_log import WrittenLog, add, definition, metadata


def write(log: WrittenLog, path: str, rows: dict[str, Any] | pa.Table) -> None:
    target = log.location / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), target)


def log_of(tmp_path: Path, schema: pa.Schema, *partitioned: str) -> WrittenLog:
    """The log of a table whose only file is `x.parquet`, which a test writes."""
    text = delta_schema.from_arrow(schema).to_json()
    log = WrittenLog(tmp_path / "t").publish(0, definition()[0], metadata(text, partitioned=partitioned))
    return log.publish(1, with_values({}))


def with_values(values: dict[str, str | None], path: str = "x.parquet") -> Add:
    return msgspec.structs.replace(add(path), partition_values=values)


def all_rows(log: WrittenLog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = log.table().snapshot().to_arrow().to_pylist()
    return rows


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """`id`, partitioned by `month`: ids 1 and 2 in January, 3 in February, and 4 with a null month."""
    log = WrittenLog(tmp_path / "t").create()
    write(log, "month=01/a.parquet", {"id": [1, 2]})
    write(log, "month=02/b.parquet", {"id": [3]})
    write(log, "month=__HIVE_DEFAULT_PARTITION__/c.parquet", {"id": [4]})
    return log.publish(
        1,
        add("month=01/a.parquet", "01", stats='{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":2}}'),
        add("month=02/b.parquet", "02", stats='{"numRecords":1,"minValues":{"id":3},"maxValues":{"id":3}}'),
        add("month=__HIVE_DEFAULT_PARTITION__/c.parquet", None),
    )


def rows(log: WrittenLog, *columns: str, where: str | None = None) -> list[tuple[Any, ...]]:
    table = log.table().snapshot().to_arrow(list(columns) or None, where)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


class TestColumns:
    def test_columns_come_in_the_requested_order(self, log: WrittenLog) -> None:
        assert log.table().snapshot().to_arrow(["month", "id"]).column_names == ["month", "id"]
        assert rows(log, "month") == [("01",), ("01",), ("02",), (None,)]
        assert rows(log, "id") == [(1,), (2,), (3,), (4,)]

    @pytest.mark.parametrize("columns", [[], ["nonsuch"], ["id", "id"]])
    def test_unknown_columns_are_an_error(self, log: WrittenLog, columns: list[str]) -> None:
        with pytest.raises(InvalidRequestError):
            log.table().snapshot().to_arrow(columns)


class TestConditions:
    @pytest.mark.parametrize(
        ("where", "ids"),
        [
            ("month = '01'", [1, 2]), ("id >= 2", [2, 3, 4]), ("month = '01' AND id = 2", [2]), ("month IS NULL", [4]),
            ("month <> '01'", [3]), ("NOT (month = '01')", [3]), ("month IN ('02', NULL)", [3]),
            ("month LIKE '0%'", [1, 2, 3]), ("TRUE", [1, 2, 3, 4]), ("FALSE", []), ("NULL", []),
        ],
    )  # fmt: skip
    def test_rows_are_read_if_the_condition_is_true(self, log: WrittenLog, where: str, ids: list[int]) -> None:
        assert [number for (number,) in rows(log, "id", where=where)] == ids

    def test_files_that_cannot_match_are_not_opened(self, log: WrittenLog) -> None:
        (log.location / "month=02/b.parquet").unlink()
        assert [number for (number,) in rows(log, "id", where="id < 3 AND month IS NOT NULL")] == [1, 2]
        with pytest.raises(CorruptionError):
            rows(log)


class TestPlaces:
    def test_paths_are_url_encoded(self, log: WrittenLog) -> None:
        """DELTA.md#paths."""
        write(log, "month=a%3Ab c/ä#.parquet", {"id": [5]})
        log.publish(2, add("month=a%253Ab%20c/%C3%A4%23.parquet", "a:b c"))
        assert (5, "a:b c") in rows(log)

    @pytest.mark.parametrize("scheme", ["", "file:", "file://"])
    def test_absolute_paths_are_read(self, log: WrittenLog, tmp_path: Path, scheme: str) -> None:
        pq.write_table(pa.table({"id": [6]}), tmp_path / "else where.parquet")
        log.publish(2, add(f"{scheme}{tmp_path}/else%20where.parquet", "06"))
        assert (6, "06") in rows(log)

    def test_another_file_system_is_refused(self, log: WrittenLog) -> None:
        log.publish(2, add("s3://bucket/x.parquet", "07"))
        with pytest.raises(UnsupportedFeatureError):
            rows(log)

    @pytest.mark.parametrize("content", [b"", b"no parquet", None], ids=["empty", "garbage", "missing"])
    def test_an_error_names_the_unreadable_file(self, log: WrittenLog, content: bytes | None) -> None:
        if content is not None:
            (log.location / "x.parquet").write_bytes(content)
        log.publish(2, add("x.parquet"))
        with pytest.raises(CorruptionError) as caught:
            rows(log)
        assert caught.value.path == str(log.location / "x.parquet")


class TestTypes:
    def test_partition_values_have_the_types_of_their_columns(self, tmp_path: Path) -> None:
        schema = pa.schema(
            [
                ("n", pa.int64()), ("i", pa.int32()), ("d", pa.date32()), ("b", pa.bool_()), ("m", pa.decimal128(6, 2)),
                ("g", pa.float64()), ("t", pa.timestamp("us", tz="UTC")),
            ]
        )  # fmt: skip
        names = tuple(schema.names[1:])
        log = log_of(tmp_path, schema, *names)
        values = {"i": "7", "d": "2013-01-02", "b": "true", "m": "1.5", "g": "0.5", "t": "2013-01-02 03:04:05.000006"}
        log.publish(2, with_values(values), with_values(dict.fromkeys(names), "x2.parquet"))
        for number, path in enumerate(("x.parquet", "x2.parquet"), start=1):
            write(log, path, {"n": [number]})
        table = log.table().snapshot().to_arrow()
        assert table.schema.types == schema.types
        moment = datetime.datetime(2013, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
        read = (7, moment.date(), True, decimal.Decimal("1.50"), 0.5, moment)
        assert table.to_pylist() == [{"n": 1, **dict(zip(names, read, strict=True))}, {"n": 2, **dict.fromkeys(names)}]

    @pytest.mark.parametrize(
        ("kind", "inside", "outside"),
        [
            (pa.int8(), "-128", "128"),
            (pa.int64(), "9223372036854775807", "9223372036854775808"),
            (pa.decimal128(5, 2), "999.99", "1000.00"),
            (pa.decimal128(5, 2), "0", "NaN"),
        ],
        ids=str,
    )
    def test_a_partition_value_out_of_range_is_a_corrupt_log(
        self, tmp_path: Path, kind: pa.DataType, inside: str, outside: str
    ) -> None:
        log = log_of(tmp_path, pa.schema([("n", pa.int64()), ("p", kind)]), "p")
        write(log, "x.parquet", {"n": [1]})
        log.publish(2, with_values({"p": inside}))
        assert str(log.table().snapshot().to_arrow()["p"][0]).startswith(inside)
        log.publish(3, with_values({"p": outside}))
        with pytest.raises(CorruptLogError) as caught:
            log.table().snapshot().to_arrow()
        assert (caught.value.column, caught.value.value) == ("p", outside)

    def test_added_columns_are_null_and_dropped_columns_are_not_read(self, tmp_path: Path) -> None:
        inner = pa.struct([("x", pa.int64()), ("y", pa.string())])
        schema = pa.schema([("id", pa.int64()), ("new", pa.string()), ("s", inner), ("l", pa.list_(inner))])
        log = log_of(tmp_path, schema)
        older = pa.struct([("x", pa.int32())])
        kinds = {"dropped": pa.string(), "s": older, "id": pa.int32(), "l": pa.list_(older)}
        old = {"dropped": "gone", "s": {"x": 1}, "id": 1, "l": [{"x": 2}]}
        write(log, "x.parquet", pa.Table.from_pylist([old], pa.schema(kinds.items())))
        table = log.table().snapshot().to_arrow()
        assert table.column_names == schema.names
        assert table.to_pylist() == [{"id": 1, "new": None, "s": {"x": 1, "y": None}, "l": [{"x": 2, "y": None}]}]
        assert log.table().snapshot().to_arrow(where="new IS NULL").num_rows == 1

    def test_a_file_without_a_required_column_is_an_error(self, tmp_path: Path) -> None:
        """A reader must not return nulls where the schema forbids them."""
        log = log_of(tmp_path, pa.schema([pa.field("id", pa.int64()), pa.field("new", pa.string(), nullable=False)]))
        write(log, "x.parquet", {"id": [1]})
        assert log.table().snapshot().to_arrow(["id"]).to_pylist() == [{"id": 1}]
        with pytest.raises(CorruptionError) as caught:
            log.table().snapshot().to_arrow()
        assert (caught.value.path, caught.value.column) == (str(log.location / "x.parquet"), "new")

    def test_columns_are_found_in_any_case(self, tmp_path: Path) -> None:
        """Delta's protocol, "Schema Serialization Format": no two names of a schema differ only in case."""
        member = pa.struct([("Key", pa.string()), ("N", pa.int64())])
        columns = [("Id", pa.int64()), ("S", member), ("L", pa.list_(member)), ("M", pa.map_(pa.string(), member))]
        schema = pa.schema([*columns, ("Month", pa.string())])
        log = log_of(tmp_path, schema, "month")
        stored = pa.struct([("kEY", pa.string()), ("n", pa.int32())])
        x = {"kEY": "k", "n": 1}
        file = {
            "ID": pa.array([7], pa.int32()), "s": pa.array([x], stored), "l": pa.array([[x]], pa.list_(stored)),
            "m": pa.array([[("a", x)]], pa.map_(pa.string(), stored)),
        }  # fmt: skip
        write(log, "x.parquet", pa.table(file))
        log.publish(2, with_values({"MONTH": "05"}))
        row = {"Key": "k", "N": 1}
        assert all_rows(log) == [{"Id": 7, "S": row, "L": [row], "M": [("a", row)], "Month": "05"}]
        assert log.table().snapshot().to_arrow(["Id"], where="s.key = 'k'").num_rows == 1

    def test_an_exact_column_name_wins_over_one_in_another_case(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, pa.schema([("id", pa.int64())]))
        write(log, "x.parquet", {"ID": [1], "id": [2]})
        assert all_rows(log) == [{"id": 2}]
        write(log, "x.parquet", {"ID": [1], "Id": [2]})
        with pytest.raises(CorruptionError):
            log.table().snapshot().to_arrow()

    def test_a_required_member_may_be_null_where_its_parent_is(self, tmp_path: Path) -> None:
        """A null member elsewhere is an error, at any depth."""
        required = pa.struct([pa.field("x", pa.int64(), nullable=False)])
        schema = pa.schema([("s", pa.struct([("inner", required)])), ("l", pa.list_(required))])
        log = log_of(tmp_path, schema)
        optional = pa.struct([("x", pa.int64())])
        stored = [("s", pa.struct([("inner", optional)])), ("l", pa.list_(optional))]
        good = [{"s": {"inner": {"x": 1}}, "l": [{"x": 2}, None]}, {"s": {"inner": None}, "l": []}, {"s": None}]
        write(log, "x.parquet", pa.Table.from_pylist(good, schema=pa.schema(stored)))
        table = log.table().snapshot().to_arrow()
        assert table.schema.types == schema.types
        assert table.to_pylist() == [*good[:2], {"s": None, "l": None}]
        for bad in ({"s": {"inner": {"x": None}}}, {"l": [{"x": None}]}):
            write(log, "x.parquet", pa.Table.from_pylist([bad], schema=pa.schema(stored)))
            with pytest.raises(CorruptionError) as caught:
                log.table().snapshot().to_arrow()
            assert caught.value.column == next(iter(bad))

    def test_int96_timestamps_of_spark_are_read(self, tmp_path: Path) -> None:
        schema = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
        log = log_of(tmp_path, schema)
        moment = datetime.datetime(2013, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
        table = pa.table({"t": pa.array([moment.replace(tzinfo=None)], pa.timestamp("us"))})
        pq.write_table(table, log.location / "x.parquet", use_deprecated_int96_timestamps=True)
        assert log.table().snapshot().to_arrow()["t"].to_pylist() == [moment]

    @pytest.mark.parametrize(
        ("kind", "modern", "ancient"),
        [
            (pa.date32(), datetime.date(1582, 10, 15), datetime.date(1582, 10, 4)),
            (pa.timestamp("us", tz="UTC"), datetime.datetime(1900, 1, 1), datetime.datetime(1899, 12, 31)),  # noqa: DTZ001
        ],
        ids=str,
    )
    def test_old_dates_in_sparks_legacy_calendar_are_refused(
        self, tmp_path: Path, kind: pa.DataType, modern: Any, ancient: Any
    ) -> None:
        """Spark marks such files in their footers: their dates are days of another calendar."""
        member = pa.struct([("d", kind)])
        schema = pa.schema([("d", kind), ("s", member), ("l", pa.list_(member)), ("m", pa.map_(pa.string(), kind))])
        log = log_of(tmp_path, schema)

        def read(row: dict[str, Any], **footer: str) -> pa.Table:
            write(log, "x.parquet", pa.Table.from_pylist([row], schema=schema.with_metadata(footer)))
            return log.table().snapshot().to_arrow()

        legacy = {"org.apache.spark.legacyDateTime": ""}
        for name, value in (("d", ancient), ("s", {"d": ancient}), ("l", [{"d": ancient}]), ("m", [("k", ancient)])):
            with pytest.raises(UnsupportedFeatureError) as caught:
                read({name: value}, **legacy)
            assert caught.value.path == str(log.location / "x.parquet")
        assert read({"d": ancient}).num_rows == 1
        assert read({"d": modern, "s": {"d": modern}, "l": [], "m": [("k", None)]}, **legacy).num_rows == 1

    def test_one_ancient_date_among_modern_ones_is_found(self) -> None:
        modern, ancient = (pa.array([datetime.date(year, 1, 1)]) for year in (2020, 1500))
        assert is_ancient(pa.chunked_array([modern, ancient, modern]))
        assert not is_ancient(pa.chunked_array([modern, modern]))
        assert is_ancient(pa.StructArray.from_arrays([modern, ancient], ["m", "a"]))

    def test_an_error_names_the_file_that_does_not_fit_the_schema(self, log: WrittenLog) -> None:
        write(log, "x.parquet", {"id": ["text"]})
        log.publish(2, add("x.parquet"))
        with pytest.raises(CorruptionError) as caught:
            rows(log)
        assert caught.value.column == "id"
