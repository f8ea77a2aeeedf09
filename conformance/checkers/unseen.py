"""The log of a table whose final log could not be read, as far as the answers show it.

Whatever the final log is, it has each attempt that was answered as ratified at the version of that answer: if not, that
is a violation already. So those answers, and then all others that name the attempt of a version, are put together to
a log; a version whose attempt no answer names could be anything. The checkers then find only what contradicts every
possible final log. LOG_CHECKER.md#unseen
"""

from __future__ import annotations

from array import array

from conformance.checkers.columns import NO_ATTEMPT, TableColumns


def infer_log(table: TableColumns) -> None:
    """Fill the log of the table. It is no longer than the attempts that can have landed make it."""
    assert table.unseen is not None
    table.before = table.unseen.before
    attempts: dict[int, int] = {}
    for rows in (table.ratified, table.landed):
        for version, attempt in zip(rows.version, rows.attempt, strict=True):
            attempts.setdefault(version, attempt)
    for version, (attempt, _) in table.identities.items():
        attempts.setdefault(version, attempt)
    claimed = max((max(versions, default=-1) for versions in _claims(table)), default=-1)
    longest = table.before + len({*table.ratified.attempt, *table.unknown.attempt})
    length = min(longest, max(table.before, claimed + 1))
    known = (attempts.get(version, NO_ATTEMPT) for version in range(table.before, length))
    table.log = array("q", [*[NO_ATTEMPT] * table.before, *known])


def _claims(table: TableColumns) -> list[array[int]]:
    """Versions that an answer or a file shows to exist."""
    rows = (
        table.ratified, table.landed, table.conflicts, table.fresh, table.stale, table.listed, table.visible,
        table.path_reads, table.handed_back, table.checkpoints,
    )  # fmt: skip
    return [*(each.version for each in rows), table.conflicts.latest, table.gaps.latest]
