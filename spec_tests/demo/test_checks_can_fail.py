"""A check that cannot fail is worth nothing: each comparison is shown data that is wrong, and data that is right."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refimpl
from refimpl.cli.options import columns_of_sql
from refimpl.demo.processes import Watch
from refimpl.demo.reading import differences
from refimpl.demo.source import Totals
from refimpl.demo.worker import Channel, watch

EXPECTED = {
    "1": Totals(rows=2, counts={"n": 2}, sums={"n": 30, "price": 0.3}),
    "2": Totals(rows=1, counts={"n": 0}, sums={"n": 0, "price": 0.0}),
}
FOUND: dict[str, dict[str, Any]] = {
    "1": {"rows": 2, "counts": {"n": 2}, "sums": {"n": 30, "price": 0.1 + 0.2}},
    "2": {"rows": 1, "counts": {"n": 0}, "sums": {"n": None, "price": None}},
}


def test_equal_totals_have_no_difference() -> None:
    """A sum of nothing is null in SQL; sums of floating-point numbers may differ in their last digits."""
    assert list(differences(EXPECTED, FOUND)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [(("1", "rows"), 3), (("1", "counts", "n"), 1), (("1", "sums", "n"), 31), (("1", "sums", "price"), 0.31)],
)
def test_one_total_that_differs_is_one_difference(path: tuple[str, ...], value: float) -> None:
    found = deepcopy(FOUND)
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert len(list(differences(EXPECTED, found))) == 1


def test_a_part_that_is_lost_or_invented_is_a_difference() -> None:
    assert len(list(differences(EXPECTED, {"1": FOUND["1"]}))) == 1
    assert len(list(differences(EXPECTED, {**FOUND, "3": FOUND["1"]}))) == 1


class Recorded(Channel):
    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}

    def report(self, kind: str, **facts: Any) -> None:
        self.events[kind] = facts

    def has_command(self) -> bool:
        return True


def _watched(directory: Path, months: list[list[int]]) -> dict[str, Any]:
    """What the reader reports about a table with one commit for each list."""
    with refimpl.open(directory, create=True) as warehouse:
        table = warehouse.create_table("t", columns_of_sql("id INT, month INT"), partition_columns=["month"])
        for listed in months:
            rows = {"id": pa.array(range(len(listed)), pa.int32()), "month": pa.array(listed, pa.int32())}
            table.append(pa.table(rows))
    channel = Recorded()
    task = Watch(warehouse=str(directory), table="t", partition_column="month", rows={"1": 2, "2": 1})
    watch(task, channel)
    return channel.events["watched"]


def test_the_reader_accepts_whole_parts(tmp_path: Path) -> None:
    seen = _watched(tmp_path / "w", [[1, 1], [2]])
    assert (seen["last"], seen["versions"], seen["faults"]) == (2, 1, [])


@pytest.mark.parametrize(
    "months",
    [
        pytest.param([[1], [2]], id="half a part"),
        pytest.param([[1, 1], [2], [2]], id="a part twice"),
        pytest.param([[1, 1, 2]], id="two parts in one version"),
        pytest.param([[1, 1], [7]], id="a part that is not in the input"),
    ],
)
def test_the_reader_rejects_incomplete_parts(tmp_path: Path, months: list[list[int]]) -> None:
    assert _watched(tmp_path / "w", months)["faults"]
