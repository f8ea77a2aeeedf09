"""The conflict table of the course: operation by operation by isolation level, computed by the client's own checks."""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove
from refimpl.client.conflicts import (
    IsolationLevel,
    ReadBasis,
    ReadPredicate,
    Reads,
    TransactionSummary,
    Winner,
    check,
    is_blind_append,
)
from refimpl.errors import ConcurrentModificationError

SCHEMA = '{"type":"struct","fields":[{"name":"month","type":"string","nullable":true,"metadata":{}}]}'
WIDER = SCHEMA.replace("]}", ',{"name":"more","type":"string","nullable":true,"metadata":{}}]}')


LANDS = "is rebased"


def _metadata(schema: str) -> Metadata:
    return Metadata(id="t", schema_string=schema, partition_columns=("month",), configuration={})


BASIS = ReadBasis(protocol=Protocol(min_reader_version=1, min_writer_version=2), metadata=_metadata(SCHEMA))


def _add(path: str, month: str = "1", *, data_change: bool = True) -> Add:
    return Add(path=path, partition_values={"month": month}, size=1, modification_time=0, data_change=data_change)


def _remove(path: str, *, data_change: bool = True) -> Remove:
    return Remove(path=path, data_change=data_change)


def _read(month: str, *files: str) -> Reads:
    predicate = ReadPredicate(text=f"month = '{month}'", may_match=lambda add: add.partition_values["month"] == month)
    return Reads(predicates=(predicate,), files=frozenset((each, None) for each in files))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What it reads, and what it writes; `name` makes the paths of its new files different."""

    reads: Reads
    actions: tuple[Action, ...]


def operations(name: str) -> dict[str, Operation]:
    """On a table partitioned by month, with the file `x` in month 1 and `y` in month 2."""
    return {
        "INSERT": Operation(reads=Reads(), actions=(_add(name),)),
        "UPDATE or DELETE of month 1": Operation(reads=_read("1", "x"), actions=(_remove("x"), _add(name))),
        "UPDATE or DELETE of month 2": Operation(reads=_read("2", "y"), actions=(_remove("y"), _add(name, "2"))),
        "overwrite of the table": Operation(
            reads=Reads(whole_table=True, files=frozenset({("x", None), ("y", None)})),
            actions=(_remove("x"), _remove("y"), _add(name)),
        ),
        "OPTIMIZE of month 1": Operation(
            reads=_read("1", "x"), actions=(_remove("x", data_change=False), _add(name, data_change=False))
        ),
        "ADD COLUMN": Operation(reads=Reads(), actions=(_metadata(WIDER),)),
    }


def outcome(mine: Operation, theirs: Operation, isolation: IsolationLevel) -> str:
    """`LANDS`, or the error, where `theirs` was first."""
    info = CommitInfo({"isBlindAppend": is_blind_append(theirs.reads, theirs.actions)})
    summary = TransactionSummary.of(mine.actions, mine.reads, isolation)
    try:
        check(summary, Winner(version=1, actions=(info, *theirs.actions)), BASIS)
    except ConcurrentModificationError as error:
        return type(error).__name__.removesuffix("Error")
    return LANDS


def table() -> str:
    """As Markdown: a row for each pair that conflicts at some level."""
    rows = [
        "| this operation | lost to | Serializable | WriteSerializable | SnapshotIsolation |",
        "|---|---|---|---|---|",
    ]
    for mine, transaction in operations("mine").items():
        for theirs, winner in operations("theirs").items():
            cells = [outcome(transaction, winner, level) for level in IsolationLevel]
            if set(cells) == {LANDS}:
                continue
            rows.append(f"| {mine} | {theirs} | {' | '.join(cells)} |")
    return "\n".join(rows)
