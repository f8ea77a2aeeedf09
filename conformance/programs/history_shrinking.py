"""Shrinks a recorded history: removes everything that a contradiction does not need.

Hypothesis shrinks generated programs. It cannot shrink this: concurrent processes do not repeat a run.
No answer is invented. Observations are removed, and proposals only if their version is not in the final log, or if the
final log is changed to begin after it or to end before it. A candidate counts only if it shows the same contradiction
as the whole history, by the same operations, and breaks no rule that the whole one keeps.
"""

import io
from collections.abc import Iterator
from typing import Final, TypeGuard, get_args

import msgspec

from conformance.checkers.bounds import Breach
from conformance.checkers.check import judge
from conformance.checkers.columns import HistoryColumns
from conformance.history import events
from conformance.history.events import Event, InvalidHistoryError
from conformance.history.files import read_events, write_events
from conformance.history.operations import operations
from conformance.interface.messages import name_of
from conformance.interface.results import CaseResult, Violation

TRIALS: Final = 600
"""The maximum number of checked candidates; a history is usually small much earlier."""


def shrunk(result: CaseResult) -> CaseResult:
    """The result of a failed case, with a smaller history that shows its first violation by a checker, and without the
    violations that the smaller one does not show."""
    named = next((violation for violation in result.violations if violation.rule is not None), None)
    if named is None or result.history is None:
        return result
    source = _read(result.history)
    breach = next((candidate for candidate in _findings(source) if is_the_same(candidate, named)), None)
    if breach is None:
        return result
    small = _smallest(source, breach)
    kept = _findings(small)
    violations = [
        violation
        for violation in result.violations
        if violation.rule is None or any(is_the_same(k, violation) for k in kept)
    ]
    stream = io.BytesIO()
    write_events(stream, small)
    history = stream.getvalue().decode("utf-8")
    return msgspec.structs.replace(result, history=history, violations=tuple(violations))


def is_the_same(breach: Breach, violation: Violation) -> bool:
    """Whether a violation equals a checker's finding: same operations, rule and version."""
    operations = tuple(number for number in (breach.first, breach.second) if number is not None)
    same = (breach.rule.value, breach.table, breach.version) == (violation.rule, violation.table, violation.version)
    return same and violation.operations[: len(operations)] == operations


def _read(text: str) -> list[Event]:
    return list(read_events(io.BytesIO(text.encode("utf-8", "surrogatepass"))))


def _findings(source: list[Event]) -> list[Breach]:
    """The breaches; an empty list for a history that cannot be judged."""
    try:
        return judge(HistoryColumns(operations(source)))[0]
    except InvalidHistoryError:
        return []


def _smallest(source: list[Event], wanted: Breach) -> list[Event]:
    """The smallest history found in `TRIALS` checks: nothing more can be removed."""
    rules = {breach.rule for breach in _findings(source)}
    key = _key(wanted)
    candidates = _candidates(source, wanted)
    for _ in range(TRIALS):
        candidate = next(candidates, None)
        if candidate is None:
            break
        shown = _findings(candidate)
        if len(candidate) < len(source) and key in map(_key, shown) and {breach.rule for breach in shown} <= rules:
            source = candidate
            candidates = _candidates(source, wanted)
    return source


def _key(breach: Breach) -> tuple[object, ...]:
    return (breach.rule, breach.table, breach.version, breach.first, breach.second)


