"""`ingest` and `create --like` tell the format of a file in one way: by the end of its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from refimpl.cli.options import CSV, PARQUET, format_of
from refimpl.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("day.csv", CSV),
        ("DAY.CSV", CSV),
        ("day.csv.gz", CSV),
        ("day.parquet.csv", CSV),
        ("day.parquet", PARQUET),
        ("report.csv.parquet", PARQUET),
        ("part-0.gz.parquet", PARQUET),
    ],
)
def test_the_last_suffix_is_the_format(name: str, kind: str) -> None:
    assert format_of(Path("folder.csv") / name) == kind


@pytest.mark.parametrize("name", ["day", "day.csv.txt", "day.gz", "day.parquet.gz", ".csv", "day.csv.gz.gz"])
def test_what_ends_otherwise_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        format_of(Path("folder.csv") / name)
