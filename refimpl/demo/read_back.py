"""Last act: Spark reads the table back, and every total must equal the one that Arrow computed from the input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from refimpl.demo.crew import ENDED, Worker
from refimpl.demo.source import Totals
from refimpl.demo.stage import Stage, counted
from refimpl.demo.tasks import GO, ReadBack


def start(stage: Stage) -> Worker:
    """Start Spark already; it waits for its word."""
    any_part = next(iter(stage.source.parts.values()))
    task = ReadBack(
        warehouse=str(stage.warehouse.directory),
        table=stage.table,
        partition_column=stage.source.partition_column,
        counted=list(any_part.counts),
        summed=list(any_part.sums),
        earlier_version=len(stage.source.parts) // 2,
    )
    return stage.crew.start("Spark reader", task)


def read_back(stage: Stage, worker: Worker, added: dict[int, str]) -> None:
    """`added`: which part each version holds."""
    stage.display.chapter("Spark reads the table back")
    stage.display.status("Spark computes the totals of each part")
    found: dict[str, dict[str, Any]] = {}
    worker.say(GO)
    for teller, told in stage.crew.events():
        if teller is worker and told.what in ("totals", "earlier"):
            found[told.what] = told.facts
        elif teller is worker and told.what == ENDED:
            break
    _check_totals(stage, found["totals"])
    _check_earlier(stage, found["earlier"], added)


def _check_totals(stage: Stage, told: dict[str, Any]) -> None:
    expected, parts = stage.source.parts, told["parts"]
    faults = list(differences(expected, parts))
    any_part = next(iter(expected.values()))
    waiting = len(stage.warehouse.owner.resolve(stage.table).commits.commits)
    stage.check(
        "row counts equal the input's",
        f"{sum(row['rows'] for row in parts.values()):,} rows in {len(parts)} parts of version {told['version']}, "
        f"the newest {counted(waiting, 'commit')} not yet published; the input has {stage.source.rows:,}",
        ok={part: row["rows"] for part, row in parts.items()}
        == {part: totals.rows for part, totals in expected.items()},
    )
    stage.check(
        "sums equal the input's",
        f"{counted(len(any_part.sums), 'sum')} and {counted(len(any_part.counts), 'count')} of values for each of "
        f"{len(parts)} parts: "
        + (f"{counted(len(faults), 'difference')}, first: {faults[0]}" if faults else "no difference"),
        ok=not faults,
        compared=len(expected) * (len(any_part.sums) + len(any_part.counts) + 1),
        differences=faults[:20],
    )


def differences(expected: Mapping[str, Totals], found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """What Spark's totals (`rows`, `counts`, `sums` of each part) say otherwise than the input's, one sentence each."""
    for part in sorted(expected.keys() ^ found.keys()):
        yield f"part {part} is on one side only"
    for part in expected.keys() & found.keys():
        yield from _differences(part, expected[part], found[part])


def _differences(part: str, expected: Totals, found: dict[str, Any]) -> Iterator[str]:
    if found["rows"] != expected.rows:
        yield f"part {part} has {found['rows']} rows, the input {expected.rows}"
    for column, count in expected.counts.items():
        if found["counts"][column] != count:
            yield f"part {part} has {found['counts'][column]} values of {column}, the input {count}"
    for column, total in expected.sums.items():
        summed = found["sums"][column] or 0
        same = summed == total if isinstance(total, int) else math.isclose(summed, total, rel_tol=1e-9, abs_tol=1e-9)
        if not same:
            yield f"the sum of {column} in part {part} is {summed}, the input's {total}"


def _check_earlier(stage: Stage, told: dict[str, Any], added: dict[int, str]) -> None:
    version = told["version"]
    expected = sum(stage.source.parts[part].rows for number, part in added.items() if number <= version)
    stage.check(
        "time travel",
        f"version {version} has {told['rows']:,} rows; the parts that were committed up to it have {expected:,}",
        ok=told["rows"] == expected,
    )