def _candidates(source: list[Event], breach: Breach) -> Iterator[list[Event]]:
    """Smaller histories, the smallest first."""
    kept = {number for number in (breach.first, breach.second) if number is not None}
    kept |= {
        event.id for event in source if isinstance(event, events.Invoke)
        and breach.attempt is not None and getattr(event.request, "attempt", None) == breach.attempt
    }  # fmt: skip
    tables = dict.fromkeys(event.table for event in source if isinstance(event, events.Invoke | events.FileLook))
    for table in tables:
        if table != breach.table:
            yield _without_table(source, table)
    yield _counted([event for event in source if not isinstance(event, events.Fault)])
    for client in dict.fromkeys(event.client for event in source if isinstance(event, events.Invoke)):
        mine = {event.id for event in source if isinstance(event, events.Invoke) and event.client == client}
        if mine - kept:
            yield _without(source, mine - kept)
    log = [event.version for event in source if isinstance(event, events.Witness) and event.table == breach.table]
    begun = sum(event.before for event in source if isinstance(event, events.Witness) and event.table == breach.table)
    for length in sorted({len(log), len(log) // 2, begun + 4, begun + 2, begun + 1} - {0}, reverse=True):
        if begun < length <= len(log):
            yield _begun_later(source, breach.table, length, kept)
    for length in sorted({begun, (breach.version or 0) + 1, len(log) // 2, len(log) - 1} - {0}):
        if 0 < length < len(log):
            yield _ended_earlier(source, breach.table, log[length], kept)
    numbers = [number for event in source if (number := _number(event)) is not None and number not in kept]
    numbers = list(dict.fromkeys(numbers))
    for size in (32, 8, 2, 1):
        for start in range(0, len(numbers) if len(numbers) >= size else 0, size):
            yield _without(source, set(numbers[start : start + size]))


def _number(event: Event) -> int | None:
    return event.id if isinstance(event, events.Invoke | events.FileLook) else None


def _without(source: list[Event], numbers: set[int]) -> list[Event]:
    """The history without these operations."""
    operations = events.Invoke | events.Ok | events.Fail | events.Info | events.FileLook
    return _counted([event for event in source if not (isinstance(event, operations) and event.id in numbers)])


def _without_table(source: list[Event], table: str) -> list[Event]:
    mine = {event.id for event in source if isinstance(event, events.Invoke | events.FileLook) and event.table == table}
    logs = events.Witness | events.Unseen
    rest = [event for event in source if not (isinstance(event, logs) and event.table == table)]
    return _without(rest, mine)


def _begun_later(source: list[Event], table: str, length: int, kept: set[int]) -> list[Event]:
    """The history in which the first `length` versions existed before it, without their proposals."""
    changed: list[Event] = [
        msgspec.structs.replace(event, before=True) if _is_of(event, table) and event.version < length else event
        for event in source
    ]
    made = {event.attempt for event in source if _is_of(event, table) and event.version < length}
    return _without(changed, _proposals(source, table, made) - kept)


def _ended_earlier(source: list[Event], table: str, version: int, kept: set[int]) -> list[Event]:
    """The history in which the log ends before that version, without the proposals of later ones."""
    rest = [event for event in source if not (_is_of(event, table) and event.version >= version)]
    made = {event.attempt for event in source if _is_of(event, table) and event.version >= version}
    return _without(rest, _proposals(source, table, made) - kept)


def _is_of(event: Event, table: str) -> TypeGuard[events.Witness]:
    return isinstance(event, events.Witness) and event.table == table


def _proposals(source: list[Event], table: str, attempts: set[str | None]) -> set[int]:
    """The requests that proposed these attempts."""
    return {
        event.id
        for event in source
        if isinstance(event, events.Invoke)
        and event.table == table
        and isinstance(event.request, events.Commit | events.CreateTable)
        and event.request.attempt in attempts
    }


def _counted(source: list[Event]) -> list[Event]:
    """The history with a matching footer."""
    kinds = tuple(kind for kind in get_args(Event) if name_of(kind) in events.Counts.__struct_fields__)
    counts = {kind: sum(type(event) is kind for event in source) for kind in kinds}
    tables: dict[str, int] = {}
    for event in source:
        if isinstance(event, events.Invoke | events.FileLook | events.Unseen):
            tables.setdefault(event.table, 0)
        elif isinstance(event, events.Witness):
            tables[event.table] = tables.get(event.table, 0) + 1
    footer = events.Footer(
        counts=events.Counts(**{name_of(kind): count for kind, count in counts.items()}), tables=tables, complete=True
    )
    return [*(event for event in source if not isinstance(event, events.Footer)), footer]
