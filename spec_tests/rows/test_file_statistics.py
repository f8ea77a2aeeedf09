"""Statistics of data files, from real footers: every bound is correct."""

import datetime as dt
import decimal
import json
import math
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.protocol.errors import InvalidTableError
from refimpl.rows import arrow_columns
from refimpl.rows import file_statistics as f
from refimpl.schema import schema as s
from spec_tests.client.conftest import adding


def _naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # noqa: DTZ001 - the tests need timestamps without a zone


def _stats(tmp_path: Path, table: pa.Table, *, row_group_size: int = 1000) -> dict[str, Any]:
    path = tmp_path / "x.parquet"
    schema = s.from_arrow(table.schema)
    pq.write_table(table, path, row_group_size=row_group_size)
    computed: dict[f.Leaf, f.Column] = {}
    for leaf, values in arrow_columns.without_footer_statistics(table, schema):
        computed.setdefault(leaf, f.Column()).add(values)
    stats = f.from_footer(pq.read_metadata(path), schema, f.indexed(schema), computed)
    decoded: dict[str, Any] = json.loads(stats, parse_float=decimal.Decimal)
    return decoded


def test_bounds_and_counts_of_every_kind_of_column(tmp_path: Path) -> None:
    table = pa.table(
        {
            "l": [3, 1, None],
            "s": ["b", "a", None],
            "d": pa.array([decimal.Decimal("1.10"), decimal.Decimal("-2.00"), None], pa.decimal128(20, 2)),
            "day": [dt.date(2024, 2, 29), dt.date(1, 1, 1), None],
            "x": [0.5, -0.5, None],
            "b": [True, False, None],
            "raw": [b"1", b"2", None],
            "st": [{"in": {"n": 1}}, {"in": None}, None],
        }
    )
    stats = _stats(tmp_path, table)
    assert stats == {
        "numRecords": 3,
        "minValues": {
            "l": 1, "s": "a", "d": decimal.Decimal("-2.00"), "day": "0001-01-01", "x": decimal.Decimal("-0.5"),
            "st": {"in": {"n": 1}},
        },
        "maxValues": {
            "l": 3, "s": "b", "d": decimal.Decimal("1.10"), "day": "2024-02-29", "x": decimal.Decimal("0.5"),
            "st": {"in": {"n": 1}},
        },
        "nullCount": {
            "l": 1, "s": 1, "d": 1, "day": 1, "x": 1, "b": 1, "raw": 1, "st": {"in": {"n": 2}},
        },
    }  # fmt: skip


def test_a_column_of_nulls_has_a_count_and_no_bounds(tmp_path: Path) -> None:
    stats = _stats(tmp_path, pa.table({"l": pa.array([None, None], pa.int64())}))
    assert stats == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"l": 2}}


def test_a_row_group_without_a_null_count_leaves_the_columns_unknown() -> None:
    counted, unknown = (
        mock.Mock(statistics=mock.Mock(has_null_count=has, null_count=1, min=1, max=2)) for has in (True, False)
    )
    for groups in ((counted, unknown), (unknown, counted)):
        column = f.Column()
        for group in groups:
            column.merge(group)
        assert (column.nulls, column.low, column.high) == (None, 1, 2)


@pytest.mark.parametrize("nan", [0, 1, 2])
def test_a_column_with_nan_gets_no_bounds(nan: int) -> None:
    values = [pa.chunked_array([[1.0, None], [number]]) for number in (3.0, 2.0, 4.0)]
    column = f.Column()
    for chunk in values:
        column.add(chunk)
    assert (column.bounded, column.low, column.high, column.nulls) == (True, 1.0, 4.0, 3)
    values[nan] = pa.chunked_array([[1.0, math.nan]])
    column = f.Column()
    for chunk in values:
        column.add(chunk)
    assert (column.bounded, column.nulls) == (False, 2)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_bounds_of_zero_hold_both_zeros(zero: float) -> None:
    """As in Parquet: some readers order -0.0 below 0.0, and would skip the file for `x = 0`."""
    column = f.Column()
    column.add(pa.chunked_array([[zero]]))
    assert (str(column.low), str(column.high)) == ("-0.0", "0.0")


def test_infinities_cannot_be_json_and_get_no_bounds(tmp_path: Path) -> None:
    stats = _stats(tmp_path, pa.table({"x": [1.0, math.inf], "y": [-math.inf, 2.0], "z": [1.0, 2.0]}))
    assert (stats["minValues"], stats["maxValues"]) == ({"z": 1}, {"z": 2})


def test_members_of_arrays_and_maps_get_no_statistics(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array([[1, None], None], pa.list_(pa.int64())),
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "l": [1, 2],
        }
    )
    stats = _stats(tmp_path, table)
    assert stats["minValues"] == {"l": 1}
    assert stats["nullCount"] == {"a": 1, "m": 0, "l": 0}


def test_timestamps_are_widened_to_whole_milliseconds(tmp_path: Path) -> None:
    moment = _naive(2024, 1, 1, 12, 0, 0, 123456)
    table = pa.table(
        {
            "ts": pa.array([moment.replace(tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC")),
            "ntz": pa.array([moment], pa.timestamp("us")),
            "old": pa.array([_naive(1960, 1, 1, 0, 0, 0, 1)], pa.timestamp("us")),
            "whole": pa.array([_naive(2024, 1, 1)], pa.timestamp("us")),
        }
    )
    stats = _stats(tmp_path, table)
    assert stats["minValues"] == {
        "ts": "2024-01-01T12:00:00.123Z",
        "ntz": "2024-01-01T12:00:00.123",
        "old": "1960-01-01T00:00:00.000",
        "whole": "2024-01-01T00:00:00.000",
    }
    assert stats["maxValues"] == {
        "ts": "2024-01-01T12:00:00.124Z",
        "ntz": "2024-01-01T12:00:00.124",
        "old": "1960-01-01T00:00:00.001",
        "whole": "2024-01-01T00:00:00.000",
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


def test_strings_beyond_four_kilobytes_lose_only_their_bounds(tmp_path: Path) -> None:
    stats = _stats(tmp_path, pa.table({"s": ["x" * 5000, "a"], "t": ["x" * 50, "a"]}))
    assert list(stats["minValues"]) == ["t"]
    assert stats["numRecords"] == 2


def test_a_name_with_dots_is_not_a_nested_name(tmp_path: Path) -> None:
    stats = _stats(tmp_path, pa.table({"a.b": [1], "a": [{"b": 2}]}))
    assert stats["minValues"] == {"a.b": 1, "a": {"b": 2}}


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
