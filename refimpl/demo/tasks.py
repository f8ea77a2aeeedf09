"""What the processes of the demonstration are asked to do, and what they tell: one JSON object a line.

A process reads its task from its argument, then words from its standard input, one a line: `go`, or for a
writer that has done its parts a list of more. At the end of the input it ends itself. What it tells, it
writes to its standard output.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

GO: Final = "go"


def word_of_parts(parts: list[str]) -> str:
    """More parts for a writer; none: it is done."""
    return msgspec.json.encode(parts).decode()


def parts_of_word(word: str) -> list[str]:
    return msgspec.json.decode(word, type=list[str])


class Create(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Wait for the word, create the table `name`, then note in the table `journal` what came of it."""

    warehouse: str
    name: str
    schema_string: str
    partition_column: str
    backfill_every: int | None
    journal: str


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Stand still at the first proposal of part number `part`, until the word or the kill comes.

    `ratified` false: the staged file is durable, and the owner was not asked. True: the owner has ratified
    the commit and its answer has not reached the writer.
    """

    part: int
    ratified: bool


class Ingest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Append the parts of a file to a table through Spark, one commit for each part; then ask for more."""

    warehouse: str
    table: str
    path: str
    is_csv: bool
    partition_column: str
    parts: list[str]
    holds: list[Hold] = []


class Watch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Keep reading the table until the word comes; check each snapshot against the parts' rows."""

    warehouse: str
    table: str
    partition_column: str
    rows: dict[str, int]


class ReadBack(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Start Spark, wait for the word, then compute the totals of each part from the table."""

    warehouse: str
    table: str
    partition_column: str
    counted: list[str]
    summed: list[str]
    earlier_version: int


Task = Create | Ingest | Watch | ReadBack


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a process tells. `at`: ms since the epoch."""

    what: str
    at: int
    facts: dict[str, Any] = {}
