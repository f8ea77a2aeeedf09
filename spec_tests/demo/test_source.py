"""What the demonstration expects is computed from the input alone, and right."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from refimpl.demo import source
from refimpl.demo.source import Totals
from refimpl.errors import InvalidRequestError


def test_totals_are_those_of_the_rows(small_file: Path, tmp_path: Path) -> None:
    loaded = source.load(small_file, "month", tmp_path)
    assert (loaded.rows, list(loaded.parts)) == (6, ["1", "2", "3"])
    assert loaded.parts["1"] == Totals(
        rows=2, counts={"amount": 2, "price": 1, "note": 1}, sums={"amount": 30, "price": 0.5}
    )
    assert loaded.parts["3"] == Totals(
        rows=3, counts={"amount": 3, "price": 2, "note": 2}, sums={"amount": 6, "price": 6.0}
    )


def test_parts_are_in_the_order_of_their_values_not_of_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("day,n\n" + "".join(f"{day},1\n" for day in (10, 9, 2, 10)))
    assert list(source.load(path, "day", tmp_path).parts) == ["2", "9", "10"]


def test_a_parquet_file_serves_as_well(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"city": ["Rome", "Bonn", "Oslo"], "n": [1, 2, 3]}), path)
    loaded = source.load(path, "city", tmp_path)
    assert not loaded.is_csv
    assert {part: totals.sums for part, totals in loaded.parts.items()} == {
        "Bonn": {"n": 2},
        "Oslo": {"n": 3},
        "Rome": {"n": 1},
    }


def test_the_flights_are_all_there(tmp_path: Path) -> None:
    """336,776 flights left New York City in 2013; the package is not imported for them."""
    loaded = source.load(None, "month", tmp_path)
    assert loaded.rows == 336_776
    assert [int(part) for part in loaded.parts] == list(range(1, 13))
    assert loaded.parts["1"].rows == 27_004
    assert loaded.parts["1"].counts["dep_time"] == 26_483
    assert sum(part.sums["distance"] for part in loaded.parts.values()) == 350_217_607


@pytest.mark.parametrize(
    ("text", "column", "names"),
    [
        ("month,n\n1,1\n2,1\n3,1\n", "year", "month, n"),
        ("month,n\n1,1\n2,1\n", "month", "2 values"),
        ("month,n\n" + "".join(f"{n},1\n" for n in range(101)), "month", "101 values"),
        ("month,n\n1,1\n2,1\n3,1\n,1\n", "month", "nulls"),
        ("month,n\n0.5,1\n1.5,1\n2.5,1\n", "month", "double"),
        ("", "month", "rows.csv"),
    ],
)
def test_an_invalid_input_file_is_rejected_with_the_reason(tmp_path: Path, text: str, column: str, names: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(InvalidRequestError) as refusal:
        source.load(path, column, tmp_path)
    assert names in str(refusal.value)


def test_a_missing_input_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        source.load(tmp_path / "nowhere.csv", "month", tmp_path)


def test_a_missing_data_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        source, "find_spec", lambda name: None if name == source.PACKAGE else importlib.util.find_spec(name)
    )
    with pytest.raises(InvalidRequestError) as refusal:
        source.load(None, "month", tmp_path)
    assert "delta-commit-owner[demo]" in str(refusal.value)
