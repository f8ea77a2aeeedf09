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
