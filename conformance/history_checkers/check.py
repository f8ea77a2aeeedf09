"""The verdict on a whole history, and its breaches in words: the operations that contradict each other, with their
requests and answers.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from conformance.history import events
from conformance.history.events import Event, FileLook, Header
from conformance.history.files import read
from conformance.history.operations import Item, Operation, operations
from conformance.history_checkers.bounds import FIRST, SECOND, Breach, Breaches
from conformance.history_checkers.columns import HistoryColumns, infer_log
from conformance.history_checkers.log import LogChecker, check_content
from conformance.history_checkers.rules import Rule
from conformance.history_checkers.watermark import WatermarkChecker
from conformance.interface.messages import name_of


class HistoryVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a complete history. A history that cannot be judged raises an error instead."""

    header: Header
    operations: int
    """The number of requests and listings."""
    tables: dict[str, int]
    """The number of versions in the final log, by table."""
    violations: "tuple[HistoryViolation, ...]"
    unseen: dict[str, str] = {}
    """The reason why the final log could not be read, by table; such a table is never conformant."""
    left_out: int = 0
    """The number of further violations of the same rules."""

    @property
    def conformant(self) -> bool:
        return not self.violations and not self.unseen


def judge(columns: HistoryColumns) -> tuple[list[Breach], int]:
    """The breaches, and the number of omitted ones. Linear in operations and versions."""
    violations: list[Breach] = []
    left_out = 0
    for table in columns.tables.values():
        breaches = Breaches(table.name)
        judged = table.unseen is None or not columns.header.open_world
        if table.unseen is not None and judged:
            infer_log(table)
        check_content(table, breaches)
        log = LogChecker(table, columns.header, breaches)
        if judged and log.check():
            WatermarkChecker(log, breaches).check()
        violations += breaches.found
        left_out += breaches.left_out
    return violations, left_out


def check_file(path: Path) -> HistoryVerdict:
    """Judge a history in a file, in memory linear in its operations. Raises `InvalidHistoryError`."""
    return _check(lambda: operations(read(path)))


def check_events(source: Sequence[Event]) -> HistoryVerdict:
    """Judge a history in memory. Raises `InvalidHistoryError`."""
    return _check(lambda: operations(source))


def _check(items: Callable[[], Iterable[Item]]) -> HistoryVerdict:
    columns = HistoryColumns(items())
    violations, left_out = judge(columns)
    return HistoryVerdict(
        header=columns.header,
        operations=columns.operations,
        tables={table.name: len(table.log) if table.unseen is None else 0 for table in columns.tables.values()},
        violations=explain(violations, items()) if violations else (),
        unseen={table.name: table.unseen.reason for table in columns.tables.values() if table.unseen is not None},
        left_out=left_out,
    )


