"""Makes a recorded history small: what has nothing to do with a contradiction is left out of it.

No history is made up. What is left out are observations; a proposal only if its version is not in the final log any
more, or is said to be from before the history. A candidate counts only if it shows the very contradiction that the
whole history showed, by the same operations, and shows nothing that the whole one did not.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Final

import msgspec

from conformance.checkers.check import check_events
from conformance.checkers.explanation import Violation
from conformance.history import events
from conformance.history.errors import InvalidHistoryError
from conformance.history.events import Event
from conformance.history.reading import read_events
from conformance.history.writing import write_events
from conformance.results import CaseResult

TRIALS: Final = 600
"""Candidates that are judged. A history is small long before that."""

Key = tuple[str, str, int | None, tuple[int, ...]]
"""A contradiction: its rule, table and version, and the operations that contradict each other."""


def shrunk(result: CaseResult) -> CaseResult:
    """The result of a failed case, with a smaller history that shows what its first violation by a checker says, and
    without the violations that the smaller one does not show."""
    if result.history is None:
        return result
    source = _read(result.history)
    rules = {each.rule for each in result.violations}
    found = next((each for each in check_events(source).violations if each.rule.value in rules), None)
    if found is None:
        return result
    history = shrink(result.history, found)
    kept = {(each.rule.value, each.version) for each in check_events(_read(history)).violations}
    violations = [each for each in result.violations if each.rule is None or (each.rule, each.version) in kept]
    return msgspec.structs.replace(result, history=history, violations=tuple(violations))


def shrink(text: str, found: Violation) -> str:
    """A smaller history, JSON Lines, that shows the same; the same one if there is none."""
    source = _read(text)
    allowed = frozenset(_keys(source))
    wanted = key(found)
    if wanted not in allowed:
        return text
    smaller, trials = True, 0
    while smaller and trials < TRIALS:
        smaller = False
        for candidate in _candidates(source, found):
            trials += 1
            keys = _keys(candidate)
            if wanted in keys and keys <= allowed:
                source, smaller = candidate, True
                break
            if trials >= TRIALS:
                break
    stream = io.BytesIO()
    write_events(stream, source)
    return stream.getvalue().decode("utf-8")


def _read(text: str) -> list[Event]:
    return list(read_events(io.BytesIO(text.encode("utf-8", "surrogatepass"))))


def key(found: Violation) -> Key:
    operations = tuple(operation.id for operation in found.operations[: found.contradicting])
    return (found.rule.value, found.table, found.version, operations)


def _keys(source: list[Event]) -> frozenset[Key]:
    try:
        return frozenset(key(each) for each in check_events(source).violations)
    except InvalidHistoryError:
        return frozenset()


def _candidates(source: list[Event], found: Violation) -> Iterator[list[Event]]:
    """Smaller histories, the smallest first."""
    kept = {operation.id for operation in found.operations}
    tables = dict.fromkeys(event.table for event in source if isinstance(event, events.Invoke | events.FileLook))
    for table in tables:
        if table != found.table:
            yield _without_table(source, table)
    yield _without_faults(source)
    for client in dict.fromkeys(event.client for event in source if isinstance(event, events.Invoke)):
        mine = {event.id for event in source if isinstance(event, events.Invoke) and event.client == client}
        if mine - kept:
            yield _without(source, mine - kept)
    log = [event.version for event in source if isinstance(event, events.Witness) and event.table == found.table]
    begun = sum(event.before for event in source if isinstance(event, events.Witness) and event.table == found.table)
    for length in sorted({len(log), len(log) // 2, begun + 4, begun + 2, begun + 1} - {0}, reverse=True):
        if begun < length <= len(log):
            yield _begun_later(source, found.table, length, kept)
    numbers = [number for event in source if (number := _number(event)) is not None and number not in kept]
    numbers = list(dict.fromkeys(numbers))
    for size in (32, 8, 2, 1):
        for start in range(0, len(numbers) if len(numbers) >= size else 0, size):
            yield _without(source, set(numbers[start : start + size]))


def _number(event: Event) -> int | None:
    return event.id if isinstance(event, events.Invoke | events.FileLook) else None


def _without(source: list[Event], numbers: set[int]) -> list[Event]:
    """Without these operations."""
    operations = events.Invoke | events.Ok | events.Fail | events.Info | events.FileLook
    return _counted([event for event in source if not (isinstance(event, operations) and event.id in numbers)])


def _without_table(source: list[Event], table: str) -> list[Event]:
    mine = {event.id for event in source if isinstance(event, events.Invoke | events.FileLook) and event.table == table}
    rest = [event for event in source if not (isinstance(event, events.Witness) and event.table == table)]
    return _without(rest, mine)


def _without_faults(source: list[Event]) -> list[Event]:
    return _counted([event for event in source if not isinstance(event, events.Fault)])


def _begun_later(source: list[Event], table: str, length: int, kept: set[int]) -> list[Event]:
    """The first `length` versions are from before the history; the proposals that made them are left out."""
    attempts: set[str | None] = set()
    changed: list[Event] = []
    for event in source:
        if isinstance(event, events.Witness) and event.table == table and event.version < length:
            attempts.add(event.attempt)
            event = msgspec.structs.replace(event, before=True)
        changed.append(event)
    made = {
        event.id
        for event in source
        if isinstance(event, events.Invoke)
        and event.table == table
        and isinstance(event.request, events.Commit | events.CreateTable)
        and event.request.attempt in attempts
    }
    return _without(changed, made - kept)


def _counted(source: list[Event]) -> list[Event]:
    """With a footer that is true."""
    kinds = (events.Invoke, events.Ok, events.Fail, events.Info, events.Fault, events.FileLook, events.Witness)
    counts = {kind: sum(type(event) is kind for event in source) for kind in kinds}
    tables: dict[str, int] = {}
    for event in source:
        if isinstance(event, events.Invoke | events.FileLook):
            tables.setdefault(event.table, 0)
        elif isinstance(event, events.Witness):
            tables[event.table] = tables.get(event.table, 0) + 1
    footer = events.Footer(
        counts=events.Counts(**{str(kind.__struct_config__.tag): count for kind, count in counts.items()}),
        tables=tables,
        complete=True,
    )
    return [*(event for event in source if not isinstance(event, events.Footer)), footer]
