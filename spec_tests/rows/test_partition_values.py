"""Partition values, folder names and action paths: DELTA.md#partition-values."""

import contextlib
import datetime as dt
import decimal
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.protocol.errors import CorruptLogError, UnsupportedFeatureError
from refimpl.rows import partition_values as p
from refimpl.schema.schema import DataType, Decimal, Primitive


def _naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # noqa: DTZ001 - the tests need timestamps without a zone


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