class HistoryViolation(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement that the history shows to be violated."""

    rule: Rule
    requirement: str
    """The rule in words."""
    table: str
    version: int | None
    message: str
    """The contradiction, in a sentence."""
    operations: tuple[Operation | FileLook, ...]
    """The operations in the message: first those that contradict each other, then the other requests of its
    attempt."""
    contradicting: int = 2
    """How many of the operations contradict each other; if fewer than two, they contradict the final log."""


def explain(breaches: Sequence[Breach], items: Iterable[Item]) -> tuple[HistoryViolation, ...]:
    """The breaches in words. `items` is the history, read a second time, because memory holds only its numbers."""
    numbers = {number for breach in breaches for number in (breach.first, breach.second) if number is not None}
    attempts = {(breach.table, breach.attempt) for breach in breaches if breach.attempt is not None}
    operations: dict[int, Operation | FileLook] = {}
    requests: dict[tuple[str, str], list[Operation]] = {}
    for item in items:
        if not attempts and len(operations) == len(numbers):
            break
        if isinstance(item, (Operation, FileLook)):
            if item.id in numbers:
                operations[item.id] = item
            if isinstance(item, Operation):
                attempt = getattr(item.request, "attempt", None)
                if attempt is not None and (item.table, attempt) in attempts:
                    requests.setdefault((item.table, attempt), []).append(item)
    return tuple(_explain(breach, operations, requests) for breach in breaches)


def _explain(
    breach: Breach, operations: dict[int, Operation | FileLook], requests: dict[tuple[str, str], list[Operation]]
) -> HistoryViolation:
    named = [operations[number] for number in (breach.first, breach.second) if number is not None]
    words = [describe(operation) for operation in named]
    first = words[0] if breach.first is not None else ""
    second = words[-1] if breach.second is not None else ""
    others: list[Operation] = []
    if breach.attempt is not None:
        sends = sorted(requests.get((breach.table, breach.attempt), []), key=lambda send: send.id)
        others = [send for send in sends if send.id not in (breach.first, breach.second)]
    message = breach.problem.replace(FIRST, first).replace(SECOND, second)
    if others:
        message += f" All other requests of attempt {breach.attempt}: {'; '.join(describe(send) for send in others)}."
    return HistoryViolation(
        rule=breach.rule,
        requirement=breach.rule.meaning,
        table=breach.table,
        version=breach.version,
        message=message,
        operations=(*named, *others),
        contradicting=len(named),
    )


def describe(operation: Operation | FileLook) -> str:
    """An operation in one line: client, request, time and answer."""
    if isinstance(operation, FileLook):
        when = f"events {operation.since} to {operation.at}"
        return f"a listing (operation {operation.id}, {when}: {describe_look(operation)})"
    answer = "no answer" if operation.answer is None else f"answer: {describe_answer(operation.answer)}"
    when = f"from event {operation.invoked}"
    if operation.answered is not None:
        when = f"events {operation.invoked} to {operation.answered}"
    who = operation.client or "a client"
    request = describe_request(operation.request)
    return f"{who}'s {request} (operation {operation.id}, {when}, {answer})"


def describe_look(look: FileLook) -> str:
    """The result of an external observer's listing, in words."""
    published = [file.version for file in look.published]
    seen = [f"version{'s' * (len(published) > 1)} {_ranges(published)} published"] if published else []
    return ", ".join([*seen, f"no version {_ranges(look.absent)}"] if look.absent else seen)


def describe_request(request: events.Request) -> str:
    """A request in words, without client and time."""
    name = name_of(request)
    if isinstance(request, events.Other):
        return request.name
    details: list[str] = []
    version = getattr(request, "version", None)
    attempt = getattr(request, "attempt", None)
    if version is not None:
        details.append(f"of version {version}" if attempt is not None else f"at version {version}")
    if attempt is not None:
        details.append(f"as attempt {attempt}")
    if isinstance(request, events.GetCommits) and (request.start is not None or request.end is not None):
        details.append(f"from {_or(request.start, 'the first')} to {_or(request.end, 'the last')}")
    if isinstance(request, events.Snapshot) and request.by_path:
        details.append("by path")
    return " ".join([name, *details])


def describe_answer(answer: events.Answer) -> str:
    """An answer in words."""
    name = name_of(answer).replace("_", " ")
    details: list[str] = []
    version = getattr(answer, "version", None)
    if version is not None:
        details.append(f"version {version}")
    if isinstance(answer, (events.Commits, events.Table)) or getattr(answer, "latest", None) is not None:
        details.append(f"latest {_or(getattr(answer, 'latest', None), 'null')}")
    listed = answer.winners if isinstance(answer, events.Conflict) else getattr(answer, "commits", None)
    if listed:
        details.append("listing " + _ranges(entry.version for entry in listed))
    if reason := getattr(answer, "reason", ""):
        details.append(reason)
    return ", ".join([name, *details])


def _or(value: int | None, otherwise: str) -> str:
    return otherwise if value is None else str(value)


def _ranges(numbers: Iterable[int]) -> str:
    versions = sorted(set(numbers))
    if len(versions) > 1 and versions[-1] - versions[0] == len(versions) - 1:
        return f"{versions[0]}..{versions[-1]}"
    return " ".join(map(str, versions[:10])) + (" ..." if len(versions) > 10 else "")
