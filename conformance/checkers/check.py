"""The verdict on a whole history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from conformance.checkers import content
from conformance.checkers.breaches import Breach, Breaches
from conformance.checkers.columns import HistoryColumns
from conformance.checkers.explanation import HistoryViolation, explain
from conformance.checkers.log import LogChecker
from conformance.checkers.watermark import WatermarkChecker
from conformance.history.events import Event, Header
from conformance.history.operations import Item, operations
from conformance.history.reading import read


class HistoryVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a complete history shows. One that cannot be judged has no verdict: it raises."""

    header: Header
    operations: int
    """Requests and looks at files."""
    tables: dict[str, int]
    """By table: the versions of its final log."""
    violations: tuple[HistoryViolation, ...]
    left_out: int = 0
    """Further violations of the same rules, which are not told."""

    @property
    def conformant(self) -> bool:
        return not self.violations


def judge(columns: HistoryColumns) -> tuple[list[Breach], int]:
    """What is wrong, and how many breaches were left out. Linear in operations and versions."""
    found: list[Breach] = []
    left_out = 0
    for table in columns.tables.values():
        breaches = Breaches(table.name)
        content.check(table, breaches)
        log = LogChecker(table, columns.header, breaches)
        if log.check():
            WatermarkChecker(log, breaches).check()
        found += breaches.found
        left_out += breaches.left_out
    return found, left_out


def check_file(path: Path) -> HistoryVerdict:
    """Judge a history in a file, in memory linear in its operations. Raises `InvalidHistoryError`."""
    return _check(lambda: operations(read(path)))


def check_events(source: Sequence[Event]) -> HistoryVerdict:
    """Judge a history in memory. Raises `InvalidHistoryError`."""
    return _check(lambda: operations(source))


def _check(items: Callable[[], Iterable[Item]]) -> HistoryVerdict:
    columns = HistoryColumns(items())
    found, left_out = judge(columns)
    return HistoryVerdict(
        header=columns.header,
        operations=columns.operations,
        tables={table.name: len(table.log) for table in columns.tables.values()},
        violations=explain(found, items()) if found else (),
        left_out=left_out,
    )
